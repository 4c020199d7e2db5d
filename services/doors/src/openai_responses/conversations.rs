//! `/v1/conversations`: durable sessions, as clients of the Responses API make, read and change them.

use super::input::of_items;
use super::parse;
use super::view::item_view;
use crate::ApiError;
use crate::extract::{Asked, JsonAnswer, JsonBody, OwnConversation, rows};
use crate::json::read_body;
use crate::options::is_private;
use access::Caller;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use fields::wrong;
use replies::Completions;
use replies::identity::{BodyClues, Scope};
use runtime::{SessionAnswer, heavy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::machine::is_hidden;
use session::{Event, Input, Item, ItemPlace, Message, MessageRole, Refusal};
use settings::Settings;
use std::collections::HashSet;
use store::{ItemAudio, ItemVersion, SessionRef};

#[derive(Default, Deserialize, JsonSchema)]
pub struct NewConversation {
    /// Items that the conversation begins with.
    items: Option<Vec<Value>>,
    /// Texts by names. `private`: nothing of it is remembered.
    metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize, JsonSchema)]
pub struct ConversationUpdate {
    /// New metadata, which replaces the old.
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

/// Items of a page, as OpenAI has it.
const ITEMS: u32 = 20;

pub async fn create(
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> JsonAnswer {
    let ParsedConversation { mut messages, metadata, is_private } =
        heavy::run(body.len(), || parse_new(&body, &completions.settings)).await?;
    let brings_own = messages.first().is_some_and(|message| message.role == MessageRole::System);
    let clues = BodyClues { is_private, ..BodyClues::of("", &messages) };
    let scope = completions.persons.scope(&caller, &headers, &clues, &mut messages).await?;
    let items = completions.kept_items(&messages, &scope)?;
    let session = completions.begin_with(&caller, &scope, "", brings_own, items, None).await?;
    completions.store.set_metadata(&session, Value::Object(metadata), runtime::wall_ms()).await?;
    view(&completions, &session).await
}

pub struct ParsedConversation {
    /// Past of the conversation.
    pub messages: Vec<Message>,
    /// Texts by names.
    pub metadata: Map<String, Value>,
    /// True if nothing of it is remembered.
    pub is_private: bool,
}

pub fn parse_new(body: &[u8], settings: &Settings) -> Result<ParsedConversation, ApiError> {
    let body = if body.is_empty() { json!({}) } else { read_body(body)? };
    let NewConversation { items, metadata } = fields::read(&body)?;
    let metadata = parse::metadata(metadata.unwrap_or_default())?;
    let messages = of_items(&items.unwrap_or_default(), "items", &settings.limits)?;
    let is_private = is_private(metadata.get("private").and_then(Value::as_str))?;
    Ok(ParsedConversation { messages, metadata, is_private })
}

pub async fn read(State(replies): State<Completions>, OwnConversation(session): OwnConversation) -> JsonAnswer {
    view(&replies, &session).await
}

pub async fn update(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    JsonBody(ConversationUpdate { metadata }): JsonBody<ConversationUpdate>,
) -> JsonAnswer {
    let metadata = parse::metadata(metadata)?;
    replies.store.set_metadata(&session, Value::Object(metadata), runtime::wall_ms()).await?;
    view(&replies, &session).await
}

pub async fn delete(State(replies): State<Completions>, OwnConversation(session): OwnConversation) -> JsonAnswer {
    replies.delete_session(&session).await?;
    Ok(Json(json!({ "id": session.id(), "object": "conversation.deleted", "deleted": true })))
}

pub async fn items(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    page: Asked<ConversationItems>,
) -> JsonAnswer {
    let Query(ConversationItems { limit, order, after }) = page?;
    let (limit, after) = (rows(&replies.settings, limit, Some(ITEMS)), after.as_deref());
    let found = match order.as_deref() {
        Some("asc") => replies.store.items_page(&session, after, limit).await?,
        None | Some("desc") => replies.store.items_backwards(&session, after, limit).await?,
        Some(_) => return Err(wrong("order", "order must be asc or desc").into()),
    };
    let has_more = found.has_more;
    let shown = found.rows.iter().map(ItemVersion::item).filter(|item| !is_hidden(item));
    Ok(Json(list(shown, has_more)))
}

pub async fn add(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> JsonAnswer {
    let parse = || -> Result<_, ApiError> {
        let NewItems { items } = fields::read(&read_body(&body)?)?;
        Ok(of_items(&items, "items", &replies.settings.limits)?)
    };
    let mut messages = heavy::run(body.len(), parse).await?;
    let clues = BodyClues::of("", &messages);
    let scope = replies.persons.scope(&caller, &headers, &clues, &mut messages).await?;
    let items = replies.new_items(replies.kept_items(&messages, &scope)?)?;
    let mut missing: HashSet<String> = items.iter().filter_map(|item| item.id.clone()).collect();
    let inputs = items.into_iter().map(|item| Input::AddItem { item, place: ItemPlace::End });
    let mut added = Vec::new();
    say(&replies, &session, &scope, inputs.collect(), |event| match event {
        Event::ItemAdded { item, .. } if missing.remove(&item.id) => {
            added.push(item.clone());
            missing.is_empty()
        }
        _ => false,
    })
    .await?;
    Ok(Json(list(added.into_iter(), false)))
}

pub async fn read_item(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    Path((_, item_id)): Path<(String, String)>,
) -> JsonAnswer {
    Ok(Json(item_view(&replies.store.item(&session, &item_id).await?.item())))
}

/// Returns the audio of what a user said, where `speech.keep_audio` kept it.
pub async fn item_audio(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    Path((_, item_id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    replies.store.item(&session, &item_id).await?;
    let Some(ItemAudio { rate, samples }) = replies.store.item_audio(&session, &item_id).await? else {
        let message =
            "no audio of this item is kept: speech.keep_audio keeps that of turns that are spoken from then on";
        return Err(ApiError::new(StatusCode::NOT_FOUND, "audio_not_kept", message));
    };
    let head = speech::wav::head(rate, u32::try_from(samples.len() / 2).ok()).to_vec();
    Ok(([(CONTENT_TYPE, "audio/wav")], [head, samples].concat()).into_response())
}

pub async fn delete_item(
    State(replies): State<Completions>,
    OwnConversation(session): OwnConversation,
    Path((_, item_id)): Path<(String, String)>,
) -> JsonAnswer {
    replies.store.item(&session, &item_id).await?;
    replies.delete_items(&session, vec![item_id]).await?;
    view(&replies, &session).await
}

/// Says inputs to a session and returns when `is_done` accepts an event.
async fn say(
    completions: &Completions,
    session: &SessionRef,
    scope: &Scope,
    inputs: Vec<Input>,
    is_done: impl FnMut(&Event) -> bool,
) -> Result<(), ApiError> {
    if inputs.is_empty() {
        return Ok(());
    }
    let changes = |event: &Event| matches!(event, Event::ItemAdded { .. });
    let person = Some(scope.person.clone());
    match completions.runtime.say_and_wait(session, person, inputs, changes, is_done).await? {
        SessionAnswer::Event(_) => Ok(()),
        SessionAnswer::Refused(refusal) => Err(refused(&refusal)),
        SessionAnswer::SessionEnded => Err(runtime::Error::Stopping.into()),
    }
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

async fn view(completions: &Completions, session: &SessionRef) -> JsonAnswer {
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
