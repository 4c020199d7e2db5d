use crate::support::*;
use store::*;

fn kitchen(door: &str) -> SessionName {
    SessionName { door: door.into(), name: "satellite assist_satellite.kitchen".into() }
}

#[tokio::test]
async fn a_name_leads_to_one_session_also_after_a_restart() {
    let mut fixture = Fixture::new().await;
    let store = fixture.store.clone();
    let name = kitchen("wyoming");
    assert_eq!(store.session_named("ada", &name).await.unwrap(), None);
    // Two turns at once make one session.
    let make = |at| store.create_named_session(new_session("ada", None, at), name.clone());
    let (first, second) = tokio::join!(make(10), make(11));
    let session = first.unwrap();
    assert_eq!(second.unwrap(), session);
    assert_eq!(store.list_sessions("ada", None, 10).await.unwrap().len(), 1);
    fixture.reopen(20).await;
    assert_eq!(fixture.store.session_named("ada", &name).await.unwrap(), Some(session));
}

#[tokio::test]
async fn users_and_doors_have_names_of_their_own() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let make = |user, door| store.create_named_session(new_session(user, None, 10), kitchen(door));
    let sessions = [
        make("ada", "wyoming").await.unwrap(),
        make("ada", "wyoming butler").await.unwrap(),
        make("bob", "wyoming").await.unwrap(),
    ];
    assert!(sessions[0] != sessions[1] && sessions[0] != sessions[2] && sessions[1] != sessions[2]);
    assert!(make("carol", "wyoming").await.is_err());
}

#[tokio::test]
async fn a_name_goes_with_its_session_and_may_be_given_again() {
    let fixture = Fixture::new().await;
    let (store, name) = (&fixture.store, kitchen("wyoming"));
    let old = store.create_named_session(new_session("ada", None, 10), name.clone()).await.unwrap();
    say(store, &old, "u1", "Hello there", 20).await;
    store.delete_session(&old, 30).await.unwrap();
    assert_eq!(store.session_named("ada", &name).await.unwrap(), None);
    let new = store.create_named_session(new_session("ada", None, 40), name.clone()).await.unwrap();
    assert_ne!(new.id(), old.id());
    assert_eq!(store.session_named("ada", &name).await.unwrap(), Some(new));
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}
