//! `kill -9` in the middle of conversations with the real binary: what was acknowledged is found again, and nothing is
//! there that was not about to be sent. `REPRISE_KILLS=200` kills as often, `REPRISE_SEED=7` at other moments.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tests::client::{Client, PATIENCE, user, words};
use tests::http::try_http;
use tests::random::{Random, number};
use tests::service::{Service, check_store};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

const KILLS: u64 = 20;
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
/// Turns before a new session begins, because long sessions are not tested here.
const TURNS_OF_A_SESSION: u64 = 10;
/// Words are written down just before they are sent.
const ABOUT_TO_BE_SENT_BYTES: usize = 100;
const EVENTS_UNTIL_KILL: u64 = 70;
const MICROSECONDS_UNTIL_KILL: u64 = 4000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_survives_a_kill_at_any_moment() {
    let kills = number("REPRISE_KILLS").unwrap_or(KILLS);
    let mut random = Random(number("REPRISE_SEED").unwrap_or(SEED));
    let mut sessions: Vec<Session> = Vec::new();
    let mut folder = tempfile::tempdir().unwrap();
    for round in 0..kills {
        if sessions.last().is_none_or(|session| session.id.is_empty() || session.turns >= TURNS_OF_A_SESSION) {
            sessions.push(Session::default());
        }
        let session = sessions.last_mut().unwrap();
        let service = Service::in_folder(folder, &[]).await;
        let client = match session.id.as_str() {
            "" => service.connect("?extensions=reprise").await,
            id => service.connect(&format!("?extensions=reprise&session={id}")).await,
        };
        let (now, killed_at) = oneshot::channel::<()>();
        let delay = Duration::from_micros(random.below(MICROSECONDS_UNTIL_KILL));
        let killed = tokio::spawn(async move {
            killed_at.await.expect("every conversation is cut off");
            sleep(delay).await;
            service.kill().await
        });
        let mut talk = Talk {
            client,
            session,
            events_until_kill: random.below(EVENTS_UNTIL_KILL),
            now: Some(now),
            sent_all: true,
        };
        talk.until_cut_off(round).await;
        let sent_all = talk.sent_all;
        folder = timeout(PATIENCE, killed).await.expect("it dies").unwrap();
        check_store(folder.path()).await;
        if !session.id.is_empty() {
            let service = Service::in_folder(folder, &[]).await;
            session.examine(&service, round, sent_all).await;
            folder = service.stop().await;
        }
    }
    let service = Service::in_folder(folder, &[]).await;
    for session in sessions.iter_mut().filter(|session| !session.id.is_empty()) {
        session.examine(&service, kills, true).await;
    }
    service.stop().await;
    let (mut items, mut replies) = (0, 0);
    for item in sessions.iter().flat_map(|session| session.items.values()) {
        items += 1;
        replies += usize::from(item.is_reply);
    }
    println!("{kills} kills, {} sessions, {items} items, {replies} of them replies", sessions.len());
    assert!(
        items as u64 > kills && replies as u64 > kills / 2,
        "{items} items, {replies} replies: too few to mean much"
    );
}

/// Retries that are sent, each after a kill at another moment of its first attempt.
const RETRIES: u64 = 10;
const MICROSECONDS_OF_A_REQUEST: u64 = 120_000;

/// A stock client that got no answer sends its request again: whatever the kill cut off, it is stored once and answered once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_a_kill_is_stored_once() {
    let mut random = Random(number("REPRISE_SEED").unwrap_or(SEED));
    let mut folder = tempfile::tempdir().unwrap();
    let mut session = "new".to_owned();
    for round in 0..number("REPRISE_KILLS").unwrap_or(RETRIES) {
        let service = Service::in_folder(folder, &[]).await;
        let said = format!("Good morning, this is request {round}.");
        let wanted = if round % 2 == 0 { "new" } else { session.as_str() };
        let body = json!({ "max_tokens": 8, "messages": [{ "role": "user", "content": said }],
            "metadata": { "session_id": wanted } });
        let (address, text) = (service.address.clone(), body.to_string());
        let first = tokio::spawn(async move {
            let headers = [("content-type", "application/json"), ("x-stainless-retry-count", "0")];
            try_http(&address, "POST", "/v1/chat/completions", &headers, &text).await
        });
        sleep(Duration::from_micros(random.below(MICROSECONDS_OF_A_REQUEST))).await;
        folder = service.kill().await;
        let _ = first.await.unwrap();
        let service = Service::in_folder(folder, &[]).await;
        let headers = [("content-type", "application/json"), ("x-stainless-retry-count", "1")];
        let (status, answer) = service.http("POST", "/v1/chat/completions", &headers, &body.to_string()).await;
        assert_eq!(status, 200, "round {round}: {answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        session = answer["reprise"]["session_id"].as_str().unwrap().to_owned();
        let mut stored = Vec::new();
        for line in service.get("/v1/sessions?limit=100").await["data"].as_array().unwrap() {
            let items = service.get(&format!("/v1/sessions/{}/items", line["id"].as_str().unwrap())).await;
            let texts = items["data"].as_array().unwrap().iter().map(|item| {
                let role = item["body"]["role"].as_str().unwrap_or_default();
                format!("{role}: {}", item["body"]["parts"][0]["text"].as_str().unwrap_or_default())
            });
            let texts: Vec<String> = texts.collect();
            let at = texts.iter().position(|text| text.ends_with(&said));
            stored.extend(at.into_iter().flat_map(|at| texts[at..].to_vec()));
        }
        let reply = answer["choices"][0]["message"]["content"].as_str().unwrap();
        // The random model may say nothing.
        let mut expected = vec![format!("user: {said}"), format!("assistant: {reply}")];
        expected.truncate(if reply.is_empty() { 1 } else { 2 });
        assert_eq!(stored, expected, "round {round}");
        folder = service.kill().await;
    }
}

#[derive(Default)]
struct Session {
    /// Empty until the service told it.
    id: String,
    turns: u64,
    items: BTreeMap<String, Expected>,
    /// More than one while a change is not acknowledged.
    instructions: Vec<String>,
}

struct Expected {
    is_reply: bool,
    /// Its words may be one of these; None: it need not, or must not, be there.
    may_be: Vec<Option<String>>,
    /// A reply that is being sent: what came of it.
    heard: Option<String>,
}

impl Session {
    /// Compares with what the service says now; from then on, that is what must be.
    async fn examine(&mut self, service: &Service, round: u64, sent_all: bool) {
        let (id, mut there) = (&self.id, BTreeMap::new());
        let session = service.get(&format!("/v1/sessions/{id}")).await;
        let instructions = session["session"]["instructions"].as_str().unwrap().to_owned();
        if !self.instructions.is_empty() {
            assert!(
                self.instructions.contains(&instructions),
                "round {round}: {instructions:?}: {:?}",
                self.instructions
            );
        }
        self.instructions = vec![instructions];
        let mut path = format!("/v1/sessions/{id}/items");
        loop {
            let page = service.get(&path).await;
            for item in page["data"].as_array().unwrap() {
                there.insert(item["item_id"].as_str().unwrap().to_owned(), item.clone());
            }
            let Some(after) = page["after"].as_str() else { break };
            path = format!("/v1/sessions/{id}/items?after={after}");
        }
        for (id, expected) in &mut self.items {
            let item = there.remove(id);
            let text = item.as_ref().map(text_of);
            match expected.heard.take() {
                // Words are written first and sent then: nothing that was heard is lost.
                Some(heard) => {
                    let stored = text.clone().unwrap_or_default();
                    let unheard = stored.strip_prefix(&heard).map(str::len);
                    let fits = unheard.is_some_and(|bytes| bytes <= ABOUT_TO_BE_SENT_BYTES || !sent_all);
                    assert!(fits, "round {round}: {id}: heard {heard:?}, stored {stored:?}");
                }
                None => {
                    let fits = expected.may_be.contains(&text);
                    assert!(fits, "round {round}: {id} is {text:?}, and may be {:?}", expected.may_be);
                }
            }
            if let Some(item) = item {
                assert_ne!(item["status"], "in_progress", "round {round}: {item:#}");
            }
            expected.may_be = vec![text];
        }
        // A reply may have been stored before its first event was heard.
        assert!(there.len() <= 1, "round {round}: nobody said these: {there:#?}");
        for (id, item) in there {
            assert_eq!(item["body"]["role"], json!("assistant"), "round {round}: {item:#}");
            let text = text_of(&item);
            assert!(text.len() <= ABOUT_TO_BE_SENT_BYTES || !sent_all, "round {round}: {text:?} was never sent");
            self.items.insert(id, Expected { is_reply: true, may_be: vec![Some(text)], heard: None });
        }
    }

    fn requested(&mut self, id: &str, text: Option<&str>) {
        let text = text.map(str::to_owned);
        match self.items.get_mut(id) {
            Some(expected) => expected.may_be.push(text),
            None => {
                let may_be = vec![None, text];
                self.items.insert(id.to_owned(), Expected { is_reply: false, may_be, heard: None });
            }
        }
    }

    fn acknowledged(&mut self, id: &str, may_be: Vec<Option<String>>) {
        let expected = self.items.get_mut(id).expect("only what was asked for is acknowledged");
        (expected.may_be, expected.heard) = (may_be, None);
    }
}

fn text_of(item: &Value) -> String {
    let parts = item["body"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter_map(|part| part["text"].as_str()).collect()
}

struct Talk<'a> {
    client: Client,
    session: &'a mut Session,
    events_until_kill: u64,
    now: Option<oneshot::Sender<()>>,
    /// False when the connection broke while something was said: then not all that was sent to us may have come.
    sent_all: bool,
}

struct CutOff;

impl Talk<'_> {
    async fn until_cut_off(&mut self, round: u64) {
        let mut turn = 0;
        while self.turn(&format!("r{round}t{turn}"), turn).await.is_ok() {
            turn += 1;
        }
        self.session.turns += turn;
        while self.hear().await.is_ok() {}
    }

    async fn turn(&mut self, name: &str, turn: u64) -> Result<(), CutOff> {
        if self.session.id.is_empty() {
            self.until("session.created").await?;
        }
        let instructions = format!("You are {name}.");
        self.session.instructions.push(instructions.clone());
        self.say(json!({"type": "session.update", "session": {"type": "realtime", "instructions": instructions}}))
            .await;
        self.until("session.updated").await?;

        let question = format!("What is {name}?");
        let mut event = user(&question);
        event["item"]["id"] = json!(name);
        self.session.requested(name, Some(&question));
        self.say(event).await;
        self.until("conversation.item.added").await?;

        self.say(json!({"type": "response.create", "response": {"max_output_tokens": 12}})).await;
        if turn % 3 == 1 {
            // It may be over already, which is an error that says so.
            self.until("response.created").await?;
            self.say(json!({"type": "response.cancel"})).await;
        }
        let response = self.until("response.done").await?["response"].clone();
        let Some(item) = response["output"].as_array().and_then(|output| output.first()) else { return Ok(()) };
        let (id, said) = (item["id"].as_str().unwrap(), words(item));
        match turn % 3 {
            1 if said.chars().count() > 3 => {
                let heard: String = said.chars().take(3).collect();
                self.session.requested(id, Some(&heard));
                let truncate = json!({"type": "conversation.item.truncate", "item_id": id, "content_index": 0,
                    "text_end": 3});
                self.say(truncate).await;
                self.until("conversation.item.truncated").await?;
                self.session.acknowledged(id, vec![Some(heard)]);
            }
            2 => {
                // As LiveKit says what was heard: one right after the other.
                let heard = "This much was heard";
                self.session.requested(id, None);
                self.session.requested(id, Some(heard));
                self.say(json!({"type": "conversation.item.delete", "item_id": id})).await;
                self.say(json!({"type": "conversation.item.create", "previous_item_id": name, "item": {
                    "id": id, "type": "message", "role": "assistant",
                    "content": [{"type": "output_text", "text": heard}],
                }}))
                .await;
                self.until("conversation.item.deleted").await?;
                self.session.acknowledged(id, vec![None, Some(heard.to_owned())]);
                let added = self.until("conversation.item.added").await?;
                assert_eq!((&added["item"]["id"], &added["previous_item_id"]), (&json!(id), &json!(name)));
            }
            _ => {}
        }
        Ok(())
    }

    async fn say(&mut self, event: Value) {
        let message = tokio_tungstenite::tungstenite::Message::text(event.to_string());
        self.sent_all &= self.client.send(message).await.is_ok();
    }

    async fn until(&mut self, kind: &str) -> Result<Value, CutOff> {
        loop {
            let event = self.hear().await?;
            if event["type"] == kind {
                return Ok(event);
            }
        }
    }

    /// The next event, and what it promises.
    async fn hear(&mut self) -> Result<Value, CutOff> {
        if self.events_until_kill == 0
            && let Some(now) = self.now.take()
        {
            now.send(()).expect("somebody waits to kill");
        }
        let event = self.client.next().await.map_err(|_| CutOff)?;
        self.events_until_kill = self.events_until_kill.saturating_sub(1);
        let session = &mut *self.session;
        match event["type"].as_str().unwrap() {
            "session.created" => session.id = event["session"]["id"].as_str().unwrap().to_owned(),
            "session.updated" => {
                let instructions = event["session"]["instructions"].as_str().unwrap();
                session.instructions = vec![instructions.to_owned()];
            }
            "response.output_item.added" => {
                let id = event["item"]["id"].as_str().unwrap().to_owned();
                let expected = Expected { is_reply: true, may_be: Vec::new(), heard: Some(String::new()) };
                session.items.insert(id, expected);
            }
            "response.output_text.delta" => {
                let expected = session.items.get_mut(event["item_id"].as_str().unwrap()).expect("it was added");
                let heard = expected.heard.as_mut().expect("it is not done");
                heard.push_str(event["delta"].as_str().unwrap());
            }
            "response.done" => {
                for item in event["response"]["output"].as_array().unwrap() {
                    session.acknowledged(item["id"].as_str().unwrap(), vec![Some(words(item))]);
                }
            }
            "conversation.item.added" => {
                let id = event["item"]["id"].as_str().unwrap();
                // Replies are added empty; those of the past, told after a restart, are as they are known.
                if session.items.get(id).is_some_and(|item| item.heard.is_none()) {
                    session.acknowledged(id, vec![Some(words(&event["item"]))]);
                }
            }
            "error" => assert_eq!(event["error"]["code"], "response_cancel_not_active", "{event:#}"),
            _ => {}
        }
        Ok(event)
    }
}
