//! A model that is asked one thing after the other, always for its likeliest words.

use anyhow::{Result, bail};
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, Precision, StopReason};
use model::{OpenedPreset, kv_formats};
use serde_json::{Map, Value, json};
use settings::{Preset, Settings};
use std::sync::Arc;
use text::{EncodedPrompt, ReplyParser, ReplyPart, Template, Tokenizer};

use crate::opening;

pub struct Talker {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    template: Template,
    preset: Preset,
    precision: Precision,
}

#[derive(Debug, Default)]
pub struct Said {
    pub content: String,
    /// Name and arguments of each call.
    pub calls: Vec<(String, Map<String, Value>)>,
    pub tokens: u32,
    /// The model ended it, not a limit.
    pub finished: bool,
}

impl Talker {
    pub fn new(opened: OpenedPreset, settings: &Settings, precision: Precision) -> Talker {
        let OpenedPreset { network, tokenizer, template, preset, executor, .. } = opened;
        let (executor, device) = opening::executor(settings, executor);
        let limits = EngineLimits {
            prefill_chunk_tokens: settings.engine.chunk_tokens(device.is_some()),
            max_sequences: 1,
            max_waiting: 1,
            memory_bytes: device.map_or(KEPT_BYTES, |memory| memory.left_bytes.min(KEPT_BYTES)),
            snapshots: engine::snapshot::FORMATS[0],
            snapshot_spacing_tokens: usize::MAX,
            recurrence_log_tokens: 0,
        };
        let engine = Engine::new(executor, network, tokenizer.clone(), limits);
        Talker { engine, tokenizer, template, preset, precision }
    }

    /// The answer to the last message, without thinking.
    pub fn answer(&mut self, messages: &[Value], tools: &[Value], max_tokens: usize) -> Result<Said> {
        let (tools, encoded) = self.encode(messages, tools)?;
        let formats = kv_formats(&self.preset, self.precision);
        let mut request = EngineRequest::new(encoded.tokens, self.preset.ctx_size as usize, formats);
        request.marks = encoded.marks;
        request.max_new_tokens = max_tokens;
        request.sampling.temperature = 0.0;
        self.engine.submit(request)?;
        self.listen(&tools)
    }

    /// Tokens of a prompt of these and of a user who says nothing: without a user the template makes none.
    pub fn count(&self, messages: &[Value]) -> Result<u32> {
        let messages = [messages, &[json!({"role": "user", "content": ""})]].concat();
        Ok(u32::try_from(self.encode(&messages, &[])?.1.tokens.len()).unwrap_or(u32::MAX))
    }

    fn encode(&self, messages: &[Value], tools: &[Value]) -> Result<(Vec<Value>, EncodedPrompt)> {
        let mut body = json!({"messages": messages});
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        let mut chat = text::chat::normalise(&body)?;
        chat.options.insert("enable_thinking".to_owned(), json!(false));
        let rendered = self.template.render(&chat.prompt(None))?;
        let encoded = text::encode_prompt(&self.tokenizer, &rendered);
        Ok((chat.tools, encoded))
    }

    fn listen(&mut self, tools: &[Value]) -> Result<Said> {
        let (mut parser, mut pieces, mut events) = (ReplyParser::new(false, tools), Vec::new(), Vec::new());
        let mut tokens = 0;
        loop {
            self.engine.step(&mut events);
            for event in events.drain(..) {
                match event {
                    EngineEvent::Started { .. } => {}
                    EngineEvent::Token(token) => {
                        tokens += 1;
                        parser.push(&token.text, &mut pieces);
                    }
                    EngineEvent::Failed { error, .. } => return Err(error.into()),
                    EngineEvent::Done { stop_reason, .. } => {
                        if let StopReason::End { rest }
                        | StopReason::Length { rest }
                        | StopReason::Window { rest }
                        | StopReason::Cancelled { rest } = &stop_reason
                        {
                            parser.push(rest, &mut pieces);
                        }
                        parser.finish(&mut pieces);
                        let finished = matches!(stop_reason, StopReason::End { .. });
                        return Ok(Said { tokens, finished, ..said(pieces)? });
                    }
                }
            }
        }
    }
}

/// Enough for one conversation of a small model; what was asked before may be forgotten.
const KEPT_BYTES: usize = 1 << 30;

fn said(pieces: Vec<ReplyPart>) -> Result<Said> {
    let (mut said, mut arguments) = (Said::default(), Vec::<(String, String)>::new());
    for piece in pieces {
        match piece {
            ReplyPart::Reasoning(_) => {}
            ReplyPart::Content(text) => said.content += &text,
            ReplyPart::Call { name, .. } => arguments.push((name, String::new())),
            ReplyPart::Arguments { json, .. } => match arguments.last_mut() {
                Some((_, text)) => *text += &json,
                None => bail!("arguments came before their call"),
            },
        }
    }
    for (name, text) in arguments {
        let arguments = serde_json::from_str(if text.is_empty() { "{}" } else { &text }).unwrap_or_default();
        said.calls.push((name, arguments));
    }
    Ok(said)
}
