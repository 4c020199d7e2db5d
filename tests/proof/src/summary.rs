//! Findings of a command: a line with figures, and each failure with what repeats it.

use serde::Serialize;
use serde_json::Value;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    pub command: &'static str,
    pub seed: u64,
    pub seconds: f64,
    pub line: String,
    pub figures: Value,
    pub skipped: Vec<String>,
    pub failures: Vec<String>,
    pub again: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Budget {
    began: Instant,
    time: Duration,
    most: u64,
}

impl Budget {
    pub fn minutes(minutes: f64) -> Budget {
        Budget { began: Instant::now(), time: Duration::from_secs_f64(minutes.max(0.0) * 60.0), most: u64::MAX }
    }

    pub fn times(most: u64) -> Budget {
        Budget { began: Instant::now(), time: Duration::MAX, most }
    }

    pub fn of(minutes: f64, most: Option<u64>) -> Budget {
        most.map_or_else(|| Budget::minutes(minutes), Budget::times)
    }

    pub fn is_over(&self, done: u64) -> bool {
        done >= self.most || self.began.elapsed() >= self.time
    }

    pub fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }
}

/// Lines on the error output while a proof runs, also where that is a file: one in ten seconds.
#[derive(Debug)]
pub struct Progress {
    command: &'static str,
    told: Instant,
}

const BETWEEN_LINES: Duration = Duration::from_secs(10);

impl Progress {
    pub fn new(command: &'static str) -> Progress {
        Progress { command, told: Instant::now() }
    }

    pub fn show(&mut self, how_far: impl FnOnce() -> String) {
        if self.told.elapsed() >= BETWEEN_LINES {
            self.told = Instant::now();
            eprintln!("{}: {}", self.command, how_far());
        }
    }
}

pub fn tell(summaries: &[Summary], as_json: bool) -> anyhow::Result<ExitCode> {
    if as_json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({"machine": machine(), "proofs": summaries}))?);
    } else {
        println!("on {}", machine());
        for Summary { command, seed, seconds, line, skipped, failures, again, .. } in summaries {
            println!("{command}: {line}, {} failures; {seconds:.0} s, seed {seed}", failures.len());
            for why in skipped {
                println!("  skipped: {why}");
            }
            for failure in failures {
                println!("  failed: {failure}");
            }
            if !failures.is_empty() {
                println!("  again: {again}");
            }
        }
    }
    let is_sound = summaries.iter().all(|summary| summary.failures.is_empty());
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn machine() -> String {
    let facts = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = facts.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let binary = std::env::var("REPRISE_BINARY").map(|path| format!(", service {path}")).unwrap_or_default();
    format!("{}, {threads} threads, {build} build{binary}", name.map_or("a processor without a name", |(_, name)| name))
}
