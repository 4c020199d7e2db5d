//! Compactor of a session: a task beside the session's that keeps the conversation within its window, and talks by
//! messages.
//!
//! `ShownPast` is the part of the past that the prompt shows, `Past` the conversation in the store, `weigh` counts the
//! parts of a prompt, `make` makes and stores a summary, `room` makes room for a reply that waits. The `compaction`
//! crate decides when to compact, what, and how.
//!
//! Invariants:
//! - The history never changes: each step changes the part of it that the prompt shows.
//! - A swap is one transaction of the store, and the prompt follows it; a crash leaves the state before or after it.
//! - No reply waits for a summary: without room and without a finished summary, oldest turns leave the prompt.

mod make;
mod parts;
mod past;
mod room;
mod shown_past;
mod steps;
mod weigh;

pub use make::CompactedView;
pub use parts::WindowParts;
pub use past::Past;
pub use shown_past::{ShownPast, pin_of};

use crate::prompts::SessionTools;
use compaction::phases::{Activity, Phases};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use make::{CompactionError, Look, PinWish};
use model::Counted;
use room::DroppedTurns;
use session::machine::{Generate, GenerationId, StoreOp};
use session::{Event, Failure, Item};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use store::Pin;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Duration, Instant, sleep_until};

pub enum ToCompactor {
    Now(Activity),
    /// Operation on its way to the store that changes earlier items. `is_shown`: true if the prompt has its item, or
    /// the item before it. `said_before`: the user's message before an added item.
    Changed {
        op: StoreOp,
        is_shown: bool,
        said_before: Option<Arc<Item>>,
    },
    /// End of a turn with the tokens in the window. 0: the model did not say.
    TurnEnded {
        tokens: u64,
    },
    MakeRoom {
        generate: Box<Generate>,
        tries: u32,
    },
    Prompt(Box<Generate>),
    Reload {
        done: oneshot::Sender<()>,
    },
}

pub enum FromCompactor {
    Tell(Event),
    Shows(Arc<ShownPast>),
    /// Items that the prompt shows, which may not be in memory, and the item of the store before them. `Shows`
    /// follows.
    Recovered {
        items: Vec<Item>,
        behind: Option<String>,
    },
    Fill(Counted),
    WantsPrompt(Arc<ShownPast>),
    AskAgain {
        generate: Box<Generate>,
        limit_tokens: Option<u32>,
    },
    Failed {
        generation: GenerationId,
        failure: Failure,
    },
    /// Notice that no work is left after this number of messages.
    Quiet {
        heard: u64,
    },
}

pub struct Compactor {
    // Messages are large, and a channel has room for many from its begin.
    to: mpsc::Sender<Box<ToCompactor>>,
    from: mpsc::UnboundedReceiver<Box<FromCompactor>>,
    /// Messages sent, and those that the compactor had handled when it was last quiet.
    sent: u64,
    quiet_after: Option<u64>,
}

struct Task {
    tools: Arc<SessionTools>,
    out: mpsc::UnboundedSender<Box<FromCompactor>>,
    now: Activity,
    phases: Phases,
    shown_past: ShownPast,
    attempt: Attempt,
    step: Option<BoxFuture<'static, StepResult>>,
    side: FuturesUnordered<BoxFuture<'static, SideResult>>,
    waiting: HashMap<GenerationId, Box<Generate>>,
    /// Pins to add and remove, one after the other, and whether a change is in progress.
    pin_changes: VecDeque<PinChange>,
    is_pinning: bool,
    is_dropping: bool,
    reloads: Vec<oneshot::Sender<()>>,
    /// True if the model did not say how long the prompt of the last turn was.
    fill_is_untold: bool,
    rests_until: Option<Instant>,
}

/// Rest after a client connects: it will probably ask something, and a step would take processors from the reply.
const REST: Duration = Duration::from_secs(3);

struct Attempt {
    made: Option<CompactedView>,
    /// Items that the plan takes out of the prompt. `None`: there is no plan yet, and every change matters.
    covers: Option<HashSet<String>>,
    told: Option<(u64, u64)>,
    gave_up_at: Option<String>,
    last_item: Option<String>,
    begun: Instant,
}

enum PinChange {
    Add(Vec<PinWish>),
    RemoveOf(String),
}

enum StepResult {
    Looked(Result<Box<Look>, CompactionError>),
    Made(Result<Box<CompactedView>, CompactionError>),
    Warmed,
    Swapped(Result<Option<u64>, store::Error>),
}

enum SideResult {
    Room(GenerationId, Result<Option<Box<DroppedTurns>>, Failure>),
    Dropped(Result<u64, store::Error>),
    /// All pins, and the wishes that found no room.
    Pinned(Result<(Vec<Pin>, Vec<PinWish>), store::Error>),
    Reloaded(u64, Result<Box<Past>, store::Error>),
}

impl Compactor {
    /// Starts the task. `made`: a summary that was made before the last start and is not in use. `most_waiting`:
    /// messages that may wait for the compactor.
    pub fn start(
        tools: Arc<SessionTools>,
        shown_past: ShownPast,
        made: Option<CompactedView>,
        most_waiting: usize,
    ) -> Compactor {
        let (to, inbox) = mpsc::channel(most_waiting);
        let (out, from) = mpsc::unbounded_channel();
        let mut phases = Phases::new(made.is_some());
        if shown_past.owes_summary {
            phases.look_soon();
        }
        let quiet_after = phases.is_quiet().then_some(0);
        let told = made.as_ref().and_then(|made| Some((made.version?, made.tokens_before)));
        let task = Task {
            tools,
            out,
            // Until the session says otherwise nothing may begin.
            now: Activity { replying: true, settled: false, ending: false, epoch: 0 },
            phases,
            shown_past,
            attempt: Attempt { made, covers: None, told, gave_up_at: None, last_item: None, begun: Instant::now() },
            step: None,
            side: FuturesUnordered::new(),
            waiting: HashMap::new(),
            pin_changes: VecDeque::new(),
            is_pinning: false,
            is_dropping: false,
            reloads: Vec::new(),
            fill_is_untold: false,
            rests_until: Some(Instant::now() + REST),
        };
        tokio::spawn(tracing::Instrument::in_current_span(task.run(inbox)));
        Compactor { to, from, sent: 0, quiet_after }
    }

    pub async fn tell(&mut self, message: ToCompactor) {
        self.sent += 1;
        // A compactor that is gone is told nothing: the session ends.
        let _ = self.to.send(Box::new(message)).await;
    }

    /// Returns the next message; waits forever while there is no work.
    pub async fn next(&mut self) -> FromCompactor {
        match self.from.recv().await.map(|message| *message) {
            Some(FromCompactor::Quiet { heard }) => {
                self.quiet_after = Some(heard);
                FromCompactor::Quiet { heard }
            }
            Some(message) => message,
            None => std::future::pending().await,
        }
    }

    /// Returns true if no work is lost when the session leaves memory.
    pub fn is_quiet(&self) -> bool {
        self.quiet_after == Some(self.sent)
    }
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Box<ToCompactor>>) {
        let (mut heard, mut quiet_at) = (0, None);
        loop {
            self.go_on();
            let is_quiet = self.is_quiet() && inbox.is_empty();
            if is_quiet && quiet_at != Some(heard) {
                quiet_at = Some(heard);
                self.say(FromCompactor::Quiet { heard });
            }
            let rests_until = self.rests_until;
            let step = async {
                match &mut self.step {
                    Some(step) => step.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(message) => {
                        heard += 1;
                        self.heard(*message);
                    }
                    None => return,
                },
                () = sleep_until(rests_until.unwrap_or_else(Instant::now)), if rests_until.is_some() => {
                    self.rests_until = None;
                }
                result = step => {
                    self.step = None;
                    self.stepped(result);
                    quiet_at = None;
                }
                Some(result) = self.side.next() => {
                    self.side_ended(result);
                    quiet_at = None;
                }
            }
        }
    }

    fn heard(&mut self, message: ToCompactor) {
        match message {
            ToCompactor::Now(now) => self.now = now,
            ToCompactor::Changed { op, is_shown, said_before } => self.changed(&op, is_shown, said_before.as_deref()),
            ToCompactor::TurnEnded { tokens } => {
                self.rests_until = None;
                let mark = if self.shown_past.was_undone {
                    self.tools.limits.hard_tokens()
                } else {
                    self.tools.limits.soft_tokens()
                };
                self.fill_is_untold = tokens == 0;
                if tokens == 0 || tokens >= u64::from(mark) || self.shown_past.owes_summary {
                    self.phases.look_soon();
                }
            }
            ToCompactor::MakeRoom { generate, tries } => self.make_room(generate, tries),
            ToCompactor::Prompt(generate) => self.warm(&generate),
            ToCompactor::Reload { done } => self.reloads.push(done),
        }
    }

    fn go_on(&mut self) {
        if self.rests_until.is_none()
            && let Some(next) = self.phases.next(self.now)
        {
            self.begin(next);
        }
        let Activity { settled, replying, epoch, .. } = self.now;
        let may_reload = self.side.is_empty() && settled && !replying && !self.phases.is_swapping();
        if !self.reloads.is_empty() && may_reload {
            let tools = self.tools.clone();
            let reload = async move { SideResult::Reloaded(epoch, Past::for_summary(&tools).await.map(Box::new)) };
            self.side.push(Box::pin(reload));
        }
    }

    fn side_ended(&mut self, result: SideResult) {
        match result {
            SideResult::Room(generation, room) => self.room_made(generation, room),
            SideResult::Dropped(Ok(version)) => {
                self.is_dropping = false;
                self.shown_past.newest_version = self.shown_past.newest_version.max(version);
                if self.shown_past.owes_summary {
                    self.shown_past.version = Some(version);
                }
            }
            SideResult::Dropped(Err(error)) => {
                self.is_dropping = false;
                tracing::warn!(%error, "dropped turns could not be stored as dropped: a restart brings them back");
            }
            SideResult::Pinned(Ok((pins, refused))) => {
                self.shown_past.pins = pins;
                self.is_pinning = false;
                self.change_pins();
                self.show();
                for PinWish { item_id, text } in refused {
                    let limit_tokens = self.tools.limits.pins_tokens();
                    tracing::warn!(item = %item_id, limit_tokens, "there is no room for another pin: remove one");
                    self.say(FromCompactor::Tell(Event::PinRefused { item_id, text, limit_tokens }));
                }
            }
            SideResult::Pinned(Err(error)) => {
                tracing::error!(%error, "a pin could not be kept");
                self.is_pinning = false;
                self.change_pins();
            }
            SideResult::Reloaded(epoch, past) => self.reloaded(epoch, past),
        }
    }

    fn is_quiet(&self) -> bool {
        self.phases.is_quiet() && self.side.is_empty() && self.reloads.is_empty()
    }

    fn show(&self) {
        self.say(FromCompactor::Shows(Arc::new(self.shown_past.clone())));
    }

    fn say(&self, message: FromCompactor) {
        // A session that is gone hears nothing.
        let _ = self.out.send(Box::new(message));
    }
}
