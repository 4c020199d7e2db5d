//! `reprise bench felt`: waits that a person feels. Each table has a file of its own.

mod arms;
mod heads;
mod resume;
mod sleep;
mod thinking;

use super::home::HomeSize;
use super::home::household::system;
use super::service::{BenchTarget, MeasuredService};
use anyhow::{Context, Result};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use settings::Settings;
use std::ffi::OsString;
use std::time::Duration;
use terminal::flags::at_least;
use terminal::output::{print_json, print_report, progress_bar};
use terminal::say;

/// Measures the waits that a person feels: changed instructions, a cough, several arms, thinking that ends, a sleep
///
/// Without --url each table starts a service of its own.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    /// Only these tables [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    tables: Vec<FeltTable>,
    /// Tokens, about, of the instructions [default: 3600; with a peer 6000 in the table of heads]
    #[arg(long)]
    prompt: Option<usize>,
    /// Turns of each conversation
    #[arg(long, default_value_t = 8, value_parser = at_least::<3>)]
    turns: u64,
    /// Tokens of a reply
    #[arg(long, default_value_t = 24)]
    reply: usize,
    /// Seconds of silence before a turn
    #[arg(long, default_value_t = 1.0)]
    pause: f64,
    /// Seconds after which a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Another OpenAI-compatible server with the same model, to compare with, such as llama.cpp's: changed heads and
    /// several arms. It cannot resume replies, end thinking or sleep
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Turns of each conversation with the peer, which reads instructions anew at every turn
    #[arg(long, default_value_t = 4, value_parser = at_least::<3>, requires = "peer")]
    peer_turns: u64,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FeltTable {
    /// Instructions that change during the conversation
    Heads,
    /// A reply that a cough stopped, and that resumes
    Resume,
    /// Several replies to one prompt
    Arms,
    /// Thinking that ends in time for the first word, or because the user wants an answer
    Thinking,
    /// A service that its users leave alone, and the first turn after that
    Sleep,
}

impl FeltTable {
    const ALL: [FeltTable; 5] =
        [FeltTable::Heads, FeltTable::Resume, FeltTable::Arms, FeltTable::Thinking, FeltTable::Sleep];
}

struct FeltBench<'a> {
    args: &'a Args,
    given: &'a [OsString],
    settings: &'a Settings,
}

/// Runs the tables. A table is an object with its name and its rows.
pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let bench = FeltBench { args, given, settings };
    let wanted = FeltTable::ALL.into_iter().filter(|table| args.tables.is_empty() || args.tables.contains(table));
    let mut tables = Vec::new();
    for table in wanted {
        tables.push(match table {
            FeltTable::Heads => heads::measure(&bench).await.context("the table of changed heads")?,
            FeltTable::Resume => resume::measure(&bench).await.context("the table of resumed replies")?,
            FeltTable::Arms => arms::measure(&bench).await.context("the table of arms")?,
            FeltTable::Thinking => thinking::measure(&bench).await.context("the table of thinking")?,
            FeltTable::Sleep => sleep::measure(&bench).await.context("the table of sleep")?,
        });
    }
    if args.json {
        return print_json(&json!({ "bench": "felt", "tables": tables }));
    }
    for (at, table) in tables.iter().enumerate() {
        if at > 0 {
            say!()?;
        }
        print_report(table, &[&table["rows"]])?;
    }
    Ok(())
}

const TURN_TOKENS: usize = 250; // tokens, about, of a turn beside its reply, with the template's own
const SPARE: usize = 400;
const PROMPT_TOKENS: usize = 3_600;

struct FeltHome {
    service: MeasuredService,
    entities: usize,
    system: String, // instructions of a home
    bar: ProgressBar,
    told: Value,
}

impl FeltHome {
    /// Ends the service, whether the table succeeded or not.
    async fn end<T>(self, played: Result<T>, rows: impl FnOnce(&T) -> Value) -> Result<Value> {
        let FeltHome { service, bar, mut told, .. } = self;
        service.stop().await;
        bar.finish_and_clear();
        told["rows"] = rows(&played?);
        Ok(told)
    }
}

impl FeltBench<'_> {
    /// Opens the measured service. `needs`: settings that the table demands of one that is started here.
    async fn service(&self, needs: &[(&str, String)]) -> Result<MeasuredService> {
        MeasuredService::open(&self.args.target, self.given, self.settings, needs).await
    }

    async fn peer(&self) -> Result<Option<MeasuredService>> {
        let Some(url) = self.args.peer.clone() else { return Ok(None) };
        let target = BenchTarget { url: Some(url), key: None, model: None };
        Ok(Some(MeasuredService::open(&target, &[], self.settings, &[]).await?))
    }

    /// Opens a service with the instructions of a home. `turns` turns of `turn_tokens` tokens follow.
    async fn home(&self, table: &str, turns: usize, turn_tokens: usize, needs: &[(&str, String)]) -> Result<FeltHome> {
        self.home_of(table, self.args.prompt.unwrap_or(PROMPT_TOKENS), turns, turn_tokens, needs).await
    }

    async fn home_of(
        &self,
        table: &str,
        prompt: usize,
        turns: usize,
        turn_tokens: usize,
        needs: &[(&str, String)],
    ) -> Result<FeltHome> {
        let HomeSize { entities, prompt_tokens } = HomeSize::of(&self.args.target, prompt, 0, self.settings).await?;
        // A window that is nearly full is compacted, and then no head stays as it was.
        let window = prompt_tokens + prompt_tokens / 2 + turns * turn_tokens + SPARE;
        let needs = [&[("model.ctx_size", window.to_string())], needs].concat();
        let service = self.service(&needs).await?;
        let mut told = self.about(table, &service);
        told["prompt_tokens"] = json!(prompt_tokens);
        let bar = progress_bar(turns as u64, "turn {pos} of {len} [{bar:40}] {eta} left");
        Ok(FeltHome { service, entities, system: system(entities, "kitchen"), bar, told })
    }

    fn about(&self, table: &str, service: &MeasuredService) -> Value {
        json!({
            "table": table,
            "machine": service.hardware(self.settings),
            "service": service.name,
            "peer": self.args.peer,
        })
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.args.patience)
    }
}
