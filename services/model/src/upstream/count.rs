//! Length of a prompt for an upstream: its own count, or an estimate with a public tokenizer and a margin.

use super::whole;
use super::wire::{messages, template_options};
use crate::measure::Counted;
use crate::request::thinking_of;
use reqwest::{Client, Url};
use serde_json::{Value, json};
use session::{Failure, FailureCode};
use settings::{CountTokens, Preset, UpstreamSettings};
use std::sync::OnceLock;
use std::time::Duration;
use text::chat::ChatPrompt;

/// Counter, which finds out once how this upstream counts.
pub struct Counter {
    client: Client,
    /// Address without `/v1`: counting is no part of the OpenAI interface.
    root: Url,
    mode: CountTokens,
    margin: f64,
    patience: Duration,
    answer_bytes: usize,
    found: OnceLock<Way>,
}

#[derive(Clone, Copy)]
enum Way {
    /// vLLM: `/tokenize` takes the messages.
    Messages,
    /// llama-server: `/apply-template` gives the text, `/tokenize` its tokens.
    Text,
    Estimate,
}

impl Counter {
    pub fn new(
        client: Client,
        root: Url,
        config: &UpstreamSettings,
        answer_bytes: usize,
        patience: Duration,
    ) -> Counter {
        let (mode, margin) = (config.count, config.count_margin);
        Counter { client, root, mode, margin, patience, answer_bytes, found: OnceLock::new() }
    }

    pub async fn count(
        &self,
        chat: &ChatPrompt,
        preset: &Preset,
        model: &str,
        key: Option<&str>,
    ) -> Result<Counted, Failure> {
        let mut ways = match (self.mode, self.found.get()) {
            (CountTokens::Estimate, _) => Vec::new(),
            (_, Some(way)) => vec![*way],
            (_, None) => vec![Way::Messages, Way::Text],
        };
        if self.mode != CountTokens::Tokenize {
            ways.push(Way::Estimate);
        }
        for way in ways {
            let counted = match way {
                Way::Messages => self.by_messages(chat, preset, model, key).await.map(Counted::exactly),
                Way::Text => self.by_text(chat, preset, key).await.map(Counted::exactly),
                Way::Estimate => Some(estimate(chat, self.margin).await?),
            };
            if let Some(counted) = counted {
                // A way that worked once survives a moment's trouble.
                self.found.get_or_init(|| way);
                return Ok(counted);
            }
        }
        Err(Failure::new(
            FailureCode::UpstreamFailed,
            "the upstream does not count tokens; set upstream.count to \"auto\" or \"estimate\"",
        ))
    }

    async fn by_messages(&self, chat: &ChatPrompt, preset: &Preset, model: &str, key: Option<&str>) -> Option<u64> {
        let mut body = body_of(chat, preset);
        (body["model"], body["add_generation_prompt"]) = (json!(model), json!(true));
        let answer = self.post("tokenize", &body, key).await?;
        // A server that does not know messages counts nothing at all.
        let counted = answer["count"].as_u64().map(|count| count.min(u64::from(u32::MAX)));
        counted.or_else(|| Some(answer["tokens"].as_array()?.len() as u64)).filter(|count| *count > 0)
    }

    async fn by_text(&self, chat: &ChatPrompt, preset: &Preset, key: Option<&str>) -> Option<u64> {
        let prompt = self.post("apply-template", &body_of(chat, preset), key).await?;
        let body = json!({ "content": prompt["prompt"].as_str()?, "add_special": true, "parse_special": true });
        let answer = self.post("tokenize", &body, key).await?;
        Some(answer["tokens"].as_array()?.len() as u64).filter(|count| *count > 0)
    }

    async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> Option<Value> {
        let mut request = self.client.post(self.root.join(path).ok()?).json(body).timeout(self.patience);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_slice(&whole(response, self.answer_bytes).await.ok()?).ok()
    }
}

fn body_of(chat: &ChatPrompt, preset: &Preset) -> Value {
    let options = template_options(&chat.options, thinking_of(&chat.options, preset));
    let mut body = json!({ "messages": messages(&chat.messages), "chat_template_kwargs": options });
    if !chat.tools.is_empty() {
        body["tools"] = json!(chat.tools);
    }
    body
}

/// Estimates with a public tokenizer, and adds a margin because the model's is another one.
pub async fn estimate(chat: &ChatPrompt, margin: f64) -> Result<Counted, Failure> {
    let tokens: u64 = weights(chat.messages.iter().chain(&chat.tools)).await?.iter().sum();
    let margin_tokens = (tokens as f64 * margin).ceil() as u64;
    Ok(Counted { tokens: tokens + margin_tokens, exact: false, margin_tokens })
}

pub async fn weights<'a>(messages: impl IntoIterator<Item = &'a Value>) -> Result<Vec<u64>, Failure> {
    let texts: Vec<String> = messages.into_iter().map(text_of).collect();
    let counted = tokio::task::spawn_blocking(move || {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        texts.iter().map(|text| tokenizer.encode_ordinary(text).len() as u64 + AROUND_MESSAGE).collect()
    });
    counted.await.map_err(|_| Failure::new(FailureCode::EngineFailed, "the estimate of tokens failed"))
}

/// Tokens of the marks that templates put around a message: begin, role and end.
const AROUND_MESSAGE: u64 = 5;

/// Returns about the text that a template writes: the words of a message, the JSON of a call or a tool.
fn text_of(message: &Value) -> String {
    let words = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        parts => parts.to_string(),
    };
    match (message.get("tool_calls"), message.get("role")) {
        (Some(calls), _) => format!("{words}{calls}"),
        (None, Some(_)) => words,
        (None, None) => message.to_string(),
    }
}
