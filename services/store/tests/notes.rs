//! Copies of words in hidden items of other conversations go with the words that they were copied from.

use crate::delete::files_with;
use crate::support::*;
use crate::transfer::{export, import};
use session::{Item, ItemBody, ItemPlace, ItemStatus, NoteSource, Role};
use sqlx::{ConnectOptions, Connection};
use store::*;

const CANARY: &str = "kanarienvogel";
const FORGET: HeardThrough = HeardThrough::Words(1);

struct World {
    fixture: Fixture,
    /// Session with the item "said", learned as fact "fact".
    source: SessionRef,
    /// Session with the copies: a note of the item, a note of the fact, and a call with its answer.
    holder: SessionRef,
}

impl World {
    async fn new() -> World {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        let new =
            |id: &str| SessionRecord { person: "ann".into(), is_remembered: true, ..new_session("ada", Some(id), 10) };
        let source = store.create_session(new("source")).await.unwrap();
        let holder = store.create_session(SessionRecord { person: "ben".into(), ..new("holder") }).await.unwrap();
        let said = say(store, &source, "said", "My sister lives in Lisbon.", 20).await;
        say(store, &source, "other", "It rains.", 21).await;
        let fact = NewFact {
            id: "fact".into(),
            person: "ann".into(),
            about: "sister".into(),
            text: "My sister lives in Lisbon.".into(),
            asked: false,
            found_by: FoundBy::Words,
            confidence: 0.8,
            item_id: Some("said".into()),
            words: "My sister lives in Lisbon.".into(),
            said_by: "ann".into(),
            said_at_ms: 20,
        };
        let changes = FactChanges { new: vec![fact], ..FactChanges::default() };
        store.remember(&source, changes, HeardThrough::Words(said.seq), 30).await.unwrap();
        let item = |item: &str| NoteSource::Item { session_id: "source".into(), item_id: item.into() };
        let text = |text: &str| ItemBody::message(Role::System, format!("{CANARY}: {text}"));
        note(store, &holder, "recall_note_item", text("item"), vec![item("said")]).await;
        say(store, &holder, "question", "Where does she live?", 40).await;
        note(store, &holder, "recall_note_fact", text("fact"), vec![NoteSource::Fact("fact".into())]).await;
        note(store, &holder, "recall_note_other", text("It rains."), vec![item("other")]).await;
        let arguments = r#"{"query":"sister"}"#.into();
        let call = ItemBody::FunctionCall { call_id: "recall_1".into(), name: "recall".into(), arguments };
        note(store, &holder, "recall_call", call, Vec::new()).await;
        let output = ItemBody::FunctionCallOutput { call_id: "recall_1".into(), output: format!("- user: {CANARY}") };
        note(store, &holder, "recall_answer", output, vec![item("other"), item("said")]).await;
        say(store, &holder, "thanks", "Thank you.", 50).await;
        World { fixture, source, holder }
    }

    async fn shown(&self) -> Vec<String> {
        self.fixture.store.load(&self.holder).await.unwrap().items.into_iter().map(|item| item.item_id).collect()
    }

    async fn canaries(&self) -> (usize, usize) {
        let store = &self.fixture.store;
        let search = HistorySearch {
            user: "ada",
            place: SearchPlace::User,
            query: CANARY,
            most_words: 8,
            any_word: true,
            statements: false,
            limit: 10,
            recent_ms: None,
            now_ms: 1_000,
            marks: ["", ""],
            excerpt_words: 16,
        };
        let found = store.search(&search).await.unwrap().len();
        let file = sqlx::sqlite::SqliteConnectOptions::new().filename(store.path());
        let mut connection = file.connect().await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        (found, files_with(self.fixture.folder.path(), CANARY).len())
    }
}

async fn note(store: &Store, session: &SessionRef, id: &str, body: ItemBody, sources: Vec<NoteSource>) {
    let item = Item::new(id, body, ItemStatus::Completed);
    store.append_note(session, item, ItemPlace::End, sources, 45).await.unwrap();
}

const ALL: [&str; 7] =
    ["recall_note_item", "question", "recall_note_fact", "recall_note_other", "recall_call", "recall_answer", "thanks"];

#[tokio::test]
async fn a_copy_stays_while_its_sources_stay() {
    let world = World::new().await;
    let store = &world.fixture.store;
    say(store, &world.source, "more", "And Porto.", 60).await;
    store.delete_item(&world.source, "more", 61).await.unwrap();
    assert_eq!(world.shown().await, ALL);
    assert_eq!(store.withdrawn_items(&world.holder).await.unwrap(), Vec::<String>::new());
    assert_eq!(world.canaries().await, (4, 1));
}

#[tokio::test]
async fn a_deleted_session_leaves_no_copy_of_its_words() {
    for by_user in [true, false] {
        let world = World::new().await;
        let store = &world.fixture.store;
        let mut changes = store.watch_memories("ada");
        match by_user {
            true => store.delete_session(&world.source, 70).await.unwrap(),
            false => {
                say(store, &world.holder, "late", "Still here.", 1_000).await;
                assert_eq!(store.delete_unused_since(500, 1_000).await.unwrap().len(), 1);
            }
        }
        assert!(changes.has_changed().unwrap(), "sessions in memory are told");
        changes.mark_unchanged();
        let left: &[&str] =
            if by_user { &["question", "thanks"] } else { &["question", "recall_note_fact", "thanks", "late"] };
        assert_eq!(world.shown().await, left, "a fact outlives a session that grew old");
        assert_eq!(world.canaries().await, if by_user { (0, 0) } else { (1, 1) });
        let withdrawn = store.withdrawn_items(&world.holder).await.unwrap();
        assert_eq!(withdrawn.len(), 5 - usize::from(!by_user), "{withdrawn:?}");
        let pasts = owners_to_forget(store).await;
        assert!(pasts.contains(&world.holder.past_owner()), "what was computed of the copies goes");
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_deleted_item_a_forgotten_fact_and_unsaid_words_leave_no_copy() {
    let of_item = ["question", "recall_note_fact", "recall_note_other", "thanks"];
    let of_fact = ["question", "recall_note_other", "thanks"];
    let unsay = FactChanges { unsaid: vec![("source".into(), "said".into())], ..FactChanges::default() };
    let forget = FactChanges { forgotten: vec!["fact".into()], ..FactChanges::default() };
    for way in 0..5 {
        let world = World::new().await;
        let store = &world.fixture.store;
        let left: &[&str] = match way {
            0 => {
                // Its fact goes with it.
                store.delete_item(&world.source, "said", 70).await.unwrap();
                &of_fact
            }
            1 => {
                store.remember(&world.source, unsay.clone(), FORGET, 70).await.unwrap();
                &of_item
            }
            2 => {
                store.remember(&world.source, forget.clone(), FORGET, 70).await.unwrap();
                &of_fact
            }
            3 => {
                store.forget_facts("ada", vec!["fact".into()], 70).await.unwrap();
                &of_fact
            }
            _ => {
                store.forget_person("ada", "ann", 70).await.unwrap();
                &of_fact
            }
        };
        assert_eq!(world.shown().await, left, "way {way}");
        assert_eq!(world.canaries().await.0, left.len() - 2, "way {way}");
        assert_eq!(store.memory_changes("ada"), 1, "way {way}");
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_deleted_person_leaves_no_copy() {
    let world = World::new().await;
    let store = &world.fixture.store;
    store.delete_person("ada", "ann", 70).await.unwrap();
    assert_eq!(world.shown().await, ["question", "thanks"]);
    assert_eq!(world.canaries().await, (0, 0));
}

#[tokio::test]
async fn a_copy_that_comes_after_its_source_has_gone_holds_no_words() {
    let world = World::new().await;
    let store = &world.fixture.store;
    store.delete_session(&world.source, 70).await.unwrap();
    for (id, source) in [
        ("recall_note_1", NoteSource::Fact("fact".into())),
        ("recall_note_2", NoteSource::Item { session_id: "source".into(), item_id: "said".into() }),
    ] {
        note(store, &world.holder, id, ItemBody::message(Role::System, CANARY), vec![source]).await;
    }
    assert_eq!(world.shown().await, ["question", "thanks"]);
    assert_eq!(world.canaries().await, (0, 0));
    // An item that a session in memory puts behind a copy it still has keeps its place.
    let place = ItemPlace::After("recall_note_fact".into());
    put(store, &world.holder, "between", message(Role::User, "Hm."), place, 80).await.unwrap();
    assert_eq!(world.shown().await, ["question", "between", "thanks"]);
}

#[tokio::test]
async fn forks_and_imports_of_a_copy_lose_their_words_too() {
    let world = World::new().await;
    let store = &world.fixture.store;
    let last = store.item(&world.holder, "thanks").await.unwrap().order_key;
    let fork = store.fork_session(&world.holder, &last, "fork".into(), 60).await.unwrap();
    let lines = export(store, &world.holder).await;
    store.delete_session(&world.source, 70).await.unwrap();
    assert_eq!(texts(store, &fork).await, ["Where does she live?", "Thank you."]);
    // An older export is imported with its words, and the next deletion takes the copies.
    store.delete_session(&world.holder, 71).await.unwrap();
    let taken_in = import(store, None, &lines).await.unwrap().remove(0);
    assert_eq!(store.load(&taken_in).await.unwrap().items.len(), ALL.len());
    store.delete_session(&fork, 72).await.unwrap();
    assert_eq!(texts(store, &taken_in).await, ["Where does she live?", "Thank you."]);
    assert_eq!(world.canaries().await, (0, 0));
    let lines = export(store, &taken_in).await;
    store.delete_session(&taken_in, 73).await.unwrap();
    let again = import(store, None, &lines).await.unwrap().remove(0);
    assert_eq!(export(store, &again).await, lines);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_command_beside_the_service_is_noticed() {
    let world = World::new().await;
    let options = StoreOptions { opened_by: OpenedBy::Command, ..options(world.fixture.folder.path()) };
    let command = Store::open(&options, 60).await.unwrap();
    command.forget_facts("ada", vec!["fact".into()], 70).await.unwrap();
    let store = &world.fixture.store;
    let changes = store.watch_memories("ada");
    assert!(!changes.has_changed().unwrap());
    store.look_for_forgotten().await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!(store.memory_changes("ada"), 1);
}

/// Copies of an older release, which kept no sources, and the words of facts in a session's settings.
#[tokio::test]
async fn what_an_older_release_copied_goes_with_the_next_deletion() {
    let mut world = World::new().await;
    world.fixture.store.close().await.unwrap();
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(world.fixture.store.path());
    let mut connection = file.connect().await.unwrap();
    for statement in [
        "DROP TABLE note_sources",
        "ALTER TABLE sessions DROP COLUMN told_facts",
        "ALTER TABLE users DROP COLUMN memory_changes",
        "DELETE FROM _sqlx_migrations WHERE version = 14",
        "UPDATE sessions SET settings = json_set(settings, '$.remembered', 'kanarienvogel in settings') WHERE id = 'source'",
    ] {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    world.fixture.store = Store::open(&options(world.fixture.folder.path()), 60).await.unwrap();
    let store = &world.fixture.store;
    let record = store.session(&world.source).await.unwrap();
    assert_eq!((record.told_facts, record.config.temperature), (None, config().temperature));
    assert_eq!(world.shown().await, ALL);
    let unrelated = store.create_session(new_session("ada", None, 60)).await.unwrap();
    store.delete_session(&unrelated, 70).await.unwrap();
    assert_eq!(world.shown().await, ["question", "thanks"]);
    assert_eq!(world.canaries().await, (0, 0));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_session_keeps_which_facts_it_tells_and_not_their_words() {
    let world = World::new().await;
    let store = &world.fixture.store;
    let told = vec!["fact".to_owned(), "gone".to_owned()];
    store.set_told_facts(&world.holder, told.clone());
    say(store, &world.holder, "next", "Hello.", 60).await;
    assert_eq!(store.session(&world.holder).await.unwrap().told_facts.as_ref(), Some(&told));
    let holding = |facts: Vec<RememberedFact>| facts.into_iter().map(|fact| fact.id).collect::<Vec<_>>();
    assert_eq!(holding(store.holding_facts("ada", &told).await.unwrap()), ["fact"]);
    assert_eq!(holding(store.holding_facts("bob", &told).await.unwrap()), Vec::<String>::new());
    let newer = NewFact {
        id: "newer".into(),
        person: "ann".into(),
        about: "sister".into(),
        text: "My sister lives in Porto.".into(),
        asked: true,
        found_by: FoundBy::User,
        confidence: 1.0,
        item_id: None,
        words: String::new(),
        said_by: "ann".into(),
        said_at_ms: 70,
    };
    store.put_fact("ada", newer, vec!["fact".into()], 70).await.unwrap();
    assert_eq!(holding(store.holding_facts("ada", &told).await.unwrap()), Vec::<String>::new());
    assert_eq!(store.memory_changes("ada"), 1);
    let lines = export(store, &world.holder).await;
    assert!(lines.contains(r#""told_facts":["fact","gone"]"#), "{lines}");
}
