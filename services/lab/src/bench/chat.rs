//! A conversation over chat completions: the client keeps the history and sends all of it at every turn.

use super::service::MeasuredService;
use super::steps::{KEPT, NOTED, Opening, TurnCost, UserStep, heard_chars};
use anyhow::{Context, Result, bail};
use eventsource_stream::Eventsource;
use futures_util::StreamExt;
use reqwest::header::USER_AGENT;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::time::Instant;

pub struct ChatPlayer {
    http: Client,
    model: String,
    reply_tokens: usize,
    messages: Vec<Value>,
    pub tools: Vec<Value>,   // as the client sends them; empty: the request names none
    pub agent: &'static str, // the client's name; empty: none
}

impl ChatPlayer {
    /// Opens a conversation. `model` is its name in requests; `None`: the first that the service lists.
    pub async fn new(service: &MeasuredService, model: Option<&str>, opening: Opening) -> Result<ChatPlayer> {
        let Opening { system, history, reply_tokens, patience } = opening;
        let http = Client::builder().read_timeout(patience).build().context("cannot make an HTTP client")?;
        let model = match model {
            Some(model) => model.to_owned(),
            // Most services take any name.
            None => {
                let models = service.address.get(&http, "/v1/models").await.unwrap_or_default();
                models["data"][0]["id"].as_str().unwrap_or("default").to_owned()
            }
        };
        let mut messages = vec![message("system", system)];
        for (said, answered) in history {
            messages.extend([message("user", said), message("assistant", answered)]);
        }
        Ok(ChatPlayer { http, model, reply_tokens, messages, tools: Vec::new(), agent: "" })
    }

    pub async fn turn(&mut self, service: &MeasuredService, number: usize, step: UserStep) -> Result<TurnCost> {
        if step.cuts_last_reply
            && let Some(last) = self.messages.last_mut()
            && let Some(text) = last["content"].as_str()
        {
            let heard: String = text.chars().take(heard_chars(text)).collect();
            last["content"] = heard.into();
        }
        if let (Some(system), Some(first)) = (step.system, self.messages.first_mut()) {
            first["content"] = system.into();
        }
        if let Some(summary) = step.summary {
            let kept = self.messages.len().saturating_sub(KEPT).max(1);
            let told = [message("user", summary), message("assistant", NOTED.to_owned())];
            self.messages.splice(1..kept, told);
        }
        self.messages.extend(step.note.map(|note| message("system", note)));
        self.messages.push(message("user", step.says));
        let mut turn = TurnCost::new(number, step.kind);
        let text = self.ask(service, &mut turn).await?;
        self.messages.push(message("assistant", text));
        Ok(turn)
    }

    /// Sends the same request to every server, with the fields that some of them need to behave like the others.
    async fn ask(&self, service: &MeasuredService, turn: &mut TurnCost) -> Result<String> {
        let mut body = json!({
            "model": self.model,
            "messages": self.messages,
            "max_tokens": self.reply_tokens,
            "temperature": 0,
            "ignore_eos": true,
            "stream": true,
            "stream_options": { "include_usage": true },
            "chat_template_kwargs": { "enable_thinking": false },
            "cache_prompt": true,
        });
        if !self.tools.is_empty() {
            body["tools"] = self.tools.clone().into();
        }
        let begin = Instant::now();
        let mut request = service.address.request(&self.http, Method::POST, "/v1/chat/completions").json(&body);
        if !self.agent.is_empty() {
            request = request.header(USER_AGENT, self.agent);
        }
        let response = request.send().await.context("chat completions")?;
        let status = response.status();
        if !status.is_success() {
            let text = response.text().await.unwrap_or_default();
            bail!("the service refused the request: {status} {}", text.chars().take(400).collect::<String>());
        }
        let mut events = response.bytes_stream().eventsource();
        let mut text = String::new();
        let (mut usage, mut timings, mut ours) = (Value::Null, Value::Null, Value::Null);
        while let Some(event) = events.next().await {
            let event = event.context("the reply ended in the middle")?;
            if event.data == "[DONE]" {
                break;
            }
            let mut event: Value =
                serde_json::from_str(&event.data).context("the service sent an event that is not JSON")?;
            if !event["error"].is_null() {
                bail!("the service reported an error: {}", event["error"]);
            }
            for choice in event["choices"].as_array().into_iter().flatten() {
                let piece = choice["delta"]["content"].as_str().unwrap_or_default();
                if !piece.is_empty() || !choice["delta"]["tool_calls"].is_null() {
                    turn.first_token_ms.get_or_insert_with(|| begin.elapsed().as_secs_f64() * 1e3);
                    text.push_str(piece);
                }
            }
            for (kept, key) in [(&mut usage, "usage"), (&mut timings, "timings"), (&mut ours, "reprise")] {
                if !event[key].is_null() {
                    *kept = event[key].take();
                }
            }
        }
        turn.total_ms = begin.elapsed().as_secs_f64() * 1e3;
        turn.prompt_tokens = usage["prompt_tokens"].as_u64();
        turn.reply_tokens = usage["completion_tokens"].as_u64();
        // llama.cpp's server has it in another field.
        let cached = timings["cache_n"].as_u64();
        turn.cached_tokens = cached.or_else(|| usage["prompt_tokens_details"]["cached_tokens"].as_u64());
        turn.computed_tokens =
            turn.prompt_tokens.zip(turn.cached_tokens).map(|(all, cached)| all.saturating_sub(cached));
        turn.queue_ms = ours["ms"]["queue"].as_f64();
        turn.reason = ours["reason"].as_str().map(str::to_owned);
        turn.would_save_tokens = ours["notes"]["would_save_tokens"].as_u64();
        Ok(text)
    }
}

fn message(role: &str, content: String) -> Value {
    json!({ "role": role, "content": content })
}
