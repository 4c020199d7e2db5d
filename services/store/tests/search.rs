use crate::support::*;
use futures_util::FutureExt;
use futures_util::future::join_all;
use session::{ItemPlace, Role};
use std::cell::RefCell;
use store::*;

fn look<'a>(user: &'a str, query: &'a str) -> HistorySearch<'a> {
    HistorySearch {
        user,
        place: SearchPlace::User,
        query,
        most_words: 32,
        any_word: false,
        statements: false,
        limit: 10,
        recent_ms: None,
        now_ms: 1_000_000,
        marks: ["[", "]"],
        excerpt_words: 8,
    }
}

async fn found(store: &Store, search: &HistorySearch<'_>) -> Vec<(String, String)> {
    let hits = store.search(search).await.unwrap();
    hits.into_iter().map(|hit| (hit.item_id, hit.excerpt)).collect()
}

fn hit(id: &str, excerpt: &str) -> (String, String) {
    (id.to_owned(), excerpt.to_owned())
}

#[tokio::test]
async fn words_are_found_whatever_their_accents_and_scripts() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let said = [
        ("de", "Der Schlüssel liegt unter der Fußmatte."),
        ("fr", "Le café est prêt à huit heures."),
        ("ja", "明日の朝、東京駅で会いましょう。"),
        ("th", "พรุ่งนี้ฉันจะไปตลาด"),
        ("ru", "Ключ лежит под ковриком."),
        ("en", "Grandma's birthday is on 12 March."),
    ];
    for (n, (id, text)) in said.iter().enumerate() {
        say(store, &session, id, text, 20 + n as i64).await;
    }
    assert_eq!(found(store, &look("ada", "schlussel")).await, [hit("de", "Der [Schlüssel] liegt unter der Fußmatte.")]);
    assert_eq!(found(store, &look("ada", "CAFE prêt")).await, [hit("fr", "Le [café] est [prêt] à huit heures.")]);
    assert_eq!(found(store, &look("ada", "ключ")).await.len(), 1);
    assert_eq!(found(store, &look("ada", "東京駅")).await[0].0, "ja");
    assert!(
        found(store, &look("ada", "東京駅")).await[0].1.contains("[東京駅]"),
        "{:?}",
        found(store, &look("ada", "東京駅")).await
    );
    assert_eq!(found(store, &look("ada", "京東")).await, []);
    assert_eq!(found(store, &look("ada", "ตลาด")).await[0].0, "th");
    assert_eq!(found(store, &look("ada", "birth*")).await[0].0, "en");
    assert_eq!(found(store, &look("ada", "\"12 March\"")).await[0].0, "en");
    assert_eq!(found(store, &look("ada", "\"March 12\"")).await, []);
    let question = HistorySearch { any_word: true, ..look("ada", "When is grandma's birthday?") };
    assert_eq!(found(store, &question).await[0].0, "en");
}

#[tokio::test]
async fn one_user_never_finds_anothers_words() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let ada = fixture.session().await;
    let bob = store.create_session(new_session("bob", None, 10)).await.unwrap();
    say(store, &ada, "a", "the safe is behind the mirror", 20).await;
    say(store, &bob, "b", "the safe is a hard day", 20).await;
    assert_eq!(found(store, &look("ada", "safe")).await.len(), 1);
    assert_eq!(found(store, &look("bob", "safe")).await[0].0, "b");
    assert_eq!(found(store, &look("bob", "mirror")).await, []);
    // The other session's handle does not help.
    let theirs = HistorySearch { place: SearchPlace::Session(&ada), ..look("bob", "safe") };
    assert_eq!(found(store, &theirs).await, []);
}

#[tokio::test]
async fn what_was_cut_is_still_found_and_marked_as_past_and_what_was_deleted_is_not() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let flour = message(Role::Assistant, "first the flour then the sugar");
    put(store, &session, "a", flour, ItemPlace::End, 20).await.unwrap();
    store.truncate(&session, "a", 0, 15, 30).await.unwrap();
    let hits = store.search(&look("ada", "flour")).await.unwrap();
    assert_eq!((hits.len(), hits[0].version, hits[0].current), (1, 2, true));
    let hits = store.search(&look("ada", "sugar")).await.unwrap();
    assert_eq!((hits.len(), hits[0].version, hits[0].current), (1, 1, false));
    store.delete_item(&session, "a", 40).await.unwrap();
    for words in ["flour", "sugar"] {
        assert_eq!(store.search(&look("ada", words)).await.unwrap(), [], "{words}");
    }
}

#[tokio::test]
async fn newer_words_come_first_only_when_age_is_asked_for() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    say(store, &session, "old", "lunch", 0).await;
    say(store, &session, "new", "lunch with a few more words around it", 1_000_000).await;
    assert_eq!(found(store, &look("ada", "lunch")).await[0].0, "old");
    let recent = HistorySearch { recent_ms: Some(1_000), ..look("ada", "lunch") };
    assert_eq!(found(store, &recent).await[0].0, "new");
    let limited = HistorySearch { limit: 1, ..look("ada", "lunch") };
    assert_eq!(found(store, &limited).await.len(), 1);
}

#[tokio::test]
async fn no_input_is_an_operator_or_breaks_the_search() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    say(store, &session, "u", "text:col NEAR AND OR NOT (a) 100% \"q\" 'x' \u{1f} \0 end", 20).await;
    for query in
        ["NEAR(", "text : col", "AND", "\"", "a\"b\"c", "100%", "'x'", "x*y*", "{a b}: c", "^u", "\0 end", "💡 end"]
    {
        let result = store.search(&look("ada", query)).await;
        assert!(matches!(result, Ok(_) | Err(Error::EmptyQuery { .. })), "{query:?}: {result:?}");
    }
    assert_eq!(store.search(&look("ada", " ")).await, Err(Error::EmptyQuery { query: " ".into() }));
    assert_eq!(found(store, &look("ada", "AND OR NOT")).await.len(), 1);
}

#[tokio::test]
async fn of_a_book_the_begin_is_shown() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    let book = "lamp ".repeat(200_000);
    say(store, &session, "book", &book, 20).await;
    say(store, &session, "short", "The lamp is on.", 21).await;
    let mut found = found(store, &look("ada", "lamp")).await;
    found.sort();
    let begin: String = book.chars().take(120).collect();
    assert_eq!(found, [hit("book", &format!("{begin}…")), hit("short", "The [lamp] is on.")]);
}

#[tokio::test]
async fn the_searches_of_one_user_hold_up_no_other() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let of_bob = store.create_session(new_session("bob", None, 10)).await.unwrap();
    for (session, id) in [(&of_bob, "bob"), (&fixture.session().await, "ada")] {
        say(store, session, id, "The lighthouse is white.", 20).await;
    }
    let ended = RefCell::new(Vec::new());
    let search = |user: &'static str| {
        let ended = &ended;
        async move {
            assert_eq!(found(store, &look(user, "lighthouse")).await[0].0, user);
            ended.borrow_mut().push(user);
        }
        .boxed_local()
    };
    // There is one place for searches, and the first has it until it is asked for again.
    let mut searches: Vec<_> = (0..20).map(|_| search("bob")).chain([search("ada")]).collect();
    assert!(searches.iter_mut().all(|search| search.now_or_never().is_none()));

    // What a conversation reads to begin waits for none of them.
    let words = ["lighthouse".to_owned()];
    assert_eq!(store.facts_with_words("ada", "", &words, false, 9).await.unwrap(), []);
    assert_eq!(store.fact_vectors("ada", "", "one", 9).await.unwrap(), []);
    assert_eq!(store.vectors_of("ada", "", "one", 9).await.unwrap(), []);
    assert_eq!(store.stated("ada", "", &[]).await.unwrap(), []);
    assert_eq!(store.count_words("ada", &words, 1, 9, 9).await.unwrap().0, [Some(2)]);
    assert_eq!(ended.take(), [""; 0]);

    join_all(searches).await;
    let ended = ended.take();
    assert_eq!((&ended[..2], ended.len()), (&["bob", "ada"][..], 21));
}

/// A rank over all users would tell one of them how many messages of the others have a word.
#[tokio::test]
async fn what_others_say_changes_no_score_and_no_order() {
    let fixture = Fixture::new().await;
    let (store, session) = (&fixture.store, fixture.session().await);
    for (id, text) in [
        ("one", "The lamp is red."),
        ("two", "A kettle and a lamp."),
        ("three", "The kettle is hot, and so is the tea."),
    ] {
        say(store, &session, id, text, 20).await;
    }
    let any = HistorySearch { any_word: true, ..look("ada", "lamp hot") };
    let here = HistorySearch { place: SearchPlace::Session(&session), ..any.clone() };
    let searches = [look("ada", "lamp"), look("ada", "\"a lamp\""), any, here];
    let mut before = Vec::new();
    for search in &searches {
        before.push(store.search(search).await.unwrap());
    }
    assert!(before.iter().all(|hits| !hits.is_empty()));
    assert_eq!(before[2][0].item_id, "three", "the rarer word counts more");
    let bob = store.create_session(new_session("bob", None, 10)).await.unwrap();
    for n in 0..40 {
        say(store, &bob, &format!("b{n}"), "How hot is it? Hot, hot, and a lamp.", 30).await;
    }
    for (search, before) in searches.iter().zip(before) {
        assert_eq!(store.search(search).await.unwrap(), before, "{:?}", search.query);
    }
}
