//! Layout of a session's prompt, for replies, warming, counting and summaries.
//!
//! Text that stays from turn to turn comes first, so that the cache holds it. Notes that change from turn to turn (the
//! time, the room) come behind the history, right before the user's question.

#[cfg(test)]
mod tests;

use crate::items::{ItemText, order_results, push_item, words};
use crate::speakers::{Audience, readable, readable_facts};
use crate::wording::Wording;
use session::machine::{has_recall, recall_tool};
use session::{Context, Item, ItemBody, Message, MessageRole, Prompt, Role, SessionConfig, TemplateOptions};
use settings::{Questions, ShownSpeakers};
use std::sync::Arc;

/// Text in the place of the user's next words, which the engine never computes.
pub const PLACEHOLDER: &str = "…";

/// Material of a prompt besides the items.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub config: &'a SessionConfig,
    pub questions: Questions,
    pub remembered: &'a str,
    /// Session's person, of whom `remembered` tells. Empty: the home's guest. `None`: nothing is remembered.
    pub person: Option<&'a str>,
    pub audience: Audience,
    pub speakers: ShownSpeakers,
    pub context: &'a Context,
    /// User's speech so far, which may continue: the last message.
    pub partial: Option<&'a str>,
    pub request: &'a [Message],
    pub wording: &'a Wording,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaidOut {
    pub prompt: Prompt,
    pub marks: StableMarks,
    /// Index of the message of each item that the audience reads. `None` for an item without words.
    pub message_of_item: Vec<Option<usize>>,
}

/// Ends of the parts of a prompt, in messages from its begin: instructions, facts, summary and pins, the items before the
/// question. A change leaves every byte before the part that it concerns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StableMarks {
    pub head: usize,
    pub remembered: usize,
    pub context: usize,
    /// End of the history. An item that comes later leaves all of it.
    pub history: usize,
}

impl<'a> Layout<'a> {
    pub fn new(config: &'a SessionConfig, context: &'a Context, wording: &'a Wording) -> Layout<'a> {
        Layout {
            config,
            questions: Questions::Any,
            remembered: "",
            person: None,
            audience: Audience::Asker,
            speakers: ShownSpeakers::Name,
            context,
            partial: None,
            request: &[],
            wording,
        }
    }
}

pub fn leading(items: &[Arc<Item>]) -> usize {
    items.iter().take_while(|item| item.role() == Some(Role::System) && !item.is_note_of_past()).count()
}

pub fn lay_out(items: &[Arc<Item>], layout: &Layout) -> LaidOut {
    let Layout { config, context, wording, speakers, .. } = *layout;
    let items = readable(items, layout.audience, layout.person);
    let leading = leading(&items);
    let before = wording.before_instructions(&config.persona, layout.questions);
    let mut head = vec![before, config.instructions.trim().to_owned()];
    head.extend(items[..leading].iter().map(|item| words(item)));
    head.retain(|text| !text.is_empty());

    let mut messages = Vec::new();
    if !head.is_empty() {
        messages.push(Message::new(MessageRole::System, head.join("\n\n")));
    }
    let mut message_of_item = vec![Some(0).filter(|_| !head.is_empty()); leading];
    let mut marks = StableMarks { head: messages.len(), ..StableMarks::default() };
    let remembered = readable_facts(layout.remembered, layout.audience, layout.person, &items);
    messages.extend(note_of_facts(remembered, wording));
    marks.remembered = messages.len();
    messages.extend(context.preface.iter().cloned());
    marks.context = messages.len();
    let mut question = None;
    for (index, item) in items.iter().enumerate().skip(leading) {
        if is_typed(&items, index, layout.partial.is_some()) {
            messages.push(Message::new(MessageRole::User, words(item)));
        } else if let ItemBody::FunctionCallOutput { call_id, .. } = &item.body
            && context.trimmed.contains(&item.id)
        {
            messages.push(Message::result(call_id, &wording.left_out));
        } else if !push_item(&mut messages, item, ItemText::Shown { speakers, wording }) {
            message_of_item.push(None);
            continue;
        }
        message_of_item.push(Some(messages.len() - 1));
        if matches!(item.role(), Some(Role::User | Role::System)) {
            question = Some(messages.len() - 1);
        }
    }
    let places = order_results(&mut messages);
    message_of_item.iter_mut().chain([&mut question]).flatten().for_each(|index| *index = places[*index]);
    if let Some(partial) = layout.partial {
        question = Some(messages.len());
        messages.push(Message::new(MessageRole::User, partial));
    }
    marks.history = question.unwrap_or(messages.len());
    let mut insert = |at: usize, message: Message, messages: &mut Vec<Message>| {
        messages.insert(at, message);
        message_of_item.iter_mut().flatten().filter(|index| **index >= at).for_each(|index| *index += 1);
    };
    // All speakers read a summary, so it holds no note.
    let notes = if layout.audience == Audience::Everyone { &[][..] } else { &context.notes };
    let notes: Vec<&str> = notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).collect();
    if let Some(note) = note(&notes.join("\n"), wording) {
        insert(marks.history, note, &mut messages);
    }
    // Templates want a user's message first behind the head.
    let behind = &messages[marks.context..];
    let first = marks.context + behind.iter().take_while(|message| message.role == MessageRole::System).count();
    if messages.get(first).is_none_or(|message| message.role != MessageRole::User) {
        // An opening with nothing behind it is no history: the user's first words take its place.
        marks.history += usize::from(first < marks.history);
        insert(first, Message::new(MessageRole::User, &wording.opening), &mut messages);
    }
    messages.extend(layout.request.iter().cloned());
    LaidOut { prompt: with_tools(config, context, messages, wording), marks, message_of_item }
}

pub fn with_tools(config: &SessionConfig, context: &Context, messages: Vec<Message>, wording: &Wording) -> Prompt {
    let mut tools = config.tools.clone();
    if has_recall(config, context) {
        tools.push(recall_tool());
    }
    let options = TemplateOptions { reasoning_effort: config.reasoning_effort.clone(), ..TemplateOptions::default() };
    Prompt { messages, tools: wording.ordered(tools), options }
}

pub(crate) fn note_of_facts(text: &str, wording: &Wording) -> Option<Message> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(|text| wording.note_of_words(text))
}

fn note(text: &str, wording: &Wording) -> Option<Message> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(|text| wording.note(text))
}

/// True for user input in a system message, as some clients send it: right behind an answer, and no user's message
/// follows.
fn is_typed(items: &[Arc<Item>], index: usize, user_speaks: bool) -> bool {
    let is_system = |item: &Arc<Item>| item.role() == Some(Role::System);
    let is_before_user = match items.get(index + 1) {
        Some(item) => matches!(item.role(), Some(Role::User | Role::System)),
        None => user_speaks,
    };
    is_system(&items[index])
        && !items[index].is_note_of_past()
        && !is_before_user
        && items[..index].iter().rev().find(|item| !is_system(item)).and_then(|item| item.role())
            == Some(Role::Assistant)
}
