//! Conversations of clients that send all of it with each request: kept as their person's or room's, recognised the next time,
//! and gone on with where the configuration says so.

use crate::client::PATIENCE;
use crate::support::{Chat, Server, open};
use serde_json::{Value, json};
use session::{Finish, ItemBody};
use settings::Settings;
use store::{SessionRecord, Store};
use tempfile::TempDir;

pub struct Frontend {
    pub path: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub log: Vec<Value>,
}

impl Frontend {
    pub fn in_room(room: &str) -> Frontend {
        let system = format!("Be brief.\nYou are in area {room} (floor Ground) and all generic commands");
        Frontend { path: "/api/chat", headers: Vec::new(), log: vec![json!({ "role": "system", "content": system })] }
    }

    fn push(&mut self, role: &str, content: &str) {
        self.log.push(json!({ "role": role, "content": content }));
    }

    /// Sends its log. The model answers with words, or calls a tool where they begin with an exclamation mark.
    async fn send(&self, server: &mut Server, reply: &str, more: Value) -> (Vec<(String, String)>, Value) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        let mut body = json!({ "model": "test-model", "stream": false, "messages": self.log });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut request = client.post(format!("http://{}{}", server.address, self.path)).body(body.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answer = tokio::spawn(async move { request.send().await.unwrap().text().await.unwrap() });
        let mut asked = server.reply_asked().await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let prompt = asked.chat().messages.iter().map(|said| (text(&said["role"]), text(&said["content"]))).collect();
        match reply.strip_prefix('!') {
            Some(name) => asked.call(name, r#"{"area":"x","name":""}"#),
            None => asked.say(reply),
        }
        asked.done(Finish::Stop);
        (prompt, serde_json::from_str(&answer.await.unwrap()).unwrap())
    }

    pub async fn says(&mut self, server: &mut Server, text: &str, reply: &str) -> Vec<(String, String)> {
        self.push("user", text);
        let (prompt, answer) = self.send(server, reply, json!({})).await;
        let said = &answer["message"];
        let said = if said.is_object() { said.clone() } else { answer["choices"][0]["message"].clone() };
        assert_eq!(said["content"], reply, "what the client is told is the reply: {answer}");
        self.push("assistant", reply);
        prompt
    }
}

async fn kept(store: &Store) -> Vec<(SessionRecord, Vec<String>)> {
    let mut lines = store.list_sessions("local", None, 100).await.unwrap();
    lines.sort_by_key(|line| line.session.created_at_ms);
    let mut all = Vec::new();
    for line in lines {
        let session = store.open_session("local", &line.session.id).await.unwrap();
        let items = store.items(&session, None, 1000).await.unwrap();
        let said = items.into_iter().map(|item| match item.body {
            ItemBody::Message { role, parts, .. } => format!("{role:?}: {}", parts.concat()).to_lowercase(),
            ItemBody::FunctionCall { name, .. } => format!("call: {name}"),
            ItemBody::FunctionCallOutput { output, .. } => format!("result: {output}"),
        });
        all.push((line.session, said.collect()));
    }
    all
}

async fn kept_after(server: Server) -> (TempDir, Vec<(SessionRecord, Vec<String>)>) {
    let folder = server.stop().await;
    let store = open(folder.path()).await;
    let all = kept(&store).await;
    store.close().await.unwrap();
    (folder, all)
}

fn said(texts: &[(SessionRecord, Vec<String>)]) -> Vec<Vec<&str>> {
    texts.iter().map(|(_, said)| said.iter().map(String::as_str).collect()).collect()
}

#[tokio::test]
async fn a_log_is_kept_once_whatever_stands_in_it() {
    let mut server = Server::start().await;
    let mut kitchen = Frontend::in_room("Kitchen");
    kitchen.says(&mut server, "Hi.", "Hello.").await;
    // A call, whose arguments the client writes anew, and its result.
    kitchen.push("user", "Light on.");
    kitchen.send(&mut server, "!turn_on", json!({})).await;
    kitchen.log.push(json!({
        "role": "assistant", "tool_calls": [{ "function": { "name": "turn_on", "arguments": { "area": "x" } } }],
    }));
    kitchen.push("tool", "done");
    let (_, answer) = kitchen.send(&mut server, "It is on.", json!({})).await;
    assert_eq!(answer["message"]["content"], "It is on.");
    kitchen.push("assistant", "It is on.");
    // What the home answered itself, and what went wrong there.
    kitchen.push("user", "What time is it?");
    kitchen.push("assistant", "It is 8:00.");
    kitchen.push("user", "And now?");
    kitchen.push("assistant", "Error: CancelledError");
    kitchen.says(&mut server, "Thanks.", "You are welcome.").await;
    // The time in the instructions changed.
    kitchen.log[0]["content"] = json!(kitchen.log[0]["content"].as_str().unwrap().to_owned() + "\nIt is 8:01.");
    kitchen.says(&mut server, "Bye.", "Bye.").await;
    let (_folder, all) = kept_after(server).await;
    assert_eq!(
        said(&all),
        [[
            "user: hi.",
            "assistant: hello.",
            "user: light on.",
            "call: turn_on",
            "result: done",
            "assistant: it is on.",
            "user: what time is it?",
            "assistant: it is 8:00.",
            "user: and now?",
            "assistant: error: cancellederror",
            "user: thanks.",
            "assistant: you are welcome.",
            "user: bye.",
            "assistant: bye.",
        ]]
    );
    let record = &all[0].0;
    assert_eq!((record.person.as_str(), record.room.as_str(), record.is_remembered), ("", "kitchen", true));
    assert!(record.config.instructions.contains("area Kitchen"), "{}", record.config.instructions);
}

#[tokio::test]
async fn what_is_no_conversation_is_not_kept() {
    let mut server = Server::start().await;
    let says = |frontend: &mut Frontend| frontend.push("user", "Hi.");
    // No rule knows it.
    let mut guest = Frontend::in_room("Kitchen");
    guest.log.clear();
    guest.says(&mut server, "Hi.", "Hello.").await;
    // Home Assistant's look whether there is an answer, a task beside, and what may wait.
    let mut probe = Frontend::in_room("Kitchen");
    probe.path = "/v1/chat/completions";
    says(&mut probe);
    probe.send(&mut server, "Paris", json!({ "max_tokens": 3 })).await;
    probe.send(&mut server, "Paris", json!({ "service_tier": "flex" })).await;
    probe.send(&mut server, "Paris", json!({ "metadata": { "private": "true" } })).await;
    let mut private = Frontend::in_room("Kitchen");
    private.headers.push(("x-reprise-private", "true".to_owned()));
    private.says(&mut server, "Hi.", "Hello.").await;
    let mut task = Frontend::in_room("Kitchen");
    task.push("user", "### Task:\nFind a title.");
    task.send(&mut server, "Lamps", json!({})).await;
    // Nothing was said.
    let empty = server.http("POST", "/api/chat", &[], r#"{"model":"test-model"}"#).await;
    assert_eq!(empty.0, 200);
    let (folder, all) = kept_after(server).await;
    assert_eq!(said(&all), Vec::<Vec<&str>>::new());
    // And nothing at all, where the configuration says so.
    let none = |settings: &mut Settings| settings.remember.conversations = settings::KeptConversations::None;
    let mut server = Server::in_folder(folder, none).await;
    Frontend::in_room("Kitchen").says(&mut server, "Hi.", "Hello.").await;
    let (_folder, all) = kept_after(server).await;
    assert_eq!(said(&all), Vec::<Vec<&str>>::new());
}

/// A client that hangs up keeps what was heard in its log; a stock client sends again what it got no answer to.
#[tokio::test]
async fn cut_replies_and_retries() {
    let mut server = Server::start().await;
    let mut hall = Frontend::in_room("Hall");
    hall.path = "/v1/chat/completions";
    hall.says(&mut server, "Tell me about rain.", "Rain falls. It is wet. It is cold.").await;
    // It heard the begin.
    hall.log.last_mut().unwrap()["content"] = json!("Rain falls. It is…");
    hall.says(&mut server, "Stop.", "Very well.").await;
    hall.push("user", "Go on.");
    let first = hall.send(&mut server, "It snows.", json!({})).await;
    hall.headers.push(("x-stainless-retry-count", "1".to_owned()));
    let again = hall.send(&mut server, "It snows.", json!({})).await;
    assert_eq!(first.0, again.0);
    hall.headers.clear();
    hall.push("assistant", "It snows.");
    hall.says(&mut server, "Good.", "Yes.").await;
    // It goes back to an earlier place: another conversation, which begins alike.
    hall.log.truncate(3);
    hall.says(&mut server, "And the sun?", "It shines.").await;
    let (_folder, all) = kept_after(server).await;
    let begin = ["user: tell me about rain.", "assistant: rain falls. it is"];
    assert_eq!(
        said(&all),
        [
            [
                &begin[..],
                &["user: stop.", "assistant: very well.", "user: go on.", "assistant: it snows.", "user: good."],
                &["assistant: yes."],
            ]
            .concat(),
            vec![begin[0], "assistant: rain falls. it is…", "user: and the sun?", "assistant: it shines."],
        ]
    );
}

/// A stock client that got no answer sends its log again, also after a restart: the turn is kept once.
#[tokio::test]
async fn a_retry_after_a_restart_is_kept_once() {
    let mut server = Server::start().await;
    let mut hall = Frontend::in_room("Hall");
    hall.path = "/v1/chat/completions";
    hall.push("user", "Tell me about rain.");
    hall.send(&mut server, "Rain falls.", json!({})).await;
    let mut server = Server::in_folder(server.stop().await, |_| {}).await;
    hall.headers.push(("x-stainless-retry-count", "1".to_owned()));
    hall.send(&mut server, "It falls.", json!({})).await;
    hall.headers.clear();
    // The client goes on from the answer that it heard.
    hall.push("assistant", "It falls.");
    hall.says(&mut server, "Good.", "Yes.").await;
    let (_folder, all) = kept_after(server).await;
    assert_eq!(said(&all).len(), 1, "{:?}", said(&all));
    assert_eq!(said(&all)[0].iter().filter(|line| line.contains("tell me")).count(), 1, "{:?}", said(&all));
}

/// Home Assistant cuts a long log at its front.
#[tokio::test]
async fn a_log_that_was_cut_is_recognised_by_its_last_messages() {
    let mut server = Server::start().await;
    let mut office = Frontend::in_room("Office");
    for turn in 0..4 {
        office.says(&mut server, &format!("Question {turn}."), &format!("Answer {turn}.")).await;
    }
    for turn in 4..8 {
        office.log.drain(1..3);
        office.says(&mut server, &format!("Question {turn}."), &format!("Answer {turn}.")).await;
    }
    let folder = server.stop().await;
    // A restart changes nothing.
    let mut server = Server::in_folder(folder, |_| {}).await;
    office.log.drain(1..3);
    office.says(&mut server, "Question 8.", "Answer 8.").await;
    let (_folder, all) = kept_after(server).await;
    let wanted: Vec<String> =
        (0..9).flat_map(|turn| [format!("user: question {turn}."), format!("assistant: answer {turn}.")]).collect();
    assert_eq!(all.into_iter().map(|(_, said)| said).collect::<Vec<_>>(), [wanted]);
}

/// Two rooms and two persons whose words are alike, in any order: none has a word of another.
#[tokio::test]
async fn no_two_speakers_share_a_conversation() {
    let mut server = Server::with(|settings| {
        let text =
            r#"[{ person = "*", header = "x-name" }, { room = "*", instructions = "You are in area {name} (floor" }]"#;
        let environment = [("REPRISE__REMEMBER__WHO".to_owned(), text.to_owned())].into();
        let sources = settings::Sources { environment, ..settings::Sources::default() };
        settings.remember.who = Settings::load(&sources).unwrap().settings.remember.who;
        settings.conversation.continue_minutes = 60;
    })
    .await;
    let mut random = 816_u64;
    let mut next = |most: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most
    };
    let new = |speaker: usize| {
        let mut frontend = Frontend::in_room(["Kitchen", "Hall"][speaker % 2]);
        if speaker >= 2 {
            frontend.headers.push(("x-name", ["Anna", "Ben"][speaker - 2].to_owned()));
        }
        frontend
    };
    let mut frontends: Vec<Frontend> = (0..4).map(new).collect();
    let mut heard = vec![Vec::new(); 4];
    for turn in 0..60 {
        let speaker = next(4);
        if next(5) == 0 {
            // Its client forgets.
            frontends[speaker] = new(speaker);
        }
        // The first words are everywhere the same.
        let (question, answer) = match next(3) {
            0 => ("Hi.".to_owned(), "Hello.".to_owned()),
            _ => (format!("Question {turn} of {speaker}."), format!("Answer {turn} to {speaker}.")),
        };
        let prompt = frontends[speaker].says(&mut server, &question, &answer).await;
        for (_, text) in &prompt {
            for other in (0..4).filter(|other| *other != speaker) {
                let is_others = text.contains(&format!("of {other}.")) || text.contains(&format!("to {other}."));
                assert!(!is_others, "speaker {speaker} is told {text}");
            }
        }
        heard[speaker]
            .extend([format!("user: {question}").to_lowercase(), format!("assistant: {answer}").to_lowercase()]);
    }
    let (_folder, all) = kept_after(server).await;
    let names = [("", "kitchen"), ("", "hall"), ("anna", ""), ("ben", "")];
    for (record, said) in &all {
        let name = (record.person.as_str(), record.room.as_str());
        let speaker = names.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name:?}"));
        assert!(said.iter().all(|text| heard[speaker].contains(text)), "{name:?}: {said:?}");
    }
    for (speaker, name) in names.iter().enumerate() {
        let of_speaker = all.iter().filter(|(record, _)| (record.person.as_str(), record.room.as_str()) == *name);
        let mut kept: Vec<&String> = of_speaker.flat_map(|(_, said)| said).collect();
        let mut wanted: Vec<&String> = heard[speaker].iter().collect();
        kept.sort();
        wanted.sort();
        assert_eq!(kept, wanted, "{name:?} has all that was said, once");
    }
}

/// A new conversation goes on with the last one of the same room: the prompt has it, the client's log is left alone.
#[tokio::test]
async fn a_new_conversation_goes_on_with_the_last_one() {
    let go_on = |settings: &mut Settings| {
        settings.remember.who.iter_mut().for_each(|rule| rule.continue_minutes = Some(30));
    };
    let mut server = Server::with(go_on).await;
    Frontend::in_room("Kitchen").says(&mut server, "My cat is called Momo.", "A fine name.").await;
    Frontend::in_room("Hall").says(&mut server, "Hi.", "Hello.").await;
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, go_on).await;
    let mut kitchen = Frontend::in_room("Kitchen");
    let texts = |prompt: &[(String, String)]| {
        // Facts are another matter.
        let said = prompt[1..].iter().filter(|(_, text)| !text.starts_with("[Note"));
        said.map(|(_, text)| text.clone()).collect::<Vec<_>>()
    };
    let before = ["My cat is called Momo.", "A fine name."];
    let prompt = kitchen.says(&mut server, "What is my cat called?", "Momo.").await;
    assert_eq!(texts(&prompt), [&before[..], &["What is my cat called?"]].concat());
    let prompt = kitchen.says(&mut server, "Really?", "Yes.").await;
    assert_eq!(texts(&prompt), [&before[..], &["What is my cat called?", "Momo.", "Really?"]].concat());
    // The hall knows nothing of it, and a client without the rule goes on with nothing.
    let prompt = Frontend::in_room("Hall").says(&mut server, "And my cat?", "Which one?").await;
    assert_eq!(texts(&prompt), ["Hi.", "Hello.", "And my cat?"]);
    let (folder, all) = kept_after(server).await;
    assert_eq!(said(&all)[0].len(), 6, "one conversation of the kitchen");
    assert_eq!(all.len(), 2);
    let mut server = Server::in_folder(folder, |_| {}).await;
    let prompt = Frontend::in_room("Kitchen").says(&mut server, "And my cat?", "Which one?").await;
    assert_eq!(texts(&prompt), ["And my cat?"]);
    // Half of the window is for what was said before, and whole turns leave.
    let (folder, _) = kept_after(server).await;
    let small = |settings: &mut Settings| {
        go_on(settings);
        let preset = settings.presets.get_mut("default").unwrap();
        *preset = preset.with_ctx_size(400);
    };
    let mut server = Server::in_folder(folder, small).await;
    let long = "word ".repeat(180);
    let mut kitchen = Frontend::in_room("Kitchen");
    kitchen.says(&mut server, &long, "Many words.").await;
    let prompt = Frontend::in_room("Kitchen").says(&mut server, "Short.", "Yes.").await;
    assert_eq!(texts(&prompt), [long.as_str(), "Many words.", "Short."], "older turns have left");
    let prompt = Frontend::in_room("Kitchen").says(&mut server, &"other ".repeat(190), "Yes.").await;
    assert_eq!(texts(&prompt).len(), 3, "only the last turn has room: {prompt:?}");
    server.stop().await;
}

/// Checks that a person's conversations are deleted with the person, and that the client's next log begins a new one.
#[tokio::test]
async fn a_deleted_room_is_not_recognised() {
    let mut server = Server::start().await;
    let mut kitchen = Frontend::in_room("Kitchen");
    kitchen.says(&mut server, "My cat is called Momo.", "A fine name.").await;
    kitchen.says(&mut server, "Yes.", "Indeed.").await;
    kitchen.says(&mut server, "Good.", "Very.").await;
    let deleted = loop {
        let (status, answer) = server.http("DELETE", "/v1/persons/kitchen", &[], "").await;
        if status == 200 {
            break answer;
        }
    };
    assert_eq!(deleted["sessions"], 1);
    kitchen.log.drain(1..);
    kitchen.says(&mut server, "Hi.", "Hello.").await;
    let (_folder, all) = kept_after(server).await;
    assert_eq!(said(&all), [["user: hi.", "assistant: hello."]]);
}

#[tokio::test]
async fn what_was_told_in_one_room_is_known_in_the_other() {
    for fits in [true, false] {
        let small = move |settings: &mut Settings| {
            settings.conversation.recall_wait_ms = 10_000;
            if !fits {
                settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 1);
            }
        };
        let mut server = Server::with(small).await;
        let mut kitchen = Frontend::in_room("Kitchen");
        kitchen.says(&mut server, "My sister lives in Lisbon.", "How nice.").await;
        let told = kitchen.says(&mut server, "Where does my sister live?", "In Lisbon.").await;
        let times = |prompt: &[(String, String)]| prompt.iter().filter(|(_, text)| text.contains("Lisbon")).count();
        assert_eq!(times(&told), 1, "what the model sees is not told again: {told:?}");
        let mut study = Frontend::in_room("Study");
        let hello = study.says(&mut server, "Good morning.", "Good morning.").await;
        assert_eq!(times(&hello), usize::from(fits), "{hello:?}");
        let asked = study.says(&mut server, "Where does my sister live?", "In Lisbon.").await;
        assert_eq!(times(&asked), 1, "{asked:?}");
        let (_, note) = asked.iter().find(|(_, text)| text.contains("Lisbon")).unwrap();
        assert_eq!(note.contains("The user said before: "), !fits, "{note}");
        // What a person says is theirs.
        let mut anna = Frontend::in_room("Study");
        anna.log[0] = json!({ "role": "system", "content": "Be brief." });
        let asked = anna.says(&mut server, "Where does my sister live?", "I do not know.").await;
        assert_eq!(times(&asked), 0, "{asked:?}");
        server.stop().await;
    }
}
