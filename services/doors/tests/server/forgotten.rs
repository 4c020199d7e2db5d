//! Facts that were forgotten, corrected or deleted: no later prompt contains them, even if a conversation had copied
//! them. A conversation that never ends keeps learning.

use crate::client::PATIENCE;
use crate::kept::Frontend;
use crate::remember::{home, noted, remembered, say, says};
use crate::support::{Chat, Server};
use serde_json::json;
use session::{Finish, ItemBody, Prompt};
use settings::{Recall, Settings};
use store::{OpenedBy, Store, StoreOptions};
use tokio::time::timeout;

async fn memory_about(server: &Server, word: &str) -> String {
    let (_, found) = server.http("GET", &format!("/v1/memories?q={word}"), &[], "").await;
    found["data"][0]["id"].as_str().unwrap_or_else(|| panic!("{found}")).to_owned()
}

async fn forget(server: &Server, word: &str) {
    let id = memory_about(server, word).await;
    assert_eq!(server.http("DELETE", &format!("/v1/memories/{id}"), &[], "").await.0, 200);
}

/// Leaves no room in the prompt for remembered facts, so that the service looks them up.
fn looks_up(settings: &mut Settings) {
    home(settings);
    settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 1);
}

/// Waits until a prompt is computed ahead whose block is so.
async fn wait_for_warmed(server: &mut Server, is_wanted: impl Fn(&str) -> bool) {
    let warmed = async {
        loop {
            let mut asked = server.script.next().await;
            let told = remembered(&asked.request.prompt);
            asked.done(Finish::Warm);
            if is_wanted(&told) {
                return;
            }
        }
    };
    timeout(PATIENCE, warmed).await.expect("the prompt follows");
}

fn all_texts(prompt: &Prompt) -> String {
    prompt.messages.iter().map(|message| message.text()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_fact_that_is_forgotten_or_corrected_leaves_every_conversation_in_memory_at_once() {
    let mut server = Server::with(home).await;
    says(&mut server, &["My sister lives in Lisbon.", "My dentist is Doctor Weber.", "I like tea."]).await;
    let (mut one, mut other) = (server.connect("").await, server.connect("").await);
    let first = remembered(&say(&mut server, &mut one, "Good morning.").await);
    assert!(first.contains("Lisbon") && first.contains("Weber") && first.contains("I like tea."), "{first}");
    assert_eq!(remembered(&say(&mut server, &mut other, "Hello.").await), first);
    // It stays as it is while all of it holds, also where more is known by now.
    let (status, _) = server.http("POST", "/v1/memories", &[], r#"{"text": "The bins go out on Tuesdays."}"#).await;
    assert_eq!(status, 200);
    assert_eq!(remembered(&say(&mut server, &mut one, "How are you?").await), first);
    forget(&server, "sister").await;
    for client in [&mut one, &mut other] {
        let told = remembered(&say(&mut server, client, "And now?").await);
        assert!(!told.contains("Lisbon"), "{told}");
        assert!(told.contains("I like tea.") && told.contains("bins"), "it is laid out anew: {told}");
    }
    // A correction, too.
    server.http("POST", "/v1/memories", &[], r#"{"text": "My dentist is Doctor Braun."}"#).await;
    let told = remembered(&say(&mut server, &mut one, "Who is it?").await);
    assert!(!told.contains("Weber") && told.contains("Braun"), "{told}");
    // All at once.
    server.http("DELETE", "/v1/memories?person=", &[], "").await;
    let prompt = say(&mut server, &mut other, "Anything?").await;
    assert_eq!(remembered(&prompt), "");
    server.stop().await;
}

#[tokio::test]
async fn forget_that_is_heard_at_once() {
    let mut server = Server::with(home).await;
    says(&mut server, &["My sister lives in Lisbon.", "I like tea."]).await;
    let (mut one, mut other) = (server.connect("").await, server.connect("").await);
    assert!(remembered(&say(&mut server, &mut other, "Hello.").await).contains("Lisbon"));
    assert!(remembered(&say(&mut server, &mut one, "Hello.").await).contains("Lisbon"));
    say(&mut server, &mut one, "Forget that my sister lives in Lisbon.").await;
    for client in [&mut one, &mut other] {
        let told = remembered(&say(&mut server, client, "And now?").await);
        assert!(!told.contains("Lisbon") && told.contains("I like tea."), "{told}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_session_takes_its_facts_out_of_conversations_in_memory_and_on_disk() {
    let mut server = Server::with(home).await;
    let mut source = server.connect("").await;
    let source_id = source.session_id().await;
    say(&mut server, &mut source, "My sister lives in Lisbon.").await;
    drop(source);
    says(&mut server, &["I like tea."]).await;
    let mut live = server.connect("").await;
    let live_id = live.session_id().await;
    assert!(remembered(&say(&mut server, &mut live, "Hello.").await).contains("Lisbon"));
    // A conversation on disk keeps which facts it tells, and not their words.
    let told = server.store.session(&server.store.open_session("local", &live_id).await.unwrap()).await.unwrap();
    assert_eq!(told.told_facts.map(|ids| ids.len()), Some(2));
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, home).await;
    let mut live = server.connect(&format!("?session={live_id}")).await;
    let before = remembered(&say(&mut server, &mut live, "Me again.").await);
    assert!(before.contains("Lisbon") && before.contains("tea"), "{before}");
    assert_eq!(server.http("DELETE", &format!("/v1/sessions/{source_id}"), &[], "").await.0, 200);
    let after = remembered(&say(&mut server, &mut live, "And now?").await);
    assert!(!after.contains("Lisbon") && after.contains("tea"), "{after}");
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, home).await;
    let mut live = server.connect(&format!("?session={live_id}")).await;
    assert_eq!(remembered(&say(&mut server, &mut live, "Still here.").await), after);
    server.stop().await;
}

#[tokio::test]
async fn what_a_command_beside_the_service_forgets_leaves_conversations_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.sqlite3");
    let mut server = Server::in_folder(folder, home).await;
    says(&mut server, &["My sister lives in Lisbon.", "I like tea."]).await;
    let mut client = server.connect("").await;
    assert!(remembered(&say(&mut server, &mut client, "Hello.").await).contains("Lisbon"));
    let options = StoreOptions {
        path,
        opened_by: OpenedBy::Command,
        create: false,
        busy_timeout_ms: 1000,
        readers: 1,
        read_limit_ms: 0,
        sync_ms: 1000,
        user_bytes: 0,
        user_bytes_per_minute: 0,
        write_queue: 4,
        commit_group: 4,
        wal_limit_bytes: 1 << 20,
        max_pages: None,
        check_at_start: false,
    };
    let command = Store::open(&options, 1).await.unwrap();
    let id = memory_about(&server, "sister").await;
    command.forget_facts("local", vec![id], 1).await.unwrap();
    command.close().await.unwrap();
    wait_for_warmed(&mut server, |told| !told.contains("Lisbon") && told.contains("I like tea.")).await;
    assert!(!remembered(&say(&mut server, &mut client, "And now?").await).contains("Lisbon"));
    assert!(remembered(&say(&mut server, &mut client, "And tea?").await).contains("I like tea."));
    server.stop().await;
}

#[tokio::test]
async fn a_conversation_that_never_ends_learns_in_its_silences() {
    let learns = |settings: &mut Settings| {
        home(settings);
        settings.remember.refresh_s = 1;
    };
    let mut server = Server::with(learns).await;
    let mut client = server.connect("").await;
    assert_eq!(remembered(&say(&mut server, &mut client, "Hello.").await), "");
    server.http("POST", "/v1/memories", &[], r#"{"text": "The bins go out on Tuesdays."}"#).await;
    // The prompt of the next turn is computed in the silence.
    wait_for_warmed(&mut server, |told| told.contains("bins go out")).await;
    assert!(remembered(&say(&mut server, &mut client, "When do the bins go out?").await).contains("Tuesdays"));
    server.stop().await;
}

#[tokio::test]
async fn conversations_that_clients_hold_forget_at_their_next_request() {
    let mut server = Server::start().await;
    let mut kitchen = Frontend::in_room("Kitchen");
    for text in ["My sister lives in Lisbon.", "I like tea.", "Good night."] {
        kitchen.says(&mut server, text, "Very well.").await;
    }
    let mut study = Frontend::in_room("Study");
    let told = |prompt: &[(String, String)], word: &str| prompt.iter().any(|(_, text)| text.contains(word));
    let prompt = study.says(&mut server, "Good morning.", "Good morning.").await;
    assert!(told(&prompt, "Lisbon") && told(&prompt, "I like tea."), "{prompt:?}");
    let prompt = study.says(&mut server, "How are you?", "Fine.").await;
    assert!(told(&prompt, "Lisbon"), "{prompt:?}");
    forget(&server, "sister").await;
    let prompt = study.says(&mut server, "And you?", "Fine, too.").await;
    assert!(!told(&prompt, "Lisbon") && told(&prompt, "I like tea."), "{prompt:?}");
    let again = study.says(&mut server, "Good.", "Good.").await;
    assert_eq!(again[..2], prompt[..2], "and stays as it is from there");
    server.stop().await;
}

#[tokio::test]
async fn notes_in_conversations_that_clients_hold_go_with_what_they_copied() {
    let small = |settings: &mut Settings| {
        settings.conversation.recall_wait_ms = 10_000;
        settings.presets.values_mut().for_each(|preset| preset.remember.prompt_tokens = 1);
    };
    let mut server = Server::with(small).await;
    let mut kitchen = Frontend::in_room("Kitchen");
    kitchen.says(&mut server, "My sister lives in Lisbon.", "How nice.").await;
    kitchen.says(&mut server, "Good night.", "Good night.").await;
    let mut study = Frontend::in_room("Study");
    study.says(&mut server, "Good morning.", "Good morning.").await;
    let asked = study.says(&mut server, "Where does my sister live?", "I will tell you.").await;
    let has_note = |prompt: &[(String, String)]| prompt.iter().any(|(_, text)| text.contains("Lisbon"));
    assert!(has_note(&asked), "{asked:?}");
    assert!(has_note(&study.says(&mut server, "Well?", "Soon.").await), "the note stands where it stood");
    // No door is told of it: the store alone.
    let id = memory_about(&server, "sister").await;
    server.store.forget_facts("local", vec![id], 1).await.unwrap();
    let prompt = study.says(&mut server, "So?", "Yes.").await;
    assert!(!has_note(&prompt), "{prompt:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_note_of_the_past_goes_with_the_session_it_was_copied_from() {
    let mut server = Server::with(looks_up).await;
    let mut source = server.connect("").await;
    let source_id = source.session_id().await;
    say(&mut server, &mut source, "The bakery at the corner opens at six.").await;
    drop(source);
    let mut live = server.connect("").await;
    let live_id = live.session_id().await;
    say(&mut server, &mut live, "Hello.").await;
    let prompt = say(&mut server, &mut live, "When does the bakery open?").await;
    assert!(noted(&prompt).contains("opens at six"), "{prompt:?}");
    assert!(noted(&say(&mut server, &mut live, "I see.").await).contains("opens at six"), "it stands where it stood");
    assert_eq!(server.http("DELETE", &format!("/v1/sessions/{source_id}"), &[], "").await.0, 200);
    let prompt = say(&mut server, &mut live, "Good.").await;
    assert!(!all_texts(&prompt).contains("opens at six"), "{prompt:?}");
    let export = server.text("GET", &format!("/v1/sessions/{live_id}/export"), &[]).await;
    assert!(export.contains("When does the bakery open?") && !export.contains("opens at six"), "{export}");
    // What is said goes on behind it, also after a restart.
    let folder = server.stop().await;
    let mut server = Server::in_folder(folder, looks_up).await;
    let mut live = server.connect(&format!("?session={live_id}")).await;
    let prompt = say(&mut server, &mut live, "Bye.").await;
    let texts = all_texts(&prompt);
    assert!(texts.contains("When does the bakery open?") && texts.contains("Good."), "{texts}");
    assert!(!texts.contains("opens at six"), "{texts}");
    server.stop().await;
}

#[tokio::test]
async fn the_answer_to_a_search_goes_with_the_item_it_was_copied_from() {
    let searches = |settings: &mut Settings| {
        home(settings);
        settings.presets.values_mut().for_each(|preset| {
            preset.recall = Recall::Tool;
            preset.recall_calls = 2;
            preset.remember.learn = settings::Learn::Words;
        });
    };
    let mut server = Server::with(searches).await;
    let mut source = server.connect("").await;
    let source_id = source.session_id().await;
    say(&mut server, &mut source, "I like tea.").await;
    say(&mut server, &mut source, "The harmonica lies under the stairs.").await;
    let mut live = server.connect("").await;
    let live_id = live.session_id().await;
    live.ask("What was it about the harmonica?").await;
    let mut asked = server.reply_asked().await;
    asked.call("recall", r#"{"query":"harmonica stairs"}"#);
    asked.done(Finish::Stop);
    let mut asked = server.reply_asked().await;
    assert!(all_texts(&asked.request.prompt).contains("under the stairs"), "{:?}", asked.chat().messages);
    asked.say("I looked it up.");
    asked.done(Finish::Stop);
    live.until("response.done").await;
    let prompt = say(&mut server, &mut live, "I see.").await;
    assert!(all_texts(&prompt).contains("under the stairs"), "{prompt:?}");
    // The item alone goes, by its own session.
    let session = server.store.open_session("local", &source_id).await.unwrap();
    let items = server.store.items(&session, None, 10).await.unwrap();
    let item = items.iter().find(|item| item.said().contains("harmonica")).unwrap();
    source.say(json!({ "type": "conversation.item.delete", "item_id": item.item_id })).await;
    source.until("conversation.item.deleted").await;
    let prompt = say(&mut server, &mut live, "Good.").await;
    let texts = all_texts(&prompt);
    assert!(texts.contains("I looked it up.") && !texts.contains("under the stairs"), "{texts}");
    assert!(prompt.messages.iter().all(|message| message.calls.is_empty()), "nor is there a call without an answer");
    let session = server.store.open_session("local", &live_id).await.unwrap();
    let items = server.store.items(&session, None, 100).await.unwrap();
    assert!(items.iter().all(|item| matches!(item.body, ItemBody::Message { .. })), "{items:?}");
    server.stop().await;
}
