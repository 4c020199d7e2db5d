//! Length of a prompt for an upstream: its own count, or an estimate with a public tokenizer and a margin.

use super::whole;
use super::wire::{messages, template_options};
use crate::measure::Counted;
use crate::request::thinking_of;
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use serde_json::{Value, json};
use session::{Failure, FailureCode, Message, Prompt};
use settings::{CountTokens, Preset, UpstreamSettings};
use std::sync::OnceLock;
use std::time::Duration;
use text::template::{message_json, tool_json};

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

#[derive(Clone, Copy, PartialEq, Eq)]
enum NoCount {
    // The upstream has no such thing.
    Unknown,
    // It could not be reached, or had no answer just now.
    Trouble,
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
        prompt: &Prompt,
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
        let mut may_count_later = false;
        for way in ways {
            let counted = match way {
                Way::Messages => self.by_messages(prompt, preset, model, key).await.map(Counted::exactly),
                Way::Text => self.by_text(prompt, preset, key).await.map(Counted::exactly),
                Way::Estimate => Ok(estimate(prompt, self.margin).await?),
            };
            match counted {
                Ok(counted) => {
                    // A way that worked once survives a moment's trouble. An estimate in one is not for ever.
                    if !may_count_later {
                        self.found.get_or_init(|| way);
                    }
                    return Ok(counted);
                }
                Err(no_count) => may_count_later |= no_count == NoCount::Trouble,
            }
        }
        Err(Failure::new(
            FailureCode::UpstreamFailed,
            "the upstream does not count tokens; set upstream.count to \"auto\" or \"estimate\"",
        ))
    }

    pub async fn slots(&self, key: Option<&str>) -> Option<u32> {
        let request = self.client.get(self.root.join("props").ok()?);
        let answer = self.answer(request, key).await.ok()?;
        answer["total_slots"].as_u64().and_then(|slots| u32::try_from(slots).ok())
    }

    async fn by_messages(
        &self,
        prompt: &Prompt,
        preset: &Preset,
        model: &str,
        key: Option<&str>,
    ) -> Result<u64, NoCount> {
        let mut body = body_of(prompt, preset);
        (body["model"], body["add_generation_prompt"]) = (json!(model), json!(true));
        let answer = self.post("tokenize", &body, key).await?;
        // A server that does not know messages counts nothing at all.
        let counted = answer["count"].as_u64().map(|count| count.min(u64::from(u32::MAX)));
        let counted = counted.or_else(|| Some(answer["tokens"].as_array()?.len() as u64));
        counted.filter(|count| *count > 0).ok_or(NoCount::Unknown)
    }

    async fn by_text(&self, prompt: &Prompt, preset: &Preset, key: Option<&str>) -> Result<u64, NoCount> {
        let prompt = self.post("apply-template", &body_of(prompt, preset), key).await?;
        let text = prompt["prompt"].as_str().ok_or(NoCount::Unknown)?;
        let body = json!({ "content": text, "add_special": true, "parse_special": true });
        let answer = self.post("tokenize", &body, key).await?;
        let counted = answer["tokens"].as_array().map(|tokens| tokens.len() as u64);
        counted.filter(|count| *count > 0).ok_or(NoCount::Unknown)
    }

    async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> Result<Value, NoCount> {
        let url = self.root.join(path).map_err(|_| NoCount::Unknown)?;
        self.answer(self.client.post(url).json(body), key).await
    }

    async fn answer(&self, request: RequestBuilder, key: Option<&str>) -> Result<Value, NoCount> {
        let mut request = request.timeout(self.patience);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.map_err(|_| NoCount::Trouble)?;
        let status = response.status();
        if !status.is_success() {
            let has_trouble = status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
                || status == StatusCode::TOO_MANY_REQUESTS;
            return Err(if has_trouble { NoCount::Trouble } else { NoCount::Unknown });
        }
        let body = whole(response, self.answer_bytes).await.map_err(|_| NoCount::Trouble)?;
        serde_json::from_slice(&body).map_err(|_| NoCount::Unknown)
    }
}

fn body_of(prompt: &Prompt, preset: &Preset) -> Value {
    let options = template_options(&prompt.options, thinking_of(&prompt.options, preset));
    let mut body = json!({ "messages": messages(&prompt.messages), "chat_template_kwargs": options });
    if !prompt.tools.is_empty() {
        body["tools"] = prompt.tools.iter().map(tool_json).collect();
    }
    body
}

/// Estimates with a public tokenizer, and adds a margin because the model's is another one.
pub async fn estimate(prompt: &Prompt, margin: f64) -> Result<Counted, Failure> {
    let tools = prompt.tools.iter().map(|tool| tool_json(tool).to_string());
    let tokens: u64 = count_texts(prompt.messages.iter().map(text_of).chain(tools).collect()).await?.iter().sum();
    let margin_tokens = (tokens as f64 * margin).ceil() as u64;
    Ok(Counted { tokens: tokens + margin_tokens, exact: false, margin_tokens })
}

pub async fn weights(prompt: &Prompt) -> Result<Vec<u64>, Failure> {
    count_texts(prompt.messages.iter().map(text_of).collect()).await
}

async fn count_texts(texts: Vec<String>) -> Result<Vec<u64>, Failure> {
    let counted = tokio::task::spawn_blocking(move || {
        let tokenizer = tiktoken_rs::o200k_base_singleton();
        texts.iter().map(|text| tokenizer.encode_ordinary(text).len() as u64 + AROUND_MESSAGE).collect()
    });
    counted.await.map_err(|_| Failure::new(FailureCode::EngineFailed, "the estimate of tokens failed"))
}

/// Tokens of the marks that templates put around a message: begin, role and end.
const AROUND_MESSAGE: u64 = 5;

/// Returns about the text that a template writes: the words of a message, the JSON of its calls.
fn text_of(message: &Message) -> String {
    let printed = message_json(message);
    let words = match &printed["content"] {
        Value::String(text) => text.clone(),
        parts => parts.to_string(),
    };
    match printed.get("tool_calls") {
        Some(calls) => format!("{words}{calls}"),
        None => words,
    }
}
