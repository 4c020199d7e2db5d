//! `reprise bench turns`: a voice conversation, turn by turn, and the user's wait for the first word.

use super::BenchOutput;
use super::chat::ChatPlayer;
use super::realtime::RealtimePlayer;
use super::service::{BenchTarget, MeasuredService};
use super::speaking::{Speech, SpeechArgs};
use super::steps::{Filler, Opening, PROMPT_TOKENS, TURNS, TurnCost, TurnKind, UserStep};
use anyhow::{Result, bail};
use experiment::{Quantiles, median};
use serde::Serialize;
use serde_json::{Value, json};
use settings::Settings;
use std::ffi::OsString;
use std::time::{Duration, Instant};
use terminal::output::progress_bar;

/// Plays a voice conversation and measures the wait for the first word of each reply
///
/// Every sixth turn is a barge-in (the user heard a third of the last reply), every ninth a compaction (all but the
/// last four messages become a summary). The first turn is cold and has a row of its own.
///
/// --pause is real silence between the end of a reply and the next turn: a service may use it, and every compared
/// service gets the same. Over a websocket the service learns how much of a reply was heard when the user begins to
/// speak over it, which is before the silence; over chat completions with the next turn. With --door realtime-partial
/// the user then speaks at --words-per-minute, which is real time too; the wait is measured from the final words, and
/// --last-partial chooses the words before them. With the other doors it is measured from sending the turn.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) target: BenchTarget,
    /// Protocol of the conversation
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
    /// Tokens, about, of a history before the first turn
    #[arg(long, default_value_t = 0)]
    pub(super) history: usize,
    /// Tokens, about, of the system prompt
    #[arg(long, default_value_t = 600)]
    pub(super) system: usize,
    /// Kills the service before this turn and starts it again on the same store. Only cached sequences that were
    /// written in idle time survive: with --set memory.disk_idle_s=0 these are all, once the pause is long enough
    #[arg(long, value_name = "TURN", conflicts_with = "url")]
    pub(super) restart_before: Option<usize>,
    /// Ends the system prompt with the time of day, another one at every turn
    #[arg(long)]
    pub(super) clock_in_system: bool,
    /// Tells the time of day in a system message before each of the user's
    #[arg(long, conflicts_with = "clock_in_system")]
    pub(super) clock_as_note: bool,
    #[command(flatten)]
    pub(super) speech: SpeechArgs,
    /// Seed of the conversation
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    pub(super) patience: u64,
    /// Plays every case that a household meets and prints one table: ordinary turns, barge-ins, partial transcripts, a
    /// restart, long histories, ten sessions with one persona, a clock in the system prompt. Takes minutes
    #[arg(long, conflicts_with_all = ["url", "restart_before", "clock_in_system", "clock_as_note", "history"])]
    pub(super) table: bool,
    /// Another OpenAI-compatible server on this machine with the same model, to compare with (--table)
    #[arg(long, value_name = "URL", requires = "table")]
    pub(super) peer: Option<String>,
    /// Longest histories of --table, in tokens, about, that are compared with one of 1,000
    #[arg(long, value_delimiter = ',', default_values_t = [16_000, 32_000], requires = "table")]
    pub(super) histories: Vec<usize>,
    /// History of the restarted session of --table, in tokens, about
    #[arg(long, default_value_t = 8_000, requires = "table")]
    pub(super) restart_history: usize,
    /// Tokens, about, of the system prompt that ten sessions of --table share
    #[arg(long, default_value_t = 2_000, requires = "table")]
    pub(super) persona: usize,
    /// Turns between two barge-ins; then no turns become a summary
    #[arg(long)]
    pub(super) barge_in_every: Option<usize>,
    #[command(flatten)]
    pub(super) output: BenchOutput,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Door {
    /// Chat completions of any OpenAI-compatible server
    Chat,
    /// Our websocket
    Realtime,
    /// Our websocket, with partial transcripts while the user speaks
    RealtimePartial,
}

pub(super) struct PlayedTurns {
    restart_ms: Option<f64>, // from the kill to the first connection
    pub(super) turns: Vec<TurnCost>,
}

enum Player {
    Chat(ChatPlayer),
    Realtime(Box<RealtimePlayer>),
}

impl Player {
    async fn interrupt(&mut self, step: &UserStep) -> Result<()> {
        match self {
            Player::Chat(_) => Ok(()),
            Player::Realtime(player) => player.interrupt(step).await,
        }
    }

    async fn turn(&mut self, service: &MeasuredService, number: usize, step: UserStep) -> Result<TurnCost> {
        match self {
            Player::Chat(player) => player.turn(service, number, step).await,
            Player::Realtime(player) => player.turn(number, step, &mut |_| ()).await,
        }
    }
}

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    args.check()?;
    let mut service = MeasuredService::open(&args.target, given, settings, &[]).await?;
    let played = play(args, settings, &mut service).await;
    let (machine, name) = (service.hardware(settings), service.name.clone());
    service.stop().await;
    let PlayedTurns { restart_ms, turns } = played?;
    let measured = json!({
        "bench": "turns",
        "machine": machine,
        "service": name,
        "door": args.door,
        "pause_s": args.pause,
        "reply_tokens": args.reply,
        "speech": args.speech(settings)?,
        "seed": args.seed,
        "clock_in_system": args.clock_in_system,
        "restart_ms": restart_ms,
        "turns": turns,
        "summary": TurnKind::ALL.iter().filter_map(|kind| summary(*kind, &turns)).collect::<Vec<_>>(),
    });
    // Some services do not count in a stream.
    let x = if turns.iter().any(|turn| turn.prompt_tokens.is_some()) { PROMPT_TOKENS } else { TURNS };
    let chart = TurnKind::chart(turns.iter().skip(1), x);
    args.output.tell(&measured, &[&measured["turns"], &measured["summary"]], &[chart])
}

impl Args {
    fn speech(&self, settings: &Settings) -> Result<Option<Speech>> {
        (self.door == Door::RealtimePartial).then(|| self.speech.speech(settings)).transpose()
    }

    pub(super) fn check(&self) -> Result<()> {
        let wrong = |value: f64| !value.is_finite() || value < 0.0;
        if wrong(self.pause) || self.turns == 0 || self.reply == 0 {
            bail!("--pause is seconds, --turns and --reply are numbers from 1 upwards");
        }
        if self.restart_before.is_some_and(|turn| turn < 2 || turn > self.turns) {
            bail!("--restart-before names a turn from 2 to --turns: before the first there is nothing to resume");
        }
        if self.barge_in_every == Some(0) {
            bail!("--barge-in-every is a number of turns from 1 upwards");
        }
        Ok(())
    }
}

pub(super) async fn play(args: &Args, settings: &Settings, service: &mut MeasuredService) -> Result<PlayedTurns> {
    let mut filler = Filler::new(args.seed);
    let (system, history) = (filler.system(args.system), filler.history(args.history));
    // The turns are then the same behind a history of any length.
    if let Some(every) = args.barge_in_every {
        filler = Filler::with_barge_ins(args.seed + 1, every);
    }
    let patience = Duration::from_secs(args.patience);
    let opening = Opening { system: system.clone(), history, reply_tokens: args.reply, patience };
    let mut player = match args.door {
        Door::Chat => Player::Chat(ChatPlayer::new(service, args.served_model.as_deref(), opening).await?),
        Door::Realtime | Door::RealtimePartial => {
            Player::Realtime(Box::new(RealtimePlayer::new(service, settings, args.speech(settings)?, opening).await?))
        }
    };
    let bar = progress_bar(args.turns as u64, "turn {pos} of {len} [{bar:40}] {eta} left {msg}");
    let mut turns: Vec<TurnCost> = Vec::new();
    let mut restart_ms = None;
    for number in 1..=args.turns {
        let mut step = filler.step(number);
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
            step.kind = TurnKind::Restart;
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
    Ok(PlayedTurns { restart_ms, turns })
}

fn summary(kind: TurnKind, turns: &[TurnCost]) -> Option<Value> {
    // without the first turn
    let turns: Vec<&TurnCost> = turns.iter().skip(1).filter(|turn| turn.kind == kind).collect();
    (!turns.is_empty()).then(|| {
        json!({
            "kind": kind,
            "first_token_ms": Quantiles::of(turns.iter().filter_map(|turn| turn.first_token_ms)),
            "computed_tokens_median": median(turns.iter().filter_map(|turn| turn.computed_tokens.map(|n| n as f64))),
        })
    })
}
