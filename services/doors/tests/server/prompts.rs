//! Prompts of every door, byte for byte as the family's template prints them.

use crate::client::PATIENCE;
use crate::remember::{home, says};
use crate::support::{Chat, Server};
use crate::wyoming_client::{WyomingClient, own_address};
use model::ModelRequest;
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose};
use settings::{Persona, Questions, Settings, ShownSpeakers, Sources};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use text::template::options_json;
use text::{Template, TemplateInput};
use tokio::time::timeout;

/// A home with a persona and names before the words, whose replies ask nothing.
fn house(settings: &mut Settings) {
    home(settings);
    settings.presets.values_mut().for_each(|preset| {
        preset.speakers = ShownSpeakers::Prefix;
        preset.questions = Questions::None;
    });
    let (name, instructions) = ("butler".to_owned(), " You are a butler.\n".to_owned());
    let butler = Persona { name: name.clone(), instructions, ..Persona::default() };
    settings.personas.insert(name, butler);
}

async fn server(change: impl FnOnce(&mut Settings)) -> Server {
    let mut server = Server::with(|settings| {
        house(settings);
        change(settings);
    })
    .await;
    says(&mut server, &["Remember that my sister lives in Lisbon.", "The bakery opens at six."]).await;
    server
}

#[derive(Default)]
struct Printed(String);

impl Printed {
    fn add(&mut self, request: &ModelRequest) {
        let text = Template::family().unwrap().render(&TemplateInput::of(&request.prompt)).unwrap().text;
        let purpose = match request.purpose {
            GenerationPurpose::WarmHistory => format!("WarmHistory {{ placeholders: {} }}", request.placeholders),
            purpose => format!("{purpose:?}"),
        };
        let options = Value::from(options_json(&request.prompt.options));
        writeln!(self.0, "==== {purpose} {options}\n{text}").unwrap();
    }

    async fn turn(&mut self, server: &mut Server, reply: &str, warms: bool) {
        let mut asked = server.reply_asked().await;
        self.add(&asked.request);
        match reply.strip_prefix('!') {
            Some(name) => asked.call(name, r#"{"on":true}"#),
            None => asked.say(reply),
        }
        asked.done(Finish::Stop);
        if !warms {
            return;
        }
        loop {
            let asked = timeout(PATIENCE, server.script.next()).await.expect("a history is read ahead");
            if matches!(asked.request.purpose, GenerationPurpose::WarmHistory)
                && json!(asked.chat().messages).to_string().contains(reply)
            {
                return self.add(&asked.request);
            }
        }
    }

    async fn post(&mut self, server: &mut Server, path: &str, body: Value, reply: &str, warms: bool) -> Value {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        let request = client.post(format!("http://{}{path}", server.address)).body(body.to_string());
        let request = request.header("user-agent", "HomeAssistant/2026.11 aiohttp/3");
        let answer = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
        self.turn(server, reply, warms).await;
        let answer = answer.await.unwrap();
        serde_json::from_str(&answer).expect(&answer)
    }
}

fn tool() -> Value {
    json!({ "type": "function", "function": { "name": "light", "description": "Switches.", "strict": true,
        "parameters": { "type": "object", "properties": { "on": { "type": "boolean" } } } } })
}

fn call(arguments: Value) -> Value {
    json!([{ "id": "call_1", "type": "function", "function": { "name": "light", "arguments": arguments } }])
}

/// A log of everything that a client may send. Arguments are text, or an object.
fn log(head: &str, arguments: Value) -> Vec<Value> {
    vec![
        json!({ "role": "system", "content": head }),
        json!({ "role": "system", "content": " Be kind. " }),
        json!({ "role": "user", "content": " Light on ", "name": "Anna" }),
        json!({ "role": "assistant", "content": "One moment.", "tool_calls": call(arguments) }),
        json!({ "role": "tool", "tool_call_id": "call_1", "content": "on" }),
        json!({ "role": "assistant", "content": "It is on. " }),
        json!({ "role": "system", "content": "It rains." }),
        json!({ "role": "user", "content": "Where does my sister live?" }),
    ]
}

fn head(first: &str) -> String {
    let rules = (0..30).map(|at| format!("Rule {at} stands as it stood.")).collect::<Vec<_>>().join("\n");
    format!("{first}\n{rules}")
}

#[tokio::test]
async fn chat_completions_with_the_whole_conversation() {
    let mut server = server(|_| {}).await;
    let mut printed = Printed::default();
    let path = "/v1/chat/completions";
    let mut messages = log(&head("It is ten."), json!("{\"on\": true}"));
    let body = |messages: &[Value]| json!({ "model": "butler", "tools": [tool()], "messages": messages, "reasoning_effort": "low" });
    printed.post(&mut server, path, body(&messages), "In Lisbon.", true).await;
    messages.push(json!({ "role": "assistant", "content": "In Lisbon." }));
    messages.push(json!({ "role": "developer", "content": "It snows." }));
    messages.push(json!({ "role": "user", "content": [{ "type": "text", "text": "When does" }, "the bakery open?"] }));
    messages[0] = json!({ "role": "system", "content": head("It is eleven.") });
    printed.post(&mut server, path, body(&messages), "At six.", true).await;
    let alone = json!({ "messages": [{ "role": "assistant", "content": "Hello." }, { "role": "user", "content": "Who are you?" }] });
    printed.post(&mut server, path, alone, "Me.", true).await;
    let task = json!({ "service_tier": "flex", "model": "butler", "messages": [{ "role": "system", "content": "Write a title." }] });
    printed.post(&mut server, path, task, "A title", false).await;
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

#[tokio::test]
async fn chat_completions_in_a_session() {
    let mut server = server(|_| {}).await;
    let mut printed = Printed::default();
    let path = "/v1/chat/completions";
    let body = |id: &str, messages: &[Value]| json!({ "model": "butler", "tools": [tool()], "messages": messages, "metadata": { "session_id": id } });
    let messages = log("Be brief. ", json!("{\"on\": true}"));
    let answer = printed.post(&mut server, path, body("new", &messages), "In Lisbon.", false).await;
    let id = answer["reprise"]["session_id"].as_str().unwrap().to_owned();
    let next = [
        json!({ "role": "system", "content": "Be long." }),
        json!({ "role": "user", "content": "Light", "name": "Ben" }),
    ];
    printed.post(&mut server, path, body(&id, &next), "!light", false).await;
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

#[tokio::test]
async fn ollama() {
    let mut server = server(|_| {}).await;
    let mut printed = Printed::default();
    let mut messages = log("Be brief. ", json!({ "on": true }));
    let body = |messages: &[Value]| json!({ "model": "butler:latest", "stream": false, "tools": [tool()], "messages": messages });
    printed.post(&mut server, "/api/chat", body(&messages), "In Lisbon.", true).await;
    messages.push(json!({ "role": "assistant", "content": "In Lisbon." }));
    messages.push(json!({ "role": "user", "content": "When does the bakery open?" }));
    printed.post(&mut server, "/api/chat", body(&messages), "At six.", true).await;
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

#[tokio::test]
async fn responses() {
    let mut server = server(|_| {}).await;
    let mut printed = Printed::default();
    let path = "/v1/responses";
    let input = json!([
        { "role": "developer", "content": "Be kind. " },
        { "role": "user", "content": [{ "type": "input_text", "text": " Light on" }] },
        { "type": "function_call", "call_id": "call_1", "name": "light", "arguments": "{\"on\": true}" },
        { "type": "function_call_output", "call_id": "call_1", "output": "on" },
        { "role": "assistant", "content": "It is on. " },
        { "role": "system", "content": "It rains." },
        { "role": "user", "content": "Where does my sister live?" },
    ]);
    let tool = json!({ "type": "function", "name": "light", "strict": true, "parameters": { "type": "object", "properties": {} } });
    let body = json!({ "model": "butler", "instructions": "Be brief. ", "input": input, "tools": [tool], "reasoning": { "effort": "low" } });
    let with = |more: Value| {
        let mut body = body.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    printed.post(&mut server, path, with(json!({ "store": false })), "In Lisbon.", true).await;
    let kept = printed.post(&mut server, path, with(json!({})), "In Lisbon, still.", false).await;
    let next = json!({ "input": "When does the bakery open?", "previous_response_id": kept["id"], "store": false });
    printed.post(&mut server, path, with(next), "At six.", true).await;
    let next = json!({ "input": "When does the bakery open?", "previous_response_id": kept["id"] });
    printed.post(&mut server, path, with(next), "At six o'clock.", false).await;
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

#[tokio::test]
async fn realtime() {
    let mut server = server(|_| {}).await;
    let mut printed = Printed::default();
    let mut client = server.connect("?extensions=reprise&model=butler").await;
    let text = |role: &str, kind: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] });
    let mut user = text("user", "input_text", " Light on ");
    user["speaker"] = json!("Anna");
    let items = [
        text("system", "input_text", " Be kind. "),
        user,
        text("assistant", "output_text", "One moment."),
        json!({ "type": "function_call", "call_id": "call_1", "name": "light", "arguments": "{\"on\": true}" }),
        json!({ "type": "function_call_output", "call_id": "call_1", "output": "on" }),
        text("assistant", "output_text", "It is on. "),
        text("system", "input_text", "It rains."),
        text("user", "input_text", "When does the bakery open?"),
    ];
    let tool = json!({ "type": "function", "name": "light", "parameters": { "type": "object", "properties": {} } });
    let session = json!({ "type": "realtime", "instructions": "Be brief. ", "tools": [tool] });
    client.say(json!({ "type": "session.update", "session": session })).await;
    for item in items {
        client.say(json!({ "type": "conversation.item.create", "item": item })).await;
    }
    client.say(json!({ "type": "response.create" })).await;
    printed.turn(&mut server, "At six.", true).await;
    client.until("response.done").await;
    client
        .say(json!({ "type": "conversation.item.create", "item": text("system", "input_text", "Greet the guests.") }))
        .await;
    client.say(json!({ "type": "response.create" })).await;
    printed.turn(&mut server, "!light", false).await;
    client.until("response.done").await;
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

#[tokio::test]
async fn wyoming() {
    let address: SocketAddr = own_address();
    let with_port = |settings: &mut Settings| {
        (settings.wyoming.host, settings.wyoming.port) = (Some(address.ip()), Some(address.port()));
    };
    let mut server = server(with_port).await;
    let mut printed = Printed::default();
    let context = json!({ "conversation_id": "01K", "device_id": "d1", "satellite_id": "assist_satellite.kitchen" });
    let mut client = WyomingClient::connect(address).await;
    for (said, reply) in [("Where does my sister live?", "In Lisbon."), ("When does the bakery open?", "At six.")] {
        let said = json!({ "text": said, "language": "en", "context": context });
        client.say("transcript", said).await;
        printed.turn(&mut server, reply, false).await;
        client.answer().await;
    }
    insta::assert_snapshot!(printed.0);
    server.stop().await;
}

/// The presets as they are. Those whose prompts are alike stand together.
#[tokio::test]
async fn each_preset() {
    let presets = Settings::load(&Sources::default()).unwrap().settings.presets;
    let mut alike: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for preset in presets.into_keys() {
        let mut server = Server::with(|settings| {
            home(settings);
            settings.model.preset = preset.clone();
        })
        .await;
        let mut printed = Printed::default();
        let messages = log("Be brief. ", json!("{\"on\": true}"));
        let body = json!({ "tools": [tool()], "messages": messages });
        printed.post(&mut server, "/v1/chat/completions", body, "I do not know.", true).await;
        let mut client = server.connect("").await;
        client.ask("When does the bakery open?").await;
        printed.turn(&mut server, "At six.", true).await;
        client.until("response.done").await;
        alike.entry(printed.0).or_default().push(preset);
        server.stop().await;
    }
    let printed: Vec<String> =
        alike.iter().map(|(text, presets)| format!("#### {}\n{text}", presets.join(", "))).collect();
    insta::assert_snapshot!(printed.join("\n"));
}
