//! Between the words of turn-taking and those of a backend.

use super::{Ask, Finish, Piece, Priority, Purpose};
use crate::realtime::{Item, SessionConfig, ToolChoice};
use crate::{realtime, turn};
use serde_json::{Map, Value};
use settings::{Preset, Thinking};
use std::sync::Arc;
use text::chat::ChatPrompt;

/// Stands for what the user will say next. Its words are never computed.
pub const PLACEHOLDER: &str = "…";

/// The prompt of a conversation.
pub fn chat_of(
    config: &SessionConfig,
    items: &[Arc<Item>],
    context: &turn::Context,
    partial: Option<&str>,
    wording: &turn::Wording,
) -> ChatPrompt {
    let prompt = turn::Prompt { instructions: &config.instructions, context, partial, wording };
    chat_with(config, context, turn::messages(items, &prompt))
}

/// Tools and options around messages that are laid out already.
pub fn chat_with(config: &SessionConfig, context: &turn::Context, messages: Vec<Value>) -> ChatPrompt {
    let mut options = Map::new();
    options.insert("add_generation_prompt".into(), Value::Bool(true));
    if let Some(effort) = &config.reasoning_effort {
        let thinks = !matches!(effort.as_str(), "none" | "minimal");
        options.insert("enable_thinking".into(), Value::Bool(thinks));
        options.insert("reasoning_effort".into(), Value::from(effort.as_str()));
    }
    let mut tools: Vec<Value> = config.tools.iter().map(realtime::Tool::for_template).collect();
    if turn::has_recall(config, context) {
        tools.push(turn::recall_tool());
    }
    ChatPrompt { messages, tools, options, images: 0 }
}

impl Ask {
    pub fn for_turn(generate: &turn::Generate, preset: &Arc<Preset>, wording: &turn::Wording) -> Ask {
        let config = &generate.config;
        let partial = match &generate.purpose {
            turn::Purpose::Partial(text) => Some(text.as_str()),
            turn::Purpose::History => Some(PLACEHOLDER),
            turn::Purpose::Reply | turn::Purpose::Beside => None,
        };
        let context = &generate.context;
        let chat = chat_of(config, &generate.items, context, partial, wording);
        let has_notes = context.notes.iter().any(|note| !note.trim().is_empty());
        let mut ask = Ask::new(chat, preset.clone());
        ask.purpose = match &generate.purpose {
            turn::Purpose::Reply | turn::Purpose::Beside => Purpose::Reply,
            turn::Purpose::Partial(_) => Purpose::WarmPartial,
            // The notes stand before what the user says next, and may be others then.
            turn::Purpose::History => Purpose::WarmHistory { placeholders: 1 + usize::from(has_notes) },
        };
        ask.priority = match generate.priority() {
            turn::Priority::Talk => Priority::Talk,
            turn::Priority::Speculate => Priority::Speculate,
            turn::Priority::Background => Priority::Background,
        };
        ask.max_tokens = generate.max_tokens;
        ask.manner = (*generate.manner).clone();
        ask.manner.sampling.temperature = config.temperature.map(|temperature| temperature as f32);
        ask.tool_choice = config.tool_choice.clone();
        ask.parallel_tool_calls = config.parallel_tool_calls;
        ask
    }

    /// A summary: the same prompt with a request behind it, when nothing more urgent is to be done. No call is wanted, but
    /// the tools stay, because the prompt would be another one without them.
    pub fn for_summary(chat: ChatPrompt, preset: &Arc<Preset>, max_tokens: u32, again: bool) -> Ask {
        let mut ask = Ask::new(chat, preset.clone());
        ask.priority = Priority::Background;
        ask.max_tokens = Some(max_tokens);
        ask.tool_choice = ToolChoice::None;
        ask.thinking = Some(Thinking::Off);
        // What was said is to be kept as it was said. A second try must not end as the first one did.
        ask.manner.sampling.temperature = Some(if again { 0.5 } else { 0.0 });
        ask.manner.sampling.presence_penalty = Some(0.0);
        ask.manner.sampling.frequency_penalty = Some(0.0);
        ask
    }
}

impl From<Piece> for turn::Piece {
    fn from(piece: Piece) -> turn::Piece {
        match piece {
            Piece::Prompt { input_tokens, cached_tokens } => turn::Piece::Prompt { input_tokens, cached_tokens },
            Piece::Reasoning { tokens, .. } => turn::Piece::Reasoning { tokens },
            Piece::Content { text, tokens, logprobs } => turn::Piece::Content { text, tokens, logprobs },
            Piece::CallStarted { name, call_id } => turn::Piece::CallStarted { name, call_id },
            Piece::CallArguments { json, tokens } => turn::Piece::CallArguments { json, tokens },
            Piece::Done { finish, usage, report } => turn::Piece::Done {
                finish: match finish {
                    Finish::Stop | Finish::ToolCalls | Finish::Warm => turn::Finish::Stop,
                    Finish::Length => turn::Finish::MaxTokens,
                    Finish::Cancelled => turn::Finish::Cancelled,
                },
                usage: Some(realtime::Usage {
                    input_tokens: usage.input_tokens,
                    cached_tokens: usage.cached_tokens,
                    output_tokens: usage.output_tokens,
                }),
                report: Some(turn::Report {
                    reused_tokens: report.reused_tokens,
                    computed_tokens: report.computed_tokens,
                    reason: report.reason.map(str::to_owned),
                    queue_ms: report.queue_ms,
                    prefill_ms: report.prefill_ms,
                    decode_ms: report.first_token_ms.map_or(0.0, |first| (report.total_ms - first).max(0.0)),
                    memory_bytes: report.memory_bytes,
                }),
            },
            Piece::Failed(failure) => turn::Piece::Failed(turn::BackendFailure {
                kind: failure.code.kind(),
                code: failure.code.word().to_owned(),
                message: failure.message,
            }),
        }
    }
}
