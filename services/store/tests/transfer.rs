//! Export and import: the same lines come out again.

use crate::support::*;
use serde_json::json;
use session::{ItemBody, ItemPlace, Role};
use store::*;

pub async fn export(store: &Store, session: &SessionRef) -> String {
    let mut lines = String::new();
    let mut export = store.export(session).await.unwrap();
    while let Some(line) = export.next().await {
        lines.push_str(&line.unwrap());
        lines.push('\n');
    }
    lines
}

pub async fn import(store: &Store, user: Option<&str>, lines: &str) -> Result<Vec<SessionRef>, Error> {
    let mut importer = store.importer(user, 9_999);
    for line in lines.lines() {
        importer.line(line).await?;
    }
    importer.finish().await
}

async fn full_session(fixture: &Fixture) -> SessionRef {
    let (store, session) = (&fixture.store, fixture.session().await);
    for n in 0..600 {
        say(store, &session, &format!("i{n}"), &format!("text {n} 東京 \"quoted\" \\ \u{1f} é"), 20 + n).await;
    }
    let call =
        ItemBody::FunctionCall { call_id: "c1".into(), name: "light".into(), arguments: r#"{"on":true}"#.into() };
    put(store, &session, "call", call, ItemPlace::End, 700).await.unwrap();
    let output = ItemBody::FunctionCallOutput { call_id: "c1".into(), output: "ok".into() };
    put(store, &session, "output", output, ItemPlace::After("call".into()), 701).await.unwrap();
    let thought = message(Role::System, "hm");
    put(store, &session, "thought", thought, ItemPlace::Head, 702).await.unwrap();
    store.truncate(&session, "i1", 0, 4, 703).await.unwrap();
    store.delete_item(&session, "i2", 704).await.unwrap();
    put(store, &session, "i2", message(Role::User, "again"), ItemPlace::After("i3".into()), 705).await.unwrap();
    let new = Summary {
        kind: SummaryKind::Summary,
        made_by: MadeBy::Fallback,
        based_on: None,
        from_item: "i0".into(),
        to_item: "i3".into(),
        through_seq: 606,
        text: "They counted.".into(),
        pins: json!(["pin_1"]),
        checks: json!({"numbers": [1.5, 2]}),
        tokens_before: 10,
        tokens_after: 5,
        arm: None,
        created_at_ms: 706,
        ..Summary::default()
    };
    let version = store.add_summary(&session, new).await.unwrap();
    store.apply_summary(&session, version, vec![], 707).await.unwrap();
    let pin = store.add_pin(&session, "Count slowly.", None, MadeBy::User, 708).await.unwrap();
    store.remove_pin(&session, &pin.id, 709).await.unwrap();
    store.add_measurement(&session, measurement(1)).await.unwrap();
    store
        .begin_response(
            &session,
            NewResponse {
                in_conversation: false,
                metadata: Some(r#"{"z":1,"a":null}"#.into()),
                ..new_response("resp_1")
            },
            710,
        )
        .await
        .unwrap();
    let reply = begin(store, &session, "open", "resp_1", 711).await.unwrap();
    extend(store, &reply, "So far", 712).await.unwrap();
    session
}

#[tokio::test]
async fn an_import_exports_the_same_lines() {
    let (from, to) = (Fixture::new().await, Fixture::new().await);
    let session = full_session(&from).await;
    let lines = export(&from.store, &session).await;
    let imported = import(&to.store, None, &lines).await.unwrap();
    assert_eq!(export(&to.store, &imported[0]).await, lines);
    assert_eq!(to.store.load(&imported[0]).await.unwrap(), from.store.load(&session).await.unwrap());
    assert_eq!(to.store.check().await.unwrap(), Vec::<String>::new());
    let search = HistorySearch {
        user: "ada",
        place: SearchPlace::User,
        query: "\"text 599\"",
        most_words: 32,
        any_word: false,
        statements: false,
        limit: 5,
        recent_ms: None,
        now_ms: 0,
        marks: ["", ""],
        excerpt_words: 5,
    };
    assert_eq!(to.store.search(&search).await.unwrap().len(), 1);
    // Twice is refused; into another user's sessions it fits, and two in one file too.
    let again = import(&to.store, None, &lines).await;
    assert_eq!(again, Err(Error::SessionExists { session: session.id().into() }));
    let both = format!("{lines}\n{}", lines.replace(session.id(), "sess_other"));
    assert_eq!(import(&to.store, Some("carol"), &both).await.unwrap().len(), 2);
    assert_eq!(to.store.list_sessions("carol", None, 10).await.unwrap().len(), 2);
    // Older releases wrote token ids for pieces.
    let older = lines.replacen(r#""tokens":[]"#, r#""tokens":[3,4]"#, 1);
    assert_ne!(older, lines);
    import(&to.store, Some("dora"), &older).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_imports_nothing_and_says_where() {
    let (from, to) = (Fixture::new().await, Fixture::new().await);
    let session = full_session(&from).await;
    let lines = export(&from.store, &session).await;
    let all: Vec<&str> = lines.lines().collect();
    let without = |n: usize| [&all[..n], &all[n + 1..]].concat().join("\n");
    let end = all.len();
    let cases = [
        (all[..end - 1].join("\n"), end - 1, "the middle of a session"),
        (without(5), 6, "expected was 5"),
        (without(end - 2), end - 1, "lines were written"),
        (without(0), 1, "a session must come first"),
        (lines.replacen("\"format\":1", "\"format\":99", 1), 1, "use a newer release"),
        (lines.replacen("\"version\":1", "\"version\":-1", 1), 2, "not a line of an export"),
        (lines.replacen("\"change\":\"created\"", "\"change\":\"imagined\"", 1), 2, "not a line of an export"),
        (format!("{}\n{}", all[0], lines), 2, "has no end"),
        (lines.replacen("\"item_id\":\"i1\"", "\"item_id\":\"i0\"", 1), 257, "UNIQUE"),
        (lines.replacen("\"version\":1", "\"version\":9223372036854775808", 1), 257, "CHECK"),
        ("{".into(), 1, "not a line of an export"),
    ];
    for (text, line, cause) in cases {
        match import(&to.store, None, &text).await {
            Err(Error::Import { line: at, cause: why }) => {
                assert!(at == line && why.contains(cause), "{cause}: line {at}, {why}");
            }
            other => panic!("{cause}: {other:?}"),
        }
        assert_eq!(to.store.statistics().await.unwrap().versions, 0, "{cause}");
        assert_eq!(to.store.list_sessions("ada", None, 10).await.unwrap(), [], "{cause}");
    }
    import(&to.store, None, &lines).await.unwrap();
}

#[tokio::test]
async fn exports_that_are_never_read_hold_no_reader() {
    let fixture = Fixture::new().await;
    let session = full_session(&fixture).await;
    let store = &fixture.store;
    let mut exports = Vec::new();
    for _ in 0..8 {
        let mut export = store.export(&session).await.unwrap();
        export.next().await.unwrap().unwrap();
        exports.push(export);
    }
    // There are two readers: each of these would wait for one.
    let soon = std::time::Duration::from_secs(3);
    tokio::time::timeout(soon, store.load(&session)).await.unwrap().unwrap();
    // A session that continues in the meantime exports completely, and a deleted one ends with an error.
    say(store, &session, "late", "said while it was exported", 800).await;
    let mut lines = Vec::new();
    while let Some(line) = exports[0].next().await {
        lines.push(line.unwrap());
    }
    assert!(lines.last().unwrap().contains("\"end\"") && lines.iter().any(|line| line.contains("said while it")));
    store.delete_session(&session, 900).await.unwrap();
    let mut last = None;
    while let Some(line) = exports[1].next().await {
        last = Some(line);
    }
    assert_eq!(last, Some(Err(Error::NoSession { session: session.id().into() })));
}

#[tokio::test]
async fn sessions_that_are_there_are_left_out_or_stand_beside_with_a_new_id() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    say(store, &session, "u", "hello", 20).await;
    let lines = export(store, &session).await;
    let both = format!("{lines}{}", lines.replace(session.id(), "sess_other"));
    let imported = async |ids| {
        let mut importer = store.importer(None, 9_999).with_ids(ids);
        for line in both.lines() {
            importer.line(line).await.unwrap();
        }
        importer.finish().await.unwrap().iter().map(|session| session.id().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(imported(ImportedIds::NewToStore).await, ["sess_other"]);
    assert_eq!(imported(ImportedIds::NewToStore).await, [""; 0]);
    let fresh = imported(ImportedIds::Fresh).await;
    assert!(fresh.len() == 2 && !fresh.contains(&"sess_other".to_owned()), "{fresh:?}");
    for id in fresh {
        let copy = store.open_session("ada", &id).await.unwrap();
        assert_eq!(texts(store, &copy).await, ["hello"]);
    }
    assert_eq!(store.list_sessions("ada", None, 10).await.unwrap().len(), 4);
}
