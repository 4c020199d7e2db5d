//! Events and inputs: their subject, their weight, their consequences.

use crate::vocabulary::{Event, Input};

impl Input {
    pub fn wants_response(&self) -> bool {
        matches!(
            self,
            Input::Respond(_) | Input::TakeTurn(_) | Input::Resume(_) | Input::HeardAll { respond: true, .. }
        )
    }

    pub fn text_bytes(&self) -> usize {
        match self {
            Input::Configure(update) => update.text_bytes(),
            Input::AddItem { item, .. } => item.body.text_bytes(),
            Input::Respond(request) => request.text_bytes(),
            Input::TakeTurn(turn) => {
                turn.items.iter().map(|item| item.body.text_bytes()).sum::<usize>() + turn.request.text_bytes()
            }
            Input::Hear { text } | Input::HeardAll { text: Some(text), .. } => text.len(),
            _ => 0,
        }
    }
}

impl Event {
    pub fn is_about(&self, id: &str) -> bool {
        match self {
            Event::ItemAdded { item, .. }
            | Event::ItemRead { item }
            | Event::ReplyStarted { item, .. }
            | Event::ReplyDone { item, .. } => item.id == id,
            Event::ItemTruncated { item_id, .. }
            | Event::ItemDeleted { item_id }
            | Event::TextDelta { item_id, .. }
            | Event::ArgumentsDelta { item_id, .. }
            | Event::SentenceDone { item_id, .. }
            | Event::TextDone { item_id, .. }
            | Event::PinRefused { item_id, .. } => item_id == id,
            _ => false,
        }
    }

    /// Shortens this item to its first `bytes` in an event of the response. False if the event is about later text and
    /// is dropped.
    pub fn end_at(&mut self, response: &str, item: &str, bytes: usize) -> bool {
        match self {
            Event::TextDelta { response_id, item_id, .. } | Event::SentenceDone { response_id, item_id, .. } => {
                return response_id != response || item_id != item;
            }
            Event::TextDone { response_id, item_id, text, .. } if response_id == response && item_id == item => {
                text.truncate(text.floor_char_boundary(bytes));
            }
            Event::ReplyDone { response_id, item: told, .. } if response_id == response && told.id == item => {
                told.shorten(bytes);
            }
            Event::ResponseDone { response: told } if told.id == response => told.end_at(item, bytes),
            _ => {}
        }
        true
    }

    pub fn weight_bytes(&self) -> usize {
        size_of::<Event>()
            + match self {
                Event::Opened(state) | Event::Configured(state) => state.config.text_bytes(),
                Event::ItemAdded { item, .. }
                | Event::ItemRead { item }
                | Event::ReplyStarted { item, .. }
                | Event::ReplyDone { item, .. } => item.body.text_bytes(),
                Event::ReasoningDelta { text, .. }
                | Event::TextDone { text, .. }
                | Event::ArgumentsDelta { json: text, .. }
                | Event::PinRefused { text, .. } => text.len(),
                Event::TextDelta { text, logprobs, .. } => {
                    let each = |token: &crate::TokenLogprob| size_of_val(token) * (1 + token.top.len());
                    text.len() + logprobs.iter().map(each).sum::<usize>()
                }
                Event::PromptTokens { tokens, .. } => {
                    tokens.iter().map(|token| size_of_val(token) * (1 + token.top.len())).sum()
                }
                Event::SentenceDone { sentence, .. } => sentence.text.len(),
                Event::FactLearned { fact, replaces } => {
                    fact.text.len() + replaces.iter().map(String::len).sum::<usize>()
                }
                Event::FactUnsure { near, .. } => near.iter().map(String::len).sum(),
                Event::Reached { bytes, .. } => *bytes,
                Event::RecallDone { query, note, .. } => query.len() + note.as_ref().map_or(0, String::len),
                Event::ResponseStarted { response } | Event::ResponseDone { response } => {
                    response.output.iter().map(|item| item.body.text_bytes()).sum()
                }
                Event::Refused { .. }
                | Event::ItemTruncated { .. }
                | Event::ItemDeleted { .. }
                | Event::SpeechDropped
                | Event::ThinkingStopped { .. }
                | Event::Reported { .. }
                | Event::ContextUpdated { .. }
                | Event::Compaction(_) => 0,
            }
    }

    pub fn response_id(&self) -> Option<&str> {
        match self {
            Event::ResponseStarted { response } | Event::ResponseDone { response } => Some(&response.id),
            Event::ReplyStarted { response_id, .. }
            | Event::ReasoningDelta { response_id, .. }
            | Event::ThinkingStopped { response_id }
            | Event::PromptTokens { response_id, .. }
            | Event::TextDelta { response_id, .. }
            | Event::ArgumentsDelta { response_id, .. }
            | Event::SentenceDone { response_id, .. }
            | Event::TextDone { response_id, .. }
            | Event::ReplyDone { response_id, .. }
            | Event::RecallDone { response_id, .. }
            | Event::Reported { response_id, .. } => Some(response_id),
            _ => None,
        }
    }
}
