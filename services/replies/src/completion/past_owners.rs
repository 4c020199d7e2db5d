//! Owners of what is computed for requests that belong to no session: the store knows them before the disk has anything of
//! theirs, so that every deletion finds it.

use crate::identity::Scope;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use store::Store;

pub struct PastOwners {
    store: Store,
    noted: Mutex<HashMap<u64, Instant>>,
}

/// Precision of the time of an owner's last use.
const NOTED_FOR: Duration = Duration::from_secs(60);

impl PastOwners {
    pub fn new(store: Store) -> PastOwners {
        PastOwners { store, noted: Mutex::default() }
    }

    /// Notes in the store that something is computed for this scope. No request waits for it: an idle engine writes to disk,
    /// and much later. Of a private scope nothing is written, so the store learns nothing of it either.
    pub fn note(&self, scope: &Scope) {
        if scope.is_private {
            return;
        }
        let (owner, now) = (scope.log_owner(), Instant::now());
        {
            let mut noted = self.noted.lock();
            noted.retain(|_, at| now - *at < NOTED_FOR);
            if noted.insert(owner.past_owner(), now).is_some() {
                return;
            }
        }
        let store = self.store.clone();
        tokio::spawn(async move {
            if let Err(error) = store.note_past_owner(&owner, runtime::wall_ms()).await {
                tracing::error!(%error, "a deletion may not find what is computed for a conversation that its client holds");
            }
        });
    }

    /// Forgets which owners were noted: a deletion may have taken them out of the store.
    pub fn clear(&self) {
        self.noted.lock().clear();
    }
}
