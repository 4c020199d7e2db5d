//! `reprise ab`: whether one arm is better than another, on live traffic or on a conversation that all arms hear.

mod curves;
mod page;
mod player;
mod recall;
mod replay;
mod report;
mod show;
mod turns;
mod view;

use anyhow::{Context, Result};
use curves::Curve;
use experiment::Comparison;
use recall::RecallRow;
use serde::Serialize;
use settings::Settings;
use std::path::{Path, PathBuf};

/// Compares presets (windows, formats of keys and values, thinking) side by side
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: AbCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AbCommand {
    Report(report::Args),
    Replay(Box<replay::Args>),
}

/// How a comparison is told.
#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Prints one object for programs
    #[arg(long)]
    json: bool,
    /// Writes a page with plots into this file; it needs nothing but itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// All that is told of a comparison.
#[derive(Debug, Serialize)]
struct ArmReport {
    title: String,
    /// What it was made of: lines for people.
    facts: Vec<String>,
    comparison: Comparison,
    curves: Vec<Curve>,
    /// Empty where nothing was asked for.
    recall: Vec<RecallRow>,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    match args.what {
        AbCommand::Report(args) => report::run(&args, settings),
        AbCommand::Replay(args) => replay::run(&args, settings),
    }
}

fn tell(report: &ArmReport, output: &OutputArgs) -> Result<()> {
    if let Some(file) = &output.html {
        write(file, &page::page(report)?)?;
    }
    if output.json { crate::output::print_json(report) } else { show::print(report, output.html.as_deref()) }
}

fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
