//! The model searches what is no longer in its prompt, and the reply goes on.

use super::stage::*;
use serde_json::json;
use session::machine::*;
use session::*;

fn with_recall(extensions: bool) -> Stage {
    let context = Context { recall: true, ..Context::default() };
    let mut stage = Stage::new(Start { context, ..start() });
    stage.attach(1, extensions, Replay::All);
    stage.heard(1);
    stage
}

fn kind(item: &Item) -> &'static str {
    match &item.body {
        ItemBody::Message { .. } => "message",
        ItemBody::FunctionCall { .. } => "function_call",
        ItemBody::FunctionCallOutput { .. } => "function_call_output",
    }
}

fn search(s: &mut Stage, query: &str) {
    s.backend(Delta::CallStarted { name: RECALL.into(), call_id: None });
    s.backend(Delta::CallArguments { json: json!({ "query": query }).to_string(), tokens: 3 });
    s.done();
}

fn answer(s: &mut Stage, text: &str) {
    let (generation, arguments) = s.recalls.last().expect("a search").clone();
    let arguments: serde_json::Value = serde_json::from_str(&arguments[0]).unwrap();
    let query = arguments["query"].as_str().unwrap().to_owned();
    let results = vec![RecallResult { query, text: text.into(), places: 1, sources: Vec::new() }];
    s.input(Happening::Recalled { generation, results });
}

#[test]
fn what_was_found_goes_into_the_same_reply() {
    let mut s = with_recall(true);
    s.ask("What was the code?");
    search(&mut s, "code");
    assert_eq!(s.recalls.last().unwrap().1, [r#"{"query":"code"}"#]);
    assert!(s.heard(1).is_empty(), "no client hears of the call");
    answer(&mut s, "- user: the code is 4711");
    let asked = s.generations.last().unwrap();
    assert_eq!((asked.purpose.clone(), asked.items.len()), (GenerationPurpose::Reply, 3));
    assert!(matches!(&asked.items[2].body, ItemBody::FunctionCallOutput { output, .. } if output.contains("4711")));
    s.content("It is 4711.");
    s.done();
    let heard = s.heard(1);
    assert_eq!(heard[0], "response.recall.done");
    assert!(heard.iter().any(|line| line == "response.done R1 completed [I2 assistant \"It is 4711.\"]"), "{heard:?}");
    assert!(heard.iter().all(|line| !line.contains("function_call")), "{heard:?}");
    // The words stand behind what was found, in memory as in the store.
    let kinds: Vec<&str> = s.store.items.iter().map(kind).collect();
    assert_eq!(kinds, ["message", "function_call", "function_call_output", "message"]);
    s.check_agreement();
    s.check_no_open_response();
}

#[test]
fn a_stock_client_hears_a_reply_like_any_other() {
    let mut s = with_recall(false);
    s.ask("What was the code?");
    s.content("Let me think. ");
    search(&mut s, "code");
    answer(&mut s, "- user: the code is 4711");
    s.content("It is 4711.");
    s.done();
    let heard = s.heard(1);
    assert!(heard.iter().any(|line| line.starts_with("response.done R1 completed [I2")), "{heard:?}");
    assert!(heard.iter().all(|line| !line.contains("recall") && !line.contains("function_call")), "{heard:?}");
    s.check_agreement();
    // Nor does one that comes later.
    let (items, context) = (s.store.items.clone(), Context { recall: true, ..Context::default() });
    let mut later = Stage::new(Start { items, context, ..start() });
    later.attach(1, false, Replay::All);
    assert_eq!(later.heard(1).len(), 1 + 3);
}

#[test]
fn searches_have_a_limit_and_an_interruption_ends_them() {
    let mut s = with_recall(true);
    s.ask("What was the code?");
    search(&mut s, "code");
    answer(&mut s, "nothing");
    let asked = s.generations.last().unwrap();
    assert_eq!(asked.config.tool_choice, ToolChoice::None, "it was the last one");
    s.done();
    // What comes after a cancel belongs to no response.
    let mut s = with_recall(true);
    s.ask("What was the code?");
    search(&mut s, "code");
    s.client(1, json!({"type": "response.cancel"}));
    let before = s.generations.len();
    answer(&mut s, "- user: the code is 4711");
    assert_eq!(s.generations.len(), before);
    s.check_no_open_response();
    s.check_agreement();
}

#[test]
fn without_the_tool_in_the_prompt_a_call_is_the_clients() {
    let mut s = extended_stage();
    s.ask("What was the code?");
    search(&mut s, "code");
    assert!(s.recalls.is_empty());
    assert!(s.store.items.iter().any(|item| item.status == ItemStatus::Completed && kind(item) == "function_call"));
}
