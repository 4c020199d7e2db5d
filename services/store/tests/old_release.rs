//! Data of an older release: `data/README.md` says how it was made and what is in it.

use crate::quota::stored_bytes;
use crate::support::*;
use crate::transfer::{export, import};
use serde_json::{Value, json};
use session::ItemBody;
use sqlx::{ConnectOptions, Connection};
use std::path::Path;
use store::*;
use tempfile::TempDir;

const STORE: &[u8] = include_bytes!("data/schema-3.sqlite3");
const EXPORTED: &str = include_str!("data/schema-3.jsonl");

fn told(what: &str) -> String {
    let told: Value = serde_json::from_str(include_str!("data/schema-3.json")).unwrap();
    told[what].as_str().unwrap().to_owned()
}

async fn opened() -> (TempDir, Store) {
    let folder = copied();
    let store = Store::open(&options(folder.path()), 1).await.unwrap();
    (folder, store)
}

fn copied() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(options(folder.path()).path, STORE).unwrap();
    folder
}

async fn run(path: &Path, statements: &'static str) {
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    sqlx::raw_sql(statements).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

/// Parses the lines, without the token ids that this release no longer writes, and a count that the older one had not.
fn lines(text: &str) -> Vec<Value> {
    let of_both = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        for field in ["tokens", "warm_tokens"] {
            line.as_object_mut().unwrap().remove(field);
        }
        line
    };
    text.lines().map(of_both).collect()
}

#[tokio::test]
async fn it_exports_what_the_older_release_exported() {
    let (_folder, store) = opened().await;
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let mut exported = Vec::new();
    for (user, session) in [("ann", "kitchen"), ("ann", "hall"), ("ben", "chat")] {
        let session = store.open_session(user, &told(session)).await.unwrap();
        exported.extend(lines(&export(&store, &session).await));
    }
    assert_eq!(exported, lines(EXPORTED));
}

#[tokio::test]
async fn an_export_of_the_older_release_is_taken_in() {
    let (_folder, store) = opened().await;
    let fixture = Fixture::new().await;
    let imported = import(&fixture.store, None, EXPORTED).await.unwrap();
    assert_eq!(fixture.store.check().await.unwrap(), Vec::<String>::new());
    for session in imported {
        let original = store.open_session(session.user(), session.id()).await.unwrap();
        let (here, there) = (fixture.store.load(&session).await.unwrap(), store.load(&original).await.unwrap());
        assert_eq!(here, there);
        assert_eq!(export(&fixture.store, &session).await, export(&store, &original).await);
    }
}

#[tokio::test]
async fn conversations_stand_as_they_were_left() {
    let (_folder, store) = opened().await;
    let kitchen = store.open_session("ann", &told("kitchen")).await.unwrap();
    let view = store.load(&kitchen).await.unwrap();
    assert_eq!((view.session.placement.preset.as_str(), view.session.placement.ctx_size), ("builtin-1k", 1000));
    assert_eq!(
        (view.session.placement.experiment.as_deref(), view.session.placement.arm.as_deref()),
        (Some("windows"), Some("builtin-1k"))
    );
    assert_eq!(view.session.config.instructions, "You are the kitchen's assistant.");
    let pins: Vec<_> = view.pins.iter().map(|pin| (pin.text.as_str(), pin.made_by)).collect();
    assert_eq!(pins, [("Remember that my dog eats at seven.", MadeBy::Model), ("Speak slowly.", MadeBy::User)]);
    // A user's summary was applied and undone: the one before it is in use.
    let summary = view.summary.unwrap();
    assert_eq!((summary.version, summary.kind, view.summary_is_stale), (4, SummaryKind::Summary, false));
    let newest = view.newest_summary.unwrap();
    assert_eq!((newest.made_by, newest.text.as_str()), (MadeBy::User, "- Ann lives in London."));
    assert!(newest.undone_at_ms.is_some());
    assert_eq!(view.head[0].said(), "Ann is in the kitchen.");
    let tail: Vec<_> = view.items.iter().map(|item| item.said()).collect();
    assert!(tail.iter().any(|text| text == "Where do I live?") && !tail.iter().any(|text| text.contains("東京")));

    let items = store.items(&kitchen, None, 100).await.unwrap();
    assert!(!items.iter().any(|item| item.item_id == "mistake"));
    let light = items.iter().find(|item| matches!(item.body, ItemBody::FunctionCall { .. })).unwrap();
    assert_eq!(light.said(), r#"set_light {"room":"kitchen","state":"on"}"#);
    let cut = items.iter().find(|item| item.heard_chars.is_some()).unwrap();
    assert_eq!((cut.said().as_str(), cut.status), ("Your dog ", VersionStatus::Interrupted));
    assert_eq!((cut.sent_chars, cut.heard_chars), (Some(48), Some(9)));
    let measured = store.measurements(&kitchen).await.unwrap();
    assert!(measured.iter().any(|turn| turn.feedback == Some(1)) && measured.iter().any(|turn| turn.barged_in));
    assert_eq!(store.experiments().await.unwrap(), ["windows"]);
    let search = HistorySearch {
        user: "ann",
        place: SearchPlace::User,
        query: "東京",
        most_words: 32,
        any_word: false,
        statements: false,
        limit: 5,
        recent_ms: None,
        now_ms: 0,
        marks: ["", ""],
        excerpt_words: 5,
    };
    assert_eq!(store.search(&search).await.unwrap()[0].item_id, "tokyo");
}

#[tokio::test]
async fn replies_that_a_crash_cut_off_are_interrupted() {
    let (_folder, store) = opened().await;
    for session in ["hall", "cellar"] {
        let session = store.open_session("ann", &told(session)).await.unwrap();
        let mut items = store.load(&session).await.unwrap().items;
        let (reply, question) = (items.pop().unwrap(), items.pop().unwrap());
        assert_eq!(question.said(), "What do you know about me?");
        assert_eq!((reply.change, reply.status), (Change::Finished, VersionStatus::Interrupted));
        assert!(reply.said().starts_with("You"), "{reply:?}");
        let response = response_of(&store, &session, &reply.response.unwrap()).await;
        assert_eq!(response["status"], "incomplete");
    }
}

#[tokio::test]
async fn its_keys_open_as_before() {
    let (_folder, store) = opened().await;
    let identity = store.identify(&told("key"), 1).await.unwrap().unwrap();
    assert!(identity.user == "ann" && identity.may(KeyScope::Talk) && identity.may(KeyScope::Sessions));
    assert_eq!(store.identify(&told("revoked"), 1).await.unwrap(), None);
    let secret = store.identify(&told("client_secret"), 1).await.unwrap().unwrap();
    assert_eq!((secret.user.as_str(), secret.session), ("ben", Some(json!({"type": "realtime"}))));
}

#[tokio::test]
async fn what_it_stored_counts_and_no_more_when_it_is_deleted() {
    let (_folder, store) = opened().await;
    for user in ["ann", "ben"] {
        assert!(stored_bytes(store.path(), user).await > 0);
        for line in store.list_sessions(user, None, 100).await.unwrap() {
            let session = store.open_session(user, &line.session.id).await.unwrap();
            store.delete_session(&session, 1).await.unwrap();
        }
    }
    store.sweep(None, i64::MAX).await.unwrap();
    for user in ["ann", "ben"] {
        assert_eq!(stored_bytes(store.path(), user).await, 0);
    }
}

/// The older schema has columns for them, though no release wrote any. The checksum is that release's.
#[tokio::test]
async fn a_version_with_token_ids_is_read_exported_and_imported() {
    let folder = copied();
    run(
        &options(folder.path()).path,
        r#"INSERT INTO tokenizers (key, fingerprint) VALUES (1, zeroblob(32));
        INSERT INTO item_versions (session, seq, item_id, version, change, place, kind, role, content, text, tokenizer, tokens,
            status, created_at_ms, crc)
        SELECT session, max(seq) + 1, 'with-ids', 1, 'created', x'90', 'message', 'user',
            '{"kind":"message","role":"user","parts":[{"type":"input_text","text":"With ids."}]}', 'With ids.', 1,
            x'07000000', 'completed', 5, 1637699405
        FROM item_versions JOIN sessions s ON s.key = session WHERE s.user = 'ben' GROUP BY session;
        INSERT INTO items (session, item_id, current, place, deleted, being_said)
        SELECT session, item_id, key, place, 0, 0 FROM item_versions WHERE item_id = 'with-ids';"#,
    )
    .await;
    let store = Store::open(&options(folder.path()), 1).await.unwrap();
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let session = store.open_session("ben", &told("chat")).await.unwrap();
    let exported = export(&store, &session).await;
    let fixture = Fixture::new().await;
    let imported = import(&fixture.store, None, &exported).await.unwrap();
    assert_eq!(fixture.store.load(&imported[0]).await.unwrap(), store.load(&session).await.unwrap());
    assert_eq!(texts(&fixture.store, &imported[0]).await.last().unwrap(), "With ids.");
}
