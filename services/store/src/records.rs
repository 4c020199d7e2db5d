//! The words of the store: plain data to write, read, export and hand to the rest of the service.

use crate::config_form::config_of;
use crate::item_form::{self, BodyText};
use crate::writer::WriteQueue;
use crate::{Error, OrderKey};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use session::{Item, ItemBody, ItemStatus, SessionConfig};
use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{FromRow, Row};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct User {
    pub id: String,
    pub name: String,
    pub created_at_ms: i64,
}

/// A user's session, as proof that it is theirs: only the store makes one, after a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash, FromRow)]
pub struct SessionRef {
    pub(crate) key: i64,
    #[sqlx(try_from = "String")]
    pub(crate) user: Arc<str>,
    #[sqlx(try_from = "String")]
    pub(crate) id: Arc<str>,
}

impl SessionRef {
    pub(crate) fn queue(&self, bytes: usize) -> WriteQueue {
        WriteQueue::Session { key: self.key, bytes }
    }

    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the number that marks this session's computed data, in memory and on disk, so that it goes with the
    /// session.
    pub fn past_owner(&self) -> u64 {
        number_of(Sha256::new().chain_update(&*self.user).chain_update([0]).chain_update(&*self.id))
    }

    /// Returns the number that separates this user's computed data from other users'.
    pub fn past_user(&self) -> u64 {
        past_user(&self.user)
    }

    pub(crate) fn missing(&self) -> Error {
        Error::NoSession { session: self.id.to_string() }
    }
}

/// Returns `SessionRef::past_user` for words outside any session.
pub fn past_user(user: &str) -> u64 {
    number_of(Sha256::new().chain_update(user))
}

// Numbers the part of a user that may reuse what is computed of words, and so learn from its counts that they were said: the
// whole user for a guest's, the person alone for theirs, and for private ones.
pub fn past_reused_by(user: &str, person: &str, is_private: bool) -> u64 {
    match person.is_empty() && !is_private {
        true => past_user(user),
        false => past_user(&format!("{user}\0{person}\0{is_private}")),
    }
}

pub(crate) fn number_of(hash: Sha256) -> u64 {
    hash.finalize().iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Preset of a session, and its arm of an experiment. Stored: a later configuration does not move a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub struct Placement {
    pub preset: String,
    pub ctx_size: u64,
    pub experiment: Option<String>,
    pub arm: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: String,
    pub user: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub person: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub room: String,
    /// True if the session leaves facts, and other conversations find its words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_remembered: bool,
    /// True if it is remembered for the household alone, until an unknown speaker is named in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_household: bool,
    /// Ids of the facts in its prompts, in order. `None`: the next load chooses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_facts: Option<Vec<String>>,
    #[serde(flatten)]
    pub placement: Placement,
    pub title: String,
    #[serde(flatten, with = "crate::config_form")]
    pub config: SessionConfig,
    /// Client's data for a session that it created as a conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
}

impl FromRow<'_, SqliteRow> for SessionRecord {
    fn from_row(row: &SqliteRow) -> sqlx::Result<SessionRecord> {
        let id: String = row.try_get("id")?;
        let (tools, settings): (Json<Value>, Json<Value>) = (row.try_get("tools")?, row.try_get("settings")?);
        Ok(SessionRecord {
            user: row.try_get("user")?,
            person: row.try_get("person")?,
            room: row.try_get("room")?,
            is_remembered: row.try_get("remembered")?,
            is_of_household: row.try_get("household")?,
            told_facts: row.try_get::<Option<Json<_>>, _>("told_facts")?.map(|ids| ids.0),
            placement: Placement::from_row(row)?,
            title: row.try_get("title")?,
            config: config_of(&id, row.try_get("instructions")?, &tools, &settings),
            metadata: row.try_get("metadata")?,
            created_at_ms: row.try_get("created_at_ms")?,
            updated_at_ms: row.try_get("updated_at_ms")?,
            id,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct SessionLine {
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub session: SessionRecord,
    pub items: u64,
    pub first_words: Option<String>,
    /// Tokens in the window at the newest measured turn.
    pub fill_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::Display)]
#[serde(rename_all = "snake_case")]
#[sqlx(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum VersionStatus {
    InProgress,
    Completed,
    Interrupted,
    Cancelled,
}

impl From<ItemStatus> for VersionStatus {
    fn from(status: ItemStatus) -> VersionStatus {
        match status {
            ItemStatus::Completed => VersionStatus::Completed,
            ItemStatus::InProgress | ItemStatus::Incomplete => VersionStatus::Interrupted,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type, strum::Display)]
#[serde(rename_all = "snake_case")]
#[sqlx(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Change {
    Created,
    Begun,
    Finished,
    Edited,
    Truncated,
    Deleted,
}

/// Version of an item. The newest one is current.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow)]
pub struct ItemVersion {
    pub seq: u64,
    pub item_id: String,
    pub version: u64,
    pub change: Change,
    #[serde(rename = "place")]
    #[sqlx(rename = "place")]
    pub order_key: OrderKey,
    #[serde(with = "crate::item_form")]
    #[sqlx(rename = "content", try_from = "BodyText")]
    pub body: ItemBody,
    pub status: VersionStatus,
    pub sent_chars: Option<u64>,
    pub heard_chars: Option<u64>,
    pub response: Option<String>,
    pub created_at_ms: i64,
}

impl ItemVersion {
    pub fn item(&self) -> Item {
        let status = match self.status {
            VersionStatus::Completed => ItemStatus::Completed,
            VersionStatus::InProgress | VersionStatus::Interrupted | VersionStatus::Cancelled => ItemStatus::Incomplete,
        };
        Item::new(&self.item_id, self.body.clone(), status)
    }

    pub fn said(&self) -> String {
        item_form::said(&self.body)
    }
}
