//! Room for a reply that a user waits for: a finished summary is swapped in, or oldest turns leave the prompt, and the
//! session asks for the reply again. This needs no model, and does not wait for the store.

use super::weigh::{results_through, weigh_shown};
use super::{FromCompactor, ShownPast, SideResult, Task};
use crate::prompts::SessionTools;
use crate::{metrics, wall_ms};
use compaction::phases::NextStep;
use compaction::{CompactionPlan, PlanMoment, plan};
use model::Counted;
use prompt::leading;
use serde_json::json;
use session::machine::{Generate, GenerationId};
use session::{CompactionStage, Failure, FailureCode};
use std::sync::Arc;
use std::time::Duration;
use store::{MadeBy, Summary, SummaryKind};

pub struct DroppedTurns {
    shown_past: ShownPast,
    /// First and last item that leave. `None`: only results of tools do.
    dropped: Option<[String; 2]>,
    tokens_before: u64,
    after: Counted,
}

impl Task {
    pub(super) fn make_room(&mut self, generate: Box<Generate>, tries: u32) {
        let id = generate.generation;
        self.waiting.insert(id, generate.clone());
        if self.attempt.made.as_ref().is_some_and(|made| made.version.is_some()) && self.phases.swap_now() {
            self.begin(NextStep::Swap);
        } else if !self.phases.is_swapping() {
            let (tools, shown_past) = (self.tools.clone(), self.shown_past.clone());
            self.side.push(Box::pin(async move {
                SideResult::Room(
                    id,
                    make_room(&tools, shown_past, &generate, tries).await.map(|room| room.map(Box::new)),
                )
            }));
        }
    }

    pub(super) fn room_made(&mut self, id: GenerationId, room: Result<Option<Box<DroppedTurns>>, Failure>) {
        let Some(generate) = self.waiting.remove(&id) else { return };
        match room {
            Ok(room) => {
                if let Some(room) = room {
                    self.drop_turns(*room);
                }
                self.ask_again(generate, None);
            }
            Err(failure) => {
                tracing::warn!(code = failure.code.word(), message = %failure.message, "the model could not answer");
                self.say(FromCompactor::Failed { generation: id, failure });
            }
        }
    }

    /// Takes oldest turns out of the prompt at once; the store follows. A summary in progress continues, because its
    /// text stays true.
    fn drop_turns(&mut self, room: DroppedTurns) {
        let DroppedTurns { shown_past, dropped, tokens_before, after } = room;
        let tokens_after = after.tokens;
        if !self.phases.is_making() {
            // What was planned was for another view.
            self.stop();
            self.phases.start_over();
        }
        self.shown_past = shown_past;
        self.is_dropping = true;
        metrics::compacted("dropped", Duration::ZERO, tokens_before, tokens_after);
        tracing::warn!(tokens_before, tokens_after, "oldest turns left the prompt, because no summary was ready");
        let (tools, trimmed) = (self.tools.clone(), self.shown_past.trimmed.iter().cloned().collect());
        let version = self.shown_past.newest_version + 1;
        let new = dropped.map(|dropped| left_out(&self.shown_past, dropped, [tokens_before, tokens_after]));
        self.side.push(Box::pin(async move {
            let SessionTools { store, session, .. } = &*tools;
            SideResult::Dropped(match new {
                Some(new) => store.add_applied_summary(session, new, trimmed).await,
                None => store.trim_results(session, trimmed, wall_ms()).await.map(|()| version - 1),
            })
        }));
        self.show();
        self.tell(CompactionStage::Dropped { tokens_after }, version, tokens_before);
        self.say(FromCompactor::Fill(after));
    }

    pub(super) fn ask_again(&self, mut generate: Box<Generate>, limit_tokens: Option<u32>) {
        let covered = self.shown_past.covered_through.as_ref();
        let cut = covered.and_then(|through| generate.items.iter().position(|item| item.id == *through));
        if let Some(cut) = cut {
            let leading = leading(&generate.items);
            generate.items.drain(leading.min(cut + 1)..=cut);
        }
        generate.context = Arc::new(self.tools.context(&self.shown_past, &generate.items));
        self.say(FromCompactor::AskAgain { generate, limit_tokens });
    }
}

async fn make_room(
    tools: &SessionTools,
    mut shown_past: ShownPast,
    generate: &Generate,
    tries: u32,
) -> Result<Option<DroppedTurns>, Failure> {
    let mut limits = tools.limits;
    // What was refused although there was room by our count had less room than we thought.
    limits.ctx_size -= limits.ctx_size / 8 * (tries.saturating_sub(1)).min(4);
    let Generate { items, context, config, .. } = generate;
    let weighed = weigh_shown(tools, config, &shown_past, items, context, None).await?;
    let first = weighed.view.passages.first().map(|passage| passage.id.clone());
    let (dropped, trim_through, expected_tokens) = match plan(&weighed.view, &weighed.sizes, &limits, PlanMoment::Reply)
    {
        CompactionPlan::Nothing | CompactionPlan::Summarise(_) => return Ok(None),
        CompactionPlan::TooLarge(too_large) => {
            return Err(Failure::new(FailureCode::PromptTooLong, too_large.message()));
        }
        CompactionPlan::Trim(trim) => (None, Some(trim.through), trim.expected_tokens),
        CompactionPlan::Drop(drop) => {
            shown_past.covered_through = Some(drop.through.clone());
            shown_past.owes_summary = true;
            // What leaves may have held one word for word.
            shown_past.place_pins();
            (first.map(|first| [first, drop.through]), drop.trim_through, drop.expected_tokens)
        }
    };
    shown_past.trimmed.extend(trim_through.iter().flat_map(|through| results_through(items, through)));
    let after = weighed.total.part(u64::from(expected_tokens));
    Ok(Some(DroppedTurns { shown_past, dropped, tokens_before: weighed.total.tokens, after }))
}

pub(super) fn left_out(
    shown_past: &ShownPast,
    [from_item, to_item]: [String; 2],
    [tokens_before, tokens_after]: [u64; 2],
) -> Summary {
    Summary {
        kind: SummaryKind::Drop,
        made_by: MadeBy::Fallback,
        based_on: shown_past.text_version,
        from_item,
        to_item,
        text: shown_past.text.clone(),
        pins: shown_past.placed_ids(),
        checks: json!({}),
        tokens_before,
        tokens_after,
        created_at_ms: wall_ms(),
        ..Summary::default()
    }
}
