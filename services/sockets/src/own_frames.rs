//! Frames of a door's own, such as errors: the session does not see them, and says when all before them was told.

use parking_lot::Mutex;
use runtime::Connected;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, Default)]
pub struct OwnFrames {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last_mark: u64,
    frames: HashMap<u64, String>,
}

impl OwnFrames {
    /// Keeps a frame until the session has told the connection all that came before, and returns the mark of that moment.
    pub fn keep(&self, frame: String) -> u64 {
        let waiting = &mut *self.waiting.lock();
        waiting.last_mark += 1;
        waiting.frames.insert(waiting.last_mark, frame);
        waiting.last_mark
    }

    pub async fn queue(&self, frame: String, connected: &Connected) -> bool {
        let bytes = frame.len();
        connected.mark(self.keep(frame), bytes).await
    }

    pub fn take(&self, mark: u64) -> Option<String> {
        self.waiting.lock().frames.remove(&mark)
    }
}
