//! `reprise ab replay`: the same conversation through each arm.
//!
//! Each run begins with an empty store and a model with an empty cache. All arms then hear each turn one after the
//! other, in an order that changes, so that other load of the machine hits all of them. Every turn is recorded when it
//! is over; an interrupted command resumes from the record.

mod runs;

use super::curves::curves;
use super::recall::{AskedFact, recall};
use super::{ArmReport, OutputArgs, tell};
use crate::script::{ConversationScript, ScriptRecipe, generate};
use anyhow::{Context, Result, bail};
use experiment::{ArmTurn, DrawnUnit, Metric, compare, pair_blocks};
use runs::PlayedTurn;
use runtime::turn_values;
use settings::Settings;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;
use terminal::hardware::Hardware;
use terminal::output::{mib, write_file};

/// Plays one conversation through each arm, and prints their differences and what each of them remembers
///
/// Without arguments it is a demonstration that takes minutes: windows of 1,000 and 2,000 tokens of the built-in model.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A file, or one of the built-in scripts household-60 and household-300
    #[arg(long, default_value = "household-60", value_name = "FILE")]
    script: String,
    /// Presets of one model; the others are compared with the first
    #[arg(long, value_delimiter = ',', default_values_t = ["builtin-1k".to_owned(), "builtin-2k".to_owned()])]
    arms: Vec<String>,
    /// Times the whole script is played
    #[arg(long, default_value_t = 3)]
    runs: u64,
    /// Number of turns to play [default: all of the script]
    #[arg(long)]
    turns: Option<usize>,
    /// Most tokens of a reply [default: the preset's limit]
    #[arg(long)]
    reply: Option<u32>,
    /// Most seconds of silence after each turn, which a service uses for summaries; the next turn comes as soon as they
    /// are done
    #[arg(long, default_value_t = 60.0)]
    pause: f64,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Folder of the record; an existing replay resumes [default: a folder beside the store]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Starts over and deletes an existing replay
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    output: OutputArgs,
    /// Seed of the draws that make the intervals, or of the generated script
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes a script into this file and plays nothing: see --turns, --language, --window, --fills
    #[arg(long, value_name = "FILE")]
    generate: Option<PathBuf>,
    /// Name of the generated script
    #[arg(long, requires = "generate", default_value = "household")]
    name: String,
    /// Languages of the generated script, some of en, de, fr, es
    #[arg(long, requires = "generate", value_delimiter = ',', default_values_t = ["en".to_owned()])]
    language: Vec<String>,
    /// Smallest window, in tokens, for which --generate makes a script
    #[arg(long, requires = "generate", default_value_t = 1000)]
    window: usize,
    /// Distance between a fact and its questions in a generated script, in shares of that window
    #[arg(long, requires = "generate", value_delimiter = ',', default_values_t = [0.1, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0])]
    fills: Vec<f64>,
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    if let Some(file) = &args.generate {
        let script = generate(&ScriptRecipe {
            name: args.name.clone(),
            turns: args.turns.unwrap_or(DEFAULT_TURNS),
            seed: args.seed,
            languages: args.language.clone(),
            window_tokens: args.window,
            fills: args.fills.clone(),
            reply_tokens: args.reply.map_or(DEFAULT_REPLY, |tokens| tokens as usize),
        })?;
        return write_file(file, &script.text()?);
    }
    if !args.pause.is_finite() || args.pause < 0.0 || args.runs == 0 || args.turns == Some(0) {
        bail!("--pause is seconds, --runs and --turns are numbers from 1 upwards");
    }
    if args.arms.len() < 2 || args.arms.iter().collect::<BTreeSet<_>>().len() < args.arms.len() {
        bail!("--arms names two presets or more, each once");
    }
    for arm in &args.arms {
        settings.preset(arm)?;
    }
    let mut script = ConversationScript::open(&args.script)?;
    script.turns.truncate(args.turns.unwrap_or(usize::MAX));
    let out = args.out.clone().unwrap_or_else(|| {
        let beside = settings.store.path.parent().unwrap_or(std::path::Path::new("."));
        beside.join("replays").join(format!("{}-{}", script.head.script, args.arms.join("-")))
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")?;
    let played = runtime.block_on(async {
        tokio::select! {
            played = runs::play(args, settings, &script, &out) => played,
            _ = tokio::signal::ctrl_c() => {
                bail!("interrupted; the same command resumes from here ({})", out.display())
            }
        }
    })?;
    tell(&report(args, settings, &script, &played), &args.output)
}

const DEFAULT_TURNS: usize = 60;
const DEFAULT_REPLY: usize = 40;

fn report(args: &Args, settings: &Settings, script: &ConversationScript, played: &[PlayedTurn]) -> ArmReport {
    // The record of a barge-in comes after its turn was measured.
    let cut: HashSet<(u64, u64, usize)> = played
        .iter()
        .filter(|played| played.cut_last_reply && played.turn > 0)
        .map(|played| (played.run, played.turn - 1, played.arm))
        .collect();
    let turns: Vec<ArmTurn> = played
        .iter()
        .map(|played| {
            let mut turn = turn(played);
            if cut.contains(&(played.run, played.turn, played.arm)) {
                turn.values.insert(Metric::BargeIns, 1.0);
            }
            turn
        })
        .collect();
    let asked: Vec<(usize, &AskedFact)> =
        played.iter().filter_map(|played| Some((played.arm, played.asked.as_ref()?))).collect();
    let windows: Vec<String> = args
        .arms
        .iter()
        .filter_map(|arm| Some(format!("{arm} has {} tokens", settings.preset(arm).ok()?.ctx_size)))
        .collect();
    let rss = played.iter().filter_map(|played| played.rss_bytes).max();
    let mut facts = vec![
        format!(
            "{} turns, {} facts asked for, {} runs",
            script.turns.len(),
            asked.len() / args.arms.len().max(1) / args.runs.max(1) as usize,
            args.runs
        ),
        format!("windows: {}", windows.join(", ")),
        Hardware::new(settings).to_string(),
    ];
    facts.extend(rss.map(|bytes| format!("the whole process took {} MiB at most", mib(bytes))));
    ArmReport {
        title: format!("Replay of {}", script.head.script),
        facts,
        comparison: compare(&args.arms, &[], &turns, DrawnUnit::Turn, args.seed),
        curves: curves(args.arms.len(), &turns),
        recall: recall(args.arms.len(), &asked),
    }
}

fn turn(played: &PlayedTurn) -> ArmTurn {
    let mut values = played.measurement.as_ref().map(turn_values).unwrap_or_default();
    if played.after_start {
        // The first turn waits for work that all others find done.
        values.retain(|metric, _| !metric.is_time());
    }
    values.insert(Metric::Failures, f64::from(u8::from(played.failed.is_some())));
    if let Some(asked) = &played.asked {
        values.insert(Metric::Recall, f64::from(u8::from(asked.right)));
    }
    let session = played.run * MOST_ARMS + played.arm as u64;
    let pair = pair_blocks(played.run, played.turn);
    ArmTurn { arm: played.arm, user: 0, session, pair, period: 0, turn: played.turn, values }
}

const MOST_ARMS: u64 = 1000;
