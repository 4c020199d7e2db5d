//! A conversation that is many times longer than its window: what a turn after a swap waits, whether any waits for a
//! summary, and what is remembered from where.

use super::line::Line;
use super::plot::{Plot, Series};
use super::service::{Service, Target, no_rate_limits};
use super::show;
use crate::commands::sessions::print_json;
use crate::configuration;
use crate::script::{Generate, Question, generate};
use anyhow::{Result, bail};
use reqwest::{Client, Method};
use serde::Serialize;
use serde_json::{Value, json};
use settings::Settings;
use std::collections::{BTreeMap, HashMap};
use std::io::IsTerminal;
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
    #[arg(long, default_value_t = 1500)]
    pause_ms: u64,
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
    /// The longest wait while a summary was being made, over the ordinary one.
    while_summarising_ratio: Option<f64>,
    /// Right answers and questions of each zone.
    recall: BTreeMap<&'static str, [usize; 2]>,
}

#[derive(Debug, Serialize)]
struct Turn {
    turn: usize,
    first_token_ms: Option<f64>,
    computed_tokens: Option<u64>,
    fill_tokens: Option<u64>,
    after_swap: bool,
    while_summarising: bool,
}

pub async fn run(args: &Args, given: &configuration::Args, settings: &Settings) -> Result<()> {
    let mut needs: Vec<(&str, String)> = no_rate_limits().to_vec();
    needs.extend(args.ctx.map(|ctx| ("model.ctx_size", ctx.to_string())));
    let service = Service::open(&args.target, given, settings, &needs).await?;
    let recipe =
        Generate { turns: args.turns, seed: args.seed, reply_tokens: args.reply, ..Generate::built_in(args.turns) };
    let script = generate(&recipe)?;
    let mut player = Player::new(args, &service, settings).await?;
    let shows_progress = std::io::stderr().is_terminal();
    for (number, turn) in script.turns.iter().enumerate() {
        let is_pinned = turn.plants.is_some() && args.pin_every > 0 && player.told.len() % args.pin_every == 0;
        let says = if is_pinned { format!("Remember this: {}", turn.says) } else { turn.says.clone() };
        if let Some(fact) = &turn.plants {
            player.told.insert(fact.clone(), (number, is_pinned));
        }
        player.turn(number, &says, turn.asks.as_ref()).await?;
        if shows_progress && number % 10 == 9 {
            eprintln!("{} of {} turns, {} swaps", number + 1, args.turns, player.outcome.swaps);
        }
    }
    let outcome = player.finish().await;
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
    /// In which turn each fact was told, and whether as something to remember.
    told: HashMap<String, (usize, bool)>,
    /// The turn of each item that is known.
    turn_of_item: HashMap<String, usize>,
    /// Turns before this one are not in the prompt.
    covered_turns: usize,
    summary: String,
    fill_tokens: Option<u64>,
    is_summarising: bool,
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
        // The HTTP library wants to know how TLS is done, also where nobody speaks it.
        let _ = rustls::crypto::ring::default_provider().install_default();
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
            fill_tokens: None,
            is_summarising: false,
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
            computed_tokens: None,
            fill_tokens: None,
            after_swap: std::mem::take(&mut self.swapped),
            while_summarising: self.is_summarising,
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
                "turn.report" => {
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
            self.notice(&heard.event).await?;
        }
        Ok(())
    }

    async fn notice(&mut self, event: &Value) -> Result<()> {
        match event["type"].as_str().unwrap_or_default() {
            "context.updated" => self.fill_tokens = event["tokens"].as_u64(),
            "compaction.started" => self.is_summarising = true,
            "compaction.failed" => {
                self.is_summarising = false;
                self.outcome.failed_compactions += 1;
            }
            kind @ ("compaction.completed" | "compaction.dropped") => {
                if kind == "compaction.completed" {
                    (self.is_summarising, self.swapped) = (false, true);
                    self.outcome.swaps += 1;
                } else {
                    self.outcome.drops += 1;
                }
                let path = format!("/v1/sessions/{}", self.line.session);
                let session: Value = self.service.request(&self.http, Method::GET, &path).send().await?.json().await?;
                let to_item = session["summary"]["to_item"].as_str().unwrap_or_default();
                if let Some(turn) = self.turn_of_item.get(to_item) {
                    self.covered_turns = turn + 1;
                }
                session["summary"]["text"].as_str().unwrap_or_default().clone_into(&mut self.summary);
            }
            _ => {}
        }
        Ok(())
    }

    /// From where the answer would have to come.
    fn score(&mut self, question: &Question, answer: &str) {
        let Some((turn, is_pinned)) = self.told.get(&question.fact).copied() else { return };
        let zone = match () {
            () if turn >= self.covered_turns => "tail",
            () if is_pinned => "pinned",
            () if question.expects.is_met_by(&self.summary) => "summarised",
            () => "history",
        };
        let score = self.outcome.recall.entry(zone).or_default();
        score[0] += usize::from(question.expects.is_met_by(answer));
        score[1] += 1;
    }

    async fn finish(self) -> Outcome {
        let mut outcome = self.outcome;
        let waits = |of: fn(&&Turn) -> bool| -> Vec<f64> {
            outcome.turns.iter().skip(1).filter(of).filter_map(|turn| turn.first_token_ms).collect()
        };
        let ordinary = median(waits(|turn| !turn.after_swap && !turn.while_summarising));
        let after_swap = median(waits(|turn| turn.after_swap));
        let longest = waits(|turn| turn.while_summarising).into_iter().reduce(f64::max);
        let over = |ms: Option<f64>| Some(ms? / ordinary?);
        outcome.after_swap_ratio = over(after_swap);
        outcome.while_summarising_ratio = over(longest);
        (outcome.ordinary_first_token_ms, outcome.after_swap_first_token_ms) = (ordinary, after_swap);
        self.line.close().await;
        outcome
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn print(outcome: &Outcome) {
    let ms = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
    let times = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2} x"));
    println!("turns                                {:>9}", outcome.turns.len());
    println!("swaps                                {:>9}", outcome.swaps);
    println!("turns left out without a summary     {:>9}", outcome.drops);
    println!("compactions that failed              {:>9}", outcome.failed_compactions);
    println!("first token, ordinary turn (median)  {:>9}", ms(outcome.ordinary_first_token_ms));
    println!("first token, turn after a swap       {:>9}", ms(outcome.after_swap_first_token_ms));
    println!("  over an ordinary turn              {:>9}", times(outcome.after_swap_ratio));
    println!("longest wait beside a summary        {:>9}", times(outcome.while_summarising_ratio));
    for (zone, [right, asked]) in &outcome.recall {
        println!("recall, {zone:<10}                   {right:>4} of {asked}");
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
