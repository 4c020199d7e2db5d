//! `reprise bench turns --table`: every case that a household meets, one after the other, in one table.

use super::chat::ChatPlayer;
use super::service::{BenchTarget, MeasuredService};
use super::steps::{Filler, Opening, PROMPT_TOKENS, TurnCost, TurnKind};
use super::turns::{Args, Door, play};
use anyhow::{Context, Result};
use experiment::median;
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};
use terminal::note;

#[derive(Serialize)]
struct PlayedCase {
    case: &'static str,
    turns: Vec<TurnCost>,
}

#[derive(Serialize)]
struct CaseRow {
    case: String,
    first_token_ms: Option<f64>, // median
    computed_tokens: Option<f64>,
    against: String, // the case to compare with
    ratio: Option<f64>,
    holds: Option<bool>, // verdict; `None` if the case has no limit
    note: String,
}

const SHORT_HISTORY: usize = 1_000; // length to which longer histories are compared
const SESSIONS: usize = 10;
const FEW: usize = 5; // turns of a short case
pub(super) const WRITING_S: f64 = 4.0; // silence in which computed sequences reach the disk

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    args.check()?;
    // The longest history, which may have half as many tokens more than planned, with the turns after it.
    let longest = args.histories.iter().copied().max().unwrap_or(SHORT_HISTORY).max(args.restart_history);
    let window = longest + longest / 2 + args.persona + 2 * SHORT_HISTORY;
    let needs = [("model.ctx_size", window.to_string())];
    let service = MeasuredService::open(&args.target, given, settings, &needs).await?;
    let mut cases = Cases { args, settings, service, rows: Vec::new(), played: Vec::new() };
    let done = cases.play_all(given).await;
    let Cases { service, rows, played, .. } = cases;
    let (machine, name) = (service.hardware(settings), service.name.clone());
    service.stop().await;
    done?;
    let measured = json!({
        "bench": "turns --table",
        "machine": machine,
        "service": name,
        "peer": args.peer,
        "pause_s": args.pause,
        "rows": rows,
        // All turns of all cases, in the order of the rows.
        "turns": played,
    });
    // All turns that were played with the measured service.
    let ours = played.iter().filter(|played| !matches!(played.case, "peer" | "clock" | "persona"));
    let chart = TurnKind::chart(ours.flat_map(|played| played.turns.iter().skip(1)), PROMPT_TOKENS);
    args.output.tell(&measured, &[&measured["rows"]], &[chart])
}

struct Cases<'a> {
    args: &'a Args,
    settings: &'a Settings,
    service: MeasuredService,
    rows: Vec<CaseRow>,
    played: Vec<PlayedCase>,
}

impl Cases<'_> {
    async fn play_all(&mut self, given: &[OsString]) -> Result<()> {
        let args = self.args;
        let ordinary = self.case(Door::Chat, 12, 100);
        let mut peers = None;
        if let Some(url) = &args.peer {
            let target = BenchTarget { url: Some(url.clone()), key: None, model: None };
            let mut peer = MeasuredService::open(&target, given, self.settings, &[]).await?;
            let turns = play(&ordinary, self.settings, &mut peer).await.context("the peer")?.turns;
            peers = medians(&turns, TurnKind::Turn).0;
            self.tell("peer: ordinary turn, chat completions", &turns);
            let own = ("its ordinary turn", peers);
            self.compare("peer: next turn after a barge-in", &turns, TurnKind::BargeIn, own, None);
            self.played.push(PlayedCase { case: "peer", turns });
        }
        let against = ("the peer's", peers);
        for (case, door, seed, over, own) in [
            ("chat", Door::Chat, 100, "chat completions", "ordinary turn"),
            ("websocket", Door::Realtime, 200, "websocket", "ordinary turn, websocket"),
        ] {
            let turns = self.play(case, &self.case(door, if seed == 100 { 12 } else { 6 }, seed)).await?;
            let own = (own, medians(&turns, TurnKind::Turn).0);
            self.compare(&format!("ordinary turn, {over}"), &turns, TurnKind::Turn, against, Some(1.0 / 3.0));
            let name = format!("next turn after a barge-in, {over}");
            self.compare(&name, &turns, TurnKind::BargeIn, own, Some(1.1));
        }
        let turns = self.play("partial transcripts", &self.case(Door::RealtimePartial, 6, 300)).await?;
        let name = "ordinary turn, partial transcripts";
        self.compare(name, &turns, TurnKind::Turn, against, Some(1.0 / 8.0));

        let short = Args { history: SHORT_HISTORY, ..self.case(Door::Chat, 1, 400) };
        let turns = play(&short, self.settings, &mut self.service).await?.turns;
        // The number of tokens of the filler's words depends on the vocabulary.
        let meant = (SHORT_HISTORY + args.system) as f64;
        let tokens = turns[0].prompt_tokens.map_or(meant, |tokens| tokens as f64);
        let of_tokens = |history: usize| (history as f64 * meant / tokens) as usize;
        self.histories(of_tokens).await?;
        self.restart(of_tokens(args.restart_history)).await?;
        self.persona().await?;
        self.clocks().await
    }

    /// Plays histories that begin alike: each is read from where the one before ends.
    async fn histories(&mut self, of_tokens: impl Fn(usize) -> usize) -> Result<()> {
        let mut short: Option<(Option<f64>, Option<f64>)> = None;
        for history in std::iter::once(SHORT_HISTORY).chain(self.args.histories.iter().copied()) {
            let long = Args { history: of_tokens(history), ..self.case(Door::Chat, FEW, 400) };
            let turns = self.play("history", &long).await?;
            let name = format!("ordinary turn, history of {history} tokens");
            if let Some((short_ms, short_computed)) = short {
                // Twice at 16 times as much, 3.5 times at 32 times: only attention's reading grows.
                let at_most = (0.5 + 1.5 * history as f64 / (16 * SHORT_HISTORY) as f64).max(1.1);
                let against = ("that of 1,000", short_ms);
                let row = self.compare(&name, &turns, TurnKind::Turn, against, Some(at_most));
                let prompt = median(turns.iter().filter_map(|turn| Some(turn.prompt_tokens? as f64)));
                let (at_short, prompt) = (short_computed.unwrap_or(f64::NAN), prompt.unwrap_or(f64::NAN));
                row.note = format!("{at_short:.0} computed at 1,000; prompts of {prompt:.0} tokens");
                row.holds = row.holds.map(|holds| holds && nearly(row.computed_tokens, short_computed));
            } else {
                short = Some(medians(&turns, TurnKind::Turn));
                self.tell(&name, &turns);
            }
        }
        Ok(())
    }

    async fn restart(&mut self, history: usize) -> Result<()> {
        let long = Args {
            history,
            pause: self.args.pause.max(WRITING_S),
            restart_before: Some(FEW),
            ..self.case(Door::Realtime, FEW, 500)
        };
        let turns = self.play("restart", &long).await?;
        let (before, _) = medians(&turns, TurnKind::Turn);
        let (files_ms, mib) = self.service.state_folder().map_or(Ok((0.0, 0.0)), |folder| read_all(&folder))?;
        let name = format!("first turn after kill -9 with {} tokens", self.args.restart_history);
        let row = self.compare(&name, &turns, TurnKind::Restart, ("ordinary turn there", before), None);
        row.holds = row.first_token_ms.zip(before).map(|(ms, before)| ms <= 1.5 * before + files_ms);
        row.note = format!("at most 1.5 x and the files: {mib:.0} MiB in {files_ms:.0} ms");
        Ok(())
    }

    async fn persona(&mut self) -> Result<()> {
        let Args { seed, persona, reply, patience, .. } = *self.args;
        let system = Filler::new(seed + 600).system(persona);
        let mut turns = Vec::new();
        for session in 0..SESSIONS {
            let patience = Duration::from_secs(patience);
            let opening = Opening { system: system.clone(), history: Vec::new(), reply_tokens: reply, patience };
            let mut filler = Filler::with_barge_ins(seed + 700 + session as u64, 3);
            let mut player = ChatPlayer::new(&self.service, None, opening).await?;
            turns.push(player.turn(&self.service, session + 1, filler.step(1)).await?);
        }
        let computed = |turn: &TurnCost| turn.computed_tokens.unwrap_or(u64::MAX);
        let (first, most) = (computed(&turns[0]), turns[1..].iter().map(computed).max().unwrap_or(0));
        let row = self.tell(&format!("{SESSIONS} sessions in turn, one persona of {persona} tokens"), &turns);
        row.note = format!("computed: {first} by the first, at most {most} by the others");
        row.holds = Some(first > most * 10);
        self.played.push(PlayedCase { case: "persona", turns });
        Ok(())
    }

    /// Plays a clock: in the system prompt it edits the past, in a note it is new text.
    async fn clocks(&mut self) -> Result<()> {
        let clock = Args { clock_in_system: true, ..self.case(Door::Chat, FEW, 800) };
        self.reasons("clock", "a clock in the system prompt", &clock, "edited").await?;
        for (door, name) in [(Door::Chat, "chat completions"), (Door::Realtime, "websocket")] {
            let note = Args { clock_as_note: true, ..self.case(door, FEW, 900) };
            let name = format!("a clock in a note before the user's words, {name}");
            self.reasons("note", &name, &note, "new_text").await?;
        }
        Ok(())
    }

    async fn reasons(&mut self, case: &'static str, name: &str, args: &Args, expected: &str) -> Result<()> {
        let turns = self.play(case, args).await?;
        let reasons: Vec<&str> = turns.iter().skip(1).filter_map(|turn| turn.reason.as_deref()).collect();
        let row = self.tell(name, &turns);
        row.note = format!("told: {}", reasons.first().unwrap_or(&"nothing"));
        row.holds = Some(!reasons.is_empty() && reasons.iter().all(|reason| *reason == expected));
        Ok(())
    }

    fn case(&self, door: Door, turns: usize, seed: u64) -> Args {
        // each case is a conversation of its own
        let seed = self.args.seed + seed;
        Args { door, turns, seed, table: false, peer: None, barge_in_every: Some(3), ..self.args.clone() }
    }

    async fn play(&mut self, case: &'static str, args: &Args) -> Result<Vec<TurnCost>> {
        let turns = play(args, self.settings, &mut self.service).await?.turns;
        self.played.push(PlayedCase { case, turns: turns.clone() });
        Ok(turns)
    }

    fn tell(&mut self, case: &str, turns: &[TurnCost]) -> &mut CaseRow {
        self.compare(case, turns, TurnKind::Turn, ("", None), None)
    }

    fn compare(
        &mut self,
        case: &str,
        turns: &[TurnCost],
        kind: TurnKind,
        (against, ms): (&str, Option<f64>),
        at_most: Option<f64>,
    ) -> &mut CaseRow {
        let (first_token_ms, computed_tokens) = medians(turns, kind);
        let ratio = first_token_ms.zip(ms).map(|(ours, theirs)| ours / theirs);
        let holds = ratio.zip(at_most).map(|(ratio, at_most)| ratio <= at_most);
        let limit = at_most.map_or_else(String::new, |at_most| format!(", at most {at_most:.2}"));
        // Cases take minutes, and this shows progress.
        note!("played: {case}");
        let against = if ratio.is_some() { format!("{against}{limit}") } else { String::new() };
        let (case, note) = (case.to_owned(), String::new());
        self.rows.push(CaseRow { case, first_token_ms, computed_tokens, against, ratio, holds, note });
        let last = self.rows.len() - 1;
        &mut self.rows[last]
    }
}

/// Medians of the wait and of the computed tokens, without the first turn, which is cold.
pub(super) fn medians(turns: &[TurnCost], kind: TurnKind) -> (Option<f64>, Option<f64>) {
    let turns = || turns.iter().skip(1).filter(|turn| turn.kind == kind);
    let waits = median(turns().filter_map(|turn| turn.first_token_ms));
    (waits, median(turns().filter_map(|turn| Some(turn.computed_tokens? as f64))))
}

/// Compares token counts: the same words may be a token more or less behind other words.
fn nearly(a: Option<f64>, b: Option<f64>) -> bool {
    a.zip(b).is_some_and(|(a, b)| (a - b).abs() <= 3.0)
}

pub(super) fn read_all(folder: &Path) -> Result<(f64, f64)> {
    let begin = Instant::now();
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        bytes += match std::fs::read(entry?.path()) {
            Ok(read) => read.len(),
            // The running service has replaced it under another name.
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error.into()),
        };
    }
    Ok((begin.elapsed().as_secs_f64() * 1e3, bytes as f64 / (1u64 << 20) as f64))
}
