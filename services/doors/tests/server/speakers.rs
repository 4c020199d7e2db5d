//! Two persons in one conversation: each is told what is remembered of them, and never what is only the other's.

use crate::scripted::{Asked, Script};
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose};
use settings::{PersonRule, RuleClue, RuleCondition, RuleName, Settings, ShownSpeakers, WantedText};

/// Each speaker is a person, and the conversation itself is the home's.
fn home(settings: &mut Settings) {
    let conditions = vec![RuleCondition { clue: RuleClue::Speaker, wanted: WantedText::Any }];
    let guest = RuleName::Named(String::new());
    let rule = PersonRule {
        person: RuleName::Found,
        room: guest.clone(),
        conditions,
        is_private: false,
        continue_minutes: None,
    };
    let kitchen =
        PersonRule { person: guest, room: RuleName::Named("kitchen".into()), conditions: vec![], ..rule.clone() };
    settings.remember.who = vec![rule, kitchen];
}

async fn reply_asked(script: &mut Script) -> Asked {
    loop {
        let asked = script.next().await;
        if asked.request.purpose == GenerationPurpose::Reply {
            return asked;
        }
    }
}

fn texts(asked: &Asked) -> String {
    let messages = asked.chat().messages;
    messages.iter().map(|message| message["content"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Says these one after the other over a new websocket; returns the prompt of each turn.
async fn talk(server: &mut Server, said: &[(&str, &str)]) -> Vec<String> {
    let mut client = server.connect("?extensions=reprise").await;
    client.session_id().await;
    let mut prompts = Vec::new();
    for (speaker, text) in said {
        let content = json!([{ "type": "input_text", "text": text }]);
        let item = json!({ "type": "message", "role": "user", "content": content, "speaker": speaker });
        client.say(json!({ "type": "conversation.item.create", "item": item })).await;
        client.say(json!({ "type": "response.create" })).await;
        let mut asked = server.reply_asked().await;
        prompts.push(texts(&asked));
        asked.say("I see.");
        asked.done(Finish::Stop);
        client.until("turn.report").await;
    }
    prompts
}

const SAID: [(&str, &str); 4] = [
    ("Anna", "Remember that my sister lives in Lisbon."),
    ("Ben", "Remember that my sister lives in Oslo."),
    ("Anna", "My dentist is Doctor Weber."),
    ("Ben", "My locker code is 7351."),
];

#[tokio::test]
async fn two_speakers_of_one_conversation_are_never_told_what_is_the_others() {
    let mut server = Server::with(home).await;
    talk(&mut server, &SAID).await;
    // Another conversation, in which both ask in turn.
    let asked = [
        ("Anna", "Where does my sister live?", "Lisbon", "Oslo"),
        ("Ben", "Where does my sister live?", "Oslo", "Lisbon"),
        ("Anna", "Who is my dentist?", "Weber", "Oslo"),
        ("Ben", "Who is my dentist?", "Oslo", "Weber"),
        ("Ben", "What is my locker code?", "7351", "Lisbon"),
        ("Anna", "What is the locker code?", "Lisbon", "7351"),
    ];
    let questions: Vec<(&str, &str)> = asked.iter().map(|(speaker, question, ..)| (*speaker, *question)).collect();
    let prompts = talk(&mut server, &questions).await;
    for (at, ((speaker, question, _, theirs), prompt)) in asked.iter().zip(&prompts).enumerate() {
        assert!(!prompt.contains(theirs), "{speaker} asks {question:?} and is told {theirs}: {prompt}");
        // What they asked for before is still theirs.
        let own = if *speaker == "Anna" { "Lisbon" } else { "Oslo" };
        assert!(prompt.contains(own), "{at}: {prompt}");
    }
    assert!(prompts[2].contains("Weber") && prompts[4].contains("7351"), "{prompts:#?}");
    // Each fact belongs to its speaker.
    for (person, own, theirs) in [("anna", "Lisbon", "Oslo"), ("ben", "Oslo", "Lisbon")] {
        let facts = server.store.facts("local", Some(person)).await.unwrap();
        let facts = facts.iter().map(|fact| fact.text.as_str()).collect::<Vec<_>>().join("\n");
        assert!(facts.contains(own) && !facts.contains(theirs), "{person}: {facts}");
    }
    assert!(server.store.facts("local", Some("")).await.unwrap().is_empty());
    server.stop().await;
}

/// Clients that send the whole conversation with each request name speakers in `name`, or in a header.
#[tokio::test]
async fn a_client_that_holds_the_log_names_its_speakers() {
    let mut server = Server::with(home).await;
    talk(&mut server, &SAID).await;
    let mut script = server.take_script();
    let question = |name: Option<&str>| {
        let mut message = json!({ "role": "user", "content": "Where does my sister live?" });
        message["name"] = json!(name);
        message
    };
    let mut log = vec![];
    for (name, header, own, theirs) in [
        (Some("Anna"), None, "Lisbon", "Oslo"),
        (Some("Ben"), None, "Oslo", "Lisbon"),
        (None, Some("Anna"), "Lisbon", "Oslo"),
    ] {
        log.push(question(name));
        let body = json!({ "messages": log }).to_string();
        let headers: Vec<(&str, &str)> = header.map(|name| ("x-reprise-speaker", name)).into_iter().collect();
        let (answer, prompt) = tokio::join!(server.http("POST", "/v1/chat/completions", &headers, &body), async {
            let mut asked = reply_asked(&mut script).await;
            let prompt = texts(&asked);
            asked.say("I see.");
            asked.done(Finish::Stop);
            prompt
        });
        assert_eq!(answer.0, 200, "{}", answer.1);
        assert!(prompt.contains(own) && !prompt.contains(theirs), "{name:?} {header:?}: {prompt}");
        log.push(json!({ "role": "assistant", "content": "I see." }));
    }
    let (status, refused) = server.http("POST", "/v1/chat/completions", &[("x-reprise-speaker", "a/b")], "{}").await;
    assert_eq!(status, 400, "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn a_speaker_is_kept_with_the_item_and_shown_where_the_preset_asks() {
    let shown = [
        (ShownSpeakers::Off, json!({ "role": "user", "content": "Good morning." })),
        (ShownSpeakers::Prefix, json!({ "role": "user", "content": "Anna: Good morning." })),
        (ShownSpeakers::Name, json!({ "role": "user", "content": "Good morning.", "name": "Anna" })),
    ];
    for (how, message) in shown {
        // No rule looks at speakers: the name is shown, and all is the session's person's.
        let mut server =
            Server::with(|settings| settings.presets.get_mut("default").expect("it is there").speakers = how).await;
        let body = json!({ "metadata": { "session_id": "new" },
            "messages": [{ "role": "user", "content": "Good morning.", "name": "Anna" }] });
        let mut script = server.take_script();
        let body = body.to_string();
        let (answer, ()) = tokio::join!(server.http("POST", "/v1/chat/completions", &[], &body), async {
            let mut asked = reply_asked(&mut script).await;
            assert_eq!(*asked.chat().messages.last().unwrap(), message, "{how:?}");
            asked.say("Good morning, Anna.");
            asked.done(Finish::Stop);
        });
        let id = answer.1["reprise"]["session_id"].as_str().unwrap();
        let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
        assert_eq!(items["data"][0]["body"]["speaker"], json!({ "name": "Anna" }), "{items}");
        let mut client = server.connect(&format!("?session={id}")).await;
        let told = client.until("conversation.item.added").await;
        assert_eq!(told["item"]["speaker"], Value::from("Anna"));
        server.stop().await;
    }
}
