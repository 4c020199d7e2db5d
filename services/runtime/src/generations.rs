//! The generations of a session: what the model was asked, and its deltas.

use crate::prompts::SessionTools;
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use model::ResumedReply;
use session::machine::{Generate, GenerationId, GenerationPurpose, Resume};
use session::sentences::SentenceLimits;
use session::{Delta, Item};
use settings::Questions;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub struct Generations {
    tools: Arc<SessionTools>,
    sentences: SentenceLimits,
    /// What users say is logged too.
    logs_text: bool,
    arm: Option<String>,
    /// The number of the turn, for the log.
    turns: u64,
    deltas: SelectAll<BoxStream<'static, (GenerationId, Delta)>>,
    open: HashMap<GenerationId, Generation>,
    /// Requests wait until it is known what their prompts may tell, each with the most tokens that its prompt may have.
    held: Option<Vec<(Box<Generate>, Option<u32>)>>,
}

struct Generation {
    cancel: CancellationToken,
    /// Of the answer that is under way.
    thinking_stopper: CancellationToken,
    /// Also where it is asked for again.
    thinks_no_more: bool,
    span: Span,
    /// Of a reply in the conversation: it may have to be asked for with less in its prompt.
    generate: Option<Box<Generate>>,
    tries: u32,
    /// The model has refused it and the compactor makes room, or it is held.
    waits: bool,
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

    /// A reply goes on that was stopped.
    pub fn resume(&mut self, resume: Resume) {
        let Resume { generation, of, made, in_message, ended, is_speech } = resume;
        // What was done ended as it was to end.
        let has_rule = is_speech && ended.is_none();
        let questions = if has_rule { self.tools.preset.questions } else { Questions::Any };
        let key = |generation| self.tools.reply_key(generation);
        let (key, keep_as) = (key(of), key(generation));
        let span = tracing::info_span!("turn", turn = self.turns, arm = self.arm);
        let entered = span.enter();
        tracing::info!("a reply goes on");
        let resumed = ResumedReply { key, keep_as, made, in_message, ended, sentences: self.sentences, questions };
        let answer = self.tools.model.resume(resumed);
        drop(entered);
        let known = Generation {
            cancel: answer.canceller(),
            thinking_stopper: answer.thinking_stopper(),
            thinks_no_more: false,
            span,
            generate: None,
            tries: 0,
            waits: false,
        };
        self.open.insert(generation, known);
        self.deltas.push(answer.map(move |delta| (generation, delta)).boxed());
    }

    pub fn begin(&mut self, generate: Box<Generate>) {
        let is_reply = generate.purpose == GenerationPurpose::Reply;
        let span = match &generate.response_id {
            Some(request) if is_reply => {
                self.turns += 1;
                tracing::info_span!("turn", turn = self.turns, request = %request, arm = self.arm)
            }
            Some(request) => tracing::info_span!("beside", request = %request),
            None => tracing::debug_span!("ahead"),
        };
        let cancel = CancellationToken::new();
        let thinking_stopper = CancellationToken::new();
        let generation = Generation {
            cancel,
            thinking_stopper,
            thinks_no_more: false,
            span,
            generate: None,
            tries: 0,
            waits: false,
        };
        self.open.insert(generate.generation, generation);
        let is_limited = is_reply || generate.purpose == GenerationPurpose::EarlyReply;
        self.ask(&generate, is_limited.then(|| self.tools.limits.hard_tokens()));
        if let Some(generation) = self.open.get_mut(&generate.generation).filter(|_| is_reply) {
            generation.generate = Some(generate);
        }
    }

    /// Asks, or asks again, for a generation that is known. A prompt that is longer than the limit is refused.
    pub fn ask(&mut self, generate: &Generate, limit_tokens: Option<u32>) {
        let Some(generation) = self.open.get_mut(&generate.generation) else { return };
        if let Some(held) = &mut self.held {
            generation.waits = true;
            return held.push((Box::new(generate.clone()), limit_tokens));
        }
        let entered = generation.span.enter();
        let mut request = self.tools.request(generate);
        request.prompt_limit_tokens = limit_tokens;
        if self.logs_text && generate.response_id.is_some() {
            let asked = request.prompt.messages.last().map(|message| message.text()).unwrap_or_default();
            tracing::info!(asked, "a reply is asked for");
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

    /// Holds requests back from now on.
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// Asks for what was held back, without the items that do not stand any more.
    pub fn release(&mut self, stands: impl Fn(&Item) -> bool) {
        for (mut generate, limit_tokens) in self.held.take().into_iter().flatten() {
            generate.items.retain(|item| stands(item));
            self.ask(&generate, limit_tokens);
        }
    }

    /// What to make room for, and how often that was tried. None: it is over.
    pub fn wait_for_room(&mut self, id: GenerationId, most_tries: u32) -> Option<(Box<Generate>, u32)> {
        let generation = self.open.get_mut(&id)?;
        let generate = generation.generate.clone().filter(|_| generation.tries < most_tries)?;
        generation.tries += 1;
        generation.waits = true;
        Some((generate, generation.tries))
    }

    /// True: the model will not say that it is over, and it is forgotten.
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

    pub fn span(&self, id: GenerationId) -> Span {
        self.open.get(&id).map_or_else(Span::none, |generation| generation.span.clone())
    }

    /// The next delta of any of them. None while there is none under way.
    pub async fn next(&mut self) -> Option<(GenerationId, Delta)> {
        self.deltas.next().await
    }
}
