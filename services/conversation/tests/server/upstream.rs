//! The service as another service's upstream: what goes in at one end comes out at the other.

use crate::client::PATIENCE;
use crate::support::Server;
use conversation::backend::{Ask, Backend, Failure, FailureCode, Finish, Piece};
use serde_json::json;
use settings::{Settings, Sources};
use std::sync::Arc;
use tokio::time::timeout;

async fn client_of(server: &Server) -> (Backend, Ask) {
    let mut settings = Settings::load(&Sources::default()).unwrap().settings;
    settings.upstream.url = Some(format!("http://{}/v1", server.address));
    let started = Backend::start(&settings).await.unwrap();
    let tools = json!([{ "type": "function", "function": { "name": "light" } }]);
    let body = json!({ "messages": [{ "role": "user", "content": "Is it late?" }], "tools": tools });
    let chat = text::chat::normalise(&body).unwrap();
    assert_eq!(started.model, "test-model");
    (started.backend, Ask::new(chat, Arc::new(started.settings.chosen().unwrap().clone())))
}

#[tokio::test]
async fn everything_comes_through() {
    let mut server = Server::start().await;
    let (backend, ask) = client_of(&server).await;
    let mut answer = backend.ask(ask);
    let mut asked = server.script.next().await;
    assert_eq!(asked.ask.chat.messages[0]["content"], "Is it late?");
    assert_eq!((asked.ask.chat.tools.len(), asked.ask.max_tokens.is_some()), (1, true));
    asked.prompt(12, 4);
    asked.think("Hm.");
    asked.say("One moment.");
    asked.call("light", "{\"room\":\"hall\"}");
    asked.call("light", "{\"room\":\"kitchen\"}");
    asked.done(Finish::Stop);
    let mut said = Vec::new();
    while let Some(piece) = answer.next().await {
        said.push(match piece {
            Piece::Reasoning { text, .. } => format!("thought {text}"),
            Piece::Content { text, .. } => format!("said {text}"),
            Piece::CallStarted { name, call_id } => format!("called {name} {}", call_id.is_some()),
            Piece::CallArguments { json, .. } => format!("with {json}"),
            Piece::Done { finish, usage, .. } => {
                format!("{finish:?} {} {} {}", usage.input_tokens, usage.cached_tokens, usage.reasoning_tokens)
            }
            other => format!("{other:?}"),
        });
    }
    let expected = [
        "thought Hm.",
        "said One moment.",
        "called light true",
        "with {\"room\":\"hall\"}",
        "called light true",
        "with {\"room\":\"kitchen\"}",
        "ToolCalls 12 4 1",
    ];
    assert_eq!(said, expected);
    server.stop().await;
}

#[tokio::test]
async fn cancels_and_failures_come_through() {
    let mut server = Server::start().await;
    let (backend, ask) = client_of(&server).await;
    let mut answer = backend.ask(ask.clone());
    let mut asked = server.script.next().await;
    asked.say("Once");
    assert!(matches!(answer.next().await, Some(Piece::Content { .. })));
    drop(answer);
    timeout(PATIENCE, asked.cancelled()).await.expect("the upstream hears that nobody listens");

    for code in [FailureCode::PromptTooLong, FailureCode::InvalidRequest, FailureCode::Busy] {
        let mut answer = backend.ask(ask.clone());
        server.script.next().await.fail(Failure::new(code, "for a reason"));
        match answer.next().await {
            Some(Piece::Failed(failure)) => assert_eq!(failure.code, code),
            other => panic!("{other:?}"),
        }
    }
    server.stop().await;
}
