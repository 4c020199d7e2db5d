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
async fn no_reply_begins_over_a_user_who_speaks_again() {
    for more in ["In the kitchen.", ""] {
        let mut room = Room::with(|_| {}).await;
        room.ears.set_fault(Fault::Late(Duration::from_millis(400)));
        room.ears.will_hear(&["Turn on the lamp.", more]);
        room.hear(&[silence(300), vowel(RATE, 500), silence(700)].concat()).await;
        room.client.until("input_audio_buffer.committed").await;
        room.hear(&vowel(RATE, 400)).await;
        room.client.until("input_audio_buffer.speech_started").await;
        room.client.until(HEARD).await;
        room.hear(&silence(900)).await;
        let types = room.client.types_until(HEARD).await;
        assert!(!types.iter().any(|kind| kind == "response.created"), "{types:?}");
        let mut asked = room.reply("It is on.").await;
        let said: Vec<_> = asked.chat().messages.iter().rev().map(|message| message["content"].clone()).collect();
        let expected = if more.is_empty() { vec!["Turn on the lamp."] } else { vec![more, "Turn on the lamp."] };
        assert_eq!(said[..expected.len()], expected);
        asked.done(Finish::Stop);
        assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
        room.server.stop().await;
    }
}

#[tokio::test]
async fn of_two_turns_whose_words_come_together_each_is_answered() {
    for interrupts in [true, false] {
        let mut room = Room::with(|_| {}).await;
        room.configure(json!({ "turn_detection": { "type": "server_vad", "interrupt_response": interrupts } })).await;
        // The first turn has its words last.
        room.ears.set_fault(Fault::Late(Duration::from_millis(1500)));
        room.ears.will_hear(&["Please.", "Turn on the lamp."]);
        room.hear(&[silence(300), vowel(RATE, 500), silence(700)].concat()).await;
        while room.ears.asked().is_empty() {
            sleep(Duration::from_millis(10)).await;
        }
        room.ears.set_fault(Fault::None);
        room.hear(&[vowel(RATE, 400), silence(900)].concat()).await;
        let mut asked = room.reply("It is on.").await;
        let last = |asked: &crate::scripted::Asked| asked.chat().messages.last().unwrap()["content"].clone();
        if !interrupts {
            assert_eq!(last(&asked), "Turn on the lamp.");
            asked.done(Finish::Stop);
            assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
            asked = room.reply("You are welcome.").await;
        }
        assert_eq!(last(&asked), "Please.");
        asked.done(Finish::Stop);
        assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
        room.server.stop().await;
    }
}

#[tokio::test]
async fn a_response_waits_for_its_own_words() {
    let mut room = Room::with(|_| {}).await;
    room.by_hand().await;
    room.ears.set_fault(Fault::Late(Duration::from_millis(500)));
    room.ears.will_hear(&["", "What time is it?"]);
    room.commit().await;
    room.commit().await;
    // The first has no words to answer.
    let done = room.client.until("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");
    let mut asked = room.reply("It is noon.").await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "What time is it?");
    asked.done(Finish::Stop);
    assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
    room.server.stop().await;
}

#[tokio::test]
async fn a_response_that_waits_can_be_cancelled() {
    let mut room = Room::with(|_| {}).await;
    room.by_hand().await;
    room.ears.set_fault(Fault::Late(Duration::from_millis(500)));
    room.ears.will_hear(&["What time is it?"]);
    room.commit().await;
    room.client.say(json!({ "type": "response.cancel" })).await;
    let done = room.client.until("response.done").await;
    assert_eq!(done["response"]["status_details"], json!({ "type": "cancelled", "reason": "client_cancelled" }));
    room.client.until(HEARD).await;
    room.client.ask("And now?").await;
    let mut asked = room.reply("It is noon.").await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "And now?");
    asked.done(Finish::Stop);
    assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
    room.server.stop().await;
}

#[tokio::test]
async fn meaning_ends_a_turn_where_pauses_are_not_looked_at() {
    let mut room = Room::with(|settings| settings.speech.pause_ms = 0).await;
    room.configure(json!({ "turn_detection": { "type": "semantic_vad" } })).await;
    room.ears.will_hear(&["Is it late?"]);
    // Too short a silence for words that are not known.
    room.hear(&[silence(300), vowel(RATE, 600), silence(1100)].concat()).await;
    room.client.until("input_audio_buffer.speech_stopped").await;
    room.reply("Not yet.").await.done(Finish::Stop);
    room.client.until("response.done").await;
    room.server.stop().await;
}

#[tokio::test]
async fn marks_without_a_word_are_no_turn() {
    let mut room = Room::with(|_| {}).await;
    room.ears.will_hear(&[" ... ", "Are you there?"]);
    room.speak().await;
    let heard = room.client.until(HEARD).await;
    assert_eq!(heard["transcript"], "");
    assert_eq!(room.client.until("conversation.item.deleted").await["item_id"], heard["item_id"]);
    room.speak().await;
    let mut asked = room.reply("Yes.").await;
    assert_eq!(asked.chat().messages.iter().filter(|message| message["role"] == "user").count(), 1);
    asked.done(Finish::Stop);
    room.client.until("response.done").await;
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
