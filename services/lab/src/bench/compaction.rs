//! A conversation that is many times longer than its window: what a turn after a swap waits, whether any waits for a
//! summary, and what is remembered from where.

use super::line::Line;
use super::service::{Service, Target, no_rate_limits};
use super::show;
use crate::output::print_json;
use crate::plot::{Plot, Series};
use crate::script::{Generate, Question, generate};
use anyhow::{Result, bail};
use experiment::median;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use settings::Settings;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Measures a conversation that outgrows its window again and again
///
/// A script is said turn by turn, whatever is answered. Facts are told in it and asked for later: some of them pinned, some
/// only in a summary, some still word for word in the prompt, some only in the history. Numbers of one run are compared
/// with each other.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    #[arg(long, default_value_t = 300)]
    turns: usize,
    /// The window, in tokens [default: the preset's]
    #[arg(long)]
    ctx: Option<u32>,
    /// Tokens of a reply
    #[arg(long, default_value_t = 40)]
    reply: usize,
    /// Milliseconds of silence after each turn, as people leave them
    #[arg(long, default_value_t = 500)]
    pause_ms: u64,
    /// Of so many summaries that are begun in a silence, the user talks into one at once; 0: into none
    #[arg(long, default_value_t = 2)]
    talk_into: usize,
    /// Of so many facts one is told as something to remember, which pins it; 0: none
    #[arg(long, default_value_t = 4)]
    pin_every: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints the numbers as JSON
    #[arg(long)]
    json: bool,
    /// Writes the plot to this SVG file
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Seconds an event may take to come
    #[arg(long, default_value_t = 600)]
    patience_s: u64,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    turns: Vec<Turn>,
    swaps: usize,
    drops: usize,
    failed_compactions: usize,
    ordinary_first_token_ms: Option<f64>,
    after_swap_first_token_ms: Option<f64>,
    /// The second over the first; the aim is 1.1 or less.
    after_swap_ratio: Option<f64>,
    /// Turns that came while a summary was being made.
    turns_while_summarising: usize,
    while_summarising_first_token_ms: Option<f64>,
    /// Over the ordinary one. A turn waits for the chunk that is being computed, and for nothing else.
    while_summarising_ratio: Option<f64>,
    longest_while_summarising_ms: Option<f64>,
    /// The longest of them was in the queue.
    longest_queue_ms: Option<f64>,
    /// How long a summary took from its begin to the swap.
    summary_ms: Option<f64>,
    /// Tokens of a request for a summary that were known, and that were computed.
    summary_reused_tokens: Option<f64>,
    summary_computed_tokens: Option<f64>,
    /// Pins that stood in the prompt word for word after each swap, and all there were.
    pins_in_prompt: [usize; 2],
    /// Facts that were told as something to remember when there was no room for another pin.
    pins_refused: usize,
    /// Right answers and questions of each zone.
    recall: BTreeMap<&'static str, [usize; 2]>,
}

#[derive(Debug, Serialize)]
struct Turn {
    turn: usize,
    first_token_ms: Option<f64>,
    queue_ms: Option<f64>,
    computed_tokens: Option<u64>,
    fill_tokens: Option<u64>,
    after_swap: bool,
    while_summarising: bool,
    /// The model searched the past before it spoke, which is two replies.
    searched: bool,
}

pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let mut needs: Vec<(&str, String)> = no_rate_limits().to_vec();
    needs.extend(args.ctx.map(|ctx| ("model.ctx_size", ctx.to_string())));
    let service = Service::open(&args.target, given, settings, &needs).await?;
    let recipe =
        Generate { turns: args.turns, seed: args.seed, reply_tokens: args.reply, ..Generate::built_in(args.turns) };
    let script = generate(&recipe)?;
    let mut player = Player::new(args, &service, settings).await?;
    let bar = ProgressBar::new(script.turns.len() as u64);
    bar.set_style(ProgressStyle::with_template("turn {pos} of {len} [{bar:40}] {eta} left, {msg}")?);
    for (number, turn) in script.turns.iter().enumerate() {
        let is_pinned = turn.plants.is_some() && args.pin_every > 0 && player.told.len() % args.pin_every == 0;
        let says = if is_pinned { format!("Please remember: {}", turn.says) } else { turn.says.clone() };
        if let Some(fact) = &turn.plants {
            player.told.insert(fact.clone(), (number, turn.says.clone()));
        }
        player.turn(number, &says, turn.asks.as_ref()).await?;
        bar.set_message(format!("{} swaps", player.outcome.swaps));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let outcome = player.finish().await?;
    service.stop().await;
    let plots = [plot(&outcome)];
    if args.json {
        print_json(&outcome)?;
    } else {
        print(&outcome);
    }
    show(&plots, args.plot.as_deref(), !args.json)?;
    if outcome.swaps + outcome.drops == 0 {
        bail!("the window never filled: say more turns (--turns), or choose a smaller window (--ctx)");
    }
    Ok(())
}

struct Player<'a> {
    args: &'a Args,
    service: &'a Service,
    http: Client,
    line: Line,
    outcome: Outcome,
    /// In which turn each fact was told, and with which words.
    told: HashMap<String, (usize, String)>,
    /// The turn of each item that is known.
    turn_of_item: HashMap<String, usize>,
    /// Turns before this one are not in the prompt.
    covered_turns: usize,
    summary: String,
    /// What the pins say.
    pins: Vec<String>,
    fill_tokens: Option<u64>,
    /// Since when.
    summarising: Option<Instant>,
    /// Summaries that were begun.
    begun: usize,
    summaries_ms: Vec<f64>,
    swapped: bool,
}

impl<'a> Player<'a> {
    async fn new(args: &'a Args, service: &'a Service, settings: &Settings) -> Result<Player<'a>> {
        let mut line = Line::connect(service, settings, Duration::from_secs(args.patience_s), None).await?;
        let session = json!({
            "type": "realtime", "max_output_tokens": args.reply, "temperature": 0, "reasoning": { "effort": "none" },
        });
        line.say(&json!({ "type": "session.update", "session": session })).await?;
        line.until("session.updated").await?;
        Ok(Player {
            args,
            service,
            http: Client::new(),
            line,
            outcome: Outcome::default(),
            told: HashMap::new(),
            turn_of_item: HashMap::new(),
            covered_turns: 0,
            summary: String::new(),
            pins: Vec::new(),
            fill_tokens: None,
            summarising: None,
            begun: 0,
            summaries_ms: Vec::new(),
            swapped: false,
        })
    }

    async fn turn(&mut self, number: usize, says: &str, asks: Option<&Question>) -> Result<()> {
        let id = format!("bench_{number}");
        self.turn_of_item.insert(id.clone(), number);
        let content = json!([{ "type": "input_text", "text": says }]);
        let item = json!({ "id": id, "type": "message", "role": "user", "content": content });
        let mut turn = Turn {
            turn: number + 1,
            first_token_ms: None,
            queue_ms: None,
            computed_tokens: None,
            fill_tokens: None,
            after_swap: std::mem::take(&mut self.swapped),
            while_summarising: self.summarising.is_some(),
            searched: false,
        };
        self.line.say(&json!({ "type": "conversation.item.create", "item": item })).await?;
        let begin = Instant::now();
        self.line.say(&json!({ "type": "response.create" })).await?;
        let mut answer = String::new();
        loop {
            let heard = self.line.next().await?;
            match heard.event["type"].as_str().unwrap_or_default() {
                "response.output_item.added" => {
                    if let Some(id) = heard.event["item"]["id"].as_str() {
                        self.turn_of_item.insert(id.to_owned(), number);
                    }
                }
                "response.output_text.delta" => {
                    turn.first_token_ms.get_or_insert_with(|| heard.at.duration_since(begin).as_secs_f64() * 1e3);
                    answer.push_str(heard.event["delta"].as_str().unwrap_or_default());
                }
                "response.done" if heard.event["response"]["status"] == "failed" => {
                    bail!("turn {} failed: {}", number + 1, heard.event["response"]["status_details"]);
                }
                "response.recall.done" => turn.searched = true,
                "turn.report" => {
                    turn.queue_ms = heard.event["ms"]["queue"].as_f64();
                    turn.computed_tokens = heard.event["computed_tokens"].as_u64();
                    break;
                }
                _ => self.notice(&heard.event).await?,
            }
        }
        if let Some(question) = asks {
            self.score(question, &answer);
        }
        turn.fill_tokens = self.fill_tokens;
        self.outcome.turns.push(turn);
        let until = Instant::now() + Duration::from_millis(self.args.pause_ms);
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            let Some(heard) = self.line.next_within(left).await? else { break };
            let begun = self.begun;
            self.notice(&heard.event).await?;
            if self.begun > begun && self.args.talk_into > 0 && self.begun.is_multiple_of(self.args.talk_into) {
                break;
            }
        }
        Ok(())
    }

    async fn notice(&mut self, event: &Value) -> Result<()> {
        match event["type"].as_str().unwrap_or_default() {
            "context.updated" => self.fill_tokens = event["tokens"].as_u64(),
            "compaction.started" => {
                self.summarising = Some(Instant::now());
                self.begun += 1;
            }
            "compaction.failed" => {
                self.summarising = None;
                self.outcome.failed_compactions += 1;
            }
            kind @ ("compaction.completed" | "compaction.dropped") => {
                if kind == "compaction.completed" {
                    self.swapped = true;
                    let took = self.summarising.take().map(|since| since.elapsed().as_secs_f64() * 1e3);
                    self.summaries_ms.extend(took);
                    self.outcome.swaps += 1;
                } else {
                    self.outcome.drops += 1;
                }
                let session = self.get("").await?;
                let told = &session["summary"];
                if let Some(turn) = self.turn_of_item.get(told["to_item"].as_str().unwrap_or_default()) {
                    self.covered_turns = turn + 1;
                }
                told["text"].as_str().unwrap_or_default().clone_into(&mut self.summary);
                // Beside the summary, or still in the words of the turn that asked for it.
                let is_placed = |pin: &&Value| {
                    let beside = told["pins"].as_array().is_some_and(|placed| placed.contains(&pin["id"]));
                    let turn = self.turn_of_item.get(pin["source_item"].as_str().unwrap_or_default());
                    beside || turn.is_some_and(|turn| *turn >= self.covered_turns)
                };
                let pins = session["pins"].as_array().map(Vec::as_slice).unwrap_or_default();
                self.pins = pins.iter().filter_map(|pin| Some(pin["text"].as_str()?.to_owned())).collect();
                self.outcome.pins_in_prompt[0] += pins.iter().filter(is_placed).count();
                self.outcome.pins_in_prompt[1] += pins.len();
            }
            "pin.refused" => self.outcome.pins_refused += 1,
            _ => {}
        }
        Ok(())
    }

    /// From where the answer would have to come.
    fn score(&mut self, question: &Question, answer: &str) {
        let Some((turn, said)) = self.told.get(&question.fact) else { return };
        let zone = match () {
            () if *turn >= self.covered_turns => "tail",
            () if self.pins.iter().any(|pin| pin.contains(said)) => "pinned",
            () if question.expects.is_met_by(&self.summary) => "summarised",
            () => "history",
        };
        let score = self.outcome.recall.entry(zone).or_default();
        score[0] += usize::from(question.expects.is_met_by(answer));
        score[1] += 1;
    }

    /// Of the session that talks.
    async fn get(&self, rest: &str) -> Result<Value> {
        let path = format!("/v1/sessions/{}{rest}", self.line.session);
        Ok(self.service.request(&self.http, Method::GET, &path).send().await?.json().await?)
    }

    async fn finish(self) -> Result<Outcome> {
        let summaries = self.get("/summaries").await?;
        let mut outcome = self.outcome;
        // The first turn reads the instructions, and a search of the past is two replies.
        let turns = || outcome.turns.iter().skip(1).filter(|turn| !turn.searched);
        let waits = |of: fn(&&Turn) -> bool| turns().filter(of).filter_map(|turn| turn.first_token_ms);
        let ordinary = median(waits(|turn| !turn.after_swap && !turn.while_summarising));
        let after_swap = median(waits(|turn| turn.after_swap && !turn.while_summarising));
        let beside = median(waits(|turn| turn.while_summarising));
        let longest = waits(|turn| turn.while_summarising).reduce(f64::max);
        let queues = turns().filter(|turn| turn.while_summarising).filter_map(|turn| turn.queue_ms);
        let longest_queue = queues.reduce(f64::max);
        let over = |ms: Option<f64>| Some(ms? / ordinary?);
        let of_a_request = |key: &str| {
            let checks = summaries["data"].as_array().into_iter().flatten().map(|summary| &summary["checks"]);
            median(checks.filter_map(|checks| Some(checks[key].as_f64()? / checks["requests"].as_f64()?)))
        };
        outcome.summary_reused_tokens = of_a_request("reused_tokens");
        outcome.summary_computed_tokens = of_a_request("computed_tokens");
        (outcome.after_swap_ratio, outcome.while_summarising_ratio) = (over(after_swap), over(beside));
        outcome.turns_while_summarising = waits(|turn| turn.while_summarising).count();
        (outcome.ordinary_first_token_ms, outcome.after_swap_first_token_ms) = (ordinary, after_swap);
        outcome.while_summarising_first_token_ms = beside;
        (outcome.longest_while_summarising_ms, outcome.longest_queue_ms) = (longest, longest_queue);
        outcome.summary_ms = median(self.summaries_ms);
        self.line.close().await;
        Ok(outcome)
    }
}

fn print(outcome: &Outcome) {
    let row = |name: &str, value: String| println!("{name:<50} {value:>12}");
    let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1} ms"));
    let times = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
    let tokens = |tokens: Option<f64>| tokens.map_or("-".to_owned(), |tokens| format!("{tokens:.0}"));
    row("turns", outcome.turns.len().to_string());
    row("swaps", outcome.swaps.to_string());
    row("turns left out without a summary", outcome.drops.to_string());
    row("compactions that failed", outcome.failed_compactions.to_string());
    row("first token, ordinary turn (median)", ms(outcome.ordinary_first_token_ms));
    row("first token, turn after a swap (median)", ms(outcome.after_swap_first_token_ms));
    row("  over an ordinary turn", times(outcome.after_swap_ratio));
    row("turns that came while a summary was made", outcome.turns_while_summarising.to_string());
    row("  first token (median)", ms(outcome.while_summarising_first_token_ms));
    row("  over an ordinary turn", times(outcome.while_summarising_ratio));
    row("  the longest first token", ms(outcome.longest_while_summarising_ms));
    row("  the longest wait for the chunk before it", ms(outcome.longest_queue_ms));
    row("a summary, from its begin to the swap (median)", ms(outcome.summary_ms));
    row("  tokens of a request that were known (median)", tokens(outcome.summary_reused_tokens));
    row("  tokens that were computed for it (median)", tokens(outcome.summary_computed_tokens));
    let [placed, all] = outcome.pins_in_prompt;
    row("pins in the prompt, after each swap", format!("{placed} of {all}"));
    row("to be remembered, but no room for another pin", outcome.pins_refused.to_string());
    for (zone, [right, asked]) in &outcome.recall {
        row(&format!("recall, {zone}"), format!("{right} of {asked}"));
    }
}

fn plot(outcome: &Outcome) -> Plot {
    let points = |wanted: bool| {
        let turns = outcome.turns.iter().filter(|turn| turn.after_swap == wanted);
        turns.filter_map(|turn| Some((turn.turn as f64, turn.fill_tokens? as f64))).collect()
    };
    let series = vec![
        Series { name: "turn", mark: '.', points: points(false) },
        Series { name: "turn after a swap", mark: 'o', points: points(true) },
    ];
    Plot { title: "Tokens in the window".to_owned(), x: "turns", y: "tokens", series }
}
