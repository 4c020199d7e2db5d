//! Bodies and requests of the doors over HTTP.

use crate::bodies::{WrongField, huge_history, malformed, wrong_fields, wrong_numbers};
use crate::house::House;
use crate::http_doors::{ErrorForm, HttpDoor, check_words, doors};
use serde_json::{Value, json};
use tests::http::{raw, request};

/// It answers as if nothing had been.
async fn answers(house: &House, door: &HttpDoor, after: &str) {
    let answer = door.post(&house.service.address, door.good.to_string().as_bytes()).await;
    assert_eq!(answer.status, 200, "{} after {after}: {}", door.path, answer.body);
}

#[tokio::test]
async fn a_field_of_a_wrong_kind_is_refused_by_its_name() {
    let house = House::new().await;
    let (mut refused, mut wrong) = (0, Vec::new());
    for door in doors() {
        let answer = door.post(&house.service.address, door.full.to_string().as_bytes()).await;
        assert_eq!(answer.status, 200, "{}: {}", door.path, answer.body);
        for WrongField { field, kind, body } in wrong_fields(&door.full) {
            let what = format!("{} {field} {kind}", door.path);
            let answer = door.post(&house.service.address, body.to_string().as_bytes()).await;
            if door.takes(&field, kind) {
                if answer.status != 200 {
                    wrong.push(format!("{what} is refused: {}", answer.body));
                }
                continue;
            }
            refused += 1;
            let name = field.split('.').rfind(|part| *part != "*").expect("a name");
            match door.form.message(&answer) {
                // Its name stands in the words, or beside them.
                Ok(_) if answer.body.contains(name) => {}
                Ok(message) => wrong.push(format!("{what} is not named: {message}")),
                Err(why) => wrong.push(format!("{what}: {why}")),
            }
        }
        answers(&house, &door, "wrong kinds").await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(refused > 550, "only {refused} fields");
    house.ends_as_it_began().await;
}

/// Numbers beyond every range and texts without end: done within their range, or refused in words.
#[tokio::test]
async fn what_is_beyond_every_range_is_refused_in_words() {
    let house = House::new().await;
    let long = json!("so long ".repeat(20_000));
    let (mut asked, mut wrong) = (0, Vec::new());
    for door in doors() {
        let mut values: Vec<(&str, Value)> = wrong_numbers().into_iter().map(|number| ("number", number)).collect();
        values.push(("string", long.clone()));
        for (kind, value) in values {
            for body in crate::bodies::with_every(&door.full, kind, &value) {
                let answer = door.post(&house.service.address, body.to_string().as_bytes()).await;
                asked += 1;
                if answer.status != 200
                    && let Err(why) = door.form.message(&answer)
                {
                    wrong.push(format!("{} {kind}: {why}", door.path));
                }
            }
        }
        answers(&house, &door, "what is beyond every range").await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(asked > 200, "only {asked} bodies");
    house.ends_as_it_began().await;
}

#[tokio::test]
async fn what_is_no_json_is_refused_and_the_next_request_answered() {
    let house = House::new().await;
    for door in doors() {
        for (what, bytes) in malformed() {
            let answer = door.post(&house.service.address, &bytes).await;
            let told = door.form.message(&answer);
            // The service counts the values before it reads them, and refuses these bodies for their number.
            let has_many_values = ["lists in lists", "objects in objects", "lists that never end"].contains(&what);
            let expected = if has_many_values { 413 } else { 400 };
            assert!(told.is_ok() && answer.status == expected, "{} {what}: {told:?}", door.path);
            answers(&house, &door, what).await;
        }
        let answer = door.post(&house.service.address, b"").await;
        assert!(door.form.message(&answer).is_ok(), "{}: {}", door.path, answer.body);
        // What is too large ends its connection, because the rest of it is on its way.
        let huge = json!({ "model": "x".repeat(2 << 20) }).to_string();
        let answer = door.post(&house.service.address, huge.as_bytes()).await;
        assert_eq!(answer.status, 413, "{}: {}", door.path, answer.body);
        assert!(answer.head.contains("connection: close") && door.form.message(&answer).is_ok(), "{answer:?}");
        answers(&house, &door, "a body that is too large").await;
    }
    house.ends_as_it_began().await;
}

#[tokio::test]
async fn a_history_that_no_window_holds_is_refused_in_words_that_clients_know() {
    let house = House::new().await;
    for (path, field) in [("/v1/chat/completions", "messages"), ("/api/chat", "messages"), ("/v1/responses", "input")] {
        let all = doors();
        let door = all.iter().find(|door| door.path == path).expect("it is a door");
        for stream in [false, true] {
            let mut body = door.good.clone();
            body[field] = huge_history();
            body["stream"] = json!(stream);
            let answer = door.post(&house.service.address, body.to_string().as_bytes()).await;
            let message = door.form.message(&answer).unwrap_or_else(|why| panic!("{path} {why}"));
            assert!(message.contains("maximum context length"), "{path}: {message}");
            answers(&house, door, "a history that no window holds").await;
        }
    }
    // More tools than there may be.
    for door in doors().iter().filter(|door| door.full["tools"].is_array()) {
        let mut body = door.full.clone();
        body["tools"] = json!(vec![body["tools"][0].clone(); 129]);
        let answer = door.post(&house.service.address, body.to_string().as_bytes()).await;
        let message = door.form.message(&answer).unwrap_or_else(|why| panic!("{} {why}", door.path));
        assert!(message.contains("limits.tools"), "{message}");
    }
    house.ends_as_it_began().await;
}

/// Requests that lie about their length, or are none.
#[tokio::test]
async fn requests_that_lie_are_refused() {
    let house = House::new().await;
    let address = &house.service.address;
    for door in doors() {
        let head = format!("POST {} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n", door.path);
        let good = door.good.to_string();
        for (what, bytes) in [
            ("a chunk without a length", format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{good}\r\n0\r\n\r\n")),
            ("a chunk of a negative length", format!("{head}transfer-encoding: chunked\r\n\r\n-5\r\n{good}\r\n")),
            ("a negative length", format!("{head}content-length: -1\r\n\r\n{good}")),
            ("a length that is no number", format!("{head}content-length: many\r\n\r\n{good}")),
            ("two lengths", format!("{head}content-length: 3\r\ncontent-length: 400\r\n\r\n{good}")),
            ("a length beyond every limit", format!("{head}content-length: 18446744073709551615\r\n\r\n{good}")),
        ] {
            let answer = raw(address, bytes.as_bytes()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!([400, 413, 431].contains(&answer.status), "{} {what}: {answer:?}", door.path);
            // Where the request itself cannot be read, no door was asked.
            if !answer.body.is_empty() {
                let told = door.form.message(&answer);
                assert!(told.is_ok(), "{} {what}: {told:?}", door.path);
            }
            answers(&house, &door, what).await;
        }
        // A length that is larger than what comes, from a client that then leaves.
        let lie = format!("{head}content-length: {}\r\n\r\n{good}", good.len() + 9);
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, lie.as_bytes()).await.unwrap();
        drop(stream);
        answers(&house, &door, "a body that is shorter than it says").await;
    }
    house.ends_as_it_began().await;
}

/// Work of people with their sessions over HTTP.
#[tokio::test]
async fn hostile_paths_queries_and_bodies_of_sessions() {
    let house = House::new().await;
    let address = &house.service.address;
    let sessions = house.service.get("/v1/sessions").await;
    let id = sessions["data"][0]["id"].as_str().unwrap();
    let long = "x".repeat(9000);
    let ids = ["..%2f..%2fetc", "%00", "%ff", "sess_none", "'%20OR%201=1--", "%F0%9F%92%A9", &long];
    let mut asked: Vec<(&str, String, &str)> = Vec::new();
    for bad in ids {
        for rest in ["", "/items", "/export", "/summaries", "/pins"] {
            asked.push(("GET", format!("/v1/sessions/{bad}{rest}"), ""));
        }
        asked.push(("DELETE", format!("/v1/sessions/{bad}"), ""));
        asked.push(("DELETE", format!("/v1/sessions/{id}/pins/{bad}"), ""));
        asked.push(("GET", format!("/v1/responses/{bad}"), ""));
        asked.push(("GET", format!("/v1/conversations/{bad}/items"), ""));
        asked.push(("GET", format!("/v1/sessions/{id}/items?after={bad}"), ""));
    }
    for query in
        ["limit=many", "limit=-1", "limit=99999999999999999999", "before=then", "before=%ff", "limit=1&limit=x"]
    {
        asked.push(("GET", format!("/v1/sessions?{query}"), ""));
    }
    for query in [
        "",
        "q=",
        "q=*",
        "q=%22",
        "q=%28%29",
        "q=a%20AND%20NEAR%28",
        "q=%ff&any=perhaps",
        &format!("q={}", "a%20".repeat(40)),
    ] {
        asked.push(("GET", format!("/v1/sessions/search?{query}"), ""));
    }
    let bodies = [
        "",
        "{",
        "3",
        "[]",
        "{}",
        r#"{"text":5}"#,
        r#"{"text":""}"#,
        r#"{"preset":["x"]}"#,
        r#"{"version":-1}"#,
        r#"{"version":1e99}"#,
    ];
    for path in ["placement", "summaries", "summaries/undo", "summaries/redo", "pins"] {
        asked.extend(bodies.map(|body| ("POST", format!("/v1/sessions/{id}/{path}"), body)));
    }
    for body in [
        "",
        "null",
        "{\"session_id\":3}",
        r#"{"session_id":"x","response_id":"y","value":7}"#,
        r#"{"session_id":"x","response_id":"y","value":1,"z":1}"#,
    ] {
        asked.push(("POST", "/v1/feedback".to_owned(), body));
    }
    let mut refused = 0;
    for (method, path, body) in asked {
        let what = format!("{method} {path:.90} {body}");
        let answer = raw(address, &request(address, method, &path, &[], body.as_bytes())).await.unwrap();
        if answer.status < 400 {
            let told: Value = serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(told.is_object(), "{what}: {told}");
            continue;
        }
        refused += 1;
        // A path longer than a head may be is refused before any door.
        if answer.status != 431 {
            let told = ErrorForm::OpenAi.message(&answer);
            assert!(told.as_deref().is_ok_and(|told| check_words(told).is_ok()), "{what}: {told:?}");
        }
        assert_eq!(house.service.get("/v1/sessions").await["data"].as_array().map(Vec::len), Some(3), "after {what}");
    }
    assert!(refused > 90, "only {refused} refusals");
    house.ends_as_it_began().await;
}
