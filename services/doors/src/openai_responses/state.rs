//! Where a response stands: in a durable session that it begins, goes on with or branches off from.

use super::parse::{GoesOnFrom, ResponsesRequest};
use super::stateless::check_input;
use crate::ApiError;
use crate::access::Caller;
use crate::completion::{Completion, Completions, ReplyProgress, RequestAttempt, bodies};
use axum::http::StatusCode;
use serde_json::{Map, Value};
use session::{
    ConfigUpdate, FailureCode, Ids, Item, ItemBody, ItemStatus, MaxTokens, Message, MessageRole, NewItem, NewTurn,
    Part, ResponseRequest, ResponseStatus, Role, ToolCall,
};
use store::{ItemVersion, SessionRef, StoredResponse, VersionStatus, new_id};

/// A response that its client may see: of its user, and of a session that it may open.
pub async fn find(completions: &Completions, caller: &Caller, id: &str) -> Result<Option<StoredResponse>, ApiError> {
    let Some(found) = completions.store.find_response(&caller.identity.user, id).await? else { return Ok(None) };
    let opened = completions.gate.begun.open_session(&completions.store, caller, found.session.id()).await;
    match opened {
        Ok(_) => Ok(Some(found)),
        // A client secret is not told what it may not open.
        Err(error) if error.status.is_client_error() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The response that a client goes on from.
pub async fn previous(completions: &Completions, caller: &Caller, id: &str) -> Result<StoredResponse, ApiError> {
    match find(completions, caller, id).await? {
        Some(found) if found.status == ResponseStatus::InProgress => {
            let message = format!("the response {id} is not over: wait for its end, or cancel it");
            Err(ApiError::new(StatusCode::CONFLICT, "conversation_already_has_active_response", message)
                .param("previous_response_id"))
        }
        Some(found) => Ok(found),
        None => Err(previous_not_found(id)),
    }
}

pub fn previous_not_found(id: &str) -> ApiError {
    let message = format!("there is no response {id} to go on from: send the whole conversation instead");
    ApiError::bad("previous_response_not_found", message).param("previous_response_id")
}

/// A durable session by its id.
pub async fn conversation(completions: &Completions, caller: &Caller, id: &str) -> Result<SessionRef, ApiError> {
    let opened = completions.gate.begun.open_session(&completions.store, caller, id).await;
    opened.map_err(|error| ApiError { param: Some("conversation".to_owned()), ..error })
}

/// Takes the turn, once, however often its client sends it.
pub async fn take_turn(
    completions: &Completions,
    caller: &Caller,
    attempt: Option<RequestAttempt>,
    request: ResponsesRequest,
) -> Result<(Completion, SessionRef), ApiError> {
    let name = match &request.goes_on_from {
        None => "new".to_owned(),
        Some(GoesOnFrom::Conversation(id) | GoesOnFrom::Response(id)) => id.clone(),
    };
    let turn = turn_of(ResponsesRequest { input: Vec::new(), ..request.clone() }, completions)?;
    let again = (turn, request.metadata.clone());
    let first = async |progress: &mut ReplyProgress| place(completions, caller, request, progress).await;
    completions.take_turn_once(caller, &name, attempt, first, again).await
}

/// Finds or begins the session and takes the turn there. A response that is not the last one any more is gone on from in a
/// session of its own, so that what was said since is not seen.
async fn place(
    completions: &Completions,
    caller: &Caller,
    request: ResponsesRequest,
    progress: &mut ReplyProgress,
) -> Result<SessionRef, ApiError> {
    let (metadata, goes_on_from) = (request.metadata.clone(), request.goes_on_from.clone());
    let (session, turn) = match goes_on_from {
        None => {
            check_input(&request.input)?;
            let log = kept(&request.input, completions)?;
            let turn = turn_of(ResponsesRequest { input: Vec::new(), ..request.clone() }, completions)?;
            if let Some(Known { session, last_item, items }) = known(completions, caller, &request.model, &log).await? {
                let items = log[items..].iter().map(|body| NewItem { id: None, body: body.clone() }).collect();
                let own = NewTurn { behind: Some(last_item), items, ..turn.clone() };
                if is_taken(completions, progress, &session, own, &metadata).await? {
                    return Ok(session);
                }
            }
            (begin(completions, caller, &request.model, &request.input).await?, turn)
        }
        Some(GoesOnFrom::Conversation(id)) => {
            (conversation(completions, caller, &id).await?, turn_of(request, completions)?)
        }
        Some(GoesOnFrom::Response(id)) => {
            let StoredResponse { session, end, .. } = previous(completions, caller, &id).await?;
            let end = end.ok_or_else(|| previous_not_found(&id))?;
            let turn = turn_of(request, completions)?;
            if end.is_last {
                let own = NewTurn { behind: end.last_item, ..turn.clone() };
                if is_taken(completions, progress, &session, own, &metadata).await? {
                    return Ok(session);
                }
            }
            let (new, now_ms) = (new_id("sess")?, runtime::wall_ms());
            let forked = completions.store.fork_session(&session, &end.order_key, new, now_ms).await?;
            completions.gate.begun.began(caller, &forked);
            tracing::debug!(from = session.id(), session = forked.id(), "a response branches off");
            (forked, turn)
        }
    };
    completions.take_turn(progress, &session, turn, metadata).await??;
    Ok(session)
}

/// False: something was said since.
async fn is_taken(
    completions: &Completions,
    progress: &mut ReplyProgress,
    session: &SessionRef,
    turn: NewTurn,
    metadata: &Map<String, Value>,
) -> Result<bool, ApiError> {
    match completions.take_turn(progress, session, turn, metadata.clone()).await? {
        Ok(()) => Ok(true),
        Err(failure) if failure.code == FailureCode::Conflict => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

/// A session that has the begin of a log, and nothing else.
struct Known {
    session: SessionRef,
    last_item: String,
    items: usize,
}

/// Sessions that are looked at for it.
const RECENT: u32 = 8;

/// Clients that keep the log themselves send all of it with each turn. Where a session of theirs has all of it but what is
/// new the turn is taken there: so a conversation is stored once.
async fn known(
    completions: &Completions,
    caller: &Caller,
    model: &str,
    log: &[ItemBody],
) -> Result<Option<Known>, ApiError> {
    let choice = completions.runtime.presets().choose(model)?;
    let (store, most) = (&completions.store, u32::try_from(log.len()).unwrap_or(u32::MAX));
    // The first turn goes on from nothing.
    if !log.iter().any(|body| !matches!(body, ItemBody::Message { role: Role::User | Role::System, .. })) {
        return Ok(None);
    }
    for (id, items) in store.recent_sessions(&caller.identity.user, most, RECENT).await? {
        let Some(new) = log.len().checked_sub(items as usize).filter(|new| (1..log.len()).contains(new)) else {
            continue;
        };
        let Ok(session) = completions.gate.begun.open_session(store, caller, &id).await else { continue };
        let past = &log[..log.len() - new];
        let is_same =
            |item: &ItemVersion, body: &ItemBody| item.body == *body && item.status != VersionStatus::InProgress;
        let last = store.items_backwards(&session, None, 1).await?.pop();
        let Some(last) = last.filter(|last| past.last().is_some_and(|body| is_same(last, body))) else { continue };
        let record = store.session(&session).await?;
        let is_meant = choice.is_any_preset || record.placement.preset == choice.preset.name;
        if !is_meant || record.config.persona != choice.instructions {
            continue;
        }
        let found = store.items(&session, None, most).await?;
        if found.len() == past.len() && found.iter().zip(past).all(|(item, body)| is_same(item, body)) {
            return Ok(Some(Known { session, last_item: last.item_id, items: past.len() }));
        }
    }
    Ok(None)
}

/// Begins a session with the input in it.
pub async fn begin(
    completions: &Completions,
    caller: &Caller,
    model: &str,
    input: &[Message],
) -> Result<SessionRef, ApiError> {
    // The configured instructions are for clients that bring none.
    let brings_own = input.first().is_some_and(|message| message.role == MessageRole::System);
    let update = ConfigUpdate { instructions: brings_own.then(String::new), ..ConfigUpdate::default() };
    let session = completions.runtime.create(&caller.identity.user, model, Some(&update)).await?;
    completions.gate.begun.began(caller, &session);
    add(completions, &session, items_of(input, completions)?).await?;
    Ok(session)
}

/// Adds items where no client is connected, all of them or none.
async fn add(completions: &Completions, session: &SessionRef, items: Vec<Item>) -> Result<(), ApiError> {
    if items.is_empty() {
        return Ok(());
    }
    Ok(completions.store.append_all(session, items, runtime::wall_ms()).await?)
}

fn items_of(input: &[Message], completions: &Completions) -> Result<Vec<Item>, ApiError> {
    let mut ids = Ids::new(runtime::random()?);
    let bodies = kept(input, completions)?.into_iter();
    Ok(bodies.map(|body| Item::new(ids.next("item"), body, ItemStatus::Completed)).collect())
}

/// What a session keeps of an input.
pub fn kept(input: &[Message], completions: &Completions) -> Result<Vec<ItemBody>, ApiError> {
    if input.iter().flat_map(|message| &message.parts).any(|part| matches!(part, Part::Image(_))) {
        let message = "a session keeps no images: send store: false, or text only";
        return Err(ApiError::bad("unsupported_parameter", message).param("input"));
    }
    let bodies: Vec<ItemBody> = input.iter().flat_map(bodies).collect();
    let most = completions.settings.limits.session_items;
    if bodies.len() as u64 > most {
        let message = format!("{} items are more than {most} (limits.session_items)", bodies.len());
        return Err(ApiError::bad("invalid_value", message).param("input"));
    }
    Ok(bodies)
}

fn turn_of(request: ResponsesRequest, completions: &Completions) -> Result<NewTurn, ApiError> {
    let bodies = kept(&request.input, completions)?;
    // Each is an event and an operation that wait for the store.
    let most = completions.settings.limits.waiting_steps / 4;
    if bodies.len() > most {
        let message = format!("{} new items at once are more than {most} (limits.waiting_steps)", bodies.len());
        return Err(ApiError::bad("invalid_value", message).param("input"));
    }
    let items = bodies.into_iter().map(|body| NewItem { id: None, body }).collect();
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
    let asked = ResponseRequest { config, options: request.options, ..ResponseRequest::default() };
    Ok(NewTurn { behind: None, items, request: asked })
}

/// Everything that was said up to an item, as messages of a prompt: for a response that is not kept.
pub async fn past(
    completions: &Completions,
    session: &SessionRef,
    last_item: Option<&str>,
) -> Result<Vec<Message>, ApiError> {
    let rows = u32::try_from(completions.settings.limits.page_rows).unwrap_or(u32::MAX);
    let most = completions.settings.limits.body_bytes;
    let (mut messages, mut after, mut bytes) = (Vec::new(), None::<String>, 0);
    loop {
        let page = completions.store.items(session, after.as_deref(), rows).await?;
        after = page.last().map(|item| item.item_id.clone());
        for item in &page {
            bytes += item.body.text_bytes();
            if bytes > most {
                let message = "the conversation is too long to be read at once: leave store: false out";
                return Err(ApiError::bad("context_length_exceeded", message).param("input"));
            }
            push_item(&mut messages, item.item());
            if last_item == Some(item.item_id.as_str()) {
                return Ok(messages);
            }
        }
        if page.len() < rows as usize {
            return Ok(messages);
        }
    }
}

/// As a prompt of a session has it.
pub fn push_item(messages: &mut Vec<Message>, item: Item) {
    match item.body {
        ItemBody::Message { role, parts } => {
            let role = match role {
                Role::System => MessageRole::System,
                Role::User => MessageRole::User,
                Role::Assistant => MessageRole::Assistant,
            };
            messages.push(Message::new(role, parts.join("\n")));
        }
        ItemBody::FunctionCall { .. } if item.status == ItemStatus::Incomplete => {}
        ItemBody::FunctionCall { call_id, name, arguments } => {
            let call = ToolCall { id: Some(call_id), name, arguments };
            match messages.last_mut() {
                Some(last) if last.role == MessageRole::Assistant => last.calls.push(call),
                _ => messages.push(Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "") }),
            }
        }
        ItemBody::FunctionCallOutput { call_id, output } => messages.push(Message::result(&call_id, &output)),
    }
}
