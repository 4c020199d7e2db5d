use super::conversation::{Figures, Stage};
use crate::summary::{Budget, Summary};
use anyhow::Result;
use serde_json::json;
use tests::random::Random;

/// Asks the same in several ways, and compares the answers
#[derive(clap::Args, Clone)]
pub struct Args {
    #[arg(long, default_value_t = 1.0)]
    pub minutes: f64,
    /// Number of conversations, however long they take
    #[arg(long, conflicts_with = "minutes")]
    pub conversations: Option<u64>,
    /// Number of the first conversation, to repeat one that failed
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[arg(long)]
    pub json: bool,
}

const MOST_FAILURES: usize = 8;

pub fn prove(args: &Args) -> Result<Summary> {
    let budget = Budget::of(args.minutes, args.conversations);
    let mut stages = Stage::all()?;
    let (mut figures, mut failures) = (Figures::default(), Vec::new());
    while !budget.is_over(figures.conversations) && failures.len() < MOST_FAILURES {
        let number = args.first + figures.conversations;
        let at = (number % stages.len() as u64) as usize;
        if let Err(why) = stages[at].play(&mut random_of(args.seed, number), &mut figures) {
            failures.push(format!("seed {}, conversation {number}: {why:#}", args.seed));
        }
    }
    let Figures { conversations, turns, tokens, .. } = figures;
    let line = format!(
        "{conversations} conversations, {turns} turns ({} reused, {} of them from disk, {} in a batch, {} stopped and resumed, {} \
         begun early and {} to other words, {} on other levels), {tokens} tokens compared, {} of {} drafts came; log probabilities differ by {:.1e} at most; \
         rounding chose another token in {} answers and another expert in {}, and in {} it moved a token by more than that",
        figures.reused,
        figures.from_disk,
        figures.in_batch,
        figures.resumed,
        figures.begun_early,
        figures.begun_wrong,
        figures.other_levels,
        figures.accepted_tokens,
        figures.drafted_tokens,
        figures.largest_difference,
        figures.token_ties,
        figures.expert_ties,
        figures.steep
    );
    Ok(Summary {
        command: "same",
        seed: args.seed,
        seconds: budget.seconds(),
        line,
        figures: json!(figures),
        skipped: Vec::new(),
        failures,
        again: format!(
            "cargo run --release -p proof -- same --seed {} --first {} --conversations {conversations}",
            args.seed, args.first
        ),
    })
}

fn random_of(seed: u64, number: u64) -> Random {
    let mut random =
        Random((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number.wrapping_mul(0xd134_2543_de82_ef95)) | 1);
    (0..8).for_each(|_| _ = random.below(2)); // near seeds begin with near numbers
    random
}
