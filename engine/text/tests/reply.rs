//! Replies to pieces: examples, any cut of any text, and back from the template's text.

use chat::{Message, MessageRole, Prompt, Tool, ToolCall};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use text::{ReplyParser, ReplyPart, Template, TemplateInput, ToolSchema};

fn tools() -> Vec<ToolSchema> {
    let tools = [
        (
            "set_light",
            r#"{"type": "object", "properties": {
            "room": {"type": "string"}, "percent": {"type": "integer"}, "on": {"type": "boolean"}}}"#,
        ),
        (
            "timer",
            r#"{"type": "object", "properties": {
            "minutes": {"type": "number"}, "labels": {"type": "array"}, "more": {"type": "object"}, "none": {"type": "null"},
            "any": {"type": ["null", "boolean", "integer", "number", "array", "object"]}}}"#,
        ),
    ];
    let tool = |(name, parameters): (&str, &str)| {
        ToolSchema::of(&Tool { name: name.into(), parameters: Some(parameters.into()), ..Tool::default() })
    };
    tools.map(tool).into()
}

fn joined(pieces: Vec<ReplyPart>) -> Vec<ReplyPart> {
    let mut out: Vec<ReplyPart> = Vec::new();
    for piece in pieces {
        match (out.last_mut(), piece) {
            (Some(ReplyPart::Reasoning(text)), ReplyPart::Reasoning(more))
            | (Some(ReplyPart::Content(text)), ReplyPart::Content(more)) => {
                text.push_str(&more);
            }
            (Some(ReplyPart::Arguments { json, index }), ReplyPart::Arguments { json: more, index: same })
                if *index == same =>
            {
                json.push_str(&more);
            }
            (_, piece) => out.push(piece),
        }
    }
    out
}

fn parse(in_reasoning: bool, texts: &[&str]) -> Vec<ReplyPart> {
    let mut reply = ReplyParser::new(in_reasoning, &tools());
    let mut pieces = Vec::new();
    for text in texts {
        reply.push(text, &mut pieces);
    }
    reply.finish(&mut pieces);
    joined(pieces)
}

fn reasoning(text: &str) -> ReplyPart {
    ReplyPart::Reasoning(text.to_string())
}

fn content(text: &str) -> ReplyPart {
    ReplyPart::Content(text.to_string())
}

fn call(index: usize, name: &str, json: &str) -> [ReplyPart; 2] {
    [ReplyPart::Call { index, name: name.to_string() }, ReplyPart::Arguments { index, json: json.to_string() }]
}

const KITCHEN: &str = "<tool_call>\n<function=set_light>\n<parameter=room>\nkitchen\n</parameter>\n<parameter=percent>\n30\n</parameter>\n</function>\n</tool_call>";
const KITCHEN_JSON: &str = r#"{"room":"kitchen","percent":30}"#;

#[test]
fn a_reply_falls_into_its_parts() {
    let text = format!(
        "They want light.\n</think>\n\nRight away.\n\n{KITCHEN}\n<tool_call>\n<function=timer>\n</function>\n</tool_call>\n"
    );
    let expected = [
        vec![reasoning("They want light."), content("Right away.")],
        call(0, "set_light", KITCHEN_JSON).to_vec(),
        call(1, "timer", "{}").to_vec(),
    ];
    assert_eq!(parse(true, &[&text]), expected.concat());
    assert_eq!(parse(false, &["<think>\n", &text]), expected.concat(), "the model opens its thinking itself");
    assert_eq!(parse(false, &["Hello", " there"]), [content("Hello there")]);
    assert_eq!(parse(false, &["\n\nHello\n"]), [content("Hello")]);
    assert_eq!(parse(true, &["only thought\n"]), [reasoning("only thought")]);
    assert_eq!(parse(true, &["\n</think>\n\n"]), []);
    assert_eq!(parse(true, &[""]), []);
    assert_eq!(parse(false, &["a <think> b </think> c"]), [content("a <think> b </think> c")]);
}

#[test]
fn text_is_passed_on_at_once_and_a_call_when_it_is_complete() {
    let mut reply = ReplyParser::new(true, &tools());
    let mut step = |text: &str| {
        let mut pieces = Vec::new();
        reply.push(text, &mut pieces);
        pieces
    };
    assert_eq!(step("Hm, "), [reasoning("Hm,")]);
    assert_eq!(step("so <"), [reasoning(" so")]);
    assert_eq!(step("3 </thi"), [reasoning(" <3")]);
    assert_eq!(step("nk>\n"), []);
    assert_eq!(step("\nYes"), [content("Yes")]);
    assert_eq!(step(" and\n"), [content(" and")]);
    assert_eq!(step("\n<tool"), []);
    assert_eq!(step(&KITCHEN["<tool".len()..KITCHEN.len() - 1]), []);
    let pieces = step(">");
    assert_eq!(pieces[0], ReplyPart::Call { index: 0, name: "set_light".to_string() });
    assert_eq!(pieces.len(), 3, "a piece for each argument");
}

#[test]
fn what_is_no_call_comes_back_as_text() {
    for broken in [
        "<tool_call>\n<function=set_light>\n<parameter=room>\nkitchen",
        "<tool_call>\n<function=set_light>\n</tool_call>",
        "<tool_call>{\"name\": \"set_light\"}</tool_call>",
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>\n<function=set_light>\n<parameter=room>\nkitchen\n</function>\n</tool_call>",
        "<tool_call>\n<function=a>\n<function=b>\n</function>\n</function>\n</tool_call>",
        "</tool_call>",
        "<tool_cal",
    ] {
        let text = format!("Well.\n\n{broken}");
        assert_eq!(parse(false, &[&text]), [content(&text)], "{broken}");
        let followed = format!("{broken} and on");
        assert_eq!(parse(false, &[&followed]), [content(&followed)], "{broken}");
        assert_eq!(parse(true, &["x</think>", broken]), [reasoning("x"), content(broken)], "{broken}");
        // Inside the reasoning it stays reasoning.
        assert_eq!(parse(true, &[broken, "</think>y"]), [reasoning(broken), content("y")], "{broken}");
    }
    // A tag that is only mentioned does not swallow the call behind it.
    let text = format!("I use <tool_call> so:\n{KITCHEN}");
    let expected = [vec![content("I use <tool_call> so:")], call(0, "set_light", KITCHEN_JSON).to_vec()];
    assert_eq!(parse(false, &[&text]), expected.concat());
    let text = format!("<tool_call>oops</tool_call>\n{KITCHEN}");
    let expected = [vec![content("<tool_call>oops</tool_call>")], call(0, "set_light", KITCHEN_JSON).to_vec()];
    assert_eq!(parse(false, &[&text]), expected.concat());
}

#[test]
fn a_call_within_the_thinking_is_a_call() {
    let text = format!("I need light. {KITCHEN}");
    let expected = [vec![reasoning("I need light.")], call(0, "set_light", KITCHEN_JSON).to_vec()];
    assert_eq!(parse(true, &[&text]), expected.concat());
    let expected = [expected.concat(), vec![reasoning("\nmore"), content("Done.")]].concat();
    assert_eq!(parse(true, &[&text, "\nmore</think>\n\nDone."]), expected, "and what follows is still thought");
}

#[test]
fn content_after_a_call_does_not_stick_to_what_was_before() {
    let text = format!("Right.\n{KITCHEN}\n\n Done.");
    let expected = [vec![content("Right.")], call(0, "set_light", KITCHEN_JSON).to_vec(), vec![content("\n\nDone.")]];
    assert_eq!(parse(false, &[&text]), expected.concat());
    let text = format!("{KITCHEN}\n\n Done.");
    assert_eq!(parse(false, &[&text]), [call(0, "set_light", KITCHEN_JSON).to_vec(), vec![content("Done.")]].concat());
}

fn any_reply() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => "[ a-c\\n]{0,5}",
        1 => "\\PC{0,3}",
        4 => prop::sample::select(&["<think>", "</think>", "<tool_call>", "</tool_call>", "<function=timer>", "<function=x y>", "</function>", "<parameter=minutes>", "<parameter=é>", "</parameter>", "\n", "<", "</", "<tool_", "call>", "5.5"][..]).prop_map(str::to_string),
        2 => Just(KITCHEN.to_string()),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

fn cut<'t>(text: &'t str, cuts: &[usize]) -> Vec<&'t str> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut % (text.len() + 1))).collect();
    cuts.sort_unstable();
    cuts.push(text.len());
    let mut start = 0;
    cuts.into_iter().map(|end| &text[std::mem::replace(&mut start, end)..end]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_cut_gives_the_same_pieces(text in any_reply(), in_reasoning in any::<bool>(), cuts in prop::collection::vec(any::<usize>(), 0..8)) {
        let whole = parse(in_reasoning, &[&text]);
        prop_assert_eq!(&parse(in_reasoning, &cut(&text, &cuts)), &whole);
        let each: Vec<String> = text.chars().map(String::from).collect();
        let each: Vec<&str> = each.iter().map(String::as_str).collect();
        prop_assert_eq!(&parse(in_reasoning, &each), &whole);
    }

    #[test]
    fn arguments_are_always_one_json_object_and_edges_are_clean(text in any_reply(), in_reasoning in any::<bool>()) {
        let pieces = parse(in_reasoning, &[&text]);
        let mut calls = 0;
        for (at, piece) in pieces.iter().enumerate() {
            match piece {
                ReplyPart::Arguments { index, json } => {
                    prop_assert!(serde_json::from_str::<Value>(json).is_ok_and(|value| value.is_object()), "{}", json);
                    let its_call = matches!(&pieces[at - 1], ReplyPart::Call { index: same, .. } if same == index);
                    prop_assert!(its_call);
                }
                ReplyPart::Call { index, .. } => {
                    prop_assert_eq!(*index, calls);
                    calls += 1;
                }
                ReplyPart::Content(text) => {
                    prop_assert_eq!(text.trim_end(), text.as_str());
                    prop_assert!(!text.is_empty());
                }
                ReplyPart::Reasoning(text) => prop_assert!(!text.trim().is_empty()),
            }
        }
    }

    // Words are numbered, so that each can be looked for.
    #[test]
    fn no_word_is_lost(text in any_reply(), in_reasoning in any::<bool>()) {
        let mut count = 0;
        let numbered: String = text.replace(KITCHEN, "K").chars().map(|c| match c {
            'a' => { count += 1; format!("w{count}w") }
            'K' => KITCHEN.to_string(),
            other => other.to_string(),
        }).collect();
        let said = format!("{:?}", parse(in_reasoning, &[&numbered]));
        for word in 1..=count {
            let word = format!("w{word}w");
            // `</parameter>` and its like hold no word: every other word must be somewhere.
            prop_assert!(said.contains(&word), "{} is not in {}", word, said);
        }
    }
}

/// Generates arguments of `timer`, each of the type in its schema.
fn any_arguments() -> impl Strategy<Value = Map<String, Value>> {
    let number = prop_oneof![
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has no such number", |n| n.is_finite() && n.fract() != 0.0)
            .prop_map(Value::from),
    ];
    let string = prop_oneof!["\\PC{0,6}", "[\\n\\t \"'\\\\<>é]{0,5}"].prop_map(Value::from);
    let list = prop::collection::vec(prop_oneof![number.clone(), string.clone(), Just(Value::Null)], 0..3);
    let object = prop::collection::vec(("\\PC{0,3}", number.clone()), 0..3)
        .prop_map(|pairs| pairs.into_iter().collect::<Map<_, _>>());
    let argument = prop_oneof![
        number.prop_map(|value| ("minutes", value)),
        list.prop_map(|value| ("labels", Value::from(value))),
        object.prop_map(|value| ("more", Value::from(value))),
        Just(("none", Value::Null)),
        any::<bool>().prop_map(|value| ("any", Value::from(value))),
        string.prop_map(|value| ("unknown to the schema", value)),
    ];
    prop::collection::vec(argument, 0..5)
        .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

proptest! {
    #[test]
    fn what_the_template_writes_is_read_back(
        thought in "([a-z][ a-z\\n]{0,8}[a-z])?",
        said in "([a-z][ a-z\\n<>é]{0,8}[a-z])?",
        calls in prop::collection::vec(any_arguments(), 0..3),
    ) {
        static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::family().unwrap());
        let made = |arguments: &Map<String, Value>| ToolCall { id: None, name: "timer".into(), arguments: json!(arguments).to_string() };
        let reply = Message {
            reasoning: Some(thought.clone()),
            calls: calls.iter().map(made).collect(),
            ..Message::new(MessageRole::Assistant, &said)
        };
        let prompt = Prompt { messages: vec![Message::new(MessageRole::User, "?"), reply], ..Prompt::default() };
        let input = TemplateInput { opens_reply: false, ..TemplateInput::of(&prompt) };
        let rendered = TEMPLATE.render(&input).unwrap().text;
        let start = "<|im_start|>assistant\n<think>\n";
        let reply = &rendered[rendered.find(start).unwrap() + start.len()..rendered.rfind("<|im_end|>").unwrap()];

        let mut expected = Vec::new();
        if !thought.is_empty() {
            expected.push(reasoning(&thought));
        }
        if !said.is_empty() {
            expected.push(content(&said));
        }
        for (index, arguments) in calls.iter().enumerate() {
            expected.extend(call(index, "timer", &Value::from(arguments.clone()).to_string()));
        }
        prop_assert_eq!(parse(true, &[reply]), expected);
    }
}
