//! The Responses API of the real binary: ids that outlive connections, crashes and restarts, and are of one user only.

use serde_json::{Value, json};
use tests::client::{Client, Closed};
use tests::service::{Service, check_store, run_ok};

type Headers<'a> = [(&'a str, &'a str)];

async fn ask(service: &Service, headers: &Headers<'_>, mut body: Value) -> (u16, Value) {
    body["max_output_tokens"] = json!(8);
    let (status, answer) = service.http("POST", "/v1/responses", headers, &body.to_string()).await;
    (status, serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

async fn answered(service: &Service, headers: &Headers<'_>, body: Value) -> Value {
    let (status, response) = ask(service, headers, body).await;
    assert_eq!(status, 200, "{response:#}");
    response
}

fn id(response: &Value) -> &str {
    response["id"].as_str().unwrap()
}

fn input_tokens(response: &Value) -> u64 {
    response["usage"]["input_tokens"].as_u64().unwrap()
}

#[tokio::test]
async fn ids_outlive_a_power_cut() {
    let service = Service::start(&[]).await;
    let first = answered(&service, &[], json!({ "input": "My cat is Tom.", "metadata": { "room": "hall" } })).await;
    let second = answered(&service, &[], json!({ "input": "And a dog.", "previous_response_id": id(&first) })).await;
    assert!(input_tokens(&second) > input_tokens(&first), "the past is in the prompt");
    let service = Service::in_folder(service.kill().await, &[]).await;

    for response in [&first, &second] {
        let kept = service.get(&format!("/v1/responses/{}", id(response))).await;
        for field in ["output", "status", "usage", "metadata", "conversation"] {
            assert_eq!(kept[field], response[field], "{field}");
        }
    }
    // From the last one the conversation goes on, from an earlier one it branches off.
    let third = answered(&service, &[], json!({ "input": "A fish.", "previous_response_id": id(&second) })).await;
    assert_eq!(third["conversation"], first["conversation"]);
    let branch = answered(&service, &[], json!({ "input": "A fish.", "previous_response_id": id(&first) })).await;
    assert_ne!(branch["conversation"], first["conversation"]);
    assert!(input_tokens(&branch) < input_tokens(&third), "what was said since is not seen");
    let items =
        |conversation: &Value| format!("/v1/conversations/{}/items?order=asc", conversation["id"].as_str().unwrap());
    let said = |list: Value| -> Vec<String> {
        let of_user = |item: &&Value| item["role"] == "user";
        let text = |item: &Value| item["content"][0]["text"].as_str().unwrap().to_owned();
        list["data"].as_array().unwrap().iter().filter(of_user).map(text).collect()
    };
    let main = said(service.get(&items(&first["conversation"])).await);
    assert_eq!(main, ["My cat is Tom.", "And a dog.", "A fish."]);
    let other = said(service.get(&items(&branch["conversation"])).await);
    assert_eq!(other, ["My cat is Tom.", "A fish."]);
    check_store(service.stop().await.path()).await;
}

#[tokio::test]
async fn a_response_that_a_power_cut_ended_has_all_that_was_heard() {
    let service = Service::start(&[]).await;
    // A random model may have little to say.
    for attempt in 0..ATTEMPTS {
        let mut client = Client::at(&service.address, "/v1/responses", &[]).await.unwrap();
        let input = format!("Tell me {attempt} long stories.");
        client.say(json!({ "type": "response.create", "input": input, "max_output_tokens": 300 })).await;
        let id = client.until("response.created").await["response"]["id"].as_str().unwrap().to_owned();
        let mut heard = String::new();
        while heard.len() < 20 {
            let event = client.event().await;
            heard.push_str(event["delta"].as_str().unwrap_or_default());
            if event["type"] == "response.completed" || event["type"] == "response.incomplete" {
                break;
            }
        }
        if heard.len() < 20 {
            continue;
        }
        let service = Service::in_folder(service.kill().await, &[]).await;
        let kept = service.get(&format!("/v1/responses/{id}")).await;
        assert_eq!(kept["status"], "incomplete", "{kept:#}");
        let text = kept["output"][0]["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(&heard), "{heard:?} was heard and {text:?} is kept");
        let next = answered(&service, &[], json!({ "input": "Go on.", "previous_response_id": id })).await;
        assert_eq!(next["conversation"], kept["conversation"]);
        check_store(service.stop().await.path()).await;
        return;
    }
    panic!("the model never has much to say");
}

const ATTEMPTS: usize = 20;

#[tokio::test]
async fn responses_are_their_users_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for user in ["ann", "bob"] {
        let made = run_ok(folder.path(), &["keys", "create", "--user", user]).await;
        keys.push(format!("Bearer {}", made.trim()));
    }
    let service = Service::in_folder(folder, &["--set", "auth.required=always"]).await;
    let [ann, bob] = [&keys[0], &keys[1]].map(|key| [("authorization", key.as_str())]);
    let (_, made) = service.http("POST", "/v1/realtime/client_secrets", &ann, "{}").await;
    let made: Value = serde_json::from_str(&made).unwrap();
    let secret = format!("Bearer {}", made["value"].as_str().unwrap());
    let page = [("authorization", secret.as_str())];

    let own = answered(&service, &ann, json!({ "input": "The safe's number is 4711." })).await;
    let path = format!("/v1/responses/{}", id(&own));
    let conversation = own["conversation"]["id"].as_str().unwrap();
    // Another user, and a page of this one that did not begin it: in the words for what is not there.
    for headers in [&bob, &page] {
        for (method, path) in [("GET", path.clone()), ("POST", format!("{path}/cancel"))] {
            let (status, answer) = service.http(method, &path, headers, "").await;
            assert!(status == 404 && answer.contains("response_not_found"), "{method} {path}: {status} {answer}");
        }
        let next = json!({ "input": "What is it?", "previous_response_id": id(&own) });
        let (status, answer) = ask(&service, headers, next.clone()).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("previous_response_not_found")));
        let (status, answer) =
            ask(&service, headers, json!({ "input": "What is it?", "conversation": conversation })).await;
        assert!([403, 404].contains(&status), "{status} {answer}");
        let mut client = Client::at(&service.address, "/v1/responses", headers).await.unwrap();
        let mut frame = next;
        frame["type"] = json!("response.create");
        client.say(frame).await;
        client.expect_error("previous_response_not_found").await;
    }
    let (status, _) = service.http("DELETE", &path, &bob, "").await;
    assert_eq!(status, 404);
    assert_eq!(service.http("GET", &path, &ann, "").await.0, 200);

    // What a page began it goes on with, also where it branches off.
    let begun = answered(&service, &page, json!({ "input": "One." })).await;
    for _ in 0..2 {
        let next = json!({ "input": "Two.", "previous_response_id": id(&begun) });
        let next = answered(&service, &page, next).await;
        assert_eq!(service.http("GET", &format!("/v1/responses/{}", id(&next)), &page, "").await.0, 200);
    }
    // A key that is revoked closes its connections.
    let mut client = Client::at(&service.address, "/v1/responses", &bob).await.unwrap();
    run_ok(service.folder(), &["keys", "revoke", keys[1].trim_start_matches("Bearer ")]).await;
    assert_eq!(client.closed().await, Closed(Some(1008)));
    service.stop().await;
}
