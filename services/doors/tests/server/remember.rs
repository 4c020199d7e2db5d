//! Facts that outlive a conversation: those that a new one begins with, finds, or must not find.

use crate::client::{Client, PATIENCE};
use crate::support::Server;
use serde_json::{Value, json};
use session::{Finish, GenerationPurpose, Priority, Prompt};
use settings::{KeptConversations, Learn, Settings};
use store::RememberedFact;
use tokio::time::timeout;

const NOTE: &str = "The user said before: ";

pub fn home(settings: &mut Settings) {
    settings.remember.conversations = KeptConversations::All;
    settings.conversation.recall_wait_ms = 10_000;
    settings.presets.values_mut().for_each(|preset| preset.remember.learn = Learn::Words);
}

pub async fn say(server: &mut Server, client: &mut Client, text: &str) -> Prompt {
    client.ask(text).await;
    let mut asked = server.reply_asked().await;
    let prompt = asked.request.prompt.clone();
    asked.say("Very well.");
    asked.done(Finish::Stop);
    client.until("response.done").await;
    prompt
}

pub async fn says(server: &mut Server, texts: &[&str]) -> Vec<Prompt> {
    let mut client = server.connect("").await;
    let mut prompts = Vec::new();
    for text in texts {
        prompts.push(say(server, &mut client, text).await);
    }
    prompts
}

pub fn remembered(prompt: &Prompt) -> String {
    let texts = prompt.messages.iter().map(|message| message.text());
    texts.filter(|text| text.contains("Remembered from earlier conversations")).collect()
}

pub fn noted(prompt: &Prompt) -> String {
    prompt.messages.iter().map(|message| message.text()).filter(|text| text.contains(NOTE)).collect()
}

#[tokio::test]
async fn a_new_conversation_begins_with_what_earlier_ones_said() {
    let mut server = Server::with(home).await;
    let prompts = says(
        &mut server,
        &["My sister lives in Lisbon.", "Remember that I take my pills at eight.", "What is the weather?"],
    )
    .await;
    assert!(prompts.iter().all(|prompt| remembered(prompt).is_empty()));
    let prompts = says(&mut server, &["Good morning.", "My sister moved to Porto."]).await;
    for prompt in &prompts {
        let told = remembered(prompt);
        assert!(told.contains("- My sister lives in Lisbon.\n- Remember that I take my pills at eight."), "{told}");
        assert!(!told.contains("weather"), "{told}");
        // Behind the instructions and before what is said.
        assert_eq!(prompt.messages[1].text(), told);
    }
    let prompts = says(&mut server, &["Hello.", "Forget what I said about my sister."]).await;
    let told = remembered(&prompts[0]);
    assert!(told.contains("Porto") && !told.contains("Lisbon"), "{told}");
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, home).await;
    let prompts = says(&mut server, &["Where does my sister live?"]).await;
    let told = remembered(&prompts[0]);
    assert!(told.contains("my pills at eight") && !told.contains("sister"), "{told}");
    assert_eq!(noted(&prompts[0]), "");
    server.stop().await;
}

#[tokio::test]
async fn a_preset_may_have_the_assistant_say_that_it_remembers() {
    let confirms = |settings: &mut Settings| {
        home(settings);
        settings.presets.values_mut().for_each(|preset| preset.remember.confirm = true);
    };
    let mut server = Server::with(confirms).await;
    let asks = |prompt: &Prompt| prompt.messages[1].text().contains("say in a few words that you will remember it");
    let first = says(&mut server, &["Remember that I take my pills at eight."]).await;
    assert!(asks(&first[0]) && remembered(&first[0]).is_empty());
    let next = says(&mut server, &["Good morning."]).await;
    let told = remembered(&next[0]);
    assert!(asks(&next[0]) && told.contains("\n- Remember that I take my pills at eight."), "{next:?}");
    // Nothing is kept of a private conversation, and none is promised.
    let mut private = server.connect("?private=true").await;
    let prompt = say(&mut server, &mut private, "Remember that I take my pills at nine.").await;
    assert!(prompt.messages.iter().all(|message| !message.text().contains("you will remember it")));
    server.stop().await;
}

#[tokio::test]
async fn what_does_not_fit_is_found_when_a_question_is_about_it() {
    let none = |settings: &mut Settings| {
        home(settings);
        settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 1);
    };
    let mut server = Server::with(none).await;
    says(&mut server, &["My sister lives in Lisbon.", "The bakery at the corner opens at six.", "Good night."]).await;
    let prompts =
        says(&mut server, &["Where does my sister live?", "When does the bakery open?", "Tell me a joke."]).await;
    assert!(prompts.iter().all(|prompt| remembered(prompt).is_empty()));
    assert!(noted(&prompts[0]).contains("My sister lives in Lisbon."), "{:?}", prompts[0]);
    assert!(noted(&prompts[1]).contains("The bakery at the corner opens at six."), "{:?}", prompts[1]);
    // What was replaced is not told.
    says(&mut server, &["My sister moved to Porto."]).await;
    let prompts = says(&mut server, &["Where does my sister live?"]).await;
    let told = noted(&prompts[0]);
    assert!(told.contains("Porto") && !told.contains("Lisbon"), "{told}");
    server.stop().await;
}

#[tokio::test]
async fn a_model_reads_what_was_said_when_a_conversation_falls_silent() {
    let reads = |settings: &mut Settings| {
        home(settings);
        settings.remember.silence_s = 1;
        settings.presets.values_mut().for_each(|preset| preset.remember.learn = Learn::Model);
    };
    let mut server = Server::with(reads).await;
    says(&mut server, &["We went to Rome and my sister Ann came along, she is a vet there.", "What time is it?"]).await;
    let read = async {
        loop {
            let mut asked = server.script.next().await;
            if asked.request.purpose == GenerationPurpose::Reply && asked.request.priority == Priority::Background {
                let request = asked.request.prompt.messages[0].text();
                assert!(request.contains("[1] We went to Rome") && request.contains("[2] What time"), "{request}");
                asked.say("[1] Their sister Ann is a vet in Rome.\n[1] Their sister Emma is a vet.");
                asked.done(Finish::Stop);
                return;
            }
            asked.done(Finish::Warm);
        }
    };
    timeout(PATIENCE, read).await.expect("the model is asked");
    let learned = async {
        loop {
            let facts = server.store.facts("local", None).await.unwrap();
            if !facts.is_empty() {
                return facts;
            }
            tokio::task::yield_now().await;
        }
    };
    let facts: Vec<RememberedFact> = timeout(PATIENCE, learned).await.expect("it is learned");
    assert_eq!(facts.iter().map(|fact| fact.text.as_str()).collect::<Vec<_>>(), ["Their sister Ann is a vet in Rome."]);
    assert!(facts[0].words.starts_with("We went to Rome") && facts[0].session_id.is_some());
    let prompts = says(&mut server, &["Good morning."]).await;
    assert!(remembered(&prompts[0]).contains("- Their sister Ann is a vet in Rome."));
    server.stop().await;
}

/// Checks that without a rule, words are the household's: its other conversations are told, and no client that names a person.
#[tokio::test]
async fn a_household_without_rules_is_remembered_from_the_first_day() {
    let mut server = Server::start().await;
    says(&mut server, &["My sister lives in Lisbon."]).await;
    let prompts = says(&mut server, &["Good morning.", "Where does my sister live?"]).await;
    assert!(remembered(&prompts[0]).contains("My sister lives in Lisbon."), "{prompts:?}");
    let said = json!([{ "role": "user", "content": "Where does my sister live?" }]);
    let new = json!({ "session_id": "new" });
    let mut script = server.take_script();
    for body in [
        json!({ "messages": said, "metadata": new, "user": "Ben" }),
        json!({ "messages": said, "metadata": new, "safety_identifier": "ben@example.org" }),
        json!({ "messages": [{ "role": "user", "content": "Where does my sister live?", "name": "Ben" }], "metadata": new }),
        json!({ "messages": said }),
    ] {
        let body = body.to_string();
        let (answer, prompt) = tokio::join!(server.http("POST", "/v1/chat/completions", &[], &body), async {
            let mut asked = loop {
                let asked = script.next().await;
                if asked.request.purpose == GenerationPurpose::Reply {
                    break asked;
                }
            };
            let prompt = asked.request.prompt.clone();
            asked.say("Very well.");
            asked.done(Finish::Stop);
            prompt
        });
        assert_eq!(answer.0, 200, "{}", answer.1);
        assert_eq!((remembered(&prompt), noted(&prompt)), (String::new(), String::new()), "{body}");
    }
    let folder = server.stop().await;
    let mut server =
        Server::in_folder(folder, |settings| settings.remember.conversations = KeptConversations::None).await;
    let prompts = says(&mut server, &["Where does my sister live?", "I like tea."]).await;
    says(&mut server, &["Good morning."]).await;
    assert_eq!((remembered(&prompts[0]), noted(&prompts[0])), (String::new(), String::new()));
    assert_eq!(server.store.facts("local", None).await.unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_client_is_told_once_what_was_learned_and_takes_it_back() {
    let quick = |settings: &mut Settings| {
        settings.remember.silence_s = 1;
        settings.presets.values_mut().for_each(|preset| preset.remember.learn = Learn::Words);
    };
    let mut server = Server::with(quick).await;
    let mut client = server.connect("?extensions=reprise").await;
    let mut other = server.connect("?extensions=reprise").await;
    say(&mut server, &mut client, "My sister lives in Lisbon.").await;
    let first = client.until("memory.learned").await;
    assert_eq!(first["memory"]["text"], "My sister lives in Lisbon.", "{first}");
    assert_eq!((&first["memory"]["person"], &first["replaces"]), (&json!(""), &json!([])), "{first}");
    say(&mut server, &mut client, "My sister moved to Porto.").await;
    let second = client.until("memory.learned").await;
    assert_eq!(second["replaces"], json!([first["memory"]["id"]]), "{second}");
    let path = format!("/v1/memories/{}", second["memory"]["id"].as_str().unwrap());
    assert_eq!(server.http("DELETE", &path, &[], "").await.0, 200);
    say(&mut server, &mut other, "Good morning.").await;
    for client in [&client, &other] {
        let told = client.heard.iter().filter(|event| event["type"] == "memory.learned").count();
        assert_eq!(told, if std::ptr::eq(client, &other) { 0 } else { 2 }, "another conversation is told nothing");
    }
    let facts = server.store.facts("local", None).await.unwrap();
    assert!(!facts.iter().any(RememberedFact::holds), "{facts:?}");
    server.stop().await;
}

/// Checks that persons of one key whom the client names, and no rule knows, are told nothing of each other.
#[tokio::test]
async fn one_key_for_many_people_tells_none_what_another_said() {
    let mut server = Server::start().await;
    let named = async |server: &mut Server, name: &str, text: &str| {
        let mut client = server.connect("?extensions=reprise").await;
        client.session_id().await;
        let content = json!([{ "type": "input_text", "text": text }]);
        let item = json!({ "type": "message", "role": "user", "content": content, "speaker": name });
        client.say(json!({ "type": "conversation.item.create", "item": item })).await;
        client.say(json!({ "type": "response.create" })).await;
        let mut asked = server.reply_asked().await;
        let prompt = asked.request.prompt.clone();
        asked.say("Your sister lives in Lisbon.");
        asked.done(Finish::Stop);
        client.until("response.done").await;
        prompt
    };
    named(&mut server, "Anna", "My sister lives in Lisbon.").await;
    for prompt in [
        named(&mut server, "Ben", "Where does my sister live?").await,
        says(&mut server, &["Where does my sister live?"]).await.remove(0),
    ] {
        assert_eq!((remembered(&prompt), noted(&prompt)), (String::new(), String::new()));
    }
    let mut client = server.connect("?user=Anna").await;
    say(&mut server, &mut client, "Remember that my code is 4711.").await;
    let prompts = says(&mut server, &["What is my code?"]).await;
    assert_eq!((remembered(&prompts[0]), noted(&prompts[0])), (String::new(), String::new()));
    assert_eq!(server.store.facts("local", None).await.unwrap(), []);
    server.stop().await;
}

#[tokio::test]
async fn nothing_secret_is_the_homes() {
    let mut server = Server::with(home).await;
    says(&mut server, &["Remember that the door code is 4711.", "My password is swordfish.", "I like tea."]).await;
    let prompts = says(&mut server, &["What is the door code?", "What is my password?"]).await;
    assert!(remembered(&prompts[0]).contains("I like tea."));
    for prompt in &prompts {
        let all: String = prompt.messages.iter().map(|message| message.text()).collect();
        assert!(!all.contains("4711") && !all.contains("swordfish"), "{all}");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_remembered_can_be_read_corrected_and_forgotten() {
    let mut server = Server::with(home).await;
    says(&mut server, &["My sister lives in Lisbon.", "I like tea."]).await;
    says(&mut server, &["Hello."]).await;
    let texts = |answer: &Value| -> Vec<String> {
        answer["data"].as_array().unwrap().iter().map(|fact| fact["text"].as_str().unwrap().to_owned()).collect()
    };
    let (status, all) = server.http("GET", "/v1/memories?person=", &[], "").await;
    assert_eq!((status, texts(&all)), (200, vec!["I like tea.".to_owned(), "My sister lives in Lisbon.".to_owned()]));
    let (_, found) = server.http("GET", "/v1/memories?q=sisters", &[], "").await;
    assert_eq!(texts(&found), ["My sister lives in Lisbon."]);
    let (_, none) = server.http("GET", "/v1/memories?person=ann", &[], "").await;
    assert_eq!(texts(&none), Vec::<String>::new());
    let (status, new) = server.http("POST", "/v1/memories", &[], r#"{"text": "My sister lives in Porto."}"#).await;
    assert_eq!((status, &new["asked"]), (200, &Value::Bool(true)), "{new}");
    let (_, past) = server.http("GET", "/v1/memories?past=true&q=sister", &[], "").await;
    assert_eq!((texts(&past).len(), &past["data"][1]["replaced_by"]), (2, &new["id"]));
    let path = format!("/v1/memories/{}", new["id"].as_str().unwrap());
    assert_eq!(server.http("GET", &path, &[], "").await.1["text"], "My sister lives in Porto.");
    let lines = server.text("GET", "/v1/memories/export", &[]).await;
    assert_eq!(lines.lines().count(), 3);
    assert_eq!(server.http("DELETE", &path, &[], "").await.0, 200);
    assert_eq!(server.http("GET", &path, &[], "").await.0, 404);
    let prompts = says(&mut server, &["Where does my sister live?"]).await;
    assert!(!remembered(&prompts[0]).contains("sister") && noted(&prompts[0]).is_empty(), "{prompts:?}");
    assert_eq!(server.http("DELETE", "/v1/memories", &[], "").await.0, 400);
    assert_eq!(server.http("DELETE", "/v1/memories?person=", &[], "").await.0, 200);
    let prompts = says(&mut server, &["What do I like?"]).await;
    assert_eq!(remembered(&prompts[0]), "");
    server.stop().await;
}

#[tokio::test]
async fn a_client_writes_no_more_facts_than_may_be_read_before_a_reply() {
    let server = Server::with(|settings| settings.remember.facts = 1).await;
    let write = async |text: &str| server.http("POST", "/v1/memories", &[], &json!({ "text": text }).to_string()).await;
    let (status, refused) = write(&"word ".repeat(1000)).await;
    assert!(status == 400 && refused.to_string().contains("4096"), "{refused}");
    for animal in ["Cat", "Dog", "Cow", "Horse", "Duck", "Goose", "Sheep", "Mouse", "Rabbit", "Parrot"] {
        assert_eq!(write(&format!("My {animal} is called Tom.")).await.0, 200);
    }
    let (status, refused) = write("One more.").await;
    assert!(status == 409 && refused["error"]["code"] == "memories_full", "{refused}");
    server.http("DELETE", "/v1/memories?person=", &[], "").await;
    assert_eq!(write("One more.").await.0, 200);
    server.stop().await;
}
