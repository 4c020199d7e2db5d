//! `POST /v1/chat/completions` and `GET /v1/models`: the door for everything that speaks OpenAI and no websocket.
//!
//! A request carries its whole conversation, or names a durable session (`metadata.session_id`) and carries only what is
//! new. Either way it becomes events of one response, which `render` puts into the client's words.

mod durable;
mod messages;
mod parse;
mod render;
mod source;

use crate::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use model::{Model, ModelRequest, PLACEHOLDER, Purpose};
use parse::ChatRequest;
use render::ChatReply;
use runtime::Runtime;
use serde_json::{Value, json};
use session::machine::OneShot;
use session::prompt::Wording;
use session::{Event, Failure, MaxTokens, Message, MessageRole, Priority, Prompt, ResponseStatus};
use settings::{Preset, Settings};
use source::Source;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::{Identity, Store};

/// What the handlers need; cheap to clone.
#[derive(Clone)]
pub struct Chat {
    pub settings: Arc<Settings>,
    pub model: Model,
    pub store: Store,
    pub runtime: Runtime,
    pub wording: Arc<Wording>,
}

/// How long the headers of a stream may wait for an ask to be refused, so that a refusal still has a status of its own.
/// A prompt is prepared in a fraction of this.
const REFUSAL: Duration = Duration::from_millis(200);

/// `POST /v1/chat/completions`
pub async fn completions(
    State(chat): State<Chat>,
    Extension(identity): Extension<Identity>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body.map_err(|refused| unreadable(&refused, &chat.settings))?;
    let mut request = parse::parse(&body, &chat.settings, &chat.wording)?;
    let preset = chat.runtime.presets().named(&request.model)?.clone();
    let name = model_name(&chat, &preset);
    let (stream, include_usage) = (request.stream, request.include_usage);
    let id = completion_id()?;
    let (source, warm, session_id) = match request.session_id.take() {
        Some(session) => {
            let (source, session_id) = durable::answer(&chat, &identity, &session, request).await?;
            (source, None, Some(session_id))
        }
        None => {
            let warm = chat.warm(&request, &preset);
            let max_tokens = request.max_tokens.map_or(MaxTokens::Unlimited, MaxTokens::Tokens);
            let answer = chat.model.ask(model_request(request, preset));
            let one_shot = OneShot::new(id.trim_start_matches("chatcmpl-").to_owned(), max_tokens, runtime::random()?);
            (Source::of_model(answer, one_shot), warm, None)
        }
    };
    tracing::debug!(id, user = %identity.user, model = name, stream, session = session_id, "a completion begins");
    let reply = ChatReply::new(id, unix_seconds(), name, include_usage, session_id);
    let mut completion = Completion { source, reply, warm };
    if !stream {
        return completion.whole().await;
    }
    let mut first = Vec::new();
    if let Ok(read) = tokio::time::timeout(REFUSAL, completion.read(&mut first)).await {
        read?;
    }
    let comments = KeepAlive::new().interval(Duration::from_millis(chat.settings.limits.comment_ms));
    Ok(Sse::new(completion.stream(first)).keep_alive(comments).into_response())
}

/// `GET /v1/models`
pub async fn models(State(chat): State<Chat>) -> Json<Value> {
    Json(json!({ "object": "list", "data": model_list(&chat) }))
}

/// `GET /v1/models/{model}`
pub async fn model(State(chat): State<Chat>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let preset = chat.runtime.presets().named(&name)?;
    let known = model_list(&chat).into_iter().find(|model| model["id"] == model_name(&chat, preset));
    known.map(Json).ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "model_not_found", "there is no such model"))
}

fn model_list(chat: &Chat) -> Vec<Value> {
    let created = unix_seconds();
    let of = |preset: &Arc<Preset>| {
        json!({
            "id": model_name(chat, preset), "object": "model", "created": created, "owned_by": "reprise",
            // As other servers call it.
            "max_model_len": preset.ctx_size,
            "reprise": { "preset": preset.name, "model": chat.runtime.presets().model, "ctx_size": preset.ctx_size },
        })
    };
    let presets = chat.runtime.presets();
    // The one that a client gets who asks for none comes first: many take the first.
    let others = presets.iter().filter(|preset| preset.name != presets.chosen.name);
    [&presets.chosen].into_iter().chain(others).map(of).collect()
}

/// As clients see it: the preset, or the model where the preset is nothing but the defaults.
fn model_name(chat: &Chat, preset: &Preset) -> String {
    if preset.name == "default" { chat.runtime.presets().model.clone() } else { preset.name.clone() }
}

fn model_request(request: ChatRequest, preset: Arc<Preset>) -> ModelRequest {
    let mut asked = ModelRequest::new(request.prompt, preset);
    asked.priority = request.priority;
    asked.max_tokens = request.max_tokens;
    asked.options = request.options;
    asked.tool_choice = request.tool_choice;
    asked.parallel_tool_calls = request.parallel_tool_calls;
    asked
}

/// One completion under way. A client that hangs up drops it, and with it the source.
struct Completion {
    source: Source,
    reply: ChatReply,
    warm: Option<Warm>,
}

impl Completion {
    /// Waits for what the client is told next and appends it.
    async fn read(&mut self, out: &mut Vec<String>) -> Result<(), Failure> {
        while out.is_empty() && !self.reply.is_over() {
            let Some(event) = self.source.next().await else {
                self.reply.finish(out);
                return Ok(());
            };
            match event {
                Ok(event) => {
                    self.reply.add(&event, out)?;
                    if let Event::ResponseDone { response } = &*event
                        && let Some(warm) = self.warm.take()
                    {
                        warm.after(&self.reply, response.status);
                    }
                }
                Err(failure) => {
                    // What is done is done, whatever became of its report.
                    self.reply.finish(out);
                    return if self.reply.is_over() { Ok(()) } else { Err(failure) };
                }
            }
        }
        Ok(())
    }

    /// The whole answer in one piece.
    async fn whole(&mut self) -> Result<Response, ApiError> {
        while !self.reply.is_over() {
            let mut told = Vec::new();
            self.read(&mut told).await?;
            if told.is_empty() {
                break;
            }
        }
        Ok(Json(self.reply.whole()).into_response())
    }

    fn stream(self, first: Vec<String>) -> impl stream::Stream<Item = Result<SseEvent, Infallible>> {
        stream::unfold((self, first), |(mut completion, mut ready)| async move {
            if ready.is_empty()
                && let Err(failure) = completion.read(&mut ready).await
            {
                completion.reply.failed(&failure, &mut ready);
            }
            if ready.is_empty() {
                return None;
            }
            let data = ready.remove(0);
            Some((Ok(SseEvent::default().data(data)), (completion, ready)))
        })
    }
}

/// What is done in the silence after a reply: the conversation as the next request will have it is read ahead.
struct Warm {
    model: Model,
    prompt: Prompt,
    preset: Arc<Preset>,
}

impl Chat {
    /// None for a request in the background: no user goes on talking after it.
    fn warm(&self, request: &ChatRequest, preset: &Arc<Preset>) -> Option<Warm> {
        let goes_on = request.priority == Priority::Talk;
        goes_on.then(|| Warm { model: self.model.clone(), prompt: request.prompt.clone(), preset: preset.clone() })
    }
}

impl Warm {
    /// After a call comes its result, and the prompt goes on from where the reply stopped: nothing is to be read ahead.
    fn after(self, reply: &ChatReply, status: ResponseStatus) {
        let is_said = matches!(status, ResponseStatus::Completed | ResponseStatus::Incomplete);
        if !is_said || reply.has_calls() || reply.content().is_empty() {
            return;
        }
        let Warm { model, mut prompt, preset } = self;
        prompt.messages.push(Message::new(MessageRole::Assistant, reply.content()));
        prompt.messages.push(Message::new(MessageRole::User, PLACEHOLDER));
        let mut asked = ModelRequest::new(prompt, preset);
        (asked.purpose, asked.priority) = (Purpose::WarmHistory { placeholders: 1 }, Priority::Speculate);
        let mut answer = model.ask(asked);
        tokio::spawn(async move { while answer.next().await.is_some() {} });
    }
}

fn unreadable(refused: &BytesRejection, settings: &Settings) -> ApiError {
    match refused.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let most = settings.limits.body_bytes;
            let message = format!("the body is larger than {most} bytes (limits.body_bytes)");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
        }
        _ => ApiError::bad("invalid_body", "the body could not be read to its end"),
    }
}

fn completion_id() -> Result<String, ApiError> {
    Ok(store::new_id("chatcmpl")?.replacen('_', "-", 1))
}

fn unix_seconds() -> i64 {
    runtime::wall_ms() / 1000
}
