//! Support for the store's tests: a file of its own, and short names for common steps.

use serde_json::{Value, json};
use session::{Item, ItemBody, ItemPlace, ItemStatus, MaxTokens, Role, SessionConfig, Tool, ToolChoice};
use std::path::Path;
use store::{
    Error, ItemVersion, Measurement, NewResponse, OpenReply, OpenedBy, Placement, SessionRecord, SessionRef, Store,
    StoreOptions, new_id,
};
use tempfile::TempDir;

pub fn options(folder: &Path) -> StoreOptions {
    StoreOptions {
        path: folder.join("store.sqlite3"),
        opened_by: OpenedBy::Service,
        create: true,
        busy_timeout_ms: 5_000,
        readers: 2,
        read_limit_ms: 0,
        sync_ms: 1000,
        user_bytes: 0,
        user_bytes_per_minute: 0,
        write_queue: 256,
        commit_group: 64,
        wal_limit_bytes: 1 << 20,
        max_pages: None,
        check_at_start: true,
    }
}

pub struct Fixture {
    pub folder: TempDir,
    pub store: Store,
}

impl Fixture {
    pub async fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&options(folder.path()), 0).await.unwrap();
        store.put_user("ada", "Ada", 1).await.unwrap();
        store.put_user("bob", "Bob", 1).await.unwrap();
        Fixture { folder, store }
    }

    pub async fn session(&self) -> SessionRef {
        self.store.create_session(new_session("ada", None, 10)).await.unwrap()
    }

    pub async fn reopen(&mut self, now_ms: i64) {
        self.store.close().await.unwrap();
        self.store = Store::open(&options(self.folder.path()), now_ms).await.unwrap();
    }
}

pub fn new_session(user: &str, id: Option<&str>, now_ms: i64) -> SessionRecord {
    SessionRecord {
        user: user.into(),
        person: String::new(),
        room: String::new(),
        is_remembered: false,
        is_of_household: false,
        told_facts: None,
        created_at_ms: now_ms,
        updated_at_ms: now_ms,
        id: id.map_or_else(|| new_id("sess").unwrap(), str::to_owned),
        placement: Placement { preset: "small".into(), ctx_size: 1000, experiment: None, arm: Some("a".into()) },
        title: "Kitchen".into(),
        config: config(),
        metadata: None,
    }
}

pub fn config() -> SessionConfig {
    SessionConfig {
        tools: vec![Tool {
            name: "light".into(),
            description: Some("Switches a light.".into()),
            parameters: Some(r#"{"zeta":1,"alpha":2.5}"#.into()),
            verbatim: None,
        }],
        tool_choice: ToolChoice::Function("light".into()),
        max_output_tokens: MaxTokens::Tokens(7),
        temperature: Some(0.1 + 0.2),
        ..SessionConfig::new("Be brief.")
    }
}

pub fn message(role: Role, text: &str) -> ItemBody {
    ItemBody::message(role, text)
}

pub async fn put(
    store: &Store,
    session: &SessionRef,
    id: &str,
    body: ItemBody,
    place: ItemPlace,
    now_ms: i64,
) -> Result<ItemVersion, Error> {
    store.append(session, Item::new(id, body, ItemStatus::Completed), place, now_ms).await
}

pub async fn begin(
    store: &Store,
    session: &SessionRef,
    id: &str,
    response: &str,
    now_ms: i64,
) -> Result<OpenReply, Error> {
    let item = Item::new(id, message(Role::Assistant, ""), ItemStatus::InProgress);
    store.begin_reply(session, item, ItemPlace::End, response, now_ms).await
}

pub fn new_response(id: &str) -> NewResponse {
    NewResponse { id: id.into(), in_conversation: true, metadata: None, of_request: None }
}

pub async fn owners_to_forget(store: &Store) -> Vec<u64> {
    store.pasts_to_forget().await.unwrap().into_iter().map(|past| past.owner).collect()
}

pub async fn extend(store: &Store, reply: &OpenReply, text: &str, now_ms: i64) -> Result<(), Error> {
    store.extend_reply(reply, text.to_owned(), now_ms)?.await
}

pub async fn response_of(store: &Store, session: &SessionRef, id: &str) -> Value {
    let lines = crate::transfer::export(store, session).await;
    let mut lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.find(|line| line["type"] == "response" && line["id"] == id).unwrap()
}

pub async fn say(store: &Store, session: &SessionRef, id: &str, text: &str, now_ms: i64) -> ItemVersion {
    put(store, session, id, message(Role::User, text), ItemPlace::End, now_ms).await.unwrap()
}

pub async fn texts(store: &Store, session: &SessionRef) -> Vec<String> {
    store.load(session).await.unwrap().items.iter().map(|item| item.said()).collect()
}

pub fn measurement(turn: u64) -> Measurement {
    Measurement {
        turn,
        response: Some(format!("resp_{turn}")),
        experiment: Some("windows".into()),
        arm: Some("a".into()),
        preset: "small".into(),
        ctx_size: 1000,
        tokens_in: 100 * turn,
        tokens_out: 40,
        fill_tokens: 100 * turn,
        reused_tokens: 90,
        warm_tokens: 4,
        computed_tokens: 10,
        computed_reason: None,
        queue_ms: 0.25,
        prefill_ms: 12.5,
        first_token_ms: Some(0.1 + 0.2),
        first_sentence_ms: None,
        total_ms: 1_234.567_8,
        decode_ms: 900.0,
        compactions: 0,
        drops: 0,
        barged_in: turn.is_multiple_of(2),
        regenerated: false,
        feedback: None,
        memory: json!({"pages": 1024, "snapshots": 2048}),
        created_at_ms: 1_000 + turn as i64,
    }
}
