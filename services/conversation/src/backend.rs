//! What thinks: the engine in this process, an OpenAI-compatible server, or a script in tests. All of them take an [`Ask`]
//! and give an [`Answer`], a stream of [`Piece`]s.
//!
//! An ask carries its whole prompt. What a backend remembers of it decides how fast it is answered, never what is answered.
//! An answer always ends in exactly one `Done` or `Failed`; dropping it, or `cancel`, stops the decoding within one step.

mod answer;
mod ask;
mod for_turn;
pub mod scripted;

pub use answer::{Answer, Failure, FailureCode, Finish, Piece, Report, TokenLogprob, Usage};
pub use ask::{Ask, Purpose, ResponseFormat, SamplingOverrides};
pub use engine::Priority;

use scripted::Scripted;
use settings::Preset;
use std::sync::Arc;
use text::chat::ChatPrompt;

/// A handle: cheap to clone, for any task.
#[derive(Clone)]
pub struct Backend {
    kind: Arc<Kind>,
}

enum Kind {
    Scripted(Scripted),
}

/// How long a prompt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub tokens: u64,
    /// By the model's own tokenizer. Otherwise `margin_tokens` are in `tokens`.
    pub exact: bool,
    pub margin_tokens: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The model can answer now.
    pub ready: bool,
    /// The model's name as clients see it.
    pub model: String,
    /// Why it is not ready.
    pub trouble: Option<String>,
    /// Bytes of sequences by kind (`pages`, `snapshots`, `trails`, `live`) and what is fixed (`weights`). Empty where the
    /// model runs elsewhere.
    pub memory_bytes: Vec<(&'static str, u64)>,
    pub load: Load,
    /// How often the engine had to be started again.
    pub restarts: u64,
}

/// Asks that are not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub talk: usize,
    pub speculate: usize,
    pub background: usize,
}

impl Backend {
    /// Never waits. What is wrong with an ask comes as the answer's only piece.
    pub fn ask(&self, ask: Ask) -> Answer {
        match &*self.kind {
            Kind::Scripted(scripted) => scripted.ask(ask),
        }
    }

    /// How many tokens the prompt of a reply has: template, tools and the opening of the reply included.
    pub async fn count(&self, chat: &ChatPrompt, preset: &Arc<Preset>) -> Result<Counted, Failure> {
        match &*self.kind {
            Kind::Scripted(scripted) => scripted.count(chat, preset),
        }
    }

    pub fn status(&self) -> Status {
        match &*self.kind {
            Kind::Scripted(scripted) => scripted.status(),
        }
    }

    /// Ends every open answer as cancelled and takes no more. Returns when the engine's thread has ended.
    pub async fn shutdown(&self) {
        match &*self.kind {
            Kind::Scripted(scripted) => scripted.shutdown(),
        }
    }

    /// Answers come from a test: see [`scripted`].
    pub fn scripted() -> (Backend, scripted::Script) {
        let (scripted, script) = Scripted::new();
        (Backend { kind: Arc::new(Kind::Scripted(scripted)) }, script)
    }
}
