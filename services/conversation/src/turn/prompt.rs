//! From items to the chat messages that a template renders.
//!
//! What stays the same from turn to turn comes first, so that the cache holds it: instructions, the summary, the
//! history. What changes from turn to turn (the time, the room) stands behind the history, right before what the user
//! asks now.

use super::input::Context;
use crate::realtime::{Item, ItemBody, ItemStatus, Role};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What a prompt is made of besides the items.
#[derive(Clone, Copy, Debug)]
pub struct Prompt<'a> {
    pub instructions: &'a str,
    pub context: &'a Context,
    /// What the user has said so far and may go on saying: the last message.
    pub partial: Option<&'a str>,
    pub wording: &'a Wording,
}

/// How things are put that chat templates have no role for; the words come from the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    pub system_notes: SystemNotes,
    /// Stands for the user where the assistant speaks first: templates want a question.
    pub opening: String,
}

/// How a system message is put that does not stand at the head. Many templates allow none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemNotes {
    AsSystem,
    /// As a message of the user between these words, so that the model can tell it from speech.
    AsUser {
        before: String,
        after: String,
    },
}

/// The messages, in the shape of chat completions, but for a call's arguments: they are the object, not its text.
pub fn messages(items: &[Arc<Item>], prompt: &Prompt) -> Vec<Value> {
    lay_out(items, prompt).messages
}

/// Messages, and which items are told by which.
#[derive(Clone, Debug, PartialEq)]
pub struct LaidOut {
    pub messages: Vec<Value>,
    /// Of each item. None: nothing of it is said.
    pub message_of_item: Vec<Option<usize>>,
}

/// Items at the head that are instructions: no summary tells them.
pub fn leading(items: &[Arc<Item>]) -> usize {
    items.iter().take_while(|item| role(item) == Some(Role::System)).count()
}

pub fn lay_out(items: &[Arc<Item>], prompt: &Prompt) -> LaidOut {
    let leading = leading(items);
    let mut head = vec![prompt.instructions.trim().to_owned()];
    head.extend(items[..leading].iter().map(|item| words(item)));
    head.retain(|text| !text.is_empty());

    let mut messages = Vec::new();
    if !head.is_empty() {
        messages.push(message("system", head.join("\n\n")));
    }
    let mut message_of_item = vec![Some(0).filter(|_| !head.is_empty()); leading];
    messages.extend(prompt.context.preface.iter().cloned());
    let mut question = None;
    for (index, item) in items.iter().enumerate().skip(leading) {
        if is_typed(items, index) {
            messages.push(message("user", words(item)));
        } else if let ItemBody::FunctionCallOutput { call_id, .. } = &item.body
            && prompt.context.trimmed.contains(&item.id)
        {
            messages.push(tool_result(call_id, compaction::LEFT_OUT));
        } else if !push_item(&mut messages, item, prompt.wording) {
            message_of_item.push(None);
            continue;
        }
        message_of_item.push(Some(messages.len() - 1));
        if matches!(role(item), Some(Role::User | Role::System)) {
            question = Some(messages.len() - 1);
        }
    }
    if let Some(partial) = prompt.partial {
        question = Some(messages.len());
        messages.push(message("user", partial.to_owned()));
    }
    let mut insert = |at: usize, message: Value, messages: &mut Vec<Value>| {
        messages.insert(at, message);
        message_of_item.iter_mut().flatten().filter(|index| **index >= at).for_each(|index| *index += 1);
    };
    let mut notes = prompt.context.notes.iter().map(|note| note.trim()).filter(|note| !note.is_empty()).peekable();
    if notes.peek().is_some() {
        let at = question.unwrap_or(messages.len());
        insert(at, note(notes.collect::<Vec<_>>().join("\n"), prompt.wording), &mut messages);
    }
    // The first that is said must be the user's.
    let first = messages.iter().take_while(|message| message["role"] == "system").count();
    let first = first + prompt.context.preface.len();
    if messages.get(first).is_none_or(|message| message["role"] != "user") {
        insert(first, message("user", prompt.wording.opening.clone()), &mut messages);
    }
    LaidOut { messages, message_of_item }
}

/// Some clients put what the user typed into a system message: it comes right after an answer, and no message of the
/// user follows it.
fn is_typed(items: &[Arc<Item>], index: usize) -> bool {
    let is_system = |item: &Arc<Item>| role(item) == Some(Role::System);
    let followed = items.get(index + 1).and_then(|item| role(item));
    is_system(&items[index])
        && !matches!(followed, Some(Role::User | Role::System))
        && items[..index].iter().rev().find(|item| !is_system(item)).and_then(|item| role(item))
            == Some(Role::Assistant)
}

/// Whether there is something to say.
fn push_item(messages: &mut Vec<Value>, item: &Item, wording: &Wording) -> bool {
    match &item.body {
        ItemBody::Message { role: Role::System, .. } => messages.push(note(words(item), wording)),
        ItemBody::Message { role: Role::User, .. } => messages.push(message("user", words(item))),
        ItemBody::Message { role: Role::Assistant, .. } => {
            let text = words(item);
            // Nothing of it was heard: it was not said.
            if text.is_empty() {
                return false;
            }
            messages.push(message("assistant", text));
        }
        // No client was told to make it.
        ItemBody::FunctionCall { .. } if item.status == ItemStatus::Incomplete => return false,
        ItemBody::FunctionCall { call_id, name, arguments } => push_call(messages, call_id, name, arguments),
        ItemBody::FunctionCallOutput { call_id, output } => {
            messages.push(tool_result(call_id, output));
        }
    }
    true
}

fn tool_result(call_id: &str, content: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": call_id, "content": content })
}

/// A call belongs to what the assistant said before it, if that came right before.
fn push_call(messages: &mut Vec<Value>, call_id: &str, name: &str, arguments: &str) {
    let arguments = match serde_json::from_str::<Map<String, Value>>(arguments) {
        Ok(arguments) => Value::Object(arguments),
        Err(_) if arguments.trim().is_empty() => json!({}),
        Err(_) => json!({ "arguments": arguments }),
    };
    let call = json!({ "id": call_id, "type": "function", "function": { "name": name, "arguments": arguments } });
    match messages.last_mut() {
        Some(last) if last["role"] == "assistant" => match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = json!([call]),
        },
        _ => messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] })),
    }
}

fn note(text: String, wording: &Wording) -> Value {
    match &wording.system_notes {
        SystemNotes::AsSystem => message("system", text),
        SystemNotes::AsUser { before, after } => message("user", format!("{before}{text}{after}")),
    }
}

fn message(role: &str, content: String) -> Value {
    json!({ "role": role, "content": content })
}

fn role(item: &Item) -> Option<Role> {
    match &item.body {
        ItemBody::Message { role, .. } => Some(*role),
        ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => None,
    }
}

/// The parts of a message, one a line.
fn words(item: &Item) -> String {
    match &item.body {
        ItemBody::Message { content, .. } => {
            content.iter().map(|part| part.text.trim()).filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
        }
        ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wording() -> Wording {
        let system_notes = SystemNotes::AsUser { before: "[note] ".into(), after: "".into() };
        Wording { system_notes, opening: "(You speak first.)".into() }
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

    /// One line a message.
    fn lines(items: &[Arc<Item>], context: &Context, partial: Option<&str>) -> Vec<String> {
        let wording = wording();
        let prompt = Prompt { instructions: "Be brief.", context, partial, wording: &wording };
        let line = |message: &Value| {
            let calls = message.get("tool_calls").map(|calls| format!(" {calls}")).unwrap_or_default();
            format!("{}: {}{calls}", message["role"].as_str().unwrap(), message["content"].as_str().unwrap())
        };
        messages(items, &prompt).iter().map(line).collect()
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
            preface: vec![json!({"role": "tool", "content": "Summary: they met."})],
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
        expected.push(
            "assistant:  [{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"light\",\"arguments\":{\"on\":true}}}]",
        );
        expected.push("tool: done");
        assert_eq!(lines(&items, &context, None), expected);
        // While the user still speaks, the question is what they say.
        assert_eq!(lines(&items[..2], &context, Some("Light")), [&expected[..5], &["user: Light"]].concat());
    }

    #[test]
    fn who_speaks_first_behind_a_summary_is_the_user() {
        let preface = vec![json!({"role": "tool", "content": "Summary."})];
        let context = Context { preface, ..Context::default() };
        let items = [said(Role::Assistant, "Hello.")];
        let expected = ["system: Be brief.", "tool: Summary.", "user: (You speak first.)", "assistant: Hello."];
        assert_eq!(lines(&items, &context, None), expected);
        let items = [said(Role::User, "Hi")];
        assert_eq!(lines(&items, &context, None), ["system: Be brief.", "tool: Summary.", "user: Hi"]);
    }

    #[test]
    fn a_stale_result_leaves_its_call() {
        let items = [said(Role::User, "Light"), call("c1", "{}"), output("c1", "on"), said(Role::User, "Thanks")];
        let context = Context { trimmed: ["x".to_owned()].into(), ..Context::default() };
        let left_out = format!("tool: {}", compaction::LEFT_OUT);
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
        // It stays that when the answer has come.
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
        insta::assert_snapshot!(lines.join("\n"), @r#"
        system: Be brief.
        user: Both lights
        assistant: One moment. [{"id":"c1","type":"function","function":{"name":"light","arguments":{"n":1}}},{"id":"c2","type":"function","function":{"name":"light","arguments":{}}}]
        tool: ok
        tool: ok
        assistant:  [{"id":"c3","type":"function","function":{"name":"light","arguments":{"arguments":"not json"}}}]
        "#);
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
        let preface = vec![json!({"role": "tool", "content": "Summary."})];
        let context = Context { preface, notes: vec!["It is 10:05.".into()], ..Context::default() };
        let wording = wording();
        let prompt = Prompt { instructions: "Be brief.", context: &context, partial: None, wording: &wording };
        let LaidOut { messages, message_of_item } = lay_out(&items, &prompt);
        // system, preface, opening, hello, light, moment and call, on, note, thanks
        let expected = [Some(0), Some(3), None, Some(4), Some(5), Some(5), Some(6), Some(8)];
        assert_eq!((messages.len(), &message_of_item[..]), (9, &expected[..]));
    }

    #[test]
    fn a_reply_of_which_nothing_was_heard_was_not_said() {
        let items = [said(Role::User, "Hi"), said(Role::Assistant, ""), said(Role::User, "Stop")];
        assert_eq!(lines(&items, &Context::default(), None), ["system: Be brief.", "user: Hi", "user: Stop"]);
    }
}
