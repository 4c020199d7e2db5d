//! `reprise bench felt`: what a person feels of a reply. Each table has a file of its own.

mod arms;
mod heads;
mod resume;
mod sleep;

use super::service::{BenchTarget, MeasuredService};
use crate::output::{print_json, print_report};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use settings::Settings;
use std::ffi::OsString;
use std::time::Duration;

/// Measures what is felt of a reply: instructions that change, a cough, several arms, a sleep
///
/// Without --url each table starts a service of its own.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: BenchTarget,
    /// Only these tables [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    tables: Vec<FeltTable>,
    /// Tokens, about, of the instructions
    #[arg(long, default_value_t = 3_600)]
    prompt: usize,
    /// Turns of each conversation
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(3..))]
    turns: u64,
    /// Tokens of a reply
    #[arg(long, default_value_t = 24)]
    reply: usize,
    /// Seconds of silence before a turn
    #[arg(long, default_value_t = 1.0)]
    pause: f64,
    /// Seconds until a silent service is given up
    #[arg(long, default_value_t = 600)]
    patience: u64,
    /// Another OpenAI-compatible server with the same model, to compare with, such as llama.cpp's
    #[arg(long, value_name = "URL")]
    peer: Option<String>,
    /// Prints one object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FeltTable {
    /// Instructions that change while the conversation goes on
    Heads,
    /// A reply that a cough stopped, and that goes on
    Resume,
    /// Several replies to one prompt
    Arms,
    /// A service that its users leave alone, and the first turn after that
    Sleep,
}

impl FeltTable {
    const ALL: [FeltTable; 4] = [FeltTable::Heads, FeltTable::Resume, FeltTable::Arms, FeltTable::Sleep];
}

/// What a table is measured with.
struct FeltBench<'a> {
    args: &'a Args,
    given: &'a [OsString],
    settings: &'a Settings,
}

/// A table is an object with its name and its rows.
pub async fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let bench = FeltBench { args, given, settings };
    let wanted = FeltTable::ALL.into_iter().filter(|table| args.tables.is_empty() || args.tables.contains(table));
    let mut tables = Vec::new();
    for table in wanted {
        tables.push(match table {
            FeltTable::Heads => heads::measure(&bench).await.context("the table of changed heads")?,
            FeltTable::Resume => resume::measure(&bench).await.context("the table of replies that go on")?,
            FeltTable::Arms => arms::measure(&bench).await.context("the table of arms")?,
            FeltTable::Sleep => sleep::measure(&bench).await.context("the table of sleep")?,
        });
    }
    if args.json {
        return print_json(&json!({ "bench": "felt", "tables": tables }));
    }
    for (at, table) in tables.iter().enumerate() {
        if at > 0 {
            println!();
        }
        print_report(table, &[&table["rows"]])?;
    }
    Ok(())
}

impl FeltBench<'_> {
    /// The service that is measured. `needs`: settings that the table demands of one that is started here.
    async fn service(&self, needs: &[(&str, String)]) -> Result<MeasuredService> {
        MeasuredService::open(&self.args.target, self.given, self.settings, needs).await
    }

    async fn peer(&self) -> Result<Option<MeasuredService>> {
        let Some(url) = self.args.peer.clone() else { return Ok(None) };
        let target = BenchTarget { url: Some(url), key: None, model: None };
        Ok(Some(MeasuredService::open(&target, &[], self.settings, &[]).await?))
    }

    /// The machine is told once, by the table that measured on it.
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
