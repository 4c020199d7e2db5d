//! A deleted item is gone: from every version, the search, forks, summaries, pins, facts and files.

use crate::delete::files_with;
use crate::support::*;
use serde_json::json;
use session::{ItemPlace, PastStays, Role};
use store::*;

const CANARY: &str = "xylophon";

fn fact(id: &str, person: &str, item: Option<&str>) -> NewFact {
    NewFact {
        id: id.into(),
        person: person.into(),
        about: "music".into(),
        text: format!("{person} plays {id}."),
        asked: true,
        found_by: FoundBy::Words,
        confidence: 1.0,
        item_id: item.map(str::to_owned),
        words: format!("I play {id}."),
        said_by: person.into(),
        said_at_ms: 20,
    }
}

async fn found(store: &Store, query: &str) -> usize {
    let search = HistorySearch {
        user: "ada",
        place: SearchPlace::User,
        query,
        most_words: 8,
        any_word: false,
        statements: false,
        limit: 50,
        recent_ms: None,
        now_ms: 1_000,
        marks: ["", ""],
        excerpt_words: 16,
    };
    store.search(&search).await.unwrap().len()
}

async fn summarise(store: &Store, session: &SessionRef, to: &str, text: &str, made_by: MadeBy) -> u64 {
    let seq = store.newest_seq(session).await.unwrap();
    let new = Summary {
        kind: SummaryKind::Summary,
        made_by,
        from_item: "before".into(),
        to_item: to.into(),
        through_seq: seq,
        text: text.into(),
        pins: json!([]),
        checks: json!({ "names": [text] }),
        created_at_ms: 40,
        ..Summary::default()
    };
    let version = store.add_summary(session, new).await.unwrap();
    store.apply_summary(session, version, vec![], 41).await.unwrap();
    version
}

/// The item "said" is edited, forked, summarised, pinned and remembered. Beside it stands "before", which stays.
async fn world() -> (Fixture, SessionRef, SessionRef) {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let new = SessionRecord { person: "ann".into(), is_remembered: true, ..new_session("ada", Some("first"), 10) };
    let session = store.create_session(new).await.unwrap();
    say(store, &session, "before", "harmonica first", 20).await;
    let body = message(Role::Assistant, &format!("{CANARY} said and cut"));
    put(store, &session, "said", body, ItemPlace::End, 21).await.unwrap();
    store.truncate(&session, "said", 0, 13, 22).await.unwrap();
    say(store, &session, "after", "harmonica last", 23).await;
    let changes = FactChanges {
        new: vec![fact(CANARY, "ann", Some("said")), fact("harmonica", "ann", Some("before"))],
        ..FactChanges::default()
    };
    store.remember(&session, changes, HeardThrough::Words(1), 30).await.unwrap();
    store.add_pin(&session, &format!("pin of {CANARY}"), Some("said"), MadeBy::Model, 31).await.unwrap();
    let gone = store.add_pin(&session, &format!("removed {CANARY}"), None, MadeBy::User, 31).await.unwrap();
    store.remove_pin(&session, &gone.id, 32).await.unwrap();
    store.add_pin(&session, "pin of harmonica", Some("before"), MadeBy::Model, 32).await.unwrap();
    summarise(store, &session, "before", "they spoke of a harmonica", MadeBy::Model).await;
    summarise(store, &session, "said", &format!("they spoke of a {CANARY}"), MadeBy::Model).await;
    let last = store.item(&session, "after").await.unwrap().order_key;
    let fork = store.fork_session(&session, &last, "fork".into(), 50).await.unwrap();
    (fixture, session, fork)
}

#[tokio::test]
async fn a_deleted_item_leaves_no_word() {
    for deletes_in_fork in [false, true] {
        let (fixture, session, fork) = world().await;
        let store = &fixture.store;
        assert!(found(store, CANARY).await >= 2, "the words must be there to begin with");
        let mut changes = store.watch_memories("ada");
        let seq = store.newest_seq(&session).await.unwrap();
        let place = if deletes_in_fork { &fork } else { &session };
        let deleted = store.delete_item(place, "said", 60).await.unwrap();
        assert_eq!((deleted.change, deleted.said().as_str()), (Change::Deleted, ""));
        assert!(changes.has_changed().unwrap(), "sessions in memory are told");
        changes.mark_unchanged();
        store.settle_the_log().await.unwrap();
        assert_eq!(files_with(fixture.folder.path(), CANARY), Vec::<String>::new());
        assert_eq!(found(store, CANARY).await, 0);
        for session in [&session, &fork] {
            assert_eq!(texts(store, session).await.last().map(String::as_str), Some("harmonica last"));
            let history = store.history(session, 0, 100).await.unwrap();
            let said: Vec<String> = history.iter().map(ItemVersion::said).filter(|said| !said.is_empty()).collect();
            assert_eq!(said, ["harmonica first", "harmonica last"]);
            assert_eq!(store.withdrawn_items(session).await.unwrap(), ["said"]);
            let pins = store.pins(session, false).await.unwrap();
            assert_eq!(pins.iter().map(|pin| pin.text.as_str()).collect::<Vec<_>>(), ["pin of harmonica"]);
            assert!(store.load(session).await.unwrap().summary_is_stale);
        }
        assert!(store.newest_seq(&session).await.unwrap() > seq, "the history tells that it was deleted");
        // All else is unharmed.
        assert_eq!(found(store, "harmonica").await, 4);
        let kept = store.facts("ada", None).await.unwrap();
        assert_eq!(kept.iter().map(|fact| fact.id.as_str()).collect::<Vec<_>>(), ["harmonica"]);
        let all = store.summaries(&session).await.unwrap();
        assert_eq!(all[0].text, "they spoke of a harmonica");
        assert_eq!((all[1].kind, all[1].text.as_str()), (SummaryKind::Drop, ""));
        let pasts = store.pasts_to_forget().await.unwrap();
        for session in [&session, &fork] {
            let past = pasts.iter().find(|past| past.owner == session.past_owner()).expect("its files go");
            assert!(
                past.stays == PastStays::Memory && past.user.as_deref() == Some("ada"),
                "what is in memory stays warm"
            );
        }
        assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
        // Its id is free again.
        say(store, &session, "said", "something else", 70).await;
        assert_eq!(texts(store, &fork).await.len(), texts(store, &session).await.len() - 1);
    }
}

/// A model may end a reply before its first word. What was computed of the conversation has no word of the place that it
/// leaves, and the next start needs it.
#[tokio::test]
async fn a_reply_that_had_no_words_leaves_the_files_there() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    say(store, &session, "before", "harmonica first", 20).await;
    for (id, text, kept) in [("empty", "", 0), ("cut", CANARY, 1)] {
        let reply = begin(store, &session, id, "resp_1", 21).await.unwrap();
        let body = message(Role::Assistant, text);
        store.finish_reply(&reply, VersionStatus::Cancelled, body, 22).await.unwrap();
        if !text.is_empty() {
            store.truncate(&session, id, 0, 0, 23).await.unwrap();
        }
        store.delete_item(&session, id, 24).await.unwrap();
        assert_eq!(store.pasts_to_forget().await.unwrap().len(), kept, "{id}");
    }
}

#[tokio::test]
async fn a_later_item_with_the_same_id_is_another_one() {
    let (fixture, session, fork) = world().await;
    let store = &fixture.store;
    store.delete_item(&session, "after", 60).await.unwrap();
    say(store, &session, "after", "new words", 61).await;
    say(store, &fork, "after", "words of the fork", 62).await;
    store.delete_item(&session, "after", 63).await.unwrap();
    assert_eq!(texts(store, &fork).await.last().map(String::as_str), Some("words of the fork"));
}

#[tokio::test]
async fn no_fact_is_made_of_an_item_that_was_deleted_meanwhile() {
    let (fixture, session, _) = world().await;
    let store = &fixture.store;
    store.delete_item(&session, "said", 60).await.unwrap();
    let changes = FactChanges { new: vec![fact("late", "ann", Some("said"))], ..FactChanges::default() };
    store.remember(&session, changes, HeardThrough::Words(3), 61).await.unwrap();
    let kept = store.facts("ada", None).await.unwrap();
    assert_eq!(kept.iter().map(|fact| fact.id.as_str()).collect::<Vec<_>>(), ["harmonica"]);
}

#[tokio::test]
async fn what_was_computed_of_a_forgotten_fact_is_listed() {
    let owner = |person: &str, room: &str| LogOwner { user: "ada".into(), person: person.into(), room: room.into() };
    for way in 0..5 {
        let (fixture, session, _) = world().await;
        let store = &fixture.store;
        let told = |ids: &[&str]| Some(ids.iter().map(|id| (*id).to_owned()).collect());
        let new = |id: &str, ids: &[&str]| SessionRecord { told_facts: told(ids), ..new_session("ada", Some(id), 50) };
        let teller = store.create_session(new("teller", &["harmonica", CANARY])).await.unwrap();
        let other = store.create_session(new("other", &["harmonica"])).await.unwrap();
        let (hers, his) = (owner("ann", "kitchen"), owner("ben", "kitchen"));
        for owner in [&hers, &his] {
            store.note_past_owner(owner, 50).await.unwrap();
        }
        let now = store.pasts_to_forget().await.unwrap().into_iter().map(|past| past.owner).collect();
        store.pasts_forgotten(now).await.unwrap();
        match way {
            0 => drop(store.forget_facts("ada", vec![CANARY.into()], 60).await.unwrap()),
            1 => {
                let forget = FactChanges { forgotten: vec![CANARY.into()], ..FactChanges::default() };
                store.remember(&session, forget, HeardThrough::Words(3), 60).await.unwrap();
            }
            2 => drop(store.forget_person("ada", "ann", 60).await.unwrap()),
            3 => drop(store.delete_item(&session, "said", 60).await.unwrap()),
            _ => store.delete_session(&session, 60).await.unwrap(),
        }
        let pasts = owners_to_forget(store).await;
        assert!(pasts.contains(&teller.past_owner()), "way {way}");
        assert_eq!(pasts.contains(&other.past_owner()), [2, 4].contains(&way), "way {way}");
        assert!(pasts.contains(&hers.past_owner()) && !pasts.contains(&his.past_owner()), "way {way}");
    }
    // The home's facts are told to all.
    let (fixture, _, _) = world().await;
    let store = &fixture.store;
    store.put_fact("ada", fact("bins", "", None), Vec::new(), 50).await.unwrap();
    store.note_past_owner(&owner("ben", ""), 50).await.unwrap();
    store.forget_facts("ada", vec!["bins".into()], 60).await.unwrap();
    assert!(owners_to_forget(store).await.contains(&owner("ben", "").past_owner()));
}

#[tokio::test]
async fn files_of_facts_that_a_session_tells_no_more_are_listed() {
    let (fixture, session, _) = world().await;
    let store = &fixture.store;
    store.pasts_forgotten(owners_to_forget(store).await).await.unwrap();
    for (ids, is_listed) in [(vec![CANARY, "harmonica"], false), (vec!["harmonica"], true)] {
        store.set_told_facts(&session, ids.into_iter().map(str::to_owned).collect());
        say(store, &session, &format!("next {is_listed}"), "Hello.", 60).await;
        assert_eq!(owners_to_forget(store).await.contains(&session.past_owner()), is_listed);
    }
}

#[tokio::test]
async fn a_turn_is_what_a_response_answered() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    put(store, &session, "head", message(Role::System, "Be brief."), ItemPlace::End, 20).await.unwrap();
    for n in 1..3 {
        say(store, &session, &format!("u{n}"), "question", 20).await;
        let id = format!("resp_{n}");
        store.begin_response(&session, new_response(&id), 20).await.unwrap();
        let reply = begin(store, &session, &format!("a{n}"), &id, 20).await.unwrap();
        let body = message(Role::Assistant, "answer");
        store.finish_reply(&reply, VersionStatus::Completed, body, 21).await.unwrap();
    }
    assert_eq!(store.turn_of_response(&session, "resp_1").await.unwrap(), ["u1", "a1"]);
    assert_eq!(store.turn_of_response(&session, "resp_2").await.unwrap(), ["u2", "a2"]);
    assert_eq!(store.turn_of_response(&session, "resp_3").await.unwrap(), Vec::<String>::new());
    store.delete_item(&session, "a1", 30).await.unwrap();
    assert_eq!(store.turn_of_response(&session, "resp_2").await.unwrap(), ["u2", "a2"]);
}

#[tokio::test]
async fn writes_of_a_session_that_waits_for_none_keep_their_order() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    for n in 0..50 {
        let said = |text: &str| put(store, &session, "a", message(Role::User, text), ItemPlace::End, n);
        let (first, deleted, again) = (said("first"), store.delete_item(&session, "a", n), said("again"));
        let (first, deleted, again) = tokio::join!(first, deleted, again);
        assert!(first.is_ok() && deleted.is_ok() && again.is_ok(), "{n}: {first:?} {deleted:?} {again:?}");
        store.delete_item(&session, "a", n).await.unwrap();
    }
}
