//! Whose words conversations hold: the rules, and what they make of recorded requests.

use serde_json::{Value, json};
use tests::service::run_ok;

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
