//! Summaries and pins: what they cover, when they count, how they are undone.

use crate::support::*;
use serde_json::json;
use session::{ItemPlace, Role};
use store::*;

fn summary(to_item: &str, through_seq: u64, text: &str) -> Summary {
    Summary {
        kind: SummaryKind::Summary,
        made_by: MadeBy::Model,
        based_on: None,
        from_item: "i0".into(),
        to_item: to_item.into(),
        through_seq,
        text: text.into(),
        pins: json!([]),
        checks: json!({"names": {"missing": []}}),
        tokens_before: 900,
        tokens_after: 300,
        arm: Some("a".into()),
        created_at_ms: 50,
        ..Summary::default()
    }
}

async fn ten_items() -> (Fixture, SessionRef) {
    let fixture = Fixture::new().await;
    let session = fixture.session().await;
    for n in 0..10 {
        say(&fixture.store, &session, &format!("i{n}"), &format!("text {n}"), 20 + n).await;
    }
    (fixture, session)
}

#[tokio::test]
async fn a_summary_counts_when_applied_and_can_be_undone_and_redone() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    let version = store.add_summary(&session, summary("i5", 10, "They spoke of texts.")).await.unwrap();
    assert_eq!((version, store.load(&session).await.unwrap().summary), (1, None));
    store.apply_summary(&session, version, vec![], 60).await.unwrap();
    let view = store.load(&session).await.unwrap();
    assert_eq!(view.summary.as_ref().map(|summary| summary.text.as_str()), Some("They spoke of texts."));
    assert_eq!(view.items.iter().map(|item| item.item_id.as_str()).collect::<Vec<_>>(), ["i6", "i7", "i8", "i9"]);
    assert!(!view.summary_is_stale);

    let second = Summary { based_on: Some(1), ..summary("i7", view.last_seq, "More texts.") };
    assert_eq!(store.add_summary(&session, second).await.unwrap(), 2);
    store.apply_summary(&session, 2, vec![], 70).await.unwrap();
    assert_eq!(texts(store, &session).await, ["text 8", "text 9"]);
    store.undo_summary(&session, 2, 80).await.unwrap();
    assert_eq!(texts(store, &session).await, ["text 6", "text 7", "text 8", "text 9"]);
    store.undo_summary(&session, 1, 81).await.unwrap();
    assert_eq!(texts(store, &session).await.len(), 10);
    store.apply_summary(&session, 2, vec![], 90).await.unwrap();
    assert_eq!(texts(store, &session).await.len(), 2);
    assert_eq!(store.items(&session, None, 100).await.unwrap().len(), 10);
    assert_eq!(store.items(&session, Some("i7"), 1).await.unwrap()[0].item_id, "i8");
    assert_eq!(store.apply_summary(&session, 9, vec![], 91).await, Err(Error::NoSummary { version: 9 }));
    assert_eq!(store.summaries(&session).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_summary_of_a_past_that_changed_is_refused_or_called_stale() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    let version = store.add_summary(&session, summary("i5", 10, "Old.")).await.unwrap();
    store.truncate(&session, "i2", 0, 1, 60).await.unwrap();
    assert_eq!(store.apply_summary(&session, version, vec![], 61).await, Err(Error::StaleSummary { version }));
    let planned_before = store.add_summary(&session, summary("i5", 10, "Old.")).await;
    assert_eq!(planned_before, Err(Error::StaleSummary { version: 2 }));
    let fresh = store.add_summary(&session, summary("i5", 11, "New.")).await.unwrap();
    store.apply_summary(&session, fresh, vec![], 62).await.unwrap();
    // Later items and changes do not make it stale.
    say(store, &session, "i10", "text 10", 63).await;
    store.delete_item(&session, "i9", 64).await.unwrap();
    assert!(!store.load(&session).await.unwrap().summary_is_stale);
    store.delete_item(&session, "i5", 65).await.unwrap();
    let view = store.load(&session).await.unwrap();
    assert!(view.summary_is_stale);
    // The last covered item is gone; the next one still comes after the summary.
    assert_eq!(view.items.len(), 4);
}

#[tokio::test]
async fn an_item_said_after_the_covered_ones_were_deleted_is_seen() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    let version = store.add_summary(&session, summary("i9", 10, "All.")).await.unwrap();
    store.apply_summary(&session, version, vec![], 60).await.unwrap();
    store.delete_item(&session, "i9", 61).await.unwrap();
    say(store, &session, "next", "next", 62).await;
    put(store, &session, "placed", message(Role::User, "placed"), ItemPlace::After("i8".into()), 63).await.unwrap();
    assert_eq!(
        texts(store, &session).await,
        ["placed", "next"],
        "what is covered ends with i9, and i9 stood behind i8"
    );
    assert!(store.load(&session).await.unwrap().summary_is_stale);
}

#[tokio::test]
async fn results_of_tools_leave_the_view_with_the_swap_and_come_back_with_its_undoing() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    let trimmed = async || store.load(&session).await.unwrap().trimmed;
    let version = store.add_summary(&session, summary("i3", 10, "Some.")).await.unwrap();
    assert_eq!(store.load(&session).await.unwrap().newest_summary.unwrap().version, version);
    // A failed swap trims nothing.
    store.truncate(&session, "i2", 0, 1, 59).await.unwrap();
    assert!(store.apply_summary(&session, version, vec!["i6".into()], 60).await.is_err());
    assert!(trimmed().await.is_empty());
    let version = store.add_summary(&session, summary("i3", 11, "Some.")).await.unwrap();
    store.apply_summary(&session, version, vec!["i6".into(), "i2".into()], 61).await.unwrap();
    assert_eq!(trimmed().await, ["i6"], "what is covered is not in the view");
    store.trim_results(&session, vec!["i7".into()], 62).await.unwrap();
    assert_eq!(trimmed().await, ["i6", "i7"]);
    assert_eq!(texts(store, &session).await[2], "text 6", "what was said stays");
    store.undo_summary(&session, version, 63).await.unwrap();
    assert!(trimmed().await.is_empty());
    // A person's summary covers the past as of now.
    let edited = Summary { made_by: MadeBy::User, ..summary("i5", 0, "By hand.") };
    let version = store.add_applied_summary(&session, edited, vec![]).await.unwrap();
    let view = store.load(&session).await.unwrap();
    assert_eq!((view.summary.unwrap().version, view.summary_is_stale), (version, false));
}

#[tokio::test]
async fn pins_stand_until_removed() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    let pin = store.add_pin(&session, "Ada is allergic to nuts.", Some("i3"), MadeBy::User, 60).await.unwrap();
    store.add_pin(&session, "Speak slowly.", None, MadeBy::Model, 61).await.unwrap();
    assert_eq!(store.load(&session).await.unwrap().pins.len(), 2);
    store.remove_pin(&session, &pin.id, 70).await.unwrap();
    assert_eq!(store.remove_pin(&session, &pin.id, 71).await, Err(Error::NoPin { pin: pin.id.clone() }));
    let pins = store.load(&session).await.unwrap().pins;
    assert_eq!(pins.iter().map(|pin| pin.text.as_str()).collect::<Vec<_>>(), ["Speak slowly."]);
    let all = store.pins(&session, true).await.unwrap();
    assert_eq!((all.len(), all[0].removed_at_ms), (2, Some(70)));
}

#[tokio::test]
async fn measurements_and_feedback_are_kept_by_turn() {
    let (fixture, session) = ten_items().await;
    let store = &fixture.store;
    for turn in 1..=3 {
        store.add_measurement(&session, measurement(turn)).await.unwrap();
    }
    store.set_feedback(&session, "resp_2", -1).await.unwrap();
    assert_eq!(store.set_feedback(&session, "resp_9", 1).await, Err(Error::NoResponse { response: "resp_9".into() }));
    let kept = store.measurements(&session).await.unwrap();
    assert_eq!(kept[0], measurement(1));
    assert_eq!(kept.iter().map(|m| m.feedback).collect::<Vec<_>>(), [None, Some(-1), None]);
    let all = store.experiment_turns("windows").await.unwrap();
    assert_eq!((all.len(), all[0].user.as_str()), (3, "ada"));
    assert_eq!(store.list_sessions("ada", None, 1).await.unwrap()[0].fill_tokens, Some(300));
}
