//! Operations in any order, against a list in memory that does the same.

use crate::support::*;
use crate::transfer::{export, import};
use proptest::prelude::*;
use session::{ItemPlace, Role};
use std::collections::HashMap;
use store::*;

#[derive(Debug, Clone)]
enum Step {
    Append { id: u8, place: Where, text: String },
    Truncate { id: u8, chars: u8 },
    Delete { id: u8 },
    Begin { id: u8 },
    Extend { id: u8, text: String },
    Finish { id: u8 },
    Summarise { from: u8, to: u8 },
    Undo,
    Reopen,
    Crash,
    MoveToAnotherStore,
}

#[derive(Debug, Clone)]
enum Where {
    End,
    Start,
    After(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let id = || 0u8..8;
    let text = || "[a-zé東 ]{0,12}";
    let place = prop_oneof![4 => Just(Where::End), 1 => Just(Where::Start), 2 => id().prop_map(Where::After)];
    prop_oneof![
        8 => (id(), place, text()).prop_map(|(id, place, text)| Step::Append { id, place, text }),
        2 => (id(), 0u8..12).prop_map(|(id, chars)| Step::Truncate { id, chars }),
        3 => id().prop_map(|id| Step::Delete { id }),
        2 => id().prop_map(|id| Step::Begin { id }),
        3 => (id(), text()).prop_map(|(id, text)| Step::Extend { id, text }),
        2 => id().prop_map(|id| Step::Finish { id }),
        1 => (id(), id()).prop_map(|(from, to)| Step::Summarise { from, to }),
        1 => Just(Step::Undo),
        1 => Just(Step::Reopen),
        1 => Just(Step::Crash),
        1 => Just(Step::MoveToAnotherStore),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Said {
    id: String,
    text: String,
    status: VersionStatus,
}

#[derive(Default)]
struct Model {
    items: Vec<Said>,
    history: Vec<(String, Change, String)>,
}

impl Model {
    fn at(&mut self, id: &str) -> Option<(usize, &mut Said)> {
        self.items.iter_mut().enumerate().find(|(_, said)| said.id == id)
    }

    fn log(&mut self, id: &str, change: Change, text: &str) {
        self.history.push((id.to_owned(), change, text.to_owned()));
    }

    fn insert(&mut self, id: &str, place: &Where, said: Said) -> bool {
        if self.at(id).is_some() {
            return false;
        }
        let index = match place {
            Where::End => self.items.len(),
            Where::Start => 0,
            Where::After(other) => match self.at(&name(*other)) {
                Some((index, _)) => index + 1,
                None => return false,
            },
        };
        self.items.insert(index, said);
        true
    }

    fn interrupt_all(&mut self) {
        let open: Vec<_> = self.items.iter_mut().filter(|said| said.status == VersionStatus::InProgress).collect();
        let mut closed = Vec::new();
        for said in open {
            said.status = VersionStatus::Interrupted;
            closed.push((said.id.clone(), said.text.clone()));
        }
        // The order in which crashed replies are closed is open.
        closed.sort();
        for (id, text) in closed {
            self.log(&id, Change::Finished, &text);
        }
    }
}

fn name(id: u8) -> String {
    format!("item{id}")
}

fn position(place: &Where) -> ItemPlace {
    match place {
        Where::End => ItemPlace::End,
        Where::Start => ItemPlace::Head,
        Where::After(id) => ItemPlace::After(name(*id)),
    }
}

struct World {
    fixture: Fixture,
    session: SessionRef,
    replies: HashMap<String, OpenReply>,
    model: Model,
    now_ms: i64,
}

impl World {
    async fn new() -> World {
        let fixture = Fixture::new().await;
        let session = fixture.session().await;
        World { fixture, session, replies: HashMap::new(), model: Model::default(), now_ms: 100 }
    }

    async fn run(&mut self, step: Step) {
        self.now_ms += 1;
        let (store, session, now_ms) = (self.fixture.store.clone(), self.session.clone(), self.now_ms);
        match step {
            Step::Append { id, place, text } => {
                let stored =
                    put(&store, &session, &name(id), message(Role::Assistant, &text), position(&place), now_ms).await;
                let said = Said { id: name(id), text: text.clone(), status: VersionStatus::Completed };
                let expected = self.model.insert(&name(id), &place, said);
                assert_eq!(stored.is_ok(), expected, "{stored:?}");
                if let Ok(stored) = stored {
                    self.model.log(&name(id), Change::Created, &text);
                    assert_eq!(stored.seq, self.model.history.len() as u64);
                }
            }
            Step::Truncate { id, chars } => {
                let truncated = store.truncate(&session, &name(id), 0, chars.into(), now_ms).await;
                let settled = self.model.at(&name(id)).filter(|(_, said)| said.status != VersionStatus::InProgress);
                assert_eq!(truncated.is_ok(), settled.is_some(), "{truncated:?}");
                if let Some((_, said)) = settled {
                    let heard: String = said.text.chars().take(chars.into()).collect();
                    if heard != said.text {
                        said.status = VersionStatus::Interrupted;
                    }
                    said.text = heard.clone();
                    self.model.log(&name(id), Change::Truncated, &heard);
                }
            }
            Step::Delete { id } => {
                let deleted = store.delete_item(&session, &name(id), now_ms).await;
                let settled = self.model.at(&name(id)).filter(|(_, said)| said.status != VersionStatus::InProgress);
                assert_eq!(deleted.is_ok(), settled.is_some(), "{deleted:?}");
                if let Some((index, _)) = settled {
                    self.model.items.remove(index);
                    let of_item = self.model.history.iter_mut().filter(|(other, ..)| *other == name(id));
                    of_item.for_each(|(.., text)| text.clear());
                    self.model.log(&name(id), Change::Deleted, "");
                }
            }
            Step::Begin { id } => {
                let begun = begin(&store, &session, &name(id), "resp_1", now_ms).await;
                let said = Said { id: name(id), text: String::new(), status: VersionStatus::InProgress };
                assert_eq!(begun.is_ok(), self.model.insert(&name(id), &Where::End, said));
                if let Ok(reply) = begun {
                    self.model.log(&name(id), Change::Begun, "");
                    self.replies.insert(name(id), reply);
                }
            }
            Step::Extend { id, text } => {
                if let Some(reply) = self.replies.get(&name(id)) {
                    extend(&store, reply, &text, now_ms).await.unwrap();
                    self.model.at(&name(id)).unwrap().1.text.push_str(&text);
                }
            }
            Step::Finish { id } => {
                if let Some(reply) = self.replies.remove(&name(id)) {
                    let said = self.model.at(&name(id)).unwrap().1;
                    said.status = VersionStatus::Cancelled;
                    let text = said.text.clone();
                    let body = message(Role::Assistant, &text);
                    store.finish_reply(&reply, VersionStatus::Cancelled, body, now_ms).await.unwrap();
                    self.model.log(&name(id), Change::Finished, &text);
                }
            }
            Step::Summarise { from, to } => self.summarise(&name(from), &name(to)).await,
            Step::Undo => {
                if let Some(summary) = store.load(&session).await.unwrap().summary {
                    store.undo_summary(&session, summary.version, now_ms).await.unwrap();
                }
            }
            Step::Reopen => {
                self.fixture.reopen(now_ms).await;
                self.after_a_restart().await;
            }
            Step::Crash => {
                // The handles are dropped without a close, and the next service waits for the lock.
                drop(store);
                let options = options(self.fixture.folder.path());
                let other = StoreOptions { path: self.fixture.folder.path().join("other.sqlite3"), ..options.clone() };
                self.fixture.store = Store::open(&other, 0).await.unwrap();
                self.fixture.store = Store::open(&options, now_ms).await.unwrap();
                self.after_a_restart().await;
            }
            Step::MoveToAnotherStore => {
                let lines = export(&store, &session).await;
                store.close().await.unwrap();
                self.fixture = Fixture::new().await;
                self.session = import(&self.fixture.store, None, &lines).await.unwrap().remove(0);
                assert_eq!(export(&self.fixture.store, &self.session).await, lines);
                self.fixture.reopen(now_ms).await; // closes replies that the export caught in the middle
                self.after_a_restart().await;
            }
        }
        self.compare().await;
    }

    async fn summarise(&mut self, from: &str, to: &str) {
        let (store, session) = (&self.fixture.store, &self.session);
        let new = Summary {
            kind: SummaryKind::Summary,
            made_by: MadeBy::Model,
            based_on: None,
            from_item: from.to_owned(),
            to_item: to.to_owned(),
            through_seq: self.model.history.len() as u64,
            text: "what was said".into(),
            pins: serde_json::json!([]),
            checks: serde_json::json!({}),
            tokens_before: 2,
            tokens_after: 1,
            arm: None,
            created_at_ms: self.now_ms,
            ..Summary::default()
        };
        if let Ok(version) = store.add_summary(session, new).await {
            store.apply_summary(session, version, vec![], self.now_ms).await.unwrap();
        }
    }

    async fn after_a_restart(&mut self) {
        self.session = self.fixture.store.open_session("ada", self.session.id()).await.unwrap();
        self.replies.clear();
        self.model.interrupt_all();
    }

    async fn compare(&mut self) {
        let store = &self.fixture.store;
        let said = |item: &ItemVersion| Said { id: item.item_id.clone(), text: item.said(), status: item.status };
        let items = store.items(&self.session, None, 1_000).await.unwrap();
        assert_eq!(items.iter().map(said).collect::<Vec<_>>(), self.model.items);
        let history = store.history(&self.session, 0, 10_000).await.unwrap();
        let mut happened: Vec<_> =
            history.iter().map(|item| (item.item_id.clone(), item.change, item.said())).collect();
        assert_eq!(
            history.iter().map(|item| item.seq).collect::<Vec<_>>(),
            (1..=history.len() as u64).collect::<Vec<_>>()
        );
        let mut expected = self.model.history.clone();
        happened.sort_by_key(|(id, change, text)| (id.clone(), change.to_string(), text.clone()));
        expected.sort_by_key(|(id, change, text)| (id.clone(), change.to_string(), text.clone()));
        assert_eq!(happened, expected);
        // The view is the end of the list, from the newest summary on.
        let view = store.load(&self.session).await.unwrap();
        let shown: Vec<_> = view.items.iter().map(said).collect();
        assert!(self.model.items.ends_with(&shown), "{shown:?} is not the end of {:?}", self.model.items);
        if view.summary.is_none() {
            assert_eq!(shown, self.model.items);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, max_shrink_iters: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_operations_does_what_a_list_does(steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mut world = World::new().await;
            for step in steps {
                world.run(step).await;
            }
            assert_eq!(world.fixture.store.check().await.unwrap(), Vec::<String>::new());
        });
    }
}
