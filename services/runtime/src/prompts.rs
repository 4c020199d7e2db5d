//! From what the machine wants generated to what a model is asked.

use crate::fact_block::FactBlock;
use crate::speakers;
use compaction::CompactionLimits;
use model::{Model, ModelRequest, PLACEHOLDER, Purpose, ReplyKey};
use session::machine::{Generate, GenerationId, GenerationPurpose, has_recall, recall_tool};
use session::prompt::{Context, Layout, Wording, lay_out};
use session::{Item, Message, Prompt, SessionConfig, TemplateOptions};
use settings::{Preset, Questions};
use std::sync::Arc;
use store::{SessionRef, Store};

/// What prompts of a session are made with, and where what is said in it is kept.
pub struct SessionTools {
    pub session: SessionRef,
    /// Whose other conversations it knows of. None: it is not remembered, and knows of none.
    pub person: Option<String>,
    pub facts: FactBlock,
    pub store: Store,
    pub model: Model,
    pub preset: Arc<Preset>,
    pub limits: CompactionLimits,
    pub wording: Arc<Wording>,
}

/// Where a conversation may look for what was said.
#[derive(Clone, Copy)]
pub struct RecallPlace<'a> {
    pub store: &'a Store,
    pub user: &'a str,
    /// None: of a conversation that is not kept.
    pub session: Option<&'a SessionRef>,
    /// Whose other conversations it knows of. None: it is not remembered, and knows of none.
    pub person: Option<&'a str>,
}

impl SessionTools {
    /// `asker` asks. None: the session's person.
    pub fn recall_place<'a>(&'a self, asker: Option<&'a str>) -> RecallPlace<'a> {
        let (store, session) = (&self.store, Some(&self.session));
        let person = self.person.as_deref().map(|own| asker.unwrap_or(own));
        RecallPlace { store, user: self.session.user(), session, person }
    }

    /// The session's person. Empty: the home's guest.
    pub fn own(&self) -> &str {
        self.person.as_deref().unwrap_or_default()
    }

    /// What stands before a client's instructions: those of the persona, and what the preset asks of every reply.
    pub fn persona(&self, config: &SessionConfig) -> String {
        before_instructions(&config.persona, &self.preset, &self.wording)
    }

    /// The prompt of a conversation.
    pub fn prompt(
        &self,
        config: &SessionConfig,
        items: &[Arc<Item>],
        context: &Context,
        partial: Option<&str>,
    ) -> Prompt {
        let (persona, told) = (self.persona(config), self.facts.now());
        let asker = speakers::asker(items);
        let items = speakers::without_past_of_others(items, Some(asker));
        let items = speakers::labelled(&items, self.preset.speakers);
        let layout = Layout {
            persona: &persona,
            instructions: &config.instructions,
            remembered: speakers::remembered(&told.text, self.own(), asker),
            context,
            partial,
            wording: &self.wording,
        };
        prompt_with(config, context, lay_out(&items, &layout).messages)
    }

    pub fn request(&self, generate: &Generate) -> ModelRequest {
        let Generate { config, context, .. } = generate;
        let has_notes = context.notes.iter().any(|note| !note.trim().is_empty());
        let (partial, purpose) = match &generate.purpose {
            GenerationPurpose::Reply | GenerationPurpose::BesideConversation => (None, Purpose::Reply),
            GenerationPurpose::EarlyReply => (None, Purpose::EarlyReply),
            GenerationPurpose::WarmPartial(text) => (Some(text.as_str()), Purpose::WarmPartial),
            // The notes stand before what the user says next, and may be others then.
            GenerationPurpose::WarmHistory => {
                (Some(PLACEHOLDER), Purpose::WarmHistory { placeholders: 1 + usize::from(has_notes) })
            }
        };
        let prompt = self.prompt(config, &generate.items, context, partial);
        let mut request = ModelRequest::new(prompt, self.preset.clone());
        request.purpose = purpose;
        let is_reply = generate.purpose == GenerationPurpose::Reply;
        request.keep_as = is_reply.then(|| self.reply_key(generate.generation));
        request.priority = generate.priority();
        request.max_tokens = generate.max_tokens;
        request.options = (*generate.options).clone();
        request.options.sampling.temperature = config.temperature.map(|temperature| temperature as f32);
        request.tool_choice = config.tool_choice.clone();
        request.parallel_tool_calls = config.parallel_tool_calls;
        self.take(&mut request);
        request
    }

    pub fn reply_key(&self, generation: GenerationId) -> ReplyKey {
        ReplyKey { past_owner: self.session.past_owner(), generation: generation.0 }
    }

    /// What is computed for the request is the session's, and no other user's.
    pub fn take(&self, request: &mut ModelRequest) {
        (request.past_owner, request.user) = (Some(self.session.past_owner()), Some(self.session.past_user()));
    }
}

/// See `SessionTools::persona`.
pub fn before_instructions(persona: &str, preset: &Preset, wording: &Wording) -> String {
    let asked = if preset.questions == Questions::None { wording.no_question.trim() } else { "" };
    [persona.trim(), asked].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

/// Tools and options around messages that are laid out already.
pub fn prompt_with(config: &SessionConfig, context: &Context, messages: Vec<Message>) -> Prompt {
    let mut tools = config.tools.clone();
    if has_recall(config, context) {
        tools.push(recall_tool());
    }
    let options = TemplateOptions { reasoning_effort: config.reasoning_effort.clone(), ..TemplateOptions::default() };
    Prompt { messages, tools, options }
}

pub fn limits_of(preset: &Preset) -> CompactionLimits {
    CompactionLimits {
        ctx_size: preset.ctx_size,
        soft_fill: preset.compaction.soft_fill,
        hard_fill: preset.compaction.hard_fill,
        target_fill: preset.compaction.target_fill,
        tail_tokens: preset.compaction.tail_tokens,
        summary_tokens: preset.compaction.summary_tokens,
        reply_reserve_tokens: preset.reply_reserve_tokens,
    }
}
