//! Items of a conversation, as they are on the wire and in memory.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub id: String,
    #[serde(default)]
    pub object: ItemObject,
    #[serde(flatten)]
    pub body: ItemBody,
    pub status: ItemStatus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemBody {
    Message { role: Role, content: Vec<Part> },
    FunctionCall { call_id: String, name: String, arguments: String },
    FunctionCallOutput { call_id: String, output: String },
}

/// Speech of a user comes with its transcript and is kept as that text, so there is no audio part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: PartKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    InputText,
    OutputText,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    InProgress,
    Completed,
    /// Cut off: by a barge-in, a limit, a failure or a crash.
    Incomplete,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ItemObject {
    #[default]
    #[serde(rename = "realtime.item")]
    Item,
}

impl Item {
    pub fn new(id: impl Into<String>, body: ItemBody, status: ItemStatus) -> Item {
        Item { id: id.into(), object: ItemObject::Item, body, status }
    }

    pub fn message(id: impl Into<String>, role: Role, text: impl Into<String>) -> Item {
        Item::new(id, ItemBody::message(role, text), ItemStatus::Completed)
    }

    pub fn is_said_by_user(&self) -> bool {
        matches!(self.body, ItemBody::Message { role: Role::User, .. })
    }

    /// Everything that is said in a message, its parts one after the other.
    pub fn text(&self) -> String {
        match &self.body {
            ItemBody::Message { content, .. } => content.iter().map(|part| part.text.as_str()).collect(),
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
        }
    }

    /// Leaves the first `bytes` of a message of one part, which ends there then. Returns whether it was longer.
    pub fn shorten(&mut self, bytes: usize) -> bool {
        let ItemBody::Message { content, .. } = &mut self.body else { return false };
        let Some(part) = content.first_mut() else { return false };
        if part.text.len() <= bytes {
            return false;
        }
        let end = (0..=bytes).rev().find(|&end| part.text.is_char_boundary(end)).unwrap_or(0);
        part.text.truncate(end);
        content.truncate(1);
        self.status = ItemStatus::Incomplete;
        true
    }
}

impl ItemBody {
    pub fn message(role: Role, text: impl Into<String>) -> ItemBody {
        ItemBody::Message { role, content: vec![Part { kind: role.part_kind(), text: text.into() }] }
    }

    pub fn text_bytes(&self) -> usize {
        match self {
            ItemBody::Message { content, .. } => content.iter().map(|part| part.text.len()).sum(),
            ItemBody::FunctionCall { name, arguments, .. } => name.len() + arguments.len(),
            ItemBody::FunctionCallOutput { output, .. } => output.len(),
        }
    }
}

impl Role {
    /// The kind of text that a message of this role holds.
    pub fn part_kind(self) -> PartKind {
        match self {
            Role::System | Role::User => PartKind::InputText,
            Role::Assistant => PartKind::OutputText,
        }
    }
}
