//! Nothing is promised before it is stored, and what happens when it cannot be.

use super::stage::*;
use serde_json::json;
use session::machine::*;

fn slow_store() -> Stage {
    let mut s = stage();
    s.store_answers = false;
    s
}

/// What the store is asked and has not answered.
fn asked(s: &Stage) -> Vec<&'static str> {
    let name = |op: &StoreOp| match op {
        StoreOp::ConfigChanged { .. } => "config",
        StoreOp::ItemAdded { .. } => "added",
        StoreOp::ItemTruncated { .. } => "truncated",
        StoreOp::ItemDeleted { .. } => "deleted",
        StoreOp::ResponseStarted { .. } => "started",
        StoreOp::ReplyBegun { .. } => "begun",
        StoreOp::ReplyResumed { .. } => "resumed",
        StoreOp::ReplyExtended { .. } => "extended",
        StoreOp::ReplyFinished { .. } => "finished",
        StoreOp::ReplyWithdrawn { .. } => "withdrawn",
        StoreOp::ResponseFinished { .. } => "done",
        StoreOp::ResponseReported { .. } => "reported",
    };
    s.unanswered.iter().map(|(_, op)| name(op)).collect()
}

#[test]
fn what_is_acknowledged_is_stored() {
    let mut s = slow_store();
    s.client(1, user_as("a", "Hi"));
    s.client(1, json!({"type": "session.update", "session": {"instructions": "x"}}));
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "a"}));
    // The store is asked at once, the client is told nothing.
    assert_eq!(asked(&s), ["added", "config", "deleted"]);
    assert!(s.heard(1).is_empty());
    s.answer_store();
    assert_eq!(
        s.heard(1),
        [
            "item.added a user \"Hi\" after the head",
            "item.done a user \"Hi\" after the head",
            "session.updated",
            "item.deleted a"
        ]
    );
}

/// Under one id stand two items, one after the other.
#[test]
fn an_item_that_is_made_again_is_not_taken_for_the_one_before() {
    // The first, its deletion, and the second: what of it the store refuses.
    let rows: [(&[usize], &[&str]); 4] =
        [(&[], &["a user \"two\""]), (&[0], &["a user \"two\""]), (&[1], &["a user \"one\""]), (&[0, 2], &[])];
    for (refused, stands) in rows {
        let mut s = slow_store();
        s.client(1, user_as("a", "one"));
        s.client(1, json!({"type": "conversation.item.delete", "item_id": "a"}));
        s.client(1, user_as("a", "two"));
        s.store.torn = true;
        for number in 0..3 {
            if refused.contains(&number) { s.fail_store() } else { s.answer_one() }
        }
        assert_eq!(s.history(), stands, "{refused:?}");
        s.check_store();
        let added = s.heard(1).iter().filter(|line| line.starts_with("item.added a")).count();
        assert_eq!(added, usize::from(!refused.contains(&0)) + usize::from(refused.len() < 2 && refused != [1]));
    }
}

#[test]
fn a_change_that_was_refused_does_not_undo_the_one_behind_it() {
    let mut s = slow_store();
    let change = |s: &mut Stage, text: &str| {
        s.client(1, json!({"type": "session.update", "session": {"instructions": text}}));
    };
    change(&mut s, "one");
    change(&mut s, "two");
    s.fail_store();
    s.answer_one();
    assert_eq!(s.machine.config().instructions, "two");
    change(&mut s, "three");
    change(&mut s, "four");
    s.fail_store();
    s.fail_store();
    assert_eq!(s.machine.config().instructions, "two");
    s.check_store();
}

#[test]
fn the_model_need_not_wait_for_the_store() {
    let mut s = slow_store();
    s.client(1, user_as("a", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    assert_eq!(s.generations.len(), 1);
    assert_eq!(asked(&s), ["added", "started", "begun"]);
    s.content("Hello.");
    assert!(s.heard(1).is_empty());
    s.answer_store();
    assert_eq!(
        s.heard(1),
        [
            "item.added a user \"Hi\" after the head",
            "item.done a user \"Hi\" after the head",
            "response.created R1 in_progress",
            "response.output_item.added I1 assistant \"\" in_progress",
            "item.added I1 assistant \"\" in_progress after a",
            "response.content_part.added \"\"",
            "response.output_text.delta \"Hello.\"",
        ]
    );
}

#[test]
fn only_what_was_sent_is_stored_and_one_piece_at_a_time() {
    let mut s = slow_store();
    s.client(1, json!({"type": "response.create"}));
    for piece in ["One", " two", " three"] {
        s.content(piece);
    }
    // Nothing was sent, because the place is not stored yet.
    assert_eq!(asked(&s), ["started", "begun"]);
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"One two three\" in_progress"]);
    s.content(" four");
    s.content(" five");
    assert_eq!(asked(&s), ["extended"]);
    s.client(1, json!({"type": "response.cancel"}));
    assert_eq!(asked(&s), ["extended", "finished", "done"]);
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"One two three four five\" incomplete"]);
    s.check_agreement();
}

#[test]
fn the_end_of_a_reply_waits_for_what_was_said_before_it() {
    let mut s = slow_store();
    s.client(1, json!({"type": "response.create"}));
    s.content("One");
    s.client(1, user_as("a", "Hi"));
    s.done();
    s.client(1, user_as("b", "there"));
    // The reply's text is not on its way yet, so it may not be stored, nor what came after it.
    assert_eq!(asked(&s), ["started", "begun", "added"]);
    s.answer_store();
    s.check_agreement();
    assert_eq!(s.history(), ["I1 assistant \"One\"", "a user \"Hi\"", "b user \"there\""]);
}

#[test]
fn what_cannot_be_stored_did_not_happen() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello there.");
    s.done();
    s.heard(1);
    s.store_answers = false;
    let reply = s.last_reply();
    s.client(1, json!({"type": "session.update", "event_id": "e0", "session": {"extensions": ["reprise"], "instructions": "x"}}));
    s.fail_store();
    let events = [
        json!({"type": "conversation.item.create", "event_id": "e1", "item": {"type": "message", "role": "user", "content": "x"}}),
        json!({"type": "conversation.item.truncate", "event_id": "e2", "item_id": reply, "content_index": 0, "text_end": 2}),
        json!({"type": "conversation.item.delete", "event_id": "e3", "item_id": "a"}),
        json!({"type": "input_text_buffer.commit", "event_id": "e4", "text": "x", "create_response": false}),
    ];
    for event in events {
        s.client(1, event);
        s.fail_store();
    }
    let refused: Vec<String> = (0..5).map(|index| format!("error store_failed to e{index}")).collect();
    assert_eq!(s.heard(1), refused);
    assert_eq!(s.history(), ["a user \"Hi\"", "I1 assistant \"Hello there.\""]);
    assert_eq!(s.machine.config().instructions, "Be brief.");
    s.check_agreement();
    let error = &s.clients[&ConnId(1)].frames.last().unwrap()["error"];
    assert_eq!(error["type"], "server_error");
    assert!(error["message"].as_str().unwrap().ends_with("the disk is full"));
}

#[test]
fn words_that_cannot_be_written_down_are_not_said() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello ");
    s.heard(1);
    s.words_fail = true;
    s.content("there. ");
    s.content("All of it.");
    let told = [
        "response.output_text.done \"Hello \"",
        "response.content_part.done \"Hello \"",
        "response.output_item.done I1 assistant \"Hello \" incomplete",
        "item.done I1 assistant \"Hello \" incomplete after a",
        "response.done R1 failed [I1 assistant \"Hello \" incomplete]",
    ];
    assert_eq!(s.heard(1), told);
    s.check_agreement();
    let details = &s.clients[&ConnId(1)].frames.last().unwrap()["response"]["status_details"];
    assert!(details["error"]["message"].as_str().unwrap().ends_with("the disk is full"), "{details}");
    // The same when the model was done before the store had the reply's begin.
    let mut s = slow_store();
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello.");
    s.done();
    s.words_fail = true;
    s.answer_store();
    let told = s.heard(1);
    assert!(told.iter().all(|line| !line.contains("Hello")), "{told:?}");
    assert!(told.last().unwrap().starts_with("response.done R1 failed"), "{told:?}");
    s.check_agreement();
    // And when there is room again.
    s.words_fail = false;
    s.client(1, json!({"type": "response.create"}));
    s.content("Here I am.");
    s.done();
    s.answer_store();
    assert!(s.heard(1).contains(&"response.output_text.delta \"Here I am.\"".to_owned()));
    s.check_agreement();
}

#[test]
fn what_stands_behind_what_did_not_happen_does_not_happen_either() {
    let mut s = slow_store();
    s.client(1, user_as("a", "1"));
    s.answer_store();
    s.client(1, user_as("b", "2"));
    s.client(1, user_as("c", "3"));
    s.fail_store();
    s.answer_store();
    assert_eq!(s.heard(1)[2..], ["error store_failed", "error store_failed"]);
    assert_eq!(s.history(), ["a user \"1\""]);
    s.check_agreement();
}

#[test]
fn a_reply_that_cannot_be_stored_fails() {
    // Which operation fails, and what the client hears.
    let rows: [(&str, &[&str]); 4] = [
        (
            "started",
            &[
                "response.created R1 in_progress",
                "response.output_item.added I1 assistant \"\" in_progress",
                "item.added I1 assistant \"\" in_progress after the head",
                "response.content_part.added \"\"",
                "response.output_text.delta \"Hello.\"",
                "response.output_text.done \"Hello.\"",
                "response.content_part.done \"Hello.\"",
                "response.output_item.done I1 assistant \"Hello.\" incomplete",
                "item.done I1 assistant \"Hello.\" incomplete after the head",
                "response.done R1 failed [I1 assistant \"Hello.\" incomplete]",
            ],
        ),
        ("begun", &["response.created R1 in_progress", "response.done R1 failed"]),
        (
            "finished",
            &[
                "response.created R1 in_progress",
                "response.output_item.added I1 assistant \"\" in_progress",
                "item.added I1 assistant \"\" in_progress after the head",
                "response.content_part.added \"\"",
                "response.output_text.delta \"Hello.\"",
                "response.output_text.done \"Hello.\"",
                "response.content_part.done \"Hello.\"",
                "response.done R1 failed [I1 assistant \"Hello.\"]",
            ],
        ),
        (
            "done",
            &[
                "response.created R1 in_progress",
                "response.output_item.added I1 assistant \"\" in_progress",
                "item.added I1 assistant \"\" in_progress after the head",
                "response.content_part.added \"\"",
                "response.output_text.delta \"Hello.\"",
                "response.output_text.done \"Hello.\"",
                "response.content_part.done \"Hello.\"",
                "response.output_item.done I1 assistant \"Hello.\"",
                "item.done I1 assistant \"Hello.\" after the head",
                "response.done R1 failed [I1 assistant \"Hello.\"]",
            ],
        ),
    ];
    for (which, expected) in rows {
        let mut s = slow_store();
        s.client(1, json!({"type": "response.create"}));
        if matches!(which, "started" | "begun") {
            s.content("Hello.");
        }
        while asked(&s).first().is_some_and(|op| *op != which) {
            s.answer_one();
        }
        if matches!(which, "finished" | "done") {
            s.content("Hello.");
            s.answer_store();
            s.done();
            if which == "done" {
                s.answer_one();
            }
        }
        assert_eq!(asked(&s).first(), Some(&which));
        s.fail_store();
        s.answer_store();
        assert_eq!(s.heard(1), expected, "{which}");
        s.check_no_open_response();
        // The session lives on.
        s.store_answers = true;
        s.ask("Again");
        s.content("Hello.");
        s.done();
        assert!(s.heard(1).last().unwrap().contains("completed"));
    }
}

#[test]
fn a_piece_that_could_not_be_stored_goes_with_the_next() {
    let mut s = slow_store();
    s.client(1, json!({"type": "response.create"}));
    s.answer_store();
    s.content("One");
    s.fail_store();
    s.content(" two");
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"One two\" in_progress"]);
}

#[test]
fn a_store_that_never_answers_ends_in_goodbye() {
    let mut start = start();
    start.limits.outbox_steps = 10;
    let mut s = Stage::new(start);
    s.attach(1, false, Replay::All);
    s.store_answers = false;
    s.client(1, json!({"type": "response.create"}));
    for _ in 0..20 {
        s.content("word ");
    }
    assert_eq!(s.closed, [(ConnId(1), CloseReason::StoreStalled)]);
    assert_eq!(s.stopped.len(), 1);
    // It comes back after all: the user heard no word of it.
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"\" incomplete"]);
    assert_eq!(s.history(), s.stored());
    assert!(s.machine.is_idle());
}

#[test]
fn the_service_stops() {
    let mut s = slow_store();
    s.client(1, json!({"type": "response.create"}));
    s.answer_store();
    s.content("One two");
    s.input(Happening::Drain);
    s.client(1, user_as("late", "Hi"));
    assert!(s.closed.is_empty());
    s.answer_store();
    assert_eq!(s.heard(1).last().unwrap(), "response.done R1 cancelled [I1 assistant \"One two\" incomplete]");
    assert_eq!(s.closed, [(ConnId(1), CloseReason::Draining)]);
    assert_eq!(s.stored(), ["I1 assistant \"One two\" incomplete"]);
    s.detach(1);
    assert!(s.machine.is_idle());
}
