//! Quotas: clients' data counts and may be refused; the service's own counts too, and is never refused.

use crate::support::*;
use serde_json::{Value, json};
use session::{Item, ItemPlace, ItemStatus, Role, SessionConfig, Tool};
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use std::path::Path;
use store::*;

const MINUTE_MS: i64 = 60_000;

/// Returns the stored count of a user, after a check against its rows.
pub async fn stored_bytes(path: &Path, user: &str) -> i64 {
    let mut connection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let query = sqlx::query_as(
        "SELECT stored_bytes,
            (SELECT coalesce(sum(octet_length(v.content) + 512), 0)
                FROM sessions s JOIN item_versions v ON v.session = s.key WHERE s.user = users.id)
            + (SELECT coalesce(sum(octet_length(instructions) + octet_length(tools) + octet_length(settings)
                + octet_length(coalesce(metadata, '')) + 512), 0) FROM sessions WHERE user = users.id)
            + (SELECT coalesce(sum(octet_length(session) + 512), 0) FROM client_secrets WHERE user = users.id)
            + (SELECT coalesce(sum(octet_length(r.metadata) + 512), 0)
                FROM sessions s JOIN responses r ON r.session = s.key WHERE s.user = users.id)
            + (SELECT coalesce(sum(octet_length(m.text) + 512), 0)
                FROM sessions s JOIN summaries m ON m.session = s.key WHERE s.user = users.id)
            + (SELECT coalesce(sum(octet_length(p.text) + 512), 0)
                FROM sessions s JOIN pins p ON p.session = s.key WHERE s.user = users.id)
            + (SELECT coalesce(sum(octet_length(text) + octet_length(words) + 512), 0) FROM facts WHERE user = users.id)
            + (SELECT coalesce(sum(imported_bytes), 0) FROM sessions WHERE user = users.id)
         FROM users WHERE id = ?",
    );
    let (noted, counted): (i64, i64) = query.bind(user).fetch_one(&mut connection).await.unwrap();
    assert_eq!(noted, counted, "of {user}");
    noted
}

/// Reopens the store with other limits; the caller's handle is closed.
async fn limited(fixture: &Fixture, user_bytes: u64, user_bytes_per_minute: u64) -> Store {
    fixture.store.close().await.unwrap();
    let limits = StoreOptions { user_bytes, user_bytes_per_minute, ..options(fixture.folder.path()) };
    Store::open(&limits, 0).await.unwrap()
}

fn item(id: &str, text: &str) -> Item {
    Item::new(id, message(Role::User, text), ItemStatus::Completed)
}

fn fact(id: &str, found_by: FoundBy) -> NewFact {
    NewFact {
        id: id.into(),
        person: String::new(),
        about: id.into(),
        text: "Ada likes tea.".into(),
        asked: true,
        found_by,
        confidence: 1.0,
        item_id: None,
        words: "I like tea.".into(),
        said_by: String::new(),
        said_at_ms: 1,
    }
}

fn summary(made_by: MadeBy) -> Summary {
    Summary {
        made_by,
        from_item: "i0".into(),
        to_item: "i1".into(),
        through_seq: 3,
        text: "They spoke of tea.".into(),
        pins: json!([]),
        checks: json!({}),
        created_at_ms: 50,
        ..Summary::default()
    }
}

fn ada() -> Identity {
    Identity { user: "ada".into(), key: None, key_name: None, scopes: vec![KeyScope::Talk], session: None }
}

async fn secret(store: &Store, session: Value, now_ms: i64) -> Result<(), Error> {
    store.create_client_secret(&ada(), session, 1000, now_ms).await.map(drop)
}

async fn full() -> (Fixture, Store, SessionRef) {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    for n in 0..3 {
        say(&fixture.store, &session, &format!("i{n}"), "text", 20 + n).await;
    }
    let store = limited(&fixture, 1, 0).await;
    (fixture, store, session)
}

#[tokio::test]
async fn without_room_a_client_stores_nothing() {
    let (fixture, store, session) = full().await;
    let before = stored_bytes(store.path(), "ada").await;
    let first = store.item(&session, "i0").await.unwrap();
    let new = || new_session("ada", None, 30);
    let name = SessionName { door: "wyoming".into(), name: "hall".into() };
    let owner = LogOwner { user: "ada".into(), ..LogOwner::default() };
    let addition = |behind: Option<&str>| LogAddition {
        behind: behind.map(str::to_owned),
        items: vec![item("l0", "text")],
        ..LogAddition::default()
    };
    let refused = [
        ("append", store.append(&session, item("i3", "text"), ItemPlace::End, 30).await.map(drop)),
        ("truncate", store.truncate(&session, "i0", 0, 1, 30).await.map(drop)),
        ("set_config", store.set_config(&session, &config(), 30).await),
        ("set_metadata", store.set_metadata(&session, json!({}), 30).await),
        ("begin_response", store.begin_response(&session, new_response("resp_0"), 30).await),
        ("create_session", store.create_session(new()).await.map(drop)),
        ("create_session_with", store.create_session_with(new(), vec![item("l0", "text")], None, 30).await.map(drop)),
        ("create_named_session", store.create_named_session(new(), name).await.map(drop)),
        ("begin_log", store.begin_log(&owner, new(), addition(None), 30).await),
        ("keep_log", store.keep_log(&owner, &session, addition(Some("i2")), 30).await.map(drop)),
        ("fork_session", store.fork_session(&session, &first.order_key, "fork".into(), 30).await.map(drop)),
        ("create_client_secret", secret(&store, json!({}), 30).await),
        ("put_fact", store.put_fact("ada", fact("f0", FoundBy::User), vec![], 30).await),
        ("add_pin", store.add_pin(&session, "tea", None, MadeBy::User, 30).await.map(drop)),
        ("add_applied_summary", store.add_applied_summary(&session, summary(MadeBy::User), vec![]).await.map(drop)),
    ];
    for (write, result) in refused {
        assert_eq!(result, Err(Error::UserFull { limit: 1 }), "{write}");
    }
    assert_eq!(stored_bytes(store.path(), "ada").await, before);
    // Another user has room, and an unknown user gets the right error.
    assert_eq!(store.create_session(new_session("eve", None, 30)).await, Err(Error::NoUser { user: "eve".into() }));
    let unlimited = limited(&Fixture { store, ..fixture }, 0, 0).await;
    unlimited.create_session(new_session("bob", None, 30)).await.unwrap();
}

#[tokio::test]
async fn without_room_the_service_stores_what_was_said_and_what_it_makes_of_it() {
    let (_fixture, store, session) = full().await;
    let reply = begin(&store, &session, "a0", "resp_0", 30).await.unwrap();
    extend(&store, &reply, "Tea ", 31).await.unwrap();
    let said = || message(Role::Assistant, "Tea is fine.");
    store.finish_reply(&reply, VersionStatus::Interrupted, said(), 32).await.unwrap();
    let again = Item::new("a0", said(), ItemStatus::InProgress);
    let resumed = store.resume_reply(&session, again, "resp_1", 33).await.unwrap();
    store.finish_reply(&resumed, VersionStatus::Completed, said(), 34).await.unwrap();
    // A reply that no client heard gives its room back.
    let withdrawn = begin(&store, &session, "a1", "resp_2", 35).await.unwrap();
    store.finish_reply(&withdrawn, VersionStatus::Cancelled, message(Role::Assistant, ""), 36).await.unwrap();
    assert_eq!(store.delete_item(&session, "a1", 36).await.unwrap().change, Change::Deleted);
    assert_eq!(texts(&store, &session).await, ["text", "text", "text", "Tea is fine."]);

    let facts = FactChanges { new: vec![fact("f0", FoundBy::Words), fact("f1", FoundBy::Model)], ..Default::default() };
    store.remember(&session, facts, HeardThrough::Words(3), 40).await.unwrap();
    let version = store.add_summary(&session, summary(MadeBy::Model)).await.unwrap();
    store.apply_summary(&session, version, vec![], 51).await.unwrap();
    let drop = Summary { kind: SummaryKind::Drop, text: String::new(), ..summary(MadeBy::Fallback) };
    store.add_applied_summary(&session, drop, vec![]).await.unwrap();
    store.add_pin(&session, "Ada likes tea.", None, MadeBy::Model, 52).await.unwrap();
    store.add_measurement(&session, measurement(1)).await.unwrap();

    // Forgotten and deleted data counts no more.
    let (path, before) = (store.path().to_owned(), stored_bytes(store.path(), "ada").await);
    store.forget_facts("ada", vec!["f0".into()], 60).await.unwrap();
    assert_eq!(stored_bytes(&path, "ada").await, before - ("Ada likes tea.".len() + "I like tea.".len()) as i64);
    store.delete_session(&session, 61).await.unwrap();
    assert_eq!(stored_bytes(&path, "ada").await, 0);
}

#[tokio::test]
async fn settings_count_as_they_are_stored() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    let store = limited(&fixture, 0, 8_000).await;
    // Each of these characters takes six in JSON.
    let tool = Tool { name: "\u{1}".repeat(2_000), description: None, parameters: None, verbatim: None };
    let config = SessionConfig { tools: vec![tool], ..SessionConfig::new("Be brief.") };
    let too_fast = Err(Error::TooFast { limit: 8_000 });
    assert_eq!(store.set_config(&session, &config, MINUTE_MS).await, too_fast);
    let new = SessionRecord { config, ..new_session("ada", None, 2 * MINUTE_MS) };
    assert_eq!(store.create_session(new).await.map(drop), too_fast);
    let metadata = Some(json!({ "notes": "x".repeat(8_000) }));
    let new = SessionRecord { metadata, ..new_session("ada", None, 3 * MINUTE_MS) };
    assert_eq!(store.create_session(new).await.map(drop), too_fast);
    stored_bytes(store.path(), "ada").await;
}

#[tokio::test]
async fn secrets_that_expired_give_their_room_back_when_one_is_made() {
    let fixture = Fixture::new().await;
    // More than go in one transaction.
    for _ in 0..250 {
        secret(&fixture.store, json!({}), 10).await.unwrap();
    }
    secret(&fixture.store, json!({}), 5_000).await.unwrap();
    let one = 512 + 2;
    assert_eq!(stored_bytes(fixture.store.path(), "ada").await, one);
    // The same if the new one is refused.
    let store = limited(&fixture, 2_000, 0).await;
    let large = json!({ "instructions": "word ".repeat(1_000) });
    assert_eq!(secret(&store, large, 7_000).await, Err(Error::UserFull { limit: 2_000 }));
    assert_eq!(stored_bytes(store.path(), "ada").await, 0);
    secret(&store, json!({}), 7_000).await.unwrap();
    store.sweep(None, 9_000).await.unwrap();
    assert_eq!(stored_bytes(store.path(), "ada").await, 0);
}

#[tokio::test]
async fn a_session_that_branches_off_counts_with_what_stands_for_its_past() {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    let item = say(&fixture.store, &session, "i0", "text", 20).await;
    for _ in 0..3 {
        fixture.store.add_pin(&session, &"word ".repeat(600), None, MadeBy::User, 30).await.unwrap();
    }
    let store = limited(&fixture, 0, 20_000).await;
    let fork = async |id: &str| store.fork_session(&session, &item.order_key, id.into(), MINUTE_MS).await.map(drop);
    fork("first").await.unwrap();
    let before = stored_bytes(store.path(), "ada").await;
    assert_eq!(fork("second").await, Err(Error::TooFast { limit: 20_000 }));
    assert_eq!(stored_bytes(store.path(), "ada").await, before);
}

/// Numbers, titles and ids of any size come with an import, and count like words.
#[tokio::test]
async fn all_of_an_imported_file_counts() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    say(store, &session, "u", "hello", 20).await;
    let large = json!({ "pages": "x".repeat(50_000) });
    store.add_measurement(&session, Measurement { memory: large, ..measurement(1) }).await.unwrap();
    let lines = crate::transfer::export(store, &session).await;
    let lines = lines.replace("\"title\":\"Kitchen\"", &format!("\"title\":\"{}\"", "y".repeat(30_000)));
    crate::transfer::import(store, Some("bob"), &lines).await.unwrap();
    let counted = stored_bytes(store.path(), "bob").await;
    assert!((80_000..84_000).contains(&counted), "{counted}");
    let imported = store.open_session("bob", session.id()).await.unwrap();
    store.delete_session(&imported, 60).await.unwrap();
    assert_eq!(stored_bytes(store.path(), "bob").await, 0);
}
