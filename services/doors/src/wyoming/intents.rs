//! Devices: calls of the model that Home Assistant carries out. It is asked in one event and tells nothing back, so that one
//! call is the end of a turn.

use crate::json::json_text;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{ConfigUpdate, Item, ItemBody, Tool};
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Deserialize)]
struct Intents {
    intents: Vec<Intent>,
}

#[derive(Deserialize)]
struct Intent {
    name: String,
    description: String,
    #[serde(default)]
    texts: BTreeMap<String, String>,
    #[serde(default)]
    numbers: BTreeMap<String, String>,
}

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let Intents { intents } = toml::from_str(include_str!("intents.toml")).expect("a test reads it");
    intents.into_iter().map(tool).collect()
});

fn tool(Intent { name, description, texts, numbers }: Intent) -> Tool {
    let property = |kind: &'static str| {
        move |(name, description): (String, String)| (name, json!({ "type": kind, "description": description }))
    };
    let properties: Map<String, Value> =
        texts.into_iter().map(property("string")).chain(numbers.into_iter().map(property("number"))).collect();
    let parameters = json_text(&json!({ "type": "object", "properties": properties }));
    Tool { name, description: Some(description), parameters: Some(parameters), verbatim: None }
}

/// Returns the configuration of a turn: with the tools for devices, if they are on.
pub fn config(are_on: bool) -> ConfigUpdate {
    match are_on {
        true => {
            ConfigUpdate { tools: Some(TOOLS.clone()), parallel_tool_calls: Some(false), ..ConfigUpdate::default() }
        }
        false => ConfigUpdate::default(),
    }
}

/// The first call of a reply that Home Assistant can carry out: its name, and what it is about.
pub fn intent_of(output: &[Item]) -> Option<(&str, Vec<Value>)> {
    output.iter().find_map(|item| {
        let ItemBody::FunctionCall { name, arguments, .. } = &item.body else { return None };
        let known = TOOLS.iter().any(|tool| tool.name == *name);
        let arguments: Map<String, Value> = serde_json::from_str(arguments).ok().filter(|_| known)?;
        let is_said = |value: &Value| !value.is_null() && value != "";
        let said = arguments.into_iter().filter(|(_, value)| is_said(value));
        Some((name.as_str(), said.map(|(name, value)| json!({ "name": name, "value": value })).collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::ItemStatus;

    fn call(name: &str, arguments: &str) -> Item {
        let body = ItemBody::FunctionCall { call_id: "c".into(), name: name.into(), arguments: arguments.into() };
        Item::new("i", body, ItemStatus::Completed)
    }

    #[test]
    fn a_call_is_an_intent_with_what_was_said() {
        let output = [call("HassLightSet", r#"{"name":"lamp","area":"","brightness":30,"color":null}"#)];
        let (name, entities) = intent_of(&output).unwrap();
        assert_eq!(name, "HassLightSet");
        let expected = [json!({ "name": "name", "value": "lamp" }), json!({ "name": "brightness", "value": 30 })];
        assert_eq!(entities, expected);
        assert_eq!(intent_of(&[call("HassTurnOn", "{}")]).unwrap().1, [Value::Null; 0]);
        for (name, arguments) in [("recall", "{}"), ("HassTurnOn", "[]"), ("HassTurnOn", "{")] {
            assert!(intent_of(&[call(name, arguments)]).is_none(), "{name} {arguments}");
        }
    }

    #[test]
    fn tools_are_there_only_where_they_are_on() {
        assert_eq!(config(false), ConfigUpdate::default());
        let tools = config(true).tools.unwrap();
        assert!(tools.len() >= 8 && tools.iter().all(|tool| tool.name.starts_with("Hass")));
        assert!(tools[2].parameters.as_ref().unwrap().0.contains("\"brightness\":{\"type\":\"number\""));
    }
}
