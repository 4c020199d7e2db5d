//! Replies that are interrupted one after the other, and turns that come close together.

use crate::speech::{RATE, Room, silence};
use crate::support::Chat;
use serde_json::{Value, json};
use session::Finish;
use std::time::Duration;
use tests::speech::{Fault, vowel};
use tokio::time::sleep;

const HEARD: &str = "conversation.item.input_audio_transcription.completed";

// Speech of more than a minute, so that a slow machine does not hear its end.
fn long() -> String {
    "It is very warm there today, and it stays warm. ".repeat(40)
}

impl Room {
    async fn interrupt(&mut self) {
        self.hear(&[silence(100), vowel(RATE, 300)].concat()).await;
        let done = self.client.until("response.done").await;
        assert_eq!(done["response"]["status_details"]["reason"], "turn_detected", "{done}");
    }

    async fn transcript(&mut self, item_id: &Value) -> String {
        let item = self.retrieve(item_id.as_str().unwrap()).await;
        item["content"][0]["transcript"].as_str().unwrap_or_default().to_owned()
    }

    async fn by_hand(&mut self) {
        self.configure(json!({ "audio": { "input": { "turn_detection": null } } })).await;
    }

    async fn commit(&mut self) {
        self.hear(&vowel(RATE, 300)).await;
        self.client.say(json!({ "type": "input_audio_buffer.commit" })).await;
        self.client.say(json!({ "type": "response.create" })).await;
    }
}

#[tokio::test]
async fn a_second_barge_in_keeps_the_words_that_were_heard() {
    for client_tells in [false, true] {
        let mut room = Room::with(|_| {}).await;
        room.client.ask("Go on.").await;
        room.reply(&long()).await.done(Finish::Stop);
        room.client.until("response.output_audio.delta").await;
        room.ears.will_hear(&["And then?"]);
        room.interrupt().await;
        room.hear(&silence(900)).await;
        room.reply(&long()).await.done(Finish::Stop);
        let item_id = room.client.until("response.output_audio.delta").await["item_id"].clone();
        // The loudspeaker plays for a while: a character takes 60 ms.
        sleep(Duration::from_millis(1400)).await;
        room.interrupt().await;
        if client_tells {
            let cut = json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 1000 });
            room.client.say(cut).await;
            room.client.until("conversation.item.truncated").await;
        }
        let heard = room.transcript(&item_id).await;
        assert!(heard.starts_with("It is very warm") && long().starts_with(&heard), "{client_tells}: {heard:?}");
        assert!(!client_tells || heard == "It is very warm", "{heard:?}");
        room.server.stop().await;
    }
}

#[tokio::test]
async fn a_reply_that_goes_on_keeps_what_was_heard_before() {
    let mut room = Room::with(|_| {}).await;
    room.client.ask("Go on.").await;
    room.reply(&long()).await.done(Finish::Stop);
    let item_id = room.client.until("response.output_audio.delta").await["item_id"].clone();
    sleep(Duration::from_millis(1400)).await;
    room.ears.will_hear(&["Mhm.", "Stop."]);
    room.interrupt().await;
    let before = room.transcript(&item_id).await;
    assert!(before.starts_with("It is very warm"), "{before:?}");
    room.hear(&silence(900)).await;
    // 'Mhm.' was no interruption: the same item goes on, and is interrupted at once.
    assert_eq!(room.client.until("response.output_audio.delta").await["item_id"], item_id);
    room.interrupt().await;
    let after = room.transcript(&item_id).await;
    assert!(after.starts_with(&before), "{before:?} became {after:?}");
    room.server.stop().await;
}

#[tokio::test]
async fn a_message_that_waits_behind_another_is_not_heard() {
    let mut room = Room::with(|_| {}).await;
    room.client.ask("Go on.").await;
    let first = "It is very warm there today, and it stays warm until the evening comes.";
    let mut asked = room.reply(first).await;
    asked.call("lamp", "{}");
    asked.say("And this is what comes behind it.");
    asked.done(Finish::Stop);
    let item_id = room.client.until("response.output_audio.delta").await["item_id"].clone();
    let second_id = loop {
        let delta = room.client.until("response.output_audio.delta").await;
        if delta["item_id"] != item_id {
            break delta["item_id"].clone();
        }
    };
    room.hear(&[silence(100), vowel(RATE, 300)].concat()).await;
    room.client.until("input_audio_buffer.speech_started").await;
    // The cuts are behind it.
    room.configure(json!({})).await;
    let heard = room.transcript(&item_id).await;
    assert!(heard.len() < first.len(), "{heard:?}");
    assert_eq!(room.transcript(&second_id).await, "");
    room.server.stop().await;
}

#[tokio::test]
async fn a_reply_whose_item_is_cut_or_deleted_says_no_more() {
    for event in ["conversation.item.truncate", "conversation.item.delete"] {
        let mut room = Room::with(|settings| settings.speech.ahead_ms = 500).await;
        room.client.say(json!({ "type": "session.update", "session": { "extensions": ["reprise"] } })).await;
        room.client.until("session.updated").await;
        room.client.ask("Go on.").await;
        room.reply(&long()).await.done(Finish::Stop);
        let item_id = room.client.until("response.output_audio.delta").await["item_id"].clone();
        room.client.say(json!({ "type": event, "item_id": item_id, "content_index": 0, "text_end": 7 })).await;
        // It would be said for more than a minute.
        let done = tokio::time::timeout(Duration::from_secs(20), room.client.until("response.done")).await;
        assert_eq!(done.expect(event)["response"]["status"], "cancelled");
        if event.ends_with("truncate") {
            assert_eq!(room.transcript(&item_id).await, "It is v");
        }
        room.server.stop().await;
    }
}
