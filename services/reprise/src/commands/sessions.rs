//! `reprise sessions`: conversations, for their owner to read, export, import, search and delete.
//!
//! Works on the store's file, also beside a running service.

mod context;
mod show;

use crate::owners::{confirm, copy_computed, forget_computed, private_file, users};
use anyhow::{Context, Result, anyhow, bail};
use runtime::wall_ms;
use serde_json::json;
use settings::Settings;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use store::{Error, HistorySearch, ImportedIds, SearchPlace, SessionLine, SessionRef, Statistics, Store};
use terminal::output::{clean, print_json, print_report, print_rows, stdout, time, unless_closed};
use terminal::store::with_store;
use terminal::{note, say};

/// Lists, shows, exports, imports, searches and deletes conversations, their summaries and pins
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: SessionsAction,
    /// Only this user's sessions; import gives them to this user, whichever user owned them
    #[arg(long, global = true)]
    user: Option<String>,
    #[arg(help = "Prints JSON for programs: an object, or an array of what a list has")]
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum SessionsAction {
    /// Lists the sessions, newest first
    List {
        #[arg(help = "Most sessions of the list")]
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Shows one conversation: its settings, summary, pins and items
    Show {
        #[arg(help = "Id of the session, from the list")]
        session: String,
        /// Shows all that ever happened in it, with every version
        #[arg(long)]
        history: bool,
    },
    /// Writes sessions as JSON Lines, with all that ever happened in them
    Export {
        #[arg(help = "Ids of sessions, from the list")]
        #[arg(required_unless_present = "all")]
        sessions: Vec<String>,
        /// Every session (of --user, or of all users)
        #[arg(long, conflicts_with = "sessions")]
        all: bool,
        /// File to write [default: the standard output]
        #[arg(long, short)]
        output: Option<PathBuf>,
        /// Copies what was computed of them to this folder, too
        #[arg(long, value_name = "FOLDER")]
        computed: Option<PathBuf>,
    },
    /// Imports a file that export wrote; - reads the standard input
    Import {
        #[arg(help = "File that export wrote")]
        file: PathBuf,
        /// Takes what was computed of the sessions from the folder that export wrote: the service continues with it
        /// from its next start on
        #[arg(long, value_name = "FOLDER")]
        computed: Option<PathBuf>,
        /// Leaves out sessions whose id is there already
        #[arg(long)]
        skip_existing: bool,
        /// Gives each session a new id, so that it stands beside one that is there already
        #[arg(long, conflicts_with_all = ["skip_existing", "computed"])]
        new_ids: bool,
    },
    /// Searches all conversations for words and "phrases"
    Search {
        #[arg(help = "Words to find; those in quotation marks stand together")]
        #[arg(required = true)]
        query: Vec<String>,
        /// Only this session
        #[arg(long)]
        session: Option<String>,
        /// Finds places with any one of the words
        #[arg(long)]
        any: bool,
        #[arg(help = "Most places of the list")]
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Deletes sessions for good: only an export brings them back
    Delete {
        #[arg(help = "Ids of sessions, from the list")]
        #[arg(required_unless_present = "unused_days")]
        sessions: Vec<String>,
        /// Every session of all users that was not used for this number of days
        #[arg(long, value_name = "DAYS", conflicts_with_all = ["sessions", "user"])]
        unused_days: Option<u32>,
        /// Does not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Lists the summaries of old turns, in use or not
    Summaries {
        #[arg(help = "Id of the session, from the list")]
        session: String,
    },
    /// Undoes the summary in use: the one before it takes its place, or the whole history
    Undo {
        #[arg(help = "Id of the session, from the list")]
        session: String,
    },
    /// Brings an undone summary back
    Redo {
        #[arg(help = "Id of the session, from the list")]
        session: String,
        /// Version [default: the last one undone]
        #[arg(long)]
        version: Option<u64>,
    },
    /// Replaces the text of a summary with that of a file; - reads the standard input
    Edit {
        #[arg(help = "Id of the session, from the list")]
        session: String,
        #[arg(help = "File with the new text")]
        file: PathBuf,
        /// Version [default: the one in use]
        #[arg(long)]
        version: Option<u64>,
    },
    /// Lists, adds and removes pins: sentences that every prompt holds word for word
    #[command(subcommand)]
    Pins(context::Pins),
    /// Checks every page, index and checksum of the store, and prints its size
    Check,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let Args { action, user, json } = args;
    let create = matches!(action, SessionsAction::Import { .. });
    with_store(settings, create, async |store| Sessions { store, settings, user, json }.act(action).await)
}

struct Sessions<'a> {
    store: &'a Store,
    settings: &'a Settings,
    user: Option<String>,
    json: bool,
}

impl Sessions<'_> {
    async fn act(&self, action: SessionsAction) -> Result<()> {
        match action {
            SessionsAction::List { limit } => self.list(limit).await,
            SessionsAction::Show { session, history } => self.show(&self.find(&session).await?, history).await,
            SessionsAction::Export { sessions, all, output, computed } => {
                let sessions = if all { self.all().await? } else { self.find_all(&sessions).await? };
                self.export(&sessions, output.as_deref()).await?;
                match computed {
                    Some(to) => {
                        let files = copy_computed(self.store, &sessions, self.disk_path()?, &to).await?;
                        note!("{files} files that were computed of them are in {}", to.display());
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            SessionsAction::Import { file, computed, skip_existing, new_ids } => {
                let ids = match (skip_existing, new_ids) {
                    (true, _) => ImportedIds::NewToStore,
                    (_, true) => ImportedIds::Fresh,
                    _ => ImportedIds::AsWritten,
                };
                self.import(&file, computed.as_deref(), ids).await
            }
            SessionsAction::Search { query, session, any, limit } => {
                self.search(&query.join(" "), session.as_deref(), any, limit).await
            }
            SessionsAction::Delete { unused_days: Some(days), yes, .. } => self.delete_unused(days, yes).await,
            SessionsAction::Delete { sessions, yes, .. } => self.delete(&self.find_all(&sessions).await?, yes).await,
            SessionsAction::Summaries { session } => self.summaries(&self.find(&session).await?).await,
            SessionsAction::Undo { session } => self.undo(&self.find(&session).await?).await,
            SessionsAction::Redo { session, version } => self.redo(&self.find(&session).await?, version).await,
            SessionsAction::Edit { session, file, version } => {
                self.edit(&self.find(&session).await?, version, &file).await
            }
            SessionsAction::Pins(pins) => self.pins(pins).await,
            SessionsAction::Check => self.check().await,
        }
    }

    async fn list(&self, limit: u32) -> Result<()> {
        let mut lines: Vec<SessionLine> = Vec::new();
        for user in users(self.store, self.user.as_deref()).await? {
            lines.extend(self.store.list_sessions(&user, None, limit).await?);
        }
        lines.sort_by_key(|line| std::cmp::Reverse(line.session.updated_at_ms));
        lines.truncate(limit as usize);
        if self.json {
            return print_json(&lines);
        }
        // As clients show it: the first words stand where no title is.
        let rows = lines.iter().map(|line| {
            let mut row = json!(line);
            if line.session.title.is_empty() {
                row["title"] = json!(line.first_words);
            }
            row
        });
        let columns = [
            ("session", "id"),
            ("user", "user"),
            ("person", "person"),
            ("last used (UTC)", "updated_at_ms"),
            ("items", "items"),
            ("fill", "fill_tokens"),
            ("window", "ctx_size"),
            ("preset", "preset"),
            ("title", "title"),
        ];
        print_rows(&rows.collect::<Vec<_>>(), &columns)
    }

    async fn export(&self, sessions: &[SessionRef], output: Option<&Path>) -> Result<()> {
        let Some(path) = output else {
            return self.write(sessions, stdout()).await.map(drop);
        };
        // Into another file first: a full disk must not leave half an export under the name of a whole one.
        let part = path.with_added_extension("part");
        let written = async {
            let file = private_file(&part).with_context(|| part.display().to_string())?;
            self.write(sessions, file).await?.sync_all()?;
            std::fs::rename(&part, path).with_context(|| path.display().to_string())
        };
        if let Err(error) = written.await {
            let _ = std::fs::remove_file(&part);
            return Err(error);
        }
        if self.json {
            return print_json(&json!({ "file": path, "sessions": sessions.len() }));
        }
        note!("{} written to {}", counted(sessions.len() as u64), path.display());
        Ok(())
    }

    async fn write<W: Write>(&self, sessions: &[SessionRef], out: W) -> Result<W> {
        let mut out = BufWriter::new(out);
        for session in sessions {
            let mut export = self.store.export(session).await?;
            while let Some(line) = export.next().await {
                writeln!(out, "{}", line?)?;
            }
        }
        Ok(out.into_inner().map_err(|error| error.into_error())?)
    }

    fn disk_path(&self) -> Result<&Path> {
        self.settings
            .memory
            .disk_path
            .as_deref()
            .context("memory.disk_path names no folder: nothing computed is on disk")
    }

    async fn import(&self, file: &Path, computed: Option<&Path>, ids: ImportedIds) -> Result<()> {
        if computed.is_some() && self.user.is_some() {
            bail!("what was computed for one user serves no other: leave out --user or --computed");
        }
        if let Some(folder) = computed.filter(|folder| !folder.is_dir()) {
            bail!("{} is no folder: name the one that `sessions export --computed` wrote", folder.display());
        }
        let mut importer = self.store.importer(self.user.as_deref(), wall_ms()).with_ids(ids);
        for line in BufReader::new(open(file)?).lines() {
            importer.line(&line.with_context(|| file.display().to_string())?).await.map_err(|error| match error {
                Error::SessionExists { session } => anyhow!(
                    "there is a session {session:?} already, and those before it in the file are imported: add --skip-existing to import \
                     the rest, or --new-ids to have all of them beside those that are there"
                ),
                error => error.into(),
            })?;
        }
        let sessions = importer.finish().await?;
        let files = match computed {
            Some(from) => copy_computed(self.store, &sessions, from, self.disk_path()?).await?,
            None => 0,
        };
        if self.json {
            let told = |session: &SessionRef| json!({"user": session.user(), "session": session.id()});
            return print_json(&sessions.iter().map(told).collect::<Vec<_>>());
        }
        for session in &sessions {
            say!("{} of {}", clean(session.id()), clean(session.user()))?;
        }
        let computed =
            if files > 0 { format!(", and {files} files that were computed of them") } else { String::new() };
        say!("{} imported{computed}", counted(sessions.len() as u64))?;
        Ok(())
    }

    async fn search(&self, query: &str, session: Option<&str>, any_word: bool, limit: u32) -> Result<()> {
        let session = match session {
            Some(id) => Some(self.find(id).await?),
            None => None,
        };
        let users = match &session {
            Some(session) => vec![session.user().to_owned()],
            None => users(self.store, self.user.as_deref()).await?,
        };
        let bold = !self.json && std::io::stdout().is_terminal();
        let mut hits = Vec::new();
        for user in &users {
            let search = HistorySearch {
                user,
                place: session.as_ref().map_or(SearchPlace::User, SearchPlace::Session),
                query,
                most_words: usize::MAX, // no client waits for this one
                any_word,
                statements: false,
                limit,
                recent_ms: None,
                now_ms: wall_ms(),
                // Marks that survive the cleaning of the text; they become bold, or nothing.
                marks: if bold { ["\u{e000}", "\u{e001}"] } else { ["", ""] },
                excerpt_words: 24,
            };
            hits.extend(self.store.search(&search).await?.into_iter().map(|hit| (user, hit)));
        }
        hits.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
        hits.truncate(limit as usize);
        if self.json {
            return print_json(&hits.iter().map(|(_, hit)| hit).collect::<Vec<_>>());
        }
        for (user, hit) in &hits {
            let excerpt = clean(&hit.excerpt).replace('\u{e000}', "\x1b[1m").replace('\u{e001}', "\x1b[0m");
            let past = if hit.current { "" } else { ", since changed or deleted" };
            let who = hit.role.as_deref().unwrap_or(&hit.kind);
            let (session, item) = (clean(&hit.session_id), clean(&hit.item_id));
            say!("{} {user} {session} {item} ({who}{past})", time(hit.created_at_ms))?;
            say!("    {excerpt}")?;
        }
        match hits.len() {
            0 => say!("nothing found")?,
            n => say!("{n} found")?,
        }
        Ok(())
    }

    async fn delete(&self, sessions: &[SessionRef], yes: bool) -> Result<()> {
        for session in sessions {
            let record = self.store.session(session).await?;
            note!("{} of {}: {}", clean(session.id()), clean(session.user()), clean(&record.title));
        }
        confirm(&format!("delete {} for good", counted(sessions.len() as u64)), yes)?;
        for session in sessions {
            self.store.delete_session(session, wall_ms()).await?;
        }
        self.deleted(sessions.len()).await
    }

    async fn delete_unused(&self, days: u32, yes: bool) -> Result<()> {
        let now_ms = wall_ms();
        let before_ms = now_ms - i64::from(days) * MS_PER_DAY;
        confirm(&format!("delete every session not used since {} for good", time(before_ms)), yes)?;
        self.deleted(self.store.delete_unused_since(before_ms, now_ms).await?.len()).await
    }

    async fn deleted(&self, sessions: usize) -> Result<()> {
        let files = forget_computed(self.settings, self.store).await?;
        if self.json {
            return print_json(&json!({"sessions": sessions, "computed_files": files}));
        }
        say!("{} deleted, and {files} files that were computed of them", counted(sessions as u64))?;
        Ok(())
    }

    async fn check(&self) -> Result<()> {
        let problems = self.store.check().await?;
        let statistics = self.store.statistics().await?;
        unless_closed(self.checked(&problems, &statistics))?;
        match problems.len() {
            0 => Ok(()),
            n => bail!("{n} problems in the store: keep a copy of the file and restore a backup"),
        }
    }

    fn checked(&self, problems: &[String], statistics: &Statistics) -> Result<()> {
        if self.json {
            return print_json(&json!({"problems": problems, "statistics": statistics}));
        }
        for problem in problems {
            say!("{}", clean(problem))?;
        }
        if problems.is_empty() {
            say!("no problems")?;
        }
        say!("{}", self.store.path().display())?;
        print_report(&json!(statistics), &[])
    }

    /// Finds a session by its id. If two users have the same, the command must name one.
    async fn find(&self, id: &str) -> Result<SessionRef> {
        let mut found = Vec::new();
        for user in users(self.store, self.user.as_deref()).await? {
            match self.store.open_session(&user, id).await {
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
                bail!("session {id} belongs to {}: choose one with --user", users.join(" and to "))
            }
        }
    }

    async fn find_all(&self, ids: &[String]) -> Result<Vec<SessionRef>> {
        let mut sessions = Vec::with_capacity(ids.len());
        for id in ids {
            sessions.push(self.find(id).await?);
        }
        Ok(sessions)
    }

    async fn all(&self) -> Result<Vec<SessionRef>> {
        let mut sessions = Vec::new();
        for user in users(self.store, self.user.as_deref()).await? {
            for line in self.store.list_sessions(&user, None, u32::MAX).await? {
                sessions.push(self.store.open_session(&user, &line.session.id).await?);
            }
        }
        Ok(sessions)
    }
}

const MS_PER_DAY: i64 = 24 * 60 * 60 * 1000;

fn open(file: &Path) -> Result<Box<dyn Read>> {
    match file.to_str() {
        Some("-") => Ok(Box::new(std::io::stdin())),
        _ => Ok(Box::new(File::open(file).with_context(|| file.display().to_string())?)),
    }
}

fn counted(sessions: u64) -> String {
    if sessions == 1 { "1 session".into() } else { format!("{sessions} sessions") }
}
