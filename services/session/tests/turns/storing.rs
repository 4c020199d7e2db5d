//! Order of promises and storing: no client is promised what the store does not have, also when the store refuses.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::{FailureCode, StatusDetails};

fn slow_store() -> Stage {
    let mut s = stage();
    s.store_answers = false;
    s
}

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

fn failure(s: &Stage) -> (FailureCode, String) {
    match s.last_response(1).details.clone() {
        Some(StatusDetails::Failed(failure)) => (failure.code, failure.message),
        details => panic!("{details:?}"),
    }
}

#[test]
fn what_is_acknowledged_is_stored() {
    let mut s = slow_store();
    s.client(1, user_as("a", "Hi"));
    s.client(1, instructions("x"));
    s.client(1, delete("a"));
    // The store is asked at once, the client is told nothing.
    assert_eq!(asked(&s), ["added", "config", "deleted"]);
    assert!(s.heard(1).is_empty());
    s.answer_store();
    assert_eq!(s.heard(1), ["added a user \"Hi\" after the head", "configured", "deleted a"]);
}

#[test]
fn an_item_that_is_made_again_is_not_taken_for_the_one_before() {
    // The first, its deletion, and the second: what of it the store refuses.
    let rows: [(&[usize], &[&str]); 4] =
        [(&[], &["a user \"two\""]), (&[0], &["a user \"two\""]), (&[1], &["a user \"one\""]), (&[0, 2], &[])];
    for (refused, stands) in rows {
        let mut s = slow_store();
        s.client(1, user_as("a", "one"));
        s.client(1, delete("a"));
        s.client(1, user_as("a", "two"));
        s.store.torn = true;
        for number in 0..3 {
            if refused.contains(&number) { s.fail_store() } else { s.answer_one() }
        }
        assert_eq!(s.history(), stands, "{refused:?}");
        s.check_store();
        let added = s.heard(1).iter().filter(|line| line.starts_with("added a")).count();
        assert_eq!(added, usize::from(!refused.contains(&0)) + usize::from(refused.len() < 2 && refused != [1]));
    }
}

#[test]
fn a_change_that_was_refused_does_not_undo_the_one_behind_it() {
    let mut s = slow_store();
    s.client(1, instructions("one"));
    s.client(1, instructions("two"));
    s.fail_store();
    s.answer_one();
    assert_eq!(s.machine.config().instructions, "two");
    s.client(1, instructions("three"));
    s.client(1, instructions("four"));
    s.fail_store();
    s.fail_store();
    assert_eq!(s.machine.config().instructions, "two");
    s.check_store();
}

#[test]
fn the_model_need_not_wait_for_the_store() {
    let mut s = slow_store();
    s.client(1, user_as("a", "Hi"));
    s.client(1, respond());
    assert_eq!(s.generations.len(), 1);
    assert_eq!(asked(&s), ["added", "started", "begun"]);
    s.content("Hello.");
    assert!(s.heard(1).is_empty());
    s.answer_store();
    assert_eq!(
        s.heard(1),
        [
            "added a user \"Hi\" after the head",
            "started R1 in_progress",
            "begun I1 assistant \"\" in_progress after a",
            "text \"Hello.\"",
        ]
    );
}

#[test]
fn only_what_was_sent_is_stored_and_one_piece_at_a_time() {
    let mut s = slow_store();
    s.client(1, respond());
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
    s.client(1, cancel());
    assert_eq!(asked(&s), ["extended", "finished", "done"]);
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"One two three four five\" incomplete"]);
    s.check_agreement();
}

#[test]
fn the_end_of_a_reply_waits_for_what_was_said_before_it() {
    let mut s = slow_store();
    s.client(1, respond());
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
    s.client(1, respond());
    s.content("Hello there.");
    s.done();
    s.heard(1);
    s.store_answers = false;
    let reply = s.last_reply();
    let inputs = [instructions("x"), user("x"), truncate(&reply, 2), delete("a"), note_text("x")];
    for (number, input) in inputs.into_iter().enumerate() {
        s.client_as(1, &format!("e{number}"), input);
        s.fail_store();
    }
    let refused: Vec<String> = (0..5).map(|number| format!("refused StoreFailed to e{number}")).collect();
    assert_eq!(s.heard(1), refused);
    assert_eq!(s.history(), ["a user \"Hi\"", "I1 assistant \"Hello there.\""]);
    assert_eq!(s.machine.config().instructions, "Be brief.");
    s.check_agreement();
    let Some(session::Event::Refused { refusal, .. }) = s.clients[&ConnId(1)].events.last() else { panic!() };
    assert!(refusal.to_string().ends_with("the disk is full"), "{refusal}");
}

#[test]
fn words_that_cannot_be_written_down_are_not_said() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, respond());
    s.content("Hello ");
    s.heard(1);
    s.words_fail = true;
    s.content("there. ");
    s.content("All of it.");
    let told = [
        "whole text \"Hello \"",
        "ended I1 assistant \"Hello \" incomplete after a",
        "done R1 failed [I1 assistant \"Hello \" incomplete]",
    ];
    assert_eq!(s.heard(1), told);
    s.check_agreement();
    let (code, message) = failure(&s);
    assert!(code == FailureCode::StoreFailed && message.ends_with("the disk is full"), "{message}");
    // The same when the model was done before the store had the reply's begin.
    let mut s = slow_store();
    s.client(1, respond());
    s.content("Hello.");
    s.done();
    s.words_fail = true;
    s.answer_store();
    let told = s.heard(1);
    assert!(told.iter().all(|line| !line.contains("Hello")), "{told:?}");
    assert!(told.last().unwrap().starts_with("done R1 failed"), "{told:?}");
    s.check_agreement();
    // And when there is room again.
    s.words_fail = false;
    s.client(1, respond());
    s.content("Here I am.");
    s.done();
    s.answer_store();
    assert!(s.heard(1).contains(&"text \"Here I am.\"".to_owned()));
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
    assert_eq!(s.heard(1)[1..], ["refused StoreFailed", "refused StoreFailed"]);
    assert_eq!(s.history(), ["a user \"1\""]);
    s.check_agreement();
}

#[test]
fn a_reply_that_cannot_be_stored_fails() {
    const STARTED: &str = "started R1 in_progress";
    const BEGUN: &str = "begun I1 assistant \"\" in_progress after the head";
    const TEXT: &str = "text \"Hello.\"";
    const SENTENCE: &str = "sentence 0 \"Hello.\" 0..6";
    const WHOLE: &str = "whole text \"Hello.\"";
    const CUT: &str = "ended I1 assistant \"Hello.\" incomplete after the head";
    const ENDED: &str = "ended I1 assistant \"Hello.\" after the head";
    // The operation that fails, and what the client hears.
    let rows: [(&str, &[&str]); 4] = [
        ("started", &[STARTED, BEGUN, TEXT, WHOLE, CUT, "done R1 failed [I1 assistant \"Hello.\" incomplete]"]),
        ("begun", &[STARTED, "done R1 failed"]),
        ("finished", &[STARTED, BEGUN, TEXT, SENTENCE, WHOLE, "done R1 failed [I1 assistant \"Hello.\"]"]),
        ("done", &[STARTED, BEGUN, TEXT, SENTENCE, WHOLE, ENDED, "done R1 failed [I1 assistant \"Hello.\"]"]),
    ];
    for (which, expected) in rows {
        let mut s = slow_store();
        s.client(1, respond());
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
    s.client(1, respond());
    s.answer_store();
    s.content("One");
    s.fail_store();
    s.content(" two");
    s.answer_store();
    assert_eq!(s.stored(), ["I1 assistant \"One two\" in_progress"]);
}

/// All clients leave before the store takes the reply's begin, so no client heard a word of it.
#[test]
fn a_change_of_an_unheard_reply_that_was_refused_brings_back_what_was_heard() {
    let changes: [fn(&str) -> session::Input; 2] = [delete, |id| truncate(id, 2)];
    for change in changes {
        let mut s = slow_store();
        s.store.torn = true;
        s.client(1, respond());
        s.content("Hello");
        let reply = s.last_reply();
        s.client(1, change(&reply));
        s.detach(1);
        // The begin and the end of the reply are stored, and the client's change is not.
        while !matches!(asked(&s)[..], ["deleted" | "truncated"]) {
            s.answer_one();
        }
        s.fail_store();
        assert_eq!(s.stored(), ["I1 assistant \"\" incomplete"]);
        assert_eq!(s.history(), s.stored());
        s.check_store();
    }
}

#[test]
fn a_store_that_never_answers_ends_in_goodbye() {
    let mut start = start();
    start.limits.outbox_steps = 10;
    let mut s = stage_from(start);
    s.store_answers = false;
    s.client(1, respond());
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
    s.client(1, respond());
    s.answer_store();
    s.content("One two");
    s.feed(MachineInput::Drain);
    s.client(1, user_as("late", "Hi"));
    assert!(s.closed.is_empty());
    s.answer_store();
    assert_eq!(s.heard(1).last().unwrap(), "done R1 cancelled [I1 assistant \"One two\" incomplete]");
    assert_eq!(s.closed, [(ConnId(1), CloseReason::Draining)]);
    assert_eq!(s.stored(), ["I1 assistant \"One two\" incomplete"]);
    s.detach(1);
    assert!(s.machine.is_idle());
}
