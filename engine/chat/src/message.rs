use crate::{JsonText, TemplateOptions, Tool};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    pub messages: Vec<Message>,
    pub tools: Vec<Tool>,
    pub options: TemplateOptions,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: MessageRole,
    pub parts: Vec<Part>,
    pub reasoning: Option<String>,
    pub calls: Vec<ToolCall>,
    pub call_id: Option<String>,
    pub name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageRole {
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Text(String),
    /// Image, as the client sent it. Only an upstream can read one.
    Image(JsonText),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub id: Option<String>,
    pub name: String,
    pub arguments: String, // text of a JSON object
}

pub fn text_bytes(messages: &[Message]) -> usize {
    messages.iter().map(Message::text_bytes).sum()
}

impl Prompt {
    /// Counts the bytes of all that a client wrote: messages and tools.
    pub fn text_bytes(&self) -> usize {
        text_bytes(&self.messages) + self.tools.iter().map(Tool::text_bytes).sum::<usize>()
    }
}

/// Words of a result that is still to come.
pub const NO_RESULT: &str = "(No result yet.)";

impl Message {
    pub fn new(role: MessageRole, text: impl Into<String>) -> Message {
        let parts = vec![Part::Text(text.into())];
        Message { role, parts, reasoning: None, calls: Vec::new(), call_id: None, name: None }
    }

    pub fn result(call_id: &str, text: &str) -> Message {
        Message { call_id: Some(call_id.to_owned()), ..Message::new(MessageRole::Tool, text) }
    }

    pub fn text_bytes(&self) -> usize {
        let part = |part: &Part| match part {
            Part::Text(text) => text.len(),
            Part::Image(image) => image.0.len(),
        };
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.len());
        self.parts.iter().map(part).sum::<usize>() + calls.sum::<usize>()
    }

    pub fn text(&self) -> String {
        let mut texts = self.parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image(_) => None,
        });
        match (texts.next(), texts.next()) {
            (Some(one), None) => one.to_owned(),
            (first, second) => first.into_iter().chain(second).chain(texts).collect::<Vec<_>>().join("\n"),
        }
    }

    pub fn images(&self) -> usize {
        self.parts.iter().filter(|part| matches!(part, Part::Image(_))).count()
    }
}
