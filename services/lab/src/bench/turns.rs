//! `reprise bench turns`: a voice conversation, turn by turn, and how long the user waits for the first word.

use super::script::{Kind, Script, Step};
use super::service::{Service, Target, no_rate_limits};
use super::{chat, realtime, show, table};
use crate::machine::Machine;
use crate::output::print_json;
use crate::output::{Align, Table, clean};
use crate::plot::{Plot, Series};
use anyhow::{Result, bail};
use experiment::{Summary, median};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use settings::Settings;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Plays a voice conversation and measures the wait for the first word of each reply
///
/// Every sixth turn is a barge-in (of the last reply a third was heard), every ninth a compaction (all but the last four
/// messages become a summary). The first turn is cold and stands beside the summary.
///
/// --pause is real silence between the end of a reply and the next turn: a service may use it, and every service that is
/// compared gets the same. Over a websocket the service is told what was heard of a reply when the user begins to speak
/// over it, which is before the silence; over chat completions with the next turn. With --door realtime-partial the user
/// then speaks at --words-per-minute, which is real time too; the wait is measured from the last spoken word. With the
/// other doors it is measured from sending the turn.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) target: Target,
    /// Where one talks with it
    #[arg(long, value_enum, default_value_t = Door::Chat)]
    pub(super) door: Door,
    /// The model's name in requests of --door chat [default: the first that the server lists]
    #[arg(long)]
    pub(super) served_model: Option<String>,
    #[arg(long, default_value_t = 24)]
    pub(super) turns: usize,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    pub(super) reply: usize,
    /// Seconds of silence between a reply and the next turn
    #[arg(long, default_value_t = 1.0)]
    pub(super) pause: f64,
    /// Tokens, about, that were said before the first turn
    #[arg(long, default_value_t = 0)]
    pub(super) history: usize,
    /// Tokens, about, of the system prompt
    #[arg(long, default_value_t = 600)]
    pub(super) system: usize,
    /// Kills the service before this turn and starts it again on the same store. Of what was computed survives what was
    /// written in idle time: with --set memory.disk_idle_s=0 that is all of it, once the pause is long enough
    #[arg(long, value_name = "TURN", conflicts_with = "url")]
    pub(super) restart_before: Option<usize>,
    /// The system prompt ends with the time of day, another one at every turn
    #[arg(long)]
    pub(super) clock_in_system: bool,
    /// A system message before each of the user's tells the time of day
    #[arg(long, conflicts_with = "clock_in_system")]
    pub(super) clock_as_note: bool,
    /// How fast the user speaks [default: the configuration's speech.words_per_minute]
    #[arg(long)]
    pub(super) words_per_minute: Option<f64>,
    /// Another conversation of the same kind
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Seconds until a silent service is given up
    #[arg(long, default_value_t = 600)]
    pub(super) patience: u64,
    /// Plays every case that a household meets and prints one table: ordinary turns, barge-ins, partial transcripts, a
    /// restart, long histories, ten sessions with one persona, a clock in the system prompt. Takes minutes
    #[arg(long, conflicts_with_all = ["url", "restart_before", "clock_in_system", "clock_as_note", "history"])]
    pub(super) table: bool,
    /// With --table: another OpenAI-compatible server that runs on this machine with the same model, to compare with
    #[arg(long, value_name = "URL", requires = "table")]
    pub(super) peer: Option<String>,
    /// With --table: the longest histories, in tokens, about, that are compared with one of 1,000
    #[arg(long, value_delimiter = ',', default_values_t = [16_000, 32_000], requires = "table")]
    pub(super) histories: Vec<usize>,
    /// With --table: history, in tokens, about, of the session that is restarted
    #[arg(long, default_value_t = 8_000, requires = "table")]
    pub(super) restart_history: usize,
    /// With --table: tokens, about, of the system prompt that ten sessions share
    #[arg(long, default_value_t = 2_000, requires = "table")]
    pub(super) persona: usize,
    /// A reply is talked over every so many turns, and no turns become a summary
    #[arg(long)]
    pub(super) barge_in_every: Option<usize>,
    /// Prints one object for programs
    #[arg(long)]
    pub(super) json: bool,
    /// Draws the wait over the history into this SVG file
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Door {
    /// Chat completions of any OpenAI-compatible server
    Chat,
    /// Our websocket
    Realtime,
    /// Our websocket, told what the user says while the user says it
    RealtimePartial,
}

/// What a turn cost, as far as the service tells.
#[derive(Clone, Debug, Serialize)]
pub struct Turn {
    pub turn: usize,
    pub kind: Kind,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub computed_tokens: Option<u64>,
    pub reply_tokens: Option<u64>,
    /// None where the reply had no words.
    pub first_token_ms: Option<f64>,
    pub total_ms: f64,
    /// Why tokens had to be computed.
    pub reason: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Measured {
    pub(super) bench: &'static str,
    pub(super) machine: Machine,
    pub(super) service: String,
    pub(super) door: Door,
    pub(super) pause_s: f64,
    pub(super) reply_tokens: usize,
    pub(super) words_per_minute: Option<f64>,
    pub(super) seed: u64,
    pub(super) clock_in_system: bool,
    /// From the kill to the first connection.
    pub(super) restart_ms: Option<f64>,
    pub(super) turns: Vec<Turn>,
    pub(super) summary: Vec<OfKind>,
}

/// Without the first turn.
#[derive(Serialize)]
pub(super) struct OfKind {
    pub(super) kind: Kind,
    pub(super) first_token_ms: Option<Summary>,
    pub(super) computed_tokens_median: Option<f64>,
}

impl Turn {
    pub fn new(turn: usize, kind: Kind) -> Turn {
        Turn {
            turn,
            kind,
            prompt_tokens: None,
            cached_tokens: None,
            computed_tokens: None,
            reply_tokens: None,
            first_token_ms: None,
            total_ms: 0.0,
            reason: None,
        }
    }
}

enum Player {
    Chat(chat::Player),
    Realtime(Box<realtime::Player>),
}

impl Player {
    /// The user begins to speak over the last reply.
    async fn interrupt(&mut self, step: &Step) -> Result<()> {
        match self {
            Player::Chat(_) => Ok(()),
            Player::Realtime(player) => player.interrupt(step).await,
        }
    }

    async fn turn(&mut self, service: &Service, number: usize, step: Step) -> Result<Turn> {
        match self {
            Player::Chat(player) => player.turn(service, number, step).await,
            Player::Realtime(player) => player.turn(number, step).await,
        }
    }
}

pub async fn run(args: Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let words_per_minute = args.words_per_minute.unwrap_or(f64::from(settings.speech.words_per_minute));
    let wrong = |value: f64| !value.is_finite() || value < 0.0;
    if wrong(args.pause) || wrong(words_per_minute) || words_per_minute < 1.0 || args.turns == 0 || args.reply == 0 {
        bail!("--pause is seconds, --turns, --reply and --words-per-minute are numbers from 1 upwards");
    }
    if args.restart_before.is_some_and(|turn| turn < 2 || turn > args.turns) {
        bail!("--restart-before names a turn from 2 to --turns: before the first there is nothing to go on with");
    }
    if args.barge_in_every == Some(0) {
        bail!("--barge-in-every is a number of turns from 1 upwards");
    }
    if args.table {
        return table::run(&args, given, settings, words_per_minute).await;
    }
    let mut service = Service::open(&args.target, given, settings, &no_rate_limits()).await?;
    let measured = play(&args, settings, &mut service, words_per_minute).await;
    service.stop().await;
    let measured = measured?;
    show(&[plot(&measured.turns)], args.plot.as_deref(), false)?;
    if args.json { print_json(&measured) } else { print(&measured) }
}

pub(super) async fn play(
    args: &Args,
    settings: &Settings,
    service: &mut Service,
    words_per_minute: f64,
) -> Result<Measured> {
    let mut script = Script::new(args.seed);
    let (system, history) = (script.system(args.system), script.history(args.history));
    // What is said then is the same after a history of whatever length.
    let mut script = match args.barge_in_every {
        None => script,
        Some(every) => Script::with_barge_ins(args.seed + 1, every),
    };
    let patience = Duration::from_secs(args.patience);
    let partials = (args.door == Door::RealtimePartial).then_some(words_per_minute);
    let mut player = match args.door {
        Door::Chat => {
            let model = args.served_model.as_deref();
            Player::Chat(chat::Player::new(service, model, args.reply, system.clone(), history, patience).await?)
        }
        Door::Realtime | Door::RealtimePartial => {
            let player =
                realtime::Player::new(service, settings, partials, args.reply, system.clone(), history, patience)
                    .await?;
            Player::Realtime(Box::new(player))
        }
    };
    let bar = ProgressBar::new(args.turns as u64);
    bar.set_style(ProgressStyle::with_template("turn {pos} of {len} [{bar:40}] {eta} left {msg}")?);
    let mut turns: Vec<Turn> = Vec::new();
    let mut restart_ms = None;
    for number in 1..=args.turns {
        let mut step = script.step(number);
        if number > 1 {
            player.interrupt(&step).await?;
            tokio::time::sleep(Duration::from_secs_f64(args.pause)).await;
        }
        let clock = format!("It is {:02}:{:02}.", 8 + number / 60 % 12, number % 60);
        if args.clock_in_system {
            step.system = Some(format!("{system} {clock}"));
        }
        step.note = args.clock_as_note.then_some(clock);
        if args.restart_before == Some(number) {
            let begin = Instant::now();
            service.restart().await?;
            if let Player::Realtime(player) = &mut player {
                player.go_on(service, settings, patience).await?;
            }
            restart_ms = Some(begin.elapsed().as_secs_f64() * 1e3);
            step.kind = Kind::Restart;
        }
        let turn = player.turn(service, number, step).await?;
        bar.set_message(turn.first_token_ms.map_or_else(String::new, |ms| format!("first word after {ms:.0} ms")));
        bar.inc(1);
        turns.push(turn);
    }
    bar.finish_and_clear();
    if let Player::Realtime(player) = player {
        player.close().await;
    }
    Ok(Measured {
        bench: "turns",
        machine: service.machine(settings),
        service: service.name.clone(),
        door: args.door,
        pause_s: args.pause,
        reply_tokens: args.reply,
        words_per_minute: partials,
        seed: args.seed,
        clock_in_system: args.clock_in_system,
        restart_ms,
        summary: Kind::ALL.iter().filter_map(|kind| of_kind(*kind, &turns)).collect(),
        turns,
    })
}

fn of_kind(kind: Kind, turns: &[Turn]) -> Option<OfKind> {
    let turns: Vec<&Turn> = turns.iter().skip(1).filter(|turn| turn.kind == kind).collect();
    (!turns.is_empty()).then(|| OfKind {
        kind,
        first_token_ms: Summary::of(turns.iter().filter_map(|turn| turn.first_token_ms)),
        computed_tokens_median: median(turns.iter().filter_map(|turn| turn.computed_tokens.map(|n| n as f64))),
    })
}

fn print(measured: &Measured) -> Result<()> {
    print!("{}", measured.machine);
    println!("  service    {}", clean(&measured.service));
    let door = match measured.words_per_minute {
        None => format!("{:?}", measured.door).to_lowercase(),
        Some(speed) => format!("realtime with partial transcripts at {speed:.0} words a minute"),
    };
    println!(
        "  door       {door}, {} s of silence between turns, replies of {} tokens\n",
        measured.pause_s, measured.reply_tokens
    );
    if let Some(ms) = measured.restart_ms {
        println!("  restart    killed, and connected again after {ms:.0} ms\n");
    }
    let mut table = Table::new(&[
        ("turn", Align::Right),
        ("kind", Align::Left),
        ("prompt", Align::Right),
        ("cached", Align::Right),
        ("computed", Align::Right),
        ("first token ms", Align::Right),
        ("total ms", Align::Right),
        ("reason", Align::Left),
    ]);
    let count = |tokens: Option<u64>| tokens.map_or_else(|| "-".to_owned(), |tokens| tokens.to_string());
    for turn in &measured.turns {
        table.row([
            turn.turn.to_string(),
            turn.kind.name().to_owned(),
            count(turn.prompt_tokens),
            count(turn.cached_tokens),
            count(turn.computed_tokens),
            turn.first_token_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}")),
            format!("{:.1}", turn.total_ms),
            clean(turn.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table.print()?;
    println!("\nTime to the first token in ms, without the first turn:");
    let mut table = Table::new(&[
        ("kind", Align::Left),
        ("n", Align::Right),
        ("median", Align::Right),
        ("p95", Align::Right),
        ("max", Align::Right),
        ("computed tokens (median)", Align::Right),
    ]);
    for of_kind in &measured.summary {
        let Some(summary) = of_kind.first_token_ms else { continue };
        let ms = |value: f64| format!("{value:.1}");
        table.row([
            of_kind.kind.name().to_owned(),
            summary.n.to_string(),
            ms(summary.median),
            ms(summary.p95),
            ms(summary.max),
            of_kind.computed_tokens_median.map_or_else(|| "-".to_owned(), |tokens| format!("{tokens:.0}")),
        ]);
    }
    table.print()?;
    show(&[plot(&measured.turns)], None, true)
}

fn plot(turns: &[Turn]) -> Plot {
    // Some servers do not count in a stream.
    let counted = turns.iter().any(|turn| turn.prompt_tokens.is_some());
    let x = |turn: &Turn| if counted { turn.prompt_tokens.map(|tokens| tokens as f64) } else { Some(turn.turn as f64) };
    let points = |kind| {
        let turns = turns.iter().skip(1).filter(move |turn| turn.kind == kind);
        turns.filter_map(|turn| Some((x(turn)?, turn.first_token_ms?))).collect()
    };
    let series = Kind::ALL.map(|kind| Series { name: kind.name(), mark: kind.mark(), points: points(kind) });
    Plot {
        title: "Time to the first token".to_owned(),
        x: if counted { "tokens of the prompt" } else { "turns" },
        y: "ms",
        series: series.into(),
    }
}
