//! Replies that want an answer: every door says so, and the text says so to clients that read nothing else.

use crate::scripted::{Asked, Script};
use crate::support::{Chat, Server};
use crate::wyoming_client::{own_address, turn};
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose};
use settings::{Questions, Settings};

fn with(questions: Questions) -> impl FnOnce(&mut Settings) {
    move |settings| settings.presets.get_mut("default").expect("it is there").questions = questions
}

async fn reply_asked(script: &mut Script) -> Asked {
    loop {
        let asked = script.next().await;
        if asked.request.purpose == GenerationPurpose::Reply {
            return asked;
        }
    }
}

/// The whole answer to a chat completion, in which the model says this in these pieces.
async fn chat(server: &mut Server, more: Value, pieces: &[&str]) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Turn on the light." }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut script = server.take_script();
    let body = body.to_string();
    let (answer, ()) = tokio::join!(server.http("POST", "/v1/chat/completions", &[], &body), async {
        let mut asked = reply_asked(&mut script).await;
        pieces.iter().for_each(|piece| asked.say(piece));
        asked.done(Finish::Stop);
    });
    server.script = script;
    assert_eq!(answer.0, 200, "{}", answer.1);
    answer.1
}

fn told(answer: &Value) -> (&str, bool) {
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    (text, answer["reprise"]["expects_answer"].as_bool().unwrap())
}

#[tokio::test]
async fn a_reply_says_whether_it_wants_an_answer() {
    let mut server = Server::start().await;
    for (said, expects) in [("It is on.", false), ("Which one? 😊", true), ("هل أطفئ الضوء؟", true)] {
        let answer = chat(&mut server, json!({}), &[said]).await;
        assert_eq!(told(&answer), (said, expects), "as the model writes it");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_question_ends_in_the_mark_that_home_assistant_knows() {
    let mut server = Server::with(with(Questions::Marked)).await;
    for (pieces, said) in [(["Which", " one? 😊"], "Which one?"), (["هل أطفئ", " الضوء؟"], "هل أطفئ الضوء?")]
    {
        let answer = chat(&mut server, json!({ "metadata": { "session_id": "new" } }), &pieces).await;
        assert_eq!(told(&answer), (said, true));
        // What was told is what is kept.
        let id = answer["reprise"]["session_id"].as_str().unwrap();
        let session = server.store.open_session("local", id).await.unwrap();
        let items = server.store.items(&session, None, 10).await.unwrap();
        assert_eq!(items.last().unwrap().said(), said);
    }
    // What is to be of a form, and what is not spoken, stays as it is.
    let form = json!({ "response_format": { "type": "json_object" } });
    assert_eq!(told(&chat(&mut server, form, &["\"Why?\""]).await).0, "\"Why?\"");
    assert_eq!(told(&chat(&mut server, json!({ "logprobs": true }), &["Why? 😊"]).await).0, "Why? 😊");
    assert_eq!(told(&chat(&mut server, json!({ "service_tier": "flex" }), &["Why? 😊"]).await).0, "Why? 😊");
    server.stop().await;
}

#[tokio::test]
async fn where_the_microphone_stays_shut_a_reply_does_not_go_on_to_ask() {
    let address = own_address();
    let mut server = Server::with(|settings| {
        (settings.wyoming.host, settings.wyoming.port) = (Some(address.ip()), Some(address.port()));
        with(Questions::None)(settings);
    })
    .await;
    for (pieces, said, expects) in [
        (vec!["It is", " on. ", "Shall I", " dim it?"], "It is on. ", false),
        (vec!["Which", " room do you mean?"], "Which room do you mean?", true),
        (vec!["It is on. Is it too", " bright? I can dim it."], "It is on. Is it too bright? I can dim it.", false),
    ] {
        let context = json!({ "satellite_id": "assist_satellite.kitchen" });
        let handled = tokio::spawn(async move { turn(address, "Turn on the light.", context).await });
        let mut asked = server.reply_asked().await;
        let head = asked.chat().messages[0]["content"].as_str().unwrap().to_owned();
        assert!(head.starts_with("Do not end with a question"), "the model is told: {head}");
        pieces.iter().for_each(|piece| asked.say(piece));
        asked.done(Finish::Stop);
        let (kind, data) = handled.await.unwrap();
        assert_eq!((kind.as_str(), data["text"].as_str()), ("handled", Some(said)));
        assert_eq!(data.get("expects_answer"), expects.then_some(&json!(true)));
    }
    // Also without a session, and it is no part of the client's own instructions.
    let messages = json!([{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Light." }]);
    let mut script = server.take_script();
    let body = json!({ "messages": messages }).to_string();
    let (answer, ()) = tokio::join!(server.http("POST", "/v1/chat/completions", &[], &body), async {
        let mut asked = reply_asked(&mut script).await;
        let head = asked.chat().messages[0]["content"].as_str().unwrap().to_owned();
        assert!(head.starts_with("Do not end with a question") && head.ends_with("\n\nBe brief."), "{head}");
        asked.say("It is on. Anything else?");
        asked.done(Finish::Stop);
    });
    assert_eq!(told(&answer.1), ("It is on. ", false));
    server.stop().await;
}
