//! Stores with every kind of data, each written by the code of one schema: every later release must read all of it.
//!
//! `write` is the recipe. After a new migration, `cargo test -p store -- --ignored make_full_store` writes a store of the
//! new schema beside the older ones, and its row in `KEPT` makes the tests read it: `data/README.md`.

use crate::support::*;
use crate::transfer::export;
use serde_json::{Value, json};
use session::{
    Failure, FailureCode, Item, ItemBody, ItemPlace, ItemStatus, JsonText, NamedSpeaker, NoteSource, ResponseStatus,
    Role, SessionConfig, StatusDetails, Usage,
};
use sqlx::{ConnectOptions, Connection};
use std::path::{Path, PathBuf};
use store::*;
use tempfile::TempDir;

/// Store, journal of words, and what the release that wrote them read in them.
struct KeptStore {
    schema: i64,
    file: &'static [u8],
    words: &'static [u8],
    read: &'static str,
}

const KEPT: [KeptStore; 1] = [KeptStore {
    schema: 15,
    file: include_bytes!("data/schema-15.sqlite3"),
    words: include_bytes!("data/schema-15.sqlite3-words"),
    read: include_str!("data/schema-15.json"),
}];

const OPENED_MS: i64 = 5_000;
/// Tables that stay empty: no release writes them any more.
const UNUSED: [&str; 1] = ["tokenizers"];

const EXPERIMENT: &str = "windows";
const OWNER: [&str; 3] = ["ada", "ann", "kitchen"];
const RESPONSES: [&str; 5] = ["resp_light", "resp_story", "resp_beside", "resp_failed", "resp_killed"];

fn owner() -> LogOwner {
    let [user, person, room] = OWNER.map(str::to_owned);
    LogOwner { user, person, room }
}

fn name() -> SessionName {
    SessionName { door: "wyoming satellite".into(), name: "hall".into() }
}

async fn write(store: &Store) -> Value {
    store.put_user("ada", "Ada", 1).await.unwrap();
    store.put_user("bob", "Bob", 1).await.unwrap();
    let secrets = write_keys(store).await;
    let kitchen = write_kitchen(store).await;
    write_facts(store, &kitchen).await;
    write_summaries(store, &kitchen).await;
    write_other_sessions(store, &kitchen).await;
    write_killed_reply(store, &kitchen).await;
    secrets
}

async fn write_keys(store: &Store) -> Value {
    let scopes = [KeyScope::Talk, KeyScope::Sessions];
    let (_, key) = store.create_key("ada", "kitchen tablet", &scopes, 10).await.unwrap();
    let (revoked, revoked_key) = store.create_key("bob", "old phone", &[KeyScope::Admin], 11).await.unwrap();
    let identity = store.identify(&key, 70_000).await.unwrap().unwrap();
    let session = json!({"type": "realtime", "instructions": "Be brief."});
    let secret = store.create_client_secret(&identity, session, 1_000_000, 12).await.unwrap();
    store.revoke_key(&revoked.id, 13).await.unwrap();
    json!({"key": key, "revoked": revoked_key, "client_secret": secret.value})
}

async fn write_kitchen(store: &Store) -> SessionRef {
    let new = SessionRecord {
        person: "ann".into(),
        room: "kitchen".into(),
        is_remembered: true,
        placement: Placement {
            preset: "small".into(),
            ctx_size: 1000,
            experiment: Some(EXPERIMENT.into()),
            arm: Some("a".into()),
        },
        ..new_session("ada", Some("sess_kitchen"), 20)
    };
    let kitchen = store.create_session(new).await.unwrap();
    let head = message(Role::System, "You are in the kitchen.");
    put(store, &kitchen, "head", head, ItemPlace::Head, 21).await.unwrap();
    let speaker = Some(NamedSpeaker { name: "Ann".into(), person: Some("ann".into()) });
    let body = ItemBody::Message { role: Role::User, parts: vec!["Light on, ".into(), "please.".into()], speaker };
    put(store, &kitchen, "light", body, ItemPlace::End, 22).await.unwrap();
    let metadata = JsonText::from(r#"{"client_event_id":"mine"}"#);
    store
        .begin_response(&kitchen, NewResponse { metadata: Some(metadata), ..new_response("resp_light") }, 23)
        .await
        .unwrap();
    let call = ItemBody::FunctionCall {
        call_id: "call_1".into(),
        name: "light".into(),
        arguments: r#"{"room":"kitchen","on":true}"#.into(),
    };
    finished(store, &kitchen, "call", "resp_light", call, VersionStatus::Completed).await;
    let output = ItemBody::FunctionCallOutput { call_id: "call_1".into(), output: r#"{"state":"on"}"#.into() };
    put(store, &kitchen, "output", output, ItemPlace::End, 26).await.unwrap();
    finish(store, &kitchen, "resp_light", ResponseStatus::Completed, None, 27).await;

    say(store, &kitchen, "story", "Erzähl mir von 東京.", 30).await;
    store.begin_response(&kitchen, new_response("resp_story"), 31).await.unwrap();
    let told = message(Role::Assistant, "Once upon a time. There was");
    finished(store, &kitchen, "told", "resp_story", told, VersionStatus::Interrupted).await;
    store.truncate(&kitchen, "told", 0, 9, 34).await.unwrap();
    finish(store, &kitchen, "resp_story", ResponseStatus::Cancelled, Some(StatusDetails::Cancelled), 35).await;
    store
        .begin_response(&kitchen, NewResponse { in_conversation: false, ..new_response("resp_beside") }, 36)
        .await
        .unwrap();
    let limit = Some(StatusDetails::MaxOutputTokens);
    finish(store, &kitchen, "resp_beside", ResponseStatus::Incomplete, limit, 37).await;
    store.begin_response(&kitchen, new_response("resp_failed"), 38).await.unwrap();
    let failure = StatusDetails::Failed(Failure::new(FailureCode::EngineFailed, "the model stopped"));
    finish(store, &kitchen, "resp_failed", ResponseStatus::Failed, Some(failure), 39).await;

    say(store, &kitchen, "mistake", "My code is 1234.", 40).await;
    store.delete_item(&kitchen, "mistake", 41).await.unwrap();
    say(store, &kitchen, "mistake", "Never mind.", 42).await;
    let config = SessionConfig { reasoning_effort: Some("low".into()), ..config() };
    store.set_config(&kitchen, &config, 43).await.unwrap();
    store.set_metadata(&kitchen, json!({"topic": "light"}), 44).await.unwrap();
    for turn in [1, 2] {
        let response = Some(RESPONSES[turn as usize - 1].to_owned());
        let measured = Measurement { response, experiment: Some(EXPERIMENT.into()), ..measurement(turn) };
        store.add_measurement(&kitchen, measured).await.unwrap();
    }
    store.set_barged_in(&kitchen, "told").await.unwrap();
    store.set_feedback(&kitchen, "resp_light", 1).await.unwrap();
    kitchen
}

async fn finished(
    store: &Store,
    session: &SessionRef,
    id: &str,
    response: &str,
    body: ItemBody,
    status: VersionStatus,
) {
    let empty = match &body {
        ItemBody::FunctionCall { call_id, name, .. } => {
            ItemBody::FunctionCall { call_id: call_id.clone(), name: name.clone(), arguments: String::new() }
        }
        _ => message(Role::Assistant, ""),
    };
    let item = Item::new(id, empty, ItemStatus::InProgress);
    let reply = store.begin_reply(session, item, ItemPlace::End, response, 24).await.unwrap();
    store.finish_reply(&reply, status, body, 25).await.unwrap();
}

async fn finish(
    store: &Store,
    session: &SessionRef,
    id: &str,
    status: ResponseStatus,
    details: Option<StatusDetails>,
    finished_at_ms: i64,
) {
    let usage = Usage { input_tokens: 31, cached_tokens: 20, output_tokens: 4, reasoning_tokens: 1 };
    let response = FinishedResponse { id: id.into(), status, details, usage, finished_at_ms };
    store.finish_response(session, response).await.unwrap();
}

fn fact(id: &str, person: &str, text: &str, item: Option<&str>) -> NewFact {
    NewFact {
        id: id.into(),
        person: person.into(),
        about: "sister".into(),
        text: text.into(),
        asked: item.is_none(),
        found_by: if item.is_none() { FoundBy::User } else { FoundBy::Words },
        confidence: 0.8,
        item_id: item.map(str::to_owned),
        words: text.into(),
        said_by: person.into(),
        said_at_ms: 50,
    }
}

async fn write_facts(store: &Store, kitchen: &SessionRef) {
    say(store, kitchen, "lisbon", "My sister lives in Lisbon.", 50).await;
    say(store, kitchen, "porto", "My sister moved to Porto.", 51).await;
    let last = say(store, kitchen, "secret", "Forget my number 4711.", 52).await;
    let changes = FactChanges {
        dropped: Vec::new(),
        new: vec![
            fact("fact_lisbon", "ann", "My sister lives in Lisbon.", Some("lisbon")),
            fact("fact_porto", "ann", "My sister moved to Porto.", Some("porto")),
            fact("fact_number", "ann", "My number is 4711.", Some("secret")),
        ],
        replaced: vec![("fact_lisbon".into(), "fact_porto".into())],
        forgotten: vec!["fact_number".into()],
        unsaid: vec![("sess_kitchen".into(), "secret".into())],
        secrets: Vec::new(),
    };
    store.remember(kitchen, changes, HeardThrough::Model(last.seq, Some(53)), 53).await.unwrap();
    store.put_fact("ada", fact("fact_home", "", "Guests sleep in the study.", None), Vec::new(), 54).await.unwrap();
}

/// A summary in use, turns that left without one, an undone summary of the user, a trimmed result, and pins.
async fn write_summaries(store: &Store, kitchen: &SessionRef) {
    let through_seq = store.load(kitchen).await.unwrap().last_seq;
    let new = |to: &str, text: &str, created_at_ms| Summary {
        from_item: "light".into(),
        to_item: to.into(),
        text: text.into(),
        pins: json!([]),
        checks: json!({"rejected": []}),
        tokens_before: 900,
        tokens_after: 300,
        arm: Some("a".into()),
        through_seq,
        created_at_ms,
        ..Summary::default()
    };
    let version = store.add_summary(kitchen, new("output", "- The light is on.", 60)).await.unwrap();
    store.apply_summary(kitchen, version, vec!["output".into()], 61).await.unwrap();
    let dropped = Summary {
        kind: SummaryKind::Drop,
        made_by: MadeBy::Fallback,
        based_on: Some(version),
        ..new("told", "- The light is on.", 62)
    };
    store.add_applied_summary(kitchen, dropped, Vec::new()).await.unwrap();
    let edited = Summary { made_by: MadeBy::User, ..new("told", "- The kitchen's light is on.", 63) };
    let edited = store.add_applied_summary(kitchen, edited, Vec::new()).await.unwrap();
    store.undo_summary(kitchen, edited, 64).await.unwrap();
    store.add_pin(kitchen, "Call me Ann.", Some("light"), MadeBy::Model, 65).await.unwrap();
    let removed = store.add_pin(kitchen, "Speak slowly.", None, MadeBy::User, 66).await.unwrap();
    store.remove_pin(kitchen, &removed.id, 67).await.unwrap();
}

/// A named session with hidden notes, a kept log, a branch, and a deleted session whose computed data is to go.
async fn write_other_sessions(store: &Store, kitchen: &SessionRef) {
    let told_facts = Some(vec!["fact_porto".to_owned(), "fact_home".to_owned()]);
    let person = |id: &str, at_ms| SessionRecord { person: "ann".into(), ..new_session("ada", Some(id), at_ms) };
    let hall = SessionRecord { is_remembered: true, told_facts, ..person("sess_hall", 70) };
    let hall = store.create_named_session(hall, name()).await.unwrap();
    say(store, &hall, "question", "Where does my sister live?", 71).await;
    let item = |id: &str| NoteSource::Item { session_id: "sess_kitchen".into(), item_id: id.into() };
    for (id, text, source) in [
        ("recall_note_porto", "Ann said: My sister moved to Porto.", NoteSource::Fact("fact_porto".into())),
        ("recall_note_story", "Ann said: Erzähl mir von 東京.", item("story")),
        ("recall_note_gone", "Ann said: My number is 4711.", NoteSource::Fact("fact_number".into())),
    ] {
        let note = Item::message(id, Role::System, text);
        store.append_note(&hall, note, ItemPlace::End, vec![source], 72).await.unwrap();
    }

    let mark = |hash: &str, of_last_few, items| LogMark { hash: hash.into(), of_last_few, items };
    let addition = LogAddition {
        items: vec![
            Item::message("log_1", Role::User, "Is it late?"),
            Item::message("log_2", Role::Assistant, "It is noon."),
        ],
        marks: vec![mark("hash_whole", false, 2), mark("hash_end", true, 2)],
        begins_behind: Some("older".into()),
        ..LogAddition::default()
    };
    let log = SessionRecord { room: "kitchen".into(), ..person("sess_log", 80) };
    store.begin_log(&owner(), log, addition, 81).await.unwrap();
    store.note_past_owner(&owner(), 82).await.unwrap();
    let branch_at = store.item(kitchen, "story").await.unwrap().order_key;
    store.fork_session(kitchen, &branch_at, "sess_branch".into(), 83).await.unwrap();
    let cellar = store.create_session(new_session("bob", Some("sess_cellar"), 84)).await.unwrap();
    say(store, &cellar, "a", "Delete this.", 85).await;
    store.delete_session(&cellar, 86).await.unwrap();
    let attic = store.create_session(new_session("bob", Some("sess_attic"), 87)).await.unwrap();
    say(store, &attic, "a", "Keep this.", 88).await;
}

/// A reply that a kill cut off: one piece is in the store, the next words are in the journal only.
async fn write_killed_reply(store: &Store, kitchen: &SessionRef) {
    say(store, kitchen, "last", "And now?", 90).await;
    store.begin_response(kitchen, new_response("resp_killed"), 91).await.unwrap();
    store.begin_words(kitchen, "killed", "resp_killed", Some("last"), "");
    let reply = begin(store, kitchen, "killed", "resp_killed", 92).await.unwrap();
    store.write_words(kitchen, "killed", "Now it ").unwrap();
    extend(store, &reply, "Now it ", 93).await.unwrap();
    store.write_words(kitchen, "killed", "is late.").unwrap();
}

async fn read(store: &Store) -> Value {
    let mut sessions = serde_json::Map::new();
    for user in store.users().await.unwrap() {
        for line in store.list_sessions(&user.id, None, 100).await.unwrap() {
            let session = store.open_session(&user.id, &line.session.id).await.unwrap();
            sessions.insert(line.session.id.clone(), read_session(store, &session).await);
        }
    }
    let mut responses = Vec::new();
    for id in RESPONSES {
        let found = store.find_response("ada", id).await.unwrap().unwrap_or_else(|| panic!("{id}"));
        let output: Vec<_> = found.output.iter().map(|item| &item.item_id).collect();
        responses.push(json!({
            "id": found.id, "status": found.status.word(), "details": format!("{:?}", found.details),
            "metadata": found.metadata, "usage": format!("{:?}", found.usage), "output": output,
            "end": found.end.and_then(|end| end.last_item),
        }));
    }
    let [log, end] = ["hash_whole", "hash_end"].map(|hash| async move {
        let found = store.find_log(&owner(), &[hash.to_owned()], 0).await.unwrap();
        found.map(|log| json!({"session": log.session.id(), "last": log.last_item, "behind": log.begins_behind}))
    });
    let unheard = store.unheard_session(&store.open_session("ada", "sess_hall").await.unwrap()).await.unwrap();
    json!({
        "users": store.users().await.unwrap().iter().map(|user| json!([user.id, user.name])).collect::<Vec<_>>(),
        "sessions": sessions,
        "responses": responses,
        "facts": store.facts("ada", None).await.unwrap(),
        "keys": store.keys(None).await.unwrap(),
        "logs": [log.await, end.await],
        "named": store.session_named("ada", &name()).await.unwrap().map(|session| session.id().to_owned()),
        "experiments": store.experiments().await.unwrap(),
        "experiment_turns": store.experiment_turns(EXPERIMENT).await.unwrap().len(),
        "unheard": unheard.map(|unheard| unheard.heard_seq),
        "pasts_to_forget": owners_to_forget(store).await,
        "found": found(store, SearchPlace::User, "東京").await,
        "found_of_ann": found(store, SearchPlace::Person("ann", SecretsOf::None), "sister number").await,
    })
}

async fn read_session(store: &Store, session: &SessionRef) -> Value {
    let view = store.load(session).await.unwrap();
    let lines: Vec<Value> =
        export(store, session).await.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    json!({
        "record": view.session,
        "summary": view.summary,
        "is_stale": view.summary_is_stale,
        "newest_summary": view.newest_summary,
        "head": view.head,
        "items": view.items,
        "trimmed": view.trimmed,
        "pins": store.pins(session, true).await.unwrap(),
        "summaries": store.summaries(session).await.unwrap(),
        "history": store.history(session, 0, 1000).await.unwrap(),
        "measurements": store.measurements(session).await.unwrap(),
        "withdrawn": store.withdrawn_items(session).await.unwrap(),
        "export": lines,
    })
}

async fn found(store: &Store, place: SearchPlace<'_>, query: &str) -> Vec<String> {
    let search = HistorySearch {
        user: "ada",
        place,
        query,
        most_words: 32,
        any_word: true,
        statements: false,
        limit: 20,
        recent_ms: None,
        now_ms: OPENED_MS,
        marks: ["", ""],
        excerpt_words: 16,
    };
    let mut found: Vec<String> = store
        .search(&search)
        .await
        .unwrap()
        .into_iter()
        .map(|hit| format!("{} {}", hit.session_id, hit.item_id))
        .collect();
    found.sort();
    found
}

/// Lists the places where `now` lacks something that `then` has. A newer release may add fields, and no elements.
fn missing(then: &Value, now: &Value, place: &str, out: &mut Vec<String>) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (key, value) in then {
                missing(value, now.get(key).unwrap_or(&Value::Null), &format!("{place}.{key}"), out);
            }
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            for (at, (then, now)) in then.iter().zip(now).enumerate() {
                missing(then, now, &format!("{place}[{at}]"), out);
            }
        }
        (then, now) if then == now => {}
        (then, now) => out.push(format!("{place}: was {then}, is {now}")),
    }
}

fn words_of(store: &Path) -> PathBuf {
    PathBuf::from(format!("{}-words", store.display()))
}

fn copied(kept: &KeptStore) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = options(folder.path()).path;
    std::fs::write(&path, kept.file).unwrap();
    std::fs::write(words_of(&path), kept.words).unwrap();
    folder
}

async fn rows(path: &Path, query: &'static str) -> Vec<(String, i64)> {
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let rows = sqlx::query_as(query).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows
}

async fn schema(path: &Path) -> i64 {
    rows(path, "SELECT 'schema', max(version) FROM _sqlx_migrations").await[0].1
}

#[tokio::test]
async fn everything_that_an_older_schema_holds_is_read() {
    for kept in KEPT {
        let folder = copied(&kept);
        let store = Store::open(&options(folder.path()), OPENED_MS).await.unwrap();
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        let then: Value = serde_json::from_str(kept.read).unwrap();
        let mut lacks = Vec::new();
        missing(&then["read"], &read(&store).await, "", &mut lacks);
        assert!(lacks.is_empty(), "schema {}: {lacks:#?}", kept.schema);
        let secret = |what: &str| then["secrets"][what].as_str().unwrap().to_owned();
        let key = store.identify(&secret("key"), OPENED_MS).await.unwrap().unwrap();
        assert!(key.user == "ada" && key.may(KeyScope::Talk) && key.may(KeyScope::Sessions));
        assert_eq!(store.identify(&secret("revoked"), OPENED_MS).await.unwrap(), None);
        let secret = store.identify(&secret("client_secret"), OPENED_MS).await.unwrap().unwrap();
        assert_eq!(secret.session.unwrap()["instructions"], "Be brief.");
        // The reply that a kill cut off has the words that only the journal had.
        let kitchen = store.open_session("ada", "sess_kitchen").await.unwrap();
        assert_eq!(store.item(&kitchen, "killed").await.unwrap().said(), "Now it is late.");
        // What no function reads is there when a person is deleted.
        store.delete_person("ada", "ann", OPENED_MS).await.unwrap();
        assert!(owners_to_forget(&store).await.contains(&owner().past_owner()));
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_kept_store_has_rows_in_every_table() {
    for kept in KEPT {
        let folder = copied(&kept);
        let path = options(folder.path()).path;
        assert_eq!(schema(&path).await, kept.schema);
        let tables = "SELECT name, 0 FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'words*'
            AND name NOT GLOB 'sqlite_*' AND name NOT GLOB '_sqlx*'";
        let tables = rows(&path, tables).await;
        assert!(tables.len() > 10, "{tables:?}");
        for (table, _) in tables {
            let count: &'static str = format!("SELECT '', count(*) FROM {table}").leak();
            let is_empty = rows(&path, count).await[0].1 == 0;
            assert_eq!(is_empty, UNUSED.contains(&table.as_str()), "{table} of schema {}", kept.schema);
        }
    }
}

#[test]
fn what_a_store_lacks_is_found() {
    let lacks = |then: Value, now: Value| {
        let mut out = Vec::new();
        missing(&then, &now, "", &mut out);
        out
    };
    assert_eq!(lacks(json!({"a": [1]}), json!({"a": [1], "b": 2})), [""; 0]);
    assert_eq!(lacks(json!({"a": [1]}), json!({"a": [1, 2]})).len(), 1);
    assert_eq!(lacks(json!({"a": {"b": "x"}}), json!({"a": {}})), [".a.b: was \"x\", is null"]);
}

/// The recipe still writes what the newest kept store holds, if the schema is the same.
#[tokio::test]
async fn the_recipe_writes_what_the_kept_store_holds() {
    let (folder, _) = made().await;
    let path = options(folder.path()).path;
    let newest = KEPT.last().unwrap();
    if schema(&path).await == newest.schema {
        let kept = copied(newest);
        let count = "SELECT item_id, count(*) FROM item_versions GROUP BY item_id ORDER BY item_id";
        assert_eq!(rows(&path, count).await, rows(&options(kept.path()).path, count).await);
    } else {
        println!("skipped: the schema is newer than the newest kept store; make one, as data/README.md says");
    }
}

/// Writes a store with the present code, and copies it as a kill would leave it.
async fn made() -> (TempDir, Value) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&options(folder.path()), 0).await.unwrap();
    let secrets = write(&store).await;
    let copy = tempfile::tempdir().unwrap();
    let (from, to) = (options(folder.path()).path, options(copy.path()).path);
    let mut connection = sqlx::sqlite::SqliteConnectOptions::new().filename(&from).connect().await.unwrap();
    // One file without the write-ahead log and without free pages.
    sqlx::query("VACUUM INTO ?").bind(to.to_str().unwrap()).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    std::fs::copy(words_of(&from), words_of(&to)).unwrap();
    store.close().await.unwrap();
    (copy, secrets)
}

#[tokio::test]
#[ignore = "writes a fixture: see tests/data/README.md"]
async fn make_full_store() {
    let (folder, secrets) = made().await;
    let path = options(folder.path()).path;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let kept = data.join(format!("schema-{}.sqlite3", schema(&path).await));
    assert!(!kept.exists(), "{} is there: an older release wrote it, and it stays", kept.display());
    std::fs::copy(&path, &kept).unwrap();
    std::fs::copy(words_of(&path), words_of(&kept)).unwrap();
    let store = Store::open(&options(folder.path()), OPENED_MS).await.unwrap();
    let told = json!({"read": read(&store).await, "secrets": secrets});
    store.close().await.unwrap();
    std::fs::write(kept.with_extension("json"), serde_json::to_string(&told).unwrap() + "\n").unwrap();
}
