//! `reprise bench`: speed of the model on this machine, and the wait of a service's users.

mod cases;
mod chat;
mod compaction;
mod drift;
mod felt;
mod home;
mod household;
mod memory;
mod realtime;
mod service;
mod sessions;
mod speaking;
mod speech;
mod speed;
mod steps;
mod turns;
mod wait;
mod windows;

use crate::charts::{self, Chart};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use terminal::output::{print_json, print_report, write_file};
use terminal::{note, say};

/// Measures the model, a voice conversation, or many sessions at once
///
/// Without a subcommand it measures the model: `reprise bench --model M --ctx 512,4096` is `reprise bench speed ...`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[group(skip)]
pub struct Args {
    #[command(subcommand)]
    what: Option<BenchCommand>,
    #[command(flatten)]
    speed: speed::Args,
}

#[derive(Debug, clap::Subcommand)]
enum BenchCommand {
    Speed(speed::Args),
    Turns(turns::Args),
    Sessions(sessions::Args),
    Compaction(compaction::Args),
    Home(home::Args),
    Drift(drift::Args),
    Household(household::Args),
    Memory(memory::Args),
    Felt(felt::Args),
    Wait(wait::Args),
    Speech(speech::Args),
    Windows(windows::Args),
}

/// Runs a measurement. `given` are flags for the service that it starts.
pub fn run(args: Args, given: &[OsString], settings: &Settings) -> Result<()> {
    if cfg!(debug_assertions) {
        note!("note: this is a debug build, its numbers say nothing about speed");
    }
    match args.what.unwrap_or(BenchCommand::Speed(args.speed)) {
        BenchCommand::Speed(args) => speed::run(&args, settings),
        BenchCommand::Turns(args) if args.table => wait_for(cases::run(&args, given, settings)),
        BenchCommand::Turns(args) => wait_for(turns::run(&args, given, settings)),
        BenchCommand::Sessions(args) => wait_for(sessions::run(&args, given, settings)),
        BenchCommand::Compaction(args) => wait_for(compaction::run(&args, given, settings)),
        BenchCommand::Home(args) => wait_for(home::run(&args, given, settings)),
        BenchCommand::Drift(args) => drift::run(&args, settings),
        BenchCommand::Household(args) => wait_for(household::run(&args, settings)),
        BenchCommand::Memory(args) => wait_for(memory::run(&args, settings)),
        BenchCommand::Felt(args) => wait_for(felt::run(&args, given, settings)),
        BenchCommand::Wait(args) => wait_for(wait::run(&args, given, settings)),
        BenchCommand::Speech(args) => wait_for(speech::run(&args, given, settings)),
        BenchCommand::Windows(args) => windows::run(&args, settings),
    }
}

/// Runs on one thread, which leaves the cores to the measured service. An interrupted command leaves neither a service
/// nor its store behind.
fn wait_for(work: impl Future<Output = Result<()>>) -> Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(async {
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

/// Returns the pasts to measure at without --ctx: a model with less room is measured where `behind` tokens more fill it.
fn default_pasts(native_ctx: usize, behind: usize) -> Vec<usize> {
    const PASTS: [usize; 2] = [512, 4096]; // not a window: pasts to measure at
    PASTS.map(|past| past.min(native_ctx.saturating_sub(behind)).max(1)).to_vec()
}

#[derive(Clone, Debug, clap::Args)]
struct BenchOutput {
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
    /// Draws the measurement into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl BenchOutput {
    fn tell(&self, measured: &Value, tables: &[&Value], charts: &[Chart]) -> Result<()> {
        if let Some(file) = &self.plot {
            write_file(file, &charts::svg(charts)?)?;
        }
        if self.json {
            return print_json(measured);
        }
        print_report(measured, tables)?;
        for chart in charts.iter().filter(|chart| chart.is_worth_drawing()) {
            say!("\n{}", chart.text())?;
        }
        Ok(())
    }
}
