//! Generations of a session: the requests to the model, and its deltas.

use crate::prompts::SessionTools;
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use model::ResumedReply;
use session::machine::{Generate, GenerationId, Resume};
use session::sentences::SentenceLimits;
use session::{Delta, GenerationPurpose, Item};
use settings::Questions;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use telemetry::{ToolTrace, TraceParent};
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub struct Generations {
    tools: Arc<SessionTools>,
    sentences: SentenceLimits,
    logs_text: bool,
    arm: Option<String>,
    turns: u64,
    deltas: SelectAll<BoxStream<'static, (GenerationId, Delta)>>,
    open: HashMap<GenerationId, Generation>,
    /// Requests that wait until the session knows which facts their prompts may tell, each with the limit of its
    /// prompt's tokens.
    held: Option<Vec<(Box<Generate>, Option<u32>)>>,
}

struct Generation {
    cancel: CancellationToken,
    thinking_stopper: CancellationToken,
    /// True if the model shall answer without thinking, also when it is asked again.
    thinks_no_more: bool,
    span: Span,
    place: Option<TraceParent>,
    /// True for a prompt that is read ahead and answers nothing.
    warms: bool,
    generate: Option<Box<Generate>>,
    tries: u32,
    waits: bool,
}

impl Generation {
    fn new(cancel: CancellationToken, thinking_stopper: CancellationToken, span: Span) -> Generation {
        Generation {
            cancel,
            thinking_stopper,
            thinks_no_more: false,
            span,
            place: None,
            warms: false,
            generate: None,
            tries: 0,
            waits: false,
        }
    }
}

impl Generations {
    pub fn new(
        tools: Arc<SessionTools>,
        sentences: SentenceLimits,
        logs_text: bool,
        arm: Option<String>,
    ) -> Generations {
        Generations {
            tools,
            sentences,
            logs_text,
            arm,
            turns: 0,
            deltas: SelectAll::new(),
            open: HashMap::new(),
            held: None,
        }
    }

    pub fn resume(&mut self, resume: Resume) {
        let Resume { generation, of, made, in_message, ended, is_speech } = resume;
        // What was done ended as it was to end.
        let has_rule = is_speech && ended.is_none();
        let questions = if has_rule { self.tools.preset.questions } else { Questions::Any };
        let key = |generation| self.tools.reply_key(generation);
        let (key, keep_as) = (key(of), key(generation));
        let span = tracing::info_span!("turn", turn = self.turns, arm = self.arm);
        let entered = span.enter();
        tracing::info!("a stopped reply resumes");
        let resumed = ResumedReply { key, keep_as, made, in_message, ended, sentences: self.sentences, questions };
        let answer = self.tools.model.resume(resumed);
        drop(entered);
        let known = Generation::new(answer.canceller(), answer.thinking_stopper(), span);
        self.open.insert(generation, known);
        self.deltas.push(answer.map(move |delta| (generation, delta)).boxed());
    }

    // `place`: that of its turn in a trace.
    pub fn begin(&mut self, generate: Box<Generate>, place: Option<TraceParent>) {
        let is_reply = generate.is_reply();
        let span = match &generate.response_id {
            Some(request) if is_reply => {
                self.turns += 1;
                tracing::info_span!("turn", turn = self.turns, request = %request, arm = self.arm)
            }
            Some(request) => tracing::info_span!("beside", request = %request),
            None => tracing::debug_span!("ahead"),
        };
        let warms = matches!(generate.purpose, GenerationPurpose::WarmHistory | GenerationPurpose::WarmPartial);
        let known = Generation::new(CancellationToken::new(), CancellationToken::new(), span);
        self.open.insert(generate.generation, Generation { warms, place, ..known });
        let is_limited = is_reply || generate.purpose == GenerationPurpose::EarlyReply;
        self.ask(&generate, is_limited.then(|| self.tools.limits.hard_tokens()));
        if let Some(generation) = self.open.get_mut(&generate.generation).filter(|_| is_reply) {
            generation.generate = Some(generate);
        }
    }

    /// Asks for a known generation, for the first time or again. The model refuses a prompt that is longer than the
    /// limit.
    pub fn ask(&mut self, generate: &Generate, limit_tokens: Option<u32>) {
        let Some(generation) = self.open.get_mut(&generate.generation) else { return };
        if let Some(held) = &mut self.held {
            generation.waits = true;
            return held.push((Box::new(generate.clone()), limit_tokens));
        }
        let entered = generation.span.enter();
        let mut request = self.tools.request(generate);
        (request.prompt_limit_tokens, request.trace_parent) = (limit_tokens, generation.place);
        if self.logs_text && generate.response_id.is_some() {
            let asked = request.prompt.messages.last().map(|message| message.text()).unwrap_or_default();
            tracing::info!(asked, "the model is asked for a reply");
        }
        let answer = self.tools.model.ask(request);
        drop(entered);
        generation.waits = false;
        generation.cancel = answer.canceller();
        generation.thinking_stopper = answer.thinking_stopper();
        if generation.thinks_no_more {
            generation.thinking_stopper.cancel();
        }
        let id = generate.generation;
        self.deltas.push(answer.map(move |delta| (id, delta)).boxed());
    }

    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Sends the held requests, without the items that no longer stand.
    pub fn release(&mut self, stands: impl Fn(&Item) -> bool) {
        for (mut generate, limit_tokens) in self.held.take().into_iter().flatten() {
            generate.items.retain(|item| stands(item));
            self.ask(&generate, limit_tokens);
        }
    }

    pub fn wait_for_room(&mut self, id: GenerationId, most_tries: u32) -> Option<(Box<Generate>, u32)> {
        let generation = self.open.get_mut(&id)?;
        let generate = generation.generate.clone().filter(|_| generation.tries < most_tries)?;
        generation.tries += 1;
        generation.waits = true;
        Some((generate, generation.tries))
    }

    /// Cancels a generation. True if the model will not report its end: it is forgotten at once.
    pub fn cancel(&mut self, id: GenerationId) -> bool {
        let Some(generation) = self.open.get(&id) else { return false };
        generation.cancel.cancel();
        generation.waits && self.remove(id)
    }

    pub fn stop_thinking(&mut self, id: GenerationId) {
        if let Some(generation) = self.open.get_mut(&id) {
            generation.thinks_no_more = true;
            generation.thinking_stopper.cancel();
        }
    }

    pub fn remove(&mut self, id: GenerationId) -> bool {
        self.open.remove(&id).is_some()
    }

    pub fn warms(&self, id: GenerationId) -> bool {
        self.open.get(&id).is_some_and(|generation| generation.warms)
    }

    pub fn span(&self, id: GenerationId) -> Span {
        self.open.get(&id).map_or_else(Span::none, |generation| generation.span.clone())
    }

    pub fn trace_of_search(&self, id: GenerationId) -> Option<ToolTrace> {
        let turn = self.open.get(&id)?.place?;
        Some(ToolTrace { turn, name: session::machine::RECALL.to_owned(), call_id: None, began: SystemTime::now() })
    }

    pub async fn next(&mut self) -> Option<(GenerationId, Delta)> {
        self.deltas.next().await
    }
}
