use super::house::{Figures, House};
use crate::summary::{Budget, Summary};
use anyhow::Result;
use serde_json::json;

/// Kills the service at random moments, and checks what is left
#[derive(clap::Args, Clone)]
pub struct Args {
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// Number of kills, however long they take
    #[arg(long, conflicts_with = "minutes")]
    pub kills: Option<u64>,
    /// Seed of the moments and words
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long)]
    pub json: bool,
}

/// Failures after which a run ends.
const MOST_FAILURES: usize = 8;

pub async fn prove(args: &Args) -> Result<Summary> {
    let budget = Budget::of(args.minutes, args.kills);
    let mut house = House::new(args.seed)?;
    while !budget.is_over(house.figures.kills) && house.failures.len() < MOST_FAILURES {
        house.cycle().await?;
    }
    house.close().await?;
    let House { figures, failures, skipped, .. } = house;
    let Figures { kills, turns, heard_bytes, summaries, deletions, memories, first_turns, warm_first_turns, .. } =
        &figures;
    let line = format!(
        "{kills} kills ({} of imports, {} of migrations, {} with a torn log, {} with failing writes or clocks, {} while facts were \
         drawn, {} in silence, {} with pasts on disk), {turns} turns, {heard_bytes} bytes heard, {summaries} summaries, {deletions} \
         deletions, {memories} memories, {} facts; {warm_first_turns} of {first_turns} first turns warm",
        figures.imports,
        figures.migrations,
        figures.torn_logs,
        figures.with_faults,
        figures.while_remembering,
        figures.in_silence,
        figures.spilled,
        figures.facts
    );
    Ok(Summary {
        command: "crash",
        seed: args.seed,
        seconds: budget.seconds(),
        line,
        figures: json!(figures),
        skipped,
        failures,
        again: format!("cargo run --release -p proof -- crash --seed {} --kills {kills}", args.seed),
    })
}
