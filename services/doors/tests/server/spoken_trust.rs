//! Users that share ears and a voice: no user keeps another waiting, or reaches into a server of speech.

use crate::client::Client;
use crate::support::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use settings::{Settings, SpeechServer};
use speech::pcm;
use std::time::{Duration, Instant};
use store::KeyScope;
use tests::speech::{Fault, ScriptedSpeech, vowel};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn wyoming(server: &ScriptedSpeech) -> Option<SpeechServer> {
    Some(SpeechServer::Wyoming(server.address.to_string()))
}

async fn key(server: &Server, user: &str) -> String {
    server.store.put_user(user, user, 1).await.unwrap();
    let scopes = [KeyScope::Talk, KeyScope::Sessions];
    format!("Bearer {}", server.store.create_key(user, "", &scopes, 1).await.unwrap().1)
}

async fn with(change: impl FnOnce(&mut Settings)) -> (Server, ScriptedSpeech) {
    let speech = ScriptedSpeech::start().await;
    let server = Server::with(|settings| {
        (settings.speech.stt, settings.speech.tts) = (wyoming(&speech), wyoming(&speech));
        settings.speech.requests = 1;
        change(settings);
    });
    (server.await, speech)
}

/// Opens a connection whose turns end by hand.
async fn listener(server: &Server, key: &str) -> Client {
    let mut client = server.try_connect("", &[("authorization", key)]).await.unwrap();
    client.until("session.created").await;
    let by_hand = json!({ "audio": { "input": { "turn_detection": null } } });
    client.say(json!({ "type": "session.update", "session": by_hand })).await;
    client.until("session.updated").await;
    client
}

async fn say_turn(client: &mut Client) {
    let audio = STANDARD.encode(pcm::to_bytes(&vowel(24_000, 300)));
    client.say(json!({ "type": "input_audio_buffer.append", "audio": audio })).await;
    client.say(json!({ "type": "input_audio_buffer.commit" })).await;
}

const HEARD: &str = "conversation.item.input_audio_transcription.completed";

#[tokio::test]
async fn the_turns_of_one_users_crowd_keep_no_other_user_waiting() {
    let (server, speech) = with(|settings| settings.speech.answer_s = 20).await;
    speech.set_fault(Fault::Late(Duration::from_millis(200)));
    speech.will_hear(&["Yes."; 200]);
    let (crowd, ann) = (key(&server, "crowd").await, key(&server, "ann").await);
    let mut crowded = Vec::new();
    for _ in 0..6 {
        let mut client = listener(&server, &crowd).await;
        for _ in 0..8 {
            say_turn(&mut client).await;
        }
        crowded.push(client);
    }
    // 48 turns of 200 ms wait.
    let mut client = listener(&server, &ann).await;
    let begun = Instant::now();
    say_turn(&mut client).await;
    client.until(HEARD).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn ears_that_are_busy_are_not_down() {
    let (server, speech) = with(|settings| settings.speech.answer_s = 1).await;
    speech.set_fault(Fault::Late(Duration::from_millis(700)));
    speech.will_hear(&["Yes."; 200]);
    let ann = key(&server, "ann").await;
    let mut client = listener(&server, &ann).await;
    for _ in 0..4 {
        say_turn(&mut client).await;
    }
    let mut failed = Vec::new();
    for _ in 0..4 {
        let kinds = [HEARD, "conversation.item.input_audio_transcription.failed"];
        let event = client.until_one_of(&kinds).await;
        failed.extend(event["error"]["code"].as_str().map(str::to_owned));
    }
    // The first two are in time.
    assert_eq!(failed, ["speech_server_busy"; 2]);
    server.stop().await;
}

#[tokio::test]
async fn a_response_that_finds_no_place_to_wait_is_refused() {
    let (server, speech) = with(|settings| settings.speech.waiting_turns = 2).await;
    speech.set_fault(Fault::Late(Duration::from_secs(5)));
    let mut client = listener(&server, &key(&server, "ann").await).await;
    say_turn(&mut client).await;
    for id in ["first", "second", "third"] {
        client.say(json!({ "type": "response.create", "event_id": id })).await;
    }
    let refused = client.until("error").await;
    assert_eq!(refused["error"]["code"], "too_many_responses", "{refused}");
    assert_eq!(refused["error"]["event_id"], "third", "the others wait");
    server.stop().await;
}

#[tokio::test]
async fn ears_that_hear_a_book_make_no_item_of_it() {
    let (server, speech) = with(|settings| settings.limits.item_bytes = 1000).await;
    let (long, ann) = ("word ".repeat(300), key(&server, "ann").await);
    speech.will_hear(&[&long, "Yes."]);
    let mut client = listener(&server, &ann).await;
    say_turn(&mut client).await;
    let failed = client.until("conversation.item.input_audio_transcription.failed").await;
    assert!(failed["error"]["message"].as_str().unwrap().contains("limits.item_bytes"), "{failed}");
    say_turn(&mut client).await;
    assert_eq!(client.until(HEARD).await["transcript"], "Yes.");
    server.stop().await;
}

#[tokio::test]
async fn a_listener_who_reads_nothing_gives_the_voice_to_others() {
    let (server, _speech) = with(|settings| settings.speech.answer_s = 2).await;
    let (greedy, ann) = (key(&server, "greedy").await, key(&server, "ann").await);
    let long = "This sentence is a long one, and it goes on for quite a while until it ends. ".repeat(1000);
    let body = json!({ "input": long }).to_string();
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!(
            "POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nAuthorization: {greedy}\r\nContent-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut first = [0; 64];
        stream.read_exact(&mut first).await.unwrap();
        assert!(first.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&first));
        unread.push(stream);
    }
    // Until all buffers on the way are full.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let begun = Instant::now();
    let short = json!({ "input": "On.", "response_format": "pcm" }).to_string();
    let (status, answer) = server.http("POST", "/v1/audio/speech", &[("authorization", &ann)], &short).await;
    assert_eq!(status, 200, "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop(unread);
    server.stop().await;
}

fn form(language: &str, file: &[u8]) -> Vec<u8> {
    let head = format!(
        "--x\r\nContent-Disposition: form-data; name=\"language\"\r\n\r\n{language}\r\n--x\r\nContent-Disposition: \
         form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
    );
    [head.as_bytes(), file, b"\r\n--x--\r\n"].concat()
}

#[tokio::test]
async fn hostile_forms_are_refused_before_the_ears_hear_of_them() {
    let (server, speech) = with(|settings| settings.speech.turn_s = 2).await;
    let ann = key(&server, "ann").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |body: Vec<u8>| {
        let url = format!("http://{}/v1/audio/transcriptions", server.address);
        let kind = "multipart/form-data; boundary=x";
        let request = client.post(url).header("content-type", kind).header("authorization", &ann).body(body);
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap_or_default())
    };
    let wav = |rate: u32, samples: usize| speech::wav::file(rate, &vec![1; samples]);
    let at = |at: usize, bytes: &[u8]| {
        let mut file = wav(16_000, 3200);
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let hostile = [
        form("en\r\n--y\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nlarge", &wav(16_000, 3200)),
        form(&"e".repeat(36), &wav(16_000, 3200)),
        // Longer than a turn, at the lowest rate, which becomes four times as many samples.
        form("en", &wav(4000, 9000)),
        form("en", &at(24, &0_u32.to_le_bytes())),
        form("en", &at(24, &1_u32.to_le_bytes())),
        form("en", &at(24, &u32::MAX.to_le_bytes())),
        form("en", &at(22, &0_u16.to_le_bytes())),
        form("en", &at(22, &u16::MAX.to_le_bytes())),
        form("en", &at(34, &64_u16.to_le_bytes())),
        form("en", &at(16, &u32::MAX.to_le_bytes())),
        form("en", &at(36, b"junk")),
        form("en", b"RIFF\0\0\0\0WAVE"),
    ];
    for (at, body) in hostile.into_iter().enumerate() {
        let (status, answer) = ask(body).await;
        assert_eq!(status, 400, "{at}: {answer}");
    }
    assert_eq!(speech.asked(), []);
    // Lengths that lie end with the bytes.
    for length in [0_u32, u32::MAX] {
        let (status, answer) = ask(form("en", &at(4, &length.to_le_bytes()))).await;
        assert_eq!(status, 200, "{answer}");
    }
    assert_eq!(ask(form("en", &at(40, &u32::MAX.to_le_bytes()))).await.0, 200);
    assert!(speech.asked().iter().all(|asked| asked.samples == 3200));
    server.stop().await;
}

#[tokio::test]
async fn what_was_said_lies_on_no_disk_as_audio_and_of_a_private_session_as_no_word() {
    let (mut server, speech) = with(|_| {}).await;
    speech.will_hear(&["The xylophone is under the stairs."]);
    let ann = key(&server, "ann").await;
    let mut client = server.try_connect("?private=true", &[("authorization", &ann)]).await.unwrap();
    client.until("session.created").await;
    let by_hand = json!({ "audio": { "input": { "turn_detection": null } } });
    client.say(json!({ "type": "session.update", "session": by_hand })).await;
    client.until("session.updated").await;
    // Samples that spell a word, so that they are found.
    let spelled = b"glockenspielaudio-".repeat(2000);
    let append = json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(&spelled) });
    client.say(append).await;
    client.say(json!({ "type": "input_audio_buffer.commit" })).await;
    client.until(HEARD).await;
    client.say(json!({ "type": "response.create", "response": { "output_modalities": ["text"] } })).await;
    let mut asked = server.reply_asked().await;
    asked.say("I see.");
    asked.done(session::Finish::Stop);
    client.until("response.done").await;
    drop(client);
    let folder = server.stop().await;
    let mut paths = vec![folder.path().to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            paths.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for word in [&b"glockenspiel"[..], b"Z2xvY2tlbnNwaWVs"] {
            assert!(!bytes.windows(word.len()).any(|window| window == word), "{}", path.display());
        }
    }
}

#[tokio::test]
async fn no_one_opens_streams_of_the_state_without_end() {
    let server = Server::with(|settings| {
        settings.limits.status_streams = 2;
        settings.limits.status_s = 30;
    })
    .await;
    let url = format!("http://{}/v1/server/events", server.address);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut response = client.get(&url).send().await.unwrap();
        assert!(response.chunk().await.unwrap().unwrap().starts_with(b"data: {"));
        open.push(response);
    }
    let refused = client.get(&url).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 429);
    let answer: Value = refused.json().await.unwrap();
    assert_eq!(answer["error"]["code"], "too_many_connections");
    // A stream that ends gives its place back.
    drop(open.pop());
    let begun = Instant::now();
    while client.get(&url).send().await.unwrap().status().as_u16() != 200 {
        assert!(begun.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn prompts_that_wait_in_a_batch_take_counted_memory() {
    let server = Server::with(|settings| settings.memory.text_bytes = Some(3 << 20)).await;
    let batch = json!({ "prompt": vec!["word ".repeat(1 << 15); 16], "stream": true, "max_tokens": 4 }).to_string();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let (mut open, mut refused) = (Vec::new(), 0);
    for _ in 0..3 {
        let url = format!("http://{}/v1/completions", server.address);
        let request = client.post(url).header("content-type", "application/json").body(batch.clone());
        let response = request.send().await.unwrap();
        match response.status().as_u16() {
            200 => open.push(response),
            503 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert_eq!((open.len(), refused), (1, 2));
    server.stop().await;
}
