//! Random walks through grammars: every reply that the masks allow must parse and fit its schema.

mod calls;
mod hostile;
mod json;
mod times;
mod validator;
mod walk;

use crate::ToolSchema;
use serde_json::Value;

/// Reads a tool as clients write it, also one that is nested too deeply for a parser of JSON.
fn tool_schema(tool: &Value) -> ToolSchema {
    let function = tool.get("function").unwrap_or(tool);
    ToolSchema {
        name: function["name"].as_str().unwrap_or_default().to_string(),
        strict: function["strict"].as_bool().unwrap_or(false),
        parameters: function["parameters"].clone(),
    }
}
