//! The user speaks while the assistant does: what is sent, and what the history says was heard.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::{Heard, ItemPlace, StatusDetails};

#[test]
fn cancel_before_the_first_word() {
    let mut s = stage();
    s.ask("Hi");
    s.client(1, cancel());
    assert_eq!(s.heard(1), ["done R1 cancelled"]);
    assert_eq!(s.stopped, [s.generations[0].generation]);
    assert_eq!(s.history(), ["I1 user \"Hi\""]);
    s.check_agreement();
}

#[test]
fn cancel_in_the_middle_of_a_reply() {
    let mut s = stage();
    s.ask("Tell me a story");
    s.content("Once upon");
    s.heard(1);
    s.client(1, cancel());
    assert_eq!(
        s.heard(1),
        [
            "whole text \"Once upon\"",
            "ended I2 assistant \"Once upon\" incomplete after I1",
            "done R1 cancelled [I2 assistant \"Once upon\" incomplete]",
        ]
    );
    assert_eq!(s.last_response(1).details, Some(StatusDetails::Cancelled));
    s.check_agreement();
    // A client need not wait for anything before it goes on.
    s.client(1, respond());
    assert_eq!(s.heard(1), ["started R2 in_progress"]);
    let said: Vec<_> = s.generations.last().unwrap().items.iter().map(|item| item.text()).collect();
    assert_eq!(said, ["Tell me a story", "Once upon"]);
}

#[test]
fn what_was_heard_by_characters() {
    let rows = [(0, "", 0), (5, "Once ", 5), (9, "Once upon", 9), (10, "Once upon", 9), (10_000, "Once upon", 9)];
    for (chars, heard, told) in rows {
        let mut s = stage();
        s.ask("Tell me a story");
        s.content("Once upon");
        s.client(1, cancel());
        let item_id = s.last_reply();
        s.heard(1);
        s.client(1, truncate(&item_id, chars));
        let line = s.heard(1).pop().unwrap();
        assert!(line.starts_with(&format!("truncated I2 at {told} (")), "{line}");
        assert_eq!(s.history()[1], format!("I2 assistant {heard:?} incomplete"));
        s.check_agreement();
    }
}

#[test]
fn what_was_heard_by_time() {
    let mut s = stage();
    s.ask("And now?");
    s.content("The kitchen light is on now.");
    s.done();
    let item_id = s.last_reply();
    s.heard(1);
    s.client(1, truncate_ms(&item_id, 700));
    assert_eq!(s.heard(1), ["truncated I2 at 11 (700 ms)"]);
    assert_eq!(s.history()[1], "I2 assistant \"The kitchen\" incomplete");
    // All of it was heard: it stays complete.
    s.client(1, respond());
    s.content("It is.");
    s.done();
    let item_id = s.last_reply();
    s.client(1, truncate_ms(&item_id, 60_000));
    assert_eq!(s.heard(1).pop().unwrap(), "truncated I3 at 6 (60000 ms)");
    assert_eq!(s.history()[2], "I3 assistant \"It is.\"");
    s.check_agreement();
}

#[test]
fn what_was_heard_by_delete_and_create() {
    let mut s = stage();
    s.client(1, user_as("a", "Tell me a story"));
    s.client(1, respond());
    s.content("Once upon a time");
    s.client(1, cancel());
    let item_id = s.last_reply();
    s.client(1, user_as("b", "Stop"));
    s.heard(1);
    s.client(1, delete(&item_id));
    s.client(1, told(&item_id, "Once upon", ItemPlace::After("a".into())));
    assert_eq!(s.heard(1), ["deleted I1", "added I1 assistant \"Once upon\" after a"]);
    assert_eq!(s.history(), ["a user \"Tell me a story\"", "I1 assistant \"Once upon\"", "b user \"Stop\""]);
    s.check_agreement();
}

#[test]
fn truncating_or_deleting_what_is_being_said_stops_it() {
    for is_deleted in [false, true] {
        let mut s = stage();
        s.ask("Tell me a story");
        s.content("Once upon a time");
        let item_id = s.last_reply();
        s.heard(1);
        s.client(1, if is_deleted { delete(&item_id) } else { truncate(&item_id, 4) });
        let heard = s.heard(1);
        assert_eq!(heard[2], "done R1 cancelled [I2 assistant \"Once upon a time\" incomplete]");
        assert!(heard[3].starts_with(if is_deleted { "deleted I2" } else { "truncated I2 at 4" }), "{heard:?}");
        assert_eq!(s.history().len(), if is_deleted { 1 } else { 2 });
        s.check_agreement();
    }
}

#[test]
fn only_what_the_assistant_said_can_be_truncated() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.heard(1);
    s.client(1, truncate_ms("a", 5));
    s.client(1, truncate_ms("x", 5));
    assert_eq!(s.heard(1), ["refused NotTruncatable", "refused NoSuchItem for Truncate"]);
    s.client(1, respond());
    s.content("Hello.");
    s.done();
    s.heard(1);
    let reply = s.last_reply();
    s.client(1, truncate_part(&reply, 1, Heard::Ms(5)));
    assert_eq!(s.heard(1), ["refused NoSuchPart"]);
    // A character is not a byte.
    s.client(1, respond());
    s.content("Grüße, 世界!");
    s.done();
    let reply = s.last_reply();
    s.client(1, truncate(&reply, 8));
    assert_eq!(s.history().last().unwrap(), "I2 assistant \"Grüße, 世\" incomplete");
}

#[test]
fn a_reply_stops_when_its_last_client_leaves() {
    let mut s = stage();
    s.attach(2, Replay::All);
    s.ask("Tell me a story");
    s.content("Once upon");
    s.detach(1);
    assert!(s.stopped.is_empty());
    s.content(" a time");
    s.detach(2);
    assert_eq!(s.stopped.len(), 1);
    s.content(" there was");
    assert_eq!(s.history()[1], "I2 assistant \"Once upon a time\" incomplete");
    assert_eq!(s.stored(), s.history());
    assert!(s.machine.is_idle());
}
