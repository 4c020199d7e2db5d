//! `reprise memories`: the facts about the people of a home, for them to read, correct, delete and export.
//!
//! Works on the store's file, also beside a running service.

use crate::owners::{confirm, forget_computed, users, write_private};
use anyhow::{Result, bail};
use runtime::{facts_about, wall_ms, write_fact};
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use std::path::PathBuf;
use store::{Error, RememberedFact, Store};
use terminal::output::{clean, print_json, print_report, print_rows, put, time};
use terminal::store::with_store;
use terminal::{note, say};

/// Lists, shows, searches, adds, deletes and exports the facts that outlive conversations
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: MemoriesAction,
    /// Only this user's: the user of the key with which the home talks
    #[arg(long, global = true)]
    user: Option<String>,
    /// Only this person's; "" is the home
    #[arg(long, global = true)]
    person: Option<String>,
    /// Prints one JSON object for programs
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum MemoriesAction {
    /// Lists today's facts, newest first
    List {
        /// Adds replaced facts to the list, with those that took their place
        #[arg(long)]
        past: bool,
    },
    /// Shows one of them: where, when and in which words it was said
    Show { memory: String },
    /// Lists those with one of these words
    Search {
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Adds a fact, which replaces the facts about the same subject
    Add {
        #[arg(required = true)]
        text: Vec<String>,
    },
    /// Deletes these facts, and hides their sentences from all searches of the past
    Forget {
        #[arg(required_unless_present = "all")]
        memories: Vec<String>,
        /// Deletes all of --person
        #[arg(long, conflicts_with = "memories", requires = "person")]
        all: bool,
        #[arg(help = "Does not ask for confirmation of --all")]
        #[arg(long)]
        yes: bool,
    },
    /// Writes the facts as JSON Lines
    Export {
        /// File to write [default: the standard output]
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let Args { action, user, person, json } = args;
    with_store(settings, false, async |store| Memories { store, settings, user, person, json }.act(action).await)
}

// A fact for programs, with the user whose it is.
#[derive(Serialize)]
struct OwnedFact<'a> {
    user: &'a str,
    #[serde(flatten)]
    fact: &'a RememberedFact,
}

fn counted(memories: usize) -> String {
    if memories == 1 { "1 memory".to_owned() } else { format!("{memories} memories") }
}

struct Memories<'a> {
    store: &'a Store,
    settings: &'a Settings,
    user: Option<String>,
    person: Option<String>,
    json: bool,
}

impl Memories<'_> {
    async fn act(&self, action: MemoriesAction) -> Result<()> {
        match action {
            MemoriesAction::List { past } => {
                let mut facts = self.facts().await?;
                facts.retain(|(_, fact)| fact.holds() || past && fact.forgotten_at_ms.is_none());
                self.print(facts)
            }
            MemoriesAction::Show { memory } => {
                let (user, fact) = self.find(&memory).await?;
                let mut told = json!(OwnedFact { user: &user, fact: &fact });
                if self.json {
                    return print_json(&told);
                }
                // The key under which one fact takes another's place says nothing to people.
                told.as_object_mut().and_then(|told| told.remove("about"));
                print_report(&told, &[])
            }
            MemoriesAction::Search { words } => {
                let mut facts = self.facts().await?;
                let found = facts_about(facts.iter().map(|(_, fact)| fact.clone()).collect(), &words.join(" "));
                facts.retain(|(_, fact)| fact.holds() && found.iter().any(|found| found.id == fact.id));
                self.print(facts)
            }
            MemoriesAction::Add { text } => {
                let users = users(self.store, self.user.as_deref()).await?;
                let [user] = &users[..] else {
                    bail!("there are several users: choose one with --user {}", users.join(" or --user "))
                };
                let person = self.person.clone().unwrap_or_default();
                let fact = write_fact(self.store, user, &person, &text.join(" ")).await?;
                if self.json {
                    return print_json(&OwnedFact { user, fact: &fact });
                }
                say!("{}", fact.id)?;
                Ok(())
            }
            MemoriesAction::Forget { all: true, yes, .. } => {
                let person = self.person.as_deref().unwrap_or_default();
                let facts = self.facts().await?;
                let count = facts.iter().filter(|(_, fact)| fact.forgotten_at_ms.is_none()).count();
                let whose = if person.is_empty() { "the home".to_owned() } else { format!("{person:?}") };
                confirm(&format!("delete {} of {whose} for good", counted(count)), yes)?;
                let mut forgotten = 0;
                for user in users(self.store, self.user.as_deref()).await? {
                    forgotten += self.store.forget_person(&user, person, wall_ms()).await?;
                }
                self.forgotten(forgotten).await
            }
            MemoriesAction::Forget { memories, .. } => {
                let mut forgotten = 0;
                for memory in &memories {
                    let (user, fact) = self.find(memory).await?;
                    forgotten += self.store.forget_facts(&user, vec![fact.id], wall_ms()).await?;
                }
                self.forgotten(forgotten).await
            }
            MemoriesAction::Export { output } => {
                let facts = self.facts().await?;
                let kept = facts.iter().filter(|(_, fact)| fact.forgotten_at_ms.is_none());
                let lines = kept.map(|(user, fact)| Ok(serde_json::to_string(&OwnedFact { user, fact })? + "\n"));
                let lines = lines.collect::<Result<Vec<String>>>()?;
                let Some(path) = output else { return Ok(put(format_args!("{}", lines.concat()))?) };
                write_private(&path, &lines.concat())?;
                if self.json {
                    return print_json(&json!({ "file": path, "memories": lines.len() }));
                }
                note!("{} written to {}", counted(lines.len()), path.display());
                Ok(())
            }
        }
    }

    async fn forgotten(&self, forgotten: u64) -> Result<()> {
        forget_computed(self.settings, self.store).await?;
        if self.json {
            return print_json(&json!({ "forgotten": forgotten }));
        }
        say!("{forgotten} forgotten")?;
        Ok(())
    }

    fn print(&self, mut facts: Vec<(String, RememberedFact)>) -> Result<()> {
        facts.sort_by_key(|(_, fact)| std::cmp::Reverse(fact.said_at_ms));
        if self.json {
            return print_json(&facts.iter().map(|(user, fact)| OwnedFact { user, fact }).collect::<Vec<_>>());
        }
        let row = |(user, fact): &(String, RememberedFact)| {
            let whose = if fact.person.is_empty() { "(the home)" } else { &fact.person };
            json!({
                "id": fact.id, "user": clean(user), "whose": clean(whose), "said": time(fact.said_at_ms),
                "how": if fact.asked { "asked" } else { "learned" }, "text": clean(&fact.text),
                "replaced": fact.replaced_by,
            })
        };
        let rows: Vec<_> = facts.iter().map(row).collect();
        let columns = [
            ("memory", "id"),
            ("user", "user"),
            ("whose", "whose"),
            ("said (UTC)", "said"),
            ("how", "how"),
            ("what", "text"),
            ("replaced by", "replaced"),
        ];
        print_rows(&rows, &columns)
    }

    async fn facts(&self) -> Result<Vec<(String, RememberedFact)>> {
        let mut facts = Vec::new();
        for user in users(self.store, self.user.as_deref()).await? {
            let known = self.store.facts(&user, self.person.as_deref()).await?;
            facts.extend(known.into_iter().map(|fact| (user.clone(), fact)));
        }
        Ok(facts)
    }

    async fn find(&self, id: &str) -> Result<(String, RememberedFact)> {
        let found = self.facts().await?.into_iter().find(|(_, fact)| fact.id == id && fact.forgotten_at_ms.is_none());
        found.ok_or_else(|| Error::NoFact { fact: id.to_owned() }.into())
    }
}
