//! Persons and rooms of sessions, by the rules of the configuration, at every door that begins sessions.

use crate::client::PATIENCE;
use crate::support::Server;
use serde_json::{Value, json};
use session::Finish;
use settings::{Settings, Sources};
use std::collections::BTreeMap;

fn rules(text: &str) -> impl FnOnce(&mut Settings) {
    let environment = BTreeMap::from([("REPRISE__REMEMBER__WHO".to_owned(), text.to_owned())]);
    let loaded = Settings::load(&Sources { environment, ..Sources::default() }).unwrap();
    move |settings| settings.remember.who = loaded.settings.remember.who
}

const RULES: &str = r#"[
    { person = "", path = "guests", private = true },
    { person = "anna", path = "anna" },
    { person = "*", header = "X-Name" },
    { person = "*", user = "*" },
    { room = "*", instructions = "You are in area {name} (floor" },
]"#;

async fn asked(server: &mut Server, path: &str, headers: &[(&'static str, &str)], body: Value) -> Value {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let mut request = client.post(format!("http://{}{path}", server.address)).body(body.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    let mut asked = server.reply_asked().await;
    asked.say("Indeed.");
    asked.done(Finish::Stop);
    serde_json::from_str(&answer.await.unwrap()).unwrap()
}

async fn of_session(server: &Server, id: &Value) -> (String, bool) {
    let session = server.store.open_session("local", id.as_str().expect("an id")).await.unwrap();
    let record = server.store.session(&session).await.unwrap();
    (if record.room.is_empty() { record.person } else { record.room }, record.is_remembered)
}

fn is(name: &str, is_private: bool) -> (String, bool) {
    (name.to_owned(), !is_private && !name.is_empty())
}

/// The words are the household's: the client asks for a session, and names no one.
fn household() -> (String, bool) {
    (String::new(), true)
}

#[tokio::test]
async fn each_door_knows_the_speaker() {
    let mut server = Server::with(rules(RULES)).await;
    let said = json!([{ "role": "user", "content": "Is it late?" }]);
    let new = json!({ "messages": said, "metadata": { "session_id": "new" } });
    for (path, headers, more, wanted) in [
        ("/anna/v1/chat/completions", &[][..], json!({}), is("anna", false)),
        ("/guests/v1/chat/completions", &[], json!({}), is("", true)),
        ("/v1/chat/completions", &[("x-name", "Ben")], json!({}), is("ben", false)),
        ("/v1/chat/completions", &[], json!({ "user": "Cleo" }), is("cleo", false)),
        ("/v1/chat/completions", &[], json!({ "user": "01KB2M5Q8V4T9W3X7Y1Z6A0C2E" }), household()),
        ("/v1/chat/completions", &[], json!({}), household()),
        ("/v1/chat/completions", &[], json!({ "safety_identifier": "Dora" }), is("", false)),
        ("/v1/chat/completions", &[("x-reprise-speaker", "Dora")], json!({}), is("", false)),
        ("/v1/chat/completions", &[("x-reprise-private", "true")], json!({}), is("", true)),
        ("/anna/v1/chat/completions", &[("x-reprise-private", "true")], json!({}), is("anna", true)),
        (
            "/anna/v1/chat/completions",
            &[],
            json!({ "metadata": { "session_id": "new", "private": "true" } }),
            is("anna", true),
        ),
        (
            "/v1/chat/completions",
            &[],
            json!({ "messages": [
                { "role": "system", "content": "You are in area Hall (floor 1) and so on." },
                { "role": "user", "content": "Is it late?" },
            ] }),
            is("hall", false),
        ),
    ] {
        let mut body = new.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = asked(&mut server, path, headers, body).await;
        assert_eq!(of_session(&server, &reply["reprise"]["session_id"]).await, wanted, "{path} {headers:?} {more}");
    }
    for (path, body, wanted) in [
        ("/anna/v1/responses", json!({ "input": "Hi." }), is("anna", false)),
        ("/v1/responses", json!({ "input": "Hi.", "safety_identifier": "Ben" }), is("", false)),
        // OpenAI's clients store each response; they ask for no session.
        ("/v1/responses", json!({ "input": "Hello." }), is("", false)),
        ("/v1/responses", json!({ "input": "Hi.", "user": "Ben" }), is("ben", false)),
        (
            "/v1/responses",
            json!({ "input": "Hi.", "instructions": "You are in area Hall (floor 1)." }),
            is("hall", false),
        ),
        ("/v1/responses", json!({ "input": "Hi.", "metadata": { "private": "true" } }), is("", true)),
    ] {
        let reply = asked(&mut server, path, &[], body.clone()).await;
        assert_eq!(of_session(&server, &reply["conversation"]["id"]).await, wanted, "{path} {body}");
    }
    let (_, made) = server.http("POST", "/anna/v1/conversations", &[], "{}").await;
    assert_eq!(of_session(&server, &made["id"]).await, is("anna", false));
    let (_, made) = server.http("POST", "/v1/conversations", &[], "{}").await;
    assert_eq!(of_session(&server, &made["id"]).await, household());
    let mut socket = server.try_connect("", &[]).await.ok().unwrap();
    let id = socket.session_id().await;
    assert_eq!(of_session(&server, &json!(id)).await, household());
    let mut socket = server.try_connect("?user=Cleo&private=true", &[]).await.ok().unwrap();
    let id = socket.session_id().await;
    assert_eq!(of_session(&server, &json!(id)).await, is("cleo", true));
    let mut socket = server.try_connect("", &[("x-name", "J%C3%B6rg")]).await.ok().unwrap();
    let id = socket.session_id().await;
    assert_eq!(of_session(&server, &json!(id)).await, is("jörg", false));
    server.stop().await;
}

/// A path that no rule names is not there, and the checks of a path that is there are those of its route.
#[tokio::test]
async fn paths_are_there_where_a_rule_names_them() {
    let server = Server::with(rules(RULES)).await;
    for path in ["/ben/v1/models", "/v1/v1/models", "/anna/healthz", "/anna/anna/v1/models", "/anna", "/ANNA/v1/models"]
    {
        assert_eq!(server.http("GET", path, &[], "").await.0, 404, "{path}");
    }
    for path in ["/anna/v1/models", "/anna/api/tags", "/guests/api/version", "/v1/models"] {
        assert_eq!(server.http("GET", path, &[], "").await.0, 200, "{path}");
    }
    // Errors are in the words of the path's clients.
    let (status, error) = server.http("POST", "/anna/api/chat", &[], "{}").await;
    assert!(status == 400 && error["error"].is_string(), "{error}");
    let (status, error) = server.http("POST", "/anna/v1/chat/completions", &[("x-reprise-private", "yes")], "{}").await;
    assert!(status == 400 && error["error"]["message"].is_string(), "{error}");
    server.stop().await;
    let server = Server::with(rules(RULES)).await;
    server.store.put_user("bob", "bob", 1).await.unwrap();
    let (_, key) = server.store.create_key("bob", "phone", &[store::KeyScope::Admin], 1).await.unwrap();
    let (status, _) = server.http("GET", "/anna/v1/models", &[("authorization", &format!("Bearer {key}"))], "").await;
    assert_eq!(status, 403, "a key without the scope");
    server.stop().await;
}

/// A rule chooses among the persons of the caller's user: a stranger's key does not become one of the house.
#[tokio::test]
async fn a_key_of_another_user_opens_no_persons_of_this_one() {
    let mut server = Server::with(rules(r#"[{ person = "anna", key = "phone" }]"#)).await;
    let mut keys = Vec::new();
    for user in ["ann", "bob"] {
        server.store.put_user(user, user, 1).await.unwrap();
        let scopes = [store::KeyScope::Talk, store::KeyScope::Sessions];
        keys.push(format!("Bearer {}", server.store.create_key(user, "phone", &scopes, 1).await.unwrap().1));
    }
    let body = json!({
        "messages": [{ "role": "user", "content": "I like tea." }], "metadata": { "session_id": "new" },
    });
    asked(&mut server, "/v1/chat/completions", &[("authorization", &keys[0])], body).await;
    let persons = async |key: &str| server.http("GET", "/v1/persons", &[("authorization", key)], "").await.1;
    assert_eq!(persons(&keys[0]).await["data"][0]["person"], "anna");
    assert_eq!(persons(&keys[1]).await["data"], json!([]));
    let delete = async |key: &str| server.http("DELETE", "/v1/persons/Anna", &[("authorization", key)], "").await;
    assert_eq!(delete(&keys[1]).await.0, 404);
    let (status, answer) = delete(&keys[0]).await;
    assert_eq!((status, &answer["sessions"]), (200, &json!(1)), "{answer}");
    assert_eq!(persons(&keys[0]).await["data"], json!([]));
    assert_eq!(delete(&keys[0]).await.0, 404);
    assert!(!server.script.forgotten().is_empty(), "what was computed of it is dropped");
    server.stop().await;
}

/// Clients could make up any number of names.
#[tokio::test]
async fn names_from_clients_are_bounded() {
    let few = |settings: &mut Settings| {
        rules(r#"[{ person = "*", user = "*" }, { person = "anna", path = "anna" }]"#)(settings);
        settings.remember.persons = 2;
    };
    let mut server = Server::with(few).await;
    let person = async |server: &mut Server, path: &str, user: &str| {
        let body = json!({
            "messages": [{ "role": "user", "content": "Hi." }], "metadata": { "session_id": "new" }, "user": user,
        });
        let reply = asked(server, path, &[], body).await;
        let id = reply["reprise"]["session_id"].as_str().unwrap();
        let session = server.store.open_session("local", id).await.unwrap();
        let record = server.store.session(&session).await.unwrap();
        // Of one too many nothing is remembered: the guest's memories are told to all.
        assert_eq!(record.is_remembered, !record.person.is_empty());
        record.person
    };
    let path = "/v1/chat/completions";
    assert_eq!(person(&mut server, path, "ben").await, "ben");
    assert_eq!(person(&mut server, path, "cleo").await, "cleo");
    assert_eq!(person(&mut server, path, "dora").await, "", "the guest");
    assert_eq!(person(&mut server, path, "BEN").await, "ben");
    assert_eq!(person(&mut server, "/anna/v1/chat/completions", "").await, "anna", "the operator's name");
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, few).await;
    assert_eq!(person(&mut server, path, "eve").await, "", "also after a restart");
    assert_eq!(person(&mut server, path, "cleo").await, "cleo");
    server.stop().await;
}

#[tokio::test]
async fn a_home_sees_for_whom_its_requests_were_taken_and_why() {
    let mut server = Server::with(rules(RULES)).await;
    let said = |who: &str| json!({ "messages": [{ "role": "user", "content": "Is it late?" }], "user": who });
    let agent = ("user-agent", "HomeAssistant/2026.11");
    for _ in 0..2 {
        asked(&mut server, "/v1/chat/completions", &[agent, ("x-name", "Ben")], said("")).await;
    }
    asked(&mut server, "/guests/v1/chat/completions", &[agent], said("")).await;
    asked(&mut server, "/v1/chat/completions", &[agent], said("")).await;
    let (status, told) = server.http("GET", "/v1/who", &[], "").await;
    assert_eq!(status, 200, "{told}");
    let told = told["data"].as_array().unwrap();
    assert_eq!(told.len(), 2, "what is private leaves no line: {told:?}");
    let [guest, ben] = [&told[0], &told[1]];
    assert_eq!((&guest["person"], &guest["rule"]), (&json!(""), &json!(null)));
    assert_eq!((&ben["person"], &ben["rule"], &ben["requests"]), (&json!("ben"), &json!(3), &json!(2)));
    assert_eq!(ben["because"], json!(["header x-name = \"*\""]));
    assert_eq!(ben["agent"], json!("HomeAssistant/2026.11"));
    server.stop().await;
}
