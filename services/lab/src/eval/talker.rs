//! A model that is asked one thing after the other, always for its likeliest words.

use crate::answer::{answer, encode, engine_for_one};
use crate::opening;
use anyhow::Result;
use engine::{Engine, EngineRequest, Precision, StopReason};
use model::{OpenedPreset, kv_formats};
use serde_json::{Map, Value, json};
use settings::{Preset, Settings};
use std::sync::Arc;
use text::{Template, Tokenizer};

pub struct Talker {
    engine: Engine,
    tokenizer: Arc<Tokenizer>,
    template: Template,
    preset: Preset,
    precision: Precision,
}

#[derive(Debug, Default)]
pub struct ModelAnswer {
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
        let engine = engine_for_one(executor, device.as_ref(), network, tokenizer.clone(), settings, KEPT_BYTES);
        Talker { engine, tokenizer, template, preset, precision }
    }

    /// The answer to the last message, without thinking.
    pub fn answer(&mut self, messages: &[Value], tools: &[Value], max_tokens: usize) -> Result<ModelAnswer> {
        let mut body = json!({"messages": messages});
        if !tools.is_empty() {
            body["tools"] = json!(tools);
        }
        let prompt = encode(&self.tokenizer, &self.template, &body, false)?;
        let formats = kv_formats(&self.preset, self.precision);
        let mut request = EngineRequest::new(prompt.tokens, self.preset.ctx_size as usize, formats);
        request.marks = prompt.marks;
        request.max_new_tokens = max_tokens;
        request.sampling.temperature = 0.0;
        let answer = answer(&mut self.engine, request, false, &prompt.tools, &mut |_| Ok(()))?;
        let parsed = |text: &str| serde_json::from_str(if text.is_empty() { "{}" } else { text }).unwrap_or_default();
        Ok(ModelAnswer {
            content: answer.content,
            calls: answer.calls.into_iter().map(|(name, arguments)| (name, parsed(&arguments))).collect(),
            tokens: answer.tokens.len() as u32,
            finished: matches!(answer.stop_reason, StopReason::End { .. }),
        })
    }

    /// Tokens of a prompt of these and of an empty message of the user: without one the template makes no prompt.
    pub fn count(&self, messages: &[Value]) -> Result<u32> {
        let messages = [messages, &[json!({"role": "user", "content": ""})]].concat();
        let prompt = encode(&self.tokenizer, &self.template, &json!({"messages": messages}), false)?;
        Ok(u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX))
    }
}

/// Enough for one conversation of a small model.
const KEPT_BYTES: usize = 1 << 30;
