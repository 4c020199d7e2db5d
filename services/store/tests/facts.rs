use crate::delete::files_with;
use crate::support::*;
use session::{ItemBody, ItemPlace, NamedSpeaker, Role};
use store::*;

fn fact(id: &str, person: &str, text: &str, item: Option<&str>, said_at_ms: i64) -> NewFact {
    NewFact {
        id: id.into(),
        person: person.into(),
        about: text.split(' ').next().unwrap_or_default().into(),
        text: text.into(),
        asked: false,
        found_by: FoundBy::Words,
        confidence: 0.8,
        item_id: item.map(str::to_owned),
        words: text.into(),
        said_by: person.into(),
        said_at_ms,
    }
}

async fn session_of(store: &Store, person: &str, is_remembered: bool) -> SessionRef {
    let new = SessionRecord { person: person.into(), is_remembered, ..new_session("ada", None, 10) };
    store.create_session(new).await.unwrap()
}

async fn held(store: &Store, person: &str) -> Vec<String> {
    let facts = store.facts("ada", Some(person)).await.unwrap();
    facts.into_iter().filter(RememberedFact::holds).map(|fact| fact.text).collect()
}

async fn found(store: &Store, person: &str, query: &str) -> Vec<String> {
    found_with(store, person, SecretsOf::None, query).await
}

async fn found_with(store: &Store, person: &str, secrets: SecretsOf<'_>, query: &str) -> Vec<String> {
    let search = HistorySearch {
        user: "ada",
        place: SearchPlace::Person(person, secrets),
        query,
        most_words: 32,
        any_word: true,
        statements: false,
        limit: 10,
        recent_ms: None,
        now_ms: 1_000_000,
        marks: ["", ""],
        excerpt_words: 16,
    };
    store.search(&search).await.unwrap().into_iter().map(|hit| hit.excerpt).collect()
}

#[tokio::test]
async fn facts_are_kept_replaced_and_forgotten() {
    let mut fixture = Fixture::new().await;
    let session = session_of(&fixture.store, "ann", true).await;
    say(&fixture.store, &session, "a", "My sister lives in Lisbon.", 20).await;
    say(&fixture.store, &session, "b", "My sister moved to Porto.", 30).await;
    let waiting = fixture.store.unheard_sessions("ada", "ann", 0, 8).await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert_eq!(fixture.store.unheard_sessions("ada", "ben", 0, 8).await.unwrap(), []);
    let said = fixture.store.said_since(&session, waiting[0].heard_seq, 8).await.unwrap();
    assert_eq!(said.iter().map(|message| message.item_id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let changes = FactChanges {
        new: vec![
            fact("f1", "ann", "My sister lives in Lisbon.", Some("a"), 20),
            fact("f2", "ann", "My sister moved to Porto.", Some("b"), 30),
        ],
        replaced: vec![("f1".into(), "f2".into())],
        ..FactChanges::default()
    };
    fixture.store.remember(&session, changes, HeardThrough::Words(said[1].seq), 40).await.unwrap();
    assert_eq!(fixture.store.unheard_sessions("ada", "ann", 0, 8).await.unwrap(), []);
    fixture.reopen(50).await;
    let store = &fixture.store;
    assert_eq!(held(store, "ann").await, ["My sister moved to Porto."]);
    let all = store.facts("ada", None).await.unwrap();
    assert_eq!((all[0].replaced_by.as_deref(), all[0].session_id.as_deref()), (Some("f2"), Some(session.id())));
    // The user's own search finds replaced words, a search of the past does not.
    assert_eq!(found(store, "ann", "sister lisbon").await, ["My sister moved to Porto."]);
    assert_eq!(found(store, "ben", "sister lisbon").await, Vec::<String>::new());
    let forgotten = FactChanges { forgotten: vec!["f2".into()], ..FactChanges::default() };
    store.remember(&session, forgotten, HeardThrough::Model(9, Some(60)), 60).await.unwrap();
    assert_eq!(held(store, "ann").await, Vec::<String>::new());
    assert_eq!(found(store, "ann", "sister lisbon porto").await, Vec::<String>::new());
    let all = store.facts("ada", None).await.unwrap();
    let words: Vec<_> = all.iter().map(|fact| (fact.id.as_str(), fact.text.as_str(), fact.words.as_str())).collect();
    assert_eq!(words, [("f1", "", ""), ("f2", "", "")]);
}

#[tokio::test]
async fn a_silent_session_is_looked_at_once() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = session_of(store, "ann", true).await;
    let private = session_of(store, "ann", false).await;
    say(store, &session, "a", "I like tea.", 20).await;
    say(store, &private, "a", "I like wine.", 20).await;
    assert_eq!(store.silent_session(20).await.unwrap(), None);
    let silent = store.silent_session(30).await.unwrap().unwrap();
    assert_eq!((&silent.session, silent.person.as_str()), (&session, "ann"));
    let through = HeardThrough::Model(1, Some(silent.updated_at_ms));
    store.remember(&session, FactChanges::default(), through, 40).await.unwrap();
    assert_eq!(store.silent_session(1000).await.unwrap(), None);
    say(store, &session, "b", "I like milk.", 50).await;
    assert_eq!(store.silent_session(1000).await.unwrap().unwrap().learned_seq, 1);
    assert_eq!(found(store, "ann", "wine").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_that_its_user_deletes_takes_its_facts_along_and_one_that_grew_old_does_not() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for (name, by_user, left) in [("one", true, 0), ("other", false, 1)] {
        let session = session_of(store, name, true).await;
        say(store, &session, "a", "I like tea.", 20).await;
        let new = vec![fact(name, name, "I like tea.", Some("a"), 20)];
        let unsaid = vec![(session.id().to_owned(), "a".to_owned())];
        let changes = FactChanges { new, unsaid, ..FactChanges::default() };
        store.remember(&session, changes, HeardThrough::Words(1), 30).await.unwrap();
        match by_user {
            true => store.delete_session(&session, 40).await.unwrap(),
            false => assert_eq!(store.delete_unused_since(1000, 40).await.unwrap().len(), 1),
        }
        assert_eq!(held(store, name).await.len(), left);
    }
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn a_second_session_that_begins_as_another_says_nothing_anew() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = session_of(store, "ann", true).await;
    let said = say(store, &session, "a", "I like tea.", 20).await;
    let unsaid = vec![(session.id().to_owned(), "a".to_owned())];
    let changes = FactChanges { unsaid, ..FactChanges::default() };
    store.remember(&session, changes, HeardThrough::Words(said.seq), 30).await.unwrap();
    let fork = store.fork_session(&session, &said.order_key, new_id("sess").unwrap(), 40).await.unwrap();
    assert_eq!(store.unheard_sessions("ada", "ann", 0, 8).await.unwrap(), []);
    assert_eq!(store.said_since(&fork, 0, 8).await.unwrap(), []);
    assert_eq!(found(store, "ann", "tea").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_secret_is_found_in_its_own_conversation_until_it_is_forgotten() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let (session, other) = (session_of(store, "", true).await, session_of(store, "", true).await);
    let said = say(store, &session, "a", "The code is 4711.", 20).await;
    let place = vec![(session.id().to_owned(), "a".to_owned())];
    let secret = FactChanges { secrets: place.clone(), ..FactChanges::default() };
    store.remember(&session, secret.clone(), HeardThrough::Words(said.seq), 30).await.unwrap();
    let finds = async || {
        let mut counts = Vec::new();
        for secrets in [SecretsOf::None, SecretsOf::Session(&other), SecretsOf::Session(&session), SecretsOf::All] {
            counts.push(found_with(store, "", secrets, "code").await.len());
        }
        counts
    };
    assert_eq!(finds().await, [0, 0, 1, 1]);
    let unsaid = FactChanges { unsaid: place, ..FactChanges::default() };
    store.remember(&session, unsaid, HeardThrough::Words(said.seq), 40).await.unwrap();
    assert_eq!(finds().await, [0, 0, 0, 0]);
    // What none finds does not come back as a secret.
    store.remember(&session, secret, HeardThrough::Words(said.seq), 50).await.unwrap();
    assert_eq!(finds().await, [0, 0, 0, 0]);
}

#[tokio::test]
async fn an_unknown_speaker_ends_what_is_remembered_for_the_household_alone() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for (is_of_household, is_remembered) in [(true, false), (false, true)] {
        let new = SessionRecord { is_remembered: true, is_of_household, ..new_session("ada", None, 10) };
        let session = store.create_session(new).await.unwrap();
        let speaker = Some(NamedSpeaker { name: "Ben".into(), person: None });
        let body = ItemBody::Message { role: Role::User, parts: vec!["I like tea.".into()], speaker };
        put(store, &session, "a", body, ItemPlace::End, 20).await.unwrap();
        assert_eq!(store.load(&session).await.unwrap().session.is_remembered, is_remembered);
    }
}

#[tokio::test]
async fn a_person_can_be_forgotten() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.put_fact("ada", fact("f1", "ann", "I like tea.", None, 20), Vec::new(), 20).await.unwrap();
    store.put_fact("ada", fact("f2", "ann", "I like milk.", None, 30), vec!["f1".into()], 30).await.unwrap();
    store.put_fact("ada", fact("f3", "ben", "I like wine.", None, 30), Vec::new(), 30).await.unwrap();
    assert_eq!(held(store, "ann").await, ["I like milk."]);
    assert_eq!(store.forget_person("ada", "ann", 35).await.unwrap(), 2);
    assert_eq!((held(store, "ann").await.len(), held(store, "ben").await.len()), (0, 1));
    assert_eq!(store.forget_facts("bob", vec!["f3".into()], 40).await.unwrap(), 0);
    assert_eq!(store.forget_facts("ada", vec!["f3".into()], 40).await.unwrap(), 1);
    assert_eq!(held(store, "ben").await, Vec::<String>::new());
}

/// Index of the words of all facts, as the service makes it.
async fn index(store: &Store) {
    let words = |fact: UnindexedFact| (fact.key, fact.text.to_lowercase().split(' ').map(str::to_owned).collect());
    store.index_facts(store.unindexed_facts().await.unwrap().into_iter().map(words).collect()).await.unwrap();
    assert_eq!(store.unindexed_facts().await.unwrap(), []);
}

#[tokio::test]
async fn facts_are_found_by_word_subject_and_use_and_no_more_of_them_than_asked_for() {
    let mut fixture = Fixture::new().await;
    let session = session_of(&fixture.store, "ann", true).await;
    let text = |n: usize| format!("Box{n} has tea.");
    let new = (0..9).map(|n| fact(&format!("f{n}"), "ann", &text(n), Some("a"), n as i64)).collect();
    let changes = FactChanges { new, ..FactChanges::default() };
    fixture.store.remember(&session, changes, HeardThrough::Words(1), 30).await.unwrap();
    fixture.store.put_fact("ada", fact("own", "ann", "Box8 has tea", None, 40), vec![], 40).await.unwrap();
    fixture.store.put_fact("ada", fact("home", "", "Tea is out.", None, 50), vec![], 50).await.unwrap();
    fixture.reopen(60).await;
    let store = &fixture.store;
    index(store).await;
    let ids = |facts: Vec<RememberedFact>| facts.into_iter().map(|fact| fact.id).collect::<Vec<_>>();
    let with = async |word: &str, besides, most| {
        ids(store.facts_with_words("ada", "ann", &[word.into()], besides, most).await.unwrap())
    };
    assert_eq!(with("tea.", false, 3).await, ["f6", "f7", "f8"]);
    assert_eq!(with("box8", false, 3).await, ["f8", "own"]);
    assert_eq!(with("box8", true, 3).await, ["own"]);
    assert_eq!(ids(store.facts_on("ada", "ann", &["Box8", "Tea"]).await.unwrap()), ["f8", "own"]);
    assert_eq!(ids(store.facts_on("ada", "", &["Box8", "Tea"]).await.unwrap()), ["home"]);
    store.use_facts(vec!["f2".into()], 70);
    let told = async || {
        let told = store.facts_to_tell("ada", "ann", 3).await.unwrap();
        told.into_iter().map(|fact| fact.id).collect::<Vec<_>>()
    };
    while told().await != ["f2", "own", "f8"] {
        tokio::task::yield_now().await;
    }
    // A page goes on where the one before ended.
    let page = async |before: Option<&str>| store.facts_page("ada", Some("ann"), true, before, 4).await.unwrap();
    let first = page(None).await;
    assert!(first.has_more && first.rows.iter().map(|fact| fact.id.as_str()).eq(["own", "f8", "f7", "f6"]));
    assert_eq!(ids(page(Some("f2")).await.rows), ["f1", "f0"]);
    assert_eq!(store.fact("ada", "f3").await.unwrap().unwrap().text, text(3));
    assert_eq!(store.fact("eve", "f3").await.unwrap(), None);
    // What is replaced or forgotten is found no more, and its words are gone.
    let changes = FactChanges {
        replaced: vec![("f8".into(), "own".into())],
        forgotten: vec!["f7".into()],
        ..FactChanges::default()
    };
    store.remember(&session, changes, HeardThrough::Words(1), 80).await.unwrap();
    assert_eq!(with("tea.", false, 3).await, ["f4", "f5", "f6"]);
    assert_eq!(store.facts_page("ada", Some("ann"), false, None, 9).await.unwrap().rows.len(), 8);
    assert_eq!(store.forget_oldest_replaced("ada", 10).await.unwrap(), 0);
    assert_eq!(store.forget_oldest_replaced("ada", 9).await.unwrap(), 1);
    assert_eq!(store.fact("ada", "f8").await.unwrap(), None);
    store.forget_person("ada", "ann", 90).await.unwrap();
    assert_eq!(with("tea.", false, 3).await, Vec::<String>::new());
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

/// Ids of the facts with a vector of this encoder.
async fn with_vector(store: &Store, person: &str, encoder: &str) -> Vec<String> {
    let vectors = store.fact_vectors("ada", person, encoder, 100).await.unwrap();
    let mut ids: Vec<String> = vectors.into_iter().map(|found| found.fact.id).collect();
    let alone = store.vectors_of("ada", person, encoder, 100).await.unwrap();
    assert_eq!(alone.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
    ids.sort();
    ids
}

#[tokio::test]
async fn vectors_go_with_their_facts_and_stay_with_their_owner() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, session_of(&fixture.store, "ann", true).await);
    for (item, text) in [("a", "Tea is good."), ("b", "Milk is bad."), ("c", "Wine is red."), ("d", "Home is here.")] {
        say(store, &session, item, text, 20).await;
    }
    let new = vec![
        fact("f1", "ann", "Tea is good.", Some("a"), 20),
        fact("f2", "ann", "Milk is bad.", Some("b"), 21),
        fact("f3", "ann", "Wine is red.", Some("c"), 22),
        fact("f4", "", "Home is here.", Some("d"), 23),
    ];
    let changes = FactChanges { new, ..FactChanges::default() };
    store.remember(&session, changes, HeardThrough::Words(9), 30).await.unwrap();
    let missing = store.facts_without_vector("one").await.unwrap();
    assert_eq!(missing.len(), 4);
    let vectors = missing.iter().map(|fact| (fact.key, vec![1, 2, 3])).collect();
    store.put_fact_vectors("one", vectors).await.unwrap();
    assert_eq!(store.facts_without_vector("one").await.unwrap(), []);
    assert_eq!(store.facts_without_vector("other").await.unwrap().len(), 4);
    assert_eq!(with_vector(store, "ann", "one").await, ["f1", "f2", "f3"]);
    assert_eq!(with_vector(store, "", "one").await, ["f4"]);
    assert_eq!(with_vector(store, "ben", "one").await, Vec::<String>::new());
    assert_eq!(with_vector(store, "ann", "other").await, Vec::<String>::new());
    // One is replaced, one dropped, one forgotten.
    let changes = FactChanges {
        new: vec![fact("f5", "ann", "Tea is bad.", Some("a"), 31)],
        replaced: vec![("f1".into(), "f5".into())],
        dropped: vec!["f2".into()],
        forgotten: vec!["f3".into()],
        ..FactChanges::default()
    };
    store.remember(&session, changes, HeardThrough::Words(9), 40).await.unwrap();
    assert_eq!(with_vector(store, "ann", "one").await, Vec::<String>::new());
    assert_eq!(held(store, "ann").await, ["Tea is bad."]);
    // What only says nothing lasting is still found where it was said.
    assert_eq!(found(store, "ann", "milk").await, ["Milk is bad."]);
    assert_eq!(found(store, "ann", "wine").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_question_reads_the_newest_vectors_and_no_words() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, session_of(&fixture.store, "ann", true).await);
    say(store, &session, "a", "Tea is good.", 20).await;
    let new = (0..40).map(|at| fact(&format!("f{at}"), "ann", &format!("{at} is a number."), Some("a"), at)).collect();
    store.remember(&session, FactChanges { new, ..FactChanges::default() }, HeardThrough::Words(9), 90).await.unwrap();
    loop {
        let missing = store.facts_without_vector("one").await.unwrap();
        if missing.is_empty() {
            break;
        }
        let vectors = missing.into_iter().map(|fact| (fact.key, vec![fact.key as u8; 8])).collect();
        store.put_fact_vectors("one", vectors).await.unwrap();
    }
    let newest = store.vectors_of("ada", "ann", "one", 3).await.unwrap();
    assert_eq!(newest.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["f39", "f38", "f37"]);
    assert!(newest.iter().all(|(_, vector)| vector.len() == 8));
    assert_eq!(store.fact_vectors("ada", "ann", "one", 3).await.unwrap().len(), 3);
}

#[tokio::test]
async fn no_file_holds_the_vector_of_a_fact_that_is_gone() {
    for way in ["forget", "person"] {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        let session = session_of(store, "ann", true).await;
        say(store, &session, "a", "Tea is good.", 20).await;
        let new = vec![
            fact("f1", "ann", "Tea is good.", Some("a"), 20),
            fact("f2", "ann", "Milk is bad.", Some("a"), 21),
            fact("f3", "", "Home is here.", Some("a"), 22),
        ];
        let changes = FactChanges { new, ..FactChanges::default() };
        store.remember(&session, changes, HeardThrough::Words(9), 30).await.unwrap();
        // Each vector is a word, so that it is found where it lies.
        let vectors = store.facts_without_vector("one").await.unwrap().into_iter();
        let vectors =
            vectors.map(|fact| (fact.key, format!("vector of {}", fact.text).into_bytes().repeat(8))).collect();
        store.put_fact_vectors("one", vectors).await.unwrap();
        let folder = fixture.folder.path();
        assert!(!files_with(folder, "vector of Tea").is_empty());
        match way {
            "forget" => drop(store.forget_facts("ada", vec!["f1".into()], 50).await.unwrap()),
            _ => drop(store.forget_person("ada", "ann", 50).await.unwrap()),
        }
        assert_eq!(files_with(folder, "vector of Tea"), Vec::<String>::new(), "{way}");
        assert!(!files_with(folder, "vector of Home").is_empty(), "{way}");
    }
}
