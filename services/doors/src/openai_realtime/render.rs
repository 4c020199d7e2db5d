//! Events of a session to frames of one connection.

use super::audio::AudioConfig;
use super::error::error_body;
use super::events::{MaxTokensView, Unlimited};
use super::frames::{
    Body, BodyView, CachedTokens, CompactionView, ContentPart, DetailsView, Extension, FailureView, Frame, InputTokens,
    ItemPart, ItemView, MemoryView, Modality, OutputTokens, RateLimit, ReasoningView, ResponseView, SessionView,
    ToolView, TurnMs, UsageView,
};
use super::spoken_items::SpokenItems;
use super::{EXTENSION, ErrorBody};
use crate::api_error::error_kind;
use crate::json::{json_of, logprob_view};
use crate::tools::tool_choice_view;
use runtime::Interest;
use serde::Serialize;
use serde_json::Value;
use session::sentences::Sentence;
use session::{
    Compaction, CompactionStage, Event, Failure, Ids, Item, ItemBody, LearnedFact, MaxTokens, Placed, Response, Role,
    SessionState, StatusDetails, Tool, TurnReport, Usage,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Renderer of one connection.
pub struct Renderer {
    /// True while the client has opted in to the extensions.
    extensions: Arc<AtomicBool>,
    ids: Ids,
    /// Audio settings of the connection, and its items that were said.
    pub audio: AudioConfig,
    pub spoken: SpokenItems,
}

/// Accepts the events that become frames. `extensions`: whether the connection has opted in, now. `is_spoken`: whether
/// sentences may go to a voice.
pub fn interest(extensions: Arc<AtomicBool>, is_spoken: bool) -> Interest {
    Arc::new(move |event| match event {
        Event::PromptTokens { .. } => false,
        Event::SentenceDone { .. } => is_spoken || extensions.load(Ordering::Relaxed),
        Event::ReasoningDelta { .. }
        | Event::ThinkingStopped { .. }
        | Event::RecallDone { .. }
        | Event::ContextUpdated { .. }
        | Event::Compaction(_)
        | Event::PinRefused { .. }
        | Event::FactLearned { .. }
        | Event::FactUnsure { .. }
        | Event::Reported { .. } => extensions.load(Ordering::Relaxed),
        _ => true,
    })
}

/// Index of the only content of a reply's message.
const CONTENT_INDEX: usize = 0;

impl Renderer {
    /// `seed` is drawn at random for each connection.
    pub fn new(extensions: Arc<AtomicBool>, seed: u64) -> Renderer {
        let audio = AudioConfig::new(false, false);
        Renderer { extensions, ids: Ids::new(seed), audio, spoken: SpokenItems::default() }
    }

    pub fn next_id(&mut self, prefix: &str) -> String {
        self.ids.next(prefix)
    }

    pub fn has_extensions(&self) -> bool {
        self.extensions.load(Ordering::Relaxed)
    }

    /// Appends the frames that the event becomes on this connection: none, one or a few.
    pub fn render(&mut self, event: &Event, out: &mut Vec<String>) {
        let Renderer { ids, audio, spoken, .. } = self;
        let mut push = |body| out.push(write(ids, body));
        let item_view = |item| shown_item(item, spoken, true);
        let response_view = |response| shown_response(response, spoken, None);
        match event {
            Event::Opened(state) => {
                let extensions = self.extensions.load(Ordering::Relaxed);
                push(Body::SessionCreated { session: Box::new(session_view(state, audio, extensions)) });
            }
            Event::Configured(state) => {
                let extensions = self.extensions.load(Ordering::Relaxed);
                push(Body::SessionUpdated { session: Box::new(session_view(state, audio, extensions)) });
            }
            Event::Refused { input_id, refusal } => push(Body::Error { error: &error_body(refusal, input_id.clone()) }),
            Event::ItemAdded { item, previous_item_id, is_new } => {
                let previous_item_id = previous_item_id.as_deref();
                let item_view = |item| shown_item(item, spoken, false);
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
            // A frame of the door's own takes this place.
            Event::Reached { .. } => {}
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
                    let (content_index, part) = (CONTENT_INDEX, ContentPart::Text { text: "" });
                    push(Body::ContentPartAdded { response_id, item_id: &item.id, output_index, content_index, part });
                }
            }
            Event::PromptTokens { .. } => {}
            Event::ReasoningDelta { response_id, text } => {
                self.extend(Extension::ReasoningDelta { response_id, delta: text }, out);
            }
            Event::TextDelta { response_id, item_id, output_index, text, logprobs } => {
                let (output_index, content_index) = (*output_index, CONTENT_INDEX);
                if !logprobs.is_empty() {
                    let logprobs = logprobs.iter().map(logprob_view).collect();
                    let of = Extension::TextLogprobs { response_id, item_id, output_index, content_index, logprobs };
                    self.extend(of, out);
                }
                out.push(self.write(Body::TextDelta {
                    response_id,
                    item_id,
                    output_index,
                    content_index,
                    delta: text,
                }));
            }
            Event::TextDone { response_id, item_id, output_index, text } => {
                let (output_index, content_index, part) = (*output_index, CONTENT_INDEX, ContentPart::Text { text });
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
            Event::SentenceDone { response_id, item_id, sentence } => {
                let Sentence { index, ref text, text_start, text_end } = *sentence;
                self.extend(Extension::SentenceDone { response_id, item_id, index, text, text_start, text_end }, out);
            }
            Event::ThinkingStopped { response_id } => self.extend(Extension::ThinkingStopped { response_id }, out),
            Event::RecallDone { response_id, query, places, note } => {
                let (places, note) = (*places, note.as_deref());
                self.extend(Extension::RecallDone { response_id, query, places, note }, out);
            }
            Event::Reported { response_id, report } => self.extend(turn_report(response_id, report), out),
            &Event::ContextUpdated { tokens, margin_tokens, ctx_size, fill, ref arm } => {
                let arm = arm.as_deref();
                self.extend(Extension::ContextUpdated { tokens, margin_tokens, ctx_size, fill, arm }, out);
            }
            Event::Compaction(compaction) => self.extend(compaction_frame(compaction), out),
            Event::PinRefused { item_id, text, limit_tokens } => {
                self.extend(Extension::PinRefused { item_id, text, limit_tokens: *limit_tokens }, out);
            }
            Event::FactLearned { fact: LearnedFact { id, person, text, asked }, replaces } => {
                let memory = MemoryView { id, person, text, asked: *asked };
                self.extend(Extension::MemoryLearned { memory, replaces }, out);
            }
            Event::FactUnsure { fact_id, near } => {
                self.extend(Extension::MemoryUnsure { memory_id: fact_id.as_deref(), near }, out);
            }
        }
    }

    /// Writes a frame that no event of the session stands behind.
    pub fn frame(&mut self, body: Body<'_>) -> String {
        self.write(body)
    }

    /// Writes a frame that shows items: as audio, if they were said.
    pub fn shown<'a>(&mut self, body: impl FnOnce(&SpokenItems) -> Body<'a>) -> String {
        let body = body(&self.spoken);
        write(&mut self.ids, body)
    }

    pub fn error(&mut self, error: &ErrorBody) -> String {
        self.write(Body::Error { error })
    }

    pub fn rate_limits(&mut self, rate_limits: Vec<RateLimit>) -> String {
        self.write(Body::RateLimitsUpdated { rate_limits })
    }

    fn extend(&mut self, extension: Extension, out: &mut Vec<String>) {
        if self.has_extensions() {
            out.push(self.write(extension));
        }
    }

    fn write<B: Serialize>(&mut self, body: B) -> String {
        write(&mut self.ids, body)
    }
}

fn write<B: Serialize>(ids: &mut Ids, body: B) -> String {
    let event_id = ids.next("event");
    serde_json::to_string(&Frame { event_id: &event_id, body }).unwrap_or_else(|error| {
        tracing::error!(%error, "a frame could not be written out; this is a defect of the program");
        String::new()
    })
}

pub fn item_value(item: &Item) -> Value {
    serde_json::to_value(shown_item(item, &SpokenItems::default(), true)).unwrap_or_default()
}

/// Shows an item, as audio if it was said on this connection. `has_words`: false where a client hears of a user's words by
/// another event, and would hold them twice.
pub fn shown_item<'a>(item: &'a Item, spoken: &SpokenItems, has_words: bool) -> ItemView<'a> {
    let is_spoken = spoken.has(&item.id);
    let body = match &item.body {
        ItemBody::Message { role, parts, speaker } => {
            // What stands for a user's silence is no message of the system to a client.
            let role = if is_spoken && *role == Role::System { Role::User } else { *role };
            let part = |text| match role {
                Role::Assistant if is_spoken => ItemPart::OutputAudio { transcript: text },
                Role::Assistant => ItemPart::OutputText { text },
                Role::User if is_spoken => ItemPart::InputAudio { transcript: has_words.then_some(text) },
                Role::User | Role::System => ItemPart::InputText { text },
            };
            let speaker = speaker.as_ref().filter(|_| role == Role::User).and_then(|speaker| speaker.shown());
            BodyView::Message { role: role.word(), content: parts.iter().map(|text| part(text)).collect(), speaker }
        }
        ItemBody::FunctionCall { call_id, name, arguments } => BodyView::FunctionCall { call_id, name, arguments },
        ItemBody::FunctionCallOutput { call_id, output } => BodyView::FunctionCallOutput { call_id, output },
    };
    let status = item.status.word();
    ItemView { id: &item.id, object: "realtime.item", body, status }
}

/// End of a response that was said, if it is another than the session knows.
#[derive(Clone, Copy, Debug)]
pub enum SpokenEnd<'a> {
    Cancelled { reason: &'static str },
    Failed { code: &'static str, message: &'a str },
}

pub fn shown_response<'a>(
    response: &'a Response,
    spoken: &SpokenItems,
    ended: Option<SpokenEnd<'a>>,
) -> ResponseView<'a> {
    let details = response.details.as_ref().map(|details| match details {
        StatusDetails::Cancelled => DetailsView::Cancelled { reason: "client_cancelled" },
        StatusDetails::MaxOutputTokens => DetailsView::Incomplete { reason: "max_output_tokens" },
        StatusDetails::Failed(Failure { code, message }) => {
            DetailsView::Failed { error: FailureView { kind: error_kind(*code), code: code.word(), message } }
        }
    });
    let (status, details) = match ended {
        None => (response.status.word(), details),
        Some(SpokenEnd::Cancelled { reason }) => ("cancelled", Some(DetailsView::Cancelled { reason })),
        Some(SpokenEnd::Failed { code, message }) => {
            ("failed", Some(DetailsView::Failed { error: FailureView { kind: "server_error", code, message } }))
        }
    };
    let modality = if spoken.has(&response.id) { Modality::Audio } else { Modality::Text };
    ResponseView {
        object: "realtime.response",
        id: &response.id,
        status,
        status_details: details,
        output: response.output.iter().map(|item| shown_item(item, spoken, true)).collect(),
        conversation_id: response.conversation_id.as_deref(),
        output_modalities: [modality],
        max_output_tokens: max_tokens_view(response.max_output_tokens),
        usage: response.usage.map(usage_view),
        metadata: response.metadata.as_ref().map(json_of),
    }
}

fn usage_view(usage: Usage) -> UsageView {
    let Usage { input_tokens, cached_tokens, output_tokens, .. } = usage;
    let cached_tokens_details = CachedTokens { text_tokens: cached_tokens, audio_tokens: 0, image_tokens: 0 };
    UsageView {
        total_tokens: input_tokens + output_tokens,
        input_tokens,
        output_tokens,
        input_token_details: InputTokens {
            text_tokens: input_tokens,
            audio_tokens: 0,
            image_tokens: 0,
            cached_tokens,
            cached_tokens_details,
        },
        output_token_details: OutputTokens { text_tokens: output_tokens, audio_tokens: 0 },
    }
}

pub fn session_view<'a>(state: &'a SessionState, audio: &'a AudioConfig, extensions: bool) -> SessionView<'a> {
    let SessionState { session_id, model, config } = state;
    SessionView {
        kind: "realtime",
        object: "realtime.session",
        id: session_id,
        model,
        output_modalities: [audio.modality()],
        instructions: &config.instructions,
        tools: config.tools.iter().map(tool_view).collect(),
        tool_choice: tool_choice_view(&config.tool_choice),
        max_output_tokens: max_tokens_view(config.max_output_tokens),
        temperature: config.temperature,
        parallel_tool_calls: config.parallel_tool_calls,
        reasoning: config.reasoning_effort.as_ref().map(|effort| ReasoningView { effort }),
        audio: audio.view(),
        truncation: "auto",
        tracing: (),
        prompt: (),
        include: (),
        expires_at: (),
        extensions: if extensions { vec![EXTENSION] } else { Vec::new() },
    }
}

fn tool_view(tool: &Tool) -> ToolView<'_> {
    let Tool { name, description, parameters, .. } = tool;
    let (description, parameters) = (description.as_deref(), parameters.as_ref().map(json_of));
    ToolView { kind: "function", name, description, parameters }
}

fn max_tokens_view(max_tokens: MaxTokens) -> MaxTokensView {
    match max_tokens {
        MaxTokens::Unlimited => MaxTokensView::Word(Unlimited::Infinite),
        MaxTokens::Tokens(tokens) => MaxTokensView::Tokens(tokens),
    }
}

fn turn_report<'a>(response_id: &'a str, report: &'a TurnReport) -> Extension<'a> {
    Extension::TurnReport {
        response_id,
        reused_tokens: report.reused_tokens,
        computed_tokens: report.computed_tokens,
        reason: report.reason,
        begun_early: report.begun_early,
        expects_answer: report.expects_answer,
        ms: TurnMs {
            queue: report.queue_ms,
            prefill: report.prefill_ms,
            first_token: report.first_token_ms,
            first_sentence: report.first_sentence_ms,
            total: report.total_ms,
        },
    }
}

fn compaction_frame(compaction: &Compaction) -> Extension<'_> {
    let &Compaction { ref stage, version, tokens_before } = compaction;
    let view = |tokens_after| CompactionView {
        summary_id: format!("summary_{version}"),
        version,
        tokens_before,
        tokens_after,
    };
    match stage {
        CompactionStage::Started => Extension::CompactionStarted(view(None)),
        &CompactionStage::Completed { tokens_after, started_version } => {
            Extension::CompactionCompleted { compaction: view(Some(tokens_after)), started_version }
        }
        CompactionStage::Dropped { tokens_after } => Extension::CompactionDropped(view(Some(*tokens_after))),
        CompactionStage::Failed { message } => Extension::CompactionFailed { compaction: view(None), message },
    }
}
