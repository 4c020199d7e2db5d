//! Random histories of one client with audio: whatever it does, and whatever ears, voice and model do, the events keep
//! the protocol's order.

use crate::client::Client;
use crate::support::Server;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose};
use settings::SpeechServer;
use std::collections::HashMap;
use std::time::Duration;
use tests::speech::{Fault, ScriptedSpeech, vowel};
use tokio::time::timeout;

const RATE: u32 = 24_000;
const HISTORIES: u64 = 10;
const STEPS: u64 = 14;
// Silence of the service after which nothing more comes: ears and voice are given up after a second.
const QUIET: Duration = Duration::from_millis(2500);

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

#[derive(Default)]
struct OpenResponse {
    parts: usize,
    audio_done: usize,
    transcript_done: usize,
}

/// Watcher of the events of one connection.
#[derive(Default)]
struct Order {
    responses: HashMap<String, OpenResponse>,
    // Events about each spoken item, in their order.
    turns: HashMap<String, Vec<String>>,
    heard_ms: u64,
    items: Vec<String>,
    cuts: usize,
    seen: Vec<String>,
}

impl Order {
    fn take(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap().to_owned();
        let id = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        self.seen.push(format!("{kind} {}{}", id("response_id"), id("item_id")));
        let fail = |why: &str| panic!("{why}: {event}\n{:#?}", self.seen);
        match kind.as_str() {
            "error" => {
                let code = event["error"]["code"].as_str().unwrap_or_default();
                let allowed = [
                    "input_audio_buffer_commit_empty",
                    "response_cancel_not_active",
                    "conversation_already_has_active_response",
                ];
                if !allowed.contains(&code) {
                    fail("an error");
                }
            }
            "response.created" => {
                let response_id = event["response"]["id"].as_str().unwrap().to_owned();
                if self.responses.insert(response_id, OpenResponse::default()).is_some() {
                    fail("created twice");
                }
            }
            "response.done" => {
                let response_id = event["response"]["id"].as_str().unwrap();
                match self.responses.remove(response_id) {
                    None => fail("done twice, or never begun"),
                    Some(open) if open.parts != open.audio_done || open.parts != open.transcript_done => {
                        fail("a part without its ends")
                    }
                    Some(_) => {}
                }
            }
            kind if kind.starts_with("response.") => {
                let Some(open) = self.responses.get_mut(&id("response_id")) else {
                    return fail("an event of a response that is over");
                };
                match kind {
                    "response.content_part.added" => open.parts += 1,
                    "response.output_audio.done" => open.audio_done += 1,
                    "response.output_audio_transcript.done" => open.transcript_done += 1,
                    _ if kind.ends_with(".delta") && open.parts == open.audio_done => fail("a delta behind the end"),
                    _ => {}
                }
            }
            "input_audio_buffer.speech_started" | "input_audio_buffer.speech_stopped" => {
                let ms = event["audio_start_ms"].as_u64().or(event["audio_end_ms"].as_u64()).unwrap();
                if ms < self.heard_ms {
                    fail("a place that runs back");
                }
                self.heard_ms = ms;
                self.turns.entry(id("item_id")).or_default().push(kind);
            }
            "input_audio_buffer.committed" => self.turns.entry(id("item_id")).or_default().push(kind),
            "conversation.item.added" | "conversation.item.done" => {
                let item_id = event["item"]["id"].as_str().unwrap().to_owned();
                if kind.ends_with("added") {
                    self.items.push(item_id.clone());
                }
                if let Some(turn) = self.turns.get_mut(&item_id) {
                    turn.push(kind);
                }
            }
            "conversation.item.input_audio_transcription.completed"
            | "conversation.item.input_audio_transcription.failed" => {
                self.turns.entry(id("item_id")).or_default().push("heard".to_owned());
            }
            "conversation.item.input_audio_transcription.delta" => {
                let turn = self.turns.entry(id("item_id")).or_default();
                if turn.iter().any(|kind| kind != "input_audio_buffer.speech_started") {
                    fail("words of a turn that has ended");
                }
            }
            "conversation.item.truncated" => match self.cuts.checked_sub(1) {
                Some(left) => self.cuts = left,
                None => fail("a cut that no client asked for"),
            },
            _ => {}
        }
    }

    fn check_the_end(&self) {
        assert!(self.responses.is_empty(), "{:?} never ended\n{:#?}", self.responses.keys(), self.seen);
        for (item_id, turn) in &self.turns {
            let kinds: Vec<&str> = turn.iter().map(|kind| kind.rsplit('.').next().unwrap()).collect();
            // One that is cleared, or committed by hand, has no second place.
            let is_open = matches!(kinds[..], ["speech_started"]);
            let by_hand = matches!(kinds[..], ["committed", "added", "done", "heard"])
                || matches!(kinds[..], ["speech_started", "committed", "added", "done", "heard"]);
            let by_voice =
                matches!(kinds[..], ["speech_started", "speech_stopped", "committed", "added", "done", "heard"]);
            assert!(is_open || by_hand || by_voice, "{item_id}: {kinds:?}\n{:#?}", self.seen);
        }
    }
}

async fn hear(client: &mut Client, samples: &[i16]) {
    let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    client.say(json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes) })).await;
}

/// Takes events until none has come for this long.
async fn listen(client: &mut Client, order: &mut Order, quiet: Duration) {
    while let Ok(event) = timeout(quiet, client.next()).await {
        order.take(&event.unwrap_or_else(|closed| panic!("the connection is closed: {closed:?}\n{:#?}", order.seen)));
    }
}

#[tokio::test]
async fn the_order_of_events_survives_any_history() {
    let (ears, voice) = (ScriptedSpeech::start().await, ScriptedSpeech::start().await);
    ears.tell_partials(None);
    let mut server = Server::with(|settings| {
        let at = |server: &ScriptedSpeech| Some(SpeechServer::Wyoming(server.address.to_string()));
        (settings.speech.stt, settings.speech.tts) = (at(&ears), at(&voice));
        settings.speech.answer_s = 1;
    })
    .await;
    ears.is_described().await;
    let mut script = server.take_script();
    let model = tokio::spawn(async move {
        for number in 0_usize.. {
            let mut asked = script.next().await;
            if asked.request.purpose != GenerationPurpose::Reply {
                continue;
            }
            tokio::spawn(async move {
                for sentence in ["The lamp in the kitchen is on. ", "It is quite warm there today. "]
                    .iter()
                    .cycle()
                    .take(number % 5)
                {
                    asked.say(sentence);
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
                // Now and then the answer breaks off.
                if number % 7 != 6 {
                    asked.say("And that is all.");
                    asked.done(Finish::Stop);
                }
            });
        }
    });
    for seed in 1..=HISTORIES {
        if seed == HISTORIES / 2 {
            ears.tell_no_partials();
        }
        history(&mut Dice(seed), &server, &ears, &voice).await;
    }
    model.abort();
    server.stop().await;
}

async fn history(dice: &mut Dice, server: &Server, ears: &ScriptedSpeech, voice: &ScriptedSpeech) {
    let mut client = server.connect("?model=gpt-realtime").await;
    let mut order = Order::default();
    for _ in 0..STEPS {
        match dice.below(14) {
            0..3 => {
                ears.will_hear(&["Is it late?"]);
                hear(&mut client, &[vowel(RATE, 400), vec![0; RATE as usize]].concat()).await;
            }
            3 => hear(&mut client, &vowel(RATE, 300)).await,
            4 => hear(&mut client, &vec![0; RATE as usize * 7 / 10]).await,
            5 => client.say(json!({ "type": "input_audio_buffer.clear" })).await,
            6 => client.say(json!({ "type": "input_audio_buffer.commit" })).await,
            7 => client.say(json!({ "type": "response.create" })).await,
            8 => client.say(json!({ "type": "response.cancel" })).await,
            9 => {
                let turns = [json!(null), json!({ "type": "server_vad" }), json!({ "type": "semantic_vad" })];
                let turns = &turns[dice.below(3) as usize];
                let session = json!({ "type": "realtime", "audio": { "input": { "turn_detection": turns } } });
                client.say(json!({ "type": "session.update", "session": session })).await;
            }
            10 => {
                let faults =
                    [Fault::None, Fault::HangsUp, Fault::Refuses("no".into()), Fault::Hangs, Fault::DiesAfter(2)];
                let fault = faults[dice.below(5) as usize].clone();
                if dice.below(2) == 0 { ears } else { voice }.set_fault(fault);
            }
            11 => client.ask("Go on.").await,
            _ => {
                // Only replies can be cut.
                let spoken = order.items.iter().rev().find(|id| !order.turns.contains_key(*id) && is_reply(&order, id));
                if let Some(item_id) = spoken.cloned() {
                    let audio_end_ms = dice.below(4000);
                    order.cuts += 1;
                    let cut = json!({ "type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": audio_end_ms });
                    client.say(cut).await;
                }
            }
        }
        listen(&mut client, &mut order, Duration::from_millis(dice.below(60))).await;
    }
    ears.set_fault(Fault::None);
    voice.set_fault(Fault::None);
    listen(&mut client, &mut order, QUIET).await;
    order.check_the_end();
    client.say(json!({ "type": "session.update", "session": { "type": "realtime" } })).await;
    client.until("session.updated").await;
}

fn is_reply(order: &Order, item_id: &str) -> bool {
    order.seen.iter().any(|line| line.starts_with("response.output_audio") && line.ends_with(item_id))
}
