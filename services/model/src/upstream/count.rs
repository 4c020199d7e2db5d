//! How long a prompt is for an upstream: asked of the upstream, or estimated with a public tokenizer and a margin.

use super::wire::{messages, template_options};
use crate::measure::Counted;
use crate::request::thinking_of;
use reqwest::{Client, Url};
use serde_json::{Value, json};
use session::{Failure, FailureCode};
use settings::{CountTokens, Preset};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use text::chat::ChatPrompt;

/// How this upstream counts, found out once.
pub struct Counter {
    client: Client,
    /// Without `/v1`: counting is no part of the OpenAI interface.
    root: Url,
    mode: CountTokens,
    margin: f64,
    patience: Duration,
    found: AtomicU8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown = 0,
    /// vLLM: `/tokenize` takes the messages.
    Messages = 1,
    /// llama-server: `/apply-template` gives the text, `/tokenize` its tokens.
    Text = 2,
    Estimate = 3,
}

impl Counter {
    pub fn new(client: Client, root: Url, mode: CountTokens, margin: f64, patience: Duration) -> Counter {
        Counter { client, root, mode, margin, patience, found: AtomicU8::new(Way::Unknown as u8) }
    }

    pub async fn count(
        &self,
        chat: &ChatPrompt,
        preset: &Preset,
        model: &str,
        key: Option<&str>,
    ) -> Result<Counted, Failure> {
        let ways: &[Way] = match (self.mode, self.way()) {
            (CountTokens::Estimate, _) => &[Way::Estimate],
            (CountTokens::Auto, Way::Estimate) => &[Way::Estimate],
            (CountTokens::Auto, Way::Messages) => &[Way::Messages, Way::Estimate],
            (CountTokens::Auto, Way::Text) => &[Way::Text, Way::Estimate],
            (CountTokens::Auto, Way::Unknown) => &[Way::Messages, Way::Text, Way::Estimate],
            (CountTokens::Tokenize, Way::Messages) => &[Way::Messages],
            (CountTokens::Tokenize, Way::Text) => &[Way::Text],
            (CountTokens::Tokenize, _) => &[Way::Messages, Way::Text],
        };
        for way in ways {
            let tokens = match way {
                Way::Messages => self.by_messages(chat, preset, model, key).await,
                Way::Text => self.by_text(chat, preset, key).await,
                Way::Estimate | Way::Unknown => {
                    self.remember(Way::Estimate);
                    return estimate(chat, self.margin).await;
                }
            };
            if let Some(tokens) = tokens {
                self.remember(*way);
                return Ok(Counted::exactly(tokens));
            }
        }
        Err(Failure::new(
            FailureCode::UpstreamFailed,
            "the upstream does not count tokens; set upstream.count to \"auto\" or \"estimate\"",
        ))
    }

    fn way(&self) -> Way {
        let found = self.found.load(Ordering::Relaxed);
        [Way::Messages, Way::Text, Way::Estimate].into_iter().find(|way| *way as u8 == found).unwrap_or(Way::Unknown)
    }

    /// A way that worked once is not given up because of a moment's trouble.
    fn remember(&self, way: Way) {
        let _ = self.found.compare_exchange(Way::Unknown as u8, way as u8, Ordering::Relaxed, Ordering::Relaxed);
    }

    async fn by_messages(&self, chat: &ChatPrompt, preset: &Preset, model: &str, key: Option<&str>) -> Option<u64> {
        let mut body = json!({
            "model": model, "messages": messages(&chat.messages), "add_generation_prompt": true,
            "chat_template_kwargs": template_options(&chat.options, thinking_of(&chat.options, preset)),
        });
        if !chat.tools.is_empty() {
            body["tools"] = json!(chat.tools);
        }
        let answer = self.post("tokenize", &body, key).await?;
        // A server that does not know messages counts nothing at all.
        answer["count"].as_u64().or_else(|| Some(answer["tokens"].as_array()?.len() as u64)).filter(|count| *count > 0)
    }

    async fn by_text(&self, chat: &ChatPrompt, preset: &Preset, key: Option<&str>) -> Option<u64> {
        let mut body = json!({
            "messages": messages(&chat.messages),
            "chat_template_kwargs": template_options(&chat.options, thinking_of(&chat.options, preset)),
        });
        if !chat.tools.is_empty() {
            body["tools"] = json!(chat.tools);
        }
        let prompt = self.post("apply-template", &body, key).await?;
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
        response.json().await.ok()
    }
}

/// By a public tokenizer, with so much more because the model's is another one.
pub async fn estimate(chat: &ChatPrompt, margin: f64) -> Result<Counted, Failure> {
    let tokens: u64 = weights(chat.messages.iter().chain(&chat.tools)).await?.iter().sum();
    let margin_tokens = (tokens as f64 * margin).ceil() as u64;
    Ok(Counted { tokens: tokens + margin_tokens, exact: false, margin_tokens })
}

/// How long each of these is for a public tokenizer.
pub async fn weights<'a>(messages: impl IntoIterator<Item = &'a Value>) -> Result<Vec<u64>, Failure> {
    let texts: Vec<String> = messages.into_iter().map(text_of).collect();
    let counted = tokio::task::spawn_blocking(move || {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        texts.iter().map(|text| tokenizer.encode_ordinary(text).len() as u64 + AROUND_MESSAGE).collect()
    });
    counted.await.map_err(|_| Failure::new(FailureCode::EngineFailed, "the estimate of tokens failed"))
}

/// Marks of begin, role and end that templates put around a message.
const AROUND_MESSAGE: u64 = 5;

/// What a template writes of a message is its words; of a call or a tool about its JSON.
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
