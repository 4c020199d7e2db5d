//! Audio beside items: it goes with its item, its session, or when it is the oldest.

use crate::delete::files_with;
use crate::support::*;
use store::*;

fn audio(word: &str) -> ItemAudio {
    ItemAudio { rate: 16_000, samples: word.repeat(2000).into_bytes() }
}

#[tokio::test]
async fn audio_goes_with_its_item_and_its_session() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = store.create_session(new_session("ada", Some("first"), 10)).await.unwrap();
    for (item, word) in [("one", "xylophon"), ("two", "harmonica"), ("three", "trombone")] {
        say(store, &session, item, item, 20).await;
        store.keep_audio(&session, item, audio(word), 1 << 20).await.unwrap();
    }
    assert_eq!(store.item_audio(&session, "one").await.unwrap(), Some(audio("xylophon")));
    assert!(!files_with(fixture.folder.path(), "xylophon").is_empty());
    store.delete_item(&session, "one", 30).await.unwrap();
    store.settle_the_log().await.unwrap();
    assert_eq!(store.item_audio(&session, "one").await.unwrap(), None);
    assert_eq!(files_with(fixture.folder.path(), "xylophon"), Vec::<String>::new());
    assert!(!files_with(fixture.folder.path(), "harmonica").is_empty());
    // An item that is gone, or never was, gets none, and audio is kept once.
    for item in ["one", "none"] {
        store.keep_audio(&session, item, audio("late"), 1 << 20).await.unwrap();
        assert_eq!(store.item_audio(&session, item).await.unwrap(), None);
    }
    store.keep_audio(&session, "two", audio("late"), 1 << 20).await.unwrap();
    assert_eq!(store.item_audio(&session, "two").await.unwrap(), Some(audio("harmonica")));
    store.delete_session(&session, 40).await.unwrap();
    assert_eq!(store.item_audio(&session, "two").await.unwrap(), None);
    for word in ["harmonica", "trombone"] {
        assert_eq!(files_with(fixture.folder.path(), word), Vec::<String>::new());
    }
    assert_eq!(store.check().await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn the_oldest_audio_of_a_user_goes_first() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let session = store.create_session(new_session("ada", Some("first"), 10)).await.unwrap();
    for item in ["one", "two", "three"] {
        say(store, &session, item, item, 20).await;
        store.keep_audio(&session, item, audio("1234"), 16_000).await.unwrap();
    }
    let mut kept = Vec::new();
    for item in ["one", "two", "three"] {
        kept.push(store.item_audio(&session, item).await.unwrap().is_some());
    }
    assert_eq!(kept, [false, true, true]);
    // What is larger than all that may be kept is not.
    say(store, &session, "four", "four", 20).await;
    store.keep_audio(&session, "four", audio("123456789"), 16_000).await.unwrap();
    assert_eq!(store.item_audio(&session, "four").await.unwrap(), None);
}
