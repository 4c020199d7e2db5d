//! Room for a reply that a user waits for: what is ready is put to use, or oldest turns leave the prompt, and the reply is
//! asked for again.

use super::fit::{Room, make_room};
use super::make::placed_pins;
use super::{FromCompactor, SideResult, Standing, Task};
use crate::{metrics, wall_ms};
use compaction::phases::NextStep;
use model::Counted;
use serde_json::json;
use session::machine::{Generate, GenerationId};
use session::prompt::leading;
use session::{CompactionStage, Failure, FailureCode};
use std::sync::Arc;
use std::time::Duration;
use store::{MadeBy, NewSummary, SummaryKind};

impl Task {
    pub(super) fn make_room(&mut self, generate: Box<Generate>, tries: u32) {
        let id = generate.generation;
        self.work.waiting.insert(id, generate.clone());
        if self.attempt.made.as_ref().is_some_and(|made| made.version.is_some()) && self.phases.swap_now() {
            self.begin(NextStep::Swap);
        } else if !self.phases.is_swapping() {
            let (tools, standing) = (self.tools.clone(), self.standing.clone());
            self.work.side.push(Box::pin(async move {
                SideResult::Room(id, make_room(&tools, &standing, &generate, tries).await)
            }));
        }
    }

    pub(super) fn room_made(&mut self, id: GenerationId, room: Result<Room, Failure>) {
        let Some(generate) = self.work.waiting.remove(&id) else { return };
        let failure = match room {
            Ok(Room::Enough) => return self.ask_again(generate, None),
            Ok(Room::Drop { standing, dropped, tokens_before, after }) => {
                self.drop_turns(*standing, dropped, tokens_before, after);
                return self.ask_again(generate, None);
            }
            Ok(Room::TooLarge(message)) => Failure::new(FailureCode::PromptTooLong, message),
            Err(failure) => failure,
        };
        self.say(FromCompactor::Failed { generation: id, failure });
    }

    /// Oldest turns leave the prompt at once; the store follows.
    fn drop_turns(&mut self, standing: Standing, dropped: Option<[String; 2]>, tokens_before: u64, after: Counted) {
        let tokens_after = after.tokens;
        // What was planned was for another view.
        self.stop();
        self.phases.start_over();
        self.standing = standing;
        metrics::compacted("dropped", Duration::ZERO, tokens_before, tokens_after);
        tracing::warn!(tokens_before, tokens_after, "oldest turns left the prompt, because no summary was ready");
        let (kept, trimmed) = (self.kept.clone(), self.standing.trimmed.iter().cloned().collect());
        let version = self.standing.newest_version + 1;
        match dropped {
            Some(dropped) => {
                let new = left_out(&self.standing, dropped, [tokens_before, tokens_after]);
                self.work.side.push(Box::pin(async move {
                    SideResult::Dropped(kept.store.add_applied_summary(&kept.session, new, trimmed).await)
                }));
            }
            None => self.work.side.push(Box::pin(async move {
                let trimmed = kept.store.trim_results(&kept.session, trimmed, wall_ms()).await;
                SideResult::Dropped(trimmed.map(|()| version - 1))
            })),
        }
        self.show();
        self.tell(CompactionStage::Dropped { tokens_after }, version, tokens_before);
        self.say(FromCompactor::Fill(after));
    }

    /// The same reply, from what stands in the prompt now.
    pub(super) fn ask_again(&self, mut generate: Box<Generate>, limit_tokens: Option<u32>) {
        let covered = self.standing.covered_through.as_ref();
        let cut = covered.and_then(|through| generate.items.iter().position(|item| item.id == *through));
        if let Some(cut) = cut {
            let leading = leading(&generate.items);
            generate.items.drain(leading.min(cut + 1)..=cut);
        }
        let context = self.standing.context(&generate.items, &self.limits, self.tools.has_recall());
        generate.context = Arc::new(context);
        self.say(FromCompactor::AskAgain { generate, limit_tokens });
    }
}

/// These turns leave the prompt, and what stands in it stays.
pub(super) fn left_out(
    standing: &Standing,
    [from_item, to_item]: [String; 2],
    [tokens_before, tokens_after]: [u64; 2],
) -> NewSummary {
    NewSummary {
        kind: SummaryKind::Drop,
        made_by: MadeBy::Fallback,
        based_on: standing.text_version,
        from_item,
        to_item,
        through_seq: 0,
        text: standing.text.clone(),
        pins: placed_pins(standing),
        checks: json!({}),
        tokens_before,
        tokens_after,
        arm: None,
        created_at_ms: wall_ms(),
    }
}
