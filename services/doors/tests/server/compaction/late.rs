//! Summaries that come late: turns leave the prompt before one is there.

use super::*;
use crate::warnings::{listen, warnings};

/// More than one look reads, and more than one summary can tell.
#[tokio::test]
async fn a_long_past_that_left_the_prompt_is_told_to_its_end_and_nothing_is_skipped() {
    const TURNS: usize = 140;
    let mut server = Server::with(small_window).await;
    let (model, summariser) = play(&mut server, Summariser::Fails);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    for turn in 0..TURNS {
        talk(&mut client, turn).await;
    }
    *summariser.lock().unwrap() = Summariser::Writes;
    model.summaries.lock().unwrap().clear();
    let mut turns = TURNS;
    let requests = loop {
        talk(&mut client, turns).await;
        turns += 1;
        let (_, session) = server.http("GET", &format!("/v1/sessions/{id}"), &[], "").await;
        let requests = model.summaries.lock().unwrap().clone();
        let told: BTreeSet<usize> = requests.iter().flatten().filter_map(|message| number(content(message))).collect();
        let prompt = model.last_reply();
        let shown: BTreeSet<usize> = prompt.iter().filter_map(|message| number(content(message))).collect();
        let missing: Vec<usize> = (0..turns).filter(|turn| !told.contains(turn) && !shown.contains(turn)).collect();
        // A turn that leaves the prompt while the model writes a summary stands in the next summary.
        if session["summary"]["kind"] == "summary" && missing.is_empty() {
            break requests;
        }
        assert!(turns < 2 * TURNS, "{missing:?} of {turns} turns are in {} requests and no prompt", requests.len());
    };
    let longest = requests.iter().map(|request| count(request)).max().unwrap();
    assert!(requests.len() > 5 && longest <= u64::from(WINDOW), "{} requests, {longest} words", requests.len());
    server.stop().await;
}

/// The turn in which this was said.
fn number(said: &str) -> Option<usize> {
    said.split("number ").nth(1)?.split(':').next()?.parse().ok()
}

/// A user goes on talking while a summary takes long: turns leave the prompt meanwhile, as often as must be.
#[tokio::test]
async fn a_summary_that_is_being_made_outlives_turns_that_leave_the_prompt() {
    for most_drops in [1, 3] {
        let mut server = Server::with(small_window).await;
        let (mut model, summariser) = play(&mut server, Summariser::Held);
        let mut client = server.connect("?extensions=reprise").await;
        let mut turns = fill(&mut client, 0).await;
        let started = event(&mut client, "compaction.started").await;
        let mut held = timeout(PATIENCE, model.held.recv()).await.unwrap().unwrap();
        let dropped =
            |client: &Client| client.heard.iter().filter(|heard| heard["type"] == "compaction.dropped").count();
        while dropped(&client) < most_drops {
            talk(&mut client, turns).await;
            turns += 1;
            assert!(turns < 120, "the window never fills");
        }
        assert_eq!(model.summaries.lock().unwrap().len(), 1, "it is not begun again");
        *summariser.lock().unwrap() = Summariser::Writes;
        held.say(SUMMARY);
        held.done(Finish::Stop);
        let completed = event(&mut client, "compaction.completed").await;
        assert_eq!(completed["started_version"], started["version"]);
        assert!(completed["version"].as_u64() > started["version"].as_u64(), "a drop took it: {completed:#}");
        let first = |prompt: &[Value]| prompt.iter().find_map(|message| number(content(message))).unwrap();
        let before = first(&model.last_reply());
        talk(&mut client, turns).await;
        let prompt = model.last_reply();
        assert!(content(&prompt[1]).contains("Ann"), "{}", prompt[1]);
        assert!(first(&prompt) >= before, "what left stays out: {} is before {before}", first(&prompt));
        server.stop().await;
    }
}

/// The prompt follows no edit during a reply, and the model goes on with its summary.
#[tokio::test]
async fn a_summary_that_a_person_edits_meanwhile_is_the_base_of_the_next_one() {
    let mut server = Server::with(small_window).await;
    let (mut model, summariser) = play(&mut server, Summariser::Writes);
    let mut client = server.connect("?extensions=reprise").await;
    let id = client.session_id().await;
    let next = fill(&mut client, 0).await;
    event(&mut client, "compaction.completed").await;
    *summariser.lock().unwrap() = Summariser::Held;
    client.heard.clear();
    fill(&mut client, next).await;
    let mut held = timeout(PATIENCE, model.held.recv()).await.unwrap().unwrap();
    client.ask(SLOWLY).await;
    let mut reply = timeout(PATIENCE, model.held.recv()).await.unwrap().unwrap();
    let (path, text) = (format!("/v1/sessions/{id}/summaries"), json!({"text": "- We planned a party."}));
    let (status, edited) = server.http("POST", &path, &[("content-type", "application/json")], &text.to_string()).await;
    assert_eq!(status, 200, "{edited:#}");
    *summariser.lock().unwrap() = Summariser::Writes;
    held.say(SUMMARY);
    held.done(Finish::Stop);
    event(&mut client, "compaction.failed").await;
    client.heard.clear();
    reply.say("Well.");
    reply.done(Finish::Stop);
    let completed = event(&mut client, "compaction.completed").await;
    let request = model.summaries.lock().unwrap().last().cloned().unwrap();
    assert!(content(&request[1]).contains("We planned a party."), "{}", request[1]);
    let (_, all) = server.http("GET", &path, &[], "").await;
    let newer = |one: &&Value| one["version"].as_u64() > edited["version"].as_u64();
    let newer: Vec<&Value> = all["data"].as_array().unwrap().iter().filter(newer).collect();
    assert!(newer.iter().all(|one| one["based_on"] == edited["version"]), "{newer:#?}");
    assert!(newer.iter().any(|one| one["version"] == completed["version"]), "{newer:#?}");
    server.stop().await;
}

/// The service mends it: the log says that turns left, and not that the model could not answer.
#[tokio::test]
async fn a_turn_for_which_older_ones_left_is_no_failure_in_the_log() {
    listen();
    let is_logged = |words: &str| warnings().iter().any(|line| line.contains(words));
    let mut server = Server::with(small_window).await;
    let (_model, _) = play(&mut server, Summariser::Fails);
    let mut client = server.connect("?extensions=reprise").await;
    let mut turns = 0;
    while client.heard.iter().all(|heard| heard["type"] != "compaction.dropped") {
        talk(&mut client, turns).await;
        turns += 1;
        assert!(turns < 120, "the window never fills");
    }
    assert!(is_logged("oldest turns left the prompt"), "{:?}", warnings());
    assert!(!is_logged("could not answer"), "{:?}", warnings());
    // This message fits no prompt.
    client.ask(&"word ".repeat(2000)).await;
    assert_eq!(client.until("response.done").await["response"]["status"], "failed");
    assert!(is_logged("could not answer"), "{:?}", warnings());
    server.stop().await;
}
