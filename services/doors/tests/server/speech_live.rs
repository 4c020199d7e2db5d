//! Transcripts that a client gets while its user still speaks, and audio that the service keeps.

use crate::speech::{RATE, Room, silence};
use crate::support::Chat;
use serde_json::json;
use session::Finish;
use std::time::Duration;
use tests::speech::{ScriptedSpeech, vowel};

#[tokio::test]
async fn words_are_told_while_a_user_still_speaks() {
    let (ears, voice) = (ScriptedSpeech::start().await, ScriptedSpeech::start().await);
    ears.tell_partials(None);
    let mut room = Room::of(ears, voice, |_| {}).await;
    room.ears.is_described().await;
    room.ears.will_hear(&["Is it late now, dear?"]);
    room.hear(&[silence(600), vowel(RATE, 900)].concat()).await;
    let item_id = room.client.until("input_audio_buffer.speech_started").await["item_id"].clone();
    let mut told = String::new();
    // The service sends words in one event that the ears tell in one.
    while told.len() < "Is it late".len() {
        let delta = room.client.until("conversation.item.input_audio_transcription.delta").await;
        assert_eq!(delta["item_id"], item_id);
        told.push_str(delta["delta"].as_str().unwrap());
    }
    assert!("Is it late now, dear?".starts_with(&told), "{told}");
    room.hear(&silence(1200)).await;
    let completed = room.client.until("conversation.item.input_audio_transcription.completed").await;
    assert_eq!((&completed["item_id"], &completed["transcript"]), (&item_id, &json!("Is it late now, dear?")));
    let mut asked = room.reply("Not yet.").await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Is it late now, dear?");
    asked.done(Finish::Stop);
    room.client.until("response.done").await;
    // The ears heard the turn once, while it was said, with all of its audio.
    let heard = room.ears.asked();
    assert_eq!(heard.len(), 1);
    assert!((16_000..=32_000).contains(&heard[0].samples), "{}", heard[0].samples);
    // Ears that break off while the user speaks hear the whole turn again. A client that wants no transcripts gets no event with words.
    room.ears.tell_partials(Some(1));
    room.configure(json!({ "audio": { "input": { "transcription": null } } })).await;
    room.ears.will_hear(&["And tomorrow at noon?"]);
    room.hear(&[silence(600), vowel(RATE, 900)].concat()).await;
    room.client.until("input_audio_buffer.speech_started").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    room.hear(&silence(1200)).await;
    let asked = room.server.reply_asked().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "And tomorrow at noon?");
    assert!(room.ears.asked().len() >= 2);
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(50), room.client.event()).await {
        assert!(!event["type"].as_str().unwrap().contains("transcription"), "{event}");
    }
    room.server.stop().await;
}

#[tokio::test]
async fn audio_is_kept_only_where_that_is_wished() {
    for keeps in [false, true] {
        let mut room = Room::with(|settings| settings.speech.keep_audio = keeps).await;
        room.client = room.server.connect("?model=gpt-realtime").await;
        let session = room.client.until("session.created").await["session"]["id"].as_str().unwrap().to_owned();
        room.ears.will_hear(&["Is it late?"]);
        room.speak().await;
        let completed = room.client.until("conversation.item.input_audio_transcription.completed").await;
        let mut asked = room.reply("Not yet.").await;
        asked.done(Finish::Stop);
        room.client.until("response.done").await;
        let item = completed["item_id"].as_str().unwrap();
        let path = format!("/v1/conversations/{session}/items/{item}");
        let audio = format!("{path}/audio");
        let (mut status, mut body) = room.server.bytes(&audio).await;
        // It is written behind the item.
        while keeps && status == 404 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            (status, body) = room.server.bytes(&audio).await;
        }
        if keeps {
            let heard = speech::wav::read(&body).unwrap();
            let (sent, kept) = (room.ears.asked()[0].samples, heard.samples.len());
            assert_eq!((status, heard.rate), (200, speech::HEARD_RATE));
            assert!(
                kept >= sent && kept - sent < 8000 && heard.samples.iter().any(|sample| *sample > 5000),
                "{kept} {sent}"
            );
        } else {
            assert_eq!(status, 404);
            assert!(String::from_utf8_lossy(&body).contains("audio_not_kept"));
        }
        assert_eq!(room.server.http("DELETE", &path, &[], "").await.0, 200);
        assert_eq!(room.server.bytes(&audio).await.0, 404);
        room.server.stop().await;
    }
}
