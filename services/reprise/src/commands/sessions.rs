//! `reprise sessions`: what is kept, for its owner to read, take away, bring back, find and delete.
//!
//! Works on the store's file, also beside a running service.

mod context;
mod show;

use anyhow::{Context, Result, bail};
use engine::OwnerId;
use lab::output::{TextTable, clean, count, print_json, time};
use lab::store::with_store;
use runtime::wall_ms;
use settings::Settings;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use store::{Error, Export, HistorySearch, SessionLine, SessionRef, Store};

/// Lists, shows, exports, imports, searches and deletes conversations, and what stands in their prompts
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: SessionsAction,
}

#[derive(Debug, clap::Subcommand)]
enum SessionsAction {
    /// The sessions, newest first
    List {
        /// Only this user's
        #[arg(long)]
        user: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// One conversation as it stands: its settings, its summary, its pins, what was said
    Show {
        #[command(flatten)]
        one: One,
        /// Everything that ever happened in it, with every version
        #[arg(long)]
        history: bool,
        #[arg(long)]
        json: bool,
    },
    /// Writes sessions as JSON Lines, everything that ever happened in them
    Export {
        #[arg(required_unless_present = "all")]
        sessions: Vec<String>,
        /// Every session (of --user, or of everybody)
        #[arg(long, conflicts_with = "sessions")]
        all: bool,
        #[arg(long)]
        user: Option<String>,
        /// The file to write; without it, the lines go to the standard output
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Takes in what export wrote; - reads the standard input
    Import {
        file: PathBuf,
        /// Into this user's sessions, whichever user they belonged to
        #[arg(long)]
        user: Option<String>,
        #[arg(long)]
        json: bool,
    },
    /// Finds words and "phrases" in everything that was ever said
    Search {
        #[arg(required = true)]
        query: Vec<String>,
        /// Only this user's sessions
        #[arg(long)]
        user: Option<String>,
        /// Only this session
        #[arg(long)]
        session: Option<String>,
        /// One of the words is enough
        #[arg(long)]
        any: bool,
        #[arg(long, default_value_t = 20)]
        limit: u32,
        #[arg(long)]
        json: bool,
    },
    /// Deletes sessions for good: there is no way back but an export
    Delete {
        #[arg(required_unless_present = "unused_days")]
        sessions: Vec<String>,
        #[arg(long)]
        user: Option<String>,
        /// Every session of all users that was not used for so many days
        #[arg(long, value_name = "DAYS", conflicts_with_all = ["sessions", "user"])]
        unused_days: Option<u32>,
        /// Does not ask
        #[arg(long)]
        yes: bool,
        #[arg(long)]
        json: bool,
    },
    /// The summaries that stand or stood for old turns
    Summaries {
        #[command(flatten)]
        one: One,
        #[arg(long)]
        json: bool,
    },
    /// Takes back the summary in use: the one before it stands again, or the whole history
    Undo {
        #[command(flatten)]
        one: One,
    },
    /// Puts a summary to use again that was undone
    Redo {
        #[command(flatten)]
        one: One,
        /// This one [default: the last that was undone]
        #[arg(long)]
        version: Option<u64>,
    },
    /// Puts the text of a file in the place of a summary; - reads the standard input
    Edit {
        #[command(flatten)]
        one: One,
        file: PathBuf,
        /// This one [default: the one in use]
        #[arg(long)]
        version: Option<u64>,
    },
    /// Lists, adds and removes what the assistant always sees word for word
    #[command(subcommand)]
    Pins(context::Pins),
    /// Checks every page, index and checksum of the store, and says how large it is
    Check {
        #[arg(long)]
        json: bool,
    },
}

/// One session by its id, of --user where several users have one of that id.
#[derive(Debug, clap::Args)]
struct One {
    session: String,
    #[arg(long)]
    user: Option<String>,
}

impl One {
    async fn find(&self, store: &Store) -> Result<SessionRef> {
        find(store, self.user.as_deref(), &self.session).await
    }
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let create = matches!(args.action, SessionsAction::Import { .. });
    with_store(settings, create, async |store| act(store, args.action, settings).await)
}

async fn act(store: &Store, action: SessionsAction, settings: &Settings) -> Result<()> {
    match action {
        SessionsAction::List { user, limit, json } => list(store, user.as_deref(), limit, json).await,
        SessionsAction::Show { one, history, json } => show::show(store, &one.find(store).await?, history, json).await,
        SessionsAction::Export { sessions, all, user, output } => {
            let sessions = match all {
                true => every_session(store, user.as_deref()).await?,
                false => find_all(store, user.as_deref(), &sessions).await?,
            };
            export(store, &sessions, output.as_deref()).await
        }
        SessionsAction::Import { file, user, json } => import(store, &file, user.as_deref(), json).await,
        SessionsAction::Search { query, user, session, any, limit, json } => {
            search(store, &query.join(" "), user.as_deref(), session.as_deref(), any, limit, json).await
        }
        SessionsAction::Delete { sessions, user, unused_days, yes, json } => match unused_days {
            Some(days) => delete_unused(store, days, yes, json, settings).await,
            None => delete(store, &find_all(store, user.as_deref(), &sessions).await?, yes, json, settings).await,
        },
        SessionsAction::Summaries { one, json } => context::summaries(store, &one.find(store).await?, json).await,
        SessionsAction::Undo { one } => context::undo(store, &one.find(store).await?, settings).await,
        SessionsAction::Redo { one, version } => context::redo(store, &one.find(store).await?, version, settings).await,
        SessionsAction::Edit { one, file, version } => {
            context::edit(store, &one.find(store).await?, version, &file, settings).await
        }
        SessionsAction::Pins(pins) => context::pins(store, pins, settings).await,
        SessionsAction::Check { json } => check(store, json).await,
    }
}

async fn list(store: &Store, user: Option<&str>, limit: u32, json: bool) -> Result<()> {
    let mut lines: Vec<SessionLine> = Vec::new();
    for user in users(store, user).await? {
        lines.extend(store.list_sessions(&user, None, limit).await?);
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.session.updated_at_ms));
    lines.truncate(limit as usize);
    if json {
        return print_json(&lines);
    }
    let mut table =
        TextTable::new(&["session", "user", "last used (UTC)", ">items", ">fill", ">window", "preset", "title"]);
    for line in &lines {
        let session = &line.session;
        table.row([
            clean(&session.id),
            clean(&session.user),
            time(session.updated_at_ms),
            line.items.to_string(),
            count(line.fill_tokens),
            session.placement.ctx_size.to_string(),
            clean(&session.placement.preset),
            clean(&session.title),
        ]);
    }
    table.print()
}

async fn export(store: &Store, sessions: &[SessionRef], output: Option<&Path>) -> Result<()> {
    let Some(path) = output else {
        let mut out = BufWriter::new(std::io::stdout().lock());
        for session in sessions {
            write_lines(store.export(session).await?, &mut out).await?;
        }
        return Ok(out.flush()?);
    };
    // Into another file first: a full disk must not leave half an export under the name of a whole one.
    let part = path.with_added_extension("part");
    let written = async {
        let mut out = BufWriter::new(private_file(&part).with_context(|| part.display().to_string())?);
        for session in sessions {
            write_lines(store.export(session).await?, &mut out).await?;
        }
        out.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        std::fs::rename(&part, path).with_context(|| path.display().to_string())
    };
    if let Err(error) = written.await {
        let _ = std::fs::remove_file(&part);
        return Err(error);
    }
    eprintln!("{} written to {}", counted(sessions.len() as u64), path.display());
    Ok(())
}

async fn write_lines(mut export: Export, out: &mut impl Write) -> Result<()> {
    while let Some(line) = export.next().await {
        writeln!(out, "{}", line?)?;
    }
    Ok(())
}

/// What people said is for its owner only, in an export as in the store.
fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

async fn import(store: &Store, file: &Path, user: Option<&str>, json: bool) -> Result<()> {
    let input: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(File::open(file).with_context(|| format!("{}", file.display()))?),
    };
    let mut importer = store.importer(user, wall_ms());
    for line in BufReader::new(input).lines() {
        importer.line(&line.with_context(|| format!("{}", file.display()))?).await?;
    }
    let sessions = importer.finish().await?;
    if json {
        let ids: Vec<_> = sessions
            .iter()
            .map(|session| serde_json::json!({"user": session.user(), "session": session.id()}))
            .collect();
        return print_json(&ids);
    }
    for session in &sessions {
        println!("{} of {}", clean(session.id()), clean(session.user()));
    }
    println!("{} imported", counted(sessions.len() as u64));
    Ok(())
}

async fn search(
    store: &Store,
    query: &str,
    user: Option<&str>,
    session: Option<&str>,
    any_word: bool,
    limit: u32,
    json: bool,
) -> Result<()> {
    let session = match session {
        Some(id) => Some(find(store, user, id).await?),
        None => None,
    };
    let users = match &session {
        Some(session) => vec![session.user().to_owned()],
        None => users(store, user).await?,
    };
    let bold = !json && std::io::stdout().is_terminal();
    let mut hits = Vec::new();
    for user in &users {
        let search = HistorySearch {
            user,
            session: session.as_ref(),
            query,
            any_word,
            limit,
            recent_ms: None,
            now_ms: wall_ms(),
            // Marks that survive the cleaning of the text; they become bold, or nothing.
            marks: if bold { ["\u{e000}", "\u{e001}"] } else { ["", ""] },
            excerpt_words: 24,
        };
        hits.extend(store.search(&search).await?.into_iter().map(|hit| (user, hit)));
    }
    hits.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
    hits.truncate(limit as usize);
    if json {
        let hits: Vec<_> = hits.iter().map(|(_, hit)| hit).collect();
        return print_json(&hits);
    }
    for (user, hit) in &hits {
        let excerpt = clean(&hit.excerpt).replace('\u{e000}', "\x1b[1m").replace('\u{e001}', "\x1b[0m");
        let past = if hit.current { "" } else { ", since changed or deleted" };
        let who = hit.role.as_deref().unwrap_or(&hit.kind);
        let (session, item) = (clean(&hit.session_id), clean(&hit.item_id));
        println!("{} {user} {session} {item} ({who}{past})", time(hit.created_at_ms));
        println!("    {excerpt}");
    }
    match hits.len() {
        0 => println!("nothing found"),
        n => println!("{n} found"),
    }
    Ok(())
}

async fn delete(store: &Store, sessions: &[SessionRef], yes: bool, json: bool, settings: &Settings) -> Result<()> {
    for session in sessions {
        let record = store.session(session).await?;
        eprintln!("{} of {}: {}", clean(session.id()), clean(session.user()), clean(&record.title));
    }
    confirm(&format!("delete {} for good", counted(sessions.len() as u64)), yes)?;
    let mut past_owners = Vec::new();
    for session in sessions {
        store.delete_session(session, wall_ms()).await?;
        past_owners.push(session.past_owner());
    }
    deleted(&past_owners, json, settings)
}

async fn delete_unused(store: &Store, days: u32, yes: bool, json: bool, settings: &Settings) -> Result<()> {
    let now_ms = wall_ms();
    let before_ms = now_ms - i64::from(days) * MS_PER_DAY;
    confirm(&format!("delete every session not used since {} for good", time(before_ms)), yes)?;
    deleted(&store.delete_unused_since(before_ms, now_ms).await?, json, settings)
}

const MS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

/// What was computed of a session holds its words too. A service that runs drops what it holds in memory by itself.
fn deleted(past_owners: &[u64], json: bool, settings: &Settings) -> Result<()> {
    let mut files = 0;
    if let Some(folder) = &settings.memory.disk_path {
        for owner in past_owners {
            let deleted = engine::forget_files(folder, OwnerId(*owner));
            files += deleted.with_context(|| format!("what was computed is still in {}", folder.display()))?;
        }
    }
    if json {
        return print_json(&serde_json::json!({"sessions": past_owners.len(), "computed_files": files}));
    }
    println!("{} deleted, and {files} files of what was computed of them", counted(past_owners.len() as u64));
    Ok(())
}

fn counted(sessions: u64) -> String {
    if sessions == 1 { "1 session".into() } else { format!("{sessions} sessions") }
}

/// Asks a person; a script has to say --yes.
fn confirm(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("to {what} without being asked, add --yes");
    }
    eprint!("{what}? type yes: ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { bail!("nothing was deleted") }
}

async fn check(store: &Store, json: bool) -> Result<()> {
    let problems = store.check().await?;
    let statistics = store.statistics().await?;
    if json {
        print_json(&serde_json::json!({"problems": &problems, "statistics": statistics}))?;
    } else {
        for problem in &problems {
            println!("{}", clean(problem));
        }
        show::statistics(store.path(), &statistics)?;
    }
    match problems.len() {
        0 => Ok(()),
        n => bail!("{n} problems in the store: keep a copy of the file and restore a backup"),
    }
}

async fn users(store: &Store, user: Option<&str>) -> Result<Vec<String>> {
    let all: Vec<String> = store.users().await?.into_iter().map(|user| user.id).collect();
    match user {
        None => Ok(all),
        Some(user) if all.iter().any(|known| known == user) => Ok(vec![user.to_owned()]),
        Some(user) => Err(Error::NoUser { user: user.to_owned() }.into()),
    }
}

/// By its id; where two users have the same, one must be named.
async fn find(store: &Store, user: Option<&str>, id: &str) -> Result<SessionRef> {
    let mut found = Vec::new();
    for user in users(store, user).await? {
        match store.open_session(&user, id).await {
            Ok(session) => found.push(session),
            Err(Error::NoSession { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    match found.len() {
        0 => Err(Error::NoSession { session: id.to_owned() }.into()),
        1 => Ok(found.remove(0)),
        _ => {
            let users: Vec<&str> = found.iter().map(SessionRef::user).collect();
            bail!("session {id} is one of {}: choose with --user", users.join(" and of "))
        }
    }
}

async fn find_all(store: &Store, user: Option<&str>, ids: &[String]) -> Result<Vec<SessionRef>> {
    let mut sessions = Vec::with_capacity(ids.len());
    for id in ids {
        sessions.push(find(store, user, id).await?);
    }
    Ok(sessions)
}

async fn every_session(store: &Store, user: Option<&str>) -> Result<Vec<SessionRef>> {
    let mut sessions = Vec::new();
    for user in users(store, user).await? {
        for line in store.list_sessions(&user, None, u32::MAX).await? {
            sessions.push(store.open_session(&user, &line.session.id).await?);
        }
    }
    Ok(sessions)
}
