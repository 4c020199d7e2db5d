//! Changes after which words that the conversations of a user have copied may be gone. The store's file has the counts, so that a
//! running service notices what a command beside it has forgotten.

use parking_lot::Mutex;
use std::collections::HashMap;
use tokio::sync::watch;

/// Changes of what each user's conversations may tell, counted in the store. A session in memory waits for the next one.
#[derive(Default)]
pub struct MemoryChanges {
    of_users: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl MemoryChanges {
    /// Tells those that wait for a change of this user, where the count is a newer one.
    pub fn reached(&self, user: &str, count: u64) {
        self.sender(user, |sender| {
            sender.send_if_modified(|known| {
                let is_news = count > *known;
                *known = count.max(*known);
                is_news
            })
        });
    }

    /// Gives the user's count to `ask`.
    pub fn sender<T>(&self, user: &str, ask: impl FnOnce(&watch::Sender<u64>) -> T) -> T {
        ask(self.of_users.lock().entry(user.to_owned()).or_insert_with(|| watch::Sender::new(0)))
    }
}
