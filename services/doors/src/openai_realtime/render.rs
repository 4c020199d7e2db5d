//! From a session's events to the frames of one connection.

use super::error::error_body;
use super::frames::{
    Body, BodyView, CompactionView, ContentPart, Frame, ItemView, RateLimit, ResponseView, SessionView, TurnMs,
};
use super::{EXTENSION, ErrorBody};
use crate::json::{json_of, logprob_value, tool_choice_value};
use runtime::Interest;
use serde_json::{Value, json};
use session::{
    Compaction, CompactionStage, Event, Ids, Item, ItemBody, ItemStatus, MaxTokens, Placed, Response, ResponseStatus,
    Role, SessionState, StatusDetails, Tool, TurnReport, Usage,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What one connection has opted in to, and the ids of its frames.
pub struct Renderer {
    /// The connection's reader changes it where the client says so.
    extensions: Arc<AtomicBool>,
    ids: Ids,
}

/// The events that become frames. `extensions`: whether the connection has opted in, now.
pub fn interest(extensions: Arc<AtomicBool>) -> Interest {
    Arc::new(move |event| match event {
        Event::ReasoningDelta { .. } => false,
        Event::SentenceDone { .. }
        | Event::RecallDone { .. }
        | Event::ContextUpdated { .. }
        | Event::Compaction(_)
        | Event::PinRefused { .. }
        | Event::Reported { .. } => extensions.load(Ordering::Relaxed),
        _ => true,
    })
}

/// The only content of a reply's message.
const CONTENT_INDEX: usize = 0;

impl Renderer {
    /// `seed` is drawn at random for each connection.
    pub fn new(extensions: Arc<AtomicBool>, seed: u64) -> Renderer {
        Renderer { extensions, ids: Ids::new(seed) }
    }

    pub fn has_extensions(&self) -> bool {
        self.extensions.load(Ordering::Relaxed)
    }

    /// Appends the frames that the event becomes on this connection: none, one or a few.
    pub fn render(&mut self, event: &Event, out: &mut Vec<String>) {
        let mut push = |body: Body| self.push(body, out);
        match event {
            Event::Opened(state) => {
                let session = Box::new(session_view(state, self.has_extensions()));
                self.push(Body::SessionCreated { session }, out);
            }
            Event::Configured(state) => {
                let session = Box::new(session_view(state, self.has_extensions()));
                self.push(Body::SessionUpdated { session }, out);
            }
            Event::Refused { input_id, refusal } => push(Body::Error { error: &error_body(refusal, input_id.clone()) }),
            Event::ItemAdded { item, previous_item_id, is_new } => {
                let previous_item_id = previous_item_id.as_deref();
                push(Body::ItemAdded { previous_item_id, item: item_view(item) });
                if *is_new {
                    push(Body::ItemDone { previous_item_id, item: item_view(item) });
                }
            }
            Event::ItemRead { item } => push(Body::ItemRetrieved { item: item_view(item) }),
            Event::ItemTruncated { item_id, part, heard_ms, heard_chars } => push(Body::ItemTruncated {
                item_id,
                content_index: *part,
                audio_end_ms: *heard_ms,
                text_end: *heard_chars,
            }),
            Event::ItemDeleted { item_id } => push(Body::ItemDeleted { item_id }),
            Event::SpeechDropped => push(Body::InputAudioBufferCleared {}),
            Event::DoorFrame(frame) => out.push(frame.clone()),
            Event::ResponseStarted { response } => push(Body::ResponseCreated { response: response_view(response) }),
            Event::ResponseDone { response } => push(Body::ResponseDone { response: response_view(response) }),
            Event::ReplyStarted { response_id, output_index, item, place } => {
                let output_index = *output_index;
                push(Body::OutputItemAdded { response_id, output_index, item: item_view(item) });
                if let Some(Placed { previous_item_id }) = place {
                    let previous_item_id = previous_item_id.as_deref();
                    push(Body::ItemAdded { previous_item_id, item: item_view(item) });
                }
                if matches!(item.body, ItemBody::Message { .. }) {
                    let (content_index, part) = (CONTENT_INDEX, spoken(""));
                    push(Body::ContentPartAdded { response_id, item_id: &item.id, output_index, content_index, part });
                }
            }
            Event::ReasoningDelta { .. } => {}
            Event::TextDelta { response_id, item_id, output_index, text, logprobs } => {
                let (output_index, content_index) = (*output_index, CONTENT_INDEX);
                if !logprobs.is_empty() && self.has_extensions() {
                    let logprobs = logprobs.iter().map(logprob_value).collect();
                    self.push(Body::TextLogprobs { response_id, item_id, output_index, content_index, logprobs }, out);
                }
                self.push(Body::TextDelta { response_id, item_id, output_index, content_index, delta: text }, out);
            }
            Event::TextDone { response_id, item_id, output_index, text } => {
                let (output_index, content_index, part) = (*output_index, CONTENT_INDEX, spoken(text));
                push(Body::TextDone { response_id, item_id, output_index, content_index, text });
                push(Body::ContentPartDone { response_id, item_id, output_index, content_index, part });
            }
            Event::ArgumentsDelta { response_id, item_id, output_index, call_id, json } => {
                let output_index = *output_index;
                push(Body::ArgumentsDelta { response_id, item_id, output_index, call_id, delta: json });
            }
            Event::ReplyDone { response_id, output_index, item, place } => {
                let output_index = *output_index;
                if let ItemBody::FunctionCall { call_id, name, arguments } = &item.body {
                    let item_id = &item.id;
                    push(Body::ArgumentsDone { response_id, item_id, output_index, call_id, name, arguments });
                }
                push(Body::OutputItemDone { response_id, output_index, item: item_view(item) });
                if let Some(Placed { previous_item_id }) = place {
                    push(Body::ItemDone { previous_item_id: previous_item_id.as_deref(), item: item_view(item) });
                }
            }
            Event::SentenceDone { response_id, item_id, sentence } => push(Body::SentenceDone {
                response_id,
                item_id,
                index: sentence.index,
                text: &sentence.text,
                text_start: sentence.text_start,
                text_end: sentence.text_end,
            }),
            Event::RecallDone { response_id, query, places } => {
                push(Body::RecallDone { response_id, query, places: *places });
            }
            Event::Reported { response_id, report } => push(turn_report(response_id, report)),
            Event::ContextUpdated { tokens, margin_tokens, ctx_size, fill, arm } => push(Body::ContextUpdated {
                tokens: *tokens,
                margin_tokens: *margin_tokens,
                ctx_size: *ctx_size,
                fill: *fill,
                arm: arm.as_deref(),
            }),
            Event::Compaction(compaction) => push(compaction_body(compaction)),
            Event::PinRefused { item_id, text, limit_tokens } => {
                push(Body::PinRefused { item_id, text, limit_tokens: *limit_tokens });
            }
        }
    }

    /// What the door itself refuses.
    pub fn error(&mut self, error: &ErrorBody) -> String {
        self.write(Body::Error { error })
    }

    pub fn rate_limits(&mut self, rate_limits: Vec<RateLimit>) -> String {
        self.write(Body::RateLimitsUpdated { rate_limits })
    }

    fn push(&mut self, body: Body, out: &mut Vec<String>) {
        if !body.is_extension() || self.has_extensions() {
            let frame = self.write(body);
            out.push(frame);
        }
    }

    fn write(&mut self, body: Body) -> String {
        let event_id = self.ids.next("event");
        serde_json::to_string(&Frame { event_id: &event_id, body }).unwrap_or_else(|error| {
            tracing::error!(%error, "a frame could not be written out; this is a defect of the program");
            String::new()
        })
    }
}

/// An item as this protocol writes it.
pub fn item_value(item: &Item) -> Value {
    serde_json::to_value(item_view(item)).unwrap_or_default()
}

/// A session as this protocol writes it, without extensions.
pub fn session_value(state: &SessionState) -> Value {
    serde_json::to_value(session_view(state, false)).unwrap_or_default()
}

fn item_view(item: &Item) -> ItemView<'_> {
    let body = match &item.body {
        ItemBody::Message { role, parts } => {
            let kind = if *role == Role::Assistant { "output_text" } else { "input_text" };
            let content = parts.iter().map(|text| ContentPart { kind, text }).collect();
            BodyView::Message { role: role.word(), content }
        }
        ItemBody::FunctionCall { call_id, name, arguments } => BodyView::FunctionCall { call_id, name, arguments },
        ItemBody::FunctionCallOutput { call_id, output } => BodyView::FunctionCallOutput { call_id, output },
    };
    let status = match item.status {
        ItemStatus::InProgress => "in_progress",
        ItemStatus::Completed => "completed",
        ItemStatus::Incomplete => "incomplete",
    };
    ItemView { id: &item.id, object: "realtime.item", body, status }
}

fn spoken(text: &str) -> ContentPart<'_> {
    ContentPart { kind: "text", text }
}

fn response_view(response: &Response) -> ResponseView<'_> {
    let details = response.details.as_ref().map(|details| match details {
        StatusDetails::Cancelled => json!({ "type": "cancelled", "reason": "client_cancelled" }),
        StatusDetails::MaxOutputTokens => json!({ "type": "incomplete", "reason": "max_output_tokens" }),
        StatusDetails::Failed(failure) => {
            let kind = crate::error_kind(failure.code);
            let error = json!({ "type": kind, "code": failure.code.word(), "message": failure.message });
            json!({ "type": "failed", "error": error })
        }
    });
    ResponseView {
        object: "realtime.response",
        id: &response.id,
        status: match response.status {
            ResponseStatus::InProgress => "in_progress",
            ResponseStatus::Completed => "completed",
            ResponseStatus::Cancelled => "cancelled",
            ResponseStatus::Incomplete => "incomplete",
            ResponseStatus::Failed => "failed",
        },
        status_details: details,
        output: response.output.iter().map(item_view).collect(),
        conversation_id: response.conversation_id.as_deref(),
        output_modalities: ["text"],
        max_output_tokens: max_tokens_value(response.max_output_tokens),
        usage: response.usage.map(usage_value),
        metadata: response.metadata.as_ref().map(json_of),
    }
}

fn usage_value(usage: Usage) -> Value {
    let Usage { input_tokens, cached_tokens, output_tokens, .. } = usage;
    json!({
        "total_tokens": input_tokens + output_tokens,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "input_token_details": {
            "text_tokens": input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": cached_tokens,
            "cached_tokens_details": { "text_tokens": cached_tokens, "audio_tokens": 0, "image_tokens": 0 },
        },
        "output_token_details": { "text_tokens": output_tokens, "audio_tokens": 0 },
    })
}

fn session_view(state: &SessionState, extensions: bool) -> SessionView<'_> {
    let SessionState { session_id, model, config } = state;
    SessionView {
        kind: "realtime",
        object: "realtime.session",
        id: session_id,
        model,
        output_modalities: ["text"],
        instructions: &config.instructions,
        tools: config.tools.iter().map(tool_value).collect(),
        tool_choice: tool_choice_value(&config.tool_choice),
        max_output_tokens: max_tokens_value(config.max_output_tokens),
        temperature: config.temperature,
        parallel_tool_calls: config.parallel_tool_calls,
        reasoning: config.reasoning_effort.as_ref().map(|effort| json!({ "effort": effort })),
        audio: json!({
            "input": { "format": null, "noise_reduction": null, "transcription": null, "turn_detection": null },
            "output": { "format": null, "voice": null, "speed": null },
        }),
        truncation: "auto",
        tracing: None,
        prompt: None,
        include: None,
        expires_at: None,
        extensions: if extensions { vec![EXTENSION] } else { Vec::new() },
    }
}

fn tool_value(tool: &Tool) -> Value {
    let mut value = json!({ "type": "function", "name": tool.name });
    if let Some(description) = &tool.description {
        value["description"] = json!(description);
    }
    if let Some(parameters) = &tool.parameters {
        value["parameters"] = json_of(parameters);
    }
    value
}

fn max_tokens_value(max_tokens: MaxTokens) -> Value {
    match max_tokens {
        MaxTokens::Unlimited => json!("inf"),
        MaxTokens::Tokens(tokens) => json!(tokens),
    }
}

fn turn_report<'a>(response_id: &'a str, report: &'a TurnReport) -> Body<'a> {
    Body::TurnReport {
        response_id,
        reused_tokens: report.reused_tokens,
        computed_tokens: report.computed_tokens,
        reason: report.reason,
        ms: TurnMs {
            queue: report.queue_ms,
            prefill: report.prefill_ms,
            first_token: report.first_token_ms,
            first_sentence: report.first_sentence_ms,
            total: report.total_ms,
        },
    }
}

fn compaction_body(compaction: &Compaction) -> Body<'_> {
    let Compaction { stage, summary_id, version, tokens_before } = compaction;
    let view = |tokens_after, message| CompactionView {
        summary_id,
        version: *version,
        tokens_before: *tokens_before,
        tokens_after,
        message,
    };
    match stage {
        CompactionStage::Started => Body::CompactionStarted(view(None, None)),
        CompactionStage::Completed { tokens_after } => Body::CompactionCompleted(view(Some(*tokens_after), None)),
        CompactionStage::Dropped { tokens_after } => Body::CompactionDropped(view(Some(*tokens_after), None)),
        CompactionStage::Failed { message } => Body::CompactionFailed(view(None, Some(message))),
    }
}
