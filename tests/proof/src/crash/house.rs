//! A folder in which a service runs, is killed and starts again.

use super::files::{exported, fixture, run_until, tear_log};
use super::known::{Known, Loss, Step};
use super::pulse::Pulse;
use super::shim::{ERRORS, Faults, Shim};
use super::talk::{by_chat, by_websocket, chat_turn, deleting};
use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tests::http::try_http;
use tests::random::Random;
use tests::service::{Service, check_store};
use tokio::time::{sleep, timeout};

pub struct House {
    seed: u64,
    random: Random,
    folder: Option<TempDir>,
    shim: Option<Shim>,
    sessions: Vec<Known>,
    memories: Vec<String>,
    /// The exports of the old release's sessions when nothing goes wrong: imported, and migrated.
    imported: Option<BTreeMap<String, String>>,
    migrated: Option<BTreeMap<String, String>>,
    loss: Loss,
    had_faults: bool,
    pub figures: Figures,
    pub failures: Vec<String>,
    pub skipped: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct Figures {
    pub kills: u64,
    pub imports: u64,
    pub migrations: u64,
    pub torn_logs: u64,
    pub with_faults: u64,
    pub in_silence: u64,
    pub while_remembering: u64,
    pub facts: u64,
    pub spilled: u64,
    pub turns: u64,
    pub heard_bytes: u64,
    pub summaries: u64,
    pub deletions: u64,
    pub memories: u64,
    pub first_turns: u64,
    pub warm_first_turns: u64,
}

const TURNS_OF_A_SESSION: usize = 60;
const SESSIONS_OF_A_HOUSE: usize = 60;
const EVENTS_UNTIL_KILL: u64 = 150;
const MICROSECONDS_UNTIL_KILL: u64 = 20_000;
const LONGEST: Duration = Duration::from_secs(60);
const FAULTY: Duration = Duration::from_millis(700);
/// Silence after which nothing more goes to disk.
const SILENCE: Duration = Duration::from_millis(1500);
/// `remember.silence_s` and the service's next look.
const FELL_SILENT: Duration = Duration::from_secs(1);
const STATEMENTS: u64 = 4;
/// A small window is soon full; pasts go to disk at once; a household's limits are not what is tried here.
const SERVICE: [&str; 22] = [
    "serve",
    "--port",
    "0",
    "--preset",
    "builtin-1k",
    "--set",
    "wyoming.port=0",
    "--set",
    "logging.level=error",
    "--set",
    "memory.disk_idle_s=0",
    "--set",
    "memory.disk_min_tokens=1",
    "--set",
    "remember.silence_s=1",
    "--set",
    "remember.who=[{ person = \"ben\", path = \"ben\" }]",
    "--set",
    "limits.requests_per_minute_per_key=1000000",
    "--set",
    "limits.requests_per_minute_per_address=1000000",
    "--set=memory.total=400MiB",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    TornLog,
    Faults,
}

impl House {
    pub fn new(seed: u64) -> Result<House> {
        let shim = Shim::build()?;
        let skipped = match shim {
            Some(_) => Vec::new(),
            None => vec!["writes that fail and clocks that jump: there is no C compiler".to_owned()],
        };
        Ok(House {
            seed,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            folder: None,
            shim,
            sessions: Vec::new(),
            memories: Vec::new(),
            imported: None,
            migrated: None,
            loss: Loss::Nothing,
            had_faults: false,
            figures: Figures::default(),
            failures: Vec::new(),
            skipped,
        })
    }

    pub async fn cycle(&mut self) -> Result<()> {
        self.figures.kills += 1;
        match self.random.below(32) {
            0..2 => self.killed_import().await,
            2..4 => self.killed_migration().await,
            4 => self.killed_in_silence().await,
            5..8 => self.killed_talk(Trouble::TornLog).await,
            8..12 => self.killed_talk(Trouble::Faults).await,
            12..14 => self.killed_while_remembering().await,
            _ => self.killed_talk(Trouble::None).await,
        }
    }

    pub async fn close(&mut self) -> Result<()> {
        let Some(folder) = self.folder.take() else { return Ok(()) };
        let service = started(folder, &[]).await?;
        for at in 0..self.sessions.len() {
            self.examine(&service, at).await;
        }
        check_store(service.stop().await.path()).await;
        (self.sessions, self.memories, self.loss) = Default::default();
        Ok(())
    }

    async fn killed_talk(&mut self, trouble: Trouble) -> Result<()> {
        if self.sessions.len() >= SESSIONS_OF_A_HOUSE {
            self.close().await?;
        }
        let has_faults = trouble == Trouble::Faults && self.shim.is_some();
        let variables = self.shim.as_ref().filter(|_| has_faults).map(|shim| shim.variables().to_vec());
        let service = self.start(&variables.unwrap_or_default()).await?;
        let (address, name) = (service.address.clone(), format!("k{}", self.figures.kills));
        let pulse = Arc::new(Pulse::default());
        let (spoken, typed) = (self.take_session(), self.take_session());
        let talking =
            tokio::spawn(by_websocket(address.clone(), spoken, self.drawn(), format!("{name}a"), pulse.clone()));
        let typing = tokio::spawn(by_chat(address.clone(), typed, self.drawn(), format!("{name}b")));
        let forgetting = tokio::spawn(deleting(address.clone(), format!("{name}c")));
        let remembering = tokio::spawn(remembering(address, name));

        // Where the store refuses all, little is heard.
        let longest = if has_faults { FAULTY } else { LONGEST };
        let events = self.random.below(EVENTS_UNTIL_KILL);
        if has_faults {
            self.figures.with_faults += 1;
            pulse.wait(events / 2, longest).await;
            let faults = self.random_faults();
            self.tell(faults)?;
        }
        pulse.wait(events, longest).await;
        // What fails goes on to fail until the kill, or is mended before.
        if has_faults && self.random.below(2) == 0 {
            self.tell(Faults::default())?;
            pulse.wait(events * 2, FAULTY).await;
        }
        sleep(Duration::from_micros(self.random.below(MICROSECONDS_UNTIL_KILL))).await;
        let folder = service.kill().await;
        self.tell(Faults::default())?;
        let gone = "a client notices that the service is gone";
        self.sessions.extend(timeout(LONGEST, forgetting).await.context(gone)??);
        self.memories = timeout(LONGEST, remembering).await.context(gone)??;
        self.sessions.push(timeout(LONGEST, typing).await.context(gone)??);
        self.sessions.push(timeout(LONGEST, talking).await.context(gone)??);
        self.had_faults = has_faults;
        if trouble == Trouble::TornLog && tear_log(folder.path(), &mut self.random)? {
            self.loss = Loss::End;
            self.figures.torn_logs += 1;
        }
        self.figures.spilled += u64::from(!files_of(&folder.path().join("data/state")).is_empty());
        check_store(folder.path()).await;
        self.folder = Some(folder);
        Ok(())
    }

    /// Conversations fall silent, facts are drawn from what was said, and meanwhile comes the kill: each is kept, and once.
    async fn killed_while_remembering(&mut self) -> Result<()> {
        let service = self.start(&[]).await?;
        let name = format!("k{}", self.figures.kills);
        let mut asked = Vec::new();
        for number in 0..STATEMENTS {
            let said = format!("Remember that the code of door {name}r{number} is {number}.");
            let turn = chat_turn(&service.address, "/ben", &mut Known::default(), &said).await;
            turn.map_err(|_| anyhow!("a turn is cut off"))?;
            asked.push(said);
        }
        sleep(FELL_SILENT + Duration::from_micros(self.random.below(FELL_SILENT.as_micros() as u64))).await;
        self.folder = Some(service.kill().await);
        let service = self.start(&[]).await?;
        let mut facts = Vec::new();
        let remembered = async {
            while !asked.iter().all(|said| facts.contains(said)) {
                sleep(Duration::from_millis(50)).await;
                let answer = service.get("/v1/memories?person=ben&past=true&limit=1000").await;
                let data = answer["data"].as_array().into_iter().flatten();
                facts = data.filter_map(|fact| fact["text"].as_str().map(str::to_owned)).collect();
            }
        };
        let is_late = timeout(LONGEST, remembered).await.is_err();
        self.figures.while_remembering += 1;
        self.figures.facts += facts.len() as u64;
        let known = facts.len();
        facts.sort();
        facts.dedup();
        if is_late || facts.len() < known {
            let twice = known - facts.len();
            asked.retain(|said| !facts.contains(said));
            self.fail(format!("after a kill {asked:?} are not remembered, and {twice} facts twice"));
        }
        self.folder = Some(service.kill().await);
        Ok(())
    }

    /// A turn is said to its end, what was computed goes to disk, and then comes the kill: the next turn is warm.
    async fn killed_in_silence(&mut self) -> Result<()> {
        let service = self.start(&[]).await?;
        let (mut known, name) = (Known::default(), self.figures.kills);
        for turn in 0..3 {
            let said = format!("Good morning, this is silence {name}t{turn}.");
            chat_turn(&service.address, "", &mut known, &said).await.map_err(|_| anyhow!("a turn is cut off"))?;
        }
        let state = service.folder().join("data/state");
        let mut written = Vec::new();
        let quiet = async {
            loop {
                sleep(SILENCE).await;
                let now = files_of(&state);
                if now == written && !now.is_empty() {
                    return;
                }
                written = now;
            }
        };
        timeout(LONGEST, quiet).await.context("what was computed goes to disk")?;
        self.folder = Some(service.kill().await);
        let service = self.start(&[]).await?;
        known.first_turn = None;
        let said = format!("Good morning, this is silence {name} again.");
        chat_turn(&service.address, "", &mut known, &said).await.map_err(|_| anyhow!("a turn is cut off"))?;
        self.figures.in_silence += 1;
        if let Some((reused, computed)) = known.first_turn.filter(|(reused, computed)| reused < computed) {
            self.fail(format!("the first turn after a kill in silence reused {reused} tokens and computed {computed}"));
        }
        self.folder = Some(service.kill().await);
        self.sessions.push(known);
        Ok(())
    }

    /// An export is taken in whole, or not at all, session by session.
    async fn killed_import(&mut self) -> Result<()> {
        let file = fixture("schema-3.jsonl").to_string_lossy().into_owned();
        let arguments = ["sessions", "import", &file];
        if self.imported.is_none() {
            let folder = tempfile::tempdir()?;
            run_until(folder.path(), &arguments, LONGEST).await?;
            self.imported = Some(exported(folder.path()).await?.1);
        }
        let folder = tempfile::tempdir()?;
        let time = Duration::from_micros(self.random.below(60_000));
        self.figures.imports += u64::from(run_until(folder.path(), &arguments, time).await?);
        let (problems, sessions) = exported(folder.path()).await?;
        let whole = self.imported.as_ref().context("it was imported once")?;
        let half: Vec<&String> =
            sessions.iter().filter(|(id, text)| whole.get(*id) != Some(text)).map(|(id, _)| id).collect();
        if !problems.is_empty() || !half.is_empty() {
            self.fail(format!("an import that was killed left {half:?} half done; {problems}"));
        }
        Ok(())
    }

    /// A store of the oldest release is opened, and the service is killed meanwhile: nothing of it is lost.
    async fn killed_migration(&mut self) -> Result<()> {
        let time = Duration::from_micros(self.random.below(120_000));
        let old = |folder: &Path| {
            std::fs::create_dir(folder.join("data"))?;
            std::fs::copy(fixture("schema-3.sqlite3"), folder.join("data/reprise.sqlite3"))
        };
        if self.migrated.is_none() {
            let folder = tempfile::tempdir()?;
            old(folder.path())?;
            self.migrated = Some(exported(folder.path()).await?.1);
        }
        let folder = tempfile::tempdir()?;
        old(folder.path())?;
        run_until(folder.path(), &SERVICE, time).await?;
        self.figures.migrations += 1;
        let (problems, sessions) = exported(folder.path()).await?;
        let whole = self.migrated.as_ref().context("it was migrated once")?;
        let lost: Vec<&String> =
            whole.iter().filter(|(id, text)| sessions.get(*id) != Some(text)).map(|(id, _)| id).collect();
        if !problems.is_empty() || !lost.is_empty() {
            self.fail(format!("a migration that was killed after {time:?} lost {lost:?}; {problems}"));
        }
        Ok(())
    }

    async fn start(&mut self, variables: &[(&str, PathBuf)]) -> Result<Service> {
        let folder = self.folder.take().map_or_else(tempfile::tempdir, Ok)?;
        let service = started(folder, variables).await?;
        for at in self.sessions.len().saturating_sub(8)..self.sessions.len() {
            self.examine(&service, at).await;
        }
        for id in std::mem::take(&mut self.memories) {
            let (status, body) = service.http("GET", &format!("/v1/memories/{id}"), &[], "").await;
            self.figures.memories += 1;
            if status != 200 && self.loss != Loss::End {
                self.fail(format!("a memory that was kept answers {status}: {body}"));
            }
        }
        (self.loss, self.had_faults) = (Loss::Nothing, false);
        Ok(service)
    }

    async fn examine(&mut self, service: &Service, at: usize) {
        let (known, figures) = (&mut self.sessions[at], &mut self.figures);
        let before = known.version;
        if let Some((reused, computed)) = known.first_turn.take() {
            figures.first_turns += 1;
            figures.warm_first_turns += u64::from(reused > computed);
        }
        let unread = known.turns.iter().filter(|_| !known.id.is_empty());
        let (turns, heard): (u64, usize) = unread
            .filter(|turn| !turn.is_examined)
            .fold((0, 0), |(turns, bytes), turn| (turns + 1, bytes + turn.heard.len()));
        let was_deleted = known.deletion == Step::Acknowledged;
        let wrong = known.examine(service, self.loss).await;
        figures.turns += turns;
        figures.heard_bytes += heard as u64;
        figures.deletions += u64::from(was_deleted);
        figures.summaries += u64::from(known.version > before);
        let id = known.id.clone();
        for why in wrong {
            self.fail(format!("{id}: {why}"));
        }
        let refusals = std::mem::take(&mut self.sessions[at].refusals);
        if !self.had_faults {
            refusals.into_iter().for_each(|why| self.fail(why));
        }
        // A session whose deletion the service acknowledged is looked at once.
        if self.sessions[at].deletion == Step::Acknowledged {
            self.sessions[at] = Known::default();
        }
    }

    fn take_session(&mut self) -> Known {
        let newest = self.sessions.len().saturating_sub(4)..self.sessions.len();
        let goes_on = |known: &Known| !known.id.is_empty() && known.deletion == Step::No;
        let at =
            newest.rev().find(|at| goes_on(&self.sessions[*at]) && self.sessions[*at].turns.len() < TURNS_OF_A_SESSION);
        let known = at.filter(|_| self.random.below(8) > 0).map(|at| self.sessions.remove(at)).unwrap_or_default();
        Known { first_turn: None, ..known }
    }

    fn random_faults(&mut self) -> Faults {
        let error = ERRORS[self.random.below(ERRORS.len() as u64) as usize];
        let year_s = 365 * 24 * 3600;
        match self.random.below(4) {
            0 => Faults { failing_writes: error, ..Faults::default() },
            1 => Faults { failing_writes: error, torn_writes: true, ..Faults::default() },
            2 => Faults { failing_flushes: error, ..Faults::default() },
            _ => Faults {
                seconds_ahead: [-year_s, -7, 3600, year_s][self.random.below(4) as usize],
                ..Faults::default()
            },
        }
    }

    fn tell(&self, faults: Faults) -> Result<()> {
        self.shim.as_ref().map_or(Ok(()), |shim| shim.tell(faults))
    }

    fn drawn(&mut self) -> Random {
        Random(self.random.below(u64::MAX - 1) + 1)
    }

    fn fail(&mut self, why: String) {
        self.failures.push(format!("seed {}, kill {}: {why}", self.seed, self.figures.kills));
    }
}

async fn started(folder: TempDir, variables: &[(&str, PathBuf)]) -> Result<Service> {
    let started = Service::with_arguments(folder, variables, &SERVICE).await;
    started.map_err(|(status, log)| anyhow!("the service does not start ({status}): {log}"))
}

fn files_of(folder: &Path) -> Vec<(PathBuf, u64)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = files.map(|file| (file.path(), file.metadata().map_or(0, |facts| facts.len()))).collect();
    files.sort();
    files
}

/// A person's words that are to be remembered, and memories that are put there: those that the service says it keeps.
async fn remembering(address: String, name: String) -> Vec<String> {
    let mut kept = Vec::new();
    for number in 0.. {
        let said = format!("Remember that the code of door {name}n{number} is {number}.");
        if chat_turn(&address, "/ben", &mut Known::default(), &said).await.is_err() {
            break;
        }
        let memory = json!({"text": format!("The code of gate {name}n{number} is {number}."), "person": "ben"});
        let json = [("content-type", "application/json")];
        match try_http(&address, "POST", "/v1/memories", &json, &memory.to_string()).await {
            Ok((200..300, body)) => {
                let memory: Value = serde_json::from_str(&body).unwrap_or_default();
                let id = memory["id"].as_str().or_else(|| memory["memory"]["id"].as_str());
                kept.extend(id.map(str::to_owned));
            }
            _ => break,
        }
    }
    kept
}
