use engine::memory::KeptStates;
use session::Priority;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelStatus {
    pub ready: bool,
    pub model: String,
    /// True after its memory went back; the next request opens it again.
    pub asleep: bool,
    pub trouble: Option<String>,
    /// Bytes of sequences by kind (`pages`, `snapshots`, `recurrence_logs`, `live`, `moved_snapshots`) and fixed ones (`weights`).
    /// Empty if the model runs elsewhere.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// States of pasts, zero if the model runs elsewhere.
    pub in_memory: KeptStates,
    pub on_disk: KeptStates,
    pub load: ModelLoad,
    pub restarts: u64,
    pub checks: u64,
}

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
