use crate::support::*;
use serde_json::json;
use session::{ItemPlace, ResponseStatus, Role, StatusDetails, Usage};
use store::*;

#[tokio::test]
async fn a_session_comes_back_as_it_was_left() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    let first = say(&fixture.store, &session, "u1", "Hello there", 20).await;
    let second =
        put(&fixture.store, &session, "a1", message(Role::Assistant, "Hello, Ada."), ItemPlace::End, 30).await.unwrap();
    assert_eq!((first.seq, first.version, second.seq), (1, 1, 2));
    assert_eq!(texts(&fixture.store, &session).await, ["Hello there", "Hello, Ada."]);

    let before = fixture.store.load(&session).await.unwrap();
    fixture.reopen(99).await;
    let session = fixture.store.open_session("ada", session.id()).await.unwrap();
    let after = fixture.store.load(&session).await.unwrap();
    assert_eq!(before, after);
    assert_eq!(after.session.updated_at_ms, 30);
    assert_eq!(after.session.config, config());
    assert_eq!(after.last_seq, 2);
}

#[tokio::test]
async fn items_go_where_they_are_put_and_come_back_under_their_id() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    for (id, text) in [("a", "one"), ("b", "two"), ("c", "three")] {
        say(store, &session, id, text, 20).await;
    }
    put(store, &session, "x", message(Role::User, "between"), ItemPlace::After("a".into()), 21).await.unwrap();
    put(store, &session, "h", message(Role::System, "head"), ItemPlace::Head, 22).await.unwrap();
    assert_eq!(texts(store, &session).await, ["head", "one", "between", "two", "three"]);

    // A frontend's steps after a barge-in: delete, and create again with the heard text.
    store.delete_item(&session, "b", 30).await.unwrap();
    assert_eq!(
        put(store, &session, "c", message(Role::User, "again"), ItemPlace::End, 31).await,
        Err(Error::ItemExists { item: "c".into() })
    );
    let stored =
        put(store, &session, "b", message(Role::Assistant, "tw"), ItemPlace::After("x".into()), 32).await.unwrap();
    assert_eq!(stored.version, 3);
    assert_eq!(texts(store, &session).await, ["head", "one", "between", "tw", "three"]);

    assert_eq!(
        put(store, &session, "y", message(Role::User, "y"), ItemPlace::After("nobody".into()), 33).await,
        Err(Error::NoItem { item: "nobody".into() })
    );
    assert_eq!(store.delete_item(&session, "nobody", 34).await, Err(Error::NoItem { item: "nobody".into() }));

    let history: Vec<_> = store.history(&session, 0, 100).await.unwrap();
    let said: Vec<_> = history.iter().map(|item| (item.seq, item.item_id.as_str(), item.said())).collect();
    let expected = ["one", "", "three", "between", "head", "", "tw"];
    assert_eq!(said.iter().map(|(_, _, text)| text.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(said.iter().map(|(seq, _, _)| *seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(history[5].change, Change::Deleted);
}

#[tokio::test]
async fn truncation_keeps_what_was_heard_and_the_version_before() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let text = "Es läutet: zwölf Uhr 🕛 ist es";
    put(store, &session, "a", message(Role::Assistant, text), ItemPlace::End, 20).await.unwrap();
    let stored = store.truncate(&session, "a", 0, 22, 30).await.unwrap();
    assert_eq!((stored.seq, stored.version), (2, 2));
    let now = store.load(&session).await.unwrap().items.remove(0);
    assert_eq!(now.said(), "Es läutet: zwölf Uhr 🕛");
    assert_eq!((now.status, now.sent_chars, now.heard_chars), (VersionStatus::Interrupted, Some(29), Some(22)));

    // A cut beyond the end changes no word; a missing part is an error.
    store.truncate(&session, "a", 0, 1_000, 31).await.unwrap();
    let now = store.load(&session).await.unwrap().items.remove(0);
    assert_eq!((now.heard_chars, now.sent_chars), (Some(22), Some(29)));
    let error = store.truncate(&session, "a", 1, 1, 32).await;
    assert_eq!(error, Err(Error::NotTruncatable { item: "a".into(), index: 1 }));
    store.truncate(&session, "a", 0, 0, 33).await.unwrap();
    assert_eq!(texts(store, &session).await, [""]);
    assert_eq!(store.history(&session, 0, 1).await.unwrap()[0].said(), text);
}

#[tokio::test]
async fn a_reply_is_stored_piece_by_piece_and_a_crash_leaves_what_was_sent() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    let store = fixture.store.clone();
    store
        .begin_response(&session, NewResponse { metadata: Some(r#"{"k":"v"}"#.into()), ..new_response("resp_1") }, 20)
        .await
        .unwrap();
    let whole = begin(&store, &session, "whole", "resp_1", 20).await.unwrap();
    extend(&store, &whole, "One. ", 21).await.unwrap();
    assert_eq!(store.delete_item(&session, "whole", 22).await, Err(Error::InProgress { item: "whole".into() }));
    let item = store.load(&session).await.unwrap().items.remove(0);
    assert_eq!((item.status, item.said()), (VersionStatus::InProgress, "One. ".into()));
    let body = message(Role::Assistant, "One. Two.");
    let stored = store.finish_reply(&whole, VersionStatus::Completed, body.clone(), 25).await.unwrap();
    assert_eq!((stored.version, stored.seq), (2, 2));
    let twice = store.finish_reply(&whole, VersionStatus::Completed, body, 25).await;
    assert_eq!(twice, Err(Error::NotInProgress { item: "whole".into() }));
    let usage = Usage { input_tokens: 2, cached_tokens: 1, output_tokens: 1, reasoning_tokens: 0 };
    let response = FinishedResponse {
        id: "resp_1".into(),
        status: ResponseStatus::Incomplete,
        details: Some(StatusDetails::MaxOutputTokens),
        usage,
        finished_at_ms: 25,
    };
    store.finish_response(&session, response.clone()).await.unwrap();
    let kept = response_of(&store, &session, "resp_1").await;
    assert_eq!((&kept["status"], &kept["metadata"]), (&json!("incomplete"), &json!({"k": "v"})));
    assert_eq!(kept["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!((&kept["usage"]["total_tokens"], &kept["finished_at_ms"]), (&json!(3), &json!(25)));
    let twice = store.finish_response(&session, response).await;
    assert_eq!(twice, Err(Error::NoResponse { response: "resp_1".into() }));

    store.begin_response(&session, new_response("resp_2"), 30).await.unwrap();
    let cut = begin(&store, &session, "cut", "resp_2", 20).await.unwrap();
    extend(&store, &cut, "It is ", 21).await.unwrap();
    extend(&store, &cut, "twelve", 21).await.unwrap();
    let open = store.load(&session).await.unwrap();
    assert_eq!((open.items[1].status, open.items[1].said()), (VersionStatus::InProgress, "It is twelve".into()));

    // Without a finish, as after a crash.
    fixture.reopen(50).await;
    let view = fixture.store.load(&session).await.unwrap();
    let item = &view.items[1];
    assert_eq!((item.status, item.said()), (VersionStatus::Interrupted, "It is twelve".into()));
    assert_eq!((item.sent_chars, item.created_at_ms), (Some(12), 50));
    let response = response_of(&fixture.store, &session, "resp_2").await;
    assert_eq!((&response["status"], &response["finished_at_ms"]), (&json!("incomplete"), &json!(50)));
    let late = extend(&fixture.store, &cut, " o'clock", 21).await;
    assert_eq!(late, Err(Error::NotInProgress { item: "cut".into() }));
}

#[tokio::test]
async fn nobody_reaches_another_users_session() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = store.create_session(new_session("ada", Some("diary"), 10)).await.unwrap();
    let missing = Err(Error::NoSession { session: "diary".into() });
    assert_eq!(store.open_session("bob", "diary").await.map(|_| ()), missing);
    assert_eq!(store.list_sessions("bob", None, 10).await.unwrap(), []);
    // The same id is free for another user, and is another session.
    let other = store.create_session(new_session("bob", Some("diary"), 10)).await.unwrap();
    say(store, &session, "u", "mine", 20).await;
    assert_eq!(texts(store, &other).await, Vec::<String>::new());
    let twice = store.create_session(new_session("ada", Some("diary"), 10)).await;
    assert_eq!(twice, Err(Error::SessionExists { session: "diary".into() }));
    let nobody = store.create_session(new_session("eve", None, 10)).await;
    assert_eq!(nobody, Err(Error::NoUser { user: "eve".into() }));
}

#[tokio::test]
async fn a_write_that_fails_takes_nobody_with_it() {
    let fixture = Fixture::new().await;
    let (store, session) = (fixture.store.clone(), fixture.session().await);
    say(&store, &session, "taken", "here", 20).await;
    let writes = (0..100).map(|n| {
        let (store, session) = (store.clone(), session.clone());
        let id = if n % 10 == 0 { "taken".to_owned() } else { format!("item{n}") };
        tokio::spawn(async move {
            put(&store, &session, &id, message(Role::User, &n.to_string()), ItemPlace::End, 30).await
        })
    });
    let mut refused = 0;
    for write in writes.collect::<Vec<_>>() {
        match write.await.unwrap() {
            Ok(_) => {}
            Err(Error::ItemExists { item }) if item == "taken" => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(refused, 10);
    let view = store.load(&session).await.unwrap();
    assert_eq!((view.items.len(), view.last_seq), (91, 91));
}

#[tokio::test]
async fn the_schema_refuses_to_rewrite_what_was_said() {
    use sqlx::{ConnectOptions, Connection};
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    say(&fixture.store, &session, "u", "the truth", 20).await;
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.store.path());
    let mut connection = file.connect().await.unwrap();
    let error = sqlx::query("UPDATE item_versions SET text = 'a lie'").execute(&mut connection).await.unwrap_err();
    assert!(error.to_string().contains("append-only"), "{error}");
    connection.close().await.unwrap();
}

#[tokio::test]
async fn items_that_clients_do_not_know_of_are_not_counted() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    for id in ["item_1", "recall_note_1", "item_2", "recall_1", "recalled"] {
        say(store, &session, id, "Hello.", 20).await;
    }
    assert_eq!(store.recent_logs(session.user(), 10, 8).await.unwrap(), []);
    store.set_is_log(&session).await.unwrap();
    let recent = store.recent_logs(session.user(), 10, 8).await.unwrap();
    assert_eq!(recent, [(session.id().to_owned(), 3)]);
}
