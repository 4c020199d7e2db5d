//! Streams of the service's state: their number, and the one state that they show.

use axum::body::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Streams of the state. All of them show one, which is made once in a pause.
#[derive(Clone)]
pub struct StateStreams {
    free: Arc<Semaphore>,
    shown: Arc<Mutex<Option<(Instant, Bytes)>>>,
}

impl StateStreams {
    pub fn new(most: usize) -> StateStreams {
        StateStreams { free: Arc::new(Semaphore::new(most)), shown: Arc::default() }
    }

    /// Takes a place for a stream. `None`: as many are open as may be.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_owned().ok()
    }

    /// Returns the event of this pause, and makes it if it is the first to be shown.
    pub fn shown(&self, pause: Duration, make: impl FnOnce() -> String) -> Bytes {
        let mut shown = self.shown.lock();
        match &*shown {
            Some((at, event)) if at.elapsed() < pause => event.clone(),
            _ => shown.insert((Instant::now(), Bytes::from(make()))).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_show_a_state_that_is_made_once() {
        let (streams, pause) = (StateStreams::new(1), Duration::from_millis(50));
        let mut made = 0;
        let mut show = |streams: &StateStreams| {
            streams.shown(pause, || {
                made += 1;
                made.to_string()
            })
        };
        assert!((0..100).map(|_| show(&streams)).all(|event| event == "1"));
        std::thread::sleep(pause);
        assert_eq!(show(&streams), "2");
    }
}
