//! What only clients hear and say that asked for it: partial transcripts, sentences, reports, notices.

use super::stage::*;
use serde_json::json;
use session::machine::*;
use session::*;

fn update(text: &str) -> serde_json::Value {
    json!({"type": "input_text_buffer.update", "text": text})
}

fn speculating() -> Stage {
    let mut start = start();
    start.limits.speculate_ms = Some(100);
    let mut s = Stage::new(start);
    s.attach(1, true, Replay::All);
    s.heard(1);
    s
}

fn purposes(s: &Stage) -> Vec<&GenerationPurpose> {
    s.generations.iter().map(|generation| &generation.purpose).collect()
}

#[test]
fn nobody_gets_what_they_did_not_ask_for() {
    let mut s = stage();
    s.client(1, json!({"type": "input_text_buffer.update", "text": "x", "event_id": "e1"}));
    s.client(1, json!({"type": "input_text_buffer.commit", "text": "x"}));
    s.client(1, json!({"type": "input_text_buffer.clear"}));
    s.client(1, json!({"type": "conversation.item.truncate", "item_id": "a", "content_index": 0, "text_end": 1}));
    let refused = s.heard(1);
    assert_eq!(refused[0], "error extension_not_enabled to e1");
    assert_eq!(refused.len(), 4);
    // It may ask later, and take it back.
    s.client(1, json!({"type": "session.update", "session": {"extensions": ["reprise", "unknown"]}}));
    s.client(1, json!({"type": "input_text_buffer.update", "text": "x"}));
    assert_eq!(s.heard(1), ["session.updated"]);
    s.client(1, json!({"type": "session.update", "session": {"extensions": []}}));
    s.client(1, json!({"type": "input_text_buffer.update", "text": "x"}));
    assert_eq!(s.heard(1), ["session.updated", "error extension_not_enabled"]);
}

#[test]
fn how_sure_the_model_was_is_told_to_who_knows_the_event() {
    let mut s = stage();
    s.attach(2, true, Replay::All);
    s.client(1, json!({"type": "response.create"}));
    let logprobs = vec![TokenLogprob { bytes: b"Yes.".to_vec(), logprob: -0.5, top: Vec::new() }];
    s.backend(Delta::Text { text: "Yes.".into(), tokens: 1, sentences: Vec::new(), logprobs });
    let told = |conn: u64| {
        let types = s.clients[&ConnId(conn)].frames.iter().map(|frame| frame["type"].as_str().unwrap());
        types.filter(|kind| kind.starts_with("response.output_text.")).collect::<Vec<_>>()
    };
    assert_eq!(told(1), ["response.output_text.delta"]);
    assert_eq!(told(2), ["response.output_text.logprobs", "response.output_text.delta"]);
}

#[test]
fn commit_is_the_users_turn() {
    let mut s = extended_stage();
    s.client(1, update("what is the"));
    s.client(1, update("what is the time"));
    s.client(1, json!({"type": "input_text_buffer.commit"}));
    assert_eq!(
        s.heard(1),
        [
            "item.added I1 user \"what is the time\" after the head",
            "item.done I1 user \"what is the time\" after the head",
            "response.created R1 in_progress",
        ]
    );
    s.content("Noon.");
    s.done();
    s.heard(1);
    // The final transcript is another than the last partial one, and the client decides when to answer.
    s.client(1, update("thanks"));
    s.client(
        1,
        json!({"type": "input_text_buffer.commit", "text": "Thank you.", "item_id": "mine", "create_response": false}),
    );
    assert_eq!(s.heard(1)[1], "item.done mine user \"Thank you.\" after I2");
    assert_eq!(s.generations.len(), 1);
    s.client(1, json!({"type": "input_text_buffer.commit", "event_id": "e9"}));
    assert_eq!(s.heard(1), ["error input_text_buffer_commit_empty to e9"]);
    s.client(1, update("never mind"));
    s.client(1, json!({"type": "input_text_buffer.clear"}));
    s.client(1, json!({"type": "input_text_buffer.commit"}));
    assert_eq!(s.heard(1), ["error input_text_buffer_commit_empty"]);
    s.client(1, json!({"type": "input_text_buffer.commit", "text": "x", "item_id": "mine"}));
    assert_eq!(s.heard(1), ["error item_create_duplicate_item_id"]);
    s.check_agreement();
}

#[test]
fn a_commit_while_a_response_runs_keeps_the_words() {
    let mut s = extended_stage();
    s.ask("Hi");
    s.client(1, json!({"type": "input_text_buffer.commit", "text": "Wait"}));
    let heard = s.heard(1);
    assert_eq!(heard[2], "error conversation_already_has_active_response");
    assert_eq!(s.history().len(), 2);
}

#[test]
fn the_prompt_is_warmed_while_the_user_speaks() {
    let mut s = speculating();
    // On connecting, the instructions: after a moment, because most clients change them at once.
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (0, Some(1100)));
    s.now = 1050;
    s.client(1, json!({"type": "session.update", "session": {"instructions": "Be kind."}}));
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (0, Some(1100)));
    s.now = 1100;
    s.input(Happening::Tick);
    assert_eq!(purposes(&s), [&GenerationPurpose::WarmHistory]);
    assert_eq!(s.generations[0].priority(), Priority::Speculate);
    assert_eq!(s.generations[0].max_tokens, Some(0));
    assert_eq!(s.generations[0].config.instructions, "Be kind.");
    s.backend(Delta::Done { finish: Finish::Stop, usage: None, report: None });
    s.client(1, update("what is"));
    assert_eq!(s.machine.next_deadline(), Some(1200));
    s.now = 1150;
    s.client(1, update("what is the"));
    assert_eq!(s.generations.len(), 1);
    s.now = 1200;
    s.input(Happening::Tick);
    assert_eq!(purposes(&s)[1], &GenerationPurpose::WarmPartial("what is the".into()));
    assert_eq!(s.machine.next_deadline(), None);
    // The same words again are no news; others take the place of the ones before.
    s.now = 1300;
    s.client(1, update("what is the"));
    assert_eq!(s.generations.len(), 2);
    s.client(1, update("what is the time"));
    assert_eq!(purposes(&s)[2], &GenerationPurpose::WarmPartial("what is the time".into()));
    assert_eq!(s.stopped, [s.generations[1].generation]);
    // The user is done: the answer is more urgent than what is warmed.
    s.client(1, json!({"type": "input_text_buffer.commit"}));
    assert_eq!(purposes(&s)[3], &GenerationPurpose::Reply);
    assert_eq!(s.stopped.last(), Some(&s.generations[2].generation));
    // While the answer is made, nothing is warmed; afterwards what the next prompt will contain is.
    s.now = 2000;
    s.content("Noon.");
    s.client(1, update("than"));
    s.input(Happening::Tick);
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (4, None));
    s.done();
    assert_eq!(purposes(&s)[4], &GenerationPurpose::WarmPartial("than".into()));
    assert_eq!(s.generations[4].items.len(), 2);
    s.now = 3000;
    s.client(1, json!({"type": "input_text_buffer.clear"}));
    assert_eq!((s.generations.len(), s.machine.next_deadline()), (5, Some(3100)));
    s.now = 3100;
    s.input(Happening::Tick);
    assert_eq!(purposes(&s)[5], &GenerationPurpose::WarmHistory);
    // What was heard is another past.
    s.now = 4000;
    let item_id = s.last_reply();
    s.client(1, json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": 2}));
    s.now = 4100;
    s.input(Happening::Tick);
    assert_eq!(s.generations[6].items[1].text(), "No");
    // No client is there: nothing is warmed.
    s.now = 5000;
    s.detach(1);
    assert_eq!(s.stopped.last(), Some(&s.generations[6].generation));
    assert_eq!(s.machine.next_deadline(), None);
}

#[test]
fn sentences_and_the_report() {
    let mut s = extended_stage();
    s.ask("Tell me");
    s.now += 40;
    s.content("Yes. It ");
    s.now += 60;
    s.content("is 3.5 km.");
    s.now += 100;
    let report = TurnReport {
        reused_tokens: 90,
        computed_tokens: 12,
        reason: Some("edited"),
        queue_ms: 0.5,
        prefill_ms: 30.25,
        decode_ms: 160.0,
        memory_bytes: vec![("pages", 4096)],
        ..TurnReport::default()
    };
    s.backend(Delta::Done { finish: Finish::Stop, usage: None, report: Some(report.clone()) });
    let heard = s.heard(1);
    assert_eq!(
        heard[3..],
        [
            "response.output_text.delta \"Yes. It \"",
            "response.sentence.done 0 \"Yes. \" 0..5",
            "response.output_text.delta \"is 3.5 km.\"",
            "response.sentence.done 1 \"It is 3.5 km.\" 5..18",
            "response.output_text.done \"Yes. It is 3.5 km.\"",
            "response.content_part.done \"Yes. It is 3.5 km.\"",
            "response.output_item.done I2 assistant \"Yes. It is 3.5 km.\"",
            "item.done I2 assistant \"Yes. It is 3.5 km.\" after I1",
            "response.done R1 completed [I2 assistant \"Yes. It is 3.5 km.\"]",
            "turn.report R1 reused 90 computed 12 ms 0.5 30.25 40.0 40.0 200.0",
        ]
    );
    assert!(matches!(s.store.ops.last(), Some(StoreOp::ResponseReported { report: stored, .. })
        if stored.decode_ms == report.decode_ms && stored.memory_bytes == report.memory_bytes && stored.total_ms == 200.0));
}

#[test]
fn a_cancelled_reply_is_reported_when_the_backend_has_stopped() {
    let mut s = extended_stage();
    s.ask("Tell me");
    s.content("Yes. It ");
    s.now += 10;
    s.client(1, json!({"type": "response.cancel"}));
    // Half a sentence is not spoken.
    assert!(!s.heard(1).iter().any(|line| line.starts_with("response.sentence.done 1")));
    s.now += 500;
    s.backend(Delta::Done { finish: Finish::Cancelled, usage: None, report: Some(TurnReport::default()) });
    assert_eq!(s.heard(1), ["turn.report R1 reused 0 computed 0 ms 0.0 0.0 0.0 0.0 10.0"]);
}

#[test]
fn notices_go_to_those_who_asked() {
    let mut s = extended_stage();
    s.attach(2, false, Replay::All);
    s.heard(2);
    let compaction = |stage| Event::Compaction(Compaction { stage, version: 1, tokens_before: 9 });
    let events = [
        Event::ContextUpdated { tokens: 5, margin_tokens: 0, ctx_size: 10, fill: 0.5, arm: Some("a".into()) },
        compaction(CompactionStage::Started),
        compaction(CompactionStage::Completed { tokens_after: 3 }),
        compaction(CompactionStage::Dropped { tokens_after: 3 }),
        compaction(CompactionStage::Failed { message: "m".into() }),
        Event::PinRefused { item_id: "i".into(), text: "Call me Ann.".into(), limit_tokens: 4 },
    ];
    for event in events {
        s.input(Happening::Tell(event));
    }
    let kinds = ["context.updated", "compaction.started", "compaction.completed", "compaction.dropped"];
    assert_eq!(s.heard(1), [&kinds[..], &["compaction.failed", "pin.refused"]].concat());
    assert!(s.heard(2).is_empty());
}

#[test]
fn a_client_that_wants_the_answer_now_ends_the_thinking() {
    let mut s = extended_stage();
    let stop = |id: &str| json!({"type": "response.stop_thinking", "event_id": id});
    s.client(1, stop("e1"));
    assert_eq!(s.heard(1), ["error stop_thinking_not_active to e1"]);
    s.ask("Tell me");
    s.backend(Delta::Reasoning { text: "Hm.".into(), tokens: 1 });
    s.client(1, stop("e2"));
    assert_eq!(
        (s.heard(1), &s.hurried),
        (vec!["response.thinking_stopped".to_owned()], &vec![s.generations[0].generation])
    );
    s.content("Yes.");
    s.done();
    assert!(s.heard(1).last().unwrap().starts_with("response.done R1 completed"));
    s.client(1, stop("e3"));
    assert_eq!(s.heard(1), ["error stop_thinking_not_active to e3"]);
    // One beside the conversation is named, and no stock client hears of it.
    s.attach(2, false, Replay::All);
    s.heard(2);
    s.client(2, json!({"type": "response.create", "response": {"conversation": "none", "input": []}}));
    let id = s.generations[1].response_id.clone();
    s.client(1, json!({"type": "response.stop_thinking", "response_id": id}));
    assert_eq!(s.hurried.len(), 2);
    assert!(!s.heard(2).iter().any(|line| line.contains("thinking")));
    s.client(2, stop("e4"));
    assert_eq!(s.heard(2), ["error extension_not_enabled to e4"]);
}
