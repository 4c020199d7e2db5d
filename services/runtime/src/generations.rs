//! The generations of a session: what the model was asked, and its deltas.

use crate::prompts::request_of;
use crate::shared::Shared;
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use session::Delta;
use session::machine::{Generate, GenerationId, GenerationPurpose};
use settings::Preset;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::Span;

pub struct Generations {
    shared: Arc<Shared>,
    preset: Arc<Preset>,
    /// By which the model knows what it computed of this session.
    past_owner: u64,
    arm: Option<String>,
    /// The number of the turn, for the log.
    turns: u64,
    deltas: SelectAll<BoxStream<'static, (GenerationId, Delta)>>,
    open: HashMap<GenerationId, Generation>,
}

struct Generation {
    cancel: CancellationToken,
    span: Span,
    /// Of a reply in the conversation: it may have to be asked for with less in its prompt.
    generate: Option<Box<Generate>>,
    tries: u32,
    /// The model has refused it, and the compactor makes room.
    waits_for_room: bool,
}

/// What the log says of a generation.
pub struct Begun {
    id: GenerationId,
    is_reply: bool,
    response_id: Option<String>,
}

impl Begun {
    pub fn of(generate: &Generate) -> Begun {
        let is_reply = generate.purpose == GenerationPurpose::Reply;
        Begun { id: generate.generation, is_reply, response_id: generate.response_id.clone() }
    }
}

impl Generations {
    pub fn new(shared: Arc<Shared>, preset: Arc<Preset>, past_owner: u64, arm: Option<String>) -> Generations {
        Generations { shared, preset, past_owner, arm, turns: 0, deltas: SelectAll::new(), open: HashMap::new() }
    }

    pub fn begin(&mut self, begun: Begun) {
        let span = match &begun.response_id {
            Some(request) if begun.is_reply => {
                self.turns += 1;
                tracing::info_span!("turn", turn = self.turns, request = %request, arm = self.arm)
            }
            Some(request) => tracing::info_span!("beside", request = %request),
            None => tracing::debug_span!("ahead"),
        };
        let cancel = CancellationToken::new();
        self.open.insert(begun.id, Generation { cancel, span, generate: None, tries: 0, waits_for_room: false });
    }

    /// Asks, or asks again, for a generation that is known. A prompt that is longer than the limit is refused.
    pub fn ask(&mut self, generate: &Generate, limit_tokens: Option<u32>) {
        let Some(generation) = self.open.get_mut(&generate.generation) else { return };
        let entered = generation.span.enter();
        let mut request = request_of(generate, &self.preset, &self.shared.wording);
        (request.past_owner, request.prompt_limit_tokens) = (Some(self.past_owner), limit_tokens);
        if self.shared.settings.logging.user_text && generate.response_id.is_some() {
            let asked = request.prompt.messages.last().map(|message| message.text()).unwrap_or_default();
            tracing::info!(asked, "a reply is asked for");
        }
        let answer = self.shared.model.ask(request);
        drop(entered);
        generation.waits_for_room = false;
        generation.cancel = answer.canceller();
        let id = generate.generation;
        self.deltas.push(answer.map(move |delta| (id, delta)).boxed());
    }

    /// It may have to be asked for again.
    pub fn keep(&mut self, generate: Box<Generate>) {
        if let Some(generation) = self.open.get_mut(&generate.generation) {
            generation.generate = Some(generate);
        }
    }

    /// What to make room for, and how often that was tried. None: it is over.
    pub fn wait_for_room(&mut self, id: GenerationId, most_tries: u32) -> Option<(Box<Generate>, u32)> {
        let generation = self.open.get_mut(&id)?;
        let generate = generation.generate.clone().filter(|_| generation.tries < most_tries)?;
        generation.tries += 1;
        generation.waits_for_room = true;
        Some((generate, generation.tries))
    }

    /// True: the model will not say that it is over, and it is forgotten.
    pub fn cancel(&mut self, id: GenerationId) -> bool {
        let Some(generation) = self.open.get(&id) else { return false };
        generation.cancel.cancel();
        generation.waits_for_room && self.remove(id)
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
