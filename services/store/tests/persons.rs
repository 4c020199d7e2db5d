use crate::delete::files_with;
use crate::support::*;
use store::*;

async fn session_of(store: &Store, user: &str, person: &str, id: &str, at_ms: i64) -> SessionRef {
    let new = SessionRecord { person: person.to_owned(), ..new_session(user, Some(id), at_ms) };
    store.create_session(new).await.unwrap()
}

fn fact(id: &str, person: &str, said_by: &str, text: &str) -> NewFact {
    NewFact {
        id: id.to_owned(),
        person: person.to_owned(),
        about: id.to_owned(),
        text: text.to_owned(),
        asked: true,
        found_by: FoundBy::Words,
        confidence: 1.0,
        item_id: None,
        words: text.to_owned(),
        said_by: said_by.to_owned(),
        said_at_ms: 20,
    }
}

#[tokio::test]
async fn persons_are_listed_with_their_last_use() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    session_of(store, "ada", "anna", "s1", 10).await;
    session_of(store, "ada", "anna", "s2", 30).await;
    session_of(store, "ada", "ben", "s3", 40).await;
    session_of(store, "ada", "", "s4", 20).await;
    let kitchen = SessionRecord { room: "kitchen".to_owned(), ..new_session("ada", Some("s5"), 15) };
    let kitchen = store.create_session(kitchen).await.unwrap();
    store.put_fact("ada", fact("f1", "cleo", "cleo", "Cleo likes tea."), vec![], 5).await.unwrap();
    let lines = store.persons("ada").await.unwrap();
    let told: Vec<_> = lines.iter().map(|line| (line.name.as_str(), line.sessions, line.used_at_ms)).collect();
    assert_eq!(told, [("ben", 1, 40), ("anna", 2, 30), ("", 1, 20), ("", 1, 15), ("cleo", 0, 5)]);
    assert_eq!(lines[3].room, "kitchen");
    assert_eq!(store.delete_person("ada", "kitchen", 50).await.unwrap(), [kitchen]);
    assert_eq!(store.delete_person("ada", "", 50).await.unwrap().len(), 1);
    assert_eq!(store.persons("ada").await.unwrap().len(), 3);
    assert_eq!(store.persons("bob").await.unwrap(), []);
}

#[tokio::test]
async fn a_deleted_person_leaves_nothing_and_others_keep_all() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.put_user("bob", "bob", 1).await.unwrap();
    let anna = session_of(store, "ada", "anna", "s1", 10).await;
    let ben = session_of(store, "ada", "ben", "s2", 10).await;
    let of_bob = session_of(store, "bob", "anna", "s1", 10).await;
    for (session, word) in [(&anna, "xylophone"), (&ben, "harmonica"), (&of_bob, "trumpet")] {
        say(store, session, "i1", &format!("my {word} is old"), 20).await;
    }
    store.put_fact("ada", fact("f1", "anna", "anna", "the xylophone is old"), vec![], 20).await.unwrap();
    store.put_fact("ada", fact("f2", "", "anna", "a xylophone is in the hall"), vec![], 20).await.unwrap();
    store.put_fact("ada", fact("f3", "ben", "ben", "the harmonica is old"), vec![], 20).await.unwrap();
    store.put_fact("bob", fact("f4", "anna", "anna", "the trumpet is old"), vec![], 20).await.unwrap();
    assert!(!files_with(fixture.folder.path(), "xylophone").is_empty(), "the words must be in the file to begin with");
    let deleted = store.delete_person("ada", "anna", 50).await.unwrap();
    assert_eq!(deleted, std::slice::from_ref(&anna));
    assert_eq!(owners_to_forget(store).await, [anna.past_owner()]);
    assert_eq!(files_with(fixture.folder.path(), "xylophone"), Vec::<String>::new());
    let facts = |user: &'static str| async move {
        store.facts(user, None).await.unwrap().into_iter().map(|fact| fact.id).collect::<Vec<_>>()
    };
    assert_eq!((facts("ada").await, facts("bob").await), (vec!["f3".to_owned()], vec!["f4".to_owned()]));
    assert_eq!(texts(store, &ben).await.len(), 1);
    assert_eq!(texts(store, &of_bob).await.len(), 1);
    assert_eq!(store.delete_person("ada", "anna", 60).await.unwrap(), []);
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

fn owner(person: &str, room: &str) -> LogOwner {
    LogOwner { user: "ada".to_owned(), person: person.to_owned(), room: room.to_owned() }
}

/// Conversations that clients hold belong to no session, but their computed data belongs to a person.
#[tokio::test]
async fn what_was_computed_for_a_person_is_found_by_every_deletion() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let numbers = |owners: &[LogOwner]| {
        let mut numbers: Vec<u64> = owners.iter().map(LogOwner::past_owner).collect();
        numbers.sort_unstable_by_key(|number| number.cast_signed());
        numbers
    };
    let found = async || {
        let mut found = owners_to_forget(store).await;
        found.sort_unstable_by_key(|number| number.cast_signed());
        store.pasts_forgotten(found.clone()).await.unwrap();
        found
    };
    let all = [owner("anna", ""), owner("anna", "kitchen"), owner("", "kitchen"), owner("ben", ""), owner("", "")];
    for (at, owner) in all.iter().enumerate() {
        store.note_past_owner(owner, 100 + at as i64).await.unwrap();
        store.note_past_owner(owner, 10).await.unwrap();
    }
    // In every room, and for a person without any other data.
    assert!(store.persons("ada").await.unwrap().iter().any(|line| line.name == "anna" && line.sessions == 0));
    store.delete_person("ada", "anna", 200).await.unwrap();
    assert_eq!(found().await, numbers(&all[..2]));
    store.delete_person("ada", "anna", 200).await.unwrap();
    assert_eq!(found().await, [0; 0]);
    store.delete_person("ada", "kitchen", 200).await.unwrap();
    assert_eq!(found().await, numbers(&all[2..3]));
    // With a kept conversation of the person.
    let session = session_of(store, "ada", "ben", "s1", 10).await;
    store.delete_session(&session, 300).await.unwrap();
    assert_eq!(found().await, [session.past_owner()], "no log was kept in it");
    let new = SessionRecord { person: "ben".to_owned(), ..new_session("ada", Some("s2"), 10) };
    let mark = LogMark { hash: "h".to_owned(), of_last_few: false, items: 1 };
    let items = vec![session::Item::message("i1", session::Role::User, "Hi")];
    let addition = LogAddition { items, marks: vec![mark], ..LogAddition::default() };
    store.begin_log(&all[3], new, addition, 20).await.unwrap();
    let kept = store.open_session("ada", "s2").await.unwrap();
    store.delete_session(&kept, 300).await.unwrap();
    let of_both = found().await;
    assert!(of_both.contains(&kept.past_owner()) && of_both.contains(&all[3].past_owner()), "{of_both:?}");
    // And after a long time without use.
    store.sweep(Some(50), 150).await.unwrap();
    assert_eq!(found().await, [0; 0]);
    store.sweep(Some(50), 155).await.unwrap();
    assert_eq!(found().await, numbers(&all[3..]));
}

#[test]
fn owners_have_different_numbers() {
    let numbers: std::collections::BTreeSet<u64> =
        [owner("a", "b"), owner("ab", ""), owner("", "ab"), owner("b", "a")].iter().map(LogOwner::past_owner).collect();
    assert_eq!(numbers.len(), 4);
}
