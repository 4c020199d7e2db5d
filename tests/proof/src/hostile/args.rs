use super::corpus::Corpus;
use super::generate::Generator;
use super::report::{Failure, TargetReport, print, print_json};
use super::runner::{Until, try_target};
use super::targets::{HostileTarget, TARGETS};
use crate::summary::Summary;
use anyhow::Context;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// Sends hostile bytes into every parser
#[derive(clap::Args)]
pub struct Args {
    /// Time for all targets together
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Number of inputs for each target, however long they take
    #[arg(long, conflicts_with = "minutes")]
    inputs: Option<u64>,
    /// Only this one; several with commas between them
    #[arg(long)]
    target: Option<String>,
    /// Draws other inputs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads [default: one for each processor]
    #[arg(long)]
    threads: Option<usize>,
    /// Prints the input of this number and sends nothing
    #[arg(long, requires = "target")]
    show: Option<u64>,
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let (Some(number), Some(name)) = (args.show, &args.target) {
        let target = TARGETS.iter().find(|target| target.name == name).context("there is no such target")?;
        let corpus = Corpus::of(target).with_context(|| format!("the corpus of {name}"))?;
        std::io::stdout().write_all(&Generator::new(&corpus, args.seed).input(number))?;
        return Ok(ExitCode::SUCCESS);
    }
    let reports = reports(args)?;
    if args.json {
        print_json(&reports)?
    } else {
        print(&reports)
    }
    let is_sound = reports.iter().all(|report| report.failures.is_empty());
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn prove(minutes: f64, seed: u64) -> anyhow::Result<Summary> {
    let args = Args { minutes, inputs: None, target: None, seed, threads: None, show: None, json: false };
    let reports = reports(&args)?;
    let inputs: u64 = reports.iter().map(|report| report.inputs).sum();
    let failures = reports.iter().flat_map(|report| {
        let told = |failure: &Failure| format!("{}, input {}: {}", report.target, failure.number, failure.why);
        report.failures.iter().map(told)
    });
    Ok(Summary {
        command: "hostile",
        seed,
        seconds: reports.iter().map(|report| report.seconds).sum(),
        line: format!("{inputs} inputs into {} parsers", reports.len()),
        figures: serde_json::to_value(&reports)?,
        skipped: Vec::new(),
        failures: failures.collect(),
        again: format!("cargo run --release -p proof -- hostile --seed {seed} --target TARGET --show INPUT"),
    })
}

fn reports(args: &Args) -> anyhow::Result<Vec<TargetReport>> {
    let chosen: Vec<&HostileTarget> = TARGETS
        .iter()
        .filter(|target| args.target.as_deref().is_none_or(|names| names.split(',').any(|name| name == target.name)))
        .collect();
    let names = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    anyhow::ensure!(!chosen.is_empty(), "there is no such target; there are {}", names());
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    let share = Duration::from_secs_f64(args.minutes * 60.0 / chosen.len() as f64);
    let until = args.inputs.map_or(Until::Time(share), Until::Inputs);
    let mut reports = Vec::new();
    for target in chosen {
        let corpus = Corpus::of(target).with_context(|| format!("the corpus of {}", target.name))?;
        reports.push(try_target(target, &corpus, args.seed, threads, until));
    }
    Ok(reports)
}
