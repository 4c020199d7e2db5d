//! Facts that the service remembers, by their place: pinned, summarised, word for word, or only in the history. The
//! model is a script that knows only its prompt and reads that perfectly, so a fact that it cannot tell was not there.

use crate::client::{Client, PATIENCE};
use crate::scripted::Script;
use crate::support::{Chat, Server};
use serde_json::Value;
use session::{Finish, GenerationPurpose, Priority};
use settings::{Recall, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::time::timeout;

const WINDOW: u32 = 1500;
const FACTS: usize = 60;
/// One of so many facts is told as something to remember.
const PINNED_OF: usize = 6;
/// Number of facts between the one that is told and the question about it.
const ASKED_AFTER: [usize; 4] = [1, 6, 14, 40];

const COLOURS: [&str; 8] = ["red", "blue", "green", "white", "black", "brown", "yellow", "silver"];
const THINGS: [&str; 8] = ["door", "gate", "safe", "shed", "locker", "garage", "suitcase", "cellar"];

fn place(fact: usize) -> String {
    format!("{} {}", COLOURS[fact % 8], THINGS[fact / 8])
}

fn code(fact: usize) -> String {
    format!("{}", 1000 + fact * 137 % 9000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Zone {
    Pinned,
    Tail,
    Summarised,
    /// The service put the user's words before the question.
    Noted,
    History,
}

type Answers = Arc<Mutex<Vec<(Zone, String)>>>;

async fn read_prompts(mut script: Script, answers: Answers) {
    loop {
        let mut asked = script.next().await;
        let messages = asked.chat().messages.clone();
        let last = messages.last().map(content).unwrap_or_default();
        match (asked.request.purpose, asked.request.priority) {
            (GenerationPurpose::Reply, Priority::Background) => asked.say(&newest_facts(&messages)),
            (GenerationPurpose::Reply, _) => {
                let words: u64 =
                    messages.iter().map(|message| 4 + content(message).split_whitespace().count() as u64).sum();
                asked.prompt(words, 0);
                let question =
                    messages.iter().rev().map(content).find(|said| said.starts_with("What is the code of the "));
                let is_answered =
                    !last.starts_with("What is") && messages.last().is_some_and(|last| last["role"] == "user");
                match question.filter(|_| !is_answered) {
                    None => asked.say("Understood, I heard what you said just now and keep it."),
                    Some(question) => {
                        let wanted = format!("{} is ", question["What is ".len()..].trim_end_matches('?'));
                        let is_result = messages.last().is_some_and(|last| last["role"] == "tool");
                        match (find(&messages, &wanted), is_result) {
                            (Some((_, code)), true) => {
                                answers.lock().unwrap().push((Zone::History, code.clone()));
                                asked.say(&format!("You said that it is {code}."));
                            }
                            (Some((zone, code)), false) => {
                                answers.lock().unwrap().push((zone, code.clone()));
                                asked.say(&format!("You said that it is {code}."));
                            }
                            (None, false) if !asked.chat().tools.is_empty() => {
                                asked.call("recall", &serde_json::json!({ "query": wanted }).to_string());
                            }
                            (None, _) => {
                                answers.lock().unwrap().push((Zone::History, String::new()));
                                asked.say("You did not tell me.");
                            }
                        }
                    }
                }
            }
            _ => {
                asked.done(Finish::Warm);
                continue;
            }
        }
        asked.done(Finish::Stop);
    }
}

fn newest_facts(messages: &[Value]) -> String {
    let lines = messages.iter().flat_map(|message| content(message).lines()).filter(|line| !line.contains("Remember"));
    let told =
        lines.filter_map(|line| Some(&line[line.find("the code of the ")?..])).filter(|line| line.contains(" is "));
    let facts: BTreeSet<&str> = told.rev().take(SUMMARISED).collect();
    let lines: Vec<String> = facts.iter().map(|fact| format!("- {fact}")).collect();
    format!("## Now\n- They talk about doors and what opens them.\n## User\n{}", lines.join("\n"))
}

const SUMMARISED: usize = 4;
const NOTE: &str = "The user said before: ";

fn find(messages: &[Value], wanted: &str) -> Option<(Zone, String)> {
    let mut found: Vec<(Zone, String)> = Vec::new();
    for message in messages {
        for line in content(message).lines() {
            let Some((before, after)) = line.split_once(wanted) else { continue };
            let value: String = after.chars().take_while(char::is_ascii_digit).collect();
            let zone = match message["role"].as_str() {
                _ if before.contains(NOTE) => Zone::Noted,
                Some("user") => Zone::Tail,
                _ if before.contains("Remember") => Zone::Pinned,
                _ => Zone::Summarised,
            };
            found.push((zone, value));
        }
    }
    found.into_iter().min()
}

fn content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

async fn talk(client: &mut Client, says: &str) {
    client.ask(says).await;
    let done = client.until("response.done").await;
    assert_eq!(done["response"]["status"], "completed", "{done:#}");
    client.until("turn.report").await;
    // What is begun in the silence comes to its end.
    let count = |client: &Client, kind: &str| client.heard.iter().filter(|event| event["type"] == kind).count();
    let ends = |client: &Client| count(client, "compaction.completed") + count(client, "compaction.failed");
    while count(client, "compaction.started") > ends(client) {
        timeout(PATIENCE, client.next()).await.expect("the summary is made").expect("it is connected");
    }
}

#[tokio::test]
async fn pins_are_always_recalled_and_everything_else_is_found_somewhere() {
    let zones = remembered(Recall::Tool).await;
    // What is in no prompt is found by its words, as long as others do not have the same.
    let [right, asked] = zones.get(&Zone::History).copied().unwrap_or_default();
    assert!(asked > 10 && right * 10 >= asked * 9, "only in the history: {right} of {asked}");
    assert!(!zones.contains_key(&Zone::Noted));
}

#[tokio::test]
async fn what_a_question_is_about_stands_before_it_without_a_search_of_the_model() {
    let zones = remembered(Recall::Auto).await;
    let [right, asked] = zones.get(&Zone::Noted).copied().unwrap_or_default();
    let missed = zones.get(&Zone::History).map_or(0, |[_, asked]| *asked);
    assert!(right > 10 && right * 10 >= (asked + missed) * 9, "noted: {right} of {asked}, and {missed} without");
}

async fn remembered(recall: Recall) -> BTreeMap<Zone, [usize; 2]> {
    let small = move |settings: &mut Settings| {
        settings.conversation.recall_wait_ms = 10_000;
        settings.presets.values_mut().for_each(|preset| {
            *preset = preset.with_ctx_size(WINDOW);
            preset.recall = recall;
            if recall == Recall::Auto {
                preset.recall_calls = 0;
            }
        });
    };
    let mut server = Server::with(small).await;
    let answers = Answers::default();
    let model = tokio::spawn(read_prompts(server.take_script(), answers.clone()));
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let mut zones: BTreeMap<Zone, [usize; 2]> = BTreeMap::new();
    for fact in 0..FACTS + ASKED_AFTER[3] {
        if fact < FACTS {
            let remember = if fact % PINNED_OF == 0 { "Remember that the" } else { "By the way, the" };
            talk(&mut client, &format!("{remember} code of the {} is {}.", place(fact), code(fact))).await;
        }
        talk(&mut client, "We talk about this and that for a while, so that the window fills with words of no weight.")
            .await;
        for asked in ASKED_AFTER.iter().filter_map(|after| fact.checked_sub(*after)).filter(|asked| *asked < FACTS) {
            talk(&mut client, &format!("What is the code of the {}?", place(asked))).await;
            let (zone, said) = answers.lock().unwrap().last().cloned().expect("an answer");
            // A pin that was not found is a pin all the same.
            let zone = if asked % PINNED_OF == 0 { Zone::Pinned } else { zone };
            let score = zones.entry(zone).or_default();
            score[0] += usize::from(said == code(asked));
            score[1] += 1;
        }
    }
    let swaps = client.heard.iter().filter(|event| event["type"] == "compaction.completed").count();
    println!("{swaps} swaps; right answers of questions: {zones:?}");
    assert!(swaps > 5, "{swaps}");
    for zone in [Zone::Pinned, Zone::Tail, Zone::Summarised] {
        let [right, asked] = zones.get(&zone).copied().unwrap_or_default();
        assert!(asked > 0 && right == asked, "{zone:?}: {right} of {asked}");
    }
    // A note is no item that clients are told of, also when they come back.
    let mut again = server.connect(&format!("?extensions=reprise&session={id}")).await;
    again.say(serde_json::json!({ "type": "session.update", "session": { "type": "realtime" } })).await;
    again.until("session.updated").await;
    assert!(again.heard.len() > FACTS);
    for client in [&client, &again] {
        let told = client.heard.iter().filter(|event| event["item"].to_string().contains(NOTE)).count();
        assert_eq!(told, 0);
    }
    model.abort();
    server.stop().await;
    zones
}
