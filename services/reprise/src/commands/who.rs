//! Persons and rooms of conversations, and the rules that find them.
//!
//! Works on the configuration and the store's file, also beside a running service.

mod recorded;

use crate::owners::{confirm, forget_computed, users};
use anyhow::{Context, Result, bail};
use recorded::RecordedRequest;
use replies::identity::Explanation;
use runtime::wall_ms;
use serde_json::{Value, json};
use settings::{RuleClue, RuleName, Settings, person_name};
use std::io::Read;
use std::path::{Path, PathBuf};
use store::Store;
use terminal::output::{clean, print_json, print_rows};
use terminal::say;
use terminal::store::with_store;

/// Tells to which person or room conversations belong: the rules, the known names, and the result for a request
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Option<WhoAction>,
    /// Takes a recorded request {method, path, headers, body} and prints the rule that matches it; - reads the standard
    /// input
    #[arg(long, value_name = "FILE")]
    explain: Option<PathBuf>,
    /// Only this user's
    #[arg(long, global = true)]
    user: Option<String>,
    /// Prints one JSON object for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum WhoAction {
    /// Deletes a person or a room with all its data, for good
    Forget {
        name: String,
        /// Does not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let Args { action, explain, user, json } = args;
    match (action, explain) {
        (Some(WhoAction::Forget { name, yes }), _) => {
            with_store(settings, false, async |store| forget(store, settings, user.as_deref(), &name, yes, json).await)
        }
        (None, Some(file)) => explained(settings, &file, json),
        (None, None) => listed(settings, user.as_deref(), json),
    }
}

fn explained(settings: &Settings, file: &Path, json: bool) -> Result<()> {
    let text = match file.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin().take(MOST_BYTES))?,
        _ => std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
    };
    let what = "a request is {method, path, headers, body}";
    let request: RecordedRequest = serde_json::from_str(&text).context(what)?;
    let mut key = None;
    if let Some(id) = request.key_id().filter(|_| settings.store.path.exists()) {
        with_store(settings, false, async |store| {
            key = store.keys(None).await?.into_iter().find(|key| key.id == id);
            Ok(())
        })?;
    }
    let named = key.as_ref().map(|key| (key.id.as_str(), key.name.as_str()));
    let explanation = request.explain(named, settings)?;
    if json {
        let mut value = serde_json::to_value(&explanation)?;
        value["user"] = json!(key.map(|key| key.user));
        return print_json(&value);
    }
    print(&explanation)
}

const MOST_BYTES: u64 = 64 << 20;

fn print(explanation: &Explanation) -> Result<()> {
    for trial in &explanation.rules {
        say!("rule {}  {}", trial.rule, if trial.holds { "holds" } else { "does not hold" })?;
        for condition in &trial.conditions {
            let name = condition.name.as_ref().map(|name| format!("yes: {name}"));
            let said = name.or(condition.why.map(|why| format!("no: {why}"))).unwrap_or_else(|| "yes".to_owned());
            say!("    {}  {}", clean(&condition.condition), clean(&said))?;
        }
    }
    let or = |name: &str, other: &str| if name.is_empty() { other.to_owned() } else { clean(name) };
    let by = explanation.rule.map_or("no rule".to_owned(), |rule| format!("rule {rule}"));
    say!("matched by  {by}")?;
    say!("person      {}", or(&explanation.person, "the home's guest"))?;
    say!("room        {}", or(&explanation.room, "not known"))?;
    say!("kept        {}", explanation.kept)?;
    say!("changes     of its instructions: {}", explanation.changed_head)?;
    say!("remembered  {}", if explanation.is_remembered { "yes" } else { "no" })?;
    match explanation.continue_minutes {
        0 => say!("continues   no: a new conversation begins empty")?,
        minutes => say!("continues   for {minutes} minutes, if the client sends its whole conversation")?,
    }
    Ok(())
}

fn listed(settings: &Settings, user: Option<&str>, json: bool) -> Result<()> {
    let mut persons: Vec<Value> = Vec::new();
    if settings.store.path.exists() {
        with_store(settings, false, async |store| {
            for known in users(store, user).await? {
                for line in store.persons(&known).await? {
                    let mut line = serde_json::to_value(line)?;
                    line["user"] = json!(known);
                    persons.push(line);
                }
            }
            Ok(())
        })?;
    }
    let rules: Vec<String> = settings.remember.who.iter().map(rule_text).collect();
    if json {
        return print_json(&json!({ "rules": rules, "persons": persons }));
    }
    for (at, rule) in rules.iter().enumerate() {
        say!("rule {}  {}", at + 1, clean(rule))?;
    }
    say!()?;
    let columns = [
        ("user", "user"),
        ("person", "person"),
        ("room", "room"),
        ("sessions", "sessions"),
        ("last used (UTC)", "used_at_ms"),
    ];
    print_rows(&persons, &columns)
}

fn rule_text(rule: &settings::PersonRule) -> String {
    let mut pairs = Vec::new();
    for (key, name) in [("person", &rule.person), ("room", &rule.room)] {
        match name {
            RuleName::Found => pairs.push(format!("{key} = \"*\"")),
            RuleName::Named(name)
                if key == "person" && name.is_empty() && rule.room == RuleName::Named(String::new()) =>
            {
                pairs.push("person = \"\"".to_owned());
            }
            RuleName::Named(name) if name.is_empty() => {}
            RuleName::Named(name) => pairs.push(format!("{key} = {name:?}")),
        }
    }
    for condition in &rule.conditions {
        let wanted = condition.wanted.to_string();
        match &condition.clue {
            RuleClue::Header(name) => pairs.push(format!("header = {name:?}, value = {wanted:?}")),
            clue => pairs.push(format!("{} = {wanted:?}", clue.key())),
        }
    }
    pairs.extend(rule.is_private.then(|| "private = true".to_owned()));
    pairs.extend(rule.continue_minutes.map(|minutes| format!("continue_minutes = {minutes}")));
    format!("{{ {} }}", pairs.join(", "))
}

async fn forget(
    store: &Store,
    settings: &Settings,
    user: Option<&str>,
    name: &str,
    yes: bool,
    json: bool,
) -> Result<()> {
    let person = if name.is_empty() { Some(String::new()) } else { person_name(name) };
    let Some(person) = person else { bail!("{name:?} cannot be the name of a person or a room") };
    let mut with = Vec::new();
    for user in users(store, user).await? {
        let lines = store.persons(&user).await?;
        if lines.iter().any(|line| line.name == person || (line.name.is_empty() && line.room == person)) {
            with.push(user);
        }
    }
    let user = match with.as_slice() {
        [] => bail!("no conversation belongs to {name:?}: `reprise who` lists the known names"),
        [user] => user,
        users => bail!("{name:?} belongs to {}: choose one with --user", users.join(" and to ")),
    };
    let sessions = store.sessions_of_person(user, &person).await?.len();
    confirm(&format!("delete {name:?} of {user} with {sessions} sessions for good"), yes)?;
    let deleted = store.delete_person(user, &person, wall_ms()).await?;
    let files = forget_computed(settings, store).await?;
    if json {
        return print_json(&json!({ "person": person, "sessions": deleted.len(), "computed_files": files }));
    }
    say!("{} is deleted with {} sessions, and {files} files of what was computed of them", clean(name), deleted.len())?;
    Ok(())
}
