//! The sentence encoder: opened when it is first needed, and given back while the model sleeps.

use crate::message_index::MessageIndex;
use encoder::Encoder;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Mutex;

/// Threads of the encoder. A sentence takes milliseconds, and replies need the other cores.
const THREADS: usize = 2;

pub struct Encoding {
    folder: Option<PathBuf>,
    slot: Mutex<Slot>,
    /// Runtime on which it is opened: its threads are like the one that opens it, and learning has one that comes last.
    home: Handle,
    messages: MessageIndex,
}

enum Slot {
    Closed,
    Open(Arc<Encoder>),
    Failed,
}

impl Encoding {
    pub fn new(folder: Option<PathBuf>) -> Encoding {
        Encoding { folder, slot: Mutex::new(Slot::Closed), home: Handle::current(), messages: MessageIndex::default() }
    }

    /// Returns the encoder. `None`: there is none, or it could not be opened.
    pub async fn open(&self) -> Option<Arc<Encoder>> {
        let folder = self.folder.as_ref()?;
        let mut slot = self.slot.lock().await;
        if let Slot::Open(encoder) = &*slot {
            return Some(encoder.clone());
        }
        // It may be fetched while the service runs.
        if matches!(*slot, Slot::Failed) || !folder.join("config.json").exists() {
            return None;
        }
        let path = folder.clone();
        match self.home.spawn_blocking(move || Encoder::open(&path, THREADS)).await {
            Ok(Ok(encoder)) => {
                tracing::info!(encoder = encoder.name(), "sentences are told by meaning");
                let encoder = Arc::new(encoder);
                *slot = Slot::Open(encoder.clone());
                return Some(encoder);
            }
            Ok(Err(error)) => tracing::error!(%error, "the sentence encoder cannot be opened; words alone decide"),
            Err(error) => tracing::error!(%error, "the sentence encoder failed; words alone decide"),
        }
        *slot = Slot::Failed;
        None
    }

    /// Returns the encoder if it is open: a question does not wait for more.
    pub fn ready(&self) -> Option<Arc<Encoder>> {
        match &*self.slot.try_lock().ok()? {
            Slot::Open(encoder) => Some(encoder.clone()),
            Slot::Closed | Slot::Failed => None,
        }
    }

    pub fn is_there(&self) -> bool {
        let has_failed = self.slot.try_lock().is_ok_and(|slot| matches!(*slot, Slot::Failed));
        !has_failed && self.folder.as_ref().is_some_and(|folder| folder.join("config.json").exists())
    }

    pub fn messages(&self) -> &MessageIndex {
        &self.messages
    }

    pub async fn sleep(&self) {
        let mut slot = self.slot.lock().await;
        if matches!(*slot, Slot::Open(_)) {
            *slot = Slot::Closed;
            self.messages.clear();
        }
    }
}
