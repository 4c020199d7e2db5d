//! One owner of a request, through every door: another person is told nothing of the one that spoke before,
//! and gets no answer of theirs.

use crate::client::{Client, PATIENCE};
use crate::scripted::{Asked, Script};
use crate::support::{Chat, Server};
use crate::wyoming_client::{own_address, turn};
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose};
use settings::{PersonRule, RuleClue, RuleCondition, RuleName, Settings, WantedText};

const NAME: &str = "x-name";
const SISTER: &str = "Where does my sister live?";

fn rule(clue: RuleClue) -> PersonRule {
    let conditions = vec![RuleCondition { clue, wanted: WantedText::Any }];
    let room = RuleName::Named(String::new());
    PersonRule { person: RuleName::Found, room, conditions, is_private: false, continue_minutes: None }
}

fn by_header(settings: &mut Settings) {
    settings.remember.who = vec![rule(RuleClue::Speaker), rule(RuleClue::Header(NAME.to_owned()))];
}

async fn reply_asked(script: &mut Script) -> Asked {
    loop {
        let asked = script.next().await;
        if asked.request.purpose == GenerationPurpose::Reply {
            return asked;
        }
    }
}

async fn ask(server: &mut Server, path: &str, headers: &[(&str, &str)], body: Value) -> (Value, String) {
    let mut script = server.take_script();
    let body = body.to_string();
    let (answer, prompt) = tokio::join!(server.http("POST", path, headers, &body), async {
        let mut asked = reply_asked(&mut script).await;
        let messages = asked.chat().messages;
        asked.say("I see.");
        asked.done(Finish::Stop);
        messages.iter().map(|message| message["content"].as_str().unwrap_or_default().to_owned() + "\n").collect()
    });
    server.script = script;
    assert_eq!(answer.0, 200, "{}", answer.1);
    (answer.1, prompt)
}

async fn remember(server: &mut Server) {
    for (person, town) in [("anna", "Lisbon"), ("ben", "Oslo")] {
        let body = json!({ "text": format!("{person}'s sister lives in {town}."), "person": person }).to_string();
        let (status, answer) = server.http("POST", "/v1/memories", &[], &body).await;
        assert!(status < 300, "{answer}");
    }
}

fn only(prompt: &str, own: &str, others: &str, at: &str) {
    assert!(!prompt.contains(others), "{at}: is told {others}: {prompt}");
    assert!(prompt.contains(own), "{at}: is not told {own}: {prompt}");
}

async fn owners(server: &Server, word: &str) -> Vec<String> {
    let mut owners = Vec::new();
    for person in ["", "anna", "ben"] {
        let facts = server.store.facts("local", Some(person)).await.unwrap();
        owners.extend(facts.iter().filter(|fact| fact.text.contains(word)).map(|_| person.to_owned()));
    }
    owners
}

#[tokio::test]
async fn a_second_speaker_of_a_response_is_told_nothing_of_the_first_one() {
    for (header, anna, ben) in [(NAME, "anna", "ben"), ("x-reprise-speaker", "Anna", "Ben")] {
        let mut server = Server::with(by_header).await;
        remember(&mut server).await;
        let said = |text: &str, more: Value| {
            let mut body = json!({ "input": text });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let (first, prompt) = ask(&mut server, "/v1/responses", &[(header, anna)], said(SISTER, json!({}))).await;
        only(&prompt, "Lisbon", "Oslo", header);
        for goes_on in
            [json!({ "previous_response_id": first["id"] }), json!({ "conversation": first["conversation"]["id"] })]
        {
            let (_, prompt) = ask(&mut server, "/v1/responses", &[(header, ben)], said(SISTER, goes_on)).await;
            only(&prompt, "Oslo", "Lisbon", header);
        }
        let fact = said("Remember that my cat is called Mimi.", json!({ "conversation": first["conversation"]["id"] }));
        ask(&mut server, "/v1/responses", &[(header, ben)], fact).await;
        // A next conversation begins, so that what was asked for is remembered.
        let next = [(header, ben)];
        ask(&mut server, "/v1/responses", &next, said("Hello.", json!({}))).await;
        assert_eq!(owners(&server, "Mimi").await, ["ben"], "{header}");
        server.stop().await;
    }
}

// Asks for the sister in a session, and returns the prompt.
async fn asked_by(server: &mut Server, client: &mut Client, speaker: Value) -> String {
    let content = json!([{ "type": "input_text", "text": SISTER }]);
    let item = json!({ "type": "message", "role": "user", "content": content, "speaker": speaker });
    client.say(json!({ "type": "conversation.item.create", "item": item })).await;
    client.say(json!({ "type": "response.create" })).await;
    let mut asked = server.reply_asked().await;
    let prompt = asked.chat().messages.iter().map(|message| message["content"].to_string()).collect();
    asked.say("I see.");
    asked.done(Finish::Stop);
    client.until("turn.report").await;
    prompt
}

#[tokio::test]
async fn a_second_person_in_a_session_is_told_nothing_of_the_first_one() {
    let mut server = Server::with(by_header).await;
    remember(&mut server).await;
    let chat = |session: &Value, text: &str| json!({ "messages": [{ "role": "user", "content": text }], "metadata": { "session_id": session } });
    let path = "/v1/chat/completions";
    let (answer, prompt) = ask(&mut server, path, &[(NAME, "anna")], chat(&json!("new"), SISTER)).await;
    only(&prompt, "Lisbon", "Oslo", "chat");
    let id = answer["reprise"]["session_id"].clone();
    let (_, prompt) = ask(&mut server, path, &[(NAME, "ben")], chat(&id, SISTER)).await;
    only(&prompt, "Oslo", "Lisbon", "chat of another");
    // A request that no rule knows is the guest's, and not that of the person that spoke before.
    let (_, prompt) = ask(&mut server, path, &[], chat(&id, SISTER)).await;
    assert!(!prompt.contains("Lisbon") && !prompt.contains("Oslo"), "{prompt}");
    let id = id.as_str().unwrap();
    let query = format!("?session={id}&extensions=reprise");
    let mut client = server.try_connect(&query, &[(NAME, "ben")]).await.unwrap();
    for (said, own, others) in [(None, "Oslo", "Lisbon"), (Some("Anna"), "Lisbon", "Oslo")] {
        let prompt = asked_by(&mut server, &mut client, json!(said)).await;
        only(&prompt, own, others, "realtime");
    }
    // An item that a client adds over HTTP is the words of its person, too.
    let items = json!({ "items": [{ "role": "user", "content": "Remember that my cat is called Mimi." }] }).to_string();
    let (status, answer) =
        server.http("POST", &format!("/v1/conversations/{id}/items"), &[(NAME, "ben")], &items).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["data"][0].get("speaker"), None, "the client named no speaker: {answer}");
    drop(client);
    ask(&mut server, path, &[(NAME, "ben")], chat(&json!("new"), "Hello.")).await;
    assert_eq!(owners(&server, "Mimi").await, ["ben"]);
    server.stop().await;
}

/// Says the same over every door as Anna, as Ben and as a guest, and looks at what the doors tell the model.
#[tokio::test]
async fn no_door_tells_a_person_what_is_anothers() {
    let address = own_address();
    let mut server = Server::with(|settings| {
        by_header(settings);
        settings.remember.who.push(rule(RuleClue::Satellite));
        (settings.wyoming.host, settings.wyoming.port) = (Some(address.ip()), Some(address.port()));
    })
    .await;
    remember(&mut server).await;
    let persons = [("anna", "Lisbon", "Oslo"), ("ben", "Oslo", "Lisbon"), ("", "", "Lisbon"), ("", "", "Oslo")];
    let message = json!([{ "role": "user", "content": SISTER }]);
    let doors = [
        ("/v1/chat/completions", json!({ "messages": message })),
        ("/v1/chat/completions", json!({ "messages": message, "metadata": { "session_id": "new" } })),
        ("/v1/responses", json!({ "input": SISTER })),
        ("/v1/responses", json!({ "input": SISTER, "store": false })),
        ("/api/chat", json!({ "model": "", "stream": false, "messages": message })),
        ("/api/generate", json!({ "model": "", "stream": false, "prompt": SISTER })),
    ];
    for (path, body) in doors {
        for (person, own, others) in persons {
            let headers = [(NAME, person)];
            let headers = if person.is_empty() { &[][..] } else { &headers };
            let (_, prompt) = ask(&mut server, path, headers, body.clone()).await;
            only(&prompt, own, others, &format!("{path} {body} as {person:?}"));
        }
    }
    for (person, own, others) in persons {
        let context = json!({ "satellite_id": person, "device_id": "d1" });
        let told = tokio::spawn(async move { turn(address, SISTER, context).await });
        let mut asked = server.reply_asked().await;
        let prompt: String = asked.chat().messages.iter().map(|message| message["content"].to_string()).collect();
        asked.say("I see.");
        asked.done(Finish::Stop);
        told.await.unwrap();
        only(&prompt, own, others, &format!("wyoming as {person:?}"));
    }
    for (person, own, others) in persons {
        let headers = [(NAME, person)];
        let headers = if person.is_empty() { &[][..] } else { &headers };
        let mut client = server.try_connect("?extensions=reprise", headers).await.unwrap();
        client
            .say(json!({ "type": "conversation.item.create", "item": {
            "type": "message", "role": "user", "content": [{ "type": "input_text", "text": SISTER }] } }))
            .await;
        client.say(json!({ "type": "response.create" })).await;
        let mut asked = server.reply_asked().await;
        let prompt: String = asked.chat().messages.iter().map(|message| message["content"].to_string()).collect();
        asked.say("I see.");
        asked.done(Finish::Stop);
        client.until("turn.report").await;
        only(&prompt, own, others, &format!("realtime as {person:?}"));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_retry_gets_no_answer_of_another_person() {
    let mut server = Server::with(by_header).await;
    let again = ("x-stainless-retry-count", "1");
    let chat =
        json!({ "messages": [{ "role": "user", "content": "Good morning" }], "metadata": { "session_id": "new" } });
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/responses", json!({ "input": "Good morning" }))] {
        let mut sessions = Vec::new();
        for headers in [
            &[(NAME, "anna")][..],
            &[(NAME, "ben"), again],
            &[again],
            &[(NAME, "anna"), ("x-reprise-speaker", "Ben"), again],
            &[(NAME, "anna"), ("x-reprise-private", "true"), again],
        ] {
            // Each is a request of its own, which the model is asked for.
            let (answer, _) = ask(&mut server, path, headers, body.clone()).await;
            let session = [&answer["reprise"]["session_id"], &answer["conversation"]["id"]];
            let session = session.into_iter().find_map(Value::as_str).unwrap().to_owned();
            assert!(!sessions.contains(&session), "{path} {headers:?}: another's session");
            sessions.push(session);
        }
        // And the first one's own retry hears its answer again.
        let answer = server.http("POST", path, &[(NAME, "anna"), again], &body.to_string()).await.1;
        let session = [&answer["reprise"]["session_id"], &answer["conversation"]["id"]];
        assert_eq!(session.into_iter().find_map(Value::as_str), Some(sessions[0].as_str()));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_retry_with_a_client_secret_gets_no_answer_of_its_key() {
    let mut server = Server::start().await;
    let again = ("x-stainless-retry-count", "1");
    let mut bearers = Vec::new();
    for _ in 0..2 {
        let (_, secret) = server.http("POST", "/v1/realtime/client_secrets", &[], "{}").await;
        bearers.push(format!("Bearer {}", secret["value"].as_str().unwrap()));
    }
    let chat =
        json!({ "messages": [{ "role": "user", "content": "Good morning" }], "metadata": { "session_id": "new" } });
    for (path, body) in [("/v1/chat/completions", chat), ("/v1/responses", json!({ "input": "Good morning" }))] {
        // `ask` waits for a prompt: an answer that was kept asks the model for none.
        ask(&mut server, path, &[], body.clone()).await;
        for bearer in &bearers {
            ask(&mut server, path, &[("authorization", bearer.as_str()), again], body.clone()).await;
        }
        // And the key's owner hears theirs again.
        let (status, _) = server.http("POST", path, &[again], &body.to_string()).await;
        assert_eq!(status, 200, "{path}");
    }
    server.stop().await;
}

/// A page gets a client secret so that it may talk, and not so that it may choose for whom.
#[tokio::test]
async fn a_client_secret_names_no_person() {
    let mut server = Server::with(|settings| {
        by_header(settings);
        settings.remember.who.extend([RuleClue::User, RuleClue::SafetyIdentifier].map(rule));
        let wanted = WantedText::Exactly("anna".to_owned());
        let conditions = vec![RuleCondition { clue: RuleClue::Path, wanted }];
        let person = RuleName::Named("anna".to_owned());
        settings.remember.who.push(PersonRule { person, conditions, ..rule(RuleClue::Path) });
    })
    .await;
    remember(&mut server).await;
    // The rules name persons to a client with a key, or the secret would prove nothing.
    let by_user = json!({ "messages": [{ "role": "user", "content": SISTER }], "user": "anna" });
    let by_nothing = json!({ "messages": [{ "role": "user", "content": SISTER }] });
    for (path, body) in [("/v1/chat/completions", &by_user), ("/anna/v1/chat/completions", &by_nothing)] {
        let (_, prompt) = ask(&mut server, path, &[], body.clone()).await;
        assert!(prompt.contains("Lisbon"), "{path}: {prompt}");
    }
    let (_, secret) = server.http("POST", "/v1/realtime/client_secrets", &[], "{}").await;
    let bearer = format!("Bearer {}", secret["value"].as_str().unwrap());
    let chat = |name: Value| json!({ "messages": [{ "role": "user", "content": SISTER, "name": name }] });
    for (headers, name) in [
        (&[("authorization", bearer.as_str()), (NAME, "anna")][..], Value::Null),
        (&[("authorization", bearer.as_str()), ("x-reprise-speaker", "Anna")], Value::Null),
        (&[("authorization", bearer.as_str())], json!("Anna")),
    ] {
        let (_, prompt) = ask(&mut server, "/v1/chat/completions", headers, chat(name)).await;
        assert!(!prompt.contains("Lisbon"), "{headers:?}: {prompt}");
    }
    let headers = [("authorization", bearer.as_str())];
    for (path, body) in [
        ("/v1/chat/completions", by_user),
        ("/anna/v1/chat/completions", by_nothing),
        ("/anna/v1/responses", json!({ "input": SISTER })),
        ("/v1/responses", json!({ "input": SISTER, "user": "anna" })),
        ("/v1/responses", json!({ "input": SISTER, "safety_identifier": "anna" })),
        ("/v1/responses", json!({ "input": SISTER, "metadata": { "user": "anna", "speaker": "Anna" } })),
    ] {
        let (_, prompt) = ask(&mut server, path, &headers, body.clone()).await;
        assert!(!prompt.contains("Lisbon"), "{path} {body}: {prompt}");
    }
    let mut client = server.try_connect("?user=anna&extensions=reprise", &headers).await.unwrap();
    for speaker in [Value::Null, json!("Anna")] {
        let prompt = asked_by(&mut server, &mut client, json!(speaker)).await;
        assert!(!prompt.contains("Lisbon"), "realtime as {speaker}: {prompt}");
    }
    drop(client);
    server.stop().await;
}

/// Checks that a past computed for a conversation that its client holds belongs to a person, and is deleted with them.
#[tokio::test]
async fn a_person_is_deleted_with_what_was_computed_for_them() {
    let mut server = Server::with(by_header).await;
    let chat = json!({ "messages": [{ "role": "user", "content": "Good morning" }] });
    let mut owners = Vec::new();
    for headers in [&[(NAME, "anna")][..], &[(NAME, "ben")], &[(NAME, "anna"), ("x-reprise-private", "true")]] {
        let (past_owner, unsaved) = computed_for(&mut server, headers, &chat).await;
        assert_eq!(unsaved, headers.len() > 1, "only the disk gets nothing of what is private");
        owners.push(past_owner.expect("each request has an owner"));
    }
    let [anna, ben, private] = owners[..] else { panic!("three requests") };
    assert!(anna != ben && anna == private);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while server.http("DELETE", "/v1/persons/anna", &[], "").await.0 == 404 {
        assert!(tokio::time::Instant::now() < deadline, "the conversation is kept beside its reply");
    }
    let forgotten = server.script.forgotten();
    assert!(forgotten.contains(&anna) && !forgotten.contains(&ben), "{forgotten:?}");
    server.stop().await;
}

async fn computed_for(server: &mut Server, headers: &[(&str, &str)], body: &Value) -> (Option<u64>, bool) {
    let mut script = server.take_script();
    let body = body.to_string();
    let (answer, computed) = tokio::join!(server.http("POST", "/v1/chat/completions", headers, &body), async {
        let mut asked = reply_asked(&mut script).await;
        let computed = (asked.request.past_owner, asked.request.unsaved);
        asked.say("Good morning.");
        asked.done(Finish::Stop);
        computed
    });
    server.script = script;
    assert_eq!(answer.0, 200, "{}", answer.1);
    computed
}

/// Person whose session computed something: it tells guests nothing, and serves that person's other requests.
#[tokio::test]
async fn a_session_reuses_as_its_person_does() {
    let mut server = Server::with(by_header).await;
    let mut by = Vec::new();
    for (name, session) in [("anna", "new"), ("anna", ""), ("ben", "new"), ("", "new"), ("", "")] {
        let mut body = json!({ "messages": [{ "role": "user", "content": SISTER }] });
        if !session.is_empty() {
            body["metadata"] = json!({ "session_id": session });
        }
        let headers = [(NAME, name)];
        let (mut script, body) = (server.take_script(), body.to_string());
        let headers = if name.is_empty() { &headers[..0] } else { &headers };
        let (answer, reused_by) = tokio::join!(server.http("POST", "/v1/chat/completions", headers, &body), async {
            let mut asked = reply_asked(&mut script).await;
            asked.say("I see.");
            asked.done(Finish::Stop);
            asked.request.reused_by
        });
        server.script = script;
        assert_eq!(answer.0, 200, "{}", answer.1);
        by.push(reused_by.expect("a part of the user"));
    }
    assert!(by[0] == by[1] && by[3] == by[4], "{by:?}");
    assert!(by[0] != by[2] && by[0] != by[3] && by[2] != by[3], "{by:?}");
    server.stop().await;
}
