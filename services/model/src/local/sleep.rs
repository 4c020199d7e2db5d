//! A service that its users leave alone gives its memory back, and opens its model again for the first sound.

use super::{Command, Shared, stopped};
use crate::preparation::give_memory_back;
use crate::prepare::Preparer;
use session::{Failure, FailureCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

/// Whether prompts can be prepared.
pub(super) enum Preparing {
    Awake(Arc<Preparer>),
    Asleep,
    /// The model should be awake, and could not be opened.
    Failed,
}

/// Clients that come, however many at once, wake the model once: one wake waits at a time.
#[derive(Default)]
pub(super) struct Wakes(Arc<AtomicBool>);

/// Until it is heard, or dropped, no other wake waits.
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
    /// None: the model sleeps, or could not be opened.
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
        drop(status);
        give_memory_back();
    }

    /// Requests that wait for the model fail.
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

    /// Never waits. A model that is awake stays so for the whole of its idle time.
    pub(super) fn wake(&self, commands: &SyncSender<Command>) {
        if let Some(only) = self.wakes.only() {
            // Where the queue is full, others have waked it.
            let _ = commands.try_send(Command::Wake(only));
        }
    }

    /// Wakes the model if it sleeps, and waits until prompts can be prepared.
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

/// The trouble names files of this machine, so it is for the log alone.
pub(super) fn cannot_open() -> Failure {
    Failure::new(FailureCode::Unavailable, "the model cannot be opened: the service's log says why")
}
