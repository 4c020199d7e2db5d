//! `reprise ab`: compares arms, on live traffic or on a conversation that all arms hear.

mod curves;
mod page;
mod player;
pub use player::ReplayPlayer;
mod recall;
mod replay;
mod report;
mod show;
mod view;

use anyhow::Result;
use curves::Curve;
use experiment::Comparison;
use recall::RecallRow;
use serde::Serialize;
use settings::Settings;
use std::path::PathBuf;
use terminal::output::{print_json, write_file};

/// Compares presets (windows, formats of keys and values, thinking) side by side
#[derive(Debug, clap::Subcommand)]
pub enum AbCommand {
    Report(report::Args),
    Replay(Box<replay::Args>),
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
    /// Writes a page with plots into this file; it needs nothing but itself
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct ArmReport {
    title: String,
    facts: Vec<String>, // lines for people about the material of the comparison
    comparison: Comparison,
    curves: Vec<Curve>,
    recall: Vec<RecallRow>, // empty if the script asks for nothing
}

pub fn run(command: AbCommand, settings: &Settings) -> Result<()> {
    match command {
        AbCommand::Report(args) => report::run(&args, settings),
        AbCommand::Replay(args) => replay::run(&args, settings),
    }
}

fn tell(report: &ArmReport, output: &OutputArgs) -> Result<()> {
    if let Some(file) = &output.html {
        write_file(file, &page::page(report)?)?;
    }
    if output.json { print_json(report) } else { show::print(report, output.html.as_deref()) }
}
