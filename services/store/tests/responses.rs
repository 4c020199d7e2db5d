//! Responses by their ids, and forks behind one.

use crate::support::*;
use crate::transfer::{export, import};
use serde_json::json;
use session::{Failure, FailureCode, Item, ItemPlace, ItemStatus, ResponseStatus, Role, StatusDetails, Usage};
use store::*;

const USAGE: Usage = Usage { input_tokens: 7, cached_tokens: 3, output_tokens: 2, reasoning_tokens: 1 };

async fn turn(store: &Store, session: &SessionRef, n: usize) {
    say(store, session, &format!("u{n}"), &format!("question {n}"), 20).await;
    let (id, item) = (format!("resp_{n}"), format!("a{n}"));
    store
        .begin_response(session, NewResponse { metadata: Some(r#"{"room":"hall"}"#.into()), ..new_response(&id) }, 20)
        .await
        .unwrap();
    let reply = begin(store, session, &item, &id, 20).await.unwrap();
    let body = message(Role::Assistant, &format!("answer {n}"));
    store.finish_reply(&reply, VersionStatus::Completed, body, 25).await.unwrap();
    finish(store, session, &id, ResponseStatus::Completed, None).await;
}

async fn finish(store: &Store, session: &SessionRef, id: &str, status: ResponseStatus, details: Option<StatusDetails>) {
    let response = FinishedResponse { id: id.into(), status, details, usage: USAGE, finished_at_ms: 26 };
    store.finish_response(session, response).await.unwrap();
}

async fn found(store: &Store, id: &str) -> StoredResponse {
    store.find_response("ada", id).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_response_is_found_by_its_id_and_its_user() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    turn(store, &session, 1).await;
    let first = found(store, "resp_1").await;
    assert_eq!((&first.session, first.status, first.usage), (&session, ResponseStatus::Completed, Some(USAGE)));
    assert_eq!((first.metadata.clone(), first.started_at_ms), (json!({ "room": "hall" }), 20));
    assert_eq!(first.output.iter().map(ItemVersion::said).collect::<Vec<_>>(), ["answer 1"]);
    let end = first.end.unwrap();
    assert_eq!((end.last_item.as_deref(), end.is_last), (Some("a1"), true));
    for (user, id) in [("bob", "resp_1"), ("ada", "resp_none")] {
        assert_eq!(store.find_response(user, id).await.unwrap(), None);
    }
    turn(store, &session, 2).await;
    let end = found(store, "resp_1").await.end.unwrap();
    assert_eq!((end.last_item.as_deref(), end.is_last), (Some("a1"), false));
    // Its item can leave the conversation, and the place stays.
    store.delete_item(&session, "a1", 30).await.unwrap();
    let first = found(store, "resp_1").await;
    assert_eq!((first.output, first.end.unwrap().last_item.as_deref()), (vec![], Some("u1")));
    store.delete_session(&session, 40).await.unwrap();
    assert_eq!(store.find_response("ada", "resp_2").await.unwrap(), None);
}

#[tokio::test]
async fn what_is_said_after_a_response_without_words_is_no_part_of_it() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    turn(store, &session, 1).await;
    store.delete_item(&session, "a1", 30).await.unwrap();
    let end = async || found(store, "resp_1").await.end.unwrap();
    assert!(end().await.is_last);
    put(store, &session, "u2", message(Role::User, "again"), ItemPlace::After("u1".into()), 40).await.unwrap();
    assert_eq!((end().await.last_item.as_deref(), end().await.is_last), (Some("u1"), false));
    let fork = store.fork_session(&session, &end().await.order_key, "sess_fork".into(), 40).await.unwrap();
    assert_eq!(texts(store, &fork).await, ["question 1"]);
    // The same for a first item after all were deleted.
    for item in ["u1", "u2"] {
        store.delete_item(&session, item, 50).await.unwrap();
    }
    put(store, &session, "u3", message(Role::User, "new"), ItemPlace::Head, 60).await.unwrap();
    assert!(!end().await.is_last);
}

#[tokio::test]
async fn how_it_ended_comes_back() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let failure = Failure::new(FailureCode::EngineFailed, "the engine failed");
    for (n, (status, details)) in [
        (ResponseStatus::Cancelled, Some(StatusDetails::Cancelled)),
        (ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens)),
        (ResponseStatus::Failed, Some(StatusDetails::Failed(failure))),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("resp_{n}");
        store.begin_response(&session, new_response(&id), 20).await.unwrap();
        let begun = found(store, &id).await;
        assert_eq!((begun.status, begun.usage, begun.end), (ResponseStatus::InProgress, None, None));
        finish(store, &session, &id, status, details.clone()).await;
        let kept = found(store, &id).await;
        assert_eq!((kept.status, kept.details), (status, details));
    }
}

#[tokio::test]
async fn a_deleted_response_is_not_found_and_its_words_stay() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    turn(store, &session, 1).await;
    store.delete_response(&session, "resp_1", 30).await.unwrap();
    assert_eq!(store.find_response("ada", "resp_1").await.unwrap(), None);
    let again = store.delete_response(&session, "resp_1", 31).await;
    assert_eq!(again, Err(Error::NoResponse { response: "resp_1".into() }));
    assert_eq!(texts(store, &session).await, ["question 1", "answer 1"]);
    // A response in progress is not deleted.
    store.begin_response(&session, new_response("resp_2"), 32).await.unwrap();
    assert!(store.delete_response(&session, "resp_2", 33).await.is_err());
}

#[tokio::test]
async fn a_fork_has_what_was_said_until_then() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    let store = fixture.store.clone();
    for n in 1..=3 {
        turn(&store, &session, n).await;
    }
    store.delete_item(&session, "u1", 30).await.unwrap();
    store.truncate(&session, "a2", 0, 6, 30).await.unwrap();
    store.add_pin(&session, "the user likes tea", Some("u2"), MadeBy::Model, 31).await.unwrap();
    store.add_pin(&session, "the user likes beer", Some("u3"), MadeBy::Model, 31).await.unwrap();
    store.add_pin(&session, "speak slowly", None, MadeBy::User, 31).await.unwrap();
    let end = found(&store, "resp_2").await.end.unwrap();
    let fork = store.fork_session(&session, &end.order_key, "sess_fork".into(), 40).await.unwrap();
    assert_eq!(texts(&store, &fork).await, ["answer 1", "question 2", "answer"]);
    assert_eq!(texts(&store, &session).await, ["answer 1", "question 2", "answer", "question 3", "answer 3"]);
    let (view, original) = (store.load(&fork).await.unwrap(), store.load(&session).await.unwrap());
    assert_eq!(view.session.config, original.session.config);
    assert_eq!(view.items[2].heard_chars, Some(6));
    let pins: Vec<_> = view.pins.iter().map(|pin| pin.text.as_str()).collect();
    assert_eq!(pins, ["the user likes tea", "speak slowly"]);
    // Neither sees the other's later items, and both are sound.
    say(&store, &fork, "u4", "question 4", 50).await;
    assert_eq!(texts(&store, &session).await.len(), 5);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    // Its responses belong to the session that they were made in.
    assert_eq!(found(&store, "resp_2").await.session, session);
    fixture.reopen(60).await;
    assert_eq!(texts(&fixture.store, &fork).await.len(), 4);
    store_forgets_a_deleted_original(&fixture.store, &session, &fork).await;
}

async fn store_forgets_a_deleted_original(store: &Store, session: &SessionRef, fork: &SessionRef) {
    store.delete_session(session, 70).await.unwrap();
    assert_eq!(texts(store, fork).await.len(), 4);
    let order_key = store.load(fork).await.unwrap().items[0].order_key.clone();
    let gone = store.fork_session(session, &order_key, "sess_other".into(), 80).await;
    assert_eq!(gone.err(), Some(Error::NoSession { session: session.id().to_owned() }));
    assert_eq!(store.list_sessions("ada", None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_fork_has_the_summary_that_tells_nothing_of_later() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    for n in 1..=200 {
        turn(store, &session, n).await;
    }
    for (to, text) in [("a100", "half"), ("a150", "most")] {
        let summary = Summary {
            from_item: "u1".into(),
            to_item: to.into(),
            text: text.into(),
            applied_at_ms: Some(30),
            created_at_ms: 30,
            ..Summary::default()
        };
        store.add_applied_summary(&session, summary, Vec::new()).await.unwrap();
    }
    let end = found(store, "resp_120").await.end.unwrap();
    let fork = store.fork_session(&session, &end.order_key, "sess_fork".into(), 40).await.unwrap();
    let view = store.load(&fork).await.unwrap();
    assert_eq!(view.summary.as_ref().map(|summary| summary.text.as_str()), Some("half"));
    assert!(!view.summary_is_stale);
    assert_eq!((view.items.len(), view.items[0].said().as_str()), (40, "question 101"));
    assert_eq!(store.items(&fork, None, 1000).await.unwrap().len(), 240);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_begins_with_all_items_or_none_and_is_read_from_both_ends() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let item = |id: &str, text: &str| Item::new(id, message(Role::User, text), ItemStatus::Completed);
    let begin = async |items| store.create_session_with(new_session("ada", None, 20), items, None, 20).await;
    let session = begin(vec![item("a", "one"), item("b", "two"), item("c", "three")]).await.unwrap();
    let before = store.list_sessions("ada", None, 8).await.unwrap();
    let refused = begin(vec![item("d", "four"), item("d", "again")]).await;
    assert_eq!(refused, Err(Error::ItemExists { item: "d".into() }));
    assert_eq!(store.list_sessions("ada", None, 8).await.unwrap(), before);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    assert_eq!(texts(store, &session).await, ["one", "two", "three"]);
    let said = |items: Vec<ItemVersion>| items.iter().map(ItemVersion::said).collect::<Vec<_>>();
    assert_eq!(said(store.items_backwards(&session, None, 2).await.unwrap().rows), ["three", "two"]);
    assert_eq!(said(store.items_backwards(&session, Some("b"), 2).await.unwrap().rows), ["one"]);
    assert_eq!(store.item(&session, "b").await.unwrap().said(), "two");
    assert_eq!(store.item(&session, "x").await, Err(Error::NoItem { item: "x".into() }));
}

#[tokio::test]
async fn what_a_client_keeps_with_a_conversation_is_exported_and_imported() {
    let (fixture, other) = (Fixture::new().await, Fixture::new().await);
    let session = fixture.session().await;
    assert_eq!(fixture.store.session(&session).await.unwrap().metadata, None);
    fixture.store.set_metadata(&session, json!({ "room": "hall" }), 30).await.unwrap();
    let imported = import(&other.store, None, &export(&fixture.store, &session).await).await.unwrap();
    assert_eq!(other.store.session(&imported[0]).await.unwrap().metadata, Some(json!({ "room": "hall" })));
}

/// Counts writes of another session that are acknowledged while a large write is on its way.
#[tokio::test]
async fn writes_of_others_come_between_the_pieces_of_a_large_one() {
    let fixture = Fixture::new().await;
    let (store, other) = (&fixture.store, fixture.session().await);
    let item = |n: usize| Item::new(format!("item_{n}"), message(Role::User, "word"), ItemStatus::Completed);
    let items = || (0..1000).map(item).collect::<Vec<_>>();
    let owner = LogOwner { user: "ada".into(), ..LogOwner::default() };
    let addition = || LogAddition { items: items(), ..LogAddition::default() };
    let kept = store.create_session(new_session("ada", None, 20)).await.unwrap();
    let large: [(&str, futures_util::future::BoxFuture<'_, ()>); 3] = [
        (
            "create_session_with",
            Box::pin(async {
                store.create_session_with(new_session("ada", None, 20), items(), None, 20).await.unwrap();
            }),
        ),
        (
            "begin_log",
            Box::pin(async {
                store.begin_log(&owner, new_session("ada", None, 20), addition(), 20).await.unwrap();
            }),
        ),
        (
            "keep_log",
            Box::pin(async {
                assert!(store.keep_log(&owner, &kept, addition(), 20).await.unwrap());
            }),
        ),
    ];
    for (name, large) in large {
        let between = std::sync::atomic::AtomicUsize::new(0);
        let small = async {
            for n in 0.. {
                say(store, &other, &format!("{name}_{n}"), "word", 30).await;
                between.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        tokio::select! {
            () = large => {}
            () = small => {}
        }
        let between = between.into_inner();
        assert!(between >= 8, "{name}: only {between} writes came between");
    }
}

#[tokio::test]
async fn a_deleted_response_leaves_no_word_of_its_metadata() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let metadata = Some(r#"{"note":"xylophone"}"#.into());
    store.begin_response(&session, NewResponse { metadata, ..new_response("resp_1") }, 20).await.unwrap();
    let finished = FinishedResponse {
        id: "resp_1".into(),
        status: session::ResponseStatus::Completed,
        details: None,
        usage: session::Usage::default(),
        finished_at_ms: 21,
    };
    store.finish_response(&session, finished).await.unwrap();
    assert_ne!(crate::delete::files_with(fixture.folder.path(), "xylophone"), Vec::<String>::new());
    store.delete_response(&session, "resp_1", 22).await.unwrap();
    store.settle_the_log().await.unwrap();
    assert_eq!(crate::delete::files_with(fixture.folder.path(), "xylophone"), Vec::<String>::new());
}
