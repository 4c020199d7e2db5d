//! Room for a reply that somebody waits for: what is ready is put to use, or oldest turns leave the prompt, and the reply is
//! asked for again.

use super::compacting::Beside;
use super::{Actor, wall_ms};
use crate::backend::{Counted, Failure, FailureCode, Piece};
use crate::live::compaction::{Room, Standing, make_room, placed_pins, summary_id};
use crate::metrics;
use crate::turn::{self, Generate, GenerationId, Input, Notice};
use compaction::phases::NextStep;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::{MadeBy, NewSummary, SummaryKind};

/// Times that a reply is asked for with less in its prompt. An upstream may count otherwise than we do.
const MOST_TRIES: u32 = 4;

impl Actor {
    /// A reply whose prompt is too long is asked for again with less in it. True: it is not over.
    pub(super) fn makes_room(&mut self, id: GenerationId, failure: &Failure) -> bool {
        if failure.code != FailureCode::PromptTooLong {
            return false;
        }
        let Some(generation) = self.generations.get_mut(&id) else { return false };
        let (Some(generate), true) = (generation.generate.clone(), generation.tries < MOST_TRIES) else { return false };
        generation.tries += 1;
        let tries = generation.tries;
        let c = &mut self.compacting;
        c.waiting.insert(id, generate.clone());
        if c.made.as_ref().is_some_and(|made| made.version.is_some()) && c.phases.swap_now() {
            self.begin_step(NextStep::Swap);
        } else if !c.phases.is_swapping() {
            self.begin_room(id, generate, tries);
        }
        true
    }

    /// The client does not want the reply any more that waits for room.
    pub(super) fn cancel_waiting(&mut self, id: GenerationId) -> Option<Input> {
        self.compacting.waiting.remove(&id)?;
        self.generations.remove(&id);
        let piece = turn::Piece::Done { finish: turn::Finish::Cancelled, usage: None, report: None };
        Some(Input::Backend { generation: id, piece })
    }

    fn begin_room(&mut self, id: GenerationId, generate: Box<Generate>, tries: u32) {
        let c = &mut self.compacting;
        let (kitchen, standing) = (c.kitchen.clone(), c.standing.clone());
        c.beside
            .push(Box::pin(async move { Beside::Room(id, make_room(&kitchen, &standing, &generate, tries).await) }));
    }

    pub(super) fn room_made(&mut self, id: GenerationId, room: Result<Room, Failure>) {
        let Some(generate) = self.compacting.waiting.remove(&id) else { return };
        match room {
            Ok(Room::Enough) => self.ask_again(id, generate, None),
            Ok(Room::Drop { standing, dropped, tokens_before, after }) => {
                self.drop_turns(*standing, dropped, tokens_before, after);
                self.ask_again(id, generate, None);
            }
            Ok(Room::TooLarge(message)) => self.fail(id, Failure::new(FailureCode::PromptTooLong, message)),
            Err(failure) => self.fail(id, failure),
        }
    }

    /// Oldest turns leave the prompt at once; the store follows.
    fn drop_turns(&mut self, standing: Standing, dropped: Option<[String; 2]>, tokens_before: u64, after: Counted) {
        let tokens_after = after.tokens;
        let c = &mut self.compacting;
        // What was planned was for another view.
        c.stop();
        c.phases.start_over();
        c.standing = standing;
        self.keeper.count_drop();
        metrics::compacted("dropped", Duration::ZERO, tokens_before, tokens_after);
        tracing::warn!(tokens_before, tokens_after, "oldest turns left the prompt, because no summary was ready");
        let (shelf, trimmed) = (c.shelf.clone(), c.standing.trimmed.iter().cloned().collect());
        let version = c.standing.newest_version + 1;
        match dropped {
            Some(dropped) => {
                let new = left_out(&c.standing, dropped, [tokens_before, tokens_after]);
                c.beside.push(Box::pin(async move {
                    Beside::Dropped(shelf.store.add_applied_summary(&shelf.session, new, trimmed).await)
                }));
            }
            None => c.beside.push(Box::pin(async move {
                let trimmed = shelf.store.trim_results(&shelf.session, trimmed, wall_ms()).await;
                Beside::Dropped(trimmed.map(|()| version - 1))
            })),
        }
        self.fill = Some(after);
        self.refresh_context();
        let summary_id = summary_id(version);
        self.feed(Input::Notice(Notice::CompactionDropped { summary_id, version, tokens_before, tokens_after }));
        self.tell_fill();
    }

    /// The same reply, from what stands in the prompt now.
    pub(super) fn ask_again(&mut self, id: GenerationId, mut generate: Box<Generate>, limit: Option<u32>) {
        if !self.generations.contains_key(&id) {
            return;
        }
        let standing = &self.compacting.standing;
        let covered = standing.covered_through.as_ref();
        let cut = covered.and_then(|through| generate.items.iter().position(|item| item.id == *through));
        if let Some(cut) = cut {
            let leading = turn::leading(&generate.items);
            generate.items.drain(leading.min(cut + 1)..=cut);
        }
        let context = standing.context(&generate.items, &self.compacting.limits, self.compacting.has_recall());
        generate.context = Arc::new(context);
        self.ask_backend(generate, limit);
    }

    fn fail(&mut self, id: GenerationId, failure: Failure) {
        self.generations.remove(&id);
        self.feed(Input::Backend { generation: id, piece: Piece::Failed(failure).into() });
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
