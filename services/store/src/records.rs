//! The words of the store: plain data, as it is written, read, exported and handed to the rest of the service.

use crate::order_key::OrderKey;
use crate::{Error, item_form};
use serde::{Deserialize, Serialize};
use session::{Item, ItemBody, ItemStatus, SessionConfig};
use sha2::{Digest, Sha256};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: String,
    pub name: String,
    pub created_at_ms: i64,
}

/// One user's session, as proof that it is theirs: made by the store only, after it looked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SessionRef {
    pub(crate) key: i64,
    pub(crate) user: Arc<str>,
    pub(crate) id: Arc<str>,
}

impl SessionRef {
    pub fn user(&self) -> &str {
        &self.user
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// By which what was computed of this session is known, in memory and on disk, so that it can go with the session.
    pub fn past_owner(&self) -> u64 {
        let digest = Sha256::new().chain_update(&*self.user).chain_update([0]).chain_update(&*self.id).finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(crate) fn missing(&self) -> Error {
        Error::NoSession { session: self.id.to_string() }
    }
}

/// In which preset a session is, and in which arm of an experiment. It is kept: a later configuration does not move a
/// conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    pub preset: String,
    pub ctx_size: u64,
    pub experiment: Option<String>,
    pub arm: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewSession {
    pub id: String,
    pub placement: Placement,
    pub title: String,
    pub config: SessionConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub id: String,
    pub user: String,
    #[serde(flatten)]
    pub placement: Placement,
    pub title: String,
    #[serde(flatten, with = "crate::config_form")]
    pub config: SessionConfig,
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SessionLine {
    #[serde(flatten)]
    pub session: SessionRecord,
    /// Items that stand in the conversation today.
    pub items: u64,
    /// Tokens the newest measured turn had in its window.
    pub fill_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VersionStatus {
    /// A reply that is being said.
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

/// How a version came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    Created,
    Begun,
    Finished,
    Edited,
    Truncated,
    Deleted,
}

/// One version of an item. An item's newest version is what counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemVersion {
    pub seq: u64,
    pub item_id: String,
    pub version: u64,
    pub change: Change,
    #[serde(rename = "place")]
    pub order_key: OrderKey,
    #[serde(with = "crate::item_form")]
    pub body: ItemBody,
    pub status: VersionStatus,
    pub sent_chars: Option<u64>,
    pub heard_chars: Option<u64>,
    pub response: Option<String>,
    pub created_at_ms: i64,
}

impl ItemVersion {
    /// As a session has it.
    pub fn item(&self) -> Item {
        let status = match self.status {
            VersionStatus::Completed => ItemStatus::Completed,
            VersionStatus::InProgress | VersionStatus::Interrupted | VersionStatus::Cancelled => ItemStatus::Incomplete,
        };
        Item::new(&self.item_id, self.body.clone(), status)
    }

    /// What was said, as search sees it.
    pub fn said(&self) -> String {
        item_form::said(&self.body)
    }
}

/// The acknowledgement of a change: it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredVersion {
    pub item_id: String,
    pub seq: u64,
    pub version: u64,
    /// The item it now stands after; None at the head.
    pub previous_item_id: Option<String>,
}

/// A closed set of words, kept in the database as its snake_case name.
macro_rules! words {
    ($($kind:ident { $($variant:ident = $word:literal),+ $(,)? })+) => { $(
        impl $kind {
            pub fn word(self) -> &'static str {
                match self { $($kind::$variant => $word),+ }
            }

            pub fn from_word(word: &str) -> Option<$kind> {
                match word { $($word => Some($kind::$variant),)+ _ => None }
            }
        }
    )+ };
}
pub(crate) use words;

words! {
    VersionStatus {
        InProgress = "in_progress", Completed = "completed", Interrupted = "interrupted", Cancelled = "cancelled",
    }
    Change {
        Created = "created", Begun = "begun", Finished = "finished", Edited = "edited", Truncated = "truncated",
        Deleted = "deleted",
    }
}
