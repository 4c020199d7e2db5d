//! `reprise bench sessions`: a house full of satellites that listen, some of which talk at the same moment.

use super::line::Line;
use super::script::Script;
use super::service::{Service, Target, no_rate_limits};
use super::turns::Turn;
use super::{mib, realtime, show};
use crate::machine::{Machine, Memory};
use crate::output::clean;
use crate::output::print_json;
use crate::plot::{Plot, Series};
use anyhow::{Result, bail};
use experiment::Summary;
use futures_util::stream::{self, StreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Opens many sessions that stay idle and some that talk at once
///
/// Any error makes the command fail. At the end every idle session must still answer.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Sessions that are connected and silent
    #[arg(long, default_value_t = 200)]
    idle: usize,
    /// Sessions that talk at once, beside the silent ones
    #[arg(long, default_value_t = 8)]
    talking: usize,
    /// Those that talk do so one after the other, with a system prompt that nobody used before
    #[arg(long)]
    in_turn: bool,
    /// Turns of each that talks, one right after the other
    #[arg(long, default_value_t = 3)]
    turns: usize,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    reply: usize,
    /// Tokens, about, of the system prompt
    #[arg(long, default_value_t = 200)]
    system: usize,
    /// Seconds until a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Prints one object for programs
    #[arg(long)]
    json: bool,
    /// Draws the wait of every turn into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Measured {
    bench: &'static str,
    machine: Machine,
    service: String,
    idle: usize,
    talking: usize,
    in_turn: bool,
    errors: Vec<String>,
    connect_ms: Option<Summary>,
    first_token_ms: Option<Summary>,
    /// For the first turn of each session that talked: with one system prompt for all, the first one computes it.
    first_turn_computed_tokens: Vec<Option<u64>>,
    /// Of all replies together, from the first word asked to the last one said.
    tokens_per_s: f64,
    /// None for a service that was not started here.
    memory: Option<OfService>,
    turns: Vec<Talked>,
}

#[derive(Serialize)]
struct OfService {
    /// After one conversation, so that what every service takes once is not counted as of the idle sessions.
    before: Memory,
    with_idle: Memory,
    after: Memory,
    /// What belongs to no file: pages of the model come and go by themselves.
    bytes_per_idle_session: Option<f64>,
}

#[derive(Serialize)]
struct Talked {
    session: usize,
    /// When it was asked, since the talking began.
    asked_ms: f64,
    #[serde(flatten)]
    turn: Turn,
}

pub async fn run(args: Args, given: &[OsString], settings: &Settings) -> Result<()> {
    if args.turns == 0 || args.reply == 0 || args.idle + args.talking == 0 {
        bail!("--turns and --reply are numbers from 1 upwards, and somebody must be connected");
    }
    let service = Service::open(&args.target, given, settings, &needs(&args, settings)).await?;
    let measured = measure(&args, settings, &service).await;
    service.stop().await;
    let measured = measured?;
    show(&[plot(&measured)], args.plot.as_deref(), false)?;
    if args.json {
        print_json(&measured)?
    } else {
        print(&measured)?
    }
    match measured.errors.len() {
        0 => Ok(()),
        count => bail!("{count} errors, the first: {}", clean(&measured.errors[0])),
    }
}

/// All come from one address and talk as fast as they can.
fn needs(args: &Args, settings: &Settings) -> Vec<(&'static str, String)> {
    let limits = &settings.limits;
    let places = args.idle + args.talking + SPARE;
    let places = [
        ("limits.connections", limits.connections),
        ("limits.connections_per_key", limits.connections_per_key),
        ("limits.connections_per_address", limits.connections_per_address),
        ("limits.live_sessions", limits.live_sessions),
    ]
    .map(|(key, limit)| (key, limit.max(places).to_string()));
    places.into_iter().chain(no_rate_limits()).collect()
}

/// Connections beside those that are counted.
const SPARE: usize = 8;
/// Handshakes at the same time.
const CONNECTING: usize = 16;

async fn measure(args: &Args, settings: &Settings, service: &Service) -> Result<Measured> {
    let patience = Duration::from_secs(args.patience);
    let system = Script::new(SEED).system(args.system);
    let warm_up = if args.in_turn { Script::new(SEED + 1).system(args.system) } else { system.clone() };
    // Buffers, threads and the store's pages are there after somebody has talked.
    talk(args, settings, service, 0, &warm_up, Instant::now()).await?;
    let before = settled(service).await;

    let mut errors = Vec::new();
    let bar = ProgressBar::new(args.idle as u64);
    bar.set_style(ProgressStyle::with_template("{pos} of {len} idle sessions [{bar:40}]")?);
    let (mut idle, mut connect_ms) = (Vec::new(), Vec::new());
    let connecting = (0..args.idle).map(|_| async {
        let begin = Instant::now();
        let mut line = Line::connect(service, settings, patience, None).await?;
        // Who never says a word is taken for nobody.
        greet(&mut line, &warm_up).await?;
        anyhow::Ok((line, begin.elapsed().as_secs_f64() * 1e3))
    });
    let mut connecting = stream::iter(connecting).buffer_unordered(CONNECTING);
    while let Some(connected) = connecting.next().await {
        match connected {
            Ok((line, ms)) => {
                idle.push(line);
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
    let talked: Vec<Result<Vec<Talked>>> = stream::iter(talking).buffered(at_once).collect().await;
    let talked_s = begin.elapsed().as_secs_f64();
    let after = service.memory();
    let mut turns: Vec<Talked> = Vec::new();
    for talked in talked {
        match talked {
            Ok(of_session) => turns.extend(of_session),
            Err(error) => errors.push(format!("a talking session: {error:#}")),
        }
    }
    for mut line in idle {
        match greet(&mut line, &warm_up).await {
            Ok(()) => line.close().await,
            Err(error) => errors.push(format!("an idle session at the end: {error:#}")),
        }
    }
    bar.finish_and_clear();
    let reply_tokens: u64 = turns.iter().filter_map(|talked| talked.turn.reply_tokens).sum();
    let memory = before.zip(with_idle).zip(after).map(|((before, with_idle), after)| OfService {
        before,
        with_idle,
        after,
        bytes_per_idle_session: (args.idle > 0)
            .then(|| (with_idle.anonymous_bytes as f64 - before.anonymous_bytes as f64) / args.idle as f64),
    });
    Ok(Measured {
        bench: "sessions",
        machine: service.machine(settings),
        service: service.name.clone(),
        idle: args.idle,
        talking: args.talking,
        in_turn: args.in_turn,
        errors,
        connect_ms: Summary::of(connect_ms),
        first_token_ms: Summary::of(turns.iter().filter_map(|talked| talked.turn.first_token_ms)),
        first_turn_computed_tokens: turns
            .iter()
            .filter(|talked| talked.turn.turn == 1)
            .map(|talked| talked.turn.computed_tokens)
            .collect(),
        tokens_per_s: reply_tokens as f64 / talked_s,
        memory,
        turns,
    })
}

async fn talk(
    args: &Args,
    settings: &Settings,
    service: &Service,
    session: usize,
    system: &str,
    begin: Instant,
) -> Result<Vec<Talked>> {
    let patience = Duration::from_secs(args.patience);
    let history = Vec::new();
    let mut player =
        realtime::Player::new(service, settings, None, args.reply, system.to_owned(), history, patience).await?;
    let mut script = Script::new(SEED + session as u64);
    let mut talked = Vec::new();
    for number in 1..=args.turns {
        let asked_ms = begin.elapsed().as_secs_f64() * 1e3;
        let turn = player.turn(number, script.step(number)).await?;
        talked.push(Talked { session, asked_ms, turn });
    }
    player.close().await;
    Ok(talked)
}

const SEED: u64 = 1;

async fn greet(line: &mut Line, system: &str) -> Result<()> {
    line.say(&json!({ "type": "session.update", "session": { "type": "realtime", "instructions": system } })).await?;
    line.until("session.updated").await?;
    Ok(())
}

/// The service reads ahead after it has answered: its memory is read when it no longer changes.
async fn settled(service: &Service) -> Option<Memory> {
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

fn print(measured: &Measured) -> Result<()> {
    print!("{}", measured.machine);
    println!("  service    {}", clean(&measured.service));
    let how = if measured.in_turn { "one after the other" } else { "at once" };
    let Measured { idle, talking, errors, .. } = measured;
    println!("\n{idle} idle sessions, {talking} that talk {how}: {} errors", errors.len());
    let line = |what: &str, summary: Option<Summary>| {
        if let Some(Summary { n, median, p95, max }) = summary {
            println!("  {what:<20} {median:>9.1} ms median {p95:>9.1} p95 {max:>9.1} max of {n}");
        }
    };
    line("connect", measured.connect_ms);
    line("first token", measured.first_token_ms);
    println!("  {:<20} {:>9.1} tokens/s, all replies together", "decode", measured.tokens_per_s);
    let computed = measured.first_turn_computed_tokens.iter();
    let computed: Vec<String> =
        computed.map(|tokens| tokens.map_or_else(|| "-".to_owned(), |n| n.to_string())).collect();
    println!("  {:<20} {} tokens computed", "first turns", computed.join(", "));
    match &measured.memory {
        None => println!("  {:<20} unknown: the service was not started here (--model)", "memory"),
        Some(memory) => {
            for (what, memory) in
                [("memory before", memory.before), ("with the idle ones", memory.with_idle), ("after", memory.after)]
            {
                let [rss, anonymous] = [memory.rss_bytes, memory.anonymous_bytes].map(mib);
                println!("  {what:<20} {rss:>9} MiB, of it {anonymous} MiB its own (not pages of files)");
            }
            if let Some(bytes) = memory.bytes_per_idle_session {
                println!("  {:<20} {:>9.1} KiB", "per idle session", bytes / 1024.0);
            }
        }
    }
    for error in &measured.errors {
        println!("  error: {}", clean(error));
    }
    show(&[plot(measured)], None, true)
}

fn plot(measured: &Measured) -> Plot {
    let point = |talked: &Talked| Some((talked.asked_ms / 1e3, talked.turn.first_token_ms?));
    let points = measured.turns.iter().filter_map(point).collect();
    Plot {
        title: format!("Time to the first token, {} sessions that talk", measured.talking),
        x: "seconds since the talking began",
        y: "ms",
        series: vec![Series { name: "turn", mark: 'o', points }],
    }
}
