//! How a model is.

use session::Priority;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStatus {
    /// The model can answer now.
    pub ready: bool,
    /// The model's name as clients see it.
    pub model: String,
    /// Its memory was given back; the next request opens it again.
    pub asleep: bool,
    /// Why it is not ready.
    pub trouble: Option<String>,
    /// Bytes of sequences by kind (`pages`, `snapshots`, `trails`, `live`) and what is fixed (`weights`). Empty where the
    /// model runs elsewhere.
    pub memory_bytes: Vec<(&'static str, u64)>,
    pub load: ModelLoad,
    /// How often the engine had to be started again.
    pub restarts: u64,
    /// How often a debug build checked in idle time that all that the engine remembers agrees.
    pub checks: u64,
}

/// Requests that are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelLoad {
    pub talk: usize,
    pub speculate: usize,
    pub background: usize,
}

impl ModelLoad {
    pub fn of(count: impl Fn(Priority) -> usize) -> ModelLoad {
        ModelLoad {
            talk: count(Priority::Talk),
            speculate: count(Priority::Speculate),
            background: count(Priority::Background),
        }
    }
}
