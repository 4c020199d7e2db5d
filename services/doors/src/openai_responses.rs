//! OpenAI's Responses: the door of the Agents SDK, of Pipecat and LiveKit, and of Home Assistant's `openai_conversation`.
//!
//! A response is kept in a durable session unless its client says `store: false`, and the next one may go on from it. Over
//! HTTP and over a websocket a request becomes events of one response, which `render` puts into the client's words.

pub mod conversations;
mod input;
mod parse;
mod render;
mod stateless;
mod stored;
mod tools;
mod view;
mod websocket;

pub use parse::{ResponsesBody, parse, request as parse_frame};
pub use stored::{StoredQuery, cancel, delete, read, stop_thinking};
pub use websocket::{ResponsesQuery, connect};

use crate::entry::Preparation;
use crate::headers::retries;
use crate::json::stream_body;
use crate::{ApiError, unread};
use access::Caller;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use model::PreparationShare;
use parse::ResponsesRequest;
use render::{FrameShape, ResponsesReply};
use replies::{Completion, CompletionRequest, Completions, RequestAttempt, StoredTurn};
use runtime::{ModelChoice, heavy};
use serde_json::{Map, Value, json};
use session::{ConfigUpdate, Failure, ItemBody, MaxTokens, NewTurn, ResponseRequest};
use std::sync::Arc;
use std::time::Duration;
use store::{SessionRecord, SessionRef};

pub async fn create(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Preparation(preparation): Preparation,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let mut request = heavy::run(body.len(), || parse::parse(&body, &completions.settings)).await?;
    request.scope = completions.persons.scope(&caller, &headers, &request.clues, &mut request.input).await?;
    let attempt = Some(heavy::run(body.len(), || RequestAttempt::new(&request.scope, &body, retries(&headers))).await);
    drop(body);
    if !request.generate {
        let message = "generate is for frames of the websocket: leave it out";
        return Err(ApiError::bad("unsupported_parameter", message).param("generate"));
    }
    let shape = if request.stream { FrameShape::Sse } else { FrameShape::Whole };
    let (completion, reply) = answer(&completions, &caller, attempt, request, preparation, shape).await?;
    if shape == FrameShape::Whole {
        let reply = replies::whole(completion, reply).await.map_err(refused)?;
        return Ok(Json(reply.whole()).into_response());
    }
    let frames = replies::streamed(completion, reply).await.map_err(refused)?;
    let silence = Duration::from_millis(completions.settings.limits.comment_ms);
    // An empty line, which every reader skips.
    Ok(stream_body("text/event-stream", replies::kept_alive(frames, silence, "\n".to_owned())))
}

async fn answer(
    completions: &Completions,
    caller: &Caller,
    attempt: Option<RequestAttempt>,
    mut request: ResponsesRequest,
    preparation: Arc<PreparationShare>,
    shape: FrameShape,
) -> Result<(Completion, ResponsesReply), ApiError> {
    let user = &caller.identity.user;
    unread::note("responses", user, std::mem::take(&mut request.unread));
    let choice = completions.runtime.presets().choose(user, &request.model)?;
    if request.store {
        return keep(completions, caller, &choice, attempt, request, shape).await;
    }
    resolve_past(completions, caller, &mut request).await?;
    let id = store::new_id("resp")?;
    let base = base(&request, choice.name.clone());
    let reply = ResponsesReply::new(id.clone(), base, request.tells_reasoning, shape);
    tracing::debug!(id, user = %caller.identity.user, stream = request.stream, "a response begins");
    let asked = CompletionRequest { attempt, ..stateless::completion_request(request)? };
    let completion = completions.ask(caller, &id, &choice, asked, preparation).await?;
    Ok((completion, reply))
}

/// Puts what was said in a durable session before the input of a response that is not kept.
async fn resolve_past(
    completions: &Completions,
    caller: &Caller,
    request: &mut ResponsesRequest,
) -> Result<(), ApiError> {
    let Some(goes_on_from) = request.goes_on_from.take() else { return Ok(()) };
    let past = completions.past_of(caller, &goes_on_from).await?;
    request.input.splice(0..0, past);
    Ok(())
}

/// Reads ahead what the next response will begin with. Returns the id by which it goes on from here, and the frames.
fn prepared(completions: &Completions, request: &ResponsesRequest) -> Result<(String, Vec<String>), ApiError> {
    let user = &request.scope.user;
    unread::note("responses", user, request.unread.clone());
    let choice = completions.runtime.presets().choose(user, &request.model)?;
    // A durable session reads ahead by itself.
    if request.goes_on_from.is_none() {
        completions.warm(&request.scope, &choice, stateless::prompt_ahead(request));
    }
    let id = store::new_id("resp")?;
    let mut reply = ResponsesReply::new(id.clone(), base(request, choice.name), false, FrameShape::Message);
    let mut frames = Vec::new();
    reply.nothing(&mut frames);
    Ok((id, frames))
}

/// Asks for a reply in a durable session, which gives it its id.
async fn keep(
    completions: &Completions,
    caller: &Caller,
    choice: &ModelChoice,
    attempt: Option<RequestAttempt>,
    request: ResponsesRequest,
    shape: FrameShape,
) -> Result<(Completion, ResponsesReply), ApiError> {
    let (mut base, tells_reasoning) = (base(&request, String::new()), request.tells_reasoning);
    let items = completions.kept_items(&request.input, &request.scope)?;
    if request.goes_on_from.is_none() {
        stateless::check_input(&request.input)?;
    }
    let (completion, session) = completions.take_stored_turn(caller, attempt, turn_of(request, items)).await?;
    base.insert("model".to_owned(), json!(model_of(completions, &session, Some(choice)).await?));
    base.insert("conversation".to_owned(), json!({ "id": session.id() }));
    tracing::debug!(session = session.id(), user = %caller.identity.user, "a response begins");
    Ok((completion, ResponsesReply::new(String::new(), base, tells_reasoning, shape)))
}

fn turn_of(request: ResponsesRequest, items: Vec<ItemBody>) -> StoredTurn {
    let ResponsesRequest { goes_on_from, scope, model, mut metadata, .. } = request;
    stored::keep_request(&request.echo, &mut metadata);
    let temperature = request.options.sampling.temperature;
    let config = ConfigUpdate {
        instructions: request.instructions,
        tools: Some(request.tools),
        tool_choice: Some(request.tool_choice),
        max_output_tokens: Some(request.max_output_tokens.map_or(MaxTokens::Unlimited, MaxTokens::Tokens)),
        temperature: Some(temperature.map(f64::from)),
        reasoning_effort: Some(request.reasoning_effort),
        parallel_tool_calls: Some(request.parallel_tool_calls),
    };
    let request = ResponseRequest { config, options: request.options, ..ResponseRequest::default() };
    let turn = NewTurn { request, ..NewTurn::default() };
    StoredTurn { goes_on_from, scope, model, items, turn, metadata }
}

/// The name of a session's preset, which it keeps from its begin; or of its persona, where that was asked for.
async fn model_of(
    completions: &Completions,
    session: &SessionRef,
    choice: Option<&ModelChoice>,
) -> Result<String, ApiError> {
    let SessionRecord { placement, config, .. } = completions.store.session(session).await?;
    if let Some(choice) = choice.filter(|choice| !config.persona.is_empty() && choice.instructions == config.persona) {
        return Ok(choice.name.clone());
    }
    let presets = completions.runtime.presets();
    Ok(presets.name_of(&presets.of_session(&placement.preset, placement.ctx_size)).to_owned())
}

fn base(request: &ResponsesRequest, model: String) -> Map<String, Value> {
    let mut base = request.echo.clone();
    base.insert("model".to_owned(), json!(model));
    base.insert("created_at".to_owned(), json!(runtime::wall_ms() / 1000));
    base
}

fn refused(failure: Failure) -> ApiError {
    let mut error = ApiError::from(failure);
    if error.param.as_deref() == Some("messages") {
        error.param = Some("input".to_owned());
    }
    error
}
