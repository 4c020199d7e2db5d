//! A conversation that outgrows its window, from the first full turn to the swap and back.

mod late;

use crate::client::{Client, PATIENCE};
use crate::scripted::{Asked, Script};
use crate::support::{Chat, Server};
use serde_json::{Value, json};
use session::{Failure, FailureCode, Finish, GenerationPurpose, Priority};
use settings::Settings;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use store::Summary;
use tokio::sync::mpsc;
use tokio::time::timeout;

const WINDOW: u32 = 1500;
const SUMMARY: &str =
    "## User\n- The user is called Ann and has the code 4711.\n## Now\n- They talk about number three.";

fn small_window(settings: &mut Settings) {
    settings.presets.values_mut().for_each(|preset| *preset = preset.with_ctx_size(WINDOW));
}

/// Words of the user for a reply that the test writes.
const SLOWLY: &str = "Take your time.";

struct Model {
    replies: Arc<Mutex<Vec<Vec<Value>>>>,
    tools: Arc<Mutex<Vec<usize>>>,
    summaries: Arc<Mutex<Vec<Vec<Value>>>>,
    warmed: Arc<Mutex<Vec<Vec<Value>>>>,
    order: Arc<Mutex<Vec<Priority>>>,
    held: mpsc::UnboundedReceiver<Asked>,
    owners: Arc<Mutex<BTreeSet<Option<u64>>>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Summariser {
    Writes,
    Fails,
    Held,
}

impl Model {
    fn play(mut script: Script, summariser: Arc<Mutex<Summariser>>) -> Model {
        let (hold, held) = mpsc::unbounded_channel();
        let model = Model {
            replies: Arc::default(),
            tools: Arc::default(),
            summaries: Arc::default(),
            warmed: Arc::default(),
            order: Arc::default(),
            owners: Arc::default(),
            held,
        };
        let (replies, tools) = (model.replies.clone(), model.tools.clone());
        let (summaries, warmed) = (model.summaries.clone(), model.warmed.clone());
        let (owners, order) = (model.owners.clone(), model.order.clone());
        tokio::spawn(async move {
            loop {
                let mut asked = script.next().await;
                let messages = asked.chat().messages.clone();
                owners.lock().unwrap().insert(asked.request.past_owner);
                order.lock().unwrap().push(asked.request.priority);
                match (asked.request.purpose, asked.request.priority) {
                    (GenerationPurpose::Reply, Priority::Background) => {
                        summaries.lock().unwrap().push(messages);
                        let summariser = *summariser.lock().unwrap();
                        match summariser {
                            Summariser::Writes => {
                                asked.say(SUMMARY);
                                asked.done(Finish::Stop);
                            }
                            Summariser::Fails => asked.fail(Failure::new(FailureCode::Busy, "no time")),
                            Summariser::Held => hold.send(asked).unwrap(),
                        }
                    }
                    (GenerationPurpose::Reply, _) if messages.last().is_some_and(|last| content(last) == SLOWLY) => {
                        hold.send(asked).unwrap();
                    }
                    (GenerationPurpose::Reply, _) if wants_a_search(&messages) => {
                        asked.prompt(count(&messages), 0);
                        asked.call("recall", "{\"query\": \"turn number\"}");
                        asked.done(Finish::Stop);
                    }
                    (GenerationPurpose::Reply, _) => {
                        tools.lock().unwrap().push(asked.chat().tools.len());
                        replies.lock().unwrap().push(messages.clone());
                        asked.prompt(count(&messages), 0);
                        asked.say("Understood, that is what you said just now, and I am listening to you.");
                        asked.done(Finish::Stop);
                    }
                    (_, Priority::Background) => {
                        warmed.lock().unwrap().push(messages);
                        asked.done(Finish::Warm);
                    }
                    _ => asked.done(Finish::Warm),
                }
            }
        });
        model
    }

    fn last_reply(&self) -> Vec<Value> {
        self.replies.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

fn wants_a_search(messages: &[Value]) -> bool {
    messages.last().is_some_and(|last| last["role"] == "user" && content(last).starts_with("Do you recall"))
}

fn count(messages: &[Value]) -> u64 {
    messages.iter().map(|message| 4 + content(message).split_whitespace().count() as u64).sum()
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

fn sentence(turn: usize) -> String {
    let words = "we are talking about this and that, and it takes a good while until all of it has been said out loud";
    format!("This is what I say for the turn with the number {turn}: {words}")
}

fn play(server: &mut Server, summariser: Summariser) -> (Model, Arc<Mutex<Summariser>>) {
    let summariser = Arc::new(Mutex::new(summariser));
    let script = server.take_script();
    (Model::play(script, summariser.clone()), summariser)
}

async fn event(client: &mut Client, kind: &str) -> Value {
    match client.heard.iter().find(|event| event["type"] == kind).cloned() {
        Some(event) => event,
        None => timeout(PATIENCE, client.until(kind))
            .await
            .unwrap_or_else(|_| panic!("no {kind}: {:#?}", client.heard.last())),
    }
}

async fn talk(client: &mut Client, turn: usize) {
    client.ask(&sentence(turn)).await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed", "{done:#}");
    client.until("turn.report").await;
}

/// Talks until the window is so full that it is compacted in the silence. Returns the number of the next turn.
async fn fill(client: &mut Client, from: usize) -> usize {
    for turn in from..from + 60 {
        talk(client, turn).await;
        let fill = client.heard.iter().rev().find(|event| event["type"] == "context.updated");
        // Three quarters of the window, with what is kept free for the reply.
        if fill.is_some_and(|fill| {
            fill["tokens"].as_u64() >= Some(u64::from(WINDOW) * 3 / 4 - u64::from(WINDOW) * 8 / 100)
        }) {
            return turn + 1;
        }
    }
    panic!("the window never fills");
}

#[tokio::test]
async fn a_full_window_is_compacted_in_the_silence() {
    let mut server = Server::with(small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    client.ask("Remember that my code is 4711.").await;
    client.until("turn.report").await;
    let turns = fill(&mut client, 1).await;
    let completed = event(&mut client, "compaction.completed").await;
    assert_eq!((&completed["version"], &completed["summary_id"]), (&json!(1), &json!("summary_1")));
    let [before, after] = ["tokens_before", "tokens_after"].map(|key| completed[key].as_u64().unwrap());
    assert!(before > after && after <= u64::from(WINDOW / 2), "{completed:#}");
    let told = |client: &Client| {
        let updated = client.heard.iter().filter(|event| event["type"] == "context.updated");
        updated.filter(|event| event["tokens"] == completed["tokens_after"]).count()
    };
    if told(&client) == 0 {
        client.until("context.updated").await;
    }
    assert_eq!(told(&client), 1);

    // The request was the conversation as the model had read it, and one message more.
    let request = model.summaries.lock().unwrap()[0].clone();
    let (asked, read) = request.split_last().unwrap();
    let before = model.last_reply();
    assert_eq!(read, &before[..read.len()], "what was read is not read again");
    assert!(content(asked).starts_with("(Memory)"), "{asked}");

    // The next prompt has the summary and the pin in a data role, and the last turns word for word. It was warm.
    client.ask(&sentence(turns)).await;
    client.until("response.done").await;
    let after = model.last_reply();
    assert_eq!(after[1]["role"], "tool");
    let memory = content(&after[1]);
    assert!(memory.contains("Ann") && memory.contains("Remember that my code is 4711."), "{memory}");
    assert_eq!(after[2]["role"], "user");
    assert!(
        after.len() < before.len()
            && after[2..].iter().all(|message| before.contains(message) || message == after.last().unwrap())
    );
    let warmed = model.warmed.lock().unwrap().last().cloned().unwrap();
    assert_eq!(warmed[..warmed.len() - 1], after[..warmed.len() - 1]);
    let tools = model.tools.lock().unwrap().clone();
    assert_eq!((tools.first(), tools.last()), (Some(&0), Some(&1)), "what left can be searched from then on");
    // Deleting the session deletes what was computed for its summaries too.
    let owners: Vec<_> = model.owners.lock().unwrap().iter().copied().collect();
    assert!(matches!(owners[..], [Some(_)]), "{owners:?}");

    // Nothing that was said is lost, and after a restart it stands as it stood.
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
    assert_eq!(items["data"].as_array().unwrap().len(), 2 * turns + 2);
    let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
    assert_eq!((&session["summary"]["made_by"], &session["summary_is_stale"]), (&json!("model"), &json!(false)));
    assert!(session["summary"]["checks"]["requests"].as_u64() >= Some(1));
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect(&format!("?session={id}&extensions=reprise")).await;
    client.ask("And now?").await;
    client.until("response.done").await;
    let again = model.last_reply();
    assert_eq!(again[..after.len()], after[..]);
    server.stop().await;
}

#[tokio::test]
async fn with_no_summary_ready_oldest_turns_leave_and_are_made_up_for() {
    let mut server = Server::with(small_window).await;
    let (model, summariser) = play(&mut server, Summariser::Fails);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let mut turns = 0;
    let dropped = loop {
        // Every reply comes, also that for which there was no room.
        talk(&mut client, turns).await;
        turns += 1;
        assert!(turns < 60, "the window never fills");
        if let Some(dropped) = client.heard.iter().find(|event| event["type"] == "compaction.dropped") {
            break dropped.clone();
        }
    };
    assert!(dropped["tokens_after"].as_u64() < dropped["tokens_before"].as_u64());
    assert!(!content(&model.last_reply()[1]).contains("number 0:"));
    *summariser.lock().unwrap() = Summariser::Writes;
    talk(&mut client, turns).await;
    let completed = event(&mut client, "compaction.completed").await;
    assert_eq!(completed["version"], 2);
    // It tells what was dropped too: the request began with the first turn.
    let request = model.summaries.lock().unwrap().last().cloned().unwrap();
    assert!(content(&request[1]).contains("number 0:"), "{}", request[1]);
    let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
    assert_eq!(session["summary"]["kind"], "summary");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_comes_back_is_answered_before_its_summary_is_made() {
    let mut server = Server::with(small_window).await;
    play(&mut server, Summariser::Fails);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let mut turns = 0;
    while !client.heard.iter().any(|event| event["type"] == "compaction.dropped") {
        talk(&mut client, turns).await;
        turns += 1;
        assert!(turns < 60, "the window never fills");
    }
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect(&format!("?session={id}&extensions=reprise")).await;
    client.session_id().await;
    server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
    talk(&mut client, turns).await;
    event(&mut client, "compaction.completed").await;
    let order = model.order.lock().unwrap().clone();
    let first = |priority| order.iter().position(|asked| *asked == priority).unwrap();
    assert!(first(Priority::Talk) < first(Priority::Background), "{order:?}");
    server.stop().await;
}

#[tokio::test]
async fn who_asks_for_more_pins_than_there_is_room_for_is_told() {
    let mut server = Server::with(small_window).await;
    let _model = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let wish =
        |turn: usize| format!("Remember that the box with the number {turn} is where the old letters of my aunt are.");
    let mut asked = 0;
    let refused = loop {
        client.ask(&wish(asked)).await;
        client.until("turn.report").await;
        asked += 1;
        assert!(asked < 60, "there is room for everything");
        if let Some(refused) = client.heard.iter().find(|event| event["type"] == "pin.refused") {
            break refused.clone();
        }
    };
    let (_, pins) = server.http("GET", &format!("/v1/sessions/{id}/pins"), &[], "").await;
    let pins: Vec<&str> = pins["data"].as_array().unwrap().iter().filter_map(|pin| pin["text"].as_str()).collect();
    let before: Vec<String> = (0..pins.len()).map(wish).collect();
    assert!(pins == before && pins.len() < asked, "{pins:#?}");
    assert_eq!(refused["text"], wish(pins.len()));
    server.stop().await;
}

#[tokio::test]
async fn remember_that_keeps_what_was_said_before_it() {
    let mut server = Server::with(small_window).await;
    let _model = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    for said in ["My flight is LH 400 at nine.", "Please remember that.", "What is a flight?", "Remember that."] {
        client.ask(said).await;
        client.until("turn.report").await;
    }
    let (_, pins) = server.http("GET", &format!("/v1/sessions/{id}/pins"), &[], "").await;
    let (_, items) = server.http("GET", &format!("/v1/sessions/{id}/items"), &[], "").await;
    let pins = pins["data"].as_array().unwrap();
    assert_eq!((pins.len(), &pins[0]["text"]), (1, &json!("My flight is LH 400 at nine.")), "{pins:#?}");
    let told = items["data"].as_array().unwrap().iter().find(|item| item.to_string().contains("LH 400")).unwrap();
    assert_eq!(pins[0]["source_item"], told["item_id"]);
    server.stop().await;
}

#[tokio::test]
async fn a_message_larger_than_the_window_loses_nothing() {
    let mut server = Server::with(small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("").await;
    client.ask("Hello there.").await;
    client.until("response.done").await;
    client.ask(&"word ".repeat(2000)).await;
    let done = client.until("response.done").await;
    let error = &done["response"]["status_details"]["error"];
    assert_eq!((&done["response"]["status"], &error["code"]), (&json!("failed"), &json!("context_length_exceeded")));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("2004 tokens") && message.contains("shorten it"), "{message}");
    client.ask("Are you still there?").await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed", "{done:#}");
    assert!(count(&model.last_reply()) < u64::from(WINDOW));
    server.stop().await;
}

#[tokio::test]
async fn an_edit_of_what_is_being_summarised_takes_it_back() {
    let mut server = Server::with(small_window).await;
    let (mut model, summariser) = play(&mut server, Summariser::Held);
    let mut client = server.connect("?extensions=reprise").await;
    client
        .say(json!({"type": "conversation.item.create", "item": {"id": "first", "type": "message", "role": "user",
        "content": [{"type": "input_text", "text": sentence(100)}]}}))
        .await;
    fill(&mut client, 0).await;
    event(&mut client, "compaction.started").await;
    let held = timeout(PATIENCE, model.held.recv()).await.unwrap().unwrap();
    *summariser.lock().unwrap() = Summariser::Writes;
    client.say(json!({"type": "conversation.item.delete", "item_id": "first"})).await;
    let failed = event(&mut client, "compaction.failed").await;
    assert!(failed["message"].as_str().unwrap().contains("starts over"), "{failed:#}");
    timeout(PATIENCE, held.cancelled()).await.expect("nobody waits for that summary any more");
    event(&mut client, "compaction.completed").await;
    let request = model.summaries.lock().unwrap().last().cloned().unwrap();
    assert!(request.iter().all(|message| !content(message).contains("number 100:")));
    server.stop().await;
}

#[tokio::test]
async fn a_summary_that_was_made_before_a_restart_is_put_to_use() {
    let mut server = Server::with(small_window).await;
    let (_, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("").await;
    let id = client.session_id().await;
    for turn in 0..3 {
        client.ask(&sentence(turn)).await;
        client.until("response.done").await;
    }
    let session = server.store.open_session("local", &id).await.unwrap();
    let items = server.store.items(&session, None, 100).await.unwrap();
    let through_seq = server.store.load(&session).await.unwrap().last_seq;
    let summary = Summary {
        from_item: items[0].item_id.clone(),
        to_item: items[1].item_id.clone(),
        through_seq,
        text: "- They met.".into(),
        pins: json!([]),
        checks: json!({}),
        tokens_before: 900,
        tokens_after: 300,
        created_at_ms: 5,
        ..Summary::default()
    };
    // As a crash between the summary and the swap leaves it.
    server.store.add_summary(&session, summary).await.unwrap();
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect(&format!("?session={id}&extensions=reprise")).await;
    let completed = event(&mut client, "compaction.completed").await;
    assert_eq!((&completed["version"], &completed["tokens_after"]), (&json!(1), &json!(300)));
    client.ask("And now?").await;
    client.until("response.done").await;
    assert!(content(&model.last_reply()[1]).contains("They met."));
    assert!(model.summaries.lock().unwrap().is_empty(), "it is not asked for again");
    server.stop().await;
}

#[tokio::test]
async fn what_left_the_prompt_is_found_undone_edited_and_pinned() {
    let mut server = Server::with(small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let path = |rest: &str| format!("/v1/sessions/{id}/{rest}");
    let json = [("content-type", "application/json")];
    fill(&mut client, 0).await;
    event(&mut client, "compaction.completed").await;

    // The model searches the past, and the reply goes on. The client hears no call.
    client.ask("Do you recall what I said first?").await;
    let found = event(&mut client, "response.recall.done").await;
    assert_eq!(found["query"], "turn number");
    assert!(found["places"].as_u64() >= Some(1), "{found:#}");
    let done = client.until("response.done").await;
    assert_eq!(
        (&done["response"]["status"], done["response"]["output"].as_array().map(Vec::len)),
        (&json!("completed"), Some(1))
    );
    let asked = model.last_reply();
    let result = asked.last().unwrap();
    assert!(result["role"] == "tool" && content(result).contains("number"), "{result}");
    client.until("turn.report").await;

    // What a person writes takes the place of what the model wrote.
    let (status, edited) = server.http("POST", &path("summaries"), &json, r#"{"text": "- We planned a party."}"#).await;
    assert_eq!((status, &edited["made_by"], &edited["in_use"]), (200, &json!("user"), &json!(true)), "{edited:#}");
    let (_, pin) = server.http("POST", &path("pins"), &json, r#"{"text": "Speak slowly."}"#).await;
    client.ask("What now?").await;
    client.until("turn.report").await;
    let asked = model.last_reply();
    assert!(content(&asked[1]).contains("We planned a party."), "{}", asked[1]);
    assert!(!content(&asked[1]).contains("Speak slowly."), "the head of the prompt stays as it is");
    let note = content(&asked[asked.len() - 2]);
    assert!(note.contains("Speak slowly."), "{note}");
    let (_, pins) = server.http("GET", &path("pins"), &[], "").await;
    assert_eq!(pins["data"].as_array().map(Vec::len), Some(1));
    let pin = path(&format!("pins/{}", pin["id"].as_str().unwrap()));
    assert_eq!(server.http("DELETE", &pin, &[], "").await.0, 200);
    assert_eq!(server.http("DELETE", &pin, &[], "").await.0, 404);

    // Taken back one by one, down to the whole history, which does not fit any more.
    let (status, undone) = server.http("POST", &path("summaries/undo"), &[], "").await;
    assert_eq!((status, &undone["version"]), (200, &edited["version"]));
    client.ask("And before that?").await;
    client.until("turn.report").await;
    let asked = model.last_reply();
    assert!(content(&asked[1]).contains("Ann") && asked.iter().all(|message| !content(message).contains("slowly")));
    let (status, refused) = server.http("POST", &path("summaries/undo"), &[], "").await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("does_not_fit")), "{refused:#}");
    let (status, redone) = server.http("POST", &path("summaries/redo"), &[], "").await;
    assert_eq!((status, &redone["version"]), (200, &edited["version"]));
    let (_, all) = server.http("GET", &path("summaries"), &[], "").await;
    let in_use: Vec<_> = all["data"].as_array().unwrap().iter().filter(|one| one["in_use"] == true).collect();
    assert_eq!((in_use.len(), &in_use[0]["version"]), (1, &edited["version"]));

    // An older one does not come back beside a newer.
    server.http("POST", &path("summaries/undo"), &[], "").await;
    let (status, again) = server.http("POST", &path("summaries"), &json, r#"{"text": "- A feast."}"#).await;
    assert_eq!(status, 200, "{again:#}");
    let (status, refused) = server.http("POST", &path("summaries/redo"), &[], "").await;
    let expected =
        format!("summary {} is in use, and is newer than {}: undo it first", again["version"], edited["version"]);
    assert_eq!((status, &refused["error"]["message"]), (400, &json!(expected)), "{refused:#}");
    server.stop().await;
}

#[tokio::test]
async fn what_is_changed_under_a_summary_is_told_anew() {
    let mut server = Server::with(small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let content_of = json!([{"type": "input_text", "text": sentence(100)}]);
    let first = json!({"id": "first", "type": "message", "role": "user", "content": content_of});
    client.say(json!({"type": "conversation.item.create", "item": first})).await;
    let next = fill(&mut client, 0).await;
    event(&mut client, "compaction.completed").await;
    let requests = model.summaries.lock().unwrap().len();
    assert!(model.summaries.lock().unwrap()[0].iter().any(|message| content(message).contains("number 100:")));

    client.say(json!({"type": "conversation.item.delete", "item_id": "first"})).await;
    assert_eq!(client.until("compaction.completed").await["version"], 2);
    let anew = model.summaries.lock().unwrap()[requests].clone();
    let says = |number: usize| anew.iter().any(|message| content(message).contains(&format!("number {number}:")));
    assert!(says(0) && !says(100), "it is made from the words, without those that were taken back");
    let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
    assert_eq!((&session["summary"]["based_on"], &session["summary_is_stale"]), (&Value::Null, &json!(false)));

    // Nothing of what it tells came back into the prompt.
    talk(&mut client, next).await;
    let asked = model.last_reply();
    assert!(content(&asked[1]).contains("Ann") && asked.iter().all(|message| !content(message).contains("number 0:")));
    server.stop().await;
}

#[tokio::test]
async fn what_left_without_a_summary_is_made_up_for_also_where_it_is_more_than_a_window() {
    let mut server = Server::with(small_window).await;
    let (model, summariser) = play(&mut server, Summariser::Fails);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let turns = 100;
    for turn in 0..turns {
        talk(&mut client, turn).await;
    }
    assert!(turns as u64 * count(&[json!({"content": sentence(0)})]) > 2 * u64::from(WINDOW));
    *summariser.lock().unwrap() = Summariser::Writes;
    talk(&mut client, turns).await;
    let mut parts = 0;
    loop {
        client.until("compaction.completed").await;
        parts += 1;
        let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
        if session["summary"]["kind"] == "summary" {
            break;
        }
        assert!(parts < 20, "it never ends: {session:#}");
    }
    assert!(parts > 1, "one request cannot tell that much");
    let told: Vec<Value> = model.summaries.lock().unwrap().concat();
    for turn in 0..turns / 2 {
        let words = format!("number {turn}:");
        assert!(told.iter().any(|message| content(message).contains(&words)), "turn {turn} was never told");
    }
    let requests = model.summaries.lock().unwrap().iter().map(|request| count(request)).max();
    assert!(requests <= Some(u64::from(WINDOW)), "{requests:?}");
    talk(&mut client, turns + 1).await;
    assert!(count(&model.last_reply()) <= u64::from(WINDOW) / 2 + 100);
    server.stop().await;
}

#[tokio::test]
async fn a_change_that_shows_the_same_leaves_the_prompt_as_it_is() {
    let mut server = Server::with(small_window).await;
    let (model, _) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let next = fill(&mut client, 0).await;
    event(&mut client, "compaction.completed").await;
    talk(&mut client, next).await;
    let before = model.last_reply();
    let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
    let same = json!({"text": session["summary"]["text"]}).to_string();
    let json = [("content-type", "application/json")];
    let (status, edited) = server.http("POST", &format!("/v1/sessions/{id}/summaries"), &json, &same).await;
    assert_eq!((status, &edited["in_use"]), (200, &json!(true)), "{edited:#}");
    talk(&mut client, next + 1).await;
    assert_eq!(model.last_reply()[..before.len()], before[..], "what the summary tells is back in the prompt");
    server.stop().await;
}
