//! Counts what clients hear, so that a kill comes in the middle of it on any machine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Default)]
pub struct Pulse {
    heard: AtomicU64,
    changed: Notify,
}

impl Pulse {
    pub fn beat(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits for this number of events, and no longer than this: a service may have nothing to say.
    pub async fn wait(&self, events: u64, longest: Duration) {
        let heard = async {
            while self.heard.load(Ordering::Relaxed) < events {
                self.changed.notified().await;
            }
        };
        let _ = timeout(longest, heard).await;
    }
}
