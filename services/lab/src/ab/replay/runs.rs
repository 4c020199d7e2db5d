//! Runs of a replay: played, recorded, resumed.

use super::Args;
use crate::ab::player::ReplayPlayer;
use crate::ab::recall::AskedFact;
use crate::script::ConversationScript;
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use model::Model;
use runtime::{Presets, Runtime, RuntimeParts, wall_ms};
use serde::{Deserialize, Serialize};
use settings::{Preset, Settings};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Measurement, Store, StoreOptions};
use terminal::hardware::ProcessMemory;
use terminal::output::progress_bar;
use tokio::time::Instant;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlayedTurn {
    pub run: u64,
    pub turn: u64,
    pub arm: usize, // index into the arms
    pub session: String,
    pub said_item: String,         // the user's message in the store
    pub last_item: Option<String>, // item from which an interrupted run resumes
    pub after_start: bool,         // the first one after the model was opened
    pub cut_last_reply: bool,      // the user talked over the reply of the turn before
    pub failed: Option<String>,
    pub asked: Option<AskedFact>,
    pub measurement: Option<Measurement>,
    pub rss_bytes: Option<u64>, // memory of the whole process
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct ReplayPlan {
    script: String,
    arms: Vec<String>,
    reply: Option<u32>,
    presets: Vec<String>, // their numbers: compared presets must not change in the middle
}

pub async fn play(
    args: &Args,
    settings: &Settings,
    script: &ConversationScript,
    out: &Path,
) -> Result<Vec<PlayedTurn>> {
    let record = ReplayRecord::open(args, settings, script, out)?;
    let all = args.runs * script.turns.len() as u64 * args.arms.len() as u64;
    let bar = progress_bar(all, "{pos} of {len} turns [{bar:40}] {eta} left, {msg}");
    bar.set_position(record.of_runs(args.runs).count() as u64);
    let mut runs = Runs { args, settings, script, record, bar };
    for run in 0..args.runs {
        let done = runs.record.played.iter().filter(|played| played.run == run).count();
        if done < script.turns.len() * args.arms.len() {
            runs.bar.set_message(format!("run {} of {}", run + 1, args.runs));
            runs.play(run).await?;
        }
    }
    runs.bar.finish_and_clear();
    Ok(runs.record.of_runs(args.runs).cloned().collect())
}

struct Runs<'a> {
    args: &'a Args,
    settings: &'a Settings,
    script: &'a ConversationScript,
    record: ReplayRecord,
    bar: ProgressBar,
}

impl Runs<'_> {
    async fn play(&mut self, run: u64) -> Result<()> {
        let folder = self.record.folder.join(format!("run-{}", run + 1));
        if !self.record.played.iter().any(|played| played.run == run) && folder.exists() {
            // The record is empty.
            fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        let service = ReplayService::start(self.args, self.settings, &folder).await?;
        let played = self.play_turns(run, &service).await;
        service.stop().await?;
        played
    }

    async fn play_turns(&mut self, run: u64, service: &ReplayService) -> Result<()> {
        let patience = Duration::from_secs(self.args.patience);
        let mut players = Vec::new();
        for (arm, preset) in self.args.arms.iter().enumerate() {
            let last = self.record.played.iter().rev().find(|played| played.run == run && played.arm == arm);
            let instructions = self.script.head.instructions.as_deref();
            players.push(match last {
                None => ReplayPlayer::begin(&service.runtime, &user(arm), preset, instructions, patience).await?,
                Some(last) => {
                    let session = match service.store.open_session(&user(arm), &last.session).await {
                        Ok(session) => session,
                        // An older release had one user for all arms.
                        Err(_) => service.store.open_session(USER, &last.session).await?,
                    };
                    let last_item = last.last_item.clone();
                    ReplayPlayer::go_on(&service.runtime, &service.store, session, last_item, patience).await?
                }
            });
        }
        // Messages from before an interruption keep their ids, so each attempt has others.
        let begun_at_ms = wall_ms();
        let mut fresh = vec![true; players.len()];
        for number in 0..self.script.turns.len() {
            let item = format!("replay_{number}_{begun_at_ms}");
            // The order of the arms changes, so that the first one has no advantage.
            for order in 0..players.len() {
                let arm = (order + number + run as usize) % players.len();
                if self.record.turn(run, number, arm).is_some() {
                    continue;
                }
                let after_start = std::mem::take(&mut fresh[arm]);
                let played = self.turn(run, number, arm, &item, &mut players[arm], service).await?;
                self.record.add(PlayedTurn { after_start, ..played })?;
                self.bar.inc(1);
                settle(&service.model, Duration::from_secs_f64(self.args.pause)).await;
            }
        }
        Ok(())
    }

    async fn turn(
        &self,
        run: u64,
        number: usize,
        arm: usize,
        item: &str,
        player: &mut ReplayPlayer,
        service: &ReplayService,
    ) -> Result<PlayedTurn> {
        let turn = &self.script.turns[number];
        let reply = player.turn(item, &turn.says, turn.cuts_last_reply, self.args.reply).await?;
        let ctx_size = service.runtime.presets().named(&self.args.arms[arm])?.ctx_size;
        let mut asked = None;
        if let Some(question) = &turn.asks {
            let planted = self.script.planted(&question.fact).unwrap_or(number);
            let told_in = self.record.turn(run, planted, arm).map_or("", |played| &played.said_item);
            asked = Some(AskedFact {
                fact: question.fact.clone(),
                zone: player.zone_of(&service.store, told_in).await?,
                fill: reply.input_tokens as f64 / f64::from(ctx_size),
                turns_since: number - planted,
                right: reply.failed.is_none() && question.expects.is_met_by(&reply.text),
                answer: reply.text.clone(),
            });
        }
        let measurement = player.measured(&service.store, &reply).await?;
        Ok(PlayedTurn {
            run,
            turn: number as u64,
            arm,
            session: player.session.id().to_owned(),
            said_item: item.to_owned(),
            last_item: player.last_item.clone().or(Some(item.to_owned())),
            after_start: false,
            cut_last_reply: reply.cut_last_reply,
            failed: reply.failed,
            asked,
            measurement,
            rss_bytes: ProcessMemory::own().map(|memory| memory.rss_bytes),
        })
    }
}

const USER: &str = "replay";

/// Names the user of an arm: what one arm learns and finds in the past is not told to another.
fn user(arm: usize) -> String {
    format!("{USER}-{arm}")
}

/// Waits until the model is idle for a moment: reading ahead and summaries follow a reply.
async fn settle(model: &Model, most: Duration) {
    let end = Instant::now() + most;
    let mut quiet = 0;
    while quiet < QUIET_LOOKS && Instant::now() < end {
        let load = model.status().load;
        quiet = if load.talk + load.speculate + load.background == 0 { quiet + 1 } else { 0 };
        tokio::time::sleep(LOOK_AGAIN.min(end.saturating_duration_since(Instant::now()))).await;
    }
}

const QUIET_LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

struct ReplayService {
    // without its doors
    store: Store,
    model: Model,
    runtime: Runtime,
}

impl ReplayService {
    async fn start(args: &Args, settings: &Settings, folder: &Path) -> Result<ReplayService> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut settings = settings.clone();
        settings.memory.disk_path = settings.memory.disk_path.map(|_| folder.join("state"));
        // The command names the arms.
        settings.experiment = None;
        let first = args.arms.first().context("no arm")?;
        settings.model.preset.clone_from(first);
        let started = Model::start(&settings).await?;
        let presets = Presets::new(started.presets, started.settings.chosen()?.clone(), &started.name);
        for arm in &args.arms {
            if !presets.iter().any(|preset| preset.name == *arm) {
                let there_are = presets.names();
                bail!(
                    "{arm} is no preset of {first}'s model file, and arms compute with one copy of its weights: use some of {there_are}"
                );
            }
        }
        let options = StoreOptions {
            path: folder.join("store.sqlite3"),
            check_at_start: false,
            ..runtime::store_options(&settings)
        };
        let store = Store::open(&options, wall_ms()).await?;
        for user in (0..args.arms.len()).map(user) {
            store.put_user(&user, &user, wall_ms()).await?;
        }
        let model = started.model;
        let settings = Arc::new(started.settings);
        let runtime = Runtime::new(RuntimeParts { settings, store: store.clone(), model: model.clone(), presets });
        Ok(ReplayService { store, model, runtime })
    }

    async fn stop(self) -> Result<()> {
        self.runtime.drain(Instant::now()).await;
        self.model.shutdown().await;
        Ok(self.store.close().await?)
    }
}

/// Writes all numbers of a preset that change its behaviour, without their origin.
fn numbers(preset: &Preset) -> String {
    let Preset {
        ctx_size, kv, reply_reserve_tokens, thinking, compaction, sampling, sampling_thinking, source, ..
    } = preset;
    format!(
        "{ctx_size} {kv:?} {reply_reserve_tokens} {thinking:?} {compaction:?} {sampling:?} {sampling_thinking:?} {source:?}"
    )
}

struct ReplayRecord {
    folder: PathBuf,
    file: File,
    played: Vec<PlayedTurn>,
}

impl ReplayRecord {
    fn open(args: &Args, settings: &Settings, script: &ConversationScript, out: &Path) -> Result<ReplayRecord> {
        let what = || format!("the replay in {}", out.display());
        let presets = args.arms.iter().map(|arm| Ok(numbers(settings.preset(arm)?))).collect::<Result<_>>()?;
        let plan = ReplayPlan { script: script.text()?, arms: args.arms.clone(), reply: args.reply, presets };
        let (plan_file, turns_file) = (out.join("plan.json"), out.join("turns.jsonl"));
        if args.again && plan_file.exists() {
            fs::remove_dir_all(out).with_context(what)?;
        }
        fs::create_dir_all(out).with_context(what)?;
        if plan_file.exists() {
            let there: ReplayPlan = serde_json::from_str(&fs::read_to_string(&plan_file)?).with_context(what)?;
            if there != plan {
                bail!(
                    "{} is of another script, other arms or other presets: name another --out, or begin --again",
                    out.display()
                );
            }
        } else {
            fs::write(&plan_file, serde_json::to_string_pretty(&plan)?).with_context(what)?;
        }
        let mut played: Vec<PlayedTurn> = Vec::new();
        let text =
            if turns_file.exists() { fs::read_to_string(&turns_file).with_context(what)? } else { String::new() };
        let mut whole = 0;
        for line in text.split_inclusive('\n') {
            // A line that a crash cut is a turn that was not played.
            let Some(turn) = line.strip_suffix('\n').and_then(|line| serde_json::from_str(line).ok()) else { break };
            played.push(turn);
            whole += line.len() as u64;
        }
        let file = OpenOptions::new().create(true).append(true).open(&turns_file).with_context(what)?;
        file.set_len(whole).with_context(what)?;
        Ok(ReplayRecord { folder: out.to_path_buf(), file, played })
    }

    fn add(&mut self, played: PlayedTurn) -> Result<()> {
        let line = serde_json::to_string(&played)? + "\n";
        self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data()).context("cannot record a turn")?;
        self.played.push(played);
        Ok(())
    }

    fn turn(&self, run: u64, turn: usize, arm: usize) -> Option<&PlayedTurn> {
        self.played.iter().find(|played| (played.run, played.turn, played.arm) == (run, turn as u64, arm))
    }

    /// Played turns of the first `runs` runs: an earlier replay may have had more.
    fn of_runs(&self, runs: u64) -> impl Iterator<Item = &PlayedTurn> {
        self.played.iter().filter(move |played| played.run < runs)
    }
}
