//! Messages from items, for sessions and for logs of clients alike.

use crate::speakers::show_name;
use crate::wording::Wording;
use session::{Item, ItemBody, ItemStatus, Message, MessageRole, NamedSpeaker, Role, ToolCall};
use settings::ShownSpeakers;

#[derive(Clone, Copy, Debug)]
pub enum ItemText<'a> {
    /// Text for the model: without space around it, with names and notes in the words of the settings.
    Shown {
        speakers: ShownSpeakers,
        wording: &'a Wording,
    },
    Verbatim,
}

/// Adds an item to the messages. A call joins the assistant's words right before it. Returns false if the model reads
/// nothing of the item.
pub fn push_item(messages: &mut Vec<Message>, item: &Item, text: ItemText) -> bool {
    match &item.body {
        ItemBody::Message { role: Role::System, .. } => messages.push(match text {
            ItemText::Shown { wording, .. } if item.is_note_of_past() => wording.note_of_words(&words(item)),
            ItemText::Shown { wording, .. } => wording.note(&words(item)),
            ItemText::Verbatim => Message::new(MessageRole::System, all_parts(item)),
        }),
        ItemBody::Message { role: Role::User, speaker, parts } => {
            let mut name = speaker.as_ref().and_then(NamedSpeaker::shown).map(str::to_owned);
            let said = match text {
                ItemText::Shown { speakers, .. } => {
                    let mut parts = parts.clone();
                    show_name(&mut name, parts.first_mut(), speakers);
                    joined(&parts)
                }
                ItemText::Verbatim => all_parts(item),
            };
            messages.push(Message { name, ..Message::new(MessageRole::User, said) });
        }
        ItemBody::Message { role: Role::Assistant, .. } => {
            let said = if matches!(text, ItemText::Verbatim) { all_parts(item) } else { words(item) };
            // The user heard nothing of it.
            if said.is_empty() && !matches!(text, ItemText::Verbatim) {
                return false;
            }
            messages.push(Message::new(MessageRole::Assistant, said));
        }
        // No client saw this call.
        ItemBody::FunctionCall { .. } if item.status == ItemStatus::Incomplete => return false,
        ItemBody::FunctionCall { call_id, name, arguments } => {
            let call = ToolCall { id: Some(call_id.clone()), name: name.clone(), arguments: arguments.clone() };
            match messages.last_mut() {
                Some(last) if last.role == MessageRole::Assistant => last.calls.push(call),
                _ => messages.push(Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "") }),
            }
        }
        ItemBody::FunctionCallOutput { call_id, output } => messages.push(Message::result(call_id, output)),
    }
    true
}

pub(crate) fn words(item: &Item) -> String {
    match &item.body {
        ItemBody::Message { parts, .. } => joined(parts),
        ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
    }
}

fn joined(parts: &[String]) -> String {
    parts.iter().map(|part| part.trim()).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

fn all_parts(item: &Item) -> String {
    match &item.body {
        ItemBody::Message { parts, .. } => parts.join("\n"),
        ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
    }
}
