//! Items: where they stand, their ids, what clients are told.

use super::stage::*;
use serde_json::json;
use session::machine::*;
use session::*;

#[test]
fn items_are_placed() {
    let mut s = stage();
    let create = |id: &str, before: Option<&str>| {
        let mut message = user_as(id, id);
        if let Some(before) = before {
            message["previous_item_id"] = json!(before);
        }
        message
    };
    let rows = [
        ("a", None, "the head"),
        ("b", None, "a"),
        ("c", Some("root"), "the head"),
        ("d", Some("a"), "a"),
        ("e", Some("b"), "b"),
        ("f", None, "e"),
    ];
    for (id, before, told) in rows {
        s.client(1, create(id, before));
        assert_eq!(
            s.heard(1),
            [
                format!("item.added {id} user \"{id}\" after {told}"),
                format!("item.done {id} user \"{id}\" after {told}")
            ]
        );
    }
    assert_eq!(s.clients[&ConnId(1)].mirror, ["c", "a", "d", "b", "e", "f"]);
    s.client(1, create("g", Some("x")));
    assert_eq!(s.heard(1), ["error item_create_invalid_previous_item_id"]);
    s.check_agreement();
}

#[test]
fn ids_are_the_clients_or_ours() {
    let mut s = stage();
    s.client(1, user("Hi"));
    assert_eq!(s.heard(1)[0], "item.added I1 user \"Hi\" after the head");
    s.client(1, user_as("a", "x"));
    s.heard(1);
    let mut again = user_as("a", "y");
    again["event_id"] = json!("e7");
    s.client(1, again);
    assert_eq!(s.heard(1), ["error item_create_duplicate_item_id to e7"]);
    s.client(
        1,
        json!({"type": "conversation.item.create", "item": {"type": "function_call", "name": "f", "arguments": "{}"}}),
    );
    let added = &s.clients[&ConnId(1)].frames[s.clients[&ConnId(1)].frames.len() - 2];
    assert!(added["item"]["call_id"].as_str().unwrap().starts_with("call_"));
}

#[test]
fn an_item_may_be_deleted_and_created_again_under_its_id() {
    let mut s = stage();
    s.client(1, user_as("a", "one"));
    s.client(1, user_as("b", "two"));
    s.heard(1);
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "a"}));
    let mut again = user_as("a", "uno");
    again["previous_item_id"] = json!("root");
    s.client(1, again);
    assert_eq!(
        s.heard(1),
        ["item.deleted a", "item.added a user \"uno\" after the head", "item.done a user \"uno\" after the head"]
    );
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "x", "event_id": "e1"}));
    assert_eq!(s.heard(1), ["error item_delete_invalid_item_id to e1"]);
    assert_eq!(s.history(), ["a user \"uno\"", "b user \"two\""]);
    s.check_agreement();
}

#[test]
fn retrieving() {
    let mut s = stage();
    s.client(1, user_as("a", "one"));
    s.attach(2, false, Replay::Nothing);
    s.heard(1);
    s.heard(2);
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    assert_eq!(s.heard(1), ["item.retrieved a user \"one\""]);
    assert!(s.heard(2).is_empty());
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": "b", "event_id": "rci_b"}));
    assert_eq!(s.heard(1), ["error item_retrieve_invalid_item_id to rci_b"]);
    // A reply is known from its first word on, and with what was said so far.
    s.client(1, json!({"type": "response.create"}));
    let reply = s.last_reply();
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": reply}));
    assert_eq!(s.heard(1)[1], "error item_retrieve_invalid_item_id");
    s.content("Hel");
    s.heard(1);
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": reply}));
    assert_eq!(s.heard(1), ["item.retrieved I1 assistant \"Hel\" in_progress"]);
}

#[test]
fn a_session_has_room_for_so_many() {
    let mut start = start();
    start.limits.session_items = 2;
    let mut s = Stage::new(start);
    s.attach(1, false, Replay::All);
    s.client(1, user("1"));
    s.client(1, user("2"));
    s.heard(1);
    s.client(1, user("3"));
    assert_eq!(s.heard(1), ["error too_many_items"]);
}

#[test]
fn audio_gets_a_clear_answer() {
    let mut s = stage();
    s.client(1, json!({"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "e1"}));
    s.client(1, json!({"type": "input_audio_buffer.commit"}));
    // Stock clients clear the buffer before each barge-in; there is nothing in it, so that is fine.
    s.client(1, json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(
        s.heard(1),
        ["error audio_not_supported to e1", "error audio_not_supported", "input_audio_buffer.cleared"]
    );
}

#[test]
fn two_clients_see_everything_and_errors_go_to_who_made_them() {
    let mut s = stage();
    s.attach(2, false, Replay::All);
    assert_eq!(s.heard(2), ["session.created"]);
    s.client(1, user_as("a", "Hi"));
    s.client(2, json!({"type": "response.create"}));
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello.");
    s.client(2, json!({"type": "conversation.item.delete", "item_id": "x"}));
    s.done();
    let (one, two) = (s.heard(1), s.heard(2));
    let no_errors = |lines: &[String]| lines.iter().filter(|l| !l.starts_with("error")).cloned().collect::<Vec<_>>();
    assert_eq!(no_errors(&one), no_errors(&two));
    assert!(one.contains(&"error conversation_already_has_active_response".to_owned()));
    assert!(two.contains(&"error item_delete_invalid_item_id".to_owned()));
    assert_eq!(one.len(), two.len());
    s.check_agreement();
}

#[test]
fn the_session_is_told_in_full_and_to_everybody() {
    let mut s = stage();
    s.attach(2, true, Replay::All);
    s.heard(2);
    s.client(1, json!({"type": "session.update", "session": {"instructions": "Be kind.", "model": "gpt-realtime"}}));
    let told = |s: &Stage, conn: u64| s.clients[&ConnId(conn)].frames.last().unwrap()["session"].clone();
    assert_eq!(told(&s, 1)["instructions"], "Be kind.");
    assert_eq!((&told(&s, 1)["model"], &told(&s, 1)["id"]), (&json!("test-model"), &json!("sess_1")));
    assert_eq!(told(&s, 1)["output_modalities"], json!(["text"]));
    assert_eq!((told(&s, 1).get("extensions"), &told(&s, 2)["extensions"]), (None, &json!(["reprise"])));
    assert_eq!(s.store.config.as_ref().unwrap().instructions, "Be kind.");
    // Nothing changes: only the client that asked is told.
    s.heard(1);
    s.heard(2);
    s.client(1, json!({"type": "session.update", "session": {"type": "realtime"}}));
    assert_eq!((s.heard(1), s.heard(2)), (vec!["session.updated".to_owned()], vec![]));
}

#[test]
fn who_comes_back_is_told_what_it_missed() {
    let mut start = start();
    start.items = vec![
        Item::message("a", Role::User, "Hi"),
        Item::message("b", Role::Assistant, "Hello."),
        Item::message("c", Role::User, "Bye"),
    ];
    let rows = [
        (Replay::Nothing, vec![]),
        (Replay::All, vec!["a user \"Hi\" after the head", "b assistant \"Hello.\" after a", "c user \"Bye\" after b"]),
        (Replay::After("a".into()), vec!["b assistant \"Hello.\" after a", "c user \"Bye\" after b"]),
        (Replay::After("c".into()), vec![]),
        (
            Replay::After("?".into()),
            vec!["a user \"Hi\" after the head", "b assistant \"Hello.\" after a", "c user \"Bye\" after b"],
        ),
    ];
    for (replay, expected) in rows {
        let mut s = Stage::new(start.clone());
        s.attach(1, false, replay);
        let mut lines = vec!["session.created".to_owned()];
        lines.extend(expected.iter().map(|item| format!("item.added {item}")));
        assert_eq!(s.heard(1), lines);
    }
}

#[test]
fn who_comes_in_the_middle_of_a_reply_hears_all_of_it() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, json!({"type": "response.create"}));
    s.content("Hello");
    s.attach(2, false, Replay::All);
    assert_eq!(
        s.heard(2),
        [
            "session.created",
            "item.added a user \"Hi\" after the head",
            "response.created R1 in_progress",
            "response.output_item.added I1 assistant \"\" in_progress",
            "item.added I1 assistant \"\" in_progress after a",
            "response.content_part.added \"\"",
            "response.output_text.delta \"Hello\"",
        ]
    );
    s.content(" there.");
    s.done();
    s.heard(1);
    assert_eq!(
        s.heard(2)[0..2],
        ["response.output_text.delta \" there.\"", "response.output_text.done \"Hello there.\""]
    );
    s.check_agreement();
    s.check_no_open_response();
}

#[test]
fn a_summary_takes_the_place_of_what_it_tells() {
    let mut s = stage();
    for id in ["a", "b", "c"] {
        s.client(1, user_as(id, id));
    }
    let context = Context {
        preface: vec![Message::new(MessageRole::Tool, "Summary")],
        covered_through: Some("b".into()),
        ..Context::default()
    };
    s.input(Happening::Context(context.clone()));
    s.client(1, json!({"type": "response.create"}));
    let asked = s.generations.last().unwrap();
    assert_eq!(asked.items.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(*asked.context, context);
    s.done();
    // Undone: everything stands in the prompt again. The items were there all the time.
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    s.input(Happening::Context(Context::default()));
    s.client(1, json!({"type": "response.create"}));
    assert_eq!(s.generations.last().unwrap().items.len(), 3);
}

#[test]
fn items_that_a_summary_tells_leave_memory_but_for_the_newest() {
    let mut start = start();
    start.limits.told_items = 2;
    let mut s = Stage::new(start);
    s.attach(1, false, Replay::All);
    for id in ["a", "b", "c", "d", "e"] {
        s.client(1, user_as(id, id));
    }
    s.heard(1);
    let told = |id: &str| Context { covered_through: Some(id.into()), ..Context::default() };
    s.input(Happening::Context(told("d")));
    let in_memory = |s: &Stage| s.machine.entries().iter().map(|entry| entry.item.id.clone()).collect::<Vec<_>>();
    assert_eq!(in_memory(&s), ["c", "d", "e"]);
    s.client(1, json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    assert_eq!(s.heard(1), ["error item_retrieve_invalid_item_id"]);
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "c"}));
    assert_eq!(s.heard(1), ["item.deleted c"]);
    assert_eq!(s.stored().len(), 4);
    // Undone: everything stands in the prompt again, in its order.
    s.recover();
    s.input(Happening::Context(Context::default()));
    assert_eq!(in_memory(&s), ["a", "b", "d", "e"]);
    s.check_agreement();
}

#[test]
fn an_item_that_cannot_be_deleted_comes_back_though_what_stood_before_it_has_left_memory() {
    let mut start = start();
    start.limits.told_items = 1;
    let mut s = Stage::new(start);
    s.attach(1, false, Replay::All);
    for id in ["a", "b", "c", "d"] {
        s.client(1, user_as(id, id));
    }
    let told = |id: &str| Context { covered_through: Some(id.into()), ..Context::default() };
    s.input(Happening::Context(told("b")));
    s.store_answers = false;
    s.client(1, json!({"type": "conversation.item.delete", "item_id": "b"}));
    s.input(Happening::Context(told("c")));
    s.fail_store();
    let in_memory: Vec<_> = s.machine.entries().iter().map(|entry| entry.item.id.as_str()).collect();
    assert_eq!(in_memory, ["b", "c", "d"]);
    let prompt: Vec<_> = s.machine.items().iter().map(|item| item.id.clone()).collect();
    assert_eq!(prompt, ["d"]);
}

#[test]
fn an_older_summary_gives_back_what_only_the_newer_one_told() {
    let item = |id: &str, role| Item::new(id, ItemBody::message(role, id.to_owned()), ItemStatus::Completed);
    let user = |id: &str| item(id, Role::User);
    let told = |id: &str| Context { covered_through: Some(id.into()), ..Context::default() };
    // As it comes from the store: without what the summary tells.
    let mut start = start();
    (start.items, start.leading) = (vec![item("head", Role::System), user("d"), user("e")], 1);
    start.context = told("c");
    let mut s = Stage::new(start);
    let items = ["b", "c", "d", "e"].map(user).to_vec();
    s.input(Happening::Recovered { items, behind: Some("a".into()) });
    s.input(Happening::Context(told("a")));
    let prompt: Vec<_> = s.machine.items().iter().map(|item| item.id.clone()).collect();
    assert_eq!(prompt, ["head", "b", "c", "d", "e"]);
}

#[test]
fn a_session_takes_so_many_bytes_while_it_is_in_memory() {
    let mut s = stage();
    let long = "word ".repeat(190);
    let mut heard = Vec::new();
    for _ in 0..200 {
        s.client(
            1,
            json!({"type": "conversation.item.create", "item": {"id": "a", "type": "message", "role": "user",
            "content": [{"type": "input_text", "text": long}]}}),
        );
        s.client(1, json!({"type": "conversation.item.delete", "item_id": "a"}));
        heard = s.heard(1);
    }
    assert!(s.machine.is_large());
    assert_eq!(heard[0], "error too_much_text");
}
