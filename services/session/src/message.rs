//! Messages of a prompt: constructors, sizes and texts.

use crate::vocabulary::{Message, MessageRole, Part};

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
}
