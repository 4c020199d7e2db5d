use super::house::{Figures, House};
use crate::summary::{Budget, Progress, Summary};
use anyhow::Result;
use serde_json::json;

/// Deletes words in every way, kills the service meanwhile, and looks for what is left
#[derive(clap::Args, Clone)]
pub struct Args {
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// Number of deletions, however long that takes
    #[arg(long, conflicts_with = "minutes")]
    pub deletions: Option<u64>,
    /// Draws other moments and other words
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long)]
    pub json: bool,
}

/// Failures after which a run ends.
const MOST_FAILURES: usize = 8;

pub async fn prove(args: &Args) -> Result<Summary> {
    let budget = Budget::of(args.minutes, args.deletions);
    let (mut house, mut progress) = (House::new(args.seed)?, Progress::new("deletion"));
    while !budget.is_over(house.figures.deletions) && house.failures.len() < MOST_FAILURES {
        house.live().await?;
        progress.show(|| format!("{} deletions, {} failures", house.figures.deletions, house.failures.len()));
    }
    house.close().await?;
    let House { figures, failures, .. } = house;
    let Figures { lives, planted, deletions, cut_off, retired, files, bytes, said_otherwise, by_door, by_way } =
        &figures;
    let line = format!(
        "{deletions} deletions of {planted} words in {lives} lives, {cut_off} cut off by a kill, {retired} by age; {files} files with \
         {bytes} bytes were searched, without {said_otherwise} words that the model had said otherwise; by door {by_door:?}, by way {by_way:?}"
    );
    Ok(Summary {
        command: "deletion",
        seed: args.seed,
        seconds: budget.seconds(),
        line,
        figures: json!(figures),
        skipped: Vec::new(),
        failures,
        again: format!("cargo run --release -p proof -- deletion --deletions {deletions} --seed {}", args.seed),
    })
}
