//! A reply that was stopped goes on, over a real socket and with a store on disk.

use crate::client::Client;
use crate::scripted::Asked;
use crate::support::Server;
use serde_json::{Value, json};
use session::Finish;
use tokio_tungstenite::tungstenite::Message;

const EXTENDED: &str = "?extensions=reprise";

async fn stop(server: &mut Server, client: &mut Client, words: &str) -> (Asked, Value) {
    client.ask("Tell me a story").await;
    let mut asked = server.reply_asked().await;
    asked.prompt(12, 4);
    asked.say(words);
    client.until("response.output_text.delta").await;
    client.say(json!({"type": "response.cancel"})).await;
    let done = client.until("response.done").await;
    asked.cancelled().await;
    (asked, done["response"]["output"][0]["id"].clone())
}

async fn words(client: &mut Client) -> (String, Value) {
    let mut words = String::new();
    loop {
        let event = client.event().await;
        match event["type"].as_str() {
            Some("response.output_text.delta") => words += event["delta"].as_str().unwrap(),
            Some("response.done") => return (words, event["response"].clone()),
            Some("error") => panic!("{event}"),
            _ => {}
        }
    }
}

async fn stored(server: &Server) -> Vec<String> {
    let line = server.store.list_sessions("local", None, 10).await.unwrap().remove(0);
    let session = server.store.open_session("local", &line.session.id).await.unwrap();
    let items = server.store.items(&session, None, 100).await.unwrap();
    items.iter().map(|item| item.said()).collect()
}

#[tokio::test]
async fn a_cough_is_no_interruption() {
    let mut server = Server::start().await;
    let mut client = server.connect(EXTENDED).await;
    let (mut asked, item_id) = stop(&mut server, &mut client, "Once upon a time. There").await;
    // The model was one word ahead.
    asked.say(" was");
    asked.done(Finish::Held);
    client
        .say(json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 450}))
        .await;
    client.until("conversation.item.truncated").await;
    assert_eq!(stored(&server).await[1], "Once");
    client.say(json!({"type": "response.resume"})).await;
    let mut going_on = server.reply_asked().await;
    going_on.say(" a fox.");
    going_on.done(Finish::Stop);
    let (said, response) = words(&mut client).await;
    assert_eq!(said, " upon a time. There was a fox.");
    assert_eq!(response["output"][0]["id"], item_id);
    assert_eq!(response["output"][0]["content"][0]["text"], "Once upon a time. There was a fox.");
    assert_eq!(response["usage"]["input_tokens"], 0);
    // What was heard, what is stored and what the next prompt has agree.
    assert_eq!(stored(&server).await, ["Tell me a story", "Once upon a time. There was a fox."]);
    client.ask("And then?").await;
    let asked = server.reply_asked().await;
    let said: Vec<_> = asked.request.prompt.messages[1..].iter().map(|message| message.text()).collect();
    assert_eq!(said, ["Tell me a story", "Once upon a time. There was a fox.", "And then?"]);
    drop(asked);
    server.stop().await;
}

#[tokio::test]
async fn a_stock_client_resumes_with_mhm() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let (mut asked, _) = stop(&mut server, &mut client, "Once upon").await;
    asked.done(Finish::Held);
    client.ask("Mhm.").await;
    let mut going_on = server.reply_asked().await;
    going_on.say(" a time.");
    going_on.done(Finish::Stop);
    let (said, response) = words(&mut client).await;
    assert_eq!((said.as_str(), response["status"].as_str()), (" a time.", Some("completed")));
    assert_eq!(stored(&server).await, ["Tell me a story", "Once upon a time.", "Mhm."]);
    server.stop().await;
}

#[tokio::test]
async fn after_a_restart_what_was_heard_is_there_and_nothing_goes_on() {
    let mut server = Server::start().await;
    let mut client = server.connect(EXTENDED).await;
    let id = client.session_id().await;
    let (mut asked, _) = stop(&mut server, &mut client, "Once upon").await;
    asked.done(Finish::Held);
    let folder = server.stop().await;
    let server = Server::in_folder(folder, |_| {}).await;
    let mut client = server.connect(&format!("{EXTENDED}&session={id}")).await;
    client.session_id().await;
    assert_eq!(stored(&server).await, ["Tell me a story", "Once upon"]);
    client.say(json!({"type": "response.resume", "event_id": "mine"})).await;
    let error = client.expect_error("response_resume_not_possible").await;
    assert_eq!(error["error"]["event_id"], "mine");
    server.stop().await;
}

#[tokio::test]
async fn a_resume_is_an_extension_and_may_be_turned_off() {
    let mut server = Server::with(|settings| settings.conversation.resume_s = 0).await;
    let mut client = server.connect("").await;
    client.say(json!({"type": "response.resume"})).await;
    client.expect_error("extension_not_enabled").await;
    let mut client = server.connect(EXTENDED).await;
    let (mut asked, _) = stop(&mut server, &mut client, "Once upon").await;
    asked.done(Finish::Held);
    client.say(json!({"type": "response.resume"})).await;
    client.expect_error("response_resume_not_possible").await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_back_in_the_middle_of_a_reply_misses_no_word_and_no_sentence() {
    let mut server = Server::start().await;
    let mut stays = server.connect(EXTENDED).await;
    let id = stays.session_id().await;
    let mut leaves = server.connect(&format!("{EXTENDED}&session={id}")).await;
    stays.ask("Tell me a story").await;
    let mut asked = server.reply_asked().await;
    asked.say("Once there was a fox. It slept. And");
    let known = leaves.until("response.output_text.delta").await["item_id"].as_str().unwrap().to_owned();
    let back = format!("{EXTENDED}&session={id}&after={known}");
    leaves.send(Message::Close(None)).await.unwrap();
    leaves.closed().await;
    // The service notices with these words, at the latest, that the connection is gone.
    asked.say(" then");
    stays.until("response.sentence.done").await;
    let mut during = server.connect(&back).await;
    assert_eq!(during.until("response.output_text.delta").await["delta"], "Once there was a fox. It slept. And then");
    for (index, text) in ["Once there was a fox. ", "It slept. "].into_iter().enumerate() {
        let sentence = during.event().await;
        assert_eq!((&sentence["index"], &sentence["text"]), (&json!(index), &json!(text)), "{sentence}");
    }
    asked.say(" it woke.");
    asked.done(Finish::Stop);
    assert_eq!(during.until("response.sentence.done").await["text"], "And then it woke.");
    stays.until("response.done").await;
    let mut behind = server.connect(&back).await;
    let item = behind.until("conversation.item.added").await["item"].clone();
    assert_eq!((&item["id"], &item["status"]), (&json!(known), &json!("completed")));
    assert_eq!(item["content"][0]["text"], "Once there was a fox. It slept. And then it woke.");
    server.stop().await;
}
