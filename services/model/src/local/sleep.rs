//! Sleep: an unused service gives its memory back, and opens its model again at the next sign of a user.

use super::{Command, Shared, stopped};
use crate::preparation::give_memory_back;
use crate::prepare::Preparer;
use engine::memory::KeptStates;
use session::{Failure, FailureCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

pub(super) enum Preparing {
    Awake(Arc<Preparer>),
    Asleep,
    Failed,
}

/// Wake-ups, one at a time: any number of clients wakes the model once.
#[derive(Default)]
pub(super) struct Wakes(Arc<AtomicBool>);

/// Wake-up on its way: until it is taken or dropped, there is no other.
pub(super) struct OnlyWake(Arc<AtomicBool>);

impl Wakes {
    fn only(&self) -> Option<OnlyWake> {
        let waits = self.0.swap(true, Ordering::AcqRel);
        (!waits).then(|| OnlyWake(self.0.clone()))
    }
}

impl Drop for OnlyWake {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Shared {
    /// Returns the preparer; `None` if the model sleeps or could not be opened.
    pub(super) fn preparer(&self) -> Option<Arc<Preparer>> {
        match &*self.preparer.borrow() {
            Preparing::Awake(preparer) => Some(preparer.clone()),
            Preparing::Asleep | Preparing::Failed => None,
        }
    }

    pub(super) fn set_preparer(&self, preparer: Preparer) {
        self.preparer.send_replace(Preparing::Awake(Arc::new(preparer)));
        self.status.lock().asleep = false;
    }

    pub(super) fn fall_asleep(&self) {
        self.preparer.send_replace(Preparing::Asleep);
        let mut status = self.status.lock();
        status.asleep = true;
        status.memory_bytes.clear();
        status.in_memory = KeptStates::default();
        drop(status);
        give_memory_back();
    }

    pub(super) fn cannot_wake(&self) {
        let failed = |preparing: &mut Preparing| {
            let sleeps = matches!(preparing, Preparing::Asleep);
            if sleeps {
                *preparing = Preparing::Failed;
            }
            sleeps
        };
        self.preparer.send_if_modified(failed);
    }

    /// Wakes the model and never waits. One that is awake stays so for its whole idle time.
    pub(super) fn wake(&self, commands: &SyncSender<Command>) {
        if let Some(only) = self.wakes.only() {
            // If the queue is full, others have woken it.
            let _ = commands.try_send(Command::Wake(only));
        }
    }

    pub(super) async fn awake(&self, commands: &SyncSender<Command>) -> Result<Arc<Preparer>, Failure> {
        if let Some(preparer) = self.preparer() {
            return Ok(preparer);
        }
        self.wake(commands);
        let mut preparing = self.preparer.subscribe();
        let known = preparing.wait_for(|preparing| !matches!(preparing, Preparing::Asleep)).await;
        match known.as_deref() {
            Ok(Preparing::Awake(preparer)) => Ok(preparer.clone()),
            Ok(_) => Err(cannot_open()),
            Err(_) => Err(stopped()),
        }
    }
}

/// Builds the failure without its reason, which names files of this machine and belongs in the log.
pub(super) fn cannot_open() -> Failure {
    Failure::new(FailureCode::Unavailable, "the model cannot be opened: the service's log says why")
}
