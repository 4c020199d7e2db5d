//! Deleting: all of it goes, and nothing else.

use crate::support::*;
use session::{ItemPlace, Role};
use std::path::Path;
use store::*;

pub fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

#[tokio::test]
async fn a_deleted_session_leaves_no_word_in_any_file() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let other = store.create_session(new_session("ada", Some("kept"), 10)).await.unwrap();
    for n in 0..1_200 {
        say(store, &session, &format!("i{n}"), &format!("xylophonic secret number {n}"), 20).await;
        if n % 100 == 0 {
            say(store, &other, &format!("k{n}"), &format!("harmonica number {n}"), 20).await;
        }
    }
    store.delete_item(&session, "i3", 30).await.unwrap();
    store.add_pin(&session, "remember xylophonic things", Some("i1"), MadeBy::User, 30).await.unwrap();
    assert!(!files_with(fixture.folder.path(), "xylophonic").is_empty(), "the words must be in the file to begin with");

    store.delete_session(&session, 50).await.unwrap();
    assert_eq!(owners_to_forget(store).await, [session.past_owner()]);
    assert_eq!(files_with(fixture.folder.path(), "xylophonic"), Vec::<String>::new());
    assert!(!files_with(fixture.folder.path(), "harmonica").is_empty());
    assert_eq!(store.load(&session).await.map(|_| ()), Err(session_missing(&session)));
    let late = put(store, &session, "late", message(Role::User, "late"), ItemPlace::End, 60).await;
    assert_eq!(late, Err(session_missing(&session)));
    assert_eq!(store.list_sessions("ada", None, 10).await.unwrap().len(), 1);
    assert_eq!(texts(store, &other).await.len(), 12);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
    let statistics = store.statistics().await.unwrap();
    assert_eq!((statistics.sessions, statistics.versions, statistics.free_bytes), (1, 12, 0));

    // The id is free again, and the handle of the old session does not reach the new one.
    store.create_session(new_session("ada", Some(session.id()), 70)).await.unwrap();
    assert_eq!(store.load(&session).await.map(|_| ()), Err(session_missing(&session)));
}

fn session_missing(session: &SessionRef) -> Error {
    Error::NoSession { session: session.id().to_owned() }
}

#[tokio::test]
async fn what_was_computed_is_remembered_as_deleted_until_it_is_gone() {
    let mut fixture = Fixture::new().await;
    let store = fixture.store.clone();
    let (one, two) = (fixture.session().await, fixture.session().await);
    assert_ne!(one.past_owner(), two.past_owner());
    store.delete_session(&one, 30).await.unwrap();
    store.delete_session(&two, 20).await.unwrap();
    fixture.reopen(40).await;
    let store = &fixture.store;
    assert_eq!(owners_to_forget(store).await, [two.past_owner(), one.past_owner()]);
    store.pasts_forgotten(vec![two.past_owner()]).await.unwrap();
    assert_eq!(owners_to_forget(store).await, [one.past_owner()]);
}

#[tokio::test]
async fn retention_takes_the_unused_and_only_them() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let old = store.create_session(new_session("ada", Some("old"), 100)).await.unwrap();
    let used = store.create_session(new_session("bob", Some("used"), 100)).await.unwrap();
    say(store, &used, "u", "still here", 2_000).await;
    let deleted = store.delete_unused_since(1_000, 3_000).await.unwrap();
    assert_eq!(deleted, [old.past_owner()]);
    assert_eq!(store.session(&old).await, Err(session_missing(&old)));
    assert_eq!(texts(store, &used).await, ["still here"]);
    assert_eq!(store.delete_unused_since(1_000, 3_000).await.unwrap(), Vec::<u64>::new());
}

/// A client that hangs up takes the rest of its deletion along; its retry finds no session any more.
#[tokio::test]
async fn a_deletion_whose_client_hung_up_is_finished_by_a_regular_call() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let stays = store.create_session(new_session("ada", None, 10)).await.unwrap();
    say(store, &stays, "u", "stays", 20).await;
    for n in 0..60 {
        say(store, &session, &format!("u{n}"), &format!("the xylophone {}", "and so on ".repeat(200)), 20).await;
    }
    let mut deletion = Box::pin(store.delete_session(&session, 30));
    loop {
        let ended = tokio::time::timeout(std::time::Duration::from_millis(1), &mut deletion).await;
        assert!(ended.is_err(), "it was over before its client hung up");
        if store.session(&session).await.is_err() {
            break;
        }
    }
    drop(deletion);
    assert!(store.statistics().await.unwrap().versions > 1, "nothing is left to finish");
    assert_eq!(store.delete_session(&session, 31).await, Err(session_missing(&session)));
    store.finish_deletions().await.unwrap();
    store.settle_the_log().await.unwrap();
    assert_eq!(store.statistics().await.unwrap().versions, 1);
    assert_eq!(files_with(fixture.folder.path(), "xylophone"), Vec::<String>::new());
    assert_eq!(texts(store, &stays).await, ["stays"]);
}

#[tokio::test]
async fn a_deletion_that_a_crash_cut_off_is_finished_at_the_next_start() {
    use sqlx::{ConnectOptions, Connection};
    let mut fixture = Fixture::new().await;
    let session = fixture.session().await;
    say(&fixture.store, &session, "u", "half gone", 20).await;
    fixture.store.close().await.unwrap();
    let file = sqlx::sqlite::SqliteConnectOptions::new().filename(fixture.store.path());
    let mut connection = file.connect().await.unwrap();
    sqlx::query("UPDATE sessions SET deleted_at_ms = 30").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    fixture.store = Store::open(&options(fixture.folder.path()), 40).await.unwrap();
    assert_eq!(fixture.store.statistics().await.unwrap().versions, 0);
    assert_eq!(fixture.store.check().await.unwrap(), Vec::<String>::new());
}

const DAY: i64 = 24 * 3600 * 1000;

#[tokio::test]
async fn a_clock_that_is_set_right_makes_no_session_old() {
    let fixture = Fixture::new().await;
    let (store, retention) = (&fixture.store, Some(30 * DAY));
    let session = store.create_session(new_session("ada", None, DAY)).await.unwrap();
    say(store, &session, "u", "said while the clock was a year behind", DAY).await;
    assert_eq!(store.sweep(retention, DAY + 60).await, Ok(vec![]));
    let right = 366 * DAY;
    for hour in 0..48 {
        assert_eq!(store.sweep(retention, right + hour * DAY / 24).await, Ok(vec![]), "hour {hour}");
    }
    // A used session stays, even if the clock was ahead before; an unused one goes when its time has passed.
    let used = store.create_session(new_session("bob", None, right + 900 * DAY)).await.unwrap();
    let mut gone_on = None;
    for day in 3..60 {
        let now_ms = right + day * DAY;
        say(store, &used, &format!("u{day}"), "still here", now_ms).await;
        if store.sweep(retention, now_ms).await.unwrap() == [session.past_owner()] {
            gone_on = Some(day);
        }
    }
    assert!(matches!(gone_on, Some(29..=31)), "{gone_on:?}");
    assert_eq!(store.session(&session).await, Err(session_missing(&session)));
    assert_eq!(store.load(&used).await.unwrap().items.len(), 57);
}

#[tokio::test]
async fn a_session_in_which_nothing_was_said_goes_after_a_day() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let silent = store.create_session(new_session("ada", None, 10)).await.unwrap();
    let set_up = store.create_session(new_session("ada", None, 10)).await.unwrap();
    store.set_config(&set_up, &config(), 11).await.unwrap();
    let talked = store.create_session(new_session("ada", None, 10)).await.unwrap();
    say(store, &talked, "u", "hello", 10).await;
    assert_eq!(store.sweep(None, 20).await, Ok(vec![]));
    assert_eq!(store.sweep(None, DAY).await, Ok(vec![]));
    assert_eq!(store.sweep(None, DAY + 20).await, Ok(vec![silent.past_owner()]));
    assert!(store.session(&set_up).await.is_ok() && store.session(&talked).await.is_ok());
}

#[tokio::test]
async fn an_item_that_was_added_again_elsewhere_can_be_deleted_when_another_has_its_first_place() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = store.create_session(new_session("ada", Some("first"), 10)).await.unwrap();
    for item in ["one", "two"] {
        say(store, &session, item, item, 20).await;
    }
    store.delete_item(&session, "one", 30).await.unwrap();
    say(store, &session, "one", "again", 40).await;
    put(store, &session, "zero", message(Role::User, "zero"), ItemPlace::Head, 50).await.unwrap();
    store.delete_item(&session, "one", 60).await.unwrap();
    assert_eq!(texts(store, &session).await, ["zero", "two"]);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

/// A running service knows nothing of what a command beside it deletes.
#[tokio::test]
async fn a_pin_that_a_command_removes_leaves_no_word_and_no_file_of_what_was_computed() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let pin = store.add_pin(&session, "the xylophone is red", None, MadeBy::User, 20).await.unwrap();
    let command = StoreOptions { opened_by: OpenedBy::Command, ..options(fixture.folder.path()) };
    let command = Store::open(&command, 30).await.unwrap();
    let theirs = command.open_session("ada", session.id()).await.unwrap();
    command.remove_pin(&theirs, &pin.id, 31).await.unwrap();
    assert_eq!(command.remove_pin(&theirs, &pin.id, 32).await, Err(Error::NoPin { pin: pin.id }));
    command.close().await.unwrap();
    assert_eq!(files_with(fixture.folder.path(), "xylophone"), Vec::<String>::new());
    assert_eq!(owners_to_forget(store).await, [session.past_owner()]);
}
