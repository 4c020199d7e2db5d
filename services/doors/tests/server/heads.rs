//! Instructions that a client changes while its conversation goes on, and what stands in its prompts from turn to turn.

use crate::client::PATIENCE;
use crate::scripted::Asked;
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose, Priority};
use settings::{ChangedHeadChoice, KeptConversations, Learn, Settings};
use tokio::time::timeout;

const CHAT: &str = "/v1/chat/completions";

struct Writer {
    path: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    log: Vec<Value>,
}

type Said = Vec<(String, String)>;

fn home_assistant(path: &'static str) -> Writer {
    Writer { path, headers: vec![("user-agent", "HomeAssistant/2026.11 aiohttp/3")], log: Vec::new() }
}

fn api_client() -> Writer {
    Writer { path: CHAT, headers: vec![("user-agent", "curl/8")], log: Vec::new() }
}

fn head(first: &str) -> String {
    let rules = (0..30).map(|at| format!("Rule {at} stands as it stood.")).collect::<Vec<_>>().join("\n");
    format!("{first}\n{rules}")
}

impl Writer {
    async fn says(&mut self, server: &mut Server, head: &str, text: &str, reply: &str) -> (Said, Value) {
        self.log.push(json!({ "role": "user", "content": text }));
        let sent = self.send(server, head, reply).await;
        self.log.push(json!({ "role": "assistant", "content": reply }));
        sent
    }

    async fn send(&self, server: &mut Server, head: &str, reply: &str) -> (Said, Value) {
        let (answer, mut asked) = self.begin(server, head).await;
        let prompt = said(&asked);
        asked.prompt(900, 100);
        asked.say(reply);
        asked.done(Finish::Stop);
        (prompt, answer.await.unwrap())
    }

    async fn begin(&self, server: &mut Server, head: &str) -> (tokio::task::JoinHandle<Value>, Asked) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().timeout(PATIENCE).no_proxy().build().unwrap();
        let mut messages = vec![json!({ "role": "system", "content": head })];
        messages.extend(self.log.iter().cloned());
        let body = json!({ "model": "test-model", "stream": false, "messages": messages });
        let mut request = client.post(format!("http://{}{}", server.address, self.path)).body(body.to_string());
        for (name, value) in &self.headers {
            request = request.header(*name, *value);
        }
        let answer = tokio::spawn(async move {
            let text = request.send().await.unwrap().text().await.unwrap();
            serde_json::from_str(&text).expect(&text)
        });
        (answer, server.reply_asked().await)
    }
}

fn said(asked: &Asked) -> Said {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    asked.chat().messages.iter().map(|said| (text(&said["role"]), text(&said["content"]))).collect()
}

/// All but the question stands there, and the reply to it.
fn goes_on(before: &Said, reply: &str, after: &Said) {
    assert_eq!(after[..before.len()], before[..], "the prompt begins as the one before");
    assert_eq!(after[before.len()], ("assistant".to_owned(), reply.to_owned()));
}

fn noted(from: &str, to: &str) -> String {
    format!(
        "[Note of the system, not said by the user: Changed in your instructions. This holds now, whatever they or an earlier \
         note say:\n- no longer: {from}\n- now: {to}]"
    )
}

#[tokio::test]
async fn what_changed_stands_before_the_question_and_stays_there() {
    for path in [CHAT, "/api/chat"] {
        let mut server = Server::start().await;
        let mut client = home_assistant(path);
        let heads = ["It is 8:00.", "It is 8:01.", "It is 8:02."].map(head);
        let (first, end) = client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
        assert_eq!((first.len(), &first[0].1), (2, &heads[0]));
        assert_eq!(end["reprise"]["notes"], Value::Null, "{end}");
        let (second, end) = client.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
        goes_on(&first, "Hello.", &second);
        let note = noted("It is 8:00.", "It is 8:01.");
        assert_eq!(
            second[3..],
            [("user".to_owned(), note.clone()), ("user".to_owned(), "What time is it?".to_owned())]
        );
        let told = &end["reprise"]["notes"];
        assert!(note.contains(told["changed_head"].as_str().unwrap()) && told["changed_lines"] == 2, "{end}");
        let (third, _) = client.says(&mut server, &heads[2], "And now?", "8:02.").await;
        goes_on(&second, "8:01.", &third);
        assert_eq!(third[third.len() - 2].1, noted("It is 8:00.", "It is 8:02."));
        // Nothing changed since, then all is as it was at first, and stays so.
        let (fourth, _) = client.says(&mut server, &heads[2], "Thanks.", "Yes.").await;
        goes_on(&third, "8:02.", &fourth);
        assert_eq!(fourth.len(), third.len() + 2, "{fourth:?}");
        let (fifth, _) = client.says(&mut server, &heads[0], "And now?", "8:00.").await;
        goes_on(&fourth, "Yes.", &fifth);
        assert!(fifth[fifth.len() - 2].1.contains("Your instructions hold again"), "{fifth:?}");
        let (sixth, _) = client.says(&mut server, &heads[0], "Good.", "Yes.").await;
        goes_on(&fifth, "8:00.", &sixth);
        assert_eq!(sixth.len(), fifth.len() + 2, "{sixth:?}");
        // What the service shows of a conversation that it kept is the client's own.
        server.stop().await;
    }
}

#[tokio::test]
async fn an_api_client_has_its_own_words_and_learns_what_a_note_would_save() {
    let mut server = Server::start().await;
    let mut client = api_client();
    let heads = ["It is 8:00.", "It is 8:01."].map(head);
    client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
    let (second, end) = client.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
    assert_eq!((second.len(), &second[0].1), (4, &heads[1]));
    // 800 were computed. The question and a note would have been: four tokens around each, and a word a token.
    let notes = &end["reprise"]["notes"];
    let saved = notes["would_save_tokens"].as_u64().unwrap();
    assert!((740..=780).contains(&saved) && notes["changed_head"].is_null(), "{end}");
    let (_, end) = client.says(&mut server, &heads[1], "And now?", "8:01.").await;
    assert_eq!(end["reprise"]["notes"], Value::Null, "nothing changed: {end}");
    server.stop().await;
    // A preset may say otherwise, of both.
    for (choice, mut client) in
        [(ChangedHeadChoice::Notes, api_client()), (ChangedHeadChoice::Exact, home_assistant(CHAT))]
    {
        let change = |settings: &mut Settings| {
            settings.presets.values_mut().for_each(|preset| preset.prompt.changed_head = choice);
        };
        let mut server = Server::with(change).await;
        client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
        let (second, _) = client.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
        assert_eq!(second[0].1 == heads[0], choice == ChangedHeadChoice::Notes, "{choice:?}");
        server.stop().await;
    }
}

/// Checks that no prompt contains another client's instructions, even where the two are nearly the same.
#[tokio::test]
async fn no_client_reads_what_another_was_told() {
    let mut server = Server::start().await;
    let secret = head("The code of Ann is 4711.");
    home_assistant(CHAT).says(&mut server, &secret, "Hi.", "Hello.").await;
    let other_agent = ("user-agent", "HomeAssistant/2026.12 aiohttp/3");
    let clients = [vec![other_agent], vec![("user-agent", "Home Assistant (other)")]];
    for headers in clients {
        let mut other = Writer { headers, ..home_assistant(CHAT) };
        let (prompt, _) = other.says(&mut server, &head("The code of Ben is 1234."), "Hi.", "Hello.").await;
        assert!(!format!("{prompt:?}").contains("4711") && prompt.len() == 2, "{prompt:?}");
    }
    let mut rooms =
        ["Kitchen", "Hall"].map(|room| format!("You are in area {room} (floor ground) and all generic commands"));
    rooms[0] += "\nThe code of the kitchen is 815.";
    home_assistant(CHAT).says(&mut server, &head(&rooms[0]), "Hi.", "Hello.").await;
    let (prompt, _) = home_assistant(CHAT).says(&mut server, &head(&rooms[1]), "Hi.", "Hello.").await;
    assert!(!format!("{prompt:?}").contains("815"), "{prompt:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_new_conversation_begins_behind_the_instructions_that_are_warm() {
    let mut server = Server::start().await;
    let heads = ["It is 8:00.", "It is 9:30."].map(head);
    home_assistant(CHAT).says(&mut server, &heads[0], "Hi.", "Hello.").await;
    let (next, _) = home_assistant(CHAT).says(&mut server, &heads[1], "What time is it?", "9:30.").await;
    assert_eq!((&next[0].1, &next[1].1), (&heads[0], &noted("It is 8:00.", "It is 9:30.")));
    let folder = server.stop().await;
    // After a restart the prompt is the client's own.
    let mut server = Server::in_folder(folder, |_| {}).await;
    let (next, _) = home_assistant(CHAT).says(&mut server, &heads[1], "What time is it?", "9:30.").await;
    assert_eq!((next.len(), &next[0].1), (2, &heads[1]));
    server.stop().await;
}

#[tokio::test]
async fn nothing_stands_of_what_is_private_deleted_or_not_to_be_kept() {
    let mut server = Server::start().await;
    let room = "You are in area Kitchen (floor ground) and all generic commands";
    let heads = ["It is 8:00.", "It is 8:01."].map(|time| head(&format!("{room}\n{time}")));
    let mut private = home_assistant(CHAT);
    private.headers.push(("x-reprise-private", "true"));
    for head in &heads {
        let (prompt, end) = private.says(&mut server, head, "What time is it?", "8:00.").await;
        assert_eq!((&prompt[0].1, &end["reprise"]["notes"]), (head, &Value::Null));
    }
    let mut kitchen = home_assistant(CHAT);
    kitchen.says(&mut server, &heads[0], "Hi.", "Hello.").await;
    while server.http("DELETE", "/v1/persons/kitchen", &[], "").await.0 != 200 {}
    let (prompt, _) = kitchen.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
    assert_eq!((prompt.len(), &prompt[0].1), (4, &heads[1]));
    server.stop().await;
    // What is deleted of a user may stand in a note.
    let mut server = Server::start().await;
    let (_, begun) = server.http("POST", "/v1/conversations", &[], "{}").await;
    let session = begun["id"].as_str().unwrap().to_owned();
    for path in ["/v1/memories?person=".to_owned(), format!("/v1/conversations/{session}")] {
        let mut client = home_assistant(CHAT);
        client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
        let (status, answer) = server.http("DELETE", &path, &[], "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        let (prompt, _) = client.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
        assert_eq!((prompt.len(), &prompt[0].1), (4, &heads[1]), "{path}");
    }
    server.stop().await;
    let mut server = Server::with(|settings| settings.prompt.kept_bytes = 0).await;
    let mut kitchen = home_assistant(CHAT);
    for head in &heads {
        let (prompt, _) = kitchen.says(&mut server, head, "What time is it?", "8:00.").await;
        assert_eq!(&prompt[0].1, head);
    }
    server.stop().await;
}

/// A note that has no room is left out, and the prompt is the client's own.
#[tokio::test]
async fn a_note_does_not_fill_a_window_that_the_client_keeps_within() {
    let small = |settings: &mut Settings| {
        let preset = settings.presets.get_mut("default").unwrap();
        *preset = preset.with_ctx_size(250);
    };
    let mut server = Server::with(small).await;
    let heads = ["It is 8:00.", "It is 8:01."].map(head);
    let mut client = home_assistant(CHAT);
    client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
    let (prompt, _) = client.says(&mut server, &heads[1], &"word ".repeat(30), "Yes.").await;
    assert_eq!((prompt.len(), &prompt[0].1), (4, &heads[1]));
    server.stop().await;
}

/// Checks that a note of the user's earlier words stays in its place, so that the next prompt continues the last one.
#[tokio::test]
async fn words_of_the_past_stay_before_their_question() {
    let home = |settings: &mut Settings| {
        settings.remember.conversations = KeptConversations::All;
        settings.conversation.recall_wait_ms = 10_000;
        for preset in settings.presets.values_mut() {
            (preset.remember.prompt_tokens, preset.remember.learn) = (1, Learn::Words);
        }
    };
    let mut server = Server::with(home).await;
    let head = head("You are at home.");
    let folder = {
        api_client().says(&mut server, &head, "My sister lives in Lisbon.", "How nice.").await;
        server.stop().await
    };
    let mut server = Server::in_folder(folder, home).await;
    let mut client = api_client();
    client.says(&mut server, &head, "Good morning.", "Good morning.").await;
    let (asked, end) = client.says(&mut server, &head, "Where does my sister live?", "In Lisbon.").await;
    let told = "The user said before: My sister lives in Lisbon.";
    assert!(asked[3].1.contains(told) && asked.len() == 5, "{asked:?}");
    assert_eq!(end["reprise"]["notes"]["recall"], told, "{end}");
    let (next, end) = client.says(&mut server, &head, "Thanks.", "You are welcome.").await;
    goes_on(&asked, "In Lisbon.", &next);
    assert_eq!(end["reprise"]["notes"], Value::Null);
    // The same question again is told the same, once.
    client.log.truncate(3);
    let (again, _) = client.send(&mut server, &head, "In Lisbon.").await;
    assert_eq!(again, asked);
    server.stop().await;
}

#[tokio::test]
async fn instructions_of_which_much_changed_are_read_in_the_silence_first() {
    let mut server = Server::start().await;
    let rules = |new: usize| {
        let line = |at: usize| format!("Rule {at} {}.", if at < new { "is new" } else { "stands" });
        (0..40).map(line).collect::<Vec<_>>().join("\n")
    };
    let mut client = home_assistant(CHAT);
    client.says(&mut server, &rules(0), "Hi.", "Hello.").await;
    client.log.push(json!({ "role": "user", "content": "And?" }));
    let (answer, mut asked) = client.begin(&mut server, &rules(8)).await;
    let prompt = said(&asked);
    assert_eq!((&prompt[0].1, prompt.len()), (&rules(0), 5));
    asked.say("Yes.");
    asked.done(Finish::Stop);
    answer.await.unwrap();
    client.log.push(json!({ "role": "assistant", "content": "Yes." }));
    let new_head = async {
        loop {
            let asked = server.script.next().await;
            if asked.request.priority == Priority::Background {
                return asked;
            }
        }
    };
    let mut read = timeout(PATIENCE, new_head).await.expect("it is read");
    assert_eq!((read.request.purpose, read.request.placeholders), (GenerationPurpose::WarmHistory, 1));
    let behind = said(&read);
    assert_eq!(behind[0].1, rules(8));
    let texts: Vec<&str> = behind[1..5].iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["Hi.", "Hello.", "And?", "Yes."], "nothing says any more how they differ");
    // As long as it is read, the old ones stand.
    let (waits, _) = client.says(&mut server, &rules(8), "Now?", "Soon.").await;
    assert_eq!(waits[0].1, rules(0));
    read.done(Finish::Warm);
    // The service hears of it beside the next requests.
    let taken = async {
        loop {
            let (prompt, _) = client.says(&mut server, &rules(8), "Now?", "Yes.").await;
            if prompt[0].1 == rules(8) {
                return prompt;
            }
        }
    };
    let taken = timeout(PATIENCE, taken).await.expect("they stand at the head");
    assert!(taken.iter().all(|(_, text)| !text.contains("Changed in your instructions")), "{taken:?}");
    server.stop().await;
}

/// Checks that the model reads the beginning of the next note in the silence. A clock then costs only its last words.
#[tokio::test]
async fn the_next_note_is_read_ahead() {
    let mut server = Server::start().await;
    let mut client = home_assistant(CHAT);
    let heads = ["It is 8:00.", "It is 8:01."].map(head);
    client.says(&mut server, &heads[0], "Hi.", "Hello.").await;
    let (second, _) = client.says(&mut server, &heads[1], "What time is it?", "8:01.").await;
    let ahead = async {
        loop {
            let mut asked = server.script.next().await;
            match asked.request.purpose {
                GenerationPurpose::WarmPartial => return asked,
                _ => asked.done(Finish::Warm),
            }
        }
    };
    let ahead = timeout(PATIENCE, ahead).await.expect("it is read");
    assert_eq!(ahead.request.priority, Priority::Speculate);
    let ahead = said(&ahead);
    goes_on(&second, "8:01.", &ahead);
    assert_eq!(ahead[ahead.len() - 1].1, noted("It is 8:00.", "It is 8:01."));
    assert_eq!(ahead.len(), second.len() + 2);
    server.stop().await;
}
