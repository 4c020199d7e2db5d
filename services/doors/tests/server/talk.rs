use crate::client::{Closed, user};
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::Finish;

#[tokio::test]
async fn a_turn_in_the_order_that_clients_expect() {
    let mut server = Server::start().await;
    let mut client = server.connect("?model=gpt-realtime").await;
    let created = client.event().await;
    assert_eq!(created["type"], "session.created");
    assert_eq!(created["session"]["model"], "test-model");

    client.ask("Is it late?").await;
    let mut asked = server.reply_asked().await;
    assert_eq!(asked.chat().messages.last().unwrap()["content"], "Is it late?");
    asked.prompt(12, 4);
    asked.say("Not");
    asked.say(" yet.");
    asked.done(Finish::Stop);
    let types = client.types_until("response.done").await;
    assert_eq!(
        types,
        [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "rate_limits.updated",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
    );
    server.stop().await;
}

#[tokio::test]
async fn the_conversation_goes_on_after_a_restart() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    client
        .say(json!({"type": "session.update", "session": {"type": "realtime", "instructions": "Be a pirate."}}))
        .await;
    client.until("session.updated").await;
    client.ask("Who are you?").await;
    let mut asked = server.reply_asked().await;
    asked.say("Arr.");
    asked.done(Finish::Stop);
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed");
    let folder = server.stop().await;
    assert_eq!(client.closed().await, Closed(Some(1001)));

    let mut server = Server::in_folder(folder, |_| {}).await;
    let mut client = server.connect(&format!("?session={id}")).await;
    let created = client.event().await;
    assert_eq!(created["session"]["id"], json!(id));
    assert_eq!(created["session"]["instructions"], "Be a pirate.");
    let first = client.event().await;
    let second = client.event().await;
    let said = |event: &Value| event["item"]["content"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!((said(&first), said(&second)), ("Who are you?".into(), "Arr.".into()));
    assert_eq!(second["previous_item_id"], first["item"]["id"]);

    let after = first["item"]["id"].as_str().unwrap();
    let mut other = server.connect(&format!("?session={id}&after={after}")).await;
    other.until("session.created").await;
    assert_eq!(other.event().await["item"]["id"], second["item"]["id"]);

    client.ask("Where is the treasure?").await;
    let mut asked = server.reply_asked().await;
    let chat = asked.chat();
    let roles: Vec<_> = chat.messages.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(roles, ["Be a pirate.", "Who are you?", "Arr.", "Where is the treasure?"]);
    asked.say("On the island.");
    asked.done(Finish::Stop);
    other.until("response.done").await;
    server.stop().await;
}

#[tokio::test]
async fn a_barge_in_at_every_phase() {
    let mut server = Server::start().await;
    let mut client = server.connect("").await;
    client.session_id().await;

    // Before the first word.
    client.ask("One").await;
    client.until("response.created").await;
    let asked = server.reply_asked().await;
    client.say(json!({"type": "response.cancel"})).await;
    let done = client.until("response.done").await;
    assert_eq!(
        (done["response"]["status"].as_str(), done["response"]["output"].as_array().map(Vec::len)),
        (Some("cancelled"), Some(0))
    );
    asked.cancelled().await;
    drop(asked);

    // In the middle.
    client.ask("Two").await;
    let mut asked = server.reply_asked().await;
    asked.say("This is a long");
    client.until("response.output_text.delta").await;
    client.say(json!({"type": "response.cancel"})).await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "cancelled");
    assert_eq!(done["response"]["output"][0]["content"][0]["text"], "This is a long");
    asked.cancelled().await;
    asked.say(" story");
    drop(asked);

    // After the end.
    client.say(json!({"type": "response.cancel", "event_id": "mine"})).await;
    let error = client.expect_error("response_cancel_not_active").await;
    assert_eq!(error["error"]["event_id"], "mine");

    // What was heard of what was said.
    let item_id = &done["response"]["output"][0]["id"];
    client
        .say(json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 450}))
        .await;
    let truncated = client.until("conversation.item.truncated").await;
    assert_eq!(truncated["item_id"], *item_id);
    client.ask("Three").await;
    let mut asked = server.reply_asked().await;
    let chat = asked.chat();
    let said: Vec<_> = chat.messages[1..].iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["One", "Two", "This is", "Three"]);
    asked.done(Finish::Stop);
    client.until("response.done").await;
    server.stop().await;
}

#[tokio::test]
async fn two_sockets_of_one_session_hear_the_same() {
    let mut server = Server::start().await;
    let mut one = server.connect("").await;
    let id = one.session_id().await;
    let mut two = server.connect(&format!("?session={id}")).await;
    two.session_id().await;
    one.say(user("From one")).await;
    two.say(user("From two")).await;
    let mut orders = Vec::new();
    for client in [&mut one, &mut two] {
        let mut order = Vec::new();
        while order.len() < 2 {
            let added = client.until("conversation.item.added").await;
            order.push((added["item"]["id"].clone(), added["previous_item_id"].clone()));
        }
        orders.push(order);
    }
    assert_eq!(orders[0], orders[1]);
    assert_eq!(orders[0][1].1, orders[0][0].0);
    one.say(json!({"type": "response.create"})).await;
    two.until("response.created").await;
    two.say(json!({"type": "response.create"})).await;
    two.expect_error("conversation_already_has_active_response").await;
    let mut asked = server.reply_asked().await;
    asked.say("Both.");
    asked.done(Finish::Stop);
    let [first, second] = [one.until("response.done").await, two.until("response.done").await];
    // Each connection has event ids of its own.
    assert_eq!(first["response"], second["response"]);
    server.stop().await;
}
