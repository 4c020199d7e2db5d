//! Names that clients ask for: presets, personas, and what is not there, through every door that is asked for a model.

use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::Finish;
use settings::{Persona, Settings, UnknownModel};

fn with_butler(settings: &mut Settings) {
    let (name, instructions) = ("butler".to_owned(), "You are a butler.".to_owned());
    let butler = Persona { name: name.clone(), instructions, ..Persona::default() };
    settings.personas.insert(name, butler);
}

async fn instructions_of(server: &mut Server) -> String {
    let mut asked = server.reply_asked().await;
    let head = asked.chat().messages[0].clone();
    asked.say("Indeed.");
    asked.done(Finish::Stop);
    if head["role"] == "system" { head["content"].as_str().unwrap().to_owned() } else { String::new() }
}

async fn asked_of(server: &mut Server, path: &str, body: Value) -> (String, Value) {
    let url = format!("http://{}{path}", server.address);
    let _ = rustls::crypto::ring::default_provider().install_default();
    let request = reqwest::Client::builder().no_proxy().build().unwrap().post(url).body(body.to_string());
    let answer = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    let instructions = instructions_of(server).await;
    (instructions, serde_json::from_str(&answer.await.unwrap()).unwrap())
}

#[tokio::test]
async fn a_persona_speaks_through_every_door() {
    let mut server = Server::with(with_butler).await;
    let says = |more: Value| {
        let mut body = json!({
            "model": "butler", "stream": false, "messages": [{ "role": "user", "content": "Is it late?" }],
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let own = json!({ "messages": [
        { "role": "system", "content": "Speak French." }, { "role": "user", "content": "Is it late?" },
    ] });
    let both = "You are a butler.\n\nSpeak French.";

    let (instructions, reply) = asked_of(&mut server, "/v1/chat/completions", says(json!({}))).await;
    assert_eq!((instructions.as_str(), &reply["model"]), ("You are a butler.", &json!("butler")));
    assert_eq!(asked_of(&mut server, "/v1/chat/completions", says(own.clone())).await.0, both);
    let tagged = says(json!({ "model": "butler:latest" }));
    let (instructions, reply) = asked_of(&mut server, "/api/chat", tagged).await;
    assert_eq!((instructions.as_str(), &reply["model"]), ("You are a butler.", &json!("butler:latest")));
    assert_eq!(asked_of(&mut server, "/api/chat", says(own.clone())).await.0, both);

    let new = json!({ "metadata": { "session_id": "new" } });
    let (instructions, reply) = asked_of(&mut server, "/v1/chat/completions", says(new)).await;
    assert_eq!(instructions, "You are a butler.", "a durable session");
    let mut go_on = own;
    go_on["metadata"] = json!({ "session_id": reply["reprise"]["session_id"] });
    assert_eq!(asked_of(&mut server, "/v1/chat/completions", says(go_on)).await.0, both);

    for store in [false, true] {
        let body = json!({ "model": "butler", "input": "Is it late?", "store": store });
        assert_eq!(asked_of(&mut server, "/v1/responses", body).await.0, "You are a butler.", "kept: {store}");
        let body = json!({ "model": "butler", "input": "Hi.", "store": store, "instructions": "Speak French." });
        assert_eq!(asked_of(&mut server, "/v1/responses", body).await.0, both, "kept: {store}");
    }

    let mut socket = server.connect("?model=butler").await;
    let id = socket.session_id().await;
    socket.ask("Is it late?").await;
    assert_eq!(instructions_of(&mut server).await, "You are a butler.");
    socket.until("response.done").await;
    socket.say(json!({ "type": "session.update", "session": { "instructions": "Speak French." } })).await;
    socket.until("session.updated").await;
    drop(socket);

    // The session is this persona's for good, also where the configuration has lost it.
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, |_| {}).await;
    let mut socket = server.connect(&format!("?session={id}")).await;
    socket.session_id().await;
    socket.ask("And now?").await;
    assert_eq!(instructions_of(&mut server).await, both);
    socket.until("response.done").await;
    server.stop().await;
}

#[tokio::test]
async fn presets_and_personas_are_listed() {
    let server = Server::with(with_butler).await;
    let (_, list) = server.http("GET", "/v1/models", &[], "").await;
    let ids: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["test-model", "butler"], "the chosen preset first");
    assert_eq!(server.http("GET", "/v1/models/butler", &[], "").await.1["reprise"]["preset"], "default");
    let (_, tags) = server.http("GET", "/api/tags", &[], "").await;
    let names: Vec<&Value> = tags["models"].as_array().unwrap().iter().map(|model| &model["model"]).collect();
    assert_eq!(names, ["test-model", "butler"]);
    let (_, shown) = server.http("POST", "/api/show", &[], r#"{"model":"butler:latest"}"#).await;
    assert!(shown["model_info"]["reprise.context_length"].is_u64(), "{shown}");
    server.stop().await;
}

/// An unknown name is an error that lists what there is, or the chosen preset where the configuration says so.
#[tokio::test]
async fn a_model_that_is_not_there() {
    let body = json!({ "model": "maid", "stream": false, "messages": [{ "role": "user", "content": "Hi." }] });
    let server = Server::with(with_butler).await;
    for path in ["/v1/chat/completions", "/api/chat", "/api/show"] {
        let (status, error) = server.http("POST", path, &[], &body.to_string()).await;
        assert_eq!(status, 404, "{path}: {error}");
        assert!(error.to_string().contains("default, butler"), "{path}: {error}");
    }
    let refused = server.try_connect("?model=maid", &[]).await.err().unwrap();
    assert_eq!(refused.code(), (404, "model_not_found".to_owned()));
    server.stop().await;

    let mut server = Server::with(|settings| settings.model.unknown = UnknownModel::Default).await;
    for path in ["/v1/chat/completions", "/api/chat"] {
        let (_, reply) = asked_of(&mut server, path, body.clone()).await;
        assert!(reply.to_string().contains("Indeed."), "{path}: {reply}");
    }
    let mut socket = server.connect("?model=maid").await;
    socket.session_id().await;
    server.stop().await;
}
