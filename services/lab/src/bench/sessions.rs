//! `reprise bench sessions`: a house full of satellites that listen, some of which talk at the same moment.

use super::BenchOutput;
use super::realtime::RealtimePlayer;
use super::service::{BenchTarget, MeasuredService};
use super::speaking::{Speech, SpeechArgs};
use super::steps::{Filler, Opening, TurnCost};
use crate::charts::{Chart, Series};
use anyhow::{Result, bail};
use experiment::Quantiles;
use futures_util::stream::{self, StreamExt};
use indicatif::ProgressBar;
use serde::Serialize;
use serde_json::{Value, json};
use settings::Settings;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use terminal::client::ServiceClient;
use terminal::hardware::ProcessMemory;
use terminal::output::{clean, progress_bar};

/// Opens many sessions that stay idle and some that talk at once
///
/// Any error makes the command fail. At the end every idle session must still answer.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    /// Number of sessions that are connected and silent
    #[arg(long, default_value_t = 200)]
    idle: usize,
    /// Number of sessions that talk at once, beside the silent ones
    #[arg(long, default_value_t = 8)]
    talking: usize,
    /// Lets the talking sessions talk one after the other, each with a system prompt that no session used before
    #[arg(long)]
    in_turn: bool,
    /// Sends partial transcripts: each talking session speaks for seconds before a turn
    #[arg(long)]
    partials: bool,
    #[command(flatten)]
    speech: SpeechArgs,
    /// Turns of each talking session, one right after the other
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    reply: usize,
    /// Tokens, about, of the system prompt
    #[arg(long, default_value_t = 200)]
    system: usize,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Serialize)]
struct TalkedTurn {
    session: usize,
    asked_ms: f64, // since the talking began
    #[serde(flatten)]
    turn: TurnCost,
}

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    if args.turns == 0 || args.reply == 0 || args.idle + args.talking == 0 {
        bail!("--turns and --reply are numbers from 1 upwards, and at least one session connects");
    }
    let service = MeasuredService::open(&args.target, given, settings, &needs(args, settings)).await?;
    let measured = measure(args, settings, &service).await;
    service.stop().await;
    let (measured, errors, chart) = measured?;
    args.output.tell(&measured, &[], &[chart])?;
    match errors.first() {
        None => Ok(()),
        Some(first) => bail!("{} errors, the first: {}", errors.len(), clean(first)),
    }
}

impl Args {
    fn speech(&self, settings: &Settings) -> Result<Option<Speech>> {
        self.partials.then(|| self.speech.speech(settings)).transpose()
    }
}

/// Raises the limits for one address: all sessions come from one.
fn needs(args: &Args, settings: &Settings) -> [(&'static str, String); 5] {
    let limits = &settings.limits;
    let connections = args.idle + args.talking + SPARE;
    [
        ("limits.connections", limits.connections),
        ("limits.connections_per_key", limits.connections_per_key),
        ("limits.connections_per_address", limits.connections_per_address),
        ("limits.live_sessions", limits.live_sessions),
        ("limits.live_sessions_per_user", limits.live_sessions_per_user),
    ]
    .map(|(key, limit)| (key, limit.max(connections).to_string()))
}

const SPARE: usize = 8; // connections beside the counted ones
const CONNECTING: usize = 16; // handshakes at the same time

/// Returns the measurement, the errors, and the waits.
async fn measure(args: &Args, settings: &Settings, service: &MeasuredService) -> Result<(Value, Vec<String>, Chart)> {
    let patience = Duration::from_secs(args.patience);
    let system = Filler::new(SEED).system(args.system);
    let warm_up = if args.in_turn { Filler::new(SEED + 1).system(args.system) } else { system.clone() };
    // Buffers, threads and the store's pages are there after one session has talked.
    let speech = args.speech(settings)?;
    talk(args, settings, service, 0, &warm_up, Instant::now()).await?;
    let before = settled(service).await;

    let mut errors = Vec::new();
    let bar = progress_bar(args.idle as u64, "{pos} of {len} idle sessions [{bar:40}]");
    let (mut idle, mut connect_ms) = (Vec::new(), Vec::new());
    let connecting = (0..args.idle).map(|_| async {
        let begin = Instant::now();
        let mut client = service.connect(settings, patience, &[]).await?;
        // A client that never sends anything is disconnected.
        greet(&mut client, &warm_up).await?;
        anyhow::Ok((client, begin.elapsed().as_secs_f64() * 1e3))
    });
    let mut connecting = stream::iter(connecting).buffer_unordered(CONNECTING);
    while let Some(connected) = connecting.next().await {
        match connected {
            Ok((client, ms)) => {
                idle.push(client);
                connect_ms.push(ms);
            }
            Err(error) => errors.push(format!("an idle session: {error:#}")),
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let with_idle = settled(service).await;

    let bar = ProgressBar::new_spinner().with_message(format!("{} sessions talk", args.talking));
    bar.enable_steady_tick(Duration::from_millis(100));
    let begin = Instant::now();
    let talking = (1..=args.talking).map(|session| talk(args, settings, service, session, &system, begin));
    let at_once = if args.in_turn { 1 } else { args.talking.max(1) };
    let talked: Vec<Result<Vec<TalkedTurn>>> = stream::iter(talking).buffered(at_once).collect().await;
    let talked_s = begin.elapsed().as_secs_f64();
    let after = service.memory();
    let mut turns: Vec<TalkedTurn> = Vec::new();
    for talked in talked {
        match talked {
            Ok(of_session) => turns.extend(of_session),
            Err(error) => errors.push(format!("a talking session: {error:#}")),
        }
    }
    for mut client in idle {
        match greet(&mut client, &warm_up).await {
            Ok(()) => client.close().await,
            Err(error) => errors.push(format!("an idle session at the end: {error:#}")),
        }
    }
    bar.finish_and_clear();
    let reply_tokens: u64 = turns.iter().filter_map(|talked| talked.turn.reply_tokens).sum();
    let memory = before.zip(with_idle).zip(after).map(|((before, with_idle), after)| {
        // Memory without files: pages of the model come and go by themselves.
        let taken = with_idle.anonymous_bytes as f64 - before.anonymous_bytes as f64;
        json!({
            // After one conversation, so that one-time memory of the service does not count for the idle sessions.
            "before": before,
            "with_idle": with_idle,
            "after": after,
            "bytes_per_idle_session": (args.idle > 0).then(|| taken / args.idle as f64),
        })
    });
    let first_turns = turns.iter().filter(|talked| talked.turn.turn == 1);
    let measured = json!({
        "bench": "sessions",
        "machine": service.hardware(settings),
        "service": service.name,
        "idle": args.idle,
        "talking": args.talking,
        "in_turn": args.in_turn,
        "speech": speech,
        "errors": errors,
        "connect_ms": Quantiles::of(connect_ms),
        "first_token_ms": Quantiles::of(turns.iter().filter_map(|talked| talked.turn.first_token_ms)),
        // Of each talking session: with one system prompt for all, the first one computes it.
        "first_turn_computed_tokens": first_turns.map(|talked| talked.turn.computed_tokens).collect::<Vec<_>>(),
        // Of all replies together, from the first word asked to the last one said.
        "tokens_per_s": reply_tokens as f64 / talked_s,
        // Unknown for a service that was not started here.
        "memory": memory,
        "turns": turns,
    });
    let point = |talked: &TalkedTurn| Some((talked.asked_ms / 1e3, talked.turn.first_token_ms?));
    let points = turns.iter().filter_map(point).collect();
    let title = format!("Time to the first token, {} sessions that talk", args.talking);
    let series = vec![Series::dots("turn", 'o', points)];
    Ok((measured, errors, Chart { title, x: "seconds since the talking began", y: "ms", series }))
}

async fn talk(
    args: &Args,
    settings: &Settings,
    service: &MeasuredService,
    session: usize,
    system: &str,
    begin: Instant,
) -> Result<Vec<TalkedTurn>> {
    let (system, patience) = (system.to_owned(), Duration::from_secs(args.patience));
    let opening = Opening { system, history: Vec::new(), reply_tokens: args.reply, patience };
    let mut player = RealtimePlayer::new(service, settings, args.speech(settings)?, opening).await?;
    let mut filler = Filler::new(SEED + session as u64);
    let mut talked = Vec::new();
    for number in 1..=args.turns {
        let asked_ms = begin.elapsed().as_secs_f64() * 1e3;
        let turn = player.turn(number, filler.step(number), &mut |_| ()).await?;
        talked.push(TalkedTurn { session, asked_ms, turn });
    }
    player.close().await;
    Ok(talked)
}

const SEED: u64 = 1;

async fn greet(client: &mut ServiceClient, system: &str) -> Result<()> {
    client.update(json!({ "type": "realtime", "instructions": system })).await
}

/// Reads the memory once it no longer changes: the service reads ahead after it has answered.
async fn settled(service: &MeasuredService) -> Option<ProcessMemory> {
    let mut last = service.memory()?;
    let deadline = Instant::now() + SETTLE;
    while Instant::now() < deadline {
        tokio::time::sleep(SETTLED).await;
        let now = service.memory()?;
        if now == last {
            break;
        }
        last = now;
    }
    Some(last)
}

const SETTLED: Duration = Duration::from_millis(500);
const SETTLE: Duration = Duration::from_secs(15);
