//! Audio at the Realtime door, with scripted ears and a scripted voice.

use crate::client::Client;
use crate::scripted::Asked;
use crate::support::{Chat, Server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use session::Finish;
use settings::{Persona, Settings, SpeechServer};
use speech::{g711, pcm};
use tests::speech::{CHAR_MS, Fault, ScriptedSpeech, vowel, word_times};

pub const RATE: u32 = 24_000;

pub struct Room {
    pub server: Server,
    pub ears: ScriptedSpeech,
    pub voice: ScriptedSpeech,
    pub client: Client,
}

fn wyoming(server: &ScriptedSpeech) -> Option<SpeechServer> {
    Some(SpeechServer::Wyoming(server.address.to_string()))
}

impl Room {
    async fn open() -> Room {
        Room::with(|_| {}).await
    }

    pub async fn with(change: impl FnOnce(&mut Settings)) -> Room {
        Room::of(ScriptedSpeech::start().await, ScriptedSpeech::start().await, change).await
    }

    pub async fn of(ears: ScriptedSpeech, voice: ScriptedSpeech, change: impl FnOnce(&mut Settings)) -> Room {
        let server = Server::with(|settings| {
            (settings.speech.stt, settings.speech.tts) = (wyoming(&ears), wyoming(&voice));
            settings.speech.answer_s = 2;
            change(settings);
        });
        let server = server.await;
        let mut client = server.connect("?model=gpt-realtime").await;
        client.until("session.created").await;
        Room { server, ears, voice, client }
    }

    pub async fn configure(&mut self, session: Value) -> Value {
        self.client.say(json!({ "type": "session.update", "session": session })).await;
        self.client.until("session.updated").await
    }

    pub async fn hear(&mut self, samples: &[i16]) {
        for piece in samples.chunks(RATE as usize / 10) {
            let audio = STANDARD.encode(pcm::to_bytes(piece));
            self.client.say(json!({ "type": "input_audio_buffer.append", "audio": audio })).await;
        }
    }

    /// Speaks for a while, and is silent until the turn has ended.
    pub async fn speak(&mut self) {
        self.hear(&[silence(600), vowel(RATE, 900), silence(1200)].concat()).await;
    }

    pub async fn reply(&mut self, words: &str) -> Asked {
        let mut asked = self.server.reply_asked().await;
        asked.say(words);
        asked
    }

    pub async fn retrieve(&mut self, item_id: &str) -> Value {
        self.client.say(json!({ "type": "conversation.item.retrieve", "item_id": item_id })).await;
        self.client.until("conversation.item.retrieved").await["item"].clone()
    }
}

#[tokio::test]
async fn a_name_that_nobody_gave_is_not_echoed() {
    // Pipecat stops reading at the first name that is null.
    let mut room = Room::open().await;
    let echoed = room.configure(json!({ "type": "realtime" })).await;
    assert_eq!(echoed["session"]["audio"]["input"]["transcription"], json!({}));
    let echoed = room.configure(json!({ "audio": { "input": { "transcription": { "language": "de" } } } })).await;
    assert_eq!(echoed["session"]["audio"]["input"]["transcription"], json!({ "language": "de" }));
    room.server.stop().await;
}

pub fn silence(ms: usize) -> Vec<i16> {
    vec![0; ms * RATE as usize / 1000]
}

fn is_delta(kind: &str) -> bool {
    kind.starts_with("response.output_audio") && kind.ends_with(".delta")
}

#[tokio::test]
async fn a_spoken_turn_in_the_order_that_clients_expect() {
    let mut room = Room::open().await;
    room.ears.will_hear(&["Is it late?"]);
    room.speak().await;
    let started = room.client.until("input_audio_buffer.speech_started").await;
    let item_id = started["item_id"].clone();
    assert!((200..=420).contains(&started["audio_start_ms"].as_u64().unwrap()), "{started}");
    let mut events = Vec::new();
    let mut asked = room.reply("Not yet. It is noon").await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Is it late?");
    asked.say(".");
    asked.done(Finish::Stop);
    loop {
        let event = room.client.event().await;
        events.push(event.clone());
        if event["type"] == "response.done" {
            break;
        }
    }
    let kinds: Vec<&str> =
        events.iter().map(|event| event["type"].as_str().unwrap()).filter(|kind| !is_delta(kind)).collect();
    assert_eq!(
        kinds,
        [
            "input_audio_buffer.speech_stopped",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "conversation.item.input_audio_transcription.completed",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
    );
    let of = |kind: &'static str| events.iter().filter(move |event| event["type"] == kind);
    for event in &events[..5] {
        assert!([&event["item_id"], &event["item"]["id"]].contains(&&item_id), "{event}");
    }
    let ended = events[0]["audio_end_ms"].as_u64().unwrap();
    assert!((1950..=2250).contains(&ended), "{ended}");
    assert_eq!(events[2]["item"]["content"], json!([{ "type": "input_audio", "transcript": null }]));
    let completed = of("conversation.item.input_audio_transcription.completed").next().unwrap();
    assert_eq!((&completed["transcript"], &completed["usage"]["type"]), (&json!("Is it late?"), &json!("duration")));
    assert_eq!(of("response.content_part.added").next().unwrap()["part"]["type"], "audio");
    let told: String =
        of("response.output_audio_transcript.delta").map(|event| event["delta"].as_str().unwrap()).collect();
    // LiveKit makes timed words of them.
    let times: Vec<f64> =
        of("response.output_audio_transcript.delta").filter_map(|event| event["start_time"].as_f64()).collect();
    assert!(times.len() == 2 && times[0] == 0.0 && (times[1] - 0.06 * 8.0).abs() < 0.01, "{times:?}");
    let done = events.last().unwrap();
    let said = json!([{ "type": "output_audio", "transcript": told }]);
    assert_eq!((told.as_str(), &done["response"]["output"][0]["content"]), ("Not yet. It is noon.", &said));
    assert_eq!(
        (&done["response"]["status"], &done["response"]["output_modalities"]),
        (&json!("completed"), &json!(["audio"]))
    );
    let bytes: usize = of("response.output_audio.delta")
        .map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len())
        .sum();
    let expected = (CHAR_MS * RATE as u64 / 1000 * 19 * 2) as usize;
    assert!(bytes.abs_diff(expected) < 200, "{bytes} of {expected}");
    let item = room.retrieve(item_id.as_str().unwrap()).await;
    assert_eq!(item["content"], json!([{ "type": "input_audio", "transcript": "Is it late?" }]));
    // Ears and voice were asked once for each piece.
    assert_eq!(
        room.voice.asked().iter().map(|asked| asked.data["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
        ["Not yet.", "It is noon."]
    );
    assert_eq!(room.ears.asked().len(), 1);
    room.server.stop().await;
}

/// Cuts a reply after so much of its audio, as a client does, and returns what the conversation has of it.
async fn cut_after(ms: u64) -> (Value, String, Value) {
    let mut room = Room::open().await;
    room.client.ask("Go on.").await;
    let words = "The kitchen light is on. It is very warm there today, and the window is open.";
    let mut asked = room.reply(words).await;
    asked.done(Finish::Stop);
    let done = room.client.until("response.done").await;
    let item_id = done["response"]["output"][0]["id"].as_str().unwrap().to_owned();
    let cut =
        json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": ms });
    room.client.say(cut).await;
    let truncated = room.client.until("conversation.item.truncated").await;
    let item = room.retrieve(&item_id).await;
    room.client.ask("And now?").await;
    let asked = room.server.reply_asked().await;
    let read = asked.chat().messages.iter().rev().nth(1).unwrap()["content"].clone();
    room.server.stop().await;
    (truncated["audio_end_ms"].clone(), item["content"][0]["transcript"].as_str().unwrap_or_default().to_owned(), read)
}

#[tokio::test]
async fn a_cut_keeps_the_words_that_were_heard() {
    // A character takes 60 ms.
    for (ms, heard) in [
        (0, ""),
        (1200, "The kitchen light is"),
        (1490, "The kitchen light is on."),
        (2350, "The kitchen light is on. It is very warm"),
    ] {
        let (told, transcript, read) = cut_after(ms).await;
        assert_eq!((told, transcript.as_str()), (json!(ms), heard));
        assert!(heard.is_empty() || read == heard, "{read}");
    }
    // A client that is late is not wrong.
    let (told, transcript, _) = cut_after(90_000).await;
    assert!((4500..=4700).contains(&told.as_u64().unwrap()), "{told}");
    assert!(transcript.ends_with("window is open."), "{transcript}");
}

#[tokio::test]
async fn a_persona_has_a_voice_and_a_language() {
    let mut room = Room::with(|settings| {
        let (voice, language) = (Some("ben".to_owned()), Some("de".to_owned()));
        let butler = Persona { name: "butler".to_owned(), voice, language, ..Persona::default() };
        settings.personas.insert(butler.name.clone(), butler);
    })
    .await;
    for (model, voice, language) in [("butler", json!("ben"), json!("de")), ("gpt-realtime", Value::Null, Value::Null)]
    {
        room.client = room.server.connect(&format!("?model={model}")).await;
        room.client.until("session.created").await;
        room.ears.will_hear(&["Is it late?"]);
        room.speak().await;
        let mut asked = room.reply("Not yet.").await;
        asked.done(Finish::Stop);
        room.client.until("response.done").await;
        let (heard, said) = (room.ears.asked().pop().unwrap().data, room.voice.asked().pop().unwrap().data);
        assert_eq!((&heard["language"], &said["voice"]["name"]), (&language, &voice), "{model}");
    }
    room.server.stop().await;
}

#[tokio::test]
async fn a_cut_is_exact_where_the_voice_tells_its_words() {
    let mut room = Room::open().await;
    room.voice.tell_words();
    room.client.ask("Go on.").await;
    // One sentence: a piece for the voice.
    let words = "I have extraordinarily many small lamps in a comparatively uninteresting kitchen today.";
    let mut asked = room.reply(words).await;
    asked.done(Finish::Stop);
    let done = room.client.until("response.done").await;
    let item_id = done["response"]["output"][0]["id"].as_str().unwrap().to_owned();
    let times = word_times(words);
    let length = times.last().unwrap().2;
    // A shorter cut of the same item may follow.
    for ms in (0..=length).rev().step_by(173) {
        let cut =
            json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": ms });
        room.client.say(cut).await;
        room.client.until("conversation.item.truncated").await;
        let item = room.retrieve(&item_id).await;
        let complete: Vec<&str> = times.iter().filter(|(.., end)| *end <= ms).map(|(word, ..)| word.as_str()).collect();
        assert_eq!(item["content"][0]["transcript"].as_str().unwrap_or_default(), complete.join(" "), "{ms} ms");
    }
    room.server.stop().await;
}

#[tokio::test]
async fn a_voice_stops_a_reply_and_the_cut_wins() {
    let mut room = Room::open().await;
    room.client.ask("Go on.").await;
    let mut asked = room.reply("The kitchen light is on. It is very warm there today. ").await;
    asked.say("And ");
    room.client.until("response.output_audio.delta").await;
    room.ears.will_hear(&["Stop."]);
    room.hear(&[silence(200), vowel(RATE, 400)].concat()).await;
    room.client.until("input_audio_buffer.speech_started").await;
    let mut kinds = Vec::new();
    let done = loop {
        let event = room.client.event().await;
        kinds.push(event["type"].as_str().unwrap().to_owned());
        if event["type"] == "response.done" {
            break event;
        }
    };
    assert!(!kinds.iter().any(|kind| is_delta(kind)), "{kinds:?}");
    let dones = |name: &str| kinds.iter().filter(|kind| *kind == name).count();
    assert_eq!((dones("response.output_audio.done"), dones("response.output_audio_transcript.done")), (1, 1));
    assert_eq!(done["response"]["status"], "cancelled");
    assert_eq!(done["response"]["status_details"], json!({ "type": "cancelled", "reason": "turn_detected" }));
    asked.cancelled().await;
    let item_id = done["response"]["output"][0]["id"].as_str().unwrap().to_owned();
    let cut =
        json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 0 });
    room.client.say(cut).await;
    room.client.until("conversation.item.truncated").await;
    assert_eq!(room.retrieve(&item_id).await["content"][0]["transcript"].as_str().unwrap_or_default(), "");
    room.hear(&silence(900)).await;
    let next = room.server.reply_asked().await;
    assert_eq!(next.chat().messages.last().unwrap()["content"], "Stop.");
    let all = format!("{:?}", next.chat().messages);
    assert!(!all.contains("kitchen") && !all.contains("And"), "{all}");
    room.server.stop().await;
}

#[tokio::test]
async fn what_a_client_does_not_cut_is_cut_by_the_clock() {
    let mut room = Room::open().await;
    room.client.ask("Go on.").await;
    // More than a minute of speech, so that a slow machine does not hear its end.
    let words = "It is very warm there today, and it stays warm. ".repeat(40) + "And tomorrow too.";
    let mut asked = room.reply(&words).await;
    asked.done(Finish::Stop);
    let first = room.client.until("response.output_audio.delta").await;
    room.hear(&[silence(100), vowel(RATE, 300)].concat()).await;
    let done = room.client.until("response.done").await;
    assert_eq!(done["response"]["status_details"]["reason"], "turn_detected");
    let item = room.retrieve(first["item_id"].as_str().unwrap()).await;
    let heard = item["content"][0]["transcript"].as_str().unwrap_or_default();
    assert!(words.starts_with(heard) && !heard.contains("tomorrow"), "{heard}");
    room.server.stop().await;
}

#[tokio::test]
async fn a_turn_by_hand_waits_for_its_words() {
    let mut room = Room::open().await;
    let updated = room.configure(json!({ "audio": { "input": { "turn_detection": null } } })).await;
    assert_eq!(updated["session"]["audio"]["input"]["turn_detection"], Value::Null);
    room.client.say(json!({ "type": "input_audio_buffer.commit", "event_id": "mine" })).await;
    let error = room.client.expect_error("input_audio_buffer_commit_empty").await;
    assert_eq!(error["error"]["event_id"], "mine");
    room.ears.will_hear(&["Good morning."]);
    room.ears.set_fault(Fault::Late(std::time::Duration::from_millis(200)));
    room.hear(&vowel(RATE, 500)).await;
    room.client.say(json!({ "type": "input_audio_buffer.clear" })).await;
    room.client.until("input_audio_buffer.cleared").await;
    room.hear(&vowel(RATE, 700)).await;
    room.client.say(json!({ "type": "input_audio_buffer.commit" })).await;
    room.client.say(json!({ "type": "response.create" })).await;
    let mut asked = room.reply("Good morning.").await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Good morning.");
    asked.done(Finish::Stop);
    let types = room.client.types_until("response.done").await;
    let place = |kind: &str| types.iter().position(|one| one == kind).unwrap_or_else(|| panic!("{kind} in {types:?}"));
    assert!(place("input_audio_buffer.committed") < place("conversation.item.added"));
    assert!(place("conversation.item.added") < place("response.created"));
    let samples = room.ears.asked()[0].samples;
    assert!(samples.abs_diff(11_200) < 200, "{samples}");
    room.server.stop().await;
}

#[tokio::test]
async fn ears_that_fail_are_named_and_the_conversation_lives() {
    let mut room = Room::open().await;
    for fault in [Fault::Refuses("no memory".into()), Fault::Hangs, Fault::HangsUp, Fault::Says(b"nonsense\n".to_vec())]
    {
        room.ears.set_fault(fault);
        room.speak().await;
        let failed = room.client.until("conversation.item.input_audio_transcription.failed").await;
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains(&room.ears.url()) && failed["error"]["type"] == "server_error", "{failed}");
    }
    room.ears.set_fault(Fault::None);
    // Nothing was said, which is no mistake, and is not answered.
    room.speak().await;
    assert_eq!(room.client.until("conversation.item.input_audio_transcription.completed").await["transcript"], "");
    room.ears.will_hear(&["Are you there?"]);
    room.speak().await;
    let mut asked = room.reply("Yes.").await;
    assert_eq!(asked.chat().messages.iter().filter(|message| message["role"] == "user").count(), 1);
    asked.done(Finish::Stop);
    let done = room.client.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed");
    room.server.stop().await;
}

#[tokio::test]
async fn a_voice_that_dies_leaves_the_words() {
    let mut room = Room::open().await;
    for fault in [Fault::DiesAfter(4), Fault::Hangs, Fault::Refuses("no such voice".into())] {
        room.voice.set_fault(fault);
        room.client.ask("Go on.").await;
        let mut asked = room.reply("The kitchen light is on. It is very warm there today.").await;
        asked.done(Finish::Stop);
        let transcript = room.client.until("response.output_audio_transcript.done").await;
        assert_eq!(transcript["transcript"], "The kitchen light is on. It is very warm there today.");
        let done = room.client.until("response.done").await;
        assert_eq!(done["response"]["status"], "failed");
        let message = done["response"]["status_details"]["error"]["message"].as_str().unwrap();
        assert!(message.contains(&room.voice.url()), "{message}");
    }
    room.voice.set_fault(Fault::None);
    room.client.ask("And now?").await;
    room.reply("Now it works.").await.done(Finish::Stop);
    assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
    room.server.stop().await;
}

#[tokio::test]
async fn formats_and_the_older_form_of_a_session() {
    let mut room = Room::open().await;
    let updated = room
        .configure(json!({ "modalities": ["text", "audio"], "input_audio_format": "g711_ulaw", "output_audio_format": "g711_alaw" }))
        .await;
    assert_eq!(updated["session"]["audio"]["input"]["format"]["type"], "audio/pcmu");
    assert_eq!(updated["session"]["output_modalities"], json!(["audio"]));
    room.ears.will_hear(&["Hello."]);
    let audio = [vec![0; 4000], vowel(8000, 900), vec![0; 8000]].concat();
    let bytes: Vec<u8> = audio.iter().map(|sample| g711::sample_to_mu_law(*sample)).collect();
    room.client.say(json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(&bytes) })).await;
    room.client.until("input_audio_buffer.speech_stopped").await;
    room.reply("Hello to you.").await.done(Finish::Stop);
    let mut bytes = 0;
    loop {
        let event = room.client.event().await;
        match event["type"].as_str().unwrap() {
            "response.output_audio.delta" => bytes += STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len(),
            "response.done" => break,
            _ => {}
        }
    }
    assert!(bytes.abs_diff(13 * 480) < 40, "{bytes}");
    // A text client of the same service sees text.
    let updated = room.configure(json!({ "output_modalities": ["text"] })).await;
    assert_eq!(updated["session"]["output_modalities"], json!(["text"]));
    room.client.ask("And in text?").await;
    room.reply("In text.").await.done(Finish::Stop);
    let types = room.client.types_until("response.done").await;
    assert!(
        types.iter().any(|kind| kind == "response.output_text.delta") && !types.iter().any(|kind| is_delta(kind)),
        "{types:?}"
    );
    // Wrong settings change nothing.
    room.client.say(json!({ "type": "session.update", "session": { "audio": { "input": { "format": { "type": "audio/opus" } } } } })).await;
    let error = room.client.expect_error("invalid_value").await;
    assert_eq!(error["error"]["param"], "session.audio.input.format");
    room.server.stop().await;
}

#[tokio::test]
async fn without_ears_audio_is_dropped_in_silence() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    client.until("session.created").await;
    let session =
        json!({ "output_modalities": ["audio"], "audio": { "input": { "turn_detection": { "type": "server_vad" } } } });
    client.say(json!({ "type": "session.update", "session": session })).await;
    let updated = client.until("session.updated").await;
    assert_eq!(updated["session"]["output_modalities"], json!(["text"]));
    assert_eq!(updated["session"]["audio"]["input"]["turn_detection"], Value::Null);
    for audio in ["AAAA", "no base64!", ""] {
        client.say(json!({ "type": "input_audio_buffer.append", "audio": audio })).await;
    }
    client.say(json!({ "type": "input_audio_buffer.commit" })).await;
    client.ask("Are you there?").await;
    let mut asked = server.reply_asked().await;
    asked.say("Yes.");
    asked.done(Finish::Stop);
    let types = client.types_until("response.done").await;
    assert!(!types.iter().any(|kind| kind == "error" || kind.starts_with("input_audio")), "{types:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_user_who_says_nothing_is_spoken_to() {
    let mut room = Room::open().await;
    room.configure(json!({ "turn_detection": { "type": "server_vad", "idle_timeout_ms": 5000 } })).await;
    room.client.ask("Hello.").await;
    room.reply("Hi.").await.done(Finish::Stop);
    room.client.until("response.done").await;
    let triggered = room.client.until("input_audio_buffer.timeout_triggered").await;
    let committed = room.client.until("input_audio_buffer.committed").await;
    assert_eq!(triggered["item_id"], committed["item_id"]);
    room.reply("Are you still there?").await.done(Finish::Stop);
    assert_eq!(room.client.until("response.done").await["response"]["status"], "completed");
    room.server.stop().await;
}

async fn post(room: &Room, path: &str, kind: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}{path}", room.server.address);
    let response = client.post(url).header("content-type", kind).body(body).send().await.unwrap();
    (response.status().as_u16(), response.bytes().await.unwrap_or_default().to_vec())
}

#[tokio::test]
async fn a_frontend_needs_one_address() {
    let room = Room::open().await;
    room.ears.will_hear(&["Good morning."]);
    let file = speech::wav::file(8000, &vowel(8000, 500));
    let head = "--x\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\nen\r\n--x\r\nContent-Disposition: form-data; \
                name=\"file\"; filename=\"a.wav\"\r\n\r\n";
    let form = |file: &[u8]| [head.as_bytes(), file, b"\r\n--x--\r\n"].concat();
    let kind = "multipart/form-data; boundary=x";
    let (status, body) = post(&room, "/v1/audio/transcriptions", kind, form(&file)).await;
    assert_eq!((status, &serde_json::from_slice::<Value>(&body).unwrap()["text"]), (200, &json!("Good morning.")));
    assert_eq!((room.ears.asked()[0].samples, &room.ears.asked()[0].data["language"]), (8000, &json!("en")));
    for (kind, body) in [(kind, form(b"ID3 no wav")), (kind, b"--x".to_vec()), ("audio/wav", file.clone())] {
        assert_eq!(post(&room, "/v1/audio/transcriptions", kind, body).await.0, 400);
    }
    room.ears.set_fault(Fault::Hangs);
    assert_eq!(post(&room, "/v1/audio/transcriptions", kind, form(&file)).await.0, 504);

    let ask = |body: Value| body.to_string().into_bytes();
    let body = ask(json!({ "model": "tts-1", "input": "The light is on. It is warm.", "voice": "ben" }));
    let (status, body) = post(&room, "/v1/audio/speech", "application/json", body).await;
    let audio = speech::wav::read(&body).unwrap();
    assert_eq!((status, audio.rate), (200, RATE));
    assert!(audio.samples.len().abs_diff(27 * 1440) < 10, "{}", audio.samples.len());
    assert_eq!(room.voice.asked()[0].data["voice"]["name"], "ben");
    let (_, plain) =
        post(&room, "/v1/audio/speech", "application/json", ask(json!({ "input": "On.", "response_format": "pcm" })))
            .await;
    assert!(plain.len().abs_diff(3 * 2880) < 20, "{}", plain.len());
    for wrong in [
        json!({}),
        json!({ "input": " " }),
        json!({ "input": "x", "response_format": "mp3" }),
        json!({ "input": "x", "speed": 9 }),
    ] {
        assert_eq!(post(&room, "/v1/audio/speech", "application/json", ask(wrong)).await.0, 400);
    }
    room.voice.set_fault(Fault::Refuses("no".into()));
    assert_eq!(post(&room, "/v1/audio/speech", "application/json", ask(json!({ "input": "x" }))).await.0, 502);
    room.server.stop().await;

    let server = Server::start().await;
    let (status, body) = server.http("POST", "/v1/audio/speech", &[], r#"{"input": "x"}"#).await;
    assert_eq!((status, &body["error"]["code"]), (404, &json!("speech_not_configured")));
    server.stop().await;
}
