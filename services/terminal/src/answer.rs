//! One reply at a time of a model in this process, without a service.

use crate::opening::ReadyModel;
use anyhow::{Result, bail};
use engine::open::OpenedModel;
use engine::state::KvFormats;
use engine::{DraftLimits, Engine, EngineEvent, EngineLimits, EngineRequest, RequestReport, StopReason};
use session::Prompt;
use settings::{Preset, Settings};
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::{ReplyParser, ReplyPart, Template, TemplateInput, Tokenizer, ToolSchema};

pub struct LocalModel {
    engine: Engine,
    pub tokenizer: Arc<Tokenizer>,
    template: Template,
    pub preset: Preset,
    kv: KvFormats,
}

/// A prompt as tokens, with the tools whose schemas give arguments their types.
#[derive(Default)]
pub struct TokenPrompt {
    pub tokens: Vec<u32>,
    pub marks: Vec<usize>,
    pub tools: Vec<ToolSchema>,
}

pub struct EngineAnswer {
    pub content: String,
    pub reasoning: String,
    pub calls: Vec<(String, String)>, // name of each call, and its arguments as JSON
    pub tokens: Vec<u32>,
    pub stop_reason: StopReason,
    pub report: RequestReport,
    pub first_token: Option<Duration>, // `None`: no token came
    pub total: Duration,
}

impl LocalModel {
    /// Opens a model that caches `most_bytes` at most: earlier prompts may be computed again.
    pub fn new(model: ReadyModel, settings: &Settings, most_bytes: usize) -> LocalModel {
        let ReadyModel { opened, executor, device, kv, .. } = model;
        let limits = EngineLimits {
            prefill_chunk_tokens: match &device {
                Some(memory) => memory.chunk_tokens,
                None => settings.engine.prefill_chunk_tokens,
            },
            max_sequences: 1,
            max_waiting: 1,
            max_logit_bias: usize::MAX,
            memory_bytes: device.map_or(most_bytes, |memory| memory.left_bytes.min(most_bytes)),
            moved_snapshot_bytes: 0,
            snapshots: engine::snapshot::FORMATS[0],
            snapshot_spacing_tokens: usize::MAX,
            // As far back as a rejected draft.
            recurrence_log_tokens: settings.memory.recurrence_log_tokens,
            heads: 0,
        };
        let OpenedModel { network, tokenizer, template, .. } = opened.model;
        let mut engine = Engine::new(executor, network, tokenizer.clone(), limits);
        engine.use_drafts(model::drafts(settings));
        LocalModel { engine, tokenizer, template, preset: opened.preset, kv }
    }

    pub fn use_drafts(&mut self, limits: DraftLimits) {
        self.engine.use_drafts(limits);
    }

    /// Renders and encodes a prompt. `thinking` decides if the prompt's options do not.
    pub fn encode(&self, prompt: &Prompt, thinking: bool) -> Result<TokenPrompt> {
        let thinks = Some(prompt.options.thinks().unwrap_or(thinking));
        let rendered = self.template.render(&TemplateInput { thinks, ..TemplateInput::of(prompt) })?;
        let encoded = text::encode_prompt(&self.tokenizer, &rendered);
        let tools = ToolSchema::of_all(&prompt.tools);
        Ok(TokenPrompt { tokens: encoded.tokens, marks: encoded.marks, tools })
    }

    /// Answers a prompt. `options` changes the request; `show` receives each piece of the reply as it comes.
    pub fn answer(
        &mut self,
        prompt: TokenPrompt,
        options: impl FnOnce(&mut EngineRequest),
        show: &mut dyn FnMut(&ReplyPart) -> Result<()>,
    ) -> Result<EngineAnswer> {
        let begin = Instant::now();
        let mut request = EngineRequest::new(prompt.tokens, self.preset.ctx_size as usize, self.kv);
        request.marks = prompt.marks;
        options(&mut request);
        let mut parser = ReplyParser::new(request.thinking.open, &prompt.tools);
        self.engine.submit(request)?;
        let (mut pieces, mut events) = (Vec::new(), Vec::new());
        let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<(String, String)>::new());
        let (mut tokens, mut first_token) = (Vec::new(), None);
        let mut ended = None;
        while ended.is_none() {
            let step = Instant::now();
            self.engine.step(&mut events);
            self.engine.took(step.elapsed());
            for event in events.drain(..) {
                match event {
                    EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } => {}
                    EngineEvent::Token(token) => {
                        first_token.get_or_insert_with(|| begin.elapsed());
                        tokens.push(token.token);
                        parser.push(&token.text, &mut pieces);
                    }
                    EngineEvent::Done { stop_reason, report, .. } => {
                        if let StopReason::End { rest }
                        | StopReason::Length { rest }
                        | StopReason::Window { rest }
                        | StopReason::Cancelled { rest } = &stop_reason
                        {
                            parser.push(rest, &mut pieces);
                        }
                        parser.finish(&mut pieces);
                        ended = Some((stop_reason, report, begin.elapsed()));
                    }
                    EngineEvent::Failed { error, .. } => return Err(error.into()),
                }
            }
            for piece in pieces.drain(..) {
                show(&piece)?;
                match piece {
                    ReplyPart::Reasoning(text) => reasoning += &text,
                    ReplyPart::Content(text) => content += &text,
                    ReplyPart::Call { name, .. } => calls.push((name, String::new())),
                    ReplyPart::Arguments { json, .. } => match calls.last_mut() {
                        Some((_, arguments)) => *arguments += &json,
                        None => bail!("arguments came before their call"),
                    },
                }
            }
        }
        let Some((stop_reason, report, total)) = ended else { bail!("the engine stopped without an answer") };
        Ok(EngineAnswer { content, reasoning, calls, tokens, stop_reason, report, first_token, total })
    }
}
