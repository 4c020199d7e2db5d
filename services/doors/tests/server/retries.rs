//! openai-python sends a request again by itself when its answer does not come: twice, with the same body, and a header that
//! counts. In a durable session that is one turn.

use crate::client::PATIENCE;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Failure, FailureCode, Finish};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Status, `retry-after` and body of an answer.
type Answered = (u16, Option<String>, Value);

fn posting(server: &Server, body: &Value, retries: u32) -> JoinHandle<Answered> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let mut request = client.post(format!("http://{}/v1/chat/completions", server.address)).body(body.to_string());
    request = request.header("x-stainless-retry-count", retries.to_string());
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        let after = response.headers().get("retry-after").map(|after| after.to_str().unwrap().to_owned());
        (response.status().as_u16(), after, serde_json::from_str(&response.text().await.unwrap()).unwrap())
    })
}

fn says(text: &str, session: &str) -> Value {
    json!({ "messages": [{ "role": "user", "content": text }], "metadata": { "session_id": session } })
}

fn content(answer: &Value) -> &Value {
    &answer["choices"][0]["message"]["content"]
}

async fn begin(server: &mut Server) -> String {
    let answer = posting(server, &says("Hello?", "new"), 0);
    let mut asked = server.reply_asked().await;
    asked.say("Hi.");
    asked.done(Finish::Stop);
    answer.await.unwrap().2["reprise"]["session_id"].as_str().unwrap().to_owned()
}

async fn kept(server: &Server, id: &str) -> Vec<String> {
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
    let line = |item: &Value| {
        let body = &item["body"];
        let text: String =
            body["parts"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect();
        format!("{}: {text}", body["role"].as_str().unwrap_or("?"))
    };
    items["data"].as_array().unwrap().iter().map(line).collect()
}

async fn no_reply_is_asked(server: &mut Server) {
    while let Some(asked) = server.script.try_next() {
        assert_ne!(asked.request.purpose, session::GenerationPurpose::Reply, "the model is asked once");
    }
}

#[tokio::test]
async fn a_retry_reads_along_and_hears_again() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let body = says("And who are you?", &id);
    let first = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("Me");
    let second = posting(&server, &body, 1);
    // The service has read the second request when it answers a later one on the session.
    kept(&server, &id).await;
    asked.say(", of course.");
    asked.done(Finish::Stop);
    for answer in [first, second, posting(&server, &body, 2)] {
        let (status, _, answer) = timeout(PATIENCE, answer).await.unwrap().unwrap();
        assert_eq!((status, content(&answer)), (200, &json!("Me, of course.")));
    }
    no_reply_is_asked(&mut server).await;
    let all = ["user: Hello?", "assistant: Hi.", "user: And who are you?", "assistant: Me, of course."];
    assert_eq!(kept(&server, &id).await, all);

    // The same words, said again by the user, are a turn.
    let again = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("As I said.");
    asked.done(Finish::Stop);
    assert_eq!(content(&again.await.unwrap().2), "As I said.");
    assert_eq!(kept(&server, &id).await.len(), 6);
    server.stop().await;
}

/// Sends the question again: the model reads it once, and the session has it once.
async fn a_second_attempt_is_answered(server: &mut Server, body: &Value, id: &str) {
    let second = posting(server, body, 1);
    let mut asked = server.reply_asked().await;
    let said: Vec<Value> = asked.chat().messages.iter().skip(1).map(|message| message["content"].clone()).collect();
    assert_eq!(said, ["Hello?", "Hi.", "And who are you?"], "once, and nothing that no client heard");
    asked.say("Me.");
    asked.done(Finish::Stop);
    assert_eq!(content(&second.await.unwrap().2), "Me.");
    assert_eq!(kept(server, id).await[2..], ["user: And who are you?", "assistant: Me."]);
}

#[tokio::test]
async fn a_retry_after_a_hang_up_is_answered_once() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let body = says("And who are you?", &id);
    let first = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("Half of");
    first.abort();
    timeout(PATIENCE, asked.cancelled()).await.expect("the first one is cancelled");
    asked.done(Finish::Cancelled);
    a_second_attempt_is_answered(&mut server, &body, &id).await;
    server.stop().await;
}

#[tokio::test]
async fn a_retry_after_a_failure_is_stored_once() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let body = says("And who are you?", &id);
    for retries in 0..2 {
        let answer = posting(&server, &body, retries);
        server.reply_asked().await.fail(Failure::new(FailureCode::Busy, "too many wait"));
        let (status, after, _) = answer.await.unwrap();
        assert_eq!((status, after.as_deref()), (503, Some("1")), "the client waits before it tries again");
    }
    let answer = posting(&server, &body, 2);
    let mut asked = server.reply_asked().await;
    asked.say("Me.");
    asked.done(Finish::Stop);
    assert_eq!(content(&answer.await.unwrap().2), "Me.");
    assert_eq!(kept(&server, &id).await[2..], ["user: And who are you?", "assistant: Me."]);
    server.stop().await;
}

#[tokio::test]
async fn a_retry_begins_no_second_session() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let (_, _, again) = posting(&server, &says("Hello?", "new"), 1).await.unwrap();
    assert_eq!((&again["reprise"]["session_id"], content(&again)), (&json!(id), &json!("Hi.")));
    no_reply_is_asked(&mut server).await;
    server.stop().await;
}

/// The answer was lost with the process: the same comes again, and nothing is stored twice.
#[tokio::test]
async fn a_retry_after_a_restart_is_answered_once() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let body = says("And who are you?", &id);
    let answer = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("Me.");
    asked.done(Finish::Stop);
    assert_eq!(content(&answer.await.unwrap().2), "Me.");
    let mut server = Server::in_folder(server.stop().await, |_| {}).await;
    for (body, expected) in [(&body, "Me."), (&says("Hello?", "new"), "Hi.")] {
        let (status, _, answer) = posting(&server, body, 1).await.unwrap();
        assert_eq!((status, content(&answer)), (200, &json!(expected)), "{answer}");
        assert_eq!(answer["reprise"]["session_id"], json!(id));
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    }
    no_reply_is_asked(&mut server).await;
    assert_eq!(kept(&server, &id).await.len(), 4);
    server.stop().await;
}

/// A restart in the middle of the answer: what was said is stored once, and asked once more.
#[tokio::test]
async fn a_retry_of_a_request_that_a_restart_cut_off_is_stored_once() {
    let mut server = Server::start().await;
    let id = begin(&mut server).await;
    let body = says("And who are you?", &id);
    let first = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("Half of");
    let stopping = server.stop();
    let folder = tokio::join!(stopping, async {
        asked.cancelled().await;
        asked.done(Finish::Cancelled);
        let _ = first.await;
    })
    .0;
    let mut server = Server::in_folder(folder, |_| {}).await;
    a_second_attempt_is_answered(&mut server, &body, &id).await;
    server.stop().await;
}

/// One user's many requests push out no other's, neither from memory nor from the store.
#[tokio::test]
async fn one_users_requests_take_no_place_of_anothers() {
    let change = |settings: &mut settings::Settings| settings.limits.retry_turns = 2;
    let mut server = Server::with(change).await;
    let mut keys = Vec::new();
    for user in ["ann", "ben"] {
        server.store.put_user(user, user, 1).await.unwrap();
        let scopes = [store::KeyScope::Talk, store::KeyScope::Sessions];
        keys.push(format!("Bearer {}", server.store.create_key(user, "", &scopes, 1).await.unwrap().1));
    }
    let ask = async |server: &mut Server, key: &str, text: &str, reply: &str| {
        let mut script = server.take_script();
        let headers = [("authorization", key)];
        let body = says(text, "new").to_string();
        let (answer, ()) = tokio::join!(server.http("POST", "/v1/chat/completions", &headers, &body), async {
            loop {
                let mut asked = script.next().await;
                if asked.request.purpose == session::GenerationPurpose::Reply {
                    asked.say(reply);
                    return asked.done(Finish::Stop);
                }
            }
        });
        server.script = script;
        assert_eq!((answer.0, content(&answer.1)), (200, &json!(reply)), "{}", answer.1);
    };
    let [ann, ben] = [keys[0].clone(), keys[1].clone()];
    ask(&mut server, &ann, "Good morning", "Hello, Ann.").await;
    for number in 0..6 {
        ask(&mut server, &ben, &format!("Good morning {number}"), "Hello, Ben.").await;
    }
    for restarts in [false, true] {
        if restarts {
            server = Server::in_folder(server.stop().await, change).await;
        }
        let headers = [("authorization", ann.as_str()), ("x-stainless-retry-count", "1")];
        let body = says("Good morning", "new").to_string();
        let (status, answer) = server.http("POST", "/v1/chat/completions", &headers, &body).await;
        assert_eq!((status, content(&answer)), (200, &json!("Hello, Ann.")), "after a restart: {restarts}");
    }
    no_reply_is_asked(&mut server).await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    for (retry_s, retry_turns) in [(0, 64), (120, 1)] {
        let mut server = Server::with(|settings| {
            settings.limits.retry_s = retry_s;
            settings.limits.retry_turns = retry_turns;
        })
        .await;
        let id = begin(&mut server).await;
        for text in ["One", "Two"] {
            let answer = posting(&server, &says(text, &id), 0);
            let mut asked = server.reply_asked().await;
            asked.say("Yes.");
            asked.done(Finish::Stop);
            answer.await.unwrap();
        }
        let answer = posting(&server, &says("One", &id), 1);
        let mut asked = server.reply_asked().await;
        asked.say("Once more.");
        asked.done(Finish::Stop);
        assert_eq!(content(&answer.await.unwrap().2), "Once more.", "{retry_s} s, {retry_turns} turns");
        server.stop().await;
    }
}

/// Checks that a retry starts again where the client holds the conversation. The service cancels the first attempt when
/// the client hangs up.
#[tokio::test]
async fn without_a_session_the_first_attempt_is_cancelled() {
    let mut server = Server::start().await;
    let body = json!({ "messages": [{ "role": "user", "content": "A long story" }] });
    let first = posting(&server, &body, 0);
    let mut asked = server.reply_asked().await;
    asked.say("Once");
    first.abort();
    timeout(PATIENCE, asked.cancelled()).await.expect("an answer that no client waits for is cancelled");
    let second = posting(&server, &body, 1);
    let mut asked = server.reply_asked().await;
    asked.say("Once upon a time.");
    asked.done(Finish::Stop);
    assert_eq!(content(&timeout(PATIENCE, second).await.unwrap().unwrap().2), "Once upon a time.");
    server.stop().await;
}
