use crate::template::tool_json;
use chat::Tool;
use serde_json::Value;

/// Name of a tool, and the JSON schema of its arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSchema {
    pub name: String,
    /// True if the client wants no other arguments than the schema allows.
    pub strict: bool,
    pub parameters: Value, // `Null`: the tool has none
}

impl ToolSchema {
    pub fn of(tool: &Tool) -> ToolSchema {
        let mut printed = tool_json(tool);
        let function = match printed.get_mut("function") {
            Some(function) => function.take(),
            None => printed,
        };
        ToolSchema {
            name: function.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            strict: function.get("strict").and_then(Value::as_bool).unwrap_or(false),
            parameters: function.get("parameters").cloned().unwrap_or_default(),
        }
    }

    pub fn of_all(tools: &[Tool]) -> Vec<ToolSchema> {
        tools.iter().map(ToolSchema::of).collect()
    }
}
