//! The user speaks while the assistant does: what is sent, and what the history says was heard.

use super::stage::*;
use serde_json::json;
use session::machine::*;

#[test]
fn cancel_before_the_first_word() {
    let mut s = stage();
    s.ask("Hi");
    s.client(1, json!({"type": "response.cancel"}));
    assert_eq!(s.heard(1), ["response.done R1 cancelled"]);
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
    s.client(1, json!({"type": "response.cancel"}));
    assert_eq!(
        s.heard(1),
        [
            "response.output_text.done \"Once upon\"",
            "response.content_part.done \"Once upon\"",
            "response.output_item.done I2 assistant \"Once upon\" incomplete",
            "item.done I2 assistant \"Once upon\" incomplete after I1",
            "response.done R1 cancelled [I2 assistant \"Once upon\" incomplete]",
        ]
    );
    let done = s.clients[&ConnId(1)].frames.last().unwrap();
    assert_eq!(done["response"]["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    s.check_agreement();
    // A client need not wait for anything before it goes on.
    s.client(1, json!({"type": "response.create"}));
    assert_eq!(s.heard(1), ["response.created R2 in_progress"]);
    let said: Vec<_> = s.generations.last().unwrap().items.iter().map(|item| item.text()).collect();
    assert_eq!(said, ["Tell me a story", "Once upon"]);
}

#[test]
fn what_was_heard_by_text_end() {
    let rows = [(0, "", 0), (5, "Once ", 5), (9, "Once upon", 9), (10, "Once upon", 9), (10_000, "Once upon", 9)];
    for (text_end, heard, told) in rows {
        let mut s = extended_stage();
        s.ask("Tell me a story");
        s.content("Once upon");
        s.client(1, json!({"type": "response.cancel"}));
        let item_id = s.last_reply();
        s.heard(1);
        s.client(
            1,
            json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": text_end}),
        );
        let line = s.heard(1).pop().unwrap();
        assert!(line.starts_with(&format!("item.truncated I2 at {told} (")), "{line}");
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
    s.client(
        1,
        json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 700}),
    );
    assert_eq!(s.heard(1), ["item.truncated I2 at 11 (700 ms)"]);
    assert_eq!(s.history()[1], "I2 assistant \"The kitchen\" incomplete");
    // All of it was heard: it stays complete.
    s.client(1, json!({"type": "response.create"}));
    s.content("It is.");
    s.done();
    let item_id = s.last_reply();
    s.client(
        1,
        json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 60000}),
    );
    assert_eq!(s.heard(1).pop().unwrap(), "item.truncated I3 at 6 (60000 ms)");
    assert_eq!(s.history()[2], "I3 assistant \"It is.\"");
    s.check_agreement();
}

#[test]
fn what_was_heard_by_delete_and_create() {
    let mut s = stage();
    s.client(1, user_as("a", "Tell me a story"));
    s.client(1, json!({"type": "response.create"}));
    s.content("Once upon a time");
    s.client(1, json!({"type": "response.cancel"}));
    let item_id = s.last_reply();
    s.client(1, user_as("b", "Stop"));
    s.heard(1);
    s.client(1, json!({"type": "conversation.item.delete", "item_id": item_id}));
    s.client(
        1,
        json!({"type": "conversation.item.create", "previous_item_id": "a", "item": {
            "id": item_id, "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Once upon"}]}}),
    );
    assert_eq!(
        s.heard(1),
        [
            "item.deleted I1",
            "item.added I1 assistant \"Once upon\" after a",
            "item.done I1 assistant \"Once upon\" after a",
        ]
    );
    assert_eq!(s.history(), ["a user \"Tell me a story\"", "I1 assistant \"Once upon\"", "b user \"Stop\""]);
    s.check_agreement();
}

#[test]
fn truncating_or_deleting_what_is_being_said_stops_it() {
    for delete in [false, true] {
        let mut s = extended_stage();
        s.ask("Tell me a story");
        s.content("Once upon a time");
        let item_id = s.last_reply();
        s.heard(1);
        let event = if delete {
            json!({"type": "conversation.item.delete", "item_id": item_id})
        } else {
            json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "text_end": 4})
        };
        s.client(1, event);
        let heard = s.heard(1);
        assert_eq!(heard[4], "response.done R1 cancelled [I2 assistant \"Once upon a time\" incomplete]");
        assert!(heard[5].starts_with(if delete { "item.deleted I2" } else { "item.truncated I2 at 4" }), "{heard:?}");
        assert_eq!(s.history().len(), if delete { 1 } else { 2 });
        s.check_agreement();
    }
}

#[test]
fn only_what_the_assistant_said_can_be_truncated() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.heard(1);
    let truncate = |id: &str, index: u32| json!({"type": "conversation.item.truncate", "item_id": id, "content_index": index, "audio_end_ms": 5});
    s.client(1, truncate("a", 0));
    s.client(1, truncate("x", 0));
    assert_eq!(s.heard(1), ["error item_truncate_invalid_item_id", "error item_truncate_invalid_item_id"]);
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello.");
    s.done();
    s.heard(1);
    let reply = s.last_reply();
    s.client(1, truncate(&reply, 1));
    assert_eq!(s.heard(1), ["error invalid_value"]);
    // A character is not a byte.
    s.client(1, json!({"type": "response.create"}));
    s.content("Grüße, 世界!");
    s.done();
    s.heard(1);
    s.client(1, json!({"type": "session.update", "session": {"extensions": ["reprise"]}}));
    let reply = s.last_reply();
    s.client(1, json!({"type": "conversation.item.truncate", "item_id": reply, "content_index": 0, "text_end": 8}));
    assert_eq!(s.history().last().unwrap(), "I2 assistant \"Grüße, 世\" incomplete");
}

#[test]
fn what_nobody_hears_is_not_said() {
    let mut s = stage();
    s.attach(2, false, Replay::All);
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
