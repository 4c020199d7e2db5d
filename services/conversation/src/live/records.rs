//! Between the words of the wire and those of the store.

use crate::realtime::{
    Item, ItemBody, ItemStatus, MaxTokens, Part, PartKind, ResponseStatus, Role, SessionConfig, StatusDetails, Tool,
    ToolChoice, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What `sessions.settings` holds of a session's configuration; instructions and tools have columns of their own. A field
/// that is not there, because an older release wrote it, is as a new session has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
struct Kept {
    tool_choice: ToolChoice,
    max_output_tokens: MaxTokens,
    temperature: Option<f64>,
    reasoning_effort: Option<String>,
    parallel_tool_calls: bool,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept::of(&SessionConfig::new(""))
    }
}

impl Kept {
    fn of(config: &SessionConfig) -> Kept {
        Kept {
            tool_choice: config.tool_choice.clone(),
            max_output_tokens: config.max_output_tokens,
            temperature: config.temperature,
            reasoning_effort: config.reasoning_effort.clone(),
            parallel_tool_calls: config.parallel_tool_calls,
        }
    }
}

pub fn settings_of(config: &SessionConfig) -> Value {
    json!(Kept::of(config))
}

/// A configuration that cannot be read is told and replaced field by field, because the conversation is worth more.
pub fn config_of(session: &store::Session) -> SessionConfig {
    let readable = |what: &str, error: serde_json::Error| {
        tracing::warn!(session = %session.id, what, %error, "this part of a session's configuration cannot be read");
    };
    let kept = match &session.settings {
        Value::Null => Kept::default(),
        settings => Kept::deserialize(settings).unwrap_or_else(|error| {
            readable("settings", error);
            Kept::default()
        }),
    };
    let tools = match &session.tools {
        Value::Null => Vec::new(),
        tools => Vec::<Tool>::deserialize(tools).unwrap_or_else(|error| {
            readable("tools", error);
            Vec::new()
        }),
    };
    SessionConfig {
        instructions: session.instructions.clone(),
        tools,
        tool_choice: kept.tool_choice,
        max_output_tokens: kept.max_output_tokens,
        temperature: kept.temperature,
        reasoning_effort: kept.reasoning_effort,
        parallel_tool_calls: kept.parallel_tool_calls,
    }
}

pub fn body_of(item: &Item) -> store::Body {
    match &item.body {
        ItemBody::Message { role, content } => {
            let part = |part: &Part| store::Part {
                kind: match part.kind {
                    PartKind::InputText => store::PartKind::InputText,
                    PartKind::OutputText => store::PartKind::OutputText,
                },
                text: part.text.clone(),
            };
            let role = match role {
                Role::System => store::Role::System,
                Role::User => store::Role::User,
                Role::Assistant => store::Role::Assistant,
            };
            store::Body::Message { role, parts: content.iter().map(part).collect() }
        }
        ItemBody::FunctionCall { call_id, name, arguments } => {
            store::Body::FunctionCall { call_id: call_id.clone(), name: name.clone(), arguments: arguments.clone() }
        }
        ItemBody::FunctionCallOutput { call_id, output } => {
            store::Body::FunctionCallOutput { call_id: call_id.clone(), output: output.clone() }
        }
    }
}

/// None: nothing of it is said on the wire.
pub fn item_of(item: &store::Item) -> Option<Item> {
    let body = match &item.body {
        store::Body::Message { role, parts } => {
            let role = match role {
                store::Role::System => Role::System,
                store::Role::User => Role::User,
                store::Role::Assistant => Role::Assistant,
            };
            let part = |part: &store::Part| Part { kind: role.part_kind(), text: part.text.clone() };
            ItemBody::Message { role, content: parts.iter().map(part).collect() }
        }
        store::Body::FunctionCall { call_id, name, arguments } => {
            ItemBody::FunctionCall { call_id: call_id.clone(), name: name.clone(), arguments: arguments.clone() }
        }
        store::Body::FunctionCallOutput { call_id, output } => {
            ItemBody::FunctionCallOutput { call_id: call_id.clone(), output: output.clone() }
        }
        store::Body::Reasoning { .. } => return None,
    };
    let status = match item.status {
        store::Status::Completed => ItemStatus::Completed,
        store::Status::InProgress | store::Status::Interrupted | store::Status::Cancelled => ItemStatus::Incomplete,
    };
    Some(Item::new(&item.item_id, body, status))
}

pub fn status_of(status: ItemStatus) -> store::Status {
    match status {
        ItemStatus::Completed => store::Status::Completed,
        ItemStatus::InProgress | ItemStatus::Incomplete => store::Status::Interrupted,
    }
}

pub fn finished_response(
    id: String,
    status: ResponseStatus,
    details: Option<&StatusDetails>,
    usage: &Usage,
    finished_at_ms: i64,
) -> store::FinishedResponse {
    store::FinishedResponse {
        id,
        status: match status {
            ResponseStatus::InProgress => store::ResponseStatus::InProgress,
            ResponseStatus::Completed => store::ResponseStatus::Completed,
            ResponseStatus::Cancelled => store::ResponseStatus::Cancelled,
            ResponseStatus::Incomplete => store::ResponseStatus::Incomplete,
            ResponseStatus::Failed => store::ResponseStatus::Failed,
        },
        status_details: json!(details),
        usage: json!(usage),
        report: Value::Null,
        finished_at_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(tools: Value, settings: Value) -> store::Session {
        store::Session {
            id: "sess_1".into(),
            user: "ann".into(),
            preset: "default".into(),
            ctx_size: 1000,
            experiment: None,
            arm: None,
            title: String::new(),
            instructions: "Be brief.".into(),
            tools,
            settings,
            created_at_ms: 0,
            updated_at_ms: 0,
        }
    }

    #[test]
    fn a_configuration_comes_back_as_it_was() {
        let config = SessionConfig {
            instructions: "Be brief.".into(),
            tools: serde_json::from_value(
                json!([{"type": "function", "name": "light", "parameters": {"type": "object"}}]),
            )
            .unwrap(),
            tool_choice: ToolChoice::Function("light".into()),
            max_output_tokens: MaxTokens::Tokens(7),
            temperature: Some(0.5),
            reasoning_effort: Some("low".into()),
            parallel_tool_calls: false,
        };
        assert_eq!(config_of(&session(json!(config.tools), settings_of(&config))), config);
    }

    #[test]
    fn what_is_missing_or_unreadable_is_as_in_a_new_session() {
        let new = SessionConfig::new("Be brief.");
        assert_eq!(config_of(&session(Value::Null, Value::Null)), new);
        assert_eq!(config_of(&session(json!("no"), json!({"temperature": "hot"}))), new);
        let some = config_of(&session(json!([]), json!({"temperature": 0.5, "of_a_newer_release": 1})));
        assert_eq!(some, SessionConfig { temperature: Some(0.5), ..new });
    }

    #[test]
    fn items_come_back_as_they_were() {
        let call = ItemBody::FunctionCall { call_id: "c".into(), name: "n".into(), arguments: "{}".into() };
        let output = ItemBody::FunctionCallOutput { call_id: "c".into(), output: "ok".into() };
        for item in [
            Item::message("a", Role::System, "x"),
            Item::message("b", Role::User, "y"),
            Item::new("c", ItemBody::message(Role::Assistant, "z"), ItemStatus::Incomplete),
            Item::new("d", call, ItemStatus::Completed),
            Item::new("e", output, ItemStatus::Completed),
        ] {
            let stored = store::Item {
                seq: 1,
                item_id: item.id.clone(),
                version: 1,
                change: store::Change::Created,
                place: Vec::new(),
                body: body_of(&item),
                status: status_of(item.status),
                sent_chars: None,
                heard_chars: None,
                response: None,
                created_at_ms: 0,
            };
            assert_eq!(item_of(&stored), Some(item));
        }
    }
}
