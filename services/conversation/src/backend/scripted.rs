//! A backend whose answers a test gives, at the pace that the test likes.
//!
//! ```text
//! let (backend, mut script) = Backend::scripted();
//! let mut asked = script.next().await;         // whoever asks
//! asked.prompt(12, 4);
//! asked.say("Hello");                          // ... look at what became of it ...
//! asked.done(Finish::Stop);
//! asked.cancelled().await                      // or wait until it was cancelled
//! ```

use super::answer::{Answer, Failure, FailureCode, Finish, Piece, Report, Usage, Writer, channel_for};
use super::ask::{Ask, Purpose};
use super::{Counted, Measured, Status};
use settings::Preset;
use std::sync::{Arc, Mutex, PoisonError};
use text::chat::ChatPrompt;
use tokio::sync::mpsc;

pub(super) struct Scripted {
    asked: mpsc::UnboundedSender<Asked>,
    status: Arc<Mutex<Status>>,
    forgotten: Arc<Mutex<Vec<u64>>>,
}

/// The test's end.
pub struct Script {
    asked: mpsc::UnboundedReceiver<Asked>,
    status: Arc<Mutex<Status>>,
    forgotten: Arc<Mutex<Vec<u64>>>,
}

/// One ask and the answer to be given. Dropped without a last piece, the answer fails.
pub struct Asked {
    pub ask: Ask,
    writer: Writer,
    usage: Usage,
    calls: usize,
}

impl Scripted {
    pub fn new() -> (Scripted, Script) {
        let (sender, asked) = mpsc::unbounded_channel();
        let status = Arc::new(Mutex::new(Status { ready: true, model: "scripted".into(), ..Status::default() }));
        let forgotten = Arc::<Mutex<_>>::default();
        let script = Script { asked, status: status.clone(), forgotten: forgotten.clone() };
        (Scripted { asked: sender, status, forgotten }, script)
    }

    pub fn ask(&self, ask: Ask) -> Answer {
        let (writer, answer) = channel_for(&ask);
        let window = ask.prompt_limit_tokens.unwrap_or(u32::MAX).min(ask.preset.ctx_size);
        if ask.purpose == Purpose::Reply && tokens_of(&ask.chat) > u64::from(window) {
            let message = format!("the prompt has {} tokens and may have {window}", tokens_of(&ask.chat));
            writer.fail(Failure::new(FailureCode::PromptTooLong, message));
            return answer;
        }
        // Where no test listens any more the answer fails, as it should.
        let _ = self.asked.send(Asked { ask, writer, usage: Usage::default(), calls: 0 });
        answer
    }

    pub fn count(&self, chat: &ChatPrompt, _preset: &Preset) -> Result<Counted, Failure> {
        Ok(Counted { tokens: tokens_of(chat), exact: true, margin_tokens: 0 })
    }

    pub fn measure(&self, chat: &ChatPrompt) -> Measured {
        let total = Counted { tokens: tokens_of(chat), exact: true, margin_tokens: 0 };
        Measured { total, messages: chat.messages.iter().map(tokens_of_message).collect() }
    }

    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn forget(&self, past_owner: u64) {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).push(past_owner);
    }

    pub fn shutdown(&self) {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).ready = false;
    }
}

impl Script {
    /// The next ask. Panics when nobody can ask any more.
    pub async fn next(&mut self) -> Asked {
        self.asked.recv().await.expect("somebody asks")
    }

    /// An ask that is there already.
    pub fn try_next(&mut self) -> Option<Asked> {
        self.asked.try_recv().ok()
    }

    /// What was to be forgotten so far.
    pub fn forgotten(&self) -> Vec<u64> {
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_status(&self, status: Status) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// Answers every ask with this text, word by word, until the backend is dropped.
    pub async fn answer_all(mut self, reply: impl Fn(&Ask) -> String) {
        while let Some(mut asked) = self.asked.recv().await {
            let text = reply(&asked.ask);
            asked.prompt(tokens_of(&asked.ask.chat), 0);
            for word in text.split_inclusive(' ') {
                asked.say(word);
            }
            asked.done(Finish::Stop);
        }
    }
}

impl Asked {
    pub fn prompt(&mut self, input_tokens: u64, cached_tokens: u64) {
        (self.usage.input_tokens, self.usage.cached_tokens) = (input_tokens, cached_tokens);
        self.push(Piece::Prompt { input_tokens, cached_tokens });
    }

    pub fn think(&mut self, text: &str) {
        self.push(Piece::Reasoning { text: text.into(), tokens: 1 });
    }

    pub fn say(&mut self, text: &str) {
        self.push(Piece::Content { text: text.into(), tokens: 1, logprobs: Vec::new() });
    }

    pub fn call(&mut self, name: &str, arguments: &str) {
        self.calls += 1;
        self.push(Piece::CallStarted { name: name.into(), call_id: None });
        self.push(Piece::CallArguments { json: arguments.into(), tokens: 1 });
    }

    pub fn done(&mut self, finish: Finish) {
        let finish = if finish == Finish::Stop && self.calls > 0 { Finish::ToolCalls } else { finish };
        let Usage { input_tokens, cached_tokens, .. } = self.usage;
        let report = Report {
            reused_tokens: cached_tokens,
            computed_tokens: input_tokens.saturating_sub(cached_tokens),
            reason: Some("new_text"),
            ..Report::default()
        };
        self.push(Piece::Done { finish, usage: self.usage, report });
    }

    pub fn fail(&mut self, failure: Failure) {
        self.push(Piece::Failed(failure));
    }

    /// Any piece, as it is.
    pub fn push(&mut self, piece: Piece) {
        match &piece {
            Piece::Reasoning { tokens, .. } => {
                self.usage.output_tokens += tokens;
                self.usage.reasoning_tokens += tokens;
            }
            Piece::Content { tokens, .. } | Piece::CallArguments { tokens, .. } => self.usage.output_tokens += tokens,
            _ => {}
        }
        self.writer.push(piece);
    }

    pub fn is_cancelled(&self) -> bool {
        self.writer.is_cancelled()
    }

    /// Until nobody wants the answer any more.
    pub async fn cancelled(&self) {
        self.writer.cancelled().await;
    }
}

/// Enough to tell prompts apart, and to fill a window.
fn tokens_of(chat: &ChatPrompt) -> u64 {
    chat.messages.iter().map(tokens_of_message).sum()
}

/// One for each word, and four around it.
fn tokens_of_message(message: &serde_json::Value) -> u64 {
    4 + message["content"].as_str().map_or(0, |content| content.split_whitespace().count() as u64)
}
