//! Arms on live traffic: which user gets which arm, which is moved, and what is measured of a turn.

use crate::client::Client;
use crate::support::Server;
use access::LOCAL_USER;
use serde_json::{Value, json};
use session::{Delta, Finish, TurnReport};
use settings::{Experiment, ExperimentArm, ExperimentUnit, Settings};
use std::collections::BTreeMap;
use store::Measurement;

const ARMS: [&str; 2] = ["qwen3.5-9b-16k", "qwen3.5-9b-64k"];

fn experiment(arm: &'static str) -> impl FnOnce(&mut Settings) {
    move |settings| {
        settings.experiment = Some(Experiment {
            name: "windows".into(),
            unit: ExperimentUnit::User,
            arms: ARMS.map(|preset| ExperimentArm { preset: preset.into(), weight: 1.0 }).into(),
            start_ms: None,
            end_ms: None,
            overrides: BTreeMap::from([(LOCAL_USER.to_owned(), arm.to_owned())]),
        });
    }
}

async fn turn(server: &mut Server, client: &mut Client, text: &str) -> Value {
    client.ask(text).await;
    let mut asked = server.reply_asked().await;
    asked.prompt(30, 10);
    asked.say("It is late. Go to bed.");
    asked.done(Finish::Stop);
    client.until("response.done").await
}

/// Waits for the measurements of `turns` turns. The service writes a turn's report after its reply.
async fn measured(server: &Server, id: &str, turns: usize) -> Vec<Measurement> {
    let session = server.store.open_session(LOCAL_USER, id).await.unwrap();
    loop {
        let measured = server.store.measurements(&session).await.unwrap();
        if measured.len() >= turns {
            return measured;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_is_in_an_arm_and_stays_there_until_it_is_moved() {
    let mut server = Server::with(experiment(ARMS[0])).await;
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    client.ask("Is it late?").await;
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.request.preset.name, ARMS[0]);
    asked.prompt(30, 10);
    asked.say("Yes.");
    asked.done(Finish::Stop);
    let told = client.until("context.updated").await;
    assert_eq!((&told["arm"], &told["ctx_size"]), (&json!(ARMS[0]), &json!(asked.request.preset.ctx_size)));
    let row = measured(&server, &id, 1).await.remove(0);
    assert_eq!((row.experiment.as_deref(), row.arm.as_deref()), (Some("windows"), Some(ARMS[0])));
    assert_eq!(row.preset, ARMS[0]);
    // A client that names a preset is in no arm.
    let other = server.connect(&format!("?model={}", ARMS[1])).await.session_id().await;
    let other = server.store.open_session(LOCAL_USER, &other).await.unwrap();
    assert_eq!(server.store.session(&other).await.unwrap().placement.arm, None);

    // The experiment changes, the session does not.
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, experiment(ARMS[1])).await;
    let mut client = server.connect(&format!("?session={id}&extensions=reprise")).await;
    turn(&mut server, &mut client, "And now?").await;
    assert_eq!(measured(&server, &id, 2).await[1].arm.as_deref(), Some(ARMS[0]));
    // Unless a client asks for it.
    let path = format!("/v1/sessions/{id}/placement");
    let headers = [("content-type", "application/json")];
    let (status, placed) = server.http("POST", &path, &headers, "{}").await;
    assert_eq!((status, &placed["arm"], &placed["experiment"]), (200, &json!(ARMS[1]), &json!("windows")));
    client.closed().await;
    let mut client = server.connect(&format!("?session={id}")).await;
    turn(&mut server, &mut client, "And then?").await;
    assert_eq!(measured(&server, &id, 3).await[2].preset, ARMS[1]);
    let (status, placed) = server.http("POST", &path, &headers, &json!({ "preset": ARMS[0] }).to_string()).await;
    assert_eq!((status, &placed["preset"], &placed["arm"]), (200, &json!(ARMS[0]), &Value::Null));
    for (body, expected) in [("{\"preset\": \"no\"}", 404), ("{\"arm\": 1}", 400), ("", 400)] {
        assert_eq!(server.http("POST", &path, &headers, body).await.0, expected, "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn without_an_experiment_nothing_is_drawn() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    turn(&mut server, &mut client, "Is it late?").await;
    assert_eq!(measured(&server, &id, 1).await[0].arm, None);
    let headers = [("content-type", "application/json")];
    let (status, body) = server.http("POST", &format!("/v1/sessions/{id}/placement"), &headers, "{}").await;
    assert_eq!(status, 400, "{body}");
    server.stop().await;
}

#[tokio::test]
async fn a_thumb_is_kept_with_its_turn() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    let done = turn(&mut server, &mut client, "Is it late?").await;
    let response = done["response"]["id"].as_str().unwrap().to_owned();
    assert_eq!(measured(&server, &id, 1).await[0].feedback, None);
    let say = |body: Value| {
        let server = &server;
        async move { server.http("POST", "/v1/feedback", &[("content-type", "application/json")], &body.to_string()).await }
    };
    let thumb = |value: i64| json!({ "session_id": id, "response_id": response, "value": value });
    for value in [1, -1, 0] {
        assert_eq!(
            say(thumb(value)).await,
            (
                200,
                json!({
                    "object": "feedback", "session_id": id, "response_id": response, "value": value,
                })
            )
        );
        assert_eq!(measured(&server, &id, 1).await[0].feedback, Some(value));
    }
    assert_eq!(say(thumb(2)).await.0, 400);
    assert_eq!(say(json!({ "session_id": id, "response_id": "resp_0", "value": 1 })).await.0, 404);
    assert_eq!(say(json!({ "session_id": "sess_0", "response_id": response, "value": 1 })).await.0, 404);
    assert_eq!(say(json!({ "session_id": id })).await.0, 400);
    server.stop().await;
}

#[tokio::test]
async fn a_turn_is_measured_as_it_was() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;

    client.ask("Tell me a story.").await;
    let mut asked = server.reply_asked().await;
    asked.prompt(30, 10);
    asked.think("Hm.");
    asked.say("There was a king. He ");
    client.until("response.output_text.delta").await;
    asked.say("slept.");
    let usage = session::Usage { input_tokens: 30, cached_tokens: 10, output_tokens: 41, reasoning_tokens: 9 };
    let report = TurnReport {
        reused_tokens: 10,
        computed_tokens: 20,
        reason: Some("edited"),
        queue_ms: 3.0,
        prefill_ms: 40.0,
        first_token_ms: Some(43.0),
        total_ms: 443.0,
        decode_ms: 400.0,
        memory_bytes: vec![("pages", 4096), ("live", 100)],
        ..TurnReport::default()
    };
    asked.push(Delta::Done { finish: Finish::Stop, usage: Some(usage), report: Some(report) });
    let done = client.until("response.done").await;
    let item = done["response"]["output"][0]["id"].as_str().unwrap().to_owned();
    let row = measured(&server, &id, 1).await.remove(0);
    assert_eq!(
        (row.tokens_in, row.tokens_out, row.fill_tokens, row.reused_tokens, row.computed_tokens),
        (30, 41, 71, 10, 20)
    );
    assert_eq!((row.queue_ms, row.prefill_ms, row.decode_ms), (3.0, 40.0, 400.0));
    assert!(row.first_token_ms.unwrap() <= row.first_sentence_ms.unwrap());
    assert!(row.first_sentence_ms.unwrap() <= row.total_ms);
    assert_eq!((&row.memory["pages"], &row.memory["live"]), (&json!(4096), &json!(100)));
    assert!(!row.barged_in && !row.regenerated);

    // Heard to its first sentence: the user talked over it, after it was made.
    client
        .say(json!({
            "type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": 600,
        }))
        .await;
    client.until("conversation.item.truncated").await;
    assert!(measured(&server, &id, 1).await[0].barged_in);

    // While it is made.
    client.ask("Another one.").await;
    let mut asked = server.reply_asked().await;
    asked.prompt(40, 10);
    asked.say("There was a queen. ");
    client.until("response.output_text.delta").await;
    client.say(json!({ "type": "response.cancel" })).await;
    asked.cancelled().await;
    asked.done(Finish::Cancelled);
    let done = client.until("response.done").await;
    let said = done["response"]["output"][0]["id"].as_str().unwrap().to_owned();
    assert!(measured(&server, &id, 2).await[1].barged_in);

    // The same question again: its answer is taken out and asked for anew.
    client.say(json!({ "type": "conversation.item.delete", "item_id": said })).await;
    client.until("conversation.item.deleted").await;
    client.say(json!({ "type": "response.create" })).await;
    let mut asked = server.reply_asked().await;
    asked.prompt(40, 30);
    asked.call("light", "{}");
    asked.done(Finish::Stop);
    let done = client.until("response.done").await;
    let row = measured(&server, &id, 3).await.remove(2);
    assert!(row.regenerated && !row.barged_in);

    // What follows the result of a tool answers something new.
    let call = done["response"]["output"][0]["call_id"].as_str().unwrap();
    client.say(json!({
        "type": "conversation.item.create", "item": { "type": "function_call_output", "call_id": call, "output": "on" },
    })).await;
    client.say(json!({ "type": "response.create" })).await;
    let mut asked = server.reply_asked().await;
    asked.prompt(60, 40);
    asked.say("It is on.");
    // The client has left: that is no barge-in.
    client.until("response.output_text.delta").await;
    drop(client);
    asked.cancelled().await;
    asked.done(Finish::Cancelled);
    let row = measured(&server, &id, 4).await.remove(3);
    assert!(!row.regenerated && !row.barged_in);
    server.stop().await;
}
