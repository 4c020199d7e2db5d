//! Where a response stands: in a durable session that it begins, goes on with or branches off from.

use super::parse::{GoesOnFrom, ResponsesRequest};
use super::stateless::check_input;
use crate::ApiError;
use crate::access::Caller;
use axum::http::StatusCode;
use prompt::{ItemText, push_item};
use replies::Scope;
use replies::{Completion, Completions, ReplyProgress, RequestAttempt, bodies};
use runtime::{ModelChoice, NewSession};
use serde_json::{Map, Value};
use session::machine::is_hidden;
use session::{
    ConfigUpdate, FailureCode, Ids, Item, ItemBody, ItemStatus, MaxTokens, Message, MessageRole, NewItem, NewTurn,
    Part, ResponseRequest, ResponseStatus, Role,
};
use store::{ItemVersion, Page, SessionRef, Store, StoredResponse, VersionStatus, new_id};

/// A response that its client may see: of its user, and of a session that it may open.
pub async fn find(completions: &Completions, caller: &Caller, id: &str) -> Result<Option<StoredResponse>, ApiError> {
    let Some(found) = completions.store.find_response(&caller.identity.user, id).await? else { return Ok(None) };
    let opened = completions.begun.open_session(&completions.store, caller, found.session.id()).await;
    match opened.map_err(ApiError::from) {
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
    let opened = completions.begun.open_session(&completions.store, caller, id).await;
    opened.map_err(|error| ApiError::from(error).param("conversation"))
}

/// A turn that a client wants, and what it goes on from.
struct WantedTurn {
    goes_on_from: Option<GoesOnFrom>,
    scope: Scope,
    model: String,
    input: Vec<Message>,
    /// Without items.
    turn: NewTurn,
    metadata: Map<String, Value>,
}

/// Takes the turn, once, however often its client sends it.
pub async fn take_turn(
    completions: &Completions,
    caller: &Caller,
    attempt: Option<RequestAttempt>,
    mut request: ResponsesRequest,
) -> Result<(Completion, SessionRef), ApiError> {
    let (goes_on_from, input) = (request.goes_on_from.take(), std::mem::take(&mut request.input));
    let (model, metadata) = (std::mem::take(&mut request.model), std::mem::take(&mut request.metadata));
    let scope = std::mem::take(&mut request.scope);
    let turn = turn_of(request);
    let name = match &goes_on_from {
        None => "new".to_owned(),
        Some(GoesOnFrom::Conversation(id) | GoesOnFrom::Response(id)) => id.clone(),
    };
    let (again, own) = ((turn.clone(), metadata.clone()), scope.clone());
    let wanted = WantedTurn { goes_on_from, scope, model, input, turn, metadata };
    let first = async |progress: &mut ReplyProgress| place(completions, caller, wanted, progress).await;
    completions.take_turn_once(&own, &name, attempt, first, again).await
}

/// Finds or begins the session and takes the turn there. A response that is not the last one any more is gone on from in a
/// session of its own, so that what was said since is not seen.
async fn place(
    completions: &Completions,
    caller: &Caller,
    wanted: WantedTurn,
    progress: &mut ReplyProgress,
) -> Result<SessionRef, ApiError> {
    let WantedTurn { goes_on_from, scope, model, input, turn, metadata } = wanted;
    let bodies = kept(&input, &scope, completions)?;
    let (session, turn) = match goes_on_from {
        None => {
            check_input(&input)?;
            if let Some(Known { session, last_item, items }) =
                known(completions, caller, &scope, &model, &bodies).await?
            {
                let items = new_items(bodies[items..].to_vec(), completions)?;
                let own = NewTurn { behind: Some(last_item), items, ..turn.clone() };
                if is_taken(completions, progress, &session, &scope, own, &metadata).await? {
                    return Ok(session);
                }
            }
            let brings_own = input.first().is_some_and(|message| message.role == MessageRole::System);
            (begin(completions, caller, &scope, &model, brings_own, bodies).await?, turn)
        }
        Some(GoesOnFrom::Conversation(id)) => {
            let turn = NewTurn { items: new_items(bodies, completions)?, ..turn };
            (conversation(completions, caller, &id).await?, turn)
        }
        Some(GoesOnFrom::Response(id)) => {
            let turn = NewTurn { items: new_items(bodies, completions)?, ..turn };
            let StoredResponse { session, end, .. } = previous(completions, caller, &id).await?;
            let end = end.ok_or_else(|| previous_not_found(&id))?;
            if end.is_last {
                let own = NewTurn { behind: end.last_item, ..turn.clone() };
                if is_taken(completions, progress, &session, &scope, own, &metadata).await? {
                    return Ok(session);
                }
            }
            let (new, now_ms) = (new_id("sess")?, runtime::wall_ms());
            let forked = completions.store.fork_session(&session, &end.order_key, new, now_ms).await?;
            completions.begun.began(caller, &forked);
            tracing::debug!(from = session.id(), session = forked.id(), "a response branches off");
            (forked, turn)
        }
    };
    completions.take_turn(progress, &session, &scope, turn, metadata).await??;
    Ok(session)
}

/// False: something was said since.
async fn is_taken(
    completions: &Completions,
    progress: &mut ReplyProgress,
    session: &SessionRef,
    scope: &Scope,
    turn: NewTurn,
    metadata: &Map<String, Value>,
) -> Result<bool, ApiError> {
    match completions.take_turn(progress, session, scope, turn, metadata.clone()).await? {
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
    scope: &Scope,
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
        let Some((past, new)) = log.split_at_checked(items as usize) else { continue };
        if past.is_empty() || new.is_empty() {
            continue;
        }
        let Ok(session) = completions.begun.open_session(store, caller, &id).await else { continue };
        match last_of(store, &session, past, scope, &choice).await {
            Ok(Some(last_item)) => return Ok(Some(Known { session, last_item, items: past.len() })),
            // It may just have been deleted.
            Ok(None) | Err(store::Error::NoSession { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// The last item of a session that has this past, and is what the client means by its model.
async fn last_of(
    store: &Store,
    session: &SessionRef,
    past: &[ItemBody],
    scope: &Scope,
    choice: &ModelChoice,
) -> Result<Option<String>, store::Error> {
    let is_same = |item: &ItemVersion, body: &ItemBody| {
        item.body.unnamed() == body.unnamed() && item.status != VersionStatus::InProgress
    };
    let last = store.items_backwards(session, None, 1).await?.rows.pop();
    let Some(last) = last.filter(|last| past.last().is_some_and(|body| is_same(last, body))) else { return Ok(None) };
    let record = store.session(session).await?;
    let is_meant = choice.is_any_preset || record.placement.preset == choice.preset.name;
    let is_the_same_speaker = record.person == scope.person && record.room == scope.room;
    if !is_the_same_speaker || (scope.is_private && record.is_remembered) {
        return Ok(None);
    }
    if !is_meant || record.config.persona != choice.instructions {
        return Ok(None);
    }
    // Between them may stand items that the service made by itself.
    let most = past.len().saturating_mul(2) + 1;
    let mut found = store.items(session, None, u32::try_from(most).unwrap_or(u32::MAX)).await?;
    found.retain(|item| !is_hidden(&item.item()));
    let is_all = found.len() == past.len() && found.iter().zip(past).all(|(item, body)| is_same(item, body));
    Ok(is_all.then_some(last.item_id))
}

/// Begins a session with what was said in it. The configured instructions are for clients that bring none of their own.
pub async fn begin(
    completions: &Completions,
    caller: &Caller,
    scope: &Scope,
    model: &str,
    brings_own: bool,
    bodies: Vec<ItemBody>,
) -> Result<SessionRef, ApiError> {
    let update = ConfigUpdate { instructions: brings_own.then(String::new), ..ConfigUpdate::default() };
    let new = NewSession { update: Some(&update), ..scope.new_session(model) };
    let session = completions.runtime.create(new).await?;
    completions.begun.began(caller, &session);
    let mut ids = Ids::new(runtime::random()?);
    let item = |body| Item::new(ids.next("item"), body, ItemStatus::Completed);
    let items: Vec<Item> = bodies.into_iter().map(item).collect();
    if !items.is_empty() {
        // No client is connected yet, so the store alone is told.
        completions.store.append_all(&session, items, runtime::wall_ms()).await?;
    }
    Ok(session)
}

/// Returns the items that a session keeps of an input, each with the person whose words it holds.
pub fn kept(input: &[Message], scope: &Scope, completions: &Completions) -> Result<Vec<ItemBody>, ApiError> {
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
    Ok(scope.name_persons(bodies))
}

/// Items for a session that clients may be connected to: each is an event and an operation that wait for the store.
pub fn new_items(bodies: Vec<ItemBody>, completions: &Completions) -> Result<Vec<NewItem>, ApiError> {
    let most = completions.settings.limits.waiting_steps / 4;
    if bodies.len() > most {
        let message = format!("{} new items at once are more than {most} (limits.waiting_steps)", bodies.len());
        return Err(ApiError::bad("invalid_value", message).param("input"));
    }
    let mut ids = Ids::new(runtime::random()?);
    Ok(bodies.into_iter().map(|body| NewItem { id: Some(ids.next("item")), body }).collect())
}

fn turn_of(request: ResponsesRequest) -> NewTurn {
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
    NewTurn { request, ..NewTurn::default() }
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
        let Page { rows: page, has_more } = completions.store.items_page(session, after.as_deref(), rows).await?;
        after = page.last().map(|item| item.item_id.clone());
        for item in &page {
            bytes += item.body.text_bytes();
            if bytes > most {
                let message = "the conversation is too long to be read at once: leave store: false out";
                return Err(ApiError::bad("context_length_exceeded", message).param("input"));
            }
            push_item(&mut messages, &item.item(), ItemText::Verbatim);
            if last_item == Some(item.item_id.as_str()) {
                return Ok(messages);
            }
        }
        if !has_more {
            return Ok(messages);
        }
    }
}
