//! Steps of an attempt: look, make, warm and swap, and the changes that stop one.

use super::make::{look, make, pin_wishes, trimmed, wishes};
use super::room::left_out;
use super::{CompactedView, CompactionError, FromCompactor, Look, Past, PinChange, SideResult, StepResult, Task};
use crate::prompts::SessionTools;
use crate::{metrics, wall_ms};
use compaction::CompactionPlan;
use compaction::phases::NextStep;
use session::machine::{Generate, StoreOp};
use session::{Compaction, CompactionStage, Delta, Event, Item, Priority};
use std::sync::Arc;
use store::MadeBy;
use tokio::sync::oneshot;
use tokio::time::Instant;

impl Task {
    pub(super) fn begin(&mut self, next: NextStep) {
        let tools = self.tools.clone();
        match next {
            NextStep::Look => {
                self.attempt.covers = None;
                self.attempt.begun = Instant::now();
                let gave_up_at = self.attempt.gave_up_at.clone();
                let look = async move { StepResult::Looked(look(&tools, gave_up_at).await.map(Box::new)) };
                self.step = Some(Box::pin(look));
            }
            NextStep::Warm => match &self.attempt.made {
                Some(made) => self.say(FromCompactor::WantsPrompt(Arc::new(made.shown_past.clone()))),
                None => self.phases.over(),
            },
            NextStep::Swap => match self.attempt.made.clone() {
                Some(made) => {
                    self.step = Some(Box::pin(async move { StepResult::Swapped(swap(&tools, made).await) }));
                }
                None => self.phases.over(),
            },
        }
    }

    pub(super) fn warm(&mut self, generate: &Generate) {
        // What was to be warmed may have been stopped, or put to use.
        if !self.phases.is_warming() {
            return;
        }
        let mut request = self.tools.request(generate);
        request.priority = Priority::Background;
        let mut answer = self.tools.model.ask(request);
        self.step = Some(Box::pin(async move {
            // What cannot be warmed is computed when it is needed.
            while let Some(delta) = answer.next().await {
                if let Delta::Failed(failure) = delta {
                    tracing::debug!(%failure, "a compacted prompt was not warmed");
                }
            }
            StepResult::Warmed
        }));
    }

    pub(super) fn stepped(&mut self, result: StepResult) {
        match result {
            StepResult::Looked(Ok(look)) => self.looked(*look),
            StepResult::Looked(Err(error)) => self.gave_up(&error),
            StepResult::Made(made) => self.summary_made(made),
            StepResult::Warmed => {
                if let Some(next) = self.phases.warmed(self.now) {
                    self.begin(next);
                }
            }
            StepResult::Swapped(swapped) => self.swapped(swapped),
        }
    }

    fn looked(&mut self, look: Look) {
        self.shown_past.pins.clone_from(&look.past.shown_past.pins);
        self.shown_past.owes_summary = look.past.shown_past.owes_summary;
        // An upstream may not tell how long its prompt was.
        let untold = std::mem::take(&mut self.fill_is_untold).then_some(look.weighed.total);
        self.attempt.covers = Some(look.covers.clone());
        self.attempt.last_item.clone_from(&look.last_item);
        tracing::debug!(
            plan = look.plan.into_str(),
            tokens = look.weighed.total.tokens,
            "the conversation was weighed"
        );
        match look.plan.clone() {
            CompactionPlan::Trim(trim) => {
                self.attempt.made = Some(trimmed(&look, &trim.through, trim.expected_tokens));
                self.phases.made();
            }
            CompactionPlan::Summarise(plan) => {
                let tokens_before = look.weighed.total.tokens;
                let version = look.past.shown_past.newest_version + 1;
                let tools = self.tools.clone();
                self.attempt.told = Some((version, tokens_before));
                self.phases.making();
                let make = async move { StepResult::Made(make(&tools, &look, plan).await.map(Box::new)) };
                self.step = Some(Box::pin(make));
                self.tell(CompactionStage::Started, version, tokens_before);
            }
            CompactionPlan::Nothing | CompactionPlan::Drop(_) | CompactionPlan::TooLarge(_) => self.phases.over(),
        }
        if let Some(fill) = untold {
            self.say(FromCompactor::Fill(fill));
        }
    }

    fn summary_made(&mut self, made: Result<Box<CompactedView>, CompactionError>) {
        match made {
            // The newest version stands.
            Ok(made) if self.is_dropping || made.version < Some(self.shown_past.newest_version) => {
                self.start_over("turns left the prompt while the summary was made; the compaction starts over");
            }
            Ok(made) => {
                self.attempt.made = Some(*made);
                self.phases.made();
            }
            Err(CompactionError::Store(store::Error::StaleSummary { .. })) => {
                self.start_over("the turns to summarise changed; the compaction starts over");
            }
            Err(error) => self.gave_up(&error),
        }
    }

    fn gave_up(&mut self, error: &CompactionError) {
        tracing::warn!(%error, "the conversation was not compacted; it is tried again later");
        metrics::compaction_ended("failed");
        self.stop();
        self.phases.over();
        // A model that could not be asked may be there after the next turn.
        if !matches!(error, CompactionError::Model(_)) {
            self.attempt.gave_up_at.clone_from(&self.attempt.last_item);
        }
        self.tell_failed(&error.to_string());
    }

    fn swapped(&mut self, swapped: Result<Option<u64>, store::Error>) {
        let Some(made) = self.attempt.made.take() else { return self.phases.over() };
        match swapped {
            Ok(stands) => self.put_to_use(made, stands),
            Err(error @ store::Error::StaleSummary { .. }) => self.start_over(&error.to_string()),
            Err(error) => {
                tracing::error!(%error, "a summary could not be put into use");
                metrics::compaction_ended("cancelled");
                self.stop();
                self.phases.over();
                self.tell_failed(&error.to_string());
            }
        }
        let limit_tokens = Some(self.tools.limits.hard_tokens());
        for generate in std::mem::take(&mut self.waiting).into_values() {
            self.ask_again(generate, limit_tokens);
        }
    }

    fn put_to_use(&mut self, made: CompactedView, stands: Option<u64>) {
        let CompactedView { version, mut shown_past, tokens_before, after, .. } = made;
        shown_past.pins = std::mem::take(&mut self.shown_past.pins);
        if let Some(stands) = stands {
            (shown_past.version, shown_past.newest_version) = (Some(stands), shown_past.newest_version.max(stands));
        }
        self.shown_past = shown_past;
        self.phases.over();
        if self.shown_past.owes_summary {
            self.phases.look_soon();
        }
        (self.attempt.covers, self.attempt.gave_up_at) = (None, None);
        let (took, tokens_after) = (self.attempt.begun.elapsed(), after.tokens);
        metrics::compacted(if version.is_some() { "completed" } else { "trimmed" }, took, tokens_before, tokens_after);
        let duration_ms = took.as_secs_f64() * 1e3;
        tracing::info!(version, tokens_before, tokens_after, duration_ms, "the conversation is compacted");
        self.show();
        if let Some(version) = version {
            let started_version = self.attempt.told.take().map_or(version, |(started, _)| started);
            self.tell(CompactionStage::Completed { tokens_after, started_version }, version, tokens_before);
        }
        self.say(FromCompactor::Fill(after));
    }

    pub(super) fn changed(&mut self, op: &StoreOp, is_shown: bool, said_before: Option<&Item>) {
        match op {
            StoreOp::ItemAdded { item, .. } => {
                let wishes = wishes(item, said_before);
                if !wishes.is_empty() {
                    self.pin_changes.push_back(PinChange::Add(wishes));
                }
            }
            StoreOp::ItemDeleted { item_id } => {
                self.pin_changes.push_back(PinChange::RemoveOf(item_id.clone()));
                // The store takes back the summaries that tell it, and the prompt follows.
                if self.shown_past.covered_through.is_some() && !is_shown {
                    self.reloads.push(oneshot::channel().0);
                }
            }
            _ => {}
        }
        self.change_pins();
        if self.touches_what_is_told(op, is_shown) {
            self.phases.look_soon();
        }
        // A swap that is under way is refused by the store itself.
        if !self.phases.is_quiet() && !self.phases.is_swapping() && self.touches_the_plan(op) {
            tracing::info!("the turns to summarise changed; the compaction starts over");
            self.start_over("the turns to summarise changed; the compaction starts over");
        }
    }

    fn touches_the_plan(&self, op: &StoreOp) -> bool {
        let covers = self.attempt.covers.as_ref();
        let is_covered = |id: &String| covers.is_none_or(|covers| covers.contains(id));
        match op {
            StoreOp::ItemTruncated { item, .. } => is_covered(&item.id),
            StoreOp::ItemDeleted { item_id } => is_covered(item_id),
            // Behind the last that is covered is not under it.
            StoreOp::ItemAdded { after: Some(after), .. } => {
                let last = self.attempt.made.as_ref().and_then(|made| made.shown_past.covered_through.as_ref());
                covers.is_some_and(|covers| covers.contains(after)) && last != Some(after)
            }
            _ => true,
        }
    }

    /// Returns true if the summary in use may cover the changed item. The store decides.
    fn touches_what_is_told(&self, op: &StoreOp, is_shown: bool) -> bool {
        let through = self.shown_past.covered_through.as_ref();
        through.is_some()
            && match op {
                StoreOp::ItemDeleted { .. } | StoreOp::ItemAdded { after: None, .. } => true,
                StoreOp::ItemAdded { after, .. } => through != after.as_ref() && !is_shown,
                StoreOp::ItemTruncated { .. } => !is_shown,
                _ => false,
            }
    }

    pub(super) fn reloaded(&mut self, epoch: u64, past: Result<Box<Past>, store::Error>) {
        if epoch != self.now.epoch || !self.now.settled || self.now.replying {
            return; // again, in the next silence
        }
        match past {
            // What the session did itself is not news, and no reason to begin a summary again.
            Ok(past) if past.shown_past.shows_the_same_as(&self.shown_past) => {}
            Ok(past) => {
                let Past { shown_past, items, shown_from, .. } = *past;
                let was_at_work = !self.phases.is_quiet();
                self.stop();
                // What was read ahead meanwhile may hold words that a summary no longer tells.
                self.tools.store.forget_files_of(&self.tools.session, wall_ms());
                if was_at_work || shown_past.owes_summary {
                    self.phases.start_over()
                } else {
                    self.phases.over()
                }
                let items: Vec<Item> = items[shown_from..].iter().map(|item| Item::clone(item)).collect();
                self.say(FromCompactor::Recovered { items, behind: shown_past.covered_through.clone() });
                self.shown_past = shown_past;
                self.show();
                if was_at_work {
                    metrics::compaction_ended("cancelled");
                    self.tell_failed("summaries or pins were changed; the compaction starts over");
                }
            }
            Err(error) => tracing::error!(%error, "a change of the session could not be read"),
        }
        self.reloads.drain(..).for_each(|done| {
            let _ = done.send(());
        });
    }

    pub(super) fn stop(&mut self) {
        (self.step, self.attempt.made, self.attempt.covers) = (None, None, None);
    }

    fn start_over(&mut self, message: &str) {
        metrics::compaction_ended("cancelled");
        self.stop();
        self.phases.start_over();
        self.tell_failed(message);
    }

    pub(super) fn tell(&self, stage: CompactionStage, version: u64, tokens_before: u64) {
        self.say(FromCompactor::Tell(Event::Compaction(Compaction { stage, version, tokens_before })));
    }

    fn tell_failed(&mut self, message: &str) {
        if let Some((version, tokens_before)) = self.attempt.told.take() {
            self.tell(CompactionStage::Failed { message: message.to_owned() }, version, tokens_before);
        }
    }

    /// Applies the next pin changes after those before them, so that each sees the room that is left.
    pub(super) fn change_pins(&mut self) {
        while !self.is_pinning
            && let Some(change) = self.pin_changes.pop_front()
        {
            let (tools, mut pins) = (self.tools.clone(), self.shown_past.pins.clone());
            // What was not said is not to be kept.
            if let PinChange::RemoveOf(item_id) = &change {
                pins.retain(|pin| pin.made_by == MadeBy::Model && pin.source_item.as_ref() == Some(item_id));
                if pins.is_empty() {
                    continue;
                }
            }
            self.is_pinning = true;
            self.side.push(Box::pin(async move {
                let SessionTools { store, session, .. } = &*tools;
                let changed = async {
                    let mut refused = Vec::new();
                    match change {
                        PinChange::Add(wishes) => refused = pin_wishes(&tools, wishes, &mut pins).await?,
                        PinChange::RemoveOf(_) => {
                            for pin in pins {
                                store.remove_pin(session, &pin.id, wall_ms()).await?;
                            }
                        }
                    }
                    Ok((store.pins(session, false).await?, refused))
                };
                SideResult::Pinned(changed.await)
            }));
        }
    }
}

async fn swap(tools: &SessionTools, made: CompactedView) -> Result<Option<u64>, store::Error> {
    let SessionTools { store, session, .. } = tools;
    let Some(version) = made.version else {
        return store.trim_results(session, made.trimmed, wall_ms()).await.map(|()| None);
    };
    let Some([from_item, to_item]) = made.still_owed else {
        return store.apply_summary(session, version, made.trimmed, wall_ms()).await.map(|()| Some(version));
    };
    let CompactedView { shown_past, trimmed, tokens_before, after, .. } = made;
    let new = left_out(&shown_past, [from_item, to_item], [tokens_before, after.tokens]);
    store.add_applied_summary(session, new, trimmed).await.map(Some)
}
