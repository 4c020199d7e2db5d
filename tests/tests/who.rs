//! Persons of conversations, and conversations that outlive their client's memory and a kill of the service.

use serde_json::{Value, json};
use tests::service::{Service, run_ok};

const REQUESTS: &str = include_str!("../data/home/requests.jsonl");

const AREA: &str = "You are in area Kitchen (floor Ground) and all generic commands";

async fn who(folder: &std::path::Path, arguments: &[&str]) -> Value {
    let said = run_ok(folder, &[&["who", "--json"], arguments].concat()).await;
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[tokio::test]
async fn each_recorded_request_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request.json");
    let mut of_rooms = 0;
    for line in REQUESTS.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let request = json!({ "path": record["path"], "headers": record["headers"], "body": record["body"] });
        std::fs::write(&file, request.to_string()).unwrap();
        let told = who(folder.path(), &["--explain", file.to_str().unwrap()]).await;
        let has_area = record["body"]["messages"][0]["content"].as_str().is_some_and(|text| text.contains(AREA));
        let wanted = if has_area { ("kitchen", true, json!(3)) } else { ("", false, Value::Null) };
        assert_eq!(
            (told["room"].as_str().unwrap(), told["is_remembered"] == true, told["rule"].clone()),
            wanted,
            "{told}"
        );
        assert_eq!(told["person"], "", "Home Assistant's ids name no person: {told}");
        of_rooms += usize::from(has_area);
    }
    assert!(of_rooms > 5, "only {of_rooms} requests of a room");
    // As people read it.
    let text = run_ok(folder.path(), &["who", "--explain", file.to_str().unwrap()]).await;
    assert!(text.contains("rule 1  does not hold") && text.contains("person      the home's guest"), "{text}");
    let text = run_ok(folder.path(), &["who"]).await;
    assert!(text.contains("rule 1  { room = \"*\", satellite = \"assist_satellite.{name}\" }"), "{text}");
}

#[tokio::test]
async fn a_key_a_path_and_a_satellite_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let made = run_ok(folder.path(), &["keys", "create", "--user", "ann", "--name", "phone"]).await;
    let rules = "remember.who = [{ person = \"Anna\", key = \"phone\" }, { person = \"ben\", path = \"ben\" }, \
                 { room = \"*\", satellite = \"*\" }]";
    std::fs::write(folder.path().join("reprise.toml"), rules).unwrap();
    let file = folder.path().join("request.json");
    let said = json!({ "messages": [{ "role": "user", "content": "Hi." }] });
    let id = made.split('_').nth(1).unwrap();
    for (request, person, room) in [
        (
            json!({ "path": "/v1/chat/completions", "headers": { "Authorization": format!("Bearer rk_{id}_x") }, "body": said }),
            "anna",
            "",
        ),
        (json!({ "path": "/ben/v1/chat/completions", "body": said }), "ben", ""),
        (json!({ "path": "/v1/chat/completions", "body": said }), "", ""),
        (json!({ "path": "wyoming", "body": { "text": "Hi.", "context": { "satellite_id": "Hall" } } }), "", "hall"),
        (
            json!({ "path": "/ben/v1/responses", "headers": { "X-Reprise-Private": "true" }, "body": { "input": "Hi." } }),
            "ben",
            "",
        ),
    ] {
        std::fs::write(&file, request.to_string()).unwrap();
        let told = who(folder.path(), &["--explain", file.to_str().unwrap()]).await;
        assert_eq!((told["person"].as_str(), told["room"].as_str()), (Some(person), Some(room)), "{request}: {told}");
    }
}

fn post(log: &[Value]) -> String {
    json!({ "stream": false, "max_tokens": 16, "messages": log }).to_string()
}

/// A client in a kitchen talks on while the service is killed between its turns: one conversation, each word once.
#[tokio::test]
async fn a_conversation_is_recognised_after_a_kill() {
    let mut service = Service::with_the_built_in_model().await;
    let mut log = vec![json!({ "role": "system", "content": AREA })];
    let mut said: Vec<String> = Vec::new();
    for turn in 0..4 {
        log.push(json!({ "role": "user", "content": format!("Question {turn}.") }));
        let (status, answer) = service.http("POST", "/v1/chat/completions", &[], &post(&log)).await;
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let message = answer["choices"][0]["message"].clone();
        said.push(format!("Question {turn}."));
        said.extend(Some(message["content"].as_str().unwrap().to_owned()).filter(|text| !text.is_empty()));
        log.push(message);
        if turn < 3 {
            // Killed at once, or when the turn is kept.
            while turn == 1 && said.len() > 3 && service.get("/v1/persons").await["data"] == json!([]) {
                tokio::time::sleep(std::time::Duration::from_millis(150)).await;
            }
            let folder = service.kill().await;
            service = Service::built_in_model_in_folder(folder, &[]).await;
        }
    }
    let folder = service.stop().await;
    let persons = who(folder.path(), &[]).await["persons"].clone();
    assert_eq!(
        (&persons[0]["room"], &persons[0]["sessions"], persons.as_array().unwrap().len()),
        (&json!("kitchen"), &json!(1), 1)
    );
    let exported = run_ok(folder.path(), &["sessions", "export", "--all"]).await;
    let items: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<String> = items
        .iter()
        .filter_map(|line| line["body"]["parts"].as_array().or(line["item"]["body"]["parts"].as_array()))
        .map(|parts| parts.iter().map(|part| part["text"].as_str().unwrap_or_default()).collect())
        .collect();
    assert_eq!(texts, said, "{exported}");
    let forgotten = who(folder.path(), &["forget", "Kitchen", "--yes"]).await;
    assert_eq!(forgotten["sessions"], 1);
    assert_eq!(who(folder.path(), &[]).await["persons"], json!([]));
}
