//! Words that come when their client has left.

use crate::speech::{RATE, Room};
use crate::support::open;
use serde_json::json;
use session::GenerationPurpose;
use std::time::{Duration, Instant};
use store::Store;
use tests::speech::{Fault, vowel};

const WORDS: &str = "The key is under the mat.";

// Says a turn of which the service has the audio and not the words.
async fn committed(room: &mut Room) {
    room.ears.set_fault(Fault::Late(Duration::from_millis(600)));
    room.ears.will_hear(&[WORDS]);
    room.configure(json!({ "audio": { "input": { "turn_detection": null } } })).await;
    room.hear(&vowel(RATE, 500)).await;
    room.client.say(json!({ "type": "input_audio_buffer.commit" })).await;
    room.client.say(json!({ "type": "response.create" })).await;
    room.client.until("input_audio_buffer.committed").await;
}

async fn said(store: &Store) -> Vec<String> {
    let line = store.list_sessions("local", None, 10).await.unwrap().remove(0);
    let session = store.open_session("local", &line.session.id).await.unwrap();
    store.items(&session, None, 100).await.unwrap().iter().map(|item| item.said().to_owned()).collect()
}

#[tokio::test]
async fn a_turn_whose_client_leaves_is_kept_and_not_answered() {
    let mut room = Room::with(|_| {}).await;
    committed(&mut room).await;
    let Room { mut server, ears: _ears, voice: _voice, client } = room;
    drop(client);
    let begun = Instant::now();
    while said(&server.store).await != [WORDS] {
        assert!(begun.elapsed() < Duration::from_secs(60));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    while let Some(asked) = server.script.try_next() {
        assert_ne!(asked.request.purpose, GenerationPurpose::Reply);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_turn_that_is_heard_while_the_service_stops_is_kept() {
    let mut room = Room::with(|_| {}).await;
    committed(&mut room).await;
    let folder = room.server.stop().await;
    let store = open(folder.path()).await;
    assert_eq!(said(&store).await, [WORDS]);
    store.close().await.unwrap();
}
