//! Requests to a model for the generations that a session's machine wants.

use crate::encoding::Encoding;
use crate::fact_block::{BlockFacts, FactBlock};
use compaction::CompactionLimits;
use model::{Model, ModelRequest, ReplyKey};
use prompt::{Audience, LaidOut, Layout, PLACEHOLDER, Wording, lay_out};
use session::machine::{Generate, GenerationId};
use session::{Context, GenerationPurpose, Item, ResponseFormat, SessionConfig, ToolChoice};
use settings::Preset;
use std::sync::Arc;
use store::{SessionRef, Store};

pub struct SessionTools {
    pub session: SessionRef,
    /// Person whose other conversations the session knows. `None`: it is not remembered, and knows of no other.
    pub person: Option<String>,
    pub reused_by: u64,
    pub facts: FactBlock,
    pub store: Store,
    pub encoding: Arc<Encoding>,
    pub model: Model,
    pub preset: Arc<Preset>,
    pub limits: CompactionLimits,
    pub wording: Arc<Wording>,
}

#[derive(Clone, Copy)]
pub struct RecallPlace<'a> {
    pub store: &'a Store,
    pub user: &'a str,
    pub session: Option<&'a SessionRef>,
    pub person: Option<&'a str>,
    pub encoding: &'a Encoding,
}

impl SessionTools {
    pub fn recall_place<'a>(&'a self, asker: Option<&'a str>) -> RecallPlace<'a> {
        let (store, session) = (&self.store, Some(&self.session));
        let person = self.person.as_deref().map(|own| asker.unwrap_or(own));
        RecallPlace { store, user: self.session.user(), session, person, encoding: &self.encoding }
    }

    pub fn own(&self) -> &str {
        self.person.as_deref().unwrap_or_default()
    }

    pub fn prompt(
        &self,
        config: &SessionConfig,
        items: &[Arc<Item>],
        context: &Context,
        partial: Option<&str>,
    ) -> LaidOut {
        let told = self.facts.now();
        let layout = Layout { partial, ..self.layout(config, context, &told, Audience::Asker) };
        lay_out(items, &layout)
    }

    pub fn layout<'a>(
        &'a self,
        config: &'a SessionConfig,
        context: &'a Context,
        told: &'a BlockFacts,
        audience: Audience,
    ) -> Layout<'a> {
        Layout {
            questions: self.preset.questions,
            remembered: &told.text,
            person: self.person.as_deref(),
            audience,
            speakers: self.preset.speakers,
            ..Layout::new(config, context, &self.wording)
        }
    }

    pub fn request(&self, generate: &Generate) -> ModelRequest {
        let Generate { config, context, purpose, .. } = generate;
        let partial = match purpose {
            GenerationPurpose::WarmHistory => Some(PLACEHOLDER),
            _ => generate.partial.as_deref(),
        };
        let LaidOut { prompt, marks, .. } = self.prompt(config, &generate.items, context, partial);
        // The notes stand before what the user says next, and may be others then.
        let placeholders = prompt.messages.len() - marks.history;
        let mut request = ModelRequest::new(prompt, self.preset.clone());
        (request.purpose, request.placeholders) = (*purpose, placeholders);
        request.keep_as = generate.is_reply().then(|| self.reply_key(generate.generation));
        request.priority = generate.priority();
        request.max_tokens = generate.max_tokens;
        request.options = (*generate.options).clone();
        request.options.sampling.temperature = config.temperature.map(|temperature| temperature as f32);
        request.tool_choice = tool_choice_of(generate);
        request.parallel_tool_calls = config.parallel_tool_calls;
        self.take(&mut request);
        request
    }

    pub fn reply_key(&self, generation: GenerationId) -> ReplyKey {
        ReplyKey { past_owner: self.session.past_owner(), generation: generation.0 }
    }

    /// Keeps the data that is computed for the request to the session, its user and its person.
    pub fn take(&self, request: &mut ModelRequest) {
        (request.past_owner, request.user) = (Some(self.session.past_owner()), Some(self.session.past_user()));
        request.reused_by = Some(self.reused_by);
    }
}

// Returns the client's choice. A client that wants a form and has no tools does not know of the one that the service offers.
fn tool_choice_of(generate: &Generate) -> ToolChoice {
    let Generate { config, options, .. } = generate;
    match config.tool_choice {
        ToolChoice::Auto if config.tools.is_empty() && options.response_format != ResponseFormat::Text => {
            ToolChoice::None
        }
        _ => config.tool_choice.clone(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use session::{GenerationOptions, Tool};

    #[test]
    fn who_wants_a_form_is_not_refused_for_a_tool_of_the_service() {
        let choice = |tools: usize, response_format: ResponseFormat| {
            let tool = Tool { name: "light".into(), description: None, parameters: None, verbatim: None };
            let config = Arc::new(SessionConfig { tools: vec![tool; tools], ..SessionConfig::new("") });
            let options = Arc::new(GenerationOptions { response_format, ..GenerationOptions::default() });
            tool_choice_of(&Generate {
                generation: GenerationId(1),
                response_id: None,
                purpose: GenerationPurpose::Reply,
                is_beside: false,
                partial: None,
                items: Vec::new(),
                context: Arc::default(),
                max_tokens: None,
                config,
                options,
            })
        };
        assert_eq!(choice(0, ResponseFormat::JsonObject), ToolChoice::None);
        assert_eq!(choice(0, ResponseFormat::Text), ToolChoice::Auto);
        assert_eq!(
            choice(1, ResponseFormat::JsonObject),
            ToolChoice::Auto,
            "that is refused, and the client knows why"
        );
    }
}
