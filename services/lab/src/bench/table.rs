//! `reprise bench turns --table`: every case that a household meets, one after the other, in one table.

use super::script::{Kind, Script};
use super::service::{Service, Target, no_rate_limits};
use super::show;
use super::turns::{Args, Door, Measured, Turn, play};
use crate::machine::Machine;
use crate::output::print_json;
use crate::output::{Align, Table, clean};
use crate::plot::{Plot, Series};
use anyhow::{Context, Result};
use experiment::median;
use serde::Serialize;
use settings::Settings;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Cases {
    bench: &'static str,
    machine: Machine,
    service: String,
    peer: Option<String>,
    pause_s: f64,
    rows: Vec<Row>,
    /// All turns of all cases, in the order of the rows.
    turns: Vec<Played>,
}

#[derive(Serialize)]
struct Played {
    case: &'static str,
    turns: Vec<Turn>,
}

#[derive(Serialize)]
struct Row {
    case: String,
    /// Median.
    first_token_ms: Option<f64>,
    computed_tokens: Option<f64>,
    /// What it is compared with.
    against: String,
    ratio: Option<f64>,
    /// None: is only told.
    holds: Option<bool>,
    note: String,
}

/// Histories that are compared with longer ones.
const SHORT_HISTORY: usize = 1_000;
const SESSIONS: usize = 10;
/// Turns of a case that needs few.
const FEW: usize = 5;
/// Silence in which what was computed reaches the disk.
const WRITING_S: f64 = 4.0;

pub async fn run(args: &Args, given: &[OsString], settings: &Settings, words_per_minute: f64) -> Result<()> {
    // The longest history, which may have half as many tokens more than it was meant to, with what is said after it.
    let longest = args.histories.iter().copied().max().unwrap_or(SHORT_HISTORY).max(args.restart_history);
    let mut needs: Vec<(&str, String)> = no_rate_limits().into();
    let window = (longest + longest / 2 + args.persona + 2 * SHORT_HISTORY).to_string();
    needs.push(("model.ctx_size", window));
    let mut service = Service::open(&args.target, given, settings, &needs).await?;
    let played = cases(args, given, settings, &mut service, words_per_minute).await;
    service.stop().await;
    let cases = played?;
    let plot = plot(&cases);
    show(std::slice::from_ref(&plot), args.plot.as_deref(), false)?;
    if args.json {
        return print_json(&cases);
    }
    print(&cases)?;
    show(&[plot], None, true)
}

async fn cases(
    args: &Args,
    given: &[OsString],
    settings: &Settings,
    service: &mut Service,
    words_per_minute: f64,
) -> Result<Cases> {
    let mut all = Cases {
        bench: "turns --table",
        machine: service.machine(settings),
        service: service.name.clone(),
        peer: args.peer.clone(),
        pause_s: args.pause,
        rows: Vec::new(),
        turns: Vec::new(),
    };
    // Each case is a conversation of its own, unless it says otherwise.
    let case = |door: Door, turns: usize, seed: u64| Args {
        door,
        turns,
        seed: args.seed + seed,
        table: false,
        peer: None,
        barge_in_every: Some(3),
        ..args.clone()
    };

    let ordinary = case(Door::Chat, 12, 100);
    let mut peers = None;
    if let Some(url) = &args.peer {
        let target = Target { url: Some(url.clone()), key: None, model: None };
        let mut peer = Service::open(&target, given, settings, &[]).await?;
        let measured = play(&ordinary, settings, &mut peer, words_per_minute).await.context("the peer")?;
        peers = of(&measured.turns, Kind::Turn).0;
        all.tell("peer: ordinary turn, chat completions", &measured.turns, Kind::Turn);
        all.compare(
            "peer: next turn after a barge-in",
            &measured.turns,
            Kind::BargeIn,
            ("its ordinary turn", peers),
            None,
        );
        all.keep("peer", measured);
    }

    let measured = play(&ordinary, settings, service, words_per_minute).await?;
    let (ours, _) = of(&measured.turns, Kind::Turn);
    let against = ("the peer's", peers);
    all.compare("ordinary turn, chat completions", &measured.turns, Kind::Turn, against, Some(1.0 / 3.0));
    let barge_in = ("ordinary turn", ours);
    all.compare("next turn after a barge-in, chat completions", &measured.turns, Kind::BargeIn, barge_in, Some(1.1));
    all.keep("chat", measured);

    let measured = play(&case(Door::Realtime, 6, 200), settings, service, words_per_minute).await?;
    let (websocket, _) = of(&measured.turns, Kind::Turn);
    all.compare("ordinary turn, websocket", &measured.turns, Kind::Turn, against, Some(1.0 / 3.0));
    let barge_in = ("ordinary turn, websocket", websocket);
    all.compare("next turn after a barge-in, websocket", &measured.turns, Kind::BargeIn, barge_in, Some(1.1));
    all.keep("websocket", measured);

    let measured = play(&case(Door::RealtimePartial, 6, 300), settings, service, words_per_minute).await?;
    all.compare("ordinary turn, partial transcripts", &measured.turns, Kind::Turn, against, Some(1.0 / 8.0));
    all.keep("partial transcripts", measured);

    // How many tokens the script's words are depends on the vocabulary.
    let one = Args { history: SHORT_HISTORY, ..case(Door::Chat, 1, 400) };
    let measured = play(&one, settings, service, words_per_minute).await?;
    let meant = (SHORT_HISTORY + args.system) as f64;
    let tokens = measured.turns[0].prompt_tokens.map_or(meant, |tokens| tokens as f64);
    let of_tokens = |history: usize| (history as f64 * meant / tokens) as usize;

    // Histories that begin alike: each is read from where the one before ends.
    let mut short = (None, None);
    for history in std::iter::once(SHORT_HISTORY).chain(args.histories.iter().copied()) {
        let long = Args { history: of_tokens(history), ..case(Door::Chat, FEW, 400) };
        let measured = play(&long, settings, service, words_per_minute).await?;
        let name = format!("ordinary turn, history of {history} tokens");
        if short.0.is_none() {
            short = of(&measured.turns, Kind::Turn);
            all.tell(&name, &measured.turns, Kind::Turn);
        } else {
            // Twice at 16 times as much, 3.5 times at 32 times: what attention reads is all that grows.
            let at_most = (0.5 + 1.5 * history as f64 / (16 * SHORT_HISTORY) as f64).max(1.1);
            let against = ("that of 1,000", short.0);
            let row = all.compare(&name, &measured.turns, Kind::Turn, against, Some(at_most));
            let prompt = median(measured.turns.iter().filter_map(|turn| turn.prompt_tokens.map(|n| n as f64)));
            row.note = format!("{} computed at 1,000; prompts of {} tokens", number(short.1), number(prompt));
            row.holds = row.holds.map(|holds| holds && nearly(row.computed_tokens, short.1));
        }
        all.keep("history", measured);
    }

    let long = Args {
        history: of_tokens(args.restart_history),
        pause: args.pause.max(WRITING_S),
        restart_before: Some(FEW),
        ..case(Door::Realtime, FEW, 500)
    };
    let measured = play(&long, settings, service, words_per_minute).await?;
    let (before, _) = of(&measured.turns, Kind::Turn);
    let (files_ms, mib) = match service.state_folder() {
        Some(folder) => read_all(&folder)?,
        None => (0.0, 0.0),
    };
    let name = format!("first turn after kill -9 with {} tokens", args.restart_history);
    let row = all.compare(&name, &measured.turns, Kind::Restart, ("ordinary turn there", before), None);
    row.holds = row.first_token_ms.zip(before).map(|(ms, before)| ms <= 1.5 * before + files_ms);
    row.note = format!("at most 1.5 x and the files: {mib:.0} MiB in {files_ms:.0} ms");
    all.keep("restart", measured);

    let persona = Script::new(args.seed + 600).system(args.persona);
    let mut turns = Vec::new();
    for session in 0..SESSIONS {
        let one = Args { system: args.persona, ..case(Door::Chat, 1, 600) };
        let mut script = Script::with_barge_ins(args.seed + 700 + session as u64, 3);
        let mut player = super::chat::Player::new(
            service,
            None,
            one.reply,
            persona.clone(),
            Vec::new(),
            Duration::from_secs(one.patience),
        )
        .await?;
        turns.push(player.turn(service, session + 1, script.step(1)).await?);
    }
    let computed = |turn: &Turn| turn.computed_tokens.unwrap_or(u64::MAX);
    let (first, most) = (computed(&turns[0]), turns[1..].iter().map(computed).max().unwrap_or(0));
    let name = format!("{SESSIONS} sessions in turn, one persona of {} tokens", args.persona);
    let row = all.tell(&name, &turns, Kind::Turn);
    row.note = format!("computed: {first} by the first, at most {most} by the others");
    row.holds = Some(first > most * 10);
    all.turns.push(Played { case: "persona", turns });

    let clock = Args { clock_in_system: true, ..case(Door::Chat, FEW, 800) };
    let measured = play(&clock, settings, service, words_per_minute).await?;
    let reasons: Vec<&str> = measured.turns.iter().skip(1).filter_map(|turn| turn.reason.as_deref()).collect();
    let row = all.tell("a clock in the system prompt", &measured.turns, Kind::Turn);
    row.note = format!("told: {}", reasons.first().unwrap_or(&"nothing"));
    row.holds = Some(!reasons.is_empty() && reasons.iter().all(|reason| *reason == "edited"));
    all.keep("clock", measured);
    for (door, name) in [(Door::Chat, "chat completions"), (Door::Realtime, "websocket")] {
        let note = Args { clock_as_note: true, ..case(door, FEW, 900) };
        let measured = play(&note, settings, service, words_per_minute).await?;
        let reasons: Vec<&str> = measured.turns.iter().skip(1).filter_map(|turn| turn.reason.as_deref()).collect();
        let row = all.tell(&format!("a clock in a note before the user's words, {name}"), &measured.turns, Kind::Turn);
        row.note = format!("told: {}", reasons.first().unwrap_or(&"nothing"));
        row.holds = Some(!reasons.is_empty() && reasons.iter().all(|reason| *reason == "new_text"));
        all.keep("note", measured);
    }
    Ok(all)
}

impl Cases {
    fn tell(&mut self, case: &str, turns: &[Turn], kind: Kind) -> &mut Row {
        self.compare(case, turns, kind, ("", None), None)
    }

    fn compare(
        &mut self,
        case: &str,
        turns: &[Turn],
        kind: Kind,
        (against, ms): (&str, Option<f64>),
        at_most: Option<f64>,
    ) -> &mut Row {
        let (first_token_ms, computed_tokens) = of(turns, kind);
        let ratio = first_token_ms.zip(ms).map(|(ours, theirs)| ours / theirs);
        let holds = ratio.zip(at_most).map(|(ratio, at_most)| ratio <= at_most);
        let limit = at_most.map_or_else(String::new, |at_most| format!(", at most {at_most:.2}"));
        // Cases take minutes: whoever waits sees that it goes on.
        eprintln!("played: {case}");
        let against = if ratio.is_some() { format!("{against}{limit}") } else { String::new() };
        let case = case.to_owned();
        self.rows.push(Row { case, first_token_ms, computed_tokens, against, ratio, holds, note: String::new() });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }

    fn keep(&mut self, case: &'static str, measured: Measured) {
        self.turns.push(Played { case, turns: measured.turns });
    }
}

/// Medians of the wait and of the computed tokens, without the first turn, which is cold.
fn of(turns: &[Turn], kind: Kind) -> (Option<f64>, Option<f64>) {
    let turns: Vec<&Turn> = turns.iter().skip(1).filter(|turn| turn.kind == kind).collect();
    let waits = median(turns.iter().filter_map(|turn| turn.first_token_ms));
    (waits, median(turns.iter().filter_map(|turn| turn.computed_tokens.map(|tokens| tokens as f64))))
}

/// The same words may be a token more or less where the words before them differ.
fn nearly(a: Option<f64>, b: Option<f64>) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= 3.0)
}

/// How long it takes to read all files of a folder once, and how much that is.
fn read_all(folder: &Path) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        bytes += std::fs::read(entry?.path())?.len();
    }
    Ok((begin.elapsed().as_secs_f64() * 1e3, bytes as f64 / (1u64 << 20) as f64))
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"))
}

fn print(cases: &Cases) -> Result<()> {
    print!("{}", cases.machine);
    println!("  service    {}", clean(&cases.service));
    println!("  peer       {}", clean(cases.peer.as_deref().unwrap_or("none (--peer URL)")));
    println!("  silence    {} s between turns\n", cases.pause_s);
    let mut table = Table::new(&[
        ("case", Align::Left),
        ("first token ms", Align::Right),
        ("computed", Align::Right),
        ("ratio", Align::Right),
        ("to", Align::Left),
        ("holds", Align::Left),
        ("", Align::Left),
    ]);
    for row in &cases.rows {
        table.row([
            row.case.clone(),
            row.first_token_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}")),
            number(row.computed_tokens),
            row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}")),
            row.against.clone(),
            row.holds.map_or("", |holds| if holds { "yes" } else { "NO" }).to_owned(),
            clean(&row.note),
        ]);
    }
    table.print()?;
    Ok(())
}

/// The wait over the history, of everything that was played with us.
fn plot(cases: &Cases) -> Plot {
    let ours = || cases.turns.iter().filter(|played| !matches!(played.case, "peer" | "clock" | "persona"));
    let points = |kind| {
        let turns = ours().flat_map(|played| played.turns.iter().skip(1)).filter(move |turn| turn.kind == kind);
        turns.filter_map(|turn| Some((turn.prompt_tokens? as f64, turn.first_token_ms?))).collect()
    };
    let series = Kind::ALL.map(|kind| Series { name: kind.name(), mark: kind.mark(), points: points(kind) });
    Plot { title: "Time to the first token".to_owned(), x: "tokens of the prompt", y: "ms", series: series.into() }
}
