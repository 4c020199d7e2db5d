//! Requests of Open WebUI beside a conversation: titles, tags, the next questions. The service answers them without
//! delaying speech, and adds them to no conversation.

use crate::client::PATIENCE;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Finish, Priority};
use settings::Persona;

const TITLE: &str = "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.\n";

async fn answered(server: &mut Server, path: &str, headers: &[(&'static str, &str)], body: Value) -> (Asked, Value) {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
    let mut request = client.post(format!("http://{}{path}", server.address)).body(body.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
    let mut asked = server.reply_asked().await;
    let messages: Vec<String> =
        asked.chat().messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect();
    let seen = Asked { priority: asked.request.priority, messages, is_sessions: asked.request.keep_as.is_some() };
    asked.say("{\"title\": \"Lamps\"}");
    asked.done(Finish::Stop);
    (seen, serde_json::from_str(&answer.await.unwrap()).unwrap())
}

#[derive(Debug, PartialEq)]
struct Asked {
    priority: Priority,
    messages: Vec<String>,
    is_sessions: bool,
}

#[tokio::test]
async fn a_side_task_waits_behind_speech_and_is_no_turn() {
    let mut server = Server::with(|settings| {
        let (name, instructions) = ("butler".to_owned(), "You are a butler.".to_owned());
        settings.personas.insert(name.clone(), Persona { name, instructions, ..Persona::default() });
    })
    .await;
    let mut socket = server.connect("").await;
    let id = socket.session_id().await;
    let body = |text: &str, more: Value| {
        let mut body = json!({
            "model": "butler", "stream": false, "metadata": { "session_id": id },
            "messages": [{ "role": "user", "content": text }],
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let aside = |messages: &[&str]| Asked {
        priority: Priority::Background,
        messages: messages.iter().map(|role| (*role).to_owned()).collect(),
        is_sessions: false,
    };
    type Headers<'a> = &'a [(&'static str, &'a str)];
    let cases: [(&str, Headers, Value, &[&str]); 4] = [
        ("/v1/chat/completions", &[], body(TITLE, json!({})), &["user"]),
        ("/api/chat", &[], body(TITLE, json!({})), &["user"]),
        ("/v1/chat/completions", &[("x-task", "tags_generation")], body("Tags for this.", json!({})), &["user"]),
        (
            "/v1/chat/completions",
            &[("x-openwebui-task", "title_generation")],
            body(
                "",
                json!({ "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" }] }),
            ),
            &["system", "user"],
        ),
    ];
    for (path, headers, body, messages) in cases {
        let (asked, answer) = answered(&mut server, path, headers, body.clone()).await;
        assert_eq!(asked, aside(messages), "{path} {body}");
        assert!(answer.to_string().contains("Lamps"), "{answer}");
        assert!(answer["reprise"]["session_id"].is_null(), "{answer}");
    }
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
    assert_eq!(items["data"], json!([]), "nothing of it is in the session");
    assert!(server.script.try_next().is_none(), "and nothing is read ahead for it");

    // An empty header names no task, and a stream is a user's.
    for (headers, body) in
        [(&[("x-task", "")][..], body("Hello?", json!({}))), (&[][..], body("What does ### Task: mean?", json!({})))]
    {
        let (asked, _) = answered(&mut server, "/v1/chat/completions", headers, body).await;
        assert_eq!((asked.priority, asked.is_sessions), (Priority::Talk, true));
    }
    server.stop().await;
}
