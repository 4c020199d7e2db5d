//! Completion in a durable session, whose request holds the new messages only. It adds them as any client does, asks
//! for a response and reads along.

use super::listening::Listening;
use super::retries::{ReplyProgress, RequestAttempt};
use super::source::Source;
use super::{CompletionRequest, Completions};
use crate::Error;
use crate::identity::Scope;
use access::Caller;
use runtime::Attach;
use serde_json::{Map, Value, json};
use session::machine::Replay;
use session::{
    ConfigUpdate, Event, Input, ItemBody, JsonText, MaxTokens, Message, MessageRole, NamedSpeaker, NewItem, NewTurn,
    Part, ResponseRequest, Role,
};
use std::sync::Arc;
use store::{SessionRef, new_id};

const NEW: &str = "new";

/// Returns the events and the session's id. A system message at the head becomes the session's instructions; tools and
/// sampling hold for this response.
pub async fn answer(
    completions: &Completions,
    caller: &Caller,
    id: &str,
    request: CompletionRequest,
) -> Result<(Source, String), Error> {
    let (model, scope) = (request.model.clone(), request.scope.clone());
    let reply = match request.attempt {
        Some(attempt) => completions.recent.reply(&scope, id, attempt),
        None => Arc::default(),
    };
    let attempt = request.attempt;
    let (update, mut turn) = turn_of(request)?;
    let said = turn.items.iter().map(|item| item.body.text_bytes());
    let most = completions.settings.limits.item_bytes;
    if said.chain(update.as_ref().map(ConfigUpdate::text_bytes)).any(|bytes| bytes > most) {
        let message = runtime::Error::TextTooLong { limit: most }.to_string();
        return Err(Error::request("value_too_large", message, Some("messages")));
    }
    turn.request.of_request = attempt.and_then(|attempt| attempt.stored_digest(&completions.settings.limits, id));
    // Before the lock, so that a client that hangs up meanwhile stops its response.
    let reader = reply.clone().reader();
    let mut progress = reply.progress().await;
    restore(completions, &mut progress, &scope, id, attempt).await?;
    let session = match progress.session.clone() {
        Some(session) => session,
        None if id == NEW => {
            let session = completions.runtime.create(scope.new_session(&model)).await?;
            completions.begun.began(caller, &session);
            session
        }
        None => completions.begun.open_session(&completions.store, caller, id).await?,
    };
    let session_id = session.id().to_owned();
    progress.session = Some(session.clone());
    if progress.has_answer() {
        tracing::info!(session = session_id, "a client that sends a request again gets the answer to the first one");
        return Ok((Source::Shared(reader), session_id));
    }
    let left_over = progress.begin_again().await;
    if progress.is_taken {
        turn.items.clear();
    }
    progress.listen(listen(completions, &session, &scope, left_over, update, turn, Map::new()).await?);
    Ok((Source::Shared(reader), session_id))
}

async fn restore(
    completions: &Completions,
    progress: &mut ReplyProgress,
    scope: &Scope,
    name: &str,
    attempt: Option<RequestAttempt>,
) -> Result<(), Error> {
    let Some(attempt) = attempt.filter(|_| progress.session.is_none()) else { return Ok(()) };
    if let Some(stored) = attempt.stored(&completions.store, &completions.settings.limits, &scope.user, name).await? {
        progress.restore(stored);
    }
    Ok(())
}

/// Metadata key of a response for the mark of the request that it answers.
pub const MARK: &str = "client_event_id";

pub async fn take_turn_once<E: From<Error>>(
    completions: &Completions,
    scope: &Scope,
    name: &str,
    attempt: Option<RequestAttempt>,
    first: impl AsyncFnOnce(&mut ReplyProgress) -> Result<SessionRef, E>,
    (turn, metadata): (NewTurn, Map<String, Value>),
) -> Result<(Source, SessionRef), E> {
    let reply = match attempt {
        Some(attempt) => completions.recent.reply(scope, name, attempt),
        None => Arc::default(),
    };
    // Before the lock, so that a client that hangs up meanwhile stops its response.
    let reader = reply.clone().reader();
    let mut progress = reply.progress().await;
    restore(completions, &mut progress, scope, name, attempt).await?;
    if let Some(session) = progress.session.clone() {
        if progress.has_answer() {
            tracing::info!(
                session = session.id(),
                "a client that sends a request again gets the answer to the first one"
            );
            return Ok((Source::Shared(reader), session));
        }
        let left_over = progress.begin_again().await;
        if progress.is_taken {
            progress.listen(listen(completions, &session, scope, left_over, None, turn, metadata).await?);
            return Ok((Source::Shared(reader), session));
        }
    }
    let session = first(&mut progress).await?;
    Ok((Source::Shared(reader), session))
}

/// Sends a turn as a client does, and reads along. Deletes `left_over`, items that no client has heard. `metadata` are
/// texts by names.
pub async fn listen(
    completions: &Completions,
    session: &SessionRef,
    scope: &Scope,
    left_over: Vec<String>,
    update: Option<ConfigUpdate>,
    mut turn: NewTurn,
    mut metadata: Map<String, Value>,
) -> Result<Listening, Error> {
    let interest = |event: &Event| event.response_id().is_some() || matches!(event, Event::Refused { .. });
    let (interest, person) = (Arc::new(interest), Some(scope.person.clone()));
    let attach = Attach { replay: Replay::Nothing, interest, person, trace_parent: scope.trace_parent };
    let (connected, written) = completions.runtime.attach(session, attach).await?;
    let mark = new_id("turn")?;
    metadata.insert(MARK.to_owned(), json!(mark));
    let metadata = JsonText::from(Value::Object(metadata).to_string());
    turn.request.metadata = Some(metadata.clone());
    let listening = Listening::new(connected, written, mark, metadata);
    for item_id in left_over {
        listening.unsay(item_id).await;
    }
    let configured = update.map(|update| Input::Configure(Box::new(update)));
    for input in configured.into_iter().chain([Input::TakeTurn(Box::new(turn))]) {
        if !listening.say(input).await {
            break; // the session's end comes as an event
        }
    }
    Ok(listening)
}

fn turn_of(request: CompletionRequest) -> Result<(Option<ConfigUpdate>, NewTurn), Error> {
    let has_image = |message: &Message| message.parts.iter().any(|part| matches!(part, Part::Image(_)));
    if request.prompt.messages.iter().any(has_image) {
        return Err(Error::request("content_not_supported", "a session keeps no images: send text", Some("messages")));
    }
    let mut messages = request.prompt.messages.iter().peekable();
    let head = messages.next_if(|message| message.role == MessageRole::System);
    let update = head.map(|head| ConfigUpdate { instructions: Some(head.text()), ..ConfigUpdate::default() });
    let bodies = request.scope.name_persons(messages.flat_map(bodies).collect());
    let items = bodies.into_iter().map(|body| NewItem { id: None, body }).collect();
    if request.prompt.tools.iter().any(|tool| tool.name.is_empty()) {
        return Err(Error::request("invalid_value", "a tool has no name", Some("tools")));
    }
    let temperature = request.options.sampling.temperature;
    let asked = ResponseRequest {
        config: ConfigUpdate {
            tools: (!request.prompt.tools.is_empty()).then_some(request.prompt.tools),
            tool_choice: Some(request.tool_choice),
            max_output_tokens: request.max_tokens.map(MaxTokens::Tokens),
            temperature: temperature.map(|temperature| Some(f64::from(temperature))),
            reasoning_effort: request.prompt.options.reasoning_effort.map(Some),
            parallel_tool_calls: Some(request.parallel_tool_calls),
            ..ConfigUpdate::default()
        },
        options: request.options,
        ..ResponseRequest::default()
    };
    Ok((update, NewTurn { items, request: asked, ..NewTurn::default() }))
}

pub fn bodies(message: &Message) -> Vec<ItemBody> {
    let text = message.text();
    match message.role {
        MessageRole::System => vec![ItemBody::message(Role::System, text)],
        MessageRole::User => {
            let name = message.name.clone().filter(|name| settings::person_name(name).is_some());
            let speaker = name.map(|name| NamedSpeaker { name, person: None });
            vec![ItemBody::Message { role: Role::User, parts: vec![text], speaker }]
        }
        MessageRole::Tool => {
            vec![ItemBody::FunctionCallOutput { call_id: message.call_id.clone().unwrap_or_default(), output: text }]
        }
        MessageRole::Assistant => {
            let said = (!text.is_empty()).then(|| ItemBody::message(Role::Assistant, text));
            let calls = message.calls.iter().map(|call| ItemBody::FunctionCall {
                call_id: call.id.clone().unwrap_or_default(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
            });
            said.into_iter().chain(calls).collect()
        }
    }
}
