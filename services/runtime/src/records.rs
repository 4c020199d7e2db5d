//! Between the words of the service and those of the store.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{
    Failure, Item, ItemBody, ItemStatus, JsonText, MaxTokens, ResponseStatus, Role, SessionConfig, StatusDetails, Tool,
    ToolChoice, Usage,
};

/// What `sessions.settings` holds of a session's configuration; instructions and tools have columns of their own.
pub fn settings_of(config: &SessionConfig) -> Value {
    json!({
        "tool_choice": match &config.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Function(name) => json!({ "type": "function", "name": name }),
        },
        "max_output_tokens": match config.max_output_tokens {
            MaxTokens::Unlimited => json!("inf"),
            MaxTokens::Tokens(tokens) => json!(tokens),
        },
        "temperature": config.temperature,
        "reasoning_effort": config.reasoning_effort,
        "parallel_tool_calls": config.parallel_tool_calls,
    })
}

/// The settings as they are stored. A field that is not there, because an older release wrote it, is as a new session has
/// it.
#[derive(Debug, Deserialize)]
#[serde(default)]
struct KeptSettings {
    tool_choice: Value,
    max_output_tokens: Value,
    temperature: Option<f64>,
    reasoning_effort: Option<String>,
    parallel_tool_calls: bool,
}

impl Default for KeptSettings {
    fn default() -> KeptSettings {
        KeptSettings {
            tool_choice: Value::Null,
            max_output_tokens: Value::Null,
            temperature: None,
            reasoning_effort: None,
            parallel_tool_calls: true,
        }
    }
}

#[derive(Debug, Deserialize)]
struct KeptTool {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    verbatim: Option<Value>,
}

/// What `sessions.tools` holds.
pub fn tools_of(config: &SessionConfig) -> Value {
    let json = |text: &JsonText| serde_json::from_str::<Value>(&text.0).unwrap_or_default();
    let tool = |tool: &Tool| {
        let mut kept = Map::from_iter([("type".to_owned(), json!("function")), ("name".to_owned(), json!(tool.name))]);
        kept.extend(tool.description.as_ref().map(|description| ("description".to_owned(), json!(description))));
        kept.extend(tool.parameters.as_ref().map(|parameters| ("parameters".to_owned(), json(parameters))));
        kept.extend(tool.verbatim.as_ref().map(|verbatim| ("verbatim".to_owned(), json(verbatim))));
        Value::Object(kept)
    };
    config.tools.iter().map(tool).collect()
}

/// A configuration that cannot be read is told and replaced field by field, because the conversation is worth more.
pub fn config_of(session: &store::Session) -> SessionConfig {
    let readable = |what: &str, error: serde_json::Error| {
        tracing::warn!(session = %session.id, what, %error, "this part of a session's configuration cannot be read");
    };
    let kept = match &session.settings {
        Value::Null => KeptSettings::default(),
        settings => KeptSettings::deserialize(settings).unwrap_or_else(|error| {
            readable("settings", error);
            KeptSettings::default()
        }),
    };
    let tools = match &session.tools {
        Value::Null => Vec::new(),
        tools => Vec::<KeptTool>::deserialize(tools).unwrap_or_else(|error| {
            readable("tools", error);
            Vec::new()
        }),
    };
    let text = |value: Value| JsonText::from(value.to_string());
    let tool = |tool: KeptTool| Tool {
        name: tool.name,
        description: tool.description,
        parameters: tool.parameters.map(text),
        verbatim: tool.verbatim.map(text),
    };
    let tokens = kept.max_output_tokens.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    SessionConfig {
        instructions: session.instructions.clone(),
        tools: tools.into_iter().map(tool).collect(),
        tool_choice: match (kept.tool_choice.as_str(), kept.tool_choice["name"].as_str()) {
            (Some("none"), _) => ToolChoice::None,
            (Some("required"), _) => ToolChoice::Required,
            (None, Some(name)) => ToolChoice::Function(name.to_owned()),
            _ => ToolChoice::Auto,
        },
        max_output_tokens: tokens.map_or(MaxTokens::Unlimited, MaxTokens::Tokens),
        temperature: kept.temperature,
        reasoning_effort: kept.reasoning_effort,
        parallel_tool_calls: kept.parallel_tool_calls,
    }
}

pub fn body_of(item: &Item) -> store::Body {
    match &item.body {
        ItemBody::Message { role, parts } => {
            let (role, kind) = match role {
                Role::System => (store::Role::System, store::PartKind::InputText),
                Role::User => (store::Role::User, store::PartKind::InputText),
                Role::Assistant => (store::Role::Assistant, store::PartKind::OutputText),
            };
            let parts = parts.iter().map(|text| store::Part { kind, text: text.clone() }).collect();
            store::Body::Message { role, parts }
        }
        ItemBody::FunctionCall { call_id, name, arguments } => {
            store::Body::FunctionCall { call_id: call_id.clone(), name: name.clone(), arguments: arguments.clone() }
        }
        ItemBody::FunctionCallOutput { call_id, output } => {
            store::Body::FunctionCallOutput { call_id: call_id.clone(), output: output.clone() }
        }
    }
}

/// None: clients never see it.
pub fn item_of(item: &store::Item) -> Option<Item> {
    let body = match &item.body {
        store::Body::Message { role, parts } => {
            let role = match role {
                store::Role::System => Role::System,
                store::Role::User => Role::User,
                store::Role::Assistant => Role::Assistant,
            };
            ItemBody::Message { role, parts: parts.iter().map(|part| part.text.clone()).collect() }
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
    let details = details.map(|details| match details {
        StatusDetails::Cancelled => json!({ "type": "cancelled", "reason": "client_cancelled" }),
        StatusDetails::MaxOutputTokens => json!({ "type": "incomplete", "reason": "max_output_tokens" }),
        StatusDetails::Failed(Failure { code, message }) => {
            let kind = if code.is_clients_fault() { "invalid_request_error" } else { "server_error" };
            json!({ "type": "failed", "error": { "type": kind, "code": code.word(), "message": message } })
        }
    });
    store::FinishedResponse {
        id,
        status: match status {
            ResponseStatus::InProgress => store::ResponseStatus::InProgress,
            ResponseStatus::Completed => store::ResponseStatus::Completed,
            ResponseStatus::Cancelled => store::ResponseStatus::Cancelled,
            ResponseStatus::Incomplete => store::ResponseStatus::Incomplete,
            ResponseStatus::Failed => store::ResponseStatus::Failed,
        },
        status_details: details.unwrap_or(Value::Null),
        usage: json!({
            "total_tokens": usage.input_tokens + usage.output_tokens,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "input_token_details": { "cached_tokens": usage.cached_tokens },
            "output_token_details": { "reasoning_tokens": usage.reasoning_tokens },
        }),
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
            tools: vec![Tool {
                name: "light".into(),
                description: None,
                parameters: Some(r#"{"type":"object"}"#.into()),
                verbatim: None,
            }],
            tool_choice: ToolChoice::Function("light".into()),
            max_output_tokens: MaxTokens::Tokens(7),
            temperature: Some(0.5),
            reasoning_effort: Some("low".into()),
            parallel_tool_calls: false,
        };
        assert_eq!(config_of(&session(tools_of(&config), settings_of(&config))), config);
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
