//! Replies to raw prompts in the words of legacy completions, as chunks of a stream and as a whole.

use crate::api_error::failure_frame;
use parking_lot::Mutex;
use replies::Render;
use serde_json::{Map, Value, json};
use session::{Event, Failure, PromptToken, ResponseStatus, StatusDetails, Usage};
use std::sync::Arc;

pub struct RawAnswer {
    pub id: String,
    pub created: i64,
    pub model: String,
    pub include_usage: bool,
    pub has_logprobs: bool,
    pub usage: Mutex<RawUsage>,
}

/// A prompt counts once, its replies together. The last reply of all prompts ends the stream.
pub struct RawUsage {
    pub usage: Usage,
    pub left: usize,
}

pub struct RawReply {
    answer: Arc<RawAnswer>,
    index: usize,
    counts_prompt: bool,
    text: String,
    logprobs: LogprobLists,
    place: TextPlace,
    has_reply: bool,
    finish_reason: Option<&'static str>,
    is_over: bool,
}

#[derive(Default)]
struct LogprobLists {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<Map<String, Value>>>,
    text_offset: Vec<usize>,
}

#[derive(Default)]
struct TextPlace {
    chars: usize,
    pending: Vec<u8>,
}

const DONE: &str = "[DONE]";

impl RawReply {
    pub fn new(answer: Arc<RawAnswer>, index: usize, counts_prompt: bool) -> RawReply {
        RawReply {
            answer,
            index,
            counts_prompt,
            text: String::new(),
            logprobs: LogprobLists::default(),
            place: TextPlace::default(),
            has_reply: false,
            finish_reason: None,
            is_over: false,
        }
    }

    pub fn whole_of(answer: &RawAnswer, replies: Vec<RawReply>) -> String {
        let choice = |reply: RawReply| reply.choice(&reply.text, &reply.logprobs, reply.finish_reason);
        let choices: Vec<Value> = replies.into_iter().map(choice).collect();
        let mut whole = answer.frame(json!(choices));
        whole["usage"] = answer.usage_value();
        whole.to_string()
    }

    pub fn logprobs(&self) -> usize {
        self.logprobs.tokens.len()
    }

    fn choice(&self, text: &str, logprobs: &LogprobLists, finish_reason: Option<&str>) -> Value {
        let logprobs = self.answer.has_logprobs.then(|| logprobs.value());
        json!({ "index": self.index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason })
    }

    fn chunk(&self, text: &str, logprobs: &LogprobLists, finish_reason: Option<&str>) -> String {
        let mut chunk = self.answer.frame(json!([self.choice(text, logprobs, finish_reason)]));
        if self.answer.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk.to_string()
    }

    fn say(&mut self, text: &str, logprobs: LogprobLists, out: &mut Vec<String>) {
        out.push(self.chunk(text, &logprobs, None));
        self.text.push_str(text);
        self.logprobs.append(logprobs);
    }

    /// Returns the character that the prompt leaves incomplete, once: the reply does not complete it.
    fn end_prompt(&mut self) -> String {
        if std::mem::replace(&mut self.has_reply, true) { String::new() } else { self.place.end() }
    }

    fn echo(&mut self, tokens: &[PromptToken], out: &mut Vec<String>) {
        let (mut text, mut lists) = (String::new(), LogprobLists::default());
        for PromptToken { bytes, logprob, top } in tokens {
            lists.push(bytes, *logprob, top, self.place.chars);
            text += &self.place.pass(bytes);
        }
        if !self.answer.has_logprobs {
            lists = LogprobLists::default();
        }
        self.say(&text, lists, out);
    }
}

impl RawAnswer {
    fn frame(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model,
            "system_fingerprint": concat!("reprise-", env!("CARGO_PKG_VERSION")), "choices": choices,
        })
    }

    fn usage_value(&self) -> Value {
        let Usage { input_tokens, cached_tokens, output_tokens, .. } = self.usage.lock().usage;
        json!({
            "prompt_tokens": input_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": input_tokens + output_tokens,
            "prompt_tokens_details": { "cached_tokens": cached_tokens },
        })
    }
}

impl Render for RawReply {
    fn add(&mut self, event: &Event, out: &mut Vec<String>) -> Result<(), Failure> {
        match event {
            Event::PromptTokens { tokens, .. } => self.echo(tokens, out),
            Event::TextDelta { text, logprobs, .. } => {
                let text = self.end_prompt() + text;
                let end = self.place.chars + text.chars().count();
                let mut lists = LogprobLists::default();
                for token in logprobs {
                    lists.push(&token.bytes, Some(token.logprob), &token.top, self.place.chars.min(end));
                    self.place.pass(&token.bytes);
                }
                // Text of a stop string, and of tokens that end a reply, is not said.
                self.place.chars = end;
                self.say(&text, lists, out);
            }
            Event::ResponseDone { response } => {
                if let Some(StatusDetails::Failed(failure)) = &response.details {
                    return Err(failure.clone());
                }
                let usage = response.usage.unwrap_or_default();
                let sum = &mut self.answer.usage.lock().usage;
                if self.counts_prompt {
                    sum.input_tokens += usage.input_tokens;
                    sum.cached_tokens += usage.cached_tokens;
                }
                sum.output_tokens += usage.output_tokens;
                let is_whole = response.status != ResponseStatus::Incomplete;
                self.finish_reason = Some(if is_whole { "stop" } else { "length" });
            }
            Event::Reported { .. } => self.finish(out),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<String>) {
        if self.finish_reason.is_none() || std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let rest = self.end_prompt();
        out.push(self.chunk(&rest, &LogprobLists::default(), self.finish_reason));
        self.text.push_str(&rest);
        let is_last = {
            let mut usage = self.answer.usage.lock();
            usage.left = usage.left.saturating_sub(1);
            usage.left == 0
        };
        if !is_last {
            return;
        }
        if self.answer.include_usage {
            let mut last = self.answer.frame(json!([]));
            last["usage"] = self.answer.usage_value();
            out.push(last.to_string());
        }
        out.push(DONE.to_owned());
    }

    fn failed(&mut self, failure: &Failure, out: &mut Vec<String>) {
        self.is_over = true;
        out.push(failure_frame(failure));
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

impl LogprobLists {
    fn push(&mut self, bytes: &[u8], logprob: Option<f32>, top: &[(Vec<u8>, f32)], offset: usize) {
        let name = token_name(bytes);
        self.top_logprobs.push(logprob.map(|logprob| {
            let mut likely: Map<String, Value> =
                top.iter().rev().map(|(bytes, logprob)| (token_name(bytes), json!(logprob))).collect();
            likely.entry(name.clone()).or_insert(json!(logprob));
            likely
        }));
        self.tokens.push(name);
        self.token_logprobs.push(logprob);
        self.text_offset.push(offset);
    }

    fn append(&mut self, mut more: LogprobLists) {
        self.tokens.append(&mut more.tokens);
        self.token_logprobs.append(&mut more.token_logprobs);
        self.top_logprobs.append(&mut more.top_logprobs);
        self.text_offset.append(&mut more.text_offset);
    }

    fn value(&self) -> Value {
        let LogprobLists { tokens, token_logprobs, top_logprobs, text_offset } = self;
        json!({
            "tokens": tokens, "token_logprobs": token_logprobs, "top_logprobs": top_logprobs, "text_offset": text_offset,
        })
    }
}

impl TextPlace {
    fn pass(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.pending.clear();
                    break;
                }
                Err(error) => {
                    let whole = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.pending[..whole]));
                    let Some(wrong) = error.error_len() else {
                        self.pending.drain(..whole);
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending.drain(..whole + wrong);
                }
            }
        }
        self.chars += text.chars().count();
        text
    }

    fn end(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// Writes a token as OpenAI does: its text, or its bytes where they are no text.
fn token_name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |name, byte| format!("{name}\\x{byte:02x}")),
    }
}
