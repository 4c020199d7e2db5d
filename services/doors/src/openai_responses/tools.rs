//! Tools, which this protocol writes flat.

use crate::options::check_tool_count;
use crate::tools::{check_tool, tool_of};
use fields::shown;
use fields::{FieldError, Read, unsupported};
use serde_json::{Value, json};
use session::Tool;
use settings::LimitSettings;

pub fn tools(given: &[Value], limits: &LimitSettings) -> Read<Vec<Tool>> {
    check_tool_count(given.len(), limits)?;
    let tool = |(at, given)| tool(given).map_err(|wrong: FieldError| wrong.under(&format!("tools[{at}]")));
    given.iter().enumerate().map(tool).collect()
}

fn tool(given: &Value) -> Read<Tool> {
    match given["type"].as_str() {
        Some("function") => {}
        Some(other) => {
            let other = shown(other);
            let message = format!("this server runs no tool of type '{other}': leave it out, or send a function");
            return Err(unsupported("type", message));
        }
        None => return Err(FieldError::missing("type")),
    }
    check_tool("the tool", given)?;
    // Some clients send the shape of chat completions.
    let tool = tool_of(given);
    if tool.name.is_empty() {
        return Err(FieldError::missing("name"));
    }
    Ok(Tool { verbatim: None, ..tool })
}

/// Writes tools as a response repeats them.
pub fn tool_views(given: &[Value]) -> Vec<Value> {
    let view = |given: &Value| {
        let function = given.get("function").unwrap_or(given);
        json!({
            "type": "function",
            "name": function["name"],
            "description": function["description"],
            "parameters": function["parameters"],
            "strict": function["strict"].as_bool(),
        })
    };
    given.iter().map(view).collect()
}
