use super::*;
use session::{ItemStatus, ToolCall};
use settings::ToolOrder;

const LEFT_OUT: &str = "(left out)";

fn wording() -> Wording {
    Wording {
        note: Some(["[note] ".into(), "".into()]),
        opening: "(You speak first.)".into(),
        left_out: LEFT_OUT.into(),
        no_question: "".into(),
        tool_order: ToolOrder::Name,
    }
}

fn brief() -> SessionConfig {
    SessionConfig::new("Be brief.")
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
    let config = brief();
    let layout = Layout { partial, ..Layout::new(&config, context, &wording) };
    lay_out(items, &layout).prompt.messages.iter().map(line).collect()
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
    let config = brief();
    let layout = Layout { remembered: "Ann likes tea.", ..Layout::new(&config, &context, &wording) };
    let items = [said(Role::Assistant, "Hello."), said(Role::User, "Hi")];
    let LaidOut { prompt, marks, message_of_item } = lay_out(&items, &layout);
    let lines: Vec<String> = prompt.messages.iter().map(line).collect();
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
    assert_eq!(marks, StableMarks { head: 1, remembered: 2, context: 3, history: 5 });
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
    // With a question behind it, also one that is being said, or after a call, it is a note.
    assert_eq!(lines(&items[..4], &Context::default(), Some("Well"))[4], "user: [note] Light on");
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
fn results_stand_in_the_order_of_their_calls() {
    // Templates print no ids: the first result behind two calls is read as that of the first.
    let both = [said(Role::User, "Both"), call("c1", "1"), call("c2", "2"), output("c2", "two"), output("c1", "one")];
    let expected = ["system: Be brief.", "user: Both", "assistant:  light(1) light(2)", "tool: one", "tool: two"];
    assert_eq!(lines(&both, &Context::default(), None), expected);
    let (config, context, wording) = (brief(), Context::default(), wording());
    let laid_out = |items: &[Arc<Item>]| lay_out(items, &Layout::new(&config, &context, &wording));
    assert_eq!(laid_out(&both).message_of_item, [Some(1), Some(2), Some(2), Some(4), Some(3)]);
    // The first tool is still at work, and a result of an earlier call comes late.
    let early = [&both[..3], &[output("c0", "zero"), output("c2", "two"), said(Role::User, "Well?")]].concat();
    let behind = ["tool: (No result yet.)", "tool: two", "tool: zero", "user: Well?"];
    assert_eq!(lines(&early, &context, None)[3..], behind);
    let LaidOut { marks, message_of_item, .. } = laid_out(&early);
    assert_eq!((marks.history, &message_of_item[3..]), (6, &[Some(5), Some(4), Some(6)][..]));
    assert_eq!(lines(&both[..3], &context, None).len(), 3, "calls that wait need no word");
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
    let config = brief();
    let layout = Layout::new(&config, &context, &wording);
    let LaidOut { prompt, marks, message_of_item } = lay_out(&items, &layout);
    // system, preface, opening, hello, light, moment and call, on, note, thanks
    let expected = [Some(0), Some(3), None, Some(4), Some(5), Some(5), Some(6), Some(8)];
    assert_eq!((prompt.messages.len(), &message_of_item[..]), (9, &expected[..]));
    assert_eq!(marks, StableMarks { head: 1, remembered: 1, context: 2, history: 7 });
}

#[test]
fn a_reply_of_which_nothing_was_heard_was_not_said() {
    let items = [said(Role::User, "Hi"), said(Role::Assistant, ""), said(Role::User, "Stop")];
    assert_eq!(lines(&items, &Context::default(), None), ["system: Be brief.", "user: Hi", "user: Stop"]);
}

#[test]
fn a_summary_is_told_no_facts_of_one_speaker_among_several() {
    let of = |person: &str| {
        let speaker = Some(session::NamedSpeaker { name: person.to_uppercase(), person: Some(person.to_owned()) });
        let body = ItemBody::Message { role: Role::User, parts: vec!["Hi".into()], speaker };
        Arc::new(Item::new("x", body, ItemStatus::Completed))
    };
    let (config, context, wording) = (brief(), Context::default(), wording());
    for speakers in [ShownSpeakers::Off, ShownSpeakers::Prefix, ShownSpeakers::Name] {
        let told = |items: &[Arc<Item>]| {
            let audience = Audience::Everyone;
            let (remembered, person) = ("Anna likes tea.", Some("anna"));
            let layout = Layout { remembered, person, audience, speakers, ..Layout::new(&config, &context, &wording) };
            lay_out(items, &layout).marks.remembered == 2
        };
        assert!(told(&[of("anna")]) && !told(&[of("ben"), of("anna")]), "{speakers:?}");
    }
}
