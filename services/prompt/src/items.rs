//! Messages from items, for sessions and for logs of clients alike.

use crate::speakers::show_name;
use crate::wording::Wording;
use session::{Item, ItemBody, ItemStatus, Message, MessageRole, NO_RESULT, NamedSpeaker, Role, ToolCall};
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

// Puts the results of several calls into the order of the calls: templates print no ids, so that models tell results apart by
// their order alone. Returns the new place of each message.
pub(crate) fn order_results(messages: &mut Vec<Message>) -> Vec<usize> {
    let mut places: Vec<usize> = (0..messages.len()).collect();
    if messages.iter().all(|message| message.calls.len() < 2) {
        return places;
    }
    let mut ordered = Vec::with_capacity(messages.len());
    let mut rest = std::mem::take(messages).into_iter().enumerate().peekable();
    while let Some((at, message)) = rest.next() {
        places[at] = ordered.len();
        let calls: Vec<Option<String>> = match message.calls.len() {
            0 | 1 => Vec::new(),
            _ => message.calls.iter().map(|call| call.id.clone()).collect(),
        };
        ordered.push(message);
        let mut results = Vec::new();
        while let Some(result) = rest.next_if(|(_, next)| !calls.is_empty() && next.role == MessageRole::Tool) {
            results.push(result);
        }
        for (index, id) in calls.iter().enumerate() {
            let is_of = |id: &Option<String>, result: &Message| id.is_some() && result.call_id == *id;
            let comes_later = |(_, result): &(usize, Message)| calls[index..].iter().any(|id| is_of(id, result));
            match results.iter().position(|(_, result)| is_of(id, result)) {
                Some(found) => {
                    let (at, result) = results.remove(found);
                    places[at] = ordered.len();
                    ordered.push(result);
                }
                // The tool is still at work, and the next result must not pass for its own.
                None if id.is_some() && results.iter().any(comes_later) => {
                    ordered.push(Message::result(id.as_deref().unwrap_or_default(), NO_RESULT));
                }
                None => {}
            }
        }
        for (at, result) in results {
            places[at] = ordered.len();
            ordered.push(result);
        }
    }
    *messages = ordered;
    places
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
