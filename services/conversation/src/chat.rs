//! `POST /v1/chat/completions` and `GET /v1/models`: the door for everything that speaks OpenAI and no websocket.
//!
//! A request carries its whole conversation, or names a durable session (`metadata.session_id`) and carries only what is
//! new. Either way it becomes an answer of pieces, which `reply` puts into the client's words.

mod prompt;
mod reply;
mod request;
mod session;

use crate::backend::{Answer, Ask, Backend, Failure, FailureCode, Finish, Piece, Priority, Purpose};
use crate::live::Live;
use crate::server::ApiError;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use reply::Reply;
use request::ChatRequest;
use serde_json::{Value, json};
use settings::{Preset, Settings};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::{Identity, Store};
use text::chat::ChatPrompt;

/// What the handlers need; cheap to clone.
#[derive(Clone)]
pub struct Chat {
    pub settings: Arc<Settings>,
    pub backend: Backend,
    pub store: Store,
    pub live: Live,
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
    let mut request = request::parse(&body, &chat.settings)?;
    let preset = chat.live.presets().named(&request.model)?.clone();
    let name = model_name(&chat, &preset);
    let (stream, include_usage) = (request.stream, request.include_usage);
    let (mut answer, warm, session_id) = match request.session_id.take() {
        Some(session) => {
            let (answer, session_id) = session::answer(&chat, &identity, &session, request).await?;
            (answer, None, Some(session_id))
        }
        None => {
            let warm = chat.warm(&request, &preset);
            (chat.backend.ask(ask(request, preset)), warm, None)
        }
    };
    let id = completion_id()?;
    tracing::debug!(id, user = %identity.user, model = name, stream, session = session_id, "a completion begins");
    let reply = Reply::new(id, unix_seconds(), name, include_usage, session_id);
    if stream {
        let first = match tokio::time::timeout(REFUSAL, answer.next()).await {
            Ok(Some(Piece::Failed(failure))) => return Err(failure.into()),
            Ok(first) => first,
            Err(_) => None,
        };
        let comments = KeepAlive::new().interval(Duration::from_millis(chat.settings.limits.comment_ms));
        return Ok(Sse::new(events(answer, first, reply, warm)).keep_alive(comments).into_response());
    }
    whole(answer, reply, warm).await
}

/// `GET /v1/models`
pub async fn models(State(chat): State<Chat>) -> Json<Value> {
    Json(json!({ "object": "list", "data": model_list(&chat) }))
}

/// `GET /v1/models/{model}`
pub async fn model(State(chat): State<Chat>, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    let preset = chat.live.presets().named(&name)?;
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
            "reprise": { "preset": preset.name, "model": chat.live.presets().model(), "ctx_size": preset.ctx_size },
        })
    };
    let presets = chat.live.presets();
    // The one that a client gets who asks for none comes first: many take the first.
    let others = presets.iter().filter(|preset| preset.name != presets.chosen().name);
    [presets.chosen()].into_iter().chain(others).map(of).collect()
}

/// As clients see it: the preset, or the model where the preset is nothing but the defaults.
fn model_name(chat: &Chat, preset: &Preset) -> String {
    if preset.name == "default" { chat.live.presets().model().to_owned() } else { preset.name.clone() }
}

fn ask(request: ChatRequest, preset: Arc<Preset>) -> Ask {
    let mut ask = Ask::new(request.chat, preset);
    ask.priority = request.priority;
    ask.max_tokens = request.max_tokens;
    ask.manner = request.manner;
    ask.tool_choice = request.tool_choice;
    ask.parallel_tool_calls = request.parallel_tool_calls;
    ask
}

/// What is done in the silence after a reply: the conversation as the next request will have it is read ahead.
struct Warm {
    backend: Backend,
    chat: ChatPrompt,
    preset: Arc<Preset>,
}

impl Chat {
    /// None for a request in the background: nobody goes on talking after it.
    fn warm(&self, request: &ChatRequest, preset: &Arc<Preset>) -> Option<Warm> {
        let goes_on = request.priority == Priority::Talk;
        goes_on.then(|| Warm { backend: self.backend.clone(), chat: request.chat.clone(), preset: preset.clone() })
    }
}

impl Warm {
    /// After a call comes its result, and the prompt goes on from where the reply stopped: nothing is to be read ahead.
    fn after(self, reply: &Reply, finish: Finish) {
        if !matches!(finish, Finish::Stop | Finish::Length) || reply.content().is_empty() {
            return;
        }
        let Warm { backend, mut chat, preset } = self;
        chat.messages.push(json!({ "role": "assistant", "content": reply.content() }));
        chat.messages.push(json!({ "role": "user", "content": "…" }));
        let mut ask = Ask::new(chat, preset);
        (ask.purpose, ask.priority) = (Purpose::WarmHistory { placeholders: 1 }, Priority::Speculate);
        let mut answer = backend.ask(ask);
        tokio::spawn(async move { while answer.next().await.is_some() {} });
    }
}

/// The whole answer in one piece.
async fn whole(mut answer: Answer, mut reply: Reply, mut warm: Option<Warm>) -> Result<Response, ApiError> {
    while let Some(piece) = answer.next().await {
        if let Piece::Failed(failure) = piece {
            return Err(failure.into());
        }
        if let Piece::Done { finish, .. } = &piece
            && let Some(warm) = warm.take()
        {
            warm.after(&reply, *finish);
        }
        reply.add(&piece);
    }
    Ok(Json(reply.whole()).into_response())
}

/// The events of a stream. Whoever hangs up drops it, and with it the answer.
fn events(
    answer: Answer,
    first: Option<Piece>,
    reply: Reply,
    warm: Option<Warm>,
) -> impl stream::Stream<Item = Result<Event, Infallible>> {
    let state = (answer, first, reply, warm, Vec::<String>::new());
    stream::unfold(state, |(mut answer, mut first, mut reply, mut warm, mut ready)| async move {
        while ready.is_empty() {
            let piece = match first.take() {
                Some(piece) => piece,
                None => answer.next().await?,
            };
            if let Piece::Done { finish, .. } = &piece
                && let Some(warm) = warm.take()
            {
                warm.after(&reply, *finish);
            }
            ready = reply.add(&piece);
            ready.reverse();
        }
        let data = ready.pop()?;
        Some((Ok(Event::default().data(data)), (answer, first, reply, warm, ready)))
    })
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let code = failure.code.word();
        let status = match failure.code {
            FailureCode::PromptTooLong | FailureCode::InvalidRequest => StatusCode::BAD_REQUEST,
            FailureCode::Conflict => StatusCode::CONFLICT,
            FailureCode::Busy | FailureCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            FailureCode::EngineFailed => StatusCode::INTERNAL_SERVER_ERROR,
            FailureCode::UpstreamFailed => StatusCode::BAD_GATEWAY,
            FailureCode::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        };
        let error = ApiError::new(status, code, failure.message);
        match failure.code {
            FailureCode::PromptTooLong => error.param("messages"),
            FailureCode::Busy | FailureCode::Unavailable => error.retry_after(1),
            _ => error,
        }
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

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
