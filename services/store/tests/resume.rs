//! A resumed reply: its item is complete again, and every version of it stays.

use crate::support::*;
use session::{ItemStatus, Role};
use store::*;

const STORY: &str = "Once upon a time.";

async fn stopped(fixture: &Fixture) -> SessionRef {
    let session = fixture.session().await;
    let store = &fixture.store;
    say(store, &session, "question", "Tell me a story", 1).await;
    store.begin_words(&session, "story", "resp_1", Some("question"), "");
    let reply = begin(store, &session, "story", "resp_1", 2).await.unwrap();
    let body = message(Role::Assistant, "Once upon a");
    store.finish_reply(&reply, VersionStatus::Interrupted, body, 3).await.unwrap();
    store.truncate(&session, "story", 0, 9, 4).await.unwrap();
    session
}

fn heard() -> session::Item {
    session::Item::new("story", message(Role::Assistant, "Once upon"), ItemStatus::InProgress)
}

#[tokio::test]
async fn the_item_is_whole_again_and_its_versions_are_kept() {
    let fixture = Fixture::new().await;
    let session = stopped(&fixture).await;
    let store = &fixture.store;
    store.begin_words(&session, "story", "resp_2", None, "Once upon");
    let reply = store.resume_reply(&session, heard(), "resp_2", 5).await.unwrap();
    extend(store, &reply, " a time", 6).await.unwrap();
    store.finish_reply(&reply, VersionStatus::Completed, message(Role::Assistant, STORY), 7).await.unwrap();
    assert_eq!(texts(store, &session).await, ["Tell me a story", STORY]);
    let mut versions = store.history(&session, 0, 100).await.unwrap();
    versions.retain(|version| version.item_id == "story");
    let said: Vec<_> = versions.iter().map(|version| (version.said(), version.response.as_deref())).collect();
    let expected = [
        ("", "resp_1"),
        ("Once upon a", "resp_1"),
        ("Once upon", "resp_1"),
        ("Once upon", "resp_2"),
        (STORY, "resp_2"),
    ];
    assert_eq!(said, expected.map(|(text, response)| (text.to_owned(), Some(response))));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_not_there_does_not_go_on() {
    let fixture = Fixture::new().await;
    let session = stopped(&fixture).await;
    let store = &fixture.store;
    store.delete_item(&session, "story", 5).await.unwrap();
    let refused = store.resume_reply(&session, heard(), "resp_2", 6).await;
    assert!(matches!(refused, Err(Error::NoItem { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_crash_loses_no_word_that_was_heard() {
    for is_begun in [true, false] {
        let mut fixture = Fixture::new().await;
        let session = stopped(&fixture).await;
        fixture.store.begin_words(&session, "story", "resp_2", None, "Once upon");
        if is_begun {
            let reply = fixture.store.resume_reply(&session, heard(), "resp_2", 5).await.unwrap();
            extend(&fixture.store, &reply, " a", 6).await.unwrap();
        }
        fixture.store.write_words(&session, "story", " a time.").unwrap();
        fixture.reopen(8).await;
        assert_eq!(texts(&fixture.store, &session).await, ["Tell me a story", STORY], "{is_begun}");
        let last = fixture.store.item(&session, "story").await.unwrap();
        assert_eq!((last.status, last.response.as_deref()), (VersionStatus::Interrupted, Some("resp_2")));
        assert_eq!(fixture.store.check().await.unwrap(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_end_of_what_was_stopped_does_not_end_what_goes_on() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    let store = &fixture.store;
    say(store, &session, "question", "Tell me a story", 1).await;
    store.begin_words(&session, "story", "resp_1", Some("question"), "");
    let reply = begin(store, &session, "story", "resp_1", 2).await.unwrap();
    // The session's task resumes the reply without waiting for its end.
    store.begin_words(&session, "story", "resp_2", None, "Once upon");
    let body = message(Role::Assistant, "Once upon");
    store.finish_reply(&reply, VersionStatus::Interrupted, body, 3).await.unwrap();
    store.write_words(&session, "story", " a time.").unwrap();
    fixture.reopen(8).await;
    assert_eq!(texts(&fixture.store, &session).await, ["Tell me a story", STORY]);
}
