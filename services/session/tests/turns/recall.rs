//! The model searches what is no longer in its prompt, and the reply goes on.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

fn with_recall() -> Stage {
    stage_from(Start { context: Context { recall: true, ..Context::default() }, ..start() })
}

fn kind(item: &Item) -> &'static str {
    match &item.body {
        ItemBody::Message { .. } => "message",
        ItemBody::FunctionCall { .. } => "call",
        ItemBody::FunctionCallOutput { .. } => "output",
    }
}

fn search(s: &mut Stage, arguments: &str) {
    s.model(Delta::CallStarted { name: RECALL.into(), call_id: None });
    s.model(Delta::CallArguments { json: arguments.to_owned(), tokens: 3 });
    s.done();
}

fn answer(s: &mut Stage, query: &str, text: &str) {
    let (generation, arguments) = s.recalls.last().expect("a search");
    assert!(arguments[0].contains(query), "{arguments:?}");
    let results = vec![RecallResult { query: query.into(), text: text.into(), places: 1, sources: Vec::new() }];
    s.feed(MachineInput::Recalled { generation: *generation, results });
}

#[test]
fn what_was_found_goes_into_the_same_reply() {
    let mut s = with_recall();
    s.ask("What was the code?");
    search(&mut s, r#"{"query":"code"}"#);
    assert_eq!(s.recalls.last().unwrap().1, [r#"{"query":"code"}"#]);
    assert!(s.heard(1).is_empty(), "no client hears of the call");
    answer(&mut s, "code", "- user: the code is 4711");
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.purpose, asked.items.len()), (GenerationPurpose::Reply, 3));
    assert!(matches!(&asked.items[2].body, ItemBody::FunctionCallOutput { output, .. } if output.contains("4711")));
    s.content("It is 4711.");
    s.done();
    let heard = s.heard(1);
    assert_eq!(heard[0], "recalled \"code\" in 1");
    assert!(heard.iter().any(|line| line == "done R1 completed [I2 assistant \"It is 4711.\"]"), "{heard:?}");
    assert!(heard.iter().all(|line| !line.contains("call ") && !line.contains("output")), "{heard:?}");
    // The words stand behind what was found, in memory as in the store.
    let kinds: Vec<&str> = s.store.items.iter().map(kind).collect();
    assert_eq!(kinds, ["message", "call", "output", "message"]);
    s.check_agreement();
    s.check_no_open_response();
}

#[test]
fn words_before_a_search_and_behind_it_are_two_items() {
    let mut s = with_recall();
    s.ask("What was the code?");
    s.content("Let me think. ");
    search(&mut s, r#"{"query":"code"}"#);
    answer(&mut s, "code", "- user: the code is 4711");
    s.content("It is 4711.");
    s.done();
    let heard = s.heard(1);
    let done = "done R1 completed [I2 assistant \"Let me think. \", I3 assistant \"It is 4711.\"]";
    assert!(heard.iter().any(|line| line == done), "{heard:?}");
    s.check_agreement();
    // A client that comes later hears of neither the call nor its result.
    let (items, context) = (s.store.items.clone(), Context { recall: true, ..Context::default() });
    let mut later = Stage::new(Start { items, context, ..start() });
    later.attach(1, Replay::All);
    assert_eq!(later.heard(1).len(), 1 + 3);
}

#[test]
fn searches_have_a_limit_and_an_interruption_ends_them() {
    let mut s = with_recall();
    s.ask("What was the code?");
    search(&mut s, r#"{"query":"code"}"#);
    answer(&mut s, "code", "nothing");
    let asked = s.generations.last().unwrap();
    assert_eq!(asked.config.tool_choice, ToolChoice::None, "it was the last one");
    s.done();
    // What comes after a cancel belongs to no response.
    let mut s = with_recall();
    s.ask("What was the code?");
    search(&mut s, r#"{"query":"code"}"#);
    s.client(1, cancel());
    let before = s.generations.len();
    answer(&mut s, "code", "- user: the code is 4711");
    assert_eq!(s.generations.len(), before);
    s.check_no_open_response();
    s.check_agreement();
}

#[test]
fn behind_the_last_search_a_client_s_tool_may_still_be_called() {
    let light = Tool { name: "light".into(), description: None, parameters: None, verbatim: None };
    let config = SessionConfig { tools: vec![light], ..SessionConfig::new("Be brief.") };
    let context = Context { recall: true, ..Context::default() };
    let after_the_last_search = || {
        let mut s = stage_from(Start { config: config.clone(), context: context.clone(), ..start() });
        s.ask("Turn on the lamp that I told you of.");
        search(&mut s, r#"{"query":"lamp"}"#);
        answer(&mut s, "lamp", "- user: it is the one in the hall");
        assert_eq!(s.generations.last().unwrap().config.tool_choice, ToolChoice::Auto);
        s
    };
    let mut s = after_the_last_search();
    s.model(Delta::CallStarted { name: "light".into(), call_id: None });
    s.done();
    assert_eq!(s.store.items.iter().map(kind).collect::<Vec<_>>(), ["message", "call", "output", "call"]);
    s.check_agreement();
    // A search more is refused, and then it is not asked again.
    let mut s = after_the_last_search();
    search(&mut s, r#"{"query":"hall"}"#);
    let (generation, arguments) = s.recalls.last().unwrap().clone();
    assert!(arguments.is_empty(), "nothing is looked up: {arguments:?}");
    s.feed(MachineInput::Recalled { generation, results: Vec::new() });
    let asked = s.generations.last().unwrap();
    assert_eq!((&asked.config.tool_choice, asked.items.len()), (&ToolChoice::None, 5));
    s.content("It is on.");
    s.done();
    assert!(s.heard(1).iter().all(|line| !line.contains("call ")), "no client hears of a search");
    s.check_no_open_response();
    s.check_agreement();
}

#[test]
fn without_the_tool_in_the_prompt_a_call_is_the_clients() {
    let mut s = stage();
    s.ask("What was the code?");
    search(&mut s, r#"{"query":"code"}"#);
    assert!(s.recalls.is_empty());
    assert!(s.store.items.iter().any(|item| item.status == ItemStatus::Completed && kind(item) == "call"));
}
