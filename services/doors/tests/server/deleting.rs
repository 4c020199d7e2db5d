//! Items and responses that a client deletes are gone: from the search, from branches, and from what the model reads next.

use crate::remember::say;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::Finish;

async fn respond(server: &mut Server, body: Value, reply: &str) -> (Value, String) {
    let mut script = server.take_script();
    let body = body.to_string();
    let (answer, prompt) = tokio::join!(server.http("POST", "/v1/responses", &[], &body), async {
        loop {
            let mut asked = script.next().await;
            if asked.request.purpose == session::GenerationPurpose::Reply {
                let prompt = json!(asked.chat().messages).to_string();
                asked.say(reply);
                asked.done(Finish::Stop);
                return prompt;
            }
        }
    });
    server.script = script;
    assert_eq!(answer.0, 200, "{}", answer.1);
    (answer.1, prompt)
}

async fn hits(server: &Server, word: &str) -> usize {
    let (status, found) = server.http("GET", &format!("/v1/sessions/search?q={word}"), &[], "").await;
    assert_eq!(status, 200, "{found}");
    found["data"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_deleted_response_takes_its_turn_along() {
    let mut server = Server::start().await;
    let (first, _) = respond(&mut server, json!({ "input": "My xylophone is red." }), "A red xylophone!").await;
    let goes_on = json!({ "input": "And my harmonica is old.", "previous_response_id": first["id"] });
    let (second, _) = respond(&mut server, goes_on, "I see.").await;
    assert_eq!((hits(&server, "xylophone").await, hits(&server, "harmonica").await), (2, 1));
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(server.http("DELETE", &path, &[], "").await.0, 200);
    assert_eq!((hits(&server, "xylophone").await, hits(&server, "harmonica").await), (0, 1));
    let next = json!({ "input": "What do I play?", "previous_response_id": second["id"] });
    let (_, prompt) = respond(&mut server, next, "The harmonica.").await;
    assert!(!prompt.contains("xylophone") && prompt.contains("harmonica"), "{prompt}");
    server.stop().await;
}

/// The items of a conversation that a client made are the conversation's.
#[tokio::test]
async fn a_deleted_response_leaves_a_conversation_that_a_client_made() {
    let mut server = Server::start().await;
    let (_, begun) = server.http("POST", "/v1/conversations", &[], "{}").await;
    let body = json!({ "input": "My xylophone is red.", "conversation": begun["id"] });
    let (first, _) = respond(&mut server, body, "I see.").await;
    let path = format!("/v1/responses/{}", first["id"].as_str().unwrap());
    assert_eq!(server.http("DELETE", &path, &[], "").await.0, 200);
    assert_eq!(server.http("GET", &path, &[], "").await.0, 404);
    assert_eq!(hits(&server, "xylophone").await, 1);
    server.stop().await;
}

/// A branch is a copy, and its clients are told, too.
#[tokio::test]
async fn a_deleted_item_is_gone_from_branches_in_memory() {
    let mut server = Server::start().await;
    let (first, _) = respond(&mut server, json!({ "input": "My xylophone is red." }), "I see.").await;
    let next = |input: &str| json!({ "input": input, "previous_response_id": first["id"] });
    respond(&mut server, next("One."), "Yes.").await;
    let (branch, _) = respond(&mut server, next("Two."), "Yes.").await;
    let (session, branch) = (&first["conversation"]["id"], &branch["conversation"]["id"]);
    assert_ne!(session, branch);
    assert_eq!(hits(&server, "xylophone").await, 2);
    let mut client = server.connect(&format!("?session={}", branch.as_str().unwrap())).await;
    client.until("session.created").await;
    let items = format!("/v1/conversations/{}/items", session.as_str().unwrap());
    let (_, all) = server.http("GET", &items, &[], "").await;
    let said = all["data"].as_array().unwrap().iter().find(|item| item.to_string().contains("xylophone")).unwrap();
    let (status, answer) = server.http("DELETE", &format!("{items}/{}", said["id"].as_str().unwrap()), &[], "").await;
    assert_eq!(status, 200, "{answer}");
    let deleted = client.until("conversation.item.deleted").await;
    assert_eq!(deleted["item_id"], said["id"]);
    assert_eq!(hits(&server, "xylophone").await, 0);
    let prompt = say(&mut server, &mut client, "What do I play?").await;
    let texts: Vec<String> = prompt.messages.iter().map(|message| message.text()).collect();
    assert!(!texts.join("\n").contains("xylophone") && texts.join("\n").contains("Two."), "{texts:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_reply_whose_session_is_deleted_says_so() {
    let mut server = Server::start().await;
    for (path, body) in [
        ("/v1/responses", json!({ "input": "Tell me a story." })),
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": "Hi." }], "metadata": { "session_id": "new" } }),
        ),
    ] {
        let mut script = server.take_script();
        let body = body.to_string();
        let ((status, answer), _asked) = tokio::join!(server.http("POST", path, &[], &body), async {
            loop {
                let mut asked = script.next().await;
                if asked.request.purpose == session::GenerationPurpose::Reply {
                    asked.say("Once");
                    let line = server.store.list_sessions("local", None, 10).await.unwrap().remove(0);
                    let deleted = server.http("DELETE", &format!("/v1/sessions/{}", line.session.id), &[], "").await;
                    assert_eq!(deleted.0, 200, "{}", deleted.1);
                    return asked;
                }
            }
        });
        server.script = script;
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("session_deleted")), "{path}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert_eq!(message, "a client deleted the session while the reply was made");
    }
    server.stop().await;
}

/// A command beside the service deletes in the store alone.
#[tokio::test]
async fn a_session_that_a_command_deletes_ends_in_memory() {
    let server = Server::start().await;
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let session = server.store.open_session("local", &id).await.unwrap();
    server.store.delete_session(&session, 1).await.unwrap();
    tokio::time::timeout(std::time::Duration::from_secs(60), client.closed()).await.expect("its connection closes");
    server.stop().await;
}
