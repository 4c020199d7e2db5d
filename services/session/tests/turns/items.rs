//! Items: where they stand, their ids, what clients are told.

use super::inputs::*;
use super::stage::*;
use session::machine::*;
use session::*;

#[test]
fn items_are_placed() {
    let mut s = stage();
    let after = |id: &str| ItemPlace::After(id.to_owned());
    let rows = [
        ("a", ItemPlace::End, "the head"),
        ("b", ItemPlace::End, "a"),
        ("c", ItemPlace::Head, "the head"),
        ("d", after("a"), "a"),
        ("e", after("b"), "b"),
        ("f", ItemPlace::End, "e"),
    ];
    for (id, place, told) in rows {
        s.client(1, user_at(id, id, place));
        assert_eq!(s.heard(1), [format!("added {id} user \"{id}\" after {told}")]);
    }
    assert_eq!(s.clients[&ConnId(1)].mirror, ["c", "a", "d", "b", "e", "f"]);
    s.client(1, user_at("g", "g", after("x")));
    assert_eq!(s.heard(1), ["refused NoSuchPlace"]);
    s.check_agreement();
}

#[test]
fn ids_are_the_clients_or_ours() {
    let mut s = stage();
    s.client(1, user("Hi"));
    assert_eq!(s.heard(1)[0], "added I1 user \"Hi\" after the head");
    s.client(1, user_as("a", "x"));
    s.heard(1);
    s.client_as(1, "e7", user_as("a", "y"));
    assert_eq!(s.heard(1), ["refused ItemExists to e7"]);
    let call = ItemBody::FunctionCall { call_id: String::new(), name: "f".into(), arguments: "{}".into() };
    s.client(1, add(None, call, ItemPlace::End));
    assert_eq!(s.heard(1), ["added I2 call C1 f({}) after a"]);
    let Some(ItemBody::FunctionCall { call_id, .. }) = s.store.items.last().map(|item| &item.body) else { panic!() };
    assert!(call_id.starts_with("call_"), "{call_id}");
    // Ids of hidden items are the service's own.
    s.client(1, user_as("recall_1", "x"));
    assert_eq!(s.heard(1), ["refused ItemExists"]);
}

#[test]
fn an_item_may_be_deleted_and_created_again_under_its_id() {
    let mut s = stage();
    s.client(1, user_as("a", "one"));
    s.client(1, user_as("b", "two"));
    s.heard(1);
    s.client(1, delete("a"));
    s.client(1, user_at("a", "uno", ItemPlace::Head));
    assert_eq!(s.heard(1), ["deleted a", "added a user \"uno\" after the head"]);
    s.client_as(1, "e1", delete("x"));
    assert_eq!(s.heard(1), ["refused NoSuchItem for Delete to e1"]);
    assert_eq!(s.history(), ["a user \"uno\"", "b user \"two\""]);
    s.check_agreement();
}

#[test]
fn reading() {
    let mut s = stage();
    s.client(1, user_as("a", "one"));
    s.attach(2, Replay::Nothing);
    s.heard(1);
    s.heard(2);
    s.client(1, read("a"));
    assert_eq!(s.heard(1), ["read a user \"one\""]);
    assert!(s.heard(2).is_empty());
    s.client_as(1, "r7", read("b"));
    assert_eq!(s.heard(1), ["refused NoSuchItem for Read to r7"]);
    // A reply is known from its first word on, and with what was said so far.
    s.client(1, respond());
    let reply = s.last_reply();
    s.client(1, read(&reply));
    assert_eq!(s.heard(1)[1], "refused NoSuchItem for Read");
    s.content("Hel");
    s.heard(1);
    s.client(1, read(&reply));
    assert_eq!(s.heard(1), ["read I1 assistant \"Hel\" in_progress"]);
}

#[test]
fn a_session_holds_a_limited_number_of_items() {
    let mut start = start();
    start.limits.session_items = 2;
    let mut s = stage_from(start);
    s.client(1, user("1"));
    s.client(1, user("2"));
    s.heard(1);
    s.client(1, user("3"));
    assert_eq!(s.heard(1), ["refused TooManyItems"]);
}

#[test]
fn an_event_for_one_client_keeps_its_place() {
    let mut s = stage();
    s.attach(2, Replay::All);
    s.heard(2);
    s.store_answers = false;
    s.client(1, user_as("a", "Hi"));
    // As a door asks for when it answers by itself, behind all that came before.
    s.feed(MachineInput::TellOne { conn: ConnId(1), event: Event::Reached { mark: 3, bytes: 9 } });
    s.client(1, Input::DropSpeech);
    assert!(s.heard(1).is_empty());
    s.answer_store();
    assert_eq!(s.heard(1), ["added a user \"Hi\" after the head", "reached 3", "speech dropped"]);
    assert_eq!(s.heard(2), ["added a user \"Hi\" after the head"]);
}

#[test]
fn two_clients_see_everything_and_refusals_go_to_the_one_that_asked() {
    let mut s = stage();
    s.attach(2, Replay::All);
    assert_eq!(s.heard(2), ["opened"]);
    s.client(1, user_as("a", "Hi"));
    s.client(2, respond());
    s.client(1, respond());
    s.content("Hello.");
    s.client(2, delete("x"));
    s.done();
    let (one, two) = (s.heard(1), s.heard(2));
    let granted =
        |lines: &[String]| lines.iter().filter(|line| !line.starts_with("refused")).cloned().collect::<Vec<_>>();
    assert_eq!(granted(&one), granted(&two));
    assert!(one.contains(&"refused ResponseActive".to_owned()));
    assert!(two.contains(&"refused NoSuchItem for Delete".to_owned()));
    assert_eq!(one.len(), two.len());
    s.check_agreement();
}

#[test]
fn every_client_is_told_of_a_changed_session() {
    let mut s = stage();
    s.attach(2, Replay::All);
    s.heard(2);
    s.client(1, instructions("Be kind."));
    for conn in [1, 2] {
        let Some(Event::Configured(state)) = s.clients[&ConnId(conn)].events.last() else { panic!("{conn}") };
        assert_eq!(state.config.instructions, "Be kind.");
        assert_eq!((state.model.as_str(), state.session_id.as_str()), ("test-model", "sess_1"));
    }
    assert_eq!(s.store.config.as_ref().unwrap().instructions, "Be kind.");
    // Nothing changes: only the client that asked is told.
    s.heard(1);
    s.heard(2);
    s.client(1, instructions("Be kind."));
    assert_eq!((s.heard(1), s.heard(2)), (vec!["configured".to_owned()], vec![]));
}

#[test]
fn a_client_that_comes_back_is_told_what_it_missed() {
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
        s.attach(1, replay);
        let mut lines = vec!["opened".to_owned()];
        lines.extend(expected.iter().map(|item| format!("known {item}")));
        assert_eq!(s.heard(1), lines);
    }
}

#[test]
fn a_client_that_comes_in_the_middle_of_a_reply_hears_all_of_it() {
    let mut s = stage();
    s.client(1, user_as("a", "Hi"));
    s.client(1, respond());
    s.content("Hello");
    s.attach(2, Replay::All);
    assert_eq!(
        s.heard(2),
        [
            "opened",
            "known a user \"Hi\" after the head",
            "started R1 in_progress",
            "begun I1 assistant \"\" in_progress after a",
            "text \"Hello\"",
        ]
    );
    s.content(" there.");
    s.done();
    s.heard(1);
    assert_eq!(s.heard(2)[..2], ["text \" there.\"", "sentence 0 \"Hello there.\" 0..12"]);
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
    s.feed(MachineInput::Context(context.clone()));
    s.client(1, respond());
    let asked = s.generations.last().unwrap();
    assert_eq!(asked.items.iter().map(|item| item.id.as_str()).collect::<Vec<_>>(), ["c"]);
    assert_eq!(*asked.context, context);
    s.done();
    // Undone: everything stands in the prompt again. The items were there all the time.
    s.heard(1);
    s.client(1, read("a"));
    assert_eq!(s.heard(1), ["read a user \"a\""]);
    s.feed(MachineInput::Context(Context::default()));
    s.client(1, respond());
    assert_eq!(s.generations.last().unwrap().items.len(), 3);
}

#[test]
fn items_that_a_summary_tells_leave_memory_but_for_the_newest() {
    let mut start = start();
    start.limits.told_items = 2;
    let mut s = stage_from(start);
    for id in ["a", "b", "c", "d", "e"] {
        s.client(1, user_as(id, id));
    }
    s.heard(1);
    let told = |id: &str| Context { covered_through: Some(id.into()), ..Context::default() };
    s.feed(MachineInput::Context(told("d")));
    let in_memory = |s: &Stage| s.machine.entries().iter().map(|entry| entry.item.id.clone()).collect::<Vec<_>>();
    assert_eq!(in_memory(&s), ["c", "d", "e"]);
    s.client(1, read("a"));
    assert_eq!(s.heard(1), ["refused NoSuchItem for Read"]);
    s.client(1, delete("c"));
    assert_eq!(s.heard(1), ["deleted c"]);
    assert_eq!(s.stored().len(), 4);
    // Undone: everything stands in the prompt again, in its order.
    s.recover();
    s.feed(MachineInput::Context(Context::default()));
    assert_eq!(in_memory(&s), ["a", "b", "d", "e"]);
    s.check_agreement();
}

#[test]
fn an_item_that_cannot_be_deleted_comes_back_though_what_stood_before_it_has_left_memory() {
    let mut start = start();
    start.limits.told_items = 1;
    let mut s = stage_from(start);
    for id in ["a", "b", "c", "d"] {
        s.client(1, user_as(id, id));
    }
    let told = |id: &str| Context { covered_through: Some(id.into()), ..Context::default() };
    s.feed(MachineInput::Context(told("b")));
    s.store_answers = false;
    s.client(1, delete("b"));
    s.feed(MachineInput::Context(told("c")));
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
    s.feed(MachineInput::Recovered { items, behind: Some("a".into()) });
    s.feed(MachineInput::Context(told("a")));
    let prompt: Vec<_> = s.machine.items().iter().map(|item| item.id.clone()).collect();
    assert_eq!(prompt, ["head", "b", "c", "d", "e"]);
}

#[test]
fn a_session_takes_a_limited_number_of_bytes_while_it_is_in_memory() {
    let mut s = stage();
    let long = "word ".repeat(190);
    let mut heard = Vec::new();
    for _ in 0..200 {
        s.client(1, user_as("a", &long));
        s.client(1, delete("a"));
        heard = s.heard(1);
    }
    assert!(s.machine.is_large());
    assert_eq!(heard[0], "refused TooMuchText");
}
