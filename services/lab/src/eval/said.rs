//! Messages and tools as the sets of questions write them.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use session::{Message, MessageRole, Tool, ToolCall};

#[derive(Debug, Deserialize)]
pub struct EvalMessage {
    role: EvalRole,
    content: String,
    #[serde(default)]
    tool_calls: Vec<EvalCall>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EvalRole {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug, Deserialize)]
struct EvalCall {
    function: EvalFunction,
}

#[derive(Debug, Deserialize)]
struct EvalFunction {
    name: String,
    arguments: Map<String, Value>,
}

/// Tool in the words of the set, which the template prints.
#[derive(Debug, Deserialize)]
pub struct EvalTool(Map<String, Value>);

impl EvalMessage {
    pub fn message(&self) -> Message {
        let role = match self.role {
            EvalRole::System => MessageRole::System,
            EvalRole::User => MessageRole::User,
            EvalRole::Assistant => MessageRole::Assistant,
            EvalRole::Tool => MessageRole::Tool,
        };
        let call = |EvalCall { function: EvalFunction { name, arguments } }: &EvalCall| ToolCall {
            id: None,
            name: name.clone(),
            arguments: json!(arguments).to_string(),
        };
        Message { calls: self.tool_calls.iter().map(call).collect(), ..Message::new(role, &self.content) }
    }
}

impl EvalTool {
    pub fn tool(&self) -> Tool {
        Tool { verbatim: Some(json!(self.0).to_string().into()), ..Tool::default() }
    }
}
