//! The service as another service's upstream: what goes in at one end comes out at the other.

use crate::client::PATIENCE;
use crate::support::{Chat, Server};
use model::{Model, ModelRequest};
use session::{Delta, Failure, FailureCode, Finish, Message, MessageRole, Prompt, Tool};
use settings::{Settings, Sources};
use std::sync::Arc;
use tokio::time::timeout;

async fn client_of(server: &Server) -> (Model, ModelRequest) {
    let mut settings = Settings::load(&Sources::default()).unwrap().settings;
    settings.upstream.url = Some(format!("http://{}/v1", server.address));
    let started = Model::start(&settings).await.unwrap();
    let tool = Tool { name: "light".into(), description: None, parameters: None, verbatim: None };
    let messages = vec![Message::new(MessageRole::User, "Is it late?")];
    let prompt = Prompt { messages, tools: vec![tool], ..Prompt::default() };
    assert_eq!(started.name, "test-model");
    (started.model, ModelRequest::new(prompt, Arc::new(started.settings.chosen().unwrap().clone())))
}

#[tokio::test]
async fn everything_comes_through() {
    let mut server = Server::start().await;
    let (backend, ask) = client_of(&server).await;
    let mut answer = backend.ask(ask);
    let mut asked = server.script.next().await;
    assert_eq!(asked.chat().messages[0]["content"], "Is it late?");
    assert_eq!((asked.chat().tools.len(), asked.request.max_tokens.is_some()), (1, true));
    asked.prompt(12, 4);
    asked.think("Hm.");
    asked.say("One moment.");
    asked.call("light", "{\"room\":\"hall\"}");
    asked.call("light", "{\"room\":\"kitchen\"}");
    asked.done(Finish::Stop);
    let mut said = Vec::new();
    while let Some(piece) = answer.next().await {
        // What completes a sentence brings no text.
        if matches!(&piece, Delta::Text { text, .. } if text.is_empty()) {
            continue;
        }
        said.push(match piece {
            Delta::Reasoning { text, .. } => format!("thought {text}"),
            Delta::Text { text, .. } => format!("said {text}"),
            Delta::CallStarted { name, call_id } => format!("called {name} {}", call_id.is_some()),
            Delta::CallArguments { json, .. } => format!("with {json}"),
            Delta::Done { finish, usage, .. } => {
                let usage = usage.unwrap();
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
    assert!(matches!(answer.next().await, Some(Delta::Text { .. })));
    drop(answer);
    timeout(PATIENCE, asked.cancelled()).await.expect("the upstream hears that nobody listens");

    for code in [FailureCode::PromptTooLong, FailureCode::InvalidRequest, FailureCode::Busy] {
        let mut answer = backend.ask(ask.clone());
        server.script.next().await.fail(Failure::new(code, "for a reason"));
        match answer.next().await {
            Some(Delta::Failed(failure)) => assert_eq!(failure.code, code),
            other => panic!("{other:?}"),
        }
    }
    server.stop().await;
}
