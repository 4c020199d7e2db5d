//! A session goes on while it searches the past for a question. A search of the test has the store's only place for searches,
//! so that the session's search goes on exactly as long as the test wants.

use crate::client::{Client, user};
use crate::remember::{home, noted, says};
use crate::support::Server;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use serde_json::json;
use session::Finish;
use settings::Settings;
use store::{HistorySearch, SearchPlace, Store};

/// Lets only notes tell of earlier conversations, and gives each search an hour.
fn patient(settings: &mut Settings) {
    home(settings);
    settings.conversation.recall_wait_ms = 3_600_000;
    settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 1);
}

/// Begins a search and leaves it in the middle: others wait until it is dropped.
fn block_searches(store: &Store) -> LocalBoxFuture<'_, ()> {
    let search = HistorySearch {
        user: "local",
        place: SearchPlace::User,
        query: "anything",
        most_words: 8,
        any_word: true,
        statements: false,
        limit: 1,
        recent_ms: None,
        now_ms: 0,
        marks: ["", ""],
        excerpt_words: 1,
    };
    let mut blocked = async move { drop(store.search(&search).await) }.boxed_local();
    assert!((&mut blocked).now_or_never().is_none(), "the search waits for the store");
    blocked
}

async fn tell_beside(client: &mut Client, server: &mut Server) -> (String, crate::scripted::Asked) {
    let request = json!({ "conversation": "none", "input": [user("Tell me a story.")["item"]] });
    client.say(json!({ "type": "response.create", "response": request })).await;
    let created = client.until("response.created").await;
    let mut asked = server.reply_asked().await;
    asked.say("Once upon");
    client.until("response.output_text.delta").await;
    (created["response"]["id"].as_str().unwrap().to_owned(), asked)
}

#[tokio::test]
async fn words_and_barge_ins_are_handled_while_a_search_goes_on() {
    let mut server = Server::with(patient).await;
    says(&mut server, &["My sister lives in Lisbon.", "Good night."]).await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    let mut other = server.connect(&format!("?session={id}")).await;
    other.session_id().await;
    let (stopped, _stopped_asked) = tell_beside(&mut client, &mut server).await;
    let (_, mut telling) = tell_beside(&mut client, &mut server).await;

    let store = server.store.clone();
    let blocked = block_searches(&store);
    client.ask("Where does my sister live?").await;
    // It comes behind the question on the same connection: the question is held by now.
    client.say(json!({ "type": "response.cancel", "response_id": stopped })).await;
    let done = client.until("response.done").await;
    assert_eq!((&done["response"]["id"], &done["response"]["status"]), (&json!(stopped), &json!("cancelled")));
    telling.say(" a time");
    assert_eq!(client.until("response.output_text.delta").await["delta"], " a time");
    other.say(user("I am here, too.")).await;
    other.until("conversation.item.done").await;
    assert!(server.script.try_next().is_none_or(|asked| noted(&asked.request.prompt).is_empty()));

    // The held reply begins, so that it can end: both at once.
    other.say(json!({ "type": "response.cancel" })).await;
    let created = client.until("response.created").await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["id"], created["response"]["id"]);
    assert_eq!(done["response"]["status"], "cancelled");
    drop(blocked);
    drop(telling);
    server.stop().await;
}

#[tokio::test]
async fn a_held_reply_goes_on_with_its_note_before_what_came_behind_it() {
    let mut server = Server::with(patient).await;
    says(&mut server, &["My sister lives in Lisbon.", "Good night."]).await;
    let mut client = server.connect("").await;
    client.session_id().await;
    let (beside, _asked) = tell_beside(&mut client, &mut server).await;
    let store = server.store.clone();
    let blocked = block_searches(&store);
    client.ask("Where does my sister live?").await;
    client.say(user("I mean the older one.")).await;
    client.say(json!({ "type": "response.cancel", "response_id": beside })).await;
    client.until("response.done").await;
    // Neither the reply nor the message behind it has begun.
    let told = |client: &Client, words: &str| client.heard.iter().any(|event| event.to_string().contains(words));
    assert!(told(&client, "Where does my sister") && !told(&client, "the older one"));

    drop(blocked);
    client.until("response.created").await;
    let mut asked = server.reply_asked().await;
    assert!(noted(&asked.request.prompt).contains("My sister lives in Lisbon."), "{:?}", asked.request.prompt);
    assert_eq!(asked.request.prompt.messages.last().unwrap().text(), "Where does my sister live?");
    client.until("conversation.item.done").await;
    assert!(told(&client, "the older one"));
    asked.say("In Lisbon.");
    asked.done(Finish::Stop);
    assert_eq!(client.until("response.done").await["response"]["status"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_search_for_its_question() {
    let mut server = Server::with(patient).await;
    says(&mut server, &["My sister lives in Lisbon.", "Good night."]).await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    let mut other = server.connect(&format!("?session={id}")).await;
    other.session_id().await;
    let (beside, _asked) = tell_beside(&mut client, &mut server).await;
    let store = server.store.clone();
    let blocked = block_searches(&store);
    client.ask("Where does my sister live?").await;
    client.say(json!({ "type": "response.cancel", "response_id": beside })).await;
    client.until("response.done").await;
    drop(client);
    // The one beside the conversation, then the one that was held.
    other.until("response.done").await;
    other.until("response.created").await;
    let asked = server.reply_asked().await;
    assert_eq!(noted(&asked.request.prompt), "");
    drop(blocked);
    drop(asked);
    server.stop().await;
}
