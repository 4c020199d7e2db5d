//! Stored form of an item's body: JSON in the database, in exports and in the history that clients read.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use session::{ItemBody, NamedSpeaker, Role};

/// Form for reading; `serialize` writes the same.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Form {
    Message {
        #[serde(with = "RoleForm")]
        role: Role,
        parts: Vec<PartForm>,
        #[serde(default)]
        speaker: Option<SpeakerForm>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        output: String,
    },
    /// Thoughts of a model; no release wrote one.
    Reasoning {},
}

#[derive(Deserialize)]
struct PartForm {
    text: String,
}

#[derive(Deserialize)]
struct SpeakerForm {
    name: String,
    person: Option<String>,
}

#[derive(Deserialize)]
#[serde(remote = "Role", rename_all = "snake_case")]
enum RoleForm {
    System,
    User,
    Assistant,
}

pub fn serialize<S: Serializer>(body: &ItemBody, serializer: S) -> Result<S::Ok, S::Error> {
    let form = match body {
        ItemBody::Message { role, parts, speaker } => {
            let kind = if *role == Role::Assistant { "output_text" } else { "input_text" };
            let parts: Vec<_> = parts.iter().map(|text| json!({ "type": kind, "text": text })).collect();
            let mut form = json!({ "kind": "message", "role": role.word(), "parts": parts });
            if let Some(NamedSpeaker { name, person }) = speaker {
                form["speaker"] = json!({ "name": name });
                if let Some(person) = person {
                    form["speaker"]["person"] = json!(person);
                }
            }
            form
        }
        ItemBody::FunctionCall { call_id, name, arguments } => {
            json!({ "kind": "function_call", "call_id": call_id, "name": name, "arguments": arguments })
        }
        ItemBody::FunctionCallOutput { call_id, output } => {
            json!({ "kind": "function_call_output", "call_id": call_id, "output": output })
        }
    };
    form.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ItemBody, D::Error> {
    Ok(match Form::deserialize(deserializer)? {
        Form::Message { role, parts, speaker } => ItemBody::Message {
            role,
            parts: parts.into_iter().map(|part| part.text).collect(),
            speaker: speaker.map(|SpeakerForm { name, person }| NamedSpeaker { name, person }),
        },
        Form::FunctionCall { call_id, name, arguments } => ItemBody::FunctionCall { call_id, name, arguments },
        Form::FunctionCallOutput { call_id, output } => ItemBody::FunctionCallOutput { call_id, output },
        // Clients never saw it: it reads as an empty message.
        Form::Reasoning {} => ItemBody::Message { role: Role::Assistant, parts: Vec::new(), speaker: None },
    })
}

/// The column `content`.
#[derive(sqlx::Type)]
#[sqlx(transparent)]
pub struct BodyText(pub String);

impl BodyText {
    pub fn of(body: &ItemBody) -> serde_json::Result<BodyText> {
        let mut text = Vec::new();
        serialize(body, &mut serde_json::Serializer::new(&mut text))?;
        Ok(BodyText(String::from_utf8_lossy(&text).into_owned()))
    }
}

impl TryFrom<BodyText> for ItemBody {
    type Error = serde_json::Error;

    fn try_from(text: BodyText) -> serde_json::Result<ItemBody> {
        deserialize(&mut serde_json::Deserializer::from_str(&text.0))
    }
}

pub fn said(body: &ItemBody) -> String {
    match body {
        ItemBody::Message { parts, .. } => {
            parts.iter().map(String::as_str).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        ItemBody::FunctionCall { name, arguments, .. } => format!("{name} {arguments}"),
        ItemBody::FunctionCallOutput { output, .. } => output.clone(),
    }
}

/// Appends text that was sent: to the last part of a message, to the arguments of a call.
pub fn extend(body: &mut ItemBody, piece: &str) {
    match body {
        ItemBody::Message { parts, .. } => match parts.last_mut() {
            Some(part) => part.push_str(piece),
            None => parts.push(piece.to_owned()),
        },
        ItemBody::FunctionCall { arguments, .. } => arguments.push_str(piece),
        ItemBody::FunctionCallOutput { output, .. } => output.push_str(piece),
    }
}

pub fn emptied(body: ItemBody) -> ItemBody {
    match body {
        ItemBody::Message { role, speaker, .. } => ItemBody::Message { role, parts: Vec::new(), speaker },
        ItemBody::FunctionCall { call_id, .. } => {
            ItemBody::FunctionCall { call_id, name: String::new(), arguments: String::new() }
        }
        ItemBody::FunctionCallOutput { call_id, .. } => ItemBody::FunctionCallOutput { call_id, output: String::new() },
    }
}

pub fn chars(body: &ItemBody) -> u64 {
    let count = |text: &String| text.chars().count() as u64;
    match body {
        ItemBody::Message { parts, .. } => parts.iter().map(count).sum(),
        ItemBody::FunctionCall { arguments, .. } => count(arguments),
        ItemBody::FunctionCallOutput { output, .. } => count(output),
    }
}
