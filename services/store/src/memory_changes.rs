//! Counts of forgetting: changes that may remove words which conversations of a user have copied. The store's file has
//! the counts, so that a running service notices what a command beside it has forgotten.

use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::watch;

/// Counts by user. A session in memory waits for the next change.
#[derive(Default)]
pub struct MemoryChanges {
    of_users: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl MemoryChanges {
    /// Wakes sessions that wait for this user, if the count is newer.
    pub fn reached(&self, user: &str, count: u64) {
        self.sender(user, |sender| {
            sender.send_if_modified(|known| {
                let is_news = count > *known;
                *known = count.max(*known);
                is_news
            })
        });
    }

    pub fn sender<T>(&self, user: &str, ask: impl FnOnce(&watch::Sender<u64>) -> T) -> T {
        ask(self.of_users.lock().entry(user.to_owned()).or_insert_with(|| watch::Sender::new(0)))
    }
}
