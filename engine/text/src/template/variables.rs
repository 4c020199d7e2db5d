//! Variables of chat templates from a prompt. The order of the keys counts: templates print tools in it.

use chat::{JsonText, Message, MessageRole, Part, TemplateOptions, Tool, ToolCall};
use serde_json::{Map, Value, json};

pub fn message_json(message: &Message) -> Value {
    let mut value = Map::new();
    let mut set = |name: &str, field: Value| {
        value.insert(name.to_owned(), field);
    };
    set("role", role(message.role).into());
    if let Some(call_id) = &message.call_id {
        set("tool_call_id", call_id.as_str().into());
    }
    set("content", content(&message.parts));
    if let Some(reasoning) = &message.reasoning {
        set("reasoning_content", reasoning.as_str().into());
    }
    if !message.calls.is_empty() {
        set("tool_calls", message.calls.iter().map(call).collect());
    }
    if let Some(name) = &message.name {
        set("name", name.as_str().into());
    }
    Value::Object(value)
}

fn role(role: MessageRole) -> &'static str {
    match role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "tool",
    }
}

fn content(parts: &[Part]) -> Value {
    let part = |part: &Part| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image(image) => value_of(image),
    };
    match parts {
        [] => "".into(),
        [Part::Text(text)] => text.as_str().into(),
        parts => parts.iter().map(part).collect(),
    }
}

fn call(call: &ToolCall) -> Value {
    let arguments = match serde_json::from_str::<Map<String, Value>>(&call.arguments) {
        Ok(arguments) => Value::Object(arguments),
        Err(_) if call.arguments.trim().is_empty() => json!({}),
        Err(_) => json!({ "arguments": call.arguments }),
    };
    let function = json!({ "name": call.name, "arguments": arguments });
    match &call.id {
        Some(id) => json!({ "id": id, "type": "function", "function": function }),
        None => json!({ "type": "function", "function": function }),
    }
}

/// Returns a tool as templates print it.
pub fn tool_json(tool: &Tool) -> Value {
    if let Some(verbatim) = &tool.verbatim {
        return value_of(verbatim);
    }
    let mut function = Map::new();
    function.insert("name".into(), tool.name.as_str().into());
    if let Some(description) = &tool.description {
        function.insert("description".into(), description.as_str().into());
    }
    if let Some(parameters) = &tool.parameters {
        function.insert("parameters".into(), value_of(parameters));
    }
    json!({ "type": "function", "function": function })
}

/// Returns the options of a client by the names that templates know.
pub fn options_json(given: &TemplateOptions) -> Map<String, Value> {
    let mut options = Map::new();
    options.insert("add_generation_prompt".into(), Value::Bool(true));
    if let Some(thinks) = given.thinks() {
        options.insert("enable_thinking".into(), Value::Bool(thinks));
    }
    if let Some(effort) = &given.reasoning_effort {
        options.insert("reasoning_effort".into(), effort.as_str().into());
    }
    if let Some(Value::Object(more)) = given.more.as_ref().map(value_of) {
        options.extend(more);
    }
    options
}

/// Parses text that a door has parsed already. Anything but JSON becomes a text.
fn value_of(text: &JsonText) -> Value {
    serde_json::from_str(&text.0).unwrap_or_else(|_| Value::from(&*text.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_templates_take_them() {
        let call =
            |arguments: &str| ToolCall { id: Some("c".into()), name: "light".into(), arguments: arguments.into() };
        let calls = vec![call("{\"b\":1,\"a\":2}"), call(" "), call("[1]"), ToolCall { id: None, ..call("on") }];
        let image = Part::Image(r#"{"type":"image_url","image_url":{"url":"x"}}"#.into());
        let messages = [
            Message::new(MessageRole::System, "Be short."),
            Message {
                parts: vec![Part::Text("What is this?".into()), image],
                name: Some("Ann".into()),
                ..Message::new(MessageRole::User, "")
            },
            Message {
                parts: Vec::new(),
                reasoning: Some("Hm.".into()),
                calls,
                ..Message::new(MessageRole::Assistant, "")
            },
            Message::result("c", "ok"),
        ];
        let expected = [
            r#"{"role":"system","content":"Be short."}"#.to_owned(),
            concat!(
                r#"{"role":"user","content":[{"type":"text","text":"What is this?"},"#,
                r#"{"type":"image_url","image_url":{"url":"x"}}],"name":"Ann"}"#
            )
            .to_owned(),
            concat!(
                r#"{"role":"assistant","content":"","reasoning_content":"Hm.","tool_calls":["#,
                r#"{"id":"c","type":"function","function":{"name":"light","arguments":{"b":1,"a":2}}},"#,
                r#"{"id":"c","type":"function","function":{"name":"light","arguments":{}}},"#,
                r#"{"id":"c","type":"function","function":{"name":"light","arguments":{"arguments":"[1]"}}},"#,
                r#"{"type":"function","function":{"name":"light","arguments":{"arguments":"on"}}}]}"#
            )
            .to_owned(),
            r#"{"role":"tool","tool_call_id":"c","content":"ok"}"#.to_owned(),
        ];
        assert_eq!(messages.map(|message| message_json(&message).to_string()), expected);
    }

    #[test]
    fn a_tool_is_printed_as_its_client_wrote_it() {
        let light = Tool {
            name: "light".into(),
            description: Some("Switches.".into()),
            parameters: Some(r#"{"type":"object","properties":{}}"#.into()),
            verbatim: None,
        };
        let verbatim = r#"{"type":"function","function":{"name":"light","strict":true}}"#;
        let tools = [light.clone(), Tool { verbatim: Some(verbatim.into()), ..light }];
        let whole = concat!(
            r#"{"type":"function","function":{"name":"light","description":"Switches.","#,
            r#""parameters":{"type":"object","properties":{}}}}"#
        );
        assert_eq!(tools.map(|tool| tool_json(&tool).to_string()), [whole, verbatim]);
    }

    #[test]
    fn a_word_on_thinking_goes_before_the_effort() {
        let rows = [
            (None, None, None, r#"{"add_generation_prompt":true}"#),
            (
                None,
                Some("none"),
                None,
                r#"{"add_generation_prompt":true,"enable_thinking":false,"reasoning_effort":"none"}"#,
            ),
            (
                None,
                Some("low"),
                None,
                r#"{"add_generation_prompt":true,"enable_thinking":true,"reasoning_effort":"low"}"#,
            ),
            (
                Some(false),
                Some("low"),
                None,
                r#"{"add_generation_prompt":true,"enable_thinking":false,"reasoning_effort":"low"}"#,
            ),
            (
                Some(true),
                None,
                Some(r#"{"enable_thinking":false,"x":1}"#),
                r#"{"add_generation_prompt":true,"enable_thinking":false,"x":1}"#,
            ),
        ];
        for (enable_thinking, effort, more, expected) in rows {
            let reasoning_effort = effort.map(str::to_owned);
            let given = TemplateOptions { enable_thinking, reasoning_effort, more: more.map(JsonText::from) };
            assert_eq!(Value::Object(options_json(&given)).to_string(), expected);
        }
    }
}
