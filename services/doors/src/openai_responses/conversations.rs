//! `/v1/conversations`: durable sessions, as clients of the Responses API make, read and change them.

use super::input::of_items;
use super::mistakes::wrong;
use super::parse;
use super::state::{begin, conversation, kept, new_items};
use super::view::item_view;
use crate::access::Caller;
use crate::json::read_body;
use crate::{ApiError, App, upkeep};
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use replies::Completions;
use replies::identity::{BodyClues, Scope, is_private};
use runtime::{Attach, ToWrite};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::machine::{Replay, is_hidden};
use session::{Event, Input, Item, ItemPlace, Message, MessageRole, Refusal};
use settings::Settings;
use std::collections::HashSet;
use std::sync::Arc;
use store::{ItemVersion, SessionRef};

type Answer = Result<Json<Value>, ApiError>;

#[derive(Default, Deserialize, JsonSchema)]
pub struct NewConversation {
    /// What was said already.
    items: Option<Vec<Value>>,
    /// Texts by names. `private`: nothing of it is remembered.
    metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ConversationUpdate {
    /// In place of what there was.
    metadata: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
pub struct NewItems {
    items: Vec<Value>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ConversationItems {
    /// items at most
    limit: Option<u32>,
    /// `asc` or `desc`; the last item comes first where it is left out
    order: Option<String>,
    /// goes on behind this item
    after: Option<String>,
}

/// As OpenAI has it.
const ITEMS: u32 = 20;

/// `POST /v1/conversations`
pub async fn create(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let ParsedConversation { mut messages, metadata, is_private } = parse_new(&body, &completions.settings)?;
    let brings_own = messages.first().is_some_and(|message| message.role == MessageRole::System);
    let clues = BodyClues { is_private, ..BodyClues::of("", &messages) };
    let scope = completions.persons.scope(&caller, &headers, &clues, &mut messages).await?;
    let items = kept(&messages, &scope, &completions)?;
    let session = begin(&completions, &caller, &scope, "", brings_own, items).await?;
    completions.store.set_metadata(&session, Value::Object(metadata), runtime::wall_ms()).await?;
    view(&completions, &session).await
}

pub struct ParsedConversation {
    /// What was said already.
    pub messages: Vec<Message>,
    /// Texts by names.
    pub metadata: Map<String, Value>,
    /// Nothing of it is remembered.
    pub is_private: bool,
}

pub fn parse_new(body: &[u8], settings: &Settings) -> Result<ParsedConversation, ApiError> {
    let body = if body.is_empty() { json!({}) } else { read_body(body)? };
    let NewConversation { items, metadata } = crate::reader::read(&body)?;
    let metadata = parse::metadata(metadata.unwrap_or_default())?;
    let messages = of_items(&items.unwrap_or_default(), "items", &settings.limits)?;
    let private = is_private(metadata.get("private").and_then(Value::as_str));
    let is_private = private.ok_or_else(|| wrong("metadata.private", "private must be true or false"))?;
    Ok(ParsedConversation { messages, metadata, is_private })
}

/// `GET /v1/conversations/{conversation_id}`
pub async fn read(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    view(&completions, &session).await
}

/// `POST /v1/conversations/{conversation_id}`
pub async fn update(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    let ConversationUpdate { metadata } = crate::reader::read(&read_body(&body)?)?;
    let metadata = parse::metadata(metadata)?;
    completions.store.set_metadata(&session, Value::Object(metadata), runtime::wall_ms()).await?;
    view(&completions, &session).await
}

/// `DELETE /v1/conversations/{conversation_id}`: all that was said in it is gone for good.
pub async fn delete(
    State(app): State<App>,
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    app.runtime.deleted(&session).await;
    app.store.delete_session(&session, runtime::wall_ms()).await?;
    app.standing.forget(session.user());
    upkeep::forget_deleted(&app).await;
    tracing::info!(session = id, "a session was deleted");
    Ok(Json(json!({ "id": id, "object": "conversation.deleted", "deleted": true })))
}

/// `GET /v1/conversations/{conversation_id}/items`
pub async fn items(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    page: Result<Query<ConversationItems>, QueryRejection>,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    let Query(ConversationItems { limit, order, after }) = page?;
    let most = u32::try_from(completions.settings.limits.page_rows).unwrap_or(u32::MAX);
    let limit = limit.unwrap_or(ITEMS).clamp(1, most);
    let (store, after) = (&completions.store, after.as_deref());
    let found = match order.as_deref() {
        Some("asc") => store.items_page(&session, after, limit).await?,
        None | Some("desc") => store.items_backwards(&session, after, limit).await?,
        Some(_) => return Err(wrong("order", "order must be asc or desc").into()),
    };
    let has_more = found.has_more;
    let shown = found.rows.iter().map(ItemVersion::item).filter(|item| !is_hidden(item));
    Ok(Json(list(shown, has_more)))
}

/// `POST /v1/conversations/{conversation_id}/items`
pub async fn add(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    let NewItems { items } = crate::reader::read(&read_body(&body)?)?;
    let mut messages = of_items(&items, "items", &completions.settings.limits)?;
    let clues = BodyClues::of("", &messages);
    let scope = completions.persons.scope(&caller, &headers, &clues, &mut messages).await?;
    let items = new_items(kept(&messages, &scope, &completions)?, &completions)?;
    let mut missing: HashSet<String> = items.iter().filter_map(|item| item.id.clone()).collect();
    let inputs = items.into_iter().map(|item| Input::AddItem { item, place: ItemPlace::End });
    let mut added = Vec::new();
    say(&completions, &session, Some(&scope), inputs.collect(), |event| match event {
        Event::ItemAdded { item, .. } if missing.remove(&item.id) => {
            added.push(item.clone());
            missing.is_empty()
        }
        _ => false,
    })
    .await?;
    Ok(Json(list(added.into_iter(), false)))
}

/// `GET /v1/conversations/{conversation_id}/items/{item_id}`
pub async fn read_item(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path((id, item_id)): Path<(String, String)>,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    Ok(Json(item_view(&completions.store.item(&session, &item_id).await?.item())))
}

/// `DELETE /v1/conversations/{conversation_id}/items/{item_id}`
pub async fn delete_item(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Path((id, item_id)): Path<(String, String)>,
) -> Answer {
    let session = conversation(&completions, &caller, &id).await?;
    completions.store.item(&session, &item_id).await?;
    let input = Input::DeleteItem { item_id: item_id.clone() };
    let is_gone = |event: &Event| matches!(event, Event::ItemDeleted { item_id: gone } if *gone == item_id);
    say(&completions, &session, None, vec![input], is_gone).await?;
    view(&completions, &session).await
}

/// As any client of the session, so that all of them hear of it. Returns when the session says that it is done.
async fn say(
    completions: &Completions,
    session: &SessionRef,
    scope: Option<&Scope>,
    inputs: Vec<Input>,
    mut is_done: impl FnMut(&Event) -> bool,
) -> Result<(), ApiError> {
    if inputs.is_empty() {
        return Ok(());
    }
    let interest =
        |event: &Event| matches!(event, Event::ItemAdded { .. } | Event::ItemDeleted { .. } | Event::Refused { .. });
    let (interest, person) = (Arc::new(interest), scope.map(|scope| scope.person.clone()));
    let attach = Attach { replay: Replay::Nothing, interest, person };
    let (connected, mut written) = completions.runtime.attach(session, attach).await?;
    let mark = store::new_id("items")?;
    for input in inputs {
        connected.say(Some(mark.clone()), input).await;
    }
    while let ToWrite::Event(event) = written.next().await {
        written.done(1);
        match &*event {
            Event::Refused { input_id, refusal } if *input_id == Some(mark.clone()) => return Err(refused(refusal)),
            event if is_done(event) => return Ok(()),
            _ => {}
        }
    }
    Err(runtime::Error::Stopping.into())
}

fn refused(refusal: &Refusal) -> ApiError {
    match refusal {
        Refusal::StoreFailed { .. } => {
            ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, "store_failed", refusal.to_string())
        }
        Refusal::NoRoom => runtime::Error::NoRoom.into(),
        refusal => ApiError::bad("invalid_value", refusal.to_string()),
    }
}

async fn view(completions: &Completions, session: &SessionRef) -> Answer {
    let record = completions.store.session(session).await?;
    let metadata = record.metadata.unwrap_or_else(|| json!({}));
    let created_at = record.created_at_ms / 1000;
    Ok(Json(json!({ "id": session.id(), "object": "conversation", "created_at": created_at, "metadata": metadata })))
}

fn list(items: impl Iterator<Item = Item>, has_more: bool) -> Value {
    let data: Vec<Value> = items.map(|item| item_view(&item)).collect();
    let id = |item: Option<&Value>| item.map_or_else(|| json!(""), |item| item["id"].clone());
    let (first_id, last_id) = (id(data.first()), id(data.last()));
    json!({ "object": "list", "data": data, "first_id": first_id, "last_id": last_id, "has_more": has_more })
}
