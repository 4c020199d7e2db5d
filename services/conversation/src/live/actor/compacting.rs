//! Keeps the session's conversation within its window, in the silence between its turns: carries out what `Phases` says.
//!
//! One step at a time, and dropping it stops it. Beside it runs what somebody waits for: room for a reply.

use super::making_room::left_out;
use super::recalling::recall;
use super::{Actor, wall_ms};
use crate::backend::{Ask, Failure, Piece, Priority};
use crate::live::compaction::{
    Effort, Kitchen, Look, Made, Past, Room, Shelf, Standing, Trouble, Wish, limits_of, look, make, pin_wishes,
    summary_id, trimmed, wishes,
};
use crate::metrics;
use crate::realtime::Item;
use crate::turn::{Context, Found, Generate, GenerationId, Input, Notice, StoreOp};
use compaction::phases::{Activity, NextStep, Phases};
use compaction::{CompactionLimits, CompactionPlan};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use store::{MadeBy, Pin};
use tokio::sync::oneshot;
use tokio::time::Instant;

pub struct Compacting {
    pub(super) phases: Phases,
    pub(super) kitchen: Kitchen,
    pub(super) shelf: Shelf,
    pub(super) limits: CompactionLimits,
    pub(super) standing: Standing,
    step: Option<BoxFuture<'static, Stepped>>,
    pub(super) beside: FuturesUnordered<BoxFuture<'static, Beside>>,
    pub(super) made: Option<Made>,
    /// What the plan takes out of the prompt. None: there is no plan yet, so that every change matters.
    covers: Option<HashSet<String>>,
    /// The version that clients were told of.
    told: Option<(u64, u64)>,
    gave_up_at: Option<String>,
    last_item: Option<String>,
    begun: Instant,
    epoch: u64,
    /// Replies that wait for room.
    pub(super) waiting: HashMap<GenerationId, Box<Generate>>,
    /// Who waits until a change of the store is in the prompt.
    reloads: Vec<oneshot::Sender<()>>,
    /// Nobody told how long the prompt of the last turn was.
    fill_is_untold: bool,
}

/// A step came to its end.
pub enum Stepped {
    Looked(Result<Box<Look>, Trouble>),
    Made(Result<Box<Made>, Trouble>),
    Warmed,
    /// The version that stands, where one does.
    Swapped(Result<Option<u64>, store::Error>),
}

/// So did something beside it.
pub enum Beside {
    Room(GenerationId, Result<Room, Failure>),
    Dropped(Result<u64, store::Error>),
    /// All pins, and what there was no room for.
    Pinned(Result<(Vec<Pin>, Vec<Wish>), store::Error>),
    Reloaded(u64, Result<Box<Past>, store::Error>),
    Recalled(GenerationId, Vec<Found>),
}

pub enum Happened {
    Step(Stepped),
    Beside(Beside),
}

impl Compacting {
    pub fn new(kitchen: Kitchen, shelf: Shelf, standing: Standing, made: Option<Made>) -> Compacting {
        let mut phases = Phases::new(made.is_some());
        if standing.owes_summary {
            phases.look_soon();
        }
        Compacting {
            phases,
            limits: limits_of(&kitchen.preset),
            kitchen,
            shelf,
            standing,
            step: None,
            beside: FuturesUnordered::new(),
            covers: None,
            told: made.as_ref().and_then(|made| Some((made.version?, made.tokens_before))),
            made,
            gave_up_at: None,
            last_item: None,
            begun: Instant::now(),
            epoch: 0,
            waiting: HashMap::new(),
            reloads: Vec::new(),
            fill_is_untold: false,
        }
    }

    /// The next thing that came to its end; never, while nothing is under way.
    pub async fn next(&mut self) -> Happened {
        let step = async {
            match &mut self.step {
                Some(step) => step.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            stepped = step => {
                self.step = None;
                Happened::Step(stepped)
            }
            Some(beside) = self.beside.next() => Happened::Beside(beside),
        }
    }

    /// Nothing would be lost if the session left memory now, and nobody waits.
    pub fn is_quiet(&self) -> bool {
        self.phases.is_quiet() && self.beside.is_empty() && self.reloads.is_empty()
    }

    /// A turn is over, with so many tokens in the window; 0: nobody knows.
    pub fn turn_ended(&mut self, tokens: u64) {
        let mark = if self.standing.held { self.limits.hard_tokens() } else { self.limits.soft_tokens() };
        self.fill_is_untold = tokens == 0;
        if tokens == 0 || tokens >= u64::from(mark) || self.standing.owes_summary {
            self.phases.look_soon();
        }
    }

    pub fn begin_reload(&mut self, done: oneshot::Sender<()>) {
        self.reloads.push(done);
    }

    /// The prompt may not be longer than this.
    pub fn prompt_limit_tokens(&self) -> u32 {
        self.limits.hard_tokens()
    }

    pub(super) fn stop(&mut self) {
        (self.step, self.made, self.covers) = (None, None, None);
    }

    pub(super) fn has_recall(&self) -> bool {
        self.kitchen.preset.recall > 0
    }

    /// Whether the change is to something that the plan takes out of the prompt.
    fn is_touched(&self, op: &StoreOp) -> bool {
        let is_covered = |id: &String| self.covers.as_ref().is_none_or(|covers| covers.contains(id));
        match op {
            StoreOp::ItemTruncated { item, .. } => is_covered(&item.id),
            StoreOp::ItemDeleted { item_id } => is_covered(item_id),
            // Behind the last that is covered is not under it.
            StoreOp::ItemAdded { after: Some(after), .. } => {
                self.covers.as_ref().is_some_and(|covers| covers.contains(after)) && self.last_covered() != Some(after)
            }
            StoreOp::ItemAdded { after: None, .. } | StoreOp::ConfigChanged { .. } => true,
            _ => false,
        }
    }

    fn last_covered(&self) -> Option<&String> {
        self.made.as_ref().and_then(|made| made.standing.covered_through.as_ref())
    }
}

impl Actor {
    /// Begins what is due. To be called whenever something happened.
    pub(super) fn go_on_compacting(&mut self) {
        let now = self.silence();
        if let Some(next) = self.compacting.phases.next(now) {
            self.begin_step(next);
        }
        let c = &mut self.compacting;
        if !c.reloads.is_empty() && c.beside.is_empty() && now.settled && !now.replying && !c.phases.is_swapping() {
            let (shelf, epoch) = (c.shelf.clone(), c.epoch);
            c.beside.push(Box::pin(async move {
                let past = Past::load(&shelf.store, &shelf.session).await;
                Beside::Reloaded(epoch, past.map(Box::new))
            }));
        }
    }

    pub(super) fn compacting_happened(&mut self, happened: Happened) {
        match happened {
            Happened::Step(Stepped::Looked(looked)) => self.looked(looked),
            Happened::Step(Stepped::Made(made)) => self.summary_made(made),
            Happened::Step(Stepped::Warmed) => {
                let now = self.silence();
                if let Some(next) = self.compacting.phases.warmed(now) {
                    self.begin_step(next);
                }
            }
            Happened::Step(Stepped::Swapped(swapped)) => self.swapped(swapped),
            Happened::Beside(Beside::Room(generation, room)) => self.room_made(generation, room),
            Happened::Beside(Beside::Dropped(dropped)) => match dropped {
                Ok(version) => {
                    let standing = &mut self.compacting.standing;
                    standing.newest_version = standing.newest_version.max(version);
                    if standing.owes_summary {
                        standing.version = Some(version);
                    }
                }
                Err(error) => tracing::warn!(%error, "what left the prompt is back in it after a restart"),
            },
            Happened::Beside(Beside::Pinned(pins)) => match pins {
                Ok((pins, refused)) => {
                    self.compacting.standing.pins = pins;
                    self.refresh_context();
                    for Wish { item_id, text } in refused {
                        let limit_tokens = self.compacting.limits.pins_tokens();
                        tracing::warn!(item = %item_id, limit_tokens, "there is no room for another pin: remove one");
                        self.feed(Input::Notice(Notice::PinRefused { item_id, text, limit_tokens }));
                    }
                }
                Err(error) => tracing::error!(%error, "a pin could not be kept"),
            },
            Happened::Beside(Beside::Reloaded(epoch, past)) => self.reloaded(epoch, past),
            Happened::Beside(Beside::Recalled(generation, results)) => {
                self.feed(Input::Recalled { generation, results });
            }
        }
    }

    /// An operation is on its way to the store: a part of the conversation changes.
    pub(super) fn compacting_sees(&mut self, op: &StoreOp) -> Option<Input> {
        let c = &mut self.compacting;
        match op {
            StoreOp::ResponseStarted { .. } | StoreOp::ResponseFinished { .. } | StoreOp::ResponseReported { .. } => {
                return None;
            }
            _ => c.epoch += 1,
        }
        if let StoreOp::ItemAdded { item, .. } = op {
            let wishes = wishes(item, self.machine.said_before(&item.id).map(|item| &**item));
            if !wishes.is_empty() {
                self.pin(wishes);
            }
        }
        if let StoreOp::ItemDeleted { item_id } = op {
            self.unpin(item_id);
        }
        let is_touched = self.touches_what_is_told(op);
        let c = &mut self.compacting;
        if is_touched {
            c.phases.look_soon();
        }
        // A swap that is under way is refused by the store itself.
        if !c.phases.is_quiet() && !c.phases.is_swapping() && c.is_touched(op) {
            tracing::info!("what was to be summarised has changed: it is planned anew");
            metrics::compaction_ended("cancelled");
            c.stop();
            c.phases.start_over();
            return self.failed_notice("what it was to tell has changed; it is planned anew");
        }
        None
    }

    /// Whether the summary in use may have told what is changed. Who asks the store knows.
    fn touches_what_is_told(&self, op: &StoreOp) -> bool {
        let is_shown = |id: &String| self.machine.items().iter().any(|item| item.id == *id);
        self.compacting.standing.covered_through.is_some()
            && match op {
                StoreOp::ItemDeleted { .. } | StoreOp::ItemAdded { after: None, .. } => true,
                StoreOp::ItemTruncated { item, .. } => !is_shown(&item.id),
                StoreOp::ItemAdded { after: Some(after), .. } => {
                    self.compacting.standing.covered_through.as_ref() != Some(after) && !is_shown(after)
                }
                _ => false,
            }
    }

    /// The model wants to know what was said once.
    pub(super) fn search_past(&mut self, generation: GenerationId, queries: Vec<String>, shown: Vec<Arc<Item>>) {
        let (settings, shelf) = (self.shared.settings.clone(), self.compacting.shelf.clone());
        self.compacting.beside.push(Box::pin(async move {
            Beside::Recalled(generation, recall(&settings, &shelf, &queries, &shown).await)
        }));
    }

    pub(super) fn silence(&self) -> Activity {
        Activity {
            replying: self.machine.is_replying(),
            settled: self.machine.is_settled(),
            ending: self.draining_by.is_some() || self.gone,
            epoch: self.compacting.epoch,
        }
    }

    pub(super) fn begin_step(&mut self, next: NextStep) {
        let c = &mut self.compacting;
        let (kitchen, shelf) = (c.kitchen.clone(), c.shelf.clone());
        c.step = Some(match next {
            NextStep::Look => {
                c.covers = None;
                c.begun = Instant::now();
                let gave_up_at = c.gave_up_at.clone();
                Box::pin(async move { Stepped::Looked(look(&kitchen, &shelf, gave_up_at).await.map(Box::new)) })
            }
            NextStep::Warm => {
                let Some(made) = &c.made else { return c.phases.over() };
                let through = made.standing.covered_through.as_deref();
                let items = self.machine.items_behind(through);
                let context = made.standing.context(&items, &c.limits, c.has_recall());
                let generate = self.machine.ahead(items, context);
                let mut ask = Ask::for_turn(&generate, &kitchen.preset, &kitchen.wording);
                (ask.priority, ask.past_owner) = (Priority::Background, kitchen.past_owner);
                let mut answer = kitchen.backend.ask(ask);
                Box::pin(async move {
                    // What cannot be warmed is computed when it is needed.
                    while let Some(piece) = answer.next().await {
                        if let Piece::Failed(failure) = piece {
                            tracing::debug!(%failure, "a compacted prompt was not warmed");
                        }
                    }
                    Stepped::Warmed
                })
            }
            NextStep::Swap => {
                let Some(made) = &c.made else { return c.phases.over() };
                let made = made.clone();
                Box::pin(async move { Stepped::Swapped(swap(&shelf, made).await) })
            }
        });
    }

    fn looked(&mut self, looked: Result<Box<Look>, Trouble>) {
        let c = &mut self.compacting;
        let look = match looked {
            Ok(look) => look,
            Err(trouble) => return self.gave_up(&trouble),
        };
        c.standing.pins.clone_from(&look.past.standing.pins);
        c.standing.owes_summary = look.past.standing.owes_summary;
        // An upstream may not tell how long its prompt was.
        let untold = std::mem::take(&mut c.fill_is_untold).then_some(look.weighed.total);
        c.covers = Some(look.covers.clone());
        c.last_item.clone_from(&look.last_item);
        tracing::debug!(plan = look.plan.name(), tokens = look.weighed.total.tokens, "a look at the conversation");
        match look.plan.clone() {
            CompactionPlan::Trim(trim) => {
                c.made = Some(trimmed(&look, &trim.through, trim.expected_tokens));
                c.phases.made();
            }
            CompactionPlan::Summarise(plan) => {
                let tokens_before = look.weighed.total.tokens;
                let version = look.past.standing.newest_version + 1;
                let (kitchen, shelf) = (c.kitchen.clone(), c.shelf.clone());
                c.told = Some((version, tokens_before));
                c.phases.making();
                c.step =
                    Some(Box::pin(
                        async move { Stepped::Made(make(&kitchen, &shelf, &look, plan).await.map(Box::new)) },
                    ));
                let summary_id = summary_id(version);
                self.feed(Input::Notice(Notice::CompactionStarted { summary_id, version, tokens_before }));
            }
            CompactionPlan::Nothing | CompactionPlan::Drop(_) | CompactionPlan::TooLarge(_) => c.phases.over(),
        }
        if untold.is_some() {
            self.fill = untold;
            self.tell_fill();
        }
    }

    fn summary_made(&mut self, made: Result<Box<Made>, Trouble>) {
        let c = &mut self.compacting;
        match made {
            Ok(made) => {
                metrics::summary_made(&made.effort.rejected, made.effort.fell_back);
                let Effort { requests, reused_tokens, computed_tokens, .. } = &made.effort;
                tracing::info!(version = made.version, requests, reused_tokens, computed_tokens, "a summary is made");
                c.made = Some(*made);
                c.phases.made();
            }
            Err(Trouble::Store(store::Error::StaleSummary { .. })) => {
                metrics::compaction_ended("cancelled");
                c.stop();
                c.phases.start_over();
                self.tell_failed("what it was to tell has changed; it is planned anew");
            }
            Err(trouble) => self.gave_up(&trouble),
        }
    }

    fn gave_up(&mut self, trouble: &Trouble) {
        tracing::warn!(%trouble, "the conversation was not compacted; it is tried again later");
        metrics::compaction_ended("failed");
        let c = &mut self.compacting;
        c.stop();
        c.phases.over();
        // Whoever could not be asked may be there after the next turn.
        if !matches!(trouble, Trouble::Backend(_)) {
            c.gave_up_at.clone_from(&c.last_item);
        }
        self.tell_failed(&trouble.to_string());
    }

    fn swapped(&mut self, swapped: Result<Option<u64>, store::Error>) {
        let c = &mut self.compacting;
        let Some(made) = c.made.take() else { return c.phases.over() };
        match swapped {
            Ok(stands) => {
                let Made { version, mut standing, tokens_before, after, .. } = made;
                let tokens_after = after.tokens;
                standing.pins = std::mem::take(&mut c.standing.pins);
                if stands.is_some() {
                    (standing.version, standing.newest_version) =
                        (stands, standing.newest_version.max(stands.unwrap_or(0)));
                }
                c.standing = standing;
                c.phases.over();
                if c.standing.owes_summary {
                    c.phases.look_soon();
                }
                (c.covers, c.gave_up_at) = (None, None);
                let took = c.begun.elapsed();
                metrics::compacted(
                    if version.is_some() { "completed" } else { "trimmed" },
                    took,
                    tokens_before,
                    tokens_after,
                );
                tracing::info!(
                    version,
                    tokens_before,
                    tokens_after,
                    duration_ms = took.as_secs_f64() * 1e3,
                    "the conversation is compacted"
                );
                if version.is_some() {
                    self.keeper.count_compaction();
                }
                self.fill = Some(after);
                self.refresh_context();
                if let Some(version) = version {
                    self.compacting.told = None;
                    let summary_id = summary_id(version);
                    let done = Notice::CompactionCompleted { summary_id, version, tokens_before, tokens_after };
                    self.feed(Input::Notice(done));
                }
                self.tell_fill();
            }
            Err(error) => {
                metrics::compaction_ended("cancelled");
                c.stop();
                match &error {
                    store::Error::StaleSummary { .. } => c.phases.start_over(),
                    _ => {
                        tracing::error!(%error, "a summary could not be put to use");
                        c.phases.over();
                    }
                }
                self.tell_failed(&error.to_string());
            }
        }
        for (id, generate) in std::mem::take(&mut self.compacting.waiting) {
            self.ask_again(id, generate, Some(self.compacting.prompt_limit_tokens()));
        }
    }

    /// The store was changed by somebody else: the prompt follows.
    fn reloaded(&mut self, epoch: u64, past: Result<Box<Past>, store::Error>) {
        let now = self.silence();
        if epoch != self.compacting.epoch || !now.settled || now.replying {
            return; // again, in the next silence
        }
        match past {
            // What the session did itself is not news, and no reason to begin a summary again.
            Ok(past) if past.standing.shows_the_same_as(&self.compacting.standing) => {}
            Ok(past) => {
                let Past { standing, items, leading, .. } = *past;
                let c = &mut self.compacting;
                let was_at_work = !c.phases.is_quiet();
                c.stop();
                if was_at_work || standing.owes_summary {
                    c.phases.start_over()
                } else {
                    c.phases.over()
                }
                let behind = if standing.owes_summary { None } else { standing.covered_through.clone() };
                let missing: Vec<Item> = items[leading..].iter().map(|item| Item::clone(item)).collect();
                if self.machine.lacks(&missing) {
                    self.keeper.stand_behind(behind);
                }
                self.feed(Input::Recovered(missing));
                self.compacting.standing = standing;
                self.refresh_context();
                if was_at_work {
                    metrics::compaction_ended("cancelled");
                    self.tell_failed("summaries or pins were changed; it is planned anew");
                }
            }
            Err(error) => tracing::error!(%error, "a change of the session could not be read"),
        }
        self.compacting.reloads.drain(..).for_each(|done| {
            let _ = done.send(());
        });
    }

    /// The prompt shows what stands.
    pub(super) fn refresh_context(&mut self) {
        let c = &self.compacting;
        let items = self.machine.items_behind(c.standing.covered_through.as_deref());
        let context: Context = c.standing.context(&items, &c.limits, c.has_recall());
        if context != *self.machine.context() {
            self.feed(Input::Context(context));
        }
    }

    fn tell_failed(&mut self, message: &str) {
        if let Some(notice) = self.failed_notice(message) {
            self.feed(notice);
        }
    }

    /// Where clients were told that it began.
    fn failed_notice(&mut self, message: &str) -> Option<Input> {
        let (version, tokens_before) = self.compacting.told.take()?;
        let (summary_id, message) = (summary_id(version), message.to_owned());
        Some(Input::Notice(Notice::CompactionFailed { summary_id, version, tokens_before, message }))
    }

    fn pin(&mut self, wishes: Vec<Wish>) {
        let c = &mut self.compacting;
        let (shelf, limits, mut pins) = (c.shelf.clone(), c.limits, c.standing.pins.clone());
        c.beside.push(Box::pin(async move {
            let pinned = async {
                let (_, refused) = pin_wishes(&shelf, &limits, wishes, &mut pins).await?;
                Ok((shelf.store.pins(&shelf.session, false).await?, refused))
            };
            Beside::Pinned(pinned.await)
        }));
    }

    /// What was not said is not to be kept.
    fn unpin(&mut self, item_id: &str) {
        let c = &mut self.compacting;
        let of_item = |pin: &&Pin| pin.made_by == MadeBy::Model && pin.source_item.as_deref() == Some(item_id);
        let ids: Vec<String> = c.standing.pins.iter().filter(of_item).map(|pin| pin.id.clone()).collect();
        if ids.is_empty() {
            return;
        }
        let shelf = c.shelf.clone();
        c.beside.push(Box::pin(async move {
            let unpinned = async {
                for id in ids {
                    shelf.store.remove_pin(&shelf.session, &id, wall_ms()).await?;
                }
                Ok((shelf.store.pins(&shelf.session, false).await?, Vec::new()))
            };
            Beside::Pinned(unpinned.await)
        }));
    }
}

/// One transaction, from which on the prompt shows what was made.
async fn swap(shelf: &Shelf, made: Made) -> Result<Option<u64>, store::Error> {
    let Shelf { store, session } = shelf;
    let Some(version) = made.version else {
        return store.trim_results(session, made.trimmed, wall_ms()).await.map(|()| None);
    };
    let Some([from_item, to_item]) = made.still_owed else {
        return store.apply_summary(session, version, made.trimmed, wall_ms()).await.map(|()| Some(version));
    };
    let Made { standing, trimmed, tokens_before, after, .. } = made;
    let new = left_out(&standing, [from_item, to_item], [tokens_before, after.tokens]);
    store.add_applied_summary(session, new, trimmed).await.map(Some)
}
