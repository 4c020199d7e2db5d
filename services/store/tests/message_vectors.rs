use crate::delete::files_with;
use crate::support::*;
use session::{ItemBody, ItemPlace, NamedSpeaker, Role};
use store::*;

async fn session_of(store: &Store, person: &str, is_remembered: bool) -> SessionRef {
    let new = SessionRecord { person: person.into(), is_remembered, ..new_session("ada", None, 10) };
    store.create_session(new).await.unwrap()
}

/// Gives each statement a vector: its own words.
async fn index(store: &Store, encoder: &str) -> Vec<String> {
    let unread = store.messages_without_vector(encoder, 0, 1000, 100).await.unwrap();
    let texts = unread.iter().map(|message| message.text.clone()).collect();
    let vector = |text: &str| format!("vector of {text}").into_bytes().repeat(8);
    let vectors = unread.iter().map(|message| (message.key, vector(&message.text))).collect();
    store.put_message_vectors(encoder, vectors).await.unwrap();
    texts
}

async fn keys(store: &Store, encoder: &str, person: &str) -> Vec<i64> {
    let vectors = store.message_vectors(encoder, 0, 100).await.unwrap();
    vectors.into_iter().filter(|vector| vector.person == person).map(|vector| vector.key).collect()
}

/// Texts that a question of this person finds among all messages with a vector.
async fn stated(store: &Store, user: &str, person: &str) -> Vec<String> {
    let all: Vec<i64> =
        store.message_vectors("one", 0, 100).await.unwrap().into_iter().map(|vector| vector.key).collect();
    let stated = store.stated(user, person, &all).await.unwrap();
    stated.into_iter().map(|message| message.hit.excerpt).collect()
}

#[tokio::test]
async fn statements_of_remembered_conversations_have_vectors_and_stay_with_their_speaker() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = session_of(store, "ann", true).await;
    say(store, &session, "a", "Tea is good.", 20).await;
    say(store, &session, "b", "Is tea good?", 21).await;
    put(store, &session, "c", message(Role::Assistant, "It is."), ItemPlace::End, 22).await.unwrap();
    let ben = NamedSpeaker { name: "Ben".into(), person: Some("ben".into()) };
    let said = ItemBody::Message { role: Role::User, parts: vec!["Wine is red.".into()], speaker: Some(ben) };
    put(store, &session, "d", said, ItemPlace::End, 23).await.unwrap();
    let private = session_of(store, "ann", false).await;
    say(store, &private, "e", "Milk is bad.", 24).await;
    say(store, &session, "f", "Cake is new.", 2000).await;
    assert_eq!(index(store, "one").await, ["Tea is good.", "Wine is red."]);
    assert_eq!(index(store, "one").await, Vec::<String>::new());
    assert_eq!((keys(store, "one", "ann").await.len(), keys(store, "one", "ben").await.len()), (1, 1));
    assert_eq!(keys(store, "two", "ann").await, Vec::<i64>::new());
    assert_eq!(stated(store, "ada", "ann").await, ["Tea is good."]);
    assert_eq!(stated(store, "ada", "ben").await, ["Wine is red."]);
    assert_eq!(stated(store, "ada", "eve").await, Vec::<String>::new());
    assert_eq!(stated(store, "eve", "ann").await, Vec::<String>::new());
    assert_eq!(index(store, "two").await.len(), 2);
    assert_eq!(stated(store, "ada", "ann").await, Vec::<String>::new(), "vectors of the other encoder are gone");
}

#[tokio::test]
async fn what_is_gone_has_no_vector_in_any_file() {
    for way in ["item", "edit", "forget", "session"] {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        let (session, other) = (session_of(store, "ann", true).await, session_of(store, "ben", true).await);
        say(store, &session, "a", "Tea is good.", 20).await;
        say(store, &other, "b", "Home is here.", 20).await;
        index(store, "one").await;
        let folder = fixture.folder.path();
        assert!(!files_with(folder, "vector of Tea").is_empty());
        match way {
            "item" => drop(store.delete_item(&session, "a", 50).await.unwrap()),
            "edit" => drop(store.truncate(&session, "a", 0, 3, 50).await.unwrap()),
            "forget" => {
                let changes = FactChanges { unsaid: vec![(session.id().into(), "a".into())], ..FactChanges::default() };
                store.remember(&session, changes, HeardThrough::Words(1), 50).await.unwrap();
            }
            _ => store.delete_session(&session, 50).await.unwrap(),
        }
        assert_eq!(stated(store, "ada", "ann").await, Vec::<String>::new(), "{way}");
        assert_eq!(stated(store, "ada", "ben").await, ["Home is here."], "{way}");
        store.settle_the_log().await.unwrap();
        // Where the words stay in their session, the log may have the vector as long.
        if !matches!(way, "edit" | "forget") {
            assert_eq!(files_with(folder, "vector of Tea"), Vec::<String>::new(), "{way}");
        }
        assert!(!files_with(folder, "vector of Home").is_empty(), "{way}");
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    }
}
