//! Retries of a client are recognised after a restart: the digest of a request is stored with what it added.

use crate::support::*;
use session::{Item, ItemPlace, ItemStatus, RequestDigest, RequestPart, Role};
use store::*;

const DIGEST: RequestDigest = RequestDigest([7; 16]);
const MOST: usize = 8;

async fn add(store: &Store, session: &SessionRef, id: &str, is_last: bool, now_ms: i64) {
    let item = Item::new(id, message(Role::User, &format!("words of {id}")), ItemStatus::Completed);
    let part = Some(RequestPart { digest: DIGEST, is_last });
    store.append_of_request(session, item, ItemPlace::End, part, now_ms).await.unwrap();
}

async fn found(store: &Store, user: &str, since_ms: i64, most: usize) -> Option<String> {
    let found = store.find_request(user, DIGEST, since_ms, most).await.unwrap();
    found.map(|stored| stored.session.id().to_owned())
}

#[tokio::test]
async fn a_request_is_found_with_its_response_after_a_restart() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    let store = fixture.store.clone();
    add(&store, &session, "one", false, 20).await;
    assert_eq!(found(&store, "ada", 0, MOST).await, None, "the rest of it is missing");
    add(&store, &session, "two", true, 21).await;
    store
        .begin_response(&session, NewResponse { of_request: Some(DIGEST), ..new_response("resp_1") }, 22)
        .await
        .unwrap();
    fixture.reopen(30).await;
    let store = &fixture.store;
    let stored = store.find_request("ada", DIGEST, 21, MOST).await.unwrap().unwrap();
    assert_eq!((stored.session.id(), stored.response.unwrap().id.as_str()), (session.id(), "resp_1"));
    assert_eq!(texts(store, &session).await, ["words of one", "words of two"]);
    assert_eq!(found(store, "bob", 0, MOST).await, None, "another user's");
    assert_eq!(found(store, "ada", 22, MOST).await, None, "too old");
    store.forget_requests_before(22).await.unwrap();
    assert_eq!(found(store, "ada", 0, MOST).await, None);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn only_the_newest_requests_of_a_user_are_found() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    add(store, &session, "one", true, 20).await;
    for (user, number) in [("bob", 1), ("bob", 2), ("ada", 3), ("ada", 4)] {
        let item = Item::new("i", message(Role::User, "more"), ItemStatus::Completed);
        let digest = RequestDigest([number; 16]);
        let at_ms = 30 + i64::from(number);
        store.create_session_with(new_session(user, None, 30), vec![item], Some(digest), at_ms).await.unwrap();
    }
    assert!(found(store, "ada", 0, 3).await.is_some(), "others' requests push none out");
    assert_eq!(found(store, "ada", 0, 2).await, None);
    store.delete_session(&session, 40).await.unwrap();
    assert_eq!(found(store, "ada", 0, MOST).await, None, "it went with its session");
}

/// The client sends all of it again: what was stored of the first attempt would be there twice.
#[tokio::test]
async fn half_a_request_is_undone_at_the_next_start() {
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    say(&fixture.store, &session, "before", "words of before", 19).await;
    add(&fixture.store, &session, "one", false, 20).await;
    add(&fixture.store, &session, "two", false, 21).await;
    fixture.reopen(30).await;
    let store = &fixture.store;
    assert_eq!(texts(store, &session).await, ["words of before"]);
    add(store, &session, "three", false, 40).await;
    add(store, &session, "four", true, 41).await;
    fixture.reopen(50).await;
    assert_eq!(texts(&fixture.store, &session).await.len(), 3, "a whole one stays");
}
