//! Layout of a prompt from items.
//!
//! Text that stays from turn to turn comes first, so that the cache holds it: instructions, the summary, the history.
//! Notes that change from turn to turn (the time, the room) come behind the history, right before the user's question.

use crate::vocabulary::{Item, ItemBody, ItemStatus, Message, MessageRole, Part, Role, ToolCall};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Summary and pins of the covered items, in one message of a tool, because they are material and not instructions.
    pub preface: Vec<Message>,
    /// Last covered item. `None`: the prompt holds all items.
    pub covered_through: Option<String>,
    /// Tool results whose text left the prompt because it is stale. Their calls stay.
    pub trimmed: HashSet<String>,
    pub recall: bool,
    /// Notes that change from turn to turn (the time, the room), placed as late as possible.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub persona: &'a str,
    pub instructions: &'a str,
    pub remembered: &'a str,
    pub context: &'a Context,
    /// User's speech so far, which may continue: the last message.
    pub partial: Option<&'a str>,
    pub wording: &'a Wording,
}

/// Words for what chat templates have no role for; they come from the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    /// Words around a system message outside the head. It becomes a user's message, because many templates allow no
    /// other, and the words tell it from speech. `None` leaves it as it is.
    pub note: Option<[String; 2]>,
    /// User message before an assistant that speaks first: templates want a question.
    pub opening: String,
    pub left_out: String,
    pub no_question: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LaidOut {
    pub messages: Vec<Message>,
    /// Index for each item. `None` for an item without words.
    pub message_of_item: Vec<Option<usize>>,
    pub preface_at: usize,
}

/// Counts the instructions at the head, which no summary covers.
pub fn leading(items: &[Arc<Item>]) -> usize {
    items.iter().take_while(|item| item.role() == Some(Role::System) && !item.is_note_of_past()).count()
}

pub fn lay_out(items: &[Arc<Item>], layout: &Layout) -> LaidOut {
    let leading = leading(items);
    let mut head = vec![layout.persona.trim().to_owned(), layout.instructions.trim().to_owned()];
    head.extend(items[..leading].iter().map(|item| words(item)));
    head.retain(|text| !text.is_empty());

    let mut messages = Vec::new();
    if !head.is_empty() {
        messages.push(Message::new(MessageRole::System, head.join("\n\n")));
    }
    let mut message_of_item = vec![Some(0).filter(|_| !head.is_empty()); leading];
    let remembered = Some(layout.remembered.trim()).filter(|text| !text.is_empty());
    messages.extend(remembered.map(|text| layout.wording.note(text)));
    let preface_at = messages.len();
    messages.extend(layout.context.preface.iter().cloned());
    let first = messages.len();
    let mut question = None;
    for (index, item) in items.iter().enumerate().skip(leading) {
        if is_typed(items, index) {
            messages.push(Message::new(MessageRole::User, words(item)));
        } else if let ItemBody::FunctionCallOutput { call_id, .. } = &item.body
            && layout.context.trimmed.contains(&item.id)
        {
            messages.push(Message::result(call_id, &layout.wording.left_out));
        } else if !push_item(&mut messages, item, layout.wording) {
            message_of_item.push(None);
            continue;
        }
        message_of_item.push(Some(messages.len() - 1));
        if matches!(item.role(), Some(Role::User | Role::System)) {
            question = Some(messages.len() - 1);
        }
    }
    if let Some(partial) = layout.partial {
        question = Some(messages.len());
        messages.push(Message::new(MessageRole::User, partial));
    }
    let mut insert = |at: usize, message: Message, messages: &mut Vec<Message>| {
        messages.insert(at, message);
        message_of_item.iter_mut().flatten().filter(|index| **index >= at).for_each(|index| *index += 1);
    };
    let mut notes = layout.context.notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).peekable();
    if notes.peek().is_some() {
        let at = question.unwrap_or(messages.len());
        insert(at, layout.wording.note(&notes.collect::<Vec<_>>().join("\n")), &mut messages);
    }
    // Templates want a user's message first behind the head.
    let first = first + messages[first..].iter().take_while(|message| message.role == MessageRole::System).count();
    if messages.get(first).is_none_or(|message| message.role != MessageRole::User) {
        insert(first, Message::new(MessageRole::User, &layout.wording.opening), &mut messages);
    }
    LaidOut { messages, message_of_item, preface_at }
}

/// Brings a client's messages into the order that templates take: one system message at the head, then a user's.
pub fn settle(messages: &mut Vec<Message>, wording: &Wording) {
    let head = messages.iter().take_while(|message| message.role == MessageRole::System).count();
    if head > 1 {
        let texts: Vec<String> = messages.drain(..head).map(|message| message.text().trim().to_owned()).collect();
        let joined = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        messages.insert(0, Message::new(MessageRole::System, joined));
    }
    let head = head.min(1);
    let is_note = |message: &&mut Message| message.role == MessageRole::System && wording.note.is_some();
    for message in messages[head..].iter_mut().filter(is_note) {
        *message = wording.note(message.text().trim());
    }
    if messages.get(head).is_none_or(|message| message.role != MessageRole::User) {
        messages.insert(head, Message::new(MessageRole::User, &wording.opening));
    }
}

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

impl Wording {
    pub fn note(&self, text: &str) -> Message {
        match &self.note {
            None => Message::new(MessageRole::System, text),
            Some([before, after]) => Message::new(MessageRole::User, format!("{before}{text}{after}")),
        }
    }
}

/// True for user input in a system message, as some clients send it: right behind an answer, and no user's message
/// follows.
fn is_typed(items: &[Arc<Item>], index: usize) -> bool {
    let is_system = |item: &Arc<Item>| item.role() == Some(Role::System);
    let followed = items.get(index + 1).and_then(|item| item.role());
    is_system(&items[index])
        && !items[index].is_note_of_past()
        && !matches!(followed, Some(Role::User | Role::System))
        && items[..index].iter().rev().find(|item| !is_system(item)).and_then(|item| item.role())
            == Some(Role::Assistant)
}

/// Adds the item to the messages. False if it has no words.
fn push_item(messages: &mut Vec<Message>, item: &Item, wording: &Wording) -> bool {
    match &item.body {
        ItemBody::Message { role: Role::System, .. } => messages.push(wording.note(&words(item))),
        ItemBody::Message { role: Role::User, speaker, .. } => {
            let name = speaker.as_ref().and_then(|speaker| speaker.shown()).map(str::to_owned);
            messages.push(Message { name, ..Message::new(MessageRole::User, words(item)) });
        }
        ItemBody::Message { role: Role::Assistant, .. } => {
            let text = words(item);
            // The user heard nothing of it.
            if text.is_empty() {
                return false;
            }
            messages.push(Message::new(MessageRole::Assistant, text));
        }
        // No client saw this call.
        ItemBody::FunctionCall { .. } if item.status == ItemStatus::Incomplete => return false,
        ItemBody::FunctionCall { call_id, name, arguments } => {
            let call = ToolCall { id: Some(call_id.clone()), name: name.clone(), arguments: arguments.clone() };
            // A call belongs to the assistant's words right before it.
            match messages.last_mut() {
                Some(last) if last.role == MessageRole::Assistant => last.calls.push(call),
                _ => messages.push(Message { calls: vec![call], ..Message::new(MessageRole::Assistant, "") }),
            }
        }
        ItemBody::FunctionCallOutput { call_id, output } => messages.push(Message::result(call_id, output)),
    }
    true
}

fn words(item: &Item) -> String {
    match &item.body {
        ItemBody::Message { parts, .. } => {
            parts.iter().map(|part| part.trim()).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT_OUT: &str = "(left out)";

    fn wording() -> Wording {
        Wording {
            note: Some(["[note] ".into(), "".into()]),
            opening: "(You speak first.)".into(),
            left_out: LEFT_OUT.into(),
            no_question: "".into(),
        }
    }

    fn said(role: Role, text: &str) -> Arc<Item> {
        Arc::new(Item::message("x", role, text))
    }

    fn call(id: &str, arguments: &str) -> Arc<Item> {
        let body = ItemBody::FunctionCall { call_id: id.into(), name: "light".into(), arguments: arguments.into() };
        Arc::new(Item::new("x", body, ItemStatus::Completed))
    }

    fn output(id: &str, output: &str) -> Arc<Item> {
        let body = ItemBody::FunctionCallOutput { call_id: id.into(), output: output.into() };
        Arc::new(Item::new("x", body, ItemStatus::Completed))
    }

    fn line(message: &Message) -> String {
        let role = format!("{:?}", message.role).to_lowercase();
        let call = |call: &ToolCall| format!(" {}({})", call.name, call.arguments);
        format!("{role}: {}{}", message.text(), message.calls.iter().map(call).collect::<String>())
    }

    fn lines(items: &[Arc<Item>], context: &Context, partial: Option<&str>) -> Vec<String> {
        let wording = wording();
        let layout =
            Layout { persona: "", instructions: "Be brief.", remembered: "", context, partial, wording: &wording };
        lay_out(items, &layout).messages.iter().map(line).collect()
    }

    #[test]
    fn a_conversation() {
        let items = [said(Role::User, "Hi"), said(Role::Assistant, "Hello."), said(Role::User, "How are you?")];
        let expected = ["system: Be brief.", "user: Hi", "assistant: Hello.", "user: How are you?"];
        assert_eq!(lines(&items, &Context::default(), None), expected);
    }

    #[test]
    fn the_assistant_may_speak_first() {
        assert_eq!(lines(&[], &Context::default(), None), ["system: Be brief.", "user: (You speak first.)"]);
        let items = [said(Role::Assistant, "Welcome."), said(Role::User, "Thanks")];
        let expected = ["system: Be brief.", "user: (You speak first.)", "assistant: Welcome.", "user: Thanks"];
        assert_eq!(lines(&items, &Context::default(), None), expected);
    }

    #[test]
    fn system_messages_at_the_head_are_instructions_and_later_ones_are_notes() {
        let items = [said(Role::System, "The user is Ann."), said(Role::User, "Hi"), said(Role::System, "It rains.")];
        let expected = ["system: Be brief.\n\nThe user is Ann.", "user: Hi", "user: [note] It rains."];
        assert_eq!(lines(&items, &Context::default(), None), expected);
    }

    #[test]
    fn what_changes_stands_right_before_the_question() {
        let context = Context {
            preface: vec![Message::new(MessageRole::Tool, "Summary: they met.")],
            notes: vec!["It is 10:05.".into(), "The kitchen.".into()],
            ..Context::default()
        };
        let mut items = vec![said(Role::User, "Hi"), said(Role::Assistant, "Hello."), said(Role::User, "Light on")];
        let mut expected = vec![
            "system: Be brief.",
            "tool: Summary: they met.",
            "user: Hi",
            "assistant: Hello.",
            "user: [note] It is 10:05.\nThe kitchen.",
            "user: Light on",
        ];
        assert_eq!(lines(&items, &context, None), expected);
        // A call in the same turn moves nothing.
        items.extend([call("c1", "{\"on\":true}"), output("c1", "done")]);
        expected.push("assistant:  light({\"on\":true})");
        expected.push("tool: done");
        assert_eq!(lines(&items, &context, None), expected);
        // While the user speaks, the partial transcript is the question.
        assert_eq!(lines(&items[..2], &context, Some("Light")), [&expected[..5], &["user: Light"]].concat());
    }

    #[test]
    fn who_speaks_first_behind_a_summary_is_the_user() {
        let preface = vec![Message::new(MessageRole::Tool, "Summary.")];
        let context = Context { preface, ..Context::default() };
        let items = [said(Role::Assistant, "Hello.")];
        let expected = ["system: Be brief.", "tool: Summary.", "user: (You speak first.)", "assistant: Hello."];
        assert_eq!(lines(&items, &context, None), expected);
        let items = [said(Role::User, "Hi")];
        assert_eq!(lines(&items, &context, None), ["system: Be brief.", "tool: Summary.", "user: Hi"]);
    }

    #[test]
    fn what_is_remembered_stands_behind_the_instructions() {
        let preface = vec![Message::new(MessageRole::Tool, "Summary.")];
        let context = Context { preface, ..Context::default() };
        let wording = wording();
        let layout = Layout {
            persona: "",
            instructions: "Be brief.",
            remembered: "Ann likes tea.",
            context: &context,
            partial: None,
            wording: &wording,
        };
        let items = [said(Role::Assistant, "Hello."), said(Role::User, "Hi")];
        let LaidOut { messages, message_of_item, .. } = lay_out(&items, &layout);
        let lines: Vec<String> = messages.iter().map(line).collect();
        let expected = [
            "system: Be brief.",
            "user: [note] Ann likes tea.",
            "tool: Summary.",
            "user: (You speak first.)",
            "assistant: Hello.",
            "user: Hi",
        ];
        assert_eq!(lines, expected);
        assert_eq!(message_of_item, [Some(4), Some(5)]);
    }

    #[test]
    fn a_stale_result_leaves_its_call() {
        let items = [said(Role::User, "Light"), call("c1", "{}"), output("c1", "on"), said(Role::User, "Thanks")];
        let context = Context { trimmed: ["x".to_owned()].into(), ..Context::default() };
        let left_out = format!("tool: {}", LEFT_OUT);
        assert_eq!(lines(&items, &context, None)[3], left_out);
        assert_eq!(lines(&items, &Context::default(), None)[3], "tool: on");
    }

    #[test]
    fn a_system_message_may_be_what_the_user_typed() {
        let context = Context { notes: vec!["It is 10:05.".into()], ..Context::default() };
        let mut items = vec![
            said(Role::User, "Hi"),
            said(Role::Assistant, "Hello."),
            said(Role::System, "It rains."),
            said(Role::System, "Light on"),
        ];
        let mut expected = vec![
            "system: Be brief.",
            "user: Hi",
            "assistant: Hello.",
            "user: [note] It rains.",
            "user: [note] It is 10:05.",
            "user: Light on",
        ];
        assert_eq!(lines(&items, &context, None), expected);
        // It stays there when the answer has come.
        items.push(said(Role::Assistant, "It is on."));
        expected.push("assistant: It is on.");
        assert_eq!(lines(&items, &context, None), expected);
        // With a question behind it, or after a call, it is a note.
        let items = [said(Role::Assistant, "Hello."), said(Role::System, "It rains."), said(Role::User, "Hi")];
        assert_eq!(lines(&items, &Context::default(), None)[3], "user: [note] It rains.");
        let items = [said(Role::User, "Hi"), call("c1", ""), said(Role::System, "Still working")];
        assert_eq!(lines(&items, &Context::default(), None)[3], "user: [note] Still working");
    }

    #[test]
    fn calls_belong_to_what_was_said_with_them() {
        let items = [
            said(Role::User, "Both lights"),
            said(Role::Assistant, "One moment."),
            call("c1", "{\"n\":1}"),
            call("c2", ""),
            output("c1", "ok"),
            output("c2", "ok"),
            call("c3", "not json"),
        ];
        let lines = lines(&items, &Context::default(), None);
        let expected = [
            "system: Be brief.",
            "user: Both lights",
            "assistant: One moment. light({\"n\":1}) light()",
            "tool: ok",
            "tool: ok",
            "assistant:  light(not json)",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn each_item_is_found_in_its_message() {
        let items = [
            said(Role::System, "The user is Ann."),
            said(Role::Assistant, "Hello."),
            said(Role::Assistant, ""),
            said(Role::User, "Light"),
            said(Role::Assistant, "One moment."),
            call("c1", "{}"),
            output("c1", "on"),
            said(Role::User, "Thanks"),
        ];
        let preface = vec![Message::new(MessageRole::Tool, "Summary.")];
        let context = Context { preface, notes: vec!["It is 10:05.".into()], ..Context::default() };
        let wording = wording();
        let layout = Layout {
            persona: "",
            instructions: "Be brief.",
            remembered: "",
            context: &context,
            partial: None,
            wording: &wording,
        };
        let LaidOut { messages, message_of_item, .. } = lay_out(&items, &layout);
        // system, preface, opening, hello, light, moment and call, on, note, thanks
        let expected = [Some(0), Some(3), None, Some(4), Some(5), Some(5), Some(6), Some(8)];
        assert_eq!((messages.len(), &message_of_item[..]), (9, &expected[..]));
    }

    #[test]
    fn a_reply_of_which_nothing_was_heard_was_not_said() {
        let items = [said(Role::User, "Hi"), said(Role::Assistant, ""), said(Role::User, "Stop")];
        assert_eq!(lines(&items, &Context::default(), None), ["system: Be brief.", "user: Hi", "user: Stop"]);
    }

    fn settled(messages: &[(MessageRole, &str)]) -> Vec<String> {
        let mut messages: Vec<Message> = messages.iter().map(|(role, text)| Message::new(*role, *text)).collect();
        settle(&mut messages, &wording());
        messages.iter().map(line).collect()
    }

    #[test]
    fn system_messages_of_a_client_find_a_place() {
        use MessageRole::{Assistant, System, User};
        let expected = ["system: Be brief.\n\nBe kind.", "user: Hi", "user: [note] It is 10:05.", "user: Well?"];
        let head = [(System, "Be brief."), (System, "Be kind. ")];
        let rest = [(User, "Hi"), (System, "It is 10:05."), (User, "Well?")];
        assert_eq!(settled(&[&head[..], &rest[..]].concat()), expected);
        assert_eq!(settled(&[(System, "Greet.")]), ["system: Greet.", "user: (You speak first.)"]);
        let expected = ["user: (You speak first.)", "assistant: Hello.", "user: Hi"];
        assert_eq!(settled(&[(Assistant, "Hello."), (User, "Hi")]), expected);
        assert_eq!(settled(&[(System, "Be brief."), (User, "Hi")]), ["system: Be brief.", "user: Hi"]);
    }
}
