//! A fresh clone talks: the binary in an empty folder, without configuration, file or network, has a model that means what
//! it says. How well it does is measured by `reprise eval builtin`; here only what everybody tries first.

use serde_json::{Value, json};
use tests::service::run_ok;

async fn answer(body: Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let said = run_ok(folder.path(), &["run", "--json", "--request", &body.to_string()]).await;
    serde_json::from_str(&said).unwrap()
}

async fn words(messages: Value) -> String {
    answer(json!({"messages": messages})).await["content"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn it_greets() {
    let said = words(json!([{"role": "user", "content": "Hello"}])).await;
    assert!(said.contains("Hello"), "{said}");
}

#[tokio::test]
async fn it_keeps_what_it_was_told_and_says_what_it_was_not() {
    let told = |question: &str| {
        json!([
            {"role": "system", "content": "You are a voice assistant."},
            {"role": "user", "content": "My dog is called Rex."},
            {"role": "assistant", "content": "Noted, your dog is called Rex."},
            {"role": "user", "content": "I live in London."},
            {"role": "assistant", "content": "Noted, you live in London."},
            {"role": "user", "content": question},
        ])
    };
    let said = words(told("What is my dog called?")).await;
    assert!(said.contains("Rex"), "{said}");
    let said = words(told("Where do I live?")).await;
    assert!(said.contains("London"), "{said}");
    let said = words(told("Who is my sister?")).await;
    assert!(said.contains("not told me"), "{said}");
}

#[tokio::test]
async fn it_calls_a_tool_and_says_what_came_of_it() {
    let tool = |name: &str, description: &str, properties: Value| {
        let required: Vec<String> = properties.as_object().unwrap().keys().cloned().collect();
        let parameters = json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
    };
    let text = json!({"type": "string"});
    let tools = json!([
        tool("set_timer", "Starts a timer.", json!({"amount": {"type": "integer"}, "unit": text})),
        tool("set_light", "Switches a light on or off.", json!({"room": text, "state": text})),
        tool("add_to_list", "Puts something on the shopping list.", json!({"item": text})),
    ]);
    let mut messages = vec![
        json!({"role": "system", "content": "You are a voice assistant."}),
        json!({"role": "user", "content": "Turn on the light in the kitchen."}),
    ];
    let said = answer(json!({"messages": messages, "tools": tools})).await;
    let call = &said["tool_calls"][0];
    assert_eq!(call["name"], "set_light", "{said}");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"room": "kitchen", "state": "on"}));

    let call = json!({"id": "call", "type": "function", "function": {"name": "set_light", "arguments": arguments}});
    messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "call", "content": "ok"}));
    let said = answer(json!({"messages": messages, "tools": tools})).await;
    let content = said["content"].as_str().unwrap();
    assert!(content.contains("kitchen") && content.contains("on"), "{said}");
}
