//! Room for a reply that a user waits for: the model is asked nothing, and the store is not waited for.

use super::weigh::{PromptTools, weigh_shown};
use super::{Standing, limits_of};
use compaction::{CompactionPlan, PlanMoment, plan};
use model::Counted;
use session::Failure;
use session::machine::Generate;

#[derive(Clone, Debug, PartialEq)]
pub enum Room {
    /// It was counted too high before.
    Enough,
    Drop {
        /// What stays of the past. The store does not know of it yet.
        standing: Box<Standing>,
        /// The first and the last item that leave; None: only results of tools do.
        dropped: Option<[String; 2]>,
        tokens_before: u64,
        after: Counted,
    },
    /// What was said is larger than the window: what to tell the user.
    TooLarge(String),
}

/// `generate` ends with what the user said.
pub async fn make_room(
    tools: &PromptTools,
    standing: &Standing,
    generate: &Generate,
    tries: u32,
) -> Result<Room, Failure> {
    let mut limits = limits_of(&tools.preset);
    // What was refused although there was room by our count had less room than we thought.
    limits.ctx_size -= limits.ctx_size / 8 * (tries.saturating_sub(1)).min(4);
    let Generate { items, context, config, .. } = generate;
    let weighed = weigh_shown(tools, config, standing, items, context, None).await?;
    let mut after = standing.clone();
    let first = weighed.view.passages.first().map(|passage| passage.id.clone());
    let (dropped, expected_tokens) = match plan(&weighed.view, &weighed.sizes, &limits, PlanMoment::Reply) {
        CompactionPlan::Nothing | CompactionPlan::Summarise(_) => return Ok(Room::Enough),
        CompactionPlan::TooLarge(too_large) => return Ok(Room::TooLarge(too_large.message())),
        CompactionPlan::Trim(trim) => {
            after.trimmed.extend(results_through(generate, &trim.through));
            (None, trim.expected_tokens)
        }
        CompactionPlan::Drop(drop) => {
            if let Some(through) = &drop.trim_through {
                after.trimmed.extend(results_through(generate, through));
            }
            after.covered_through = Some(drop.through.clone());
            after.owes_summary = true;
            // What leaves may have held one word for word.
            after.place_pins();
            (first.map(|first| [first, drop.through]), drop.expected_tokens)
        }
    };
    let counted = weighed.total.part(u64::from(expected_tokens));
    Ok(Room::Drop { standing: Box::new(after), dropped, tokens_before: weighed.total.tokens, after: counted })
}

fn results_through(generate: &Generate, through: &str) -> Vec<String> {
    super::weigh::results_through(&generate.items, through)
}
