//! A model whose answers a test gives, at the pace that the test likes.
//!
//! ```text
//! let (model, mut script) = scripted::model();
//! let mut asked = script.next().await;         // the next request
//! asked.prompt(12, 4);
//! asked.say("Hello");                          // ... look at what became of it ...
//! asked.done(Finish::Stop);
//! asked.cancelled().await                      // or wait until it was cancelled
//! ```

use futures_util::future::{BoxFuture, FutureExt, ready};
use model::{
    Answer, Answerer, Counted, Measured, Model, ModelRequest, ModelStatus, PreparationMemory, ResumedReply, Writer,
    channel_for, not_kept,
};
use session::sentences::SentenceLimits;
use session::{
    Delta, Failure, FailureCode, Finish, GenerationPurpose, Message, Part, PastStays, Prompt, TurnReport, Usage,
};
use settings::Preset;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

const SENTENCES: SentenceLimits = SentenceLimits { first_clause_chars: 24, max_sentence_chars: 320 };

struct Scripted {
    asked: mpsc::UnboundedSender<Asked>,
    status: Mutex<ModelStatus>,
    forgotten: Arc<Mutex<Vec<u64>>>,
    last: Mutex<Option<ModelRequest>>,
}

pub struct Script {
    asked: mpsc::UnboundedReceiver<Asked>,
    forgotten: Arc<Mutex<Vec<u64>>>,
}

/// A request and the answer to be given. Dropped without a last delta, the answer fails.
pub struct Asked {
    pub request: ModelRequest,
    writer: Writer,
    usage: Usage,
    calls: usize,
}

pub fn model() -> (Model, Script) {
    let (sender, asked) = mpsc::unbounded_channel();
    let status = ModelStatus { ready: true, model: "scripted".into(), ..ModelStatus::default() };
    let forgotten = Arc::<Mutex<_>>::default();
    let (status, last) = (Mutex::new(status), Mutex::default());
    let scripted = Scripted { asked: sender, status, forgotten: forgotten.clone(), last };
    (Model::new(scripted, PreparationMemory::new(1 << 30, Duration::from_secs(5))), Script { asked, forgotten })
}

impl Answerer for Scripted {
    fn ask(&self, request: ModelRequest) -> Answer {
        let (writer, answer) = channel_for(&request, SENTENCES);
        let window = request.prompt_limit_tokens.unwrap_or(u32::MAX).min(request.preset.ctx_size);
        let tokens = tokens_of(&request.prompt);
        if request.purpose == GenerationPurpose::Reply && tokens > u64::from(window) {
            let message = format!("the prompt has {tokens} tokens and may have {window}");
            writer.fail(Failure::new(FailureCode::PromptTooLong, message));
            return answer;
        }
        if request.purpose == GenerationPurpose::Reply {
            *self.last.lock().unwrap() = Some(request.clone());
        }
        // A test that has ended reads no requests: the answer fails, as it should.
        let _ = self.asked.send(Asked { request, writer, usage: Usage::default(), calls: 0 });
        answer
    }

    /// The last reply is kept; the test says when it has stopped, with `Finish::Held`.
    fn resume(&self, resumed: ResumedReply) -> Answer {
        let (going_on, answer) = resumed.begin();
        let Some((writer, resumed)) = going_on else { return answer };
        let mut last = self.last.lock().unwrap();
        match last.as_mut().filter(|last| last.keep_as == Some(resumed.key)) {
            Some(request) => {
                request.keep_as = Some(resumed.keep_as);
                let request = request.clone();
                let _ = self.asked.send(Asked { request, writer, usage: Usage::default(), calls: 0 });
            }
            None => writer.fail(not_kept()),
        }
        answer
    }

    fn measure<'a>(&'a self, prompt: &'a Prompt, _: &'a Preset) -> BoxFuture<'a, Result<Measured, Failure>> {
        let total = Counted::exactly(tokens_of(prompt));
        let messages = prompt.messages.iter().map(tokens_of_message).collect();
        ready(Ok(Measured { total, messages })).boxed()
    }

    fn status(&self) -> ModelStatus {
        self.status.lock().unwrap().clone()
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        self.status.lock().unwrap().ready = false;
        ready(()).boxed()
    }

    fn forget(&self, past_owner: u64, stays: PastStays) -> BoxFuture<'_, Result<(), Failure>> {
        if stays != PastStays::Memory {
            self.forgotten.lock().unwrap().push(past_owner);
        }
        ready(Ok(())).boxed()
    }
}

impl Script {
    pub async fn next(&mut self) -> Asked {
        self.asked.recv().await.expect("a request comes")
    }

    pub fn try_next(&mut self) -> Option<Asked> {
        self.asked.try_recv().ok()
    }

    pub fn forgotten(&self) -> Vec<u64> {
        self.forgotten.lock().unwrap().clone()
    }
}

impl Asked {
    pub fn prompt(&mut self, input_tokens: u64, cached_tokens: u64) {
        (self.usage.input_tokens, self.usage.cached_tokens) = (input_tokens, cached_tokens);
        self.push(Delta::Prompt { input_tokens, cached_tokens });
    }

    pub fn think(&mut self, text: &str) {
        self.push(Delta::Reasoning { text: text.into(), tokens: 1 });
    }

    pub fn say(&mut self, text: &str) {
        self.push(Delta::text(text, 1));
    }

    pub fn call(&mut self, name: &str, arguments: &str) {
        self.calls += 1;
        self.push(Delta::CallStarted { name: name.into(), call_id: None });
        self.push(Delta::CallArguments { json: arguments.into(), tokens: 1 });
    }

    pub fn done(&mut self, finish: Finish) {
        let finish = if finish == Finish::Stop && self.calls > 0 { Finish::ToolCalls } else { finish };
        let Usage { input_tokens, cached_tokens, .. } = self.usage;
        let report = TurnReport {
            reused_tokens: cached_tokens,
            computed_tokens: input_tokens.saturating_sub(cached_tokens),
            reason: Some("new_text"),
            ..TurnReport::default()
        };
        self.push(Delta::Done { finish, usage: Some(self.usage), report: Some(report) });
    }

    pub fn fail(&mut self, failure: Failure) {
        self.push(Delta::Failed(failure));
    }

    pub fn push(&mut self, delta: Delta) {
        match &delta {
            Delta::Reasoning { tokens, .. } => {
                self.usage.output_tokens += tokens;
                self.usage.reasoning_tokens += tokens;
            }
            Delta::Text { tokens, .. } | Delta::CallArguments { tokens, .. } => self.usage.output_tokens += tokens,
            _ => {}
        }
        self.writer.push(delta);
    }

    pub fn is_cancelled(&self) -> bool {
        self.writer.is_cancelled()
    }

    pub async fn thinking_stopped(&self) {
        self.writer.thinking_stopped().await;
    }

    pub async fn cancelled(&self) {
        self.writer.cancelled().await;
    }
}

fn tokens_of(prompt: &Prompt) -> u64 {
    prompt.messages.iter().map(tokens_of_message).sum()
}

fn tokens_of_message(message: &Message) -> u64 {
    let words = |part: &Part| match part {
        Part::Text(text) => text.split_whitespace().count() as u64,
        Part::Image(_) => 0,
    };
    4 + message.parts.iter().map(words).sum::<u64>()
}
