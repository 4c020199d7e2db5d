//! One reply at a time of a model in this process, without a service.

use anyhow::{Result, bail};
use engine::network::Network;
use engine::{DeviceMemoryPlan, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, RequestReport, StopReason};
use serde_json::{Value, json};
use settings::Settings;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::{ReplyParser, ReplyPart, Template, Tokenizer};

/// A chat-completions body as tokens, with the tools whose schemas give arguments their types.
#[derive(Default)]
pub struct TokenPrompt {
    pub tokens: Vec<u32>,
    pub marks: Vec<usize>,
    pub tools: Vec<Value>,
}

pub fn encode(tokenizer: &Tokenizer, template: &Template, body: &Value, thinking: bool) -> Result<TokenPrompt> {
    let mut chat = text::chat::normalise(body)?;
    chat.options.entry("enable_thinking").or_insert(json!(thinking));
    let rendered = template.render(&chat.prompt(None))?;
    let encoded = text::encode_prompt(tokenizer, &rendered);
    Ok(TokenPrompt { tokens: encoded.tokens, marks: encoded.marks, tools: chat.tools })
}

/// An engine that keeps `most_bytes` at most: what was asked before may be computed again.
pub fn engine_for_one(
    executor: Executor,
    device: Option<&DeviceMemoryPlan>,
    network: Network,
    tokenizer: Arc<Tokenizer>,
    settings: &Settings,
    most_bytes: usize,
) -> Engine {
    let limits = EngineLimits {
        prefill_chunk_tokens: settings.engine.chunk_tokens(device.is_some()),
        max_sequences: 1,
        max_waiting: 1,
        memory_bytes: device.map_or(most_bytes, |memory| memory.left_bytes.min(most_bytes)),
        snapshots: engine::snapshot::FORMATS[0],
        snapshot_spacing_tokens: usize::MAX,
        recurrence_log_tokens: 0,
    };
    Engine::new(executor, network, tokenizer, limits)
}

pub struct EngineAnswer {
    pub content: String,
    pub reasoning: String,
    /// Name of each call, and its arguments as JSON.
    pub calls: Vec<(String, String)>,
    pub tokens: Vec<u32>,
    pub stop_reason: StopReason,
    pub report: RequestReport,
    /// None where no token came.
    pub first_token: Option<Duration>,
    pub total: Duration,
}

/// `show` gets each piece of the reply as soon as it is known.
pub fn answer(
    engine: &mut Engine,
    request: EngineRequest,
    in_reasoning: bool,
    tools: &[Value],
    show: &mut dyn FnMut(&ReplyPart) -> Result<()>,
) -> Result<EngineAnswer> {
    let begin = Instant::now();
    engine.submit(request)?;
    let (mut parser, mut pieces, mut events) = (ReplyParser::new(in_reasoning, tools), Vec::new(), Vec::new());
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::<(String, String)>::new());
    let (mut tokens, mut first_token) = (Vec::new(), None);
    let mut ended = None;
    while ended.is_none() {
        engine.step(&mut events);
        for event in events.drain(..) {
            match event {
                EngineEvent::Started { .. } => {}
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
