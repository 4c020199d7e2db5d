//! Frames that only a connection gets which opted in, and answers that the door gives by itself.

use super::stage::*;
use serde_json::json;
use session::machine::{MachineInput, RECALL};
use session::{Compaction, CompactionStage, Delta, Event, LearnedFact, TokenLogprob};

fn two_connections() -> Stage {
    let mut s = Stage::with_client(false);
    s.attach(2, true);
    s.frames(2);
    s
}

fn respond() -> serde_json::Value {
    json!({"type": "response.create"})
}

#[test]
fn log_probabilities_are_an_extension() {
    let mut s = two_connections();
    s.client(1, respond());
    let logprobs = vec![TokenLogprob { bytes: b"Yes.".to_vec(), logprob: -0.5, top: Vec::new() }];
    s.model(Delta::Text { text: "Yes.".into(), tokens: 1, sentences: Vec::new(), logprobs });
    let told = |types: Vec<String>| {
        types.into_iter().filter(|kind| kind.starts_with("response.output_text.")).collect::<Vec<_>>()
    };
    assert_eq!(told(s.types(1)), ["response.output_text.delta"]);
    assert_eq!(told(s.types(2)), ["response.output_text.logprobs", "response.output_text.delta"]);
}

#[test]
fn notices_are_extensions() {
    let mut s = two_connections();
    let compaction = |stage| Event::Compaction(Compaction { stage, version: 1, tokens_before: 9 });
    let events = [
        Event::ContextUpdated { tokens: 5, margin_tokens: 0, ctx_size: 10, fill: 0.5, arm: Some("a".into()) },
        compaction(CompactionStage::Started),
        compaction(CompactionStage::Completed { tokens_after: 3, started_version: 1 }),
        compaction(CompactionStage::Dropped { tokens_after: 3 }),
        compaction(CompactionStage::Failed { message: "m".into() }),
        Event::PinRefused { item_id: "i".into(), text: "Call me Ann.".into(), limit_tokens: 4 },
        Event::FactLearned {
            fact: LearnedFact { id: "f".into(), person: String::new(), text: "I like tea.".into(), asked: false },
            replaces: Vec::new(),
        },
        Event::FactUnsure { fact_id: Some("f".into()), near: vec!["e".into()] },
    ];
    events.into_iter().for_each(|event| s.feed(MachineInput::Tell(event)));
    let kinds = ["context.updated", "compaction.started", "compaction.completed", "compaction.dropped"];
    assert_eq!(
        s.types(2),
        [&kinds[..], &["compaction.failed", "pin.refused", "memory.learned", "memory.unsure"]].concat()
    );
    assert!(s.types(1).is_empty());
}

#[test]
fn a_stock_client_hears_a_reply_that_thought_and_searched_like_any_other() {
    let mut s = two_connections();
    s.client(1, respond());
    s.model(Delta::Reasoning { text: "Hm.".into(), tokens: 1 });
    s.client(2, json!({"type": "response.stop_thinking"}));
    s.content("Let me think. ");
    s.model(Delta::CallStarted { name: RECALL.into(), call_id: None });
    s.model(Delta::CallArguments { json: r#"{"query":"code"}"#.into(), tokens: 3 });
    s.done();
    s.found("code", "- user: the code is 4711");
    s.content("It is 4711.");
    s.done();
    let (stock, extended) = (s.types(1), s.types(2));
    for kind in ["response.thinking_stopped", "response.recall.done", "response.sentence.done"] {
        assert!(extended.iter().any(|told| told == kind), "{kind} in {extended:?}");
        assert!(stock.iter().all(|told| told != kind), "{kind} in {stock:?}");
    }
    assert!(stock.iter().chain(&extended).all(|told| !told.contains("function_call")), "{stock:?}");
    assert_eq!(s.last(1)["response"]["status"], "completed");
}

#[test]
fn a_session_is_told_with_the_extensions_of_the_connection() {
    let mut s = two_connections();
    let update = json!({"instructions": "Be kind.", "model": "gpt-realtime"});
    s.client(1, json!({"type": "session.update", "session": update}));
    let (stock, extended) = (&s.last(1)["session"], &s.last(2)["session"]);
    assert_eq!((&stock["instructions"], &stock["output_modalities"]), (&json!("Be kind."), &json!(["text"])));
    assert_eq!((&stock["model"], &stock["id"]), (&json!("test-model"), &json!("sess_1")));
    assert_eq!((stock.get("extensions"), &extended["extensions"]), (None, &json!(["reprise"])));
}
