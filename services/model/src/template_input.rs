//! JSON for chat templates from a prompt.

use serde_json::{Map, Value, json};
use session::{JsonText, Message, MessageRole, Part, Prompt, TemplateOptions, Tool, ToolCall};
use settings::ToolOrder;
use text::chat::ChatPrompt;

/// Renders the JSON. The order of the keys counts: templates print tools in it.
pub fn chat_prompt(prompt: &Prompt, order: ToolOrder) -> ChatPrompt {
    let is_image = |part: &&Part| matches!(part, Part::Image(_));
    ChatPrompt {
        messages: prompt.messages.iter().map(message).collect(),
        tools: tools(&prompt.tools, order),
        options: options(&prompt.options),
        images: prompt.messages.iter().map(|message| message.parts.iter().filter(is_image).count()).sum(),
    }
}

fn message(message: &Message) -> Value {
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

/// Renders a call; templates take its arguments as an object.
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

pub(crate) fn tools(given: &[Tool], order: ToolOrder) -> Vec<Value> {
    let mut tools: Vec<&Tool> = given.iter().collect();
    if order == ToolOrder::Name {
        // Two tools of one name have an order too, or it would be the client's.
        let text = |text: &Option<JsonText>| text.as_ref().map(|text| text.0.clone());
        tools.sort_by_cached_key(|tool| {
            (tool.name.clone(), tool.description.clone(), text(&tool.parameters), text(&tool.verbatim))
        });
    }
    tools.into_iter().map(tool).collect()
}

fn tool(tool: &Tool) -> Value {
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

fn options(given: &TemplateOptions) -> Map<String, Value> {
    let mut options = Map::new();
    options.insert("add_generation_prompt".into(), Value::Bool(true));
    let effort = given.reasoning_effort.as_deref();
    let by_effort = effort.map(|effort| !matches!(effort, "none" | "minimal"));
    if let Some(thinks) = given.enable_thinking.or(by_effort) {
        options.insert("enable_thinking".into(), Value::Bool(thinks));
    }
    if let Some(effort) = effort {
        options.insert("reasoning_effort".into(), effort.into());
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
    use proptest::prelude::*;

    #[test]
    fn messages_are_as_templates_take_them() {
        let call =
            |arguments: &str| ToolCall { id: Some("c".into()), name: "light".into(), arguments: arguments.into() };
        let calls = vec![call("{\"b\":1,\"a\":2}"), call(" "), call("[1]"), ToolCall { id: None, ..call("on") }];
        let image = Part::Image(r#"{"type":"image_url","image_url":{"url":"x"}}"#.into());
        let prompt = Prompt {
            messages: vec![
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
            ],
            ..Prompt::default()
        };
        let chat = chat_prompt(&prompt, ToolOrder::Client);
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
        assert_eq!(chat.messages.iter().map(Value::to_string).collect::<Vec<_>>(), expected);
        assert_eq!(chat.images, 1);
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
        let tools = vec![light.clone(), Tool { verbatim: Some(verbatim.into()), ..light }];
        let printed: Vec<String> = self::tools(&tools, ToolOrder::Client).iter().map(Value::to_string).collect();
        let whole = concat!(
            r#"{"type":"function","function":{"name":"light","description":"Switches.","#,
            r#""parameters":{"type":"object","properties":{}}}}"#
        );
        assert_eq!(printed, [whole, verbatim]);
    }

    fn a_tool((name, description, is_verbatim): (String, Option<String>, bool)) -> Tool {
        let verbatim = format!(r#"{{"type":"function","function":{{"name":"{name}","strict":true}}}}"#);
        Tool {
            name,
            parameters: description.is_some().then(|| r#"{"type":"object"}"#.into()),
            description,
            verbatim: is_verbatim.then(|| JsonText(verbatim.into())),
        }
    }

    proptest! {
        /// Tools in any order render one prompt, even if they share a name or are equal.
        #[test]
        fn tools_by_name_are_one_prompt_in_whatever_order_they_come(
            (tools, other) in proptest::collection::vec(
                ("[a-d]{1,2}", proptest::option::of("[a-b]"), proptest::bool::ANY).prop_map(a_tool),
                0..12,
            ).prop_flat_map(|tools| (Just(tools.clone()), Just(tools).prop_shuffle())),
        ) {
            let template = text::Template::family().unwrap();
            let render = |tools: Vec<Tool>, order| {
                let messages = vec![Message::new(MessageRole::System, "Be short."), Message::new(MessageRole::User, "Hi.")];
                let chat = chat_prompt(&Prompt { messages, tools, ..Prompt::default() }, order);
                template.render(&chat.prompt(None)).unwrap().text
            };
            prop_assert_eq!(render(tools.clone(), ToolOrder::Name), render(other, ToolOrder::Name));
            // In the client's order all are there.
            let names: Vec<String> = tools.iter().map(|tool| tool.name.clone()).collect();
            let as_they_come = chat_prompt(&Prompt { tools, ..Prompt::default() }, ToolOrder::Client).tools;
            let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
            prop_assert_eq!(as_they_come.iter().map(name).collect::<Vec<_>>(), names);
        }
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
            assert_eq!(Value::Object(options(&given)).to_string(), expected);
        }
    }
}
