//! Rights of clients: every cell of the table in docs/security.md, asked of a real service.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use tests::house::files::root;
use tests::service::{Service, run_ok};

/// A route and its cells, in the order of the columns.
fn table() -> Vec<(String, Vec<String>)> {
    let page = std::fs::read_to_string(root().join("docs/security.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").map(str::to_owned).collect::<Vec<_>>());
    let mut rows = rows.map(|mut row| (row.remove(0), row));
    let (_, columns) = rows.next().expect("a head");
    assert_eq!(columns, COLUMNS);
    rows.collect()
}

const COLUMNS: [&str; 7] =
    ["no key", "own key", "other user's key", "client secret", "admin key", "this machine", "foreign page"];

struct House {
    service: Service,
    session: String,
    conversation: String,
    response: String,
    item: String,
    pin: String,
    memory: String,
}

impl House {
    async fn new(service: Service, key: &[(&str, &str)]) -> House {
        let mut client = service.try_connect("?extensions=reprise", key).await.unwrap();
        let session = client.session_id().await;
        client.ask_for("Hello", 4).await;
        let report = client.until("turn.report").await;
        let response = report["response_id"].as_str().unwrap().to_owned();
        let make = async |path: String, body: Value| {
            let (status, made) = service.http("POST", &path, key, &body.to_string()).await;
            assert_eq!(status, 200, "{path}: {made}");
            serde_json::from_str::<Value>(&made).unwrap()
        };
        let id = |made: &Value| made["id"].as_str().unwrap().to_owned();
        let conversation = id(&make("/v1/conversations".to_owned(), json!({})).await);
        let said = json!({"items": [{"role": "user", "content": "The light is on."}]});
        let item = id(&make(format!("/v1/conversations/{conversation}/items"), said).await["data"][0]);
        let pin = id(&make(format!("/v1/sessions/{session}/pins"), json!({"text": "Never play jazz."})).await);
        let memory = json!({"text": "The gate's code is with Ann.", "person": ""});
        let memory = id(&make("/v1/memories".to_owned(), memory).await);
        House { service, session, conversation, response, item, pin, memory }
    }

    async fn ask(&self, route: &str, headers: &[(&str, &str)]) -> String {
        let (method, path) = route.split_once(' ').unwrap();
        let path =
            path.replace("{session_id}", &self.session).replace("{model}", "none").replace("{pin_id}", &self.pin);
        let path = path.replace("{response_id}", &self.response).replace("{conversation_id}", &self.conversation);
        let path = path.replace("{item_id}", &self.item).replace("{memory_id}", &self.memory).replace("{name}", "none");
        let path = path.replace("{key_id}", "none");
        let path = if path.ends_with("/search") { path + "?q=hello" } else { path };
        let feedback = json!({"session_id": self.session, "response_id": self.response, "value": 1}).to_string();
        let body = if path.ends_with("/feedback") { &feedback } else { "{}" };
        let headers = [headers, &[("content-type", "application/json")]].concat();
        let (status, answer) = self.service.http(method, &path, &headers, body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        match (status, answer["error"]["code"].as_str()) {
            // Ollama's clients are told in text alone.
            (401, Some("missing_api_key") | None) => "401".to_owned(),
            (403, Some("insufficient_scope" | "unknown_origin") | None) => "403".to_owned(),
            (404, Some("session_not_found" | "response_not_found" | "memory_not_found")) => "404".to_owned(),
            // What is asked for may not be there, or the request may lack something: it was let in.
            (200..=299 | 400 | 404 | 409 | 422 | 426, code) if code != Some("not_found") => "yes".to_owned(),
            (status, _) => panic!("{route}: {status} {answer}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_may_do_what_the_table_says_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for (user, scopes) in [("ann", &[][..]), ("bob", &[]), ("carer", &["--scope", "admin"])] {
        let made = run_ok(folder.path(), &[&["keys", "create", "--user", user], scopes].concat()).await;
        keys.push(format!("Bearer {}", made.trim()));
    }
    let [ann, bob, admin] = &keys[..] else { unreachable!() };
    // Many requests come from one address.
    let many = [
        "--set",
        "limits.requests_per_minute_per_key=10000",
        "--set",
        "limits.requests_per_minute_per_address=10000",
        "--set",
        "limits.status_s=1",
    ];
    let service = Service::in_folder(folder, &[&["--set", "auth.required=always"], &many[..]].concat()).await;
    let locked = House::new(service, &[("authorization", ann)]).await;
    let authorization = [("authorization", ann.as_str())];
    let (_, made) = locked.service.http("POST", "/v1/realtime/client_secrets", &authorization, "{}").await;
    let secret: Value = serde_json::from_str(&made).unwrap();
    let secret = format!("Bearer {}", secret["value"].as_str().unwrap());
    let open = House::new(Service::start(&many).await, &[]).await;

    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "Go on."}], "metadata": {"session_id": locked.session}}),
        ),
        ("/v1/responses", json!({"input": "Go on.", "conversation": locked.session})),
        ("/v1/responses", json!({"input": "Go on.", "previous_response_id": locked.response})),
        ("/v1/realtime/client_secrets", json!({"session_id": locked.session})),
        ("/v1/feedback", json!({"session_id": locked.session, "response_id": locked.response, "value": 1})),
    ] {
        let headers = [("authorization", bob.as_str()), ("content-type", "application/json")];
        let (status, answer) = locked.service.http("POST", path, &headers, &body.to_string()).await;
        assert!((400..=404).contains(&status) && answer.contains("not_found"), "{path} {body}: {status} {answer}");
    }
    let other = [("authorization", bob.as_str())];
    let refused = locked.service.try_connect(&format!("?session={}", locked.session), &other).await;
    assert_eq!(refused.err().map(|refused| refused.code()), Some((404, "session_not_found".to_owned())));

    let mut rows = table();
    // What deletes comes last.
    let last = [
        "DELETE /v1/memories/{memory_id}",
        "DELETE /v1/conversations/{conversation_id}/items/{item_id}",
        "DELETE /v1/conversations/{conversation_id}",
        "DELETE /v1/responses/{response_id}",
        "DELETE /v1/sessions/{session_id}",
    ];
    rows.sort_by_key(|(route, _)| last.iter().position(|last| last == route).map_or(0, |at| at + 1));
    let mut wrong = Vec::new();
    for (route, cells) in &rows {
        // The owner comes last, and may delete what the others ask for.
        for column in [0, 2, 3, 4, 6, 1, 5] {
            let (house, headers): (&House, &[(&str, &str)]) = match column {
                0 => (&locked, &[]),
                1 => (&locked, &[("authorization", ann)]),
                2 => (&locked, &[("authorization", bob)]),
                3 => (&locked, &[("authorization", &secret)]),
                4 => (&locked, &[("authorization", admin)]),
                5 => (&open, &[]),
                _ => (&open, &[("origin", "https://elsewhere.example")]),
            };
            let answered = house.ask(route, headers).await;
            if answered != cells[column] {
                wrong.push(format!(
                    "{route}, {}: the page says {}, the service {answered}",
                    COLUMNS[column], cells[column]
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    let described: Value = open.service.get("/openapi.json").await;
    let mut routes = BTreeSet::from(["GET /".to_owned()]);
    for (path, methods) in described["paths"].as_object().unwrap() {
        routes.extend(methods.as_object().unwrap().keys().map(|method| format!("{} {path}", method.to_uppercase())));
    }
    assert_eq!(rows.into_iter().map(|(route, _)| route).collect::<BTreeSet<_>>(), routes);
    locked.service.stop().await;
    open.service.stop().await;
}

/// A name in a stranger's DNS that leads here is no name of this service.
#[tokio::test]
async fn a_request_for_another_host_is_refused_before_anything_else() {
    let service = Service::start(&[]).await;
    for path in ["/", "/healthz", "/v1/sessions"] {
        let (status, body) = service.http("GET", path, &[("host", "elsewhere.example")], "").await;
        assert!(status == 421 && body.contains("unknown_host"), "{path}: {status} {body}");
    }
    service.stop().await;
}

/// Every service of every test is held to it, so that it must be seen where one does not.
#[tokio::test]
#[should_panic(expected = "the log holds what it must not")]
async fn a_service_that_logs_what_users_say_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("REPRISE__LOGGING__USER_TEXT", Path::new("true"))];
    let service = Service::with_environment(folder, &variables, &[]).await;
    let mut client = service.connect("").await;
    client.ask_for("The blue xylophone plays.", 4).await;
    client.until("response.done").await;
    service.stop().await;
}
