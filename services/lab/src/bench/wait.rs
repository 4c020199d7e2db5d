//! `reprise bench wait`: the wait for a reply against its floor, in one table: turns, prompts, decode, a restart.

mod drafting;
mod played;
mod row;

use super::service::{BenchTarget, MeasuredService};
use super::{BenchOutput, speed};
use anyhow::{Context, Result, bail};
use played::Waits;
use row::WaitRow;
use serde_json::{Value, json};
use settings::Settings;
use std::ffi::OsString;
use terminal::flags::at_least;
use terminal::hardware::Hardware;
use terminal::note;
use terminal::opening::ModelArgs;
use terminal::output::{print_json, print_report};

/// Measures the wait for a reply beside its floor, and beside another server
///
/// The floor comes from `bench speed` for the same model in the same run: the tokens of a turn at its rate, and one
/// step. Without --url the command starts services of its own, one after the other.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    /// Only these tables [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    tables: Vec<WaitTable>,
    /// Turns of each conversation; every third is a barge-in
    #[arg(long, default_value_t = 12, value_parser = at_least::<4>)]
    turns: u64,
    /// Number of prompts of each length
    #[arg(long, default_value_t = 3, value_parser = at_least::<1>)]
    rounds: u64,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    reply: usize,
    /// Seconds of silence before a turn
    #[arg(long, default_value_t = 0.5)]
    pause: f64,
    /// Tokens, about, of the history before the service is killed
    #[arg(long, default_value_t = 8_000)]
    history: usize,
    /// Seed of the conversations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Another OpenAI-compatible server with the same model, to compare with: llama.cpp's own, with --jinja
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum WaitTable {
    /// Turns with partial transcripts before the final words
    Partial,
    /// Ordinary turns, and those after a barge-in
    Turn,
    /// Prompts of 512 and 2,048 tokens, and a log of many messages
    Prefill,
    /// Decode and prefill of one sequence, as shares of the machine's peaks; drafting
    Decode,
    /// A service that was killed
    Restart,
}

impl WaitTable {
    const ALL: [WaitTable; 5] =
        [WaitTable::Partial, WaitTable::Turn, WaitTable::Prefill, WaitTable::Decode, WaitTable::Restart];
}

/// Lengths of prompts that have a row of their own.
const PROMPTS: [usize; 2] = [512, 2048]; // not a window: tokens of a prompt
const DECODE_TOKENS: usize = 64;
const MEMORY_MIB: usize = 512;

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    if !args.pause.is_finite() || args.pause < 0.0 || args.reply == 0 || args.history == 0 {
        bail!("--pause is seconds, --reply and --history are numbers from 1 upwards");
    }
    let wants = |table: WaitTable| args.tables.is_empty() || args.tables.contains(&table);
    // Before a service takes the cores and the memory.
    let speed = match &args.target.url {
        None => Some(speed(args, settings).context("the model without a service")?),
        Some(_) => None,
    };
    let peer = match &args.peer {
        None => None,
        Some(url) => {
            let target = BenchTarget { url: Some(url.clone()), key: None, model: None };
            Some(MeasuredService::open(&target, &[], settings, &[]).await.context("the peer")?)
        }
    };
    let waits = Waits { args, given, settings, speed: speed.as_ref(), peer: peer.as_ref() };
    let mut rows = Vec::new();
    for table in WaitTable::ALL.into_iter().filter(|table| wants(*table)) {
        let told = match table {
            WaitTable::Partial => waits.partial().await.context("the table of partial transcripts")?,
            WaitTable::Turn => waits.turns().await.context("the table of turns")?,
            WaitTable::Prefill => waits.prefill().await.context("the table of prompts")?,
            WaitTable::Decode => {
                let drafting = || drafting::rows(model_of(args), args.rounds, settings).context("drafting");
                let drafting = if speed.is_some() { drafting()? } else { Vec::new() };
                decode(speed.as_ref()).into_iter().chain(drafting).collect()
            }
            WaitTable::Restart => waits.restart().await.context("the table of a restart")?,
        };
        // Tables take minutes, and this shows progress.
        told.iter().for_each(|row| note!("measured: {}", row.what));
        rows.extend(told);
    }
    let machine = if speed.is_some() { Hardware::new(settings) } else { Hardware::asking(settings) };
    let measured = json!({
        "bench": "wait",
        "machine": machine,
        "model": args.target.model.as_deref().unwrap_or(&settings.model.preset),
        "url": args.target.url,
        "peer": args.peer,
        "pause_s": args.pause,
        "seed": args.seed,
        "rows": rows,
        "speed": [speed],
    });
    if args.json { print_json(&measured) } else { print_report(&measured, &[&measured["rows"]]) }
}

fn model_of(args: &Args) -> ModelArgs {
    ModelArgs { model: args.target.model.clone(), precision: None, lora: Vec::new() }
}

fn speed(args: &Args, settings: &Settings) -> Result<Value> {
    let speed = speed::Args {
        model: model_of(args),
        ctx: PROMPTS.into(),
        decode: DECODE_TOKENS,
        batch: vec![1],
        warmup: 0,
        cached: 32,
        compare: Vec::new(),
        rounds: args.rounds as usize,
        memory_mib: MEMORY_MIB,
        output: BenchOutput { json: false, plot: None },
    };
    speed::measure(&speed, settings)
}

fn decode(speed: Option<&Value>) -> Vec<WaitRow> {
    let found = |path: &str| speed.and_then(|speed| speed.pointer(path)?.as_f64());
    let percent = |path: &str| found(path).map(|share| share * 100.0);
    let rate = found("/contexts/0/decode/0/tokens_per_s");
    vec![
        WaitRow::new(
            "decode, one sequence",
            "% of memory speed",
            percent("/contexts/0/decode/0/share_of_memory_speed"),
        )
        .at_least(88.0, Some(92.0))
        .noted(rate.map_or_else(String::new, |rate| format!("{rate:.1} tokens/s"))),
        WaitRow::new("prefill 512", "% of int8", percent("/contexts/0/prefill_share_of_int8"))
            .at_least(45.0, Some(55.0)),
    ]
}
