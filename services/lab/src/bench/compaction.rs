//! A conversation that is many times longer than its window: the wait of a turn after a swap and during a summary, and
//! recall by the place of a fact.

use super::BenchOutput;
use super::realtime::RealtimePlayer;
use super::service::{BenchTarget, MeasuredService};
use super::steps::{Opening, TurnCost, UserStep};
use crate::charts::{Chart, Series};
use crate::script::{ScriptQuestion, ScriptRecipe, generate};
use anyhow::{Result, bail};
use experiment::median;
use reqwest::Client;
use serde::Serialize;
use serde_json::{Value, json};
use settings::Settings;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::time::{Duration, Instant};
use terminal::client::Arrival;
use terminal::output::progress_bar;

/// Measures a conversation that outgrows its window again and again
///
/// The turns of a script follow each other, whatever the replies are. Their facts come up in later questions: some of
/// them pinned, some only in a summary, some still word for word in the prompt, some only in the history. Numbers are
/// only comparable within one run.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    #[arg(long, default_value_t = 300)]
    turns: usize,
    /// Size of the window, in tokens [default: the preset's]
    #[arg(long)]
    ctx: Option<u32>,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    reply: usize,
    /// Milliseconds of silence after each turn, as people leave them
    #[arg(long, default_value_t = 500)]
    pause_ms: u64,
    /// The user talks at once into one of this many summaries that begin in a silence; 0: into none
    #[arg(long, default_value_t = 2)]
    talk_into: usize,
    /// One of this many facts is told as something to remember, which pins it; 0: none
    #[arg(long, default_value_t = 4)]
    pin_every: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: BenchOutput,
    /// Seconds after which an expected event is given up
    #[arg(long, default_value_t = 600)]
    patience_s: u64,
}

#[derive(Default)]
struct CompactionTally {
    turns: Vec<WindowTurn>,
    swaps: usize,
    drops: usize,
    failed_compactions: usize,
    summaries_ms: Vec<f64>, // from its begin to the swap
    /// Pins in the prompt, word for word, after each swap, and all pins.
    pins_in_prompt: [usize; 2],
    pins_refused: usize, // facts to remember that found no room for another pin
    notes: [usize; 2],   // notes of the past with the answer, and others
    off_notes: Vec<Value>,
    recall: BTreeMap<&'static str, [usize; 2]>, // right answers and questions, by the place of the fact
    wrong: Vec<Value>,
}

#[derive(Serialize)]
struct WindowTurn {
    #[serde(flatten)]
    cost: TurnCost,
    fill_tokens: Option<u64>,
    after_swap: bool,
    while_summarising: bool,
    searched: bool, // the model searched the past before it spoke, which is two replies
    noted: bool,    // the service put past messages before the user's
}

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let needs = Vec::from_iter(args.ctx.map(|ctx| ("model.ctx_size", ctx.to_string())));
    let service = MeasuredService::open(&args.target, given, settings, &needs).await?;
    let recipe = ScriptRecipe {
        turns: args.turns,
        seed: args.seed,
        reply_tokens: args.reply,
        ..ScriptRecipe::built_in(args.turns)
    };
    let script = generate(&recipe)?;
    let mut conversation = LongConversation::new(args, &service, settings).await?;
    let bar = progress_bar(script.turns.len() as u64, "turn {pos} of {len} [{bar:40}] {eta} left, {msg}");
    for (number, turn) in script.turns.iter().enumerate() {
        let is_pinned =
            turn.plants.is_some() && args.pin_every > 0 && conversation.told.len().is_multiple_of(args.pin_every);
        let says = if is_pinned { format!("Please remember: {}", turn.says) } else { turn.says.clone() };
        if let Some(fact) = &turn.plants {
            conversation.told.insert(fact.clone(), (number, turn.says.clone()));
        }
        conversation.turn(number, &says, turn.asks.as_ref()).await?;
        bar.set_message(format!("{} swaps", conversation.seen.swaps));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let (measured, chart) = conversation.finish().await?;
    service.stop().await;
    args.output.tell(&measured, &[], &[chart])?;
    if measured["swaps"] == 0 && measured["drops"] == 0 {
        bail!("the window never filled: say more turns (--turns), or choose a smaller window (--ctx)");
    }
    Ok(())
}

struct LongConversation<'a> {
    args: &'a Args,
    service: &'a MeasuredService,
    http: Client,
    player: RealtimePlayer,
    seen: CompactionTally,
    told: HashMap<String, (usize, String)>, // turn and words in which each fact was told
    turn_of_item: HashMap<String, usize>,
    covered_turns: usize, // turns before this one are not in the prompt
    summary: String,
    pins: Vec<String>,
    fill_tokens: Option<u64>,
    summarising: Option<Instant>, // begin of the service's present summary
    summaries_begun: usize,
    swapped: bool,
}

impl<'a> LongConversation<'a> {
    async fn new(args: &'a Args, service: &'a MeasuredService, settings: &Settings) -> Result<LongConversation<'a>> {
        let opening = Opening {
            system: String::new(),
            history: Vec::new(),
            reply_tokens: args.reply,
            patience: Duration::from_secs(args.patience_s),
        };
        let player = RealtimePlayer::new(service, settings, None, opening).await?;
        Ok(LongConversation {
            args,
            service,
            http: Client::new(),
            player,
            seen: CompactionTally::default(),
            told: HashMap::new(),
            turn_of_item: HashMap::new(),
            covered_turns: 0,
            summary: String::new(),
            pins: Vec::new(),
            fill_tokens: None,
            summarising: None,
            summaries_begun: 0,
            swapped: false,
        })
    }

    async fn turn(&mut self, number: usize, says: &str, asks: Option<&ScriptQuestion>) -> Result<()> {
        let (after_swap, while_summarising) = (std::mem::take(&mut self.swapped), self.summarising.is_some());
        let mut events = Vec::new();
        let step = UserStep { says: says.to_owned(), ..UserStep::default() };
        let items = self.player.items.len();
        let cost = self.player.turn(number + 1, step, &mut |arrival| events.push(arrival.clone())).await?;
        let new = self.player.items[items..].iter().cloned();
        self.turn_of_item.extend(new.map(|item| (item, number)));
        let recalls = || events.iter().filter(|arrival| arrival.event["type"] == "response.recall.done");
        let note: String = recalls().filter_map(|recall| recall.event["note"].as_str()).collect();
        let searched = recalls().any(|recall| recall.event["note"].is_null());
        for arrival in events {
            self.notice(&arrival, number).await?;
        }
        if let Some(question) = asks {
            self.score(question, says, &note);
        }
        if !note.is_empty() {
            let is_right = asks.is_some_and(|question| question.expects.is_met_by(&note));
            self.seen.notes[usize::from(!is_right)] += 1;
            if !is_right {
                self.seen.off_notes.push(json!({ "said": says, "note": note }));
            }
        }
        self.seen.turns.push(WindowTurn {
            cost,
            fill_tokens: self.fill_tokens,
            after_swap,
            while_summarising,
            searched,
            noted: !note.is_empty(),
        });
        let until = Instant::now() + Duration::from_millis(self.args.pause_ms);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Some(arrival) = self.player.client.next_within(left).await? else { break };
            let begun = self.summaries_begun;
            self.notice(&arrival, number).await?;
            let talks_into = self.args.talk_into > 0 && self.summaries_begun.is_multiple_of(self.args.talk_into);
            if self.summaries_begun > begun && talks_into {
                break;
            }
        }
        Ok(())
    }

    async fn notice(&mut self, arrival: &Arrival, turn: usize) -> Result<()> {
        let event = &arrival.event;
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => {
                let item = event["item"]["id"].as_str().unwrap_or_default();
                self.turn_of_item.insert(item.to_owned(), turn);
            }
            "context.updated" => self.fill_tokens = event["tokens"].as_u64(),
            "compaction.started" => {
                self.summarising = Some(arrival.at);
                self.summaries_begun += 1;
            }
            "compaction.failed" => {
                self.summarising = None;
                self.seen.failed_compactions += 1;
            }
            kind @ ("compaction.completed" | "compaction.dropped") => {
                if kind == "compaction.completed" {
                    self.swapped = true;
                    let took =
                        self.summarising.take().map(|since| arrival.at.duration_since(since).as_secs_f64() * 1e3);
                    self.seen.summaries_ms.extend(took);
                    self.seen.swaps += 1;
                } else {
                    self.seen.drops += 1;
                }
                let session = self.get("").await?;
                let summary = &session["summary"];
                if let Some(turn) = self.turn_of_item.get(summary["to_item"].as_str().unwrap_or_default()) {
                    self.covered_turns = turn + 1;
                }
                summary["text"].as_str().unwrap_or_default().clone_into(&mut self.summary);
                // In the summary, or still in the words of the turn that asked for it.
                let is_placed = |pin: &&Value| {
                    let beside = summary["pins"].as_array().is_some_and(|placed| placed.contains(&pin["id"]));
                    let turn = self.turn_of_item.get(pin["source_item"].as_str().unwrap_or_default());
                    beside || turn.is_some_and(|turn| *turn >= self.covered_turns)
                };
                let pins = session["pins"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.pins = pins.iter().filter_map(|pin| Some(pin["text"].as_str()?.to_owned())).collect();
                self.seen.pins_in_prompt[0] += pins.iter().filter(is_placed).count();
                self.seen.pins_in_prompt[1] += pins.len();
            }
            "pin.refused" => self.seen.pins_refused += 1,
            _ => {}
        }
        Ok(())
    }

    fn score(&mut self, question: &ScriptQuestion, asked: &str, note: &str) {
        let Some((turn, said)) = self.told.get(&question.fact) else { return };
        let zone = match () {
            () if *turn >= self.covered_turns => "tail",
            () if self.pins.iter().any(|pin| pin.contains(said)) => "pinned",
            () if question.expects.is_met_by(&self.summary) => "summarised",
            () => "history",
        };
        let answer = &self.player.last_reply;
        let is_right = question.expects.is_met_by(answer);
        let score = self.seen.recall.entry(zone).or_default();
        score[0] += usize::from(is_right);
        score[1] += 1;
        if !is_right {
            let wrong = json!({ "from": zone, "said": said, "asked": asked, "note": note, "answer": answer });
            self.seen.wrong.push(wrong);
        }
    }

    async fn get(&self, rest: &str) -> Result<Value> {
        self.service.address.get(&self.http, &format!("/v1/sessions/{}{rest}", self.player.client.session_id())).await
    }

    async fn finish(self) -> Result<(Value, Chart)> {
        let summaries = self.get("/summaries").await?;
        let seen = self.seen;
        // The first turn reads the instructions, and a search of the past is two replies.
        let turns = || seen.turns.iter().skip(1).filter(|turn| !turn.searched);
        let waits = |of: fn(&&WindowTurn) -> bool| turns().filter(of).filter_map(|turn| turn.cost.first_token_ms);
        let ordinary = median(waits(|turn| !turn.after_swap && !turn.while_summarising && !turn.noted));
        let after_swap = median(waits(|turn| turn.after_swap && !turn.while_summarising));
        let meanwhile = || waits(|turn| turn.while_summarising);
        let queues = turns().filter(|turn| turn.while_summarising).filter_map(|turn| turn.cost.queue_ms);
        let over_ordinary = |ms: Option<f64>| ms.zip(ordinary).map(|(ms, ordinary)| ms / ordinary);
        let of_a_request = |key: &str| {
            let checks = summaries["data"].as_array().into_iter().flatten().map(|summary| &summary["checks"]);
            median(checks.filter_map(|checks| Some(checks[key].as_f64()? / checks["requests"].as_f64()?)))
        };
        let measured = json!({
            "turns": seen.turns,
            "swaps": seen.swaps,
            // Turns that were left out without a summary.
            "drops": seen.drops,
            "failed_compactions": seen.failed_compactions,
            // Medians, as all times here that are not the longest.
            "first_token_ms": median(waits(|_| true)),
            "ordinary_first_token_ms": ordinary,
            "after_swap_first_token_ms": after_swap,
            // Over an ordinary turn. The aim is 1.1 or less.
            "after_swap_ratio": over_ordinary(after_swap),
            "turns_while_summarising": meanwhile().count(),
            "while_summarising_first_token_ms": median(meanwhile()),
            // A turn waits for the chunk that is being computed, and for nothing else.
            "while_summarising_ratio": over_ordinary(median(meanwhile())),
            "longest_while_summarising_ms": meanwhile().reduce(f64::max),
            "longest_queue_ms": queues.reduce(f64::max),
            // From its begin to the swap.
            "summary_ms": median(seen.summaries_ms),
            // Of one request.
            "summary_reused_tokens": of_a_request("reused_tokens"),
            "summary_computed_tokens": of_a_request("computed_tokens"),
            "pins_in_prompt": seen.pins_in_prompt,
            "pins_refused": seen.pins_refused,
            "recall": seen.recall,
            // Statement, question, note and answer.
            "wrong": seen.wrong,
            // With the answer, and without: the note may fit words that asked for nothing.
            "notes": seen.notes,
            "notes_without_answer": seen.off_notes,
            "noted_ratio": over_ordinary(median(waits(|turn| turn.noted && !turn.while_summarising))),
        });
        let points = |wanted: bool| {
            let turns = seen.turns.iter().filter(|turn| turn.after_swap == wanted);
            turns.filter_map(|turn| Some((turn.cost.turn as f64, turn.fill_tokens? as f64))).collect()
        };
        let series =
            vec![Series::dots("turn", '.', points(false)), Series::dots("turn after a swap", 'o', points(true))];
        self.player.close().await;
        Ok((measured, Chart { title: "Tokens in the window".to_owned(), x: "turns", y: "tokens", series }))
    }
}
