//! Compaction with the real binary and a tiny model: what is computed for a summary, and `kill -9` at random moments around
//! plan, summary, warm-up and swap. `REPRISE_KILLS=100` kills as often, `REPRISE_SEED=7` at other moments.
//!
//! The model is random: what it writes for a summary is refused, and words of the conversation take its place. So the way
//! from a full window to the swap is the longest there is.

use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tests::client::{Client, PATIENCE};
use tests::random::{Random, number};
use tests::service::{Service, check_store, run, run_ok, tiny_model};
use tests::upstream::StandIn;
use tokio::time::{sleep, timeout};

const KILLS: u64 = 6;
const SEED: u64 = 0x5851_f42d_4c95_7f2d;
/// The moments that matter lie within this of the end of a turn.
const MICROSECONDS_UNTIL_KILL: u64 = 1_500_000;
/// Window that the tiny model was made for, about.
const WINDOW: &str = "--ctx-size=3800";
/// Tokens in the window from which on a compaction may begin.
const NEARLY_FULL: u64 = 2200;
const SMALL: [&str; 1] = [WINDOW];

fn sentence(turn: u64) -> String {
    format!(
        "This is turn {turn}. Ann has a code, it is {}, and her sister Lena comes on Friday at {} with the dog. What do you \
         think about all of that, and what should we do about it on the day after?",
        4000 + turn,
        turn % 12
    )
}

async fn turn(client: &mut Client, turn: u64) -> Option<Value> {
    client.ask_for(&sentence(turn), 10).await;
    within(client, "response.done", PATIENCE).await
}

/// Skips what comes before an event of this type. None: it does not come in this time, or the connection ends.
async fn within(client: &mut Client, kind: &str, time: Duration) -> Option<Value> {
    let waiting = async {
        while let Ok(event) = client.next().await {
            if event["type"] == kind {
                return Some(event);
            }
        }
        None
    };
    timeout(time, waiting).await.ok().flatten()
}

/// The last event of this type since the client had heard so many.
fn heard(client: &Client, since: usize, kind: &str) -> Option<Value> {
    client.heard[since..].iter().rev().find(|event| event["type"] == kind).cloned()
}

fn fill(client: &Client) -> u64 {
    heard(client, 0, "context.updated").and_then(|event| event["tokens"].as_u64()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_request_and_the_summary_are_computed() {
    let service = Service::start(&SMALL).await;
    let mut client = service.connect("?extensions=reprise").await;
    let id = client.until("session.created").await["session"]["id"].as_str().unwrap().to_owned();
    let mut completed = None;
    let mut turns = 0;
    while completed.is_none() {
        turns += 1;
        assert!(turns < 100, "the window never fills");
        turn(&mut client, turns).await.expect("the service answers");
        if fill(&client) > NEARLY_FULL {
            completed = within(&mut client, "compaction.completed", Duration::from_secs(20)).await;
        }
    }
    let summaries = service.get(&format!("/v1/sessions/{id}/summaries")).await;
    let summary = &summaries["data"][0];
    let checks = &summary["checks"];
    let [requests, reused, computed] =
        ["requests", "reused_tokens", "computed_tokens"].map(|key| checks[key].as_u64().unwrap());
    println!("{turns} turns; {requests} requests: {reused} tokens reused, {computed} computed; {summary:#}");
    // Each request has some 500 tokens of this tokenizer, and the prompt before it some 2,000.
    assert!(requests >= 1 && computed <= requests * 700, "{computed} tokens were computed for {requests} requests");
    assert!(reused >= requests * 1000, "{reused}");

    // The turn after the swap reads what is new and nothing else.
    turn(&mut client, turns + 1).await.expect("the service answers");
    let report = within(&mut client, "turn.report", PATIENCE).await.expect("a report");
    println!("the turn after the swap: {report}");
    assert!(report["computed_tokens"].as_u64() <= Some(200), "{report:#}");

    // It can be taken back and brought back, also by a command beside the service, as long as the prompt fits; a command
    // counts it as the service does.
    let config = format!("[model]\npath = {:?}\n", tiny_model());
    std::fs::write(service.folder().join("reprise.toml"), config).unwrap();
    let undo = format!("/v1/sessions/{id}/summaries/undo");
    let (refused, told) = loop {
        let (status, undone) = service.http("POST", &undo, &[], "").await;
        if status == 409 {
            let told = run(service.folder(), &["sessions", "undo", &id]).await;
            if !told.status.success() {
                break (undone, told);
            }
            // A summary that was under way came between the two.
        } else {
            assert_eq!(status, 200, "{undone}");
        }
        run_ok(service.folder(), &["sessions", "redo", &id]).await;
        turns += 1;
        assert!(turns < 100, "the whole history always fits");
        turn(&mut client, turns).await.expect("the service answers");
    };
    let refused: Value = serde_json::from_str(&refused).unwrap();
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains(message), "{said} is not {message}");
    let long = service.folder().join("long");
    std::fs::write(&long, "A word that is said again. ".repeat(500)).unwrap();
    let told = run(service.folder(), &["sessions", "edit", &id, "long"]).await;
    let said = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(!told.status.success() && said.contains("the summary has about"), "{said}");
    let listed = run_ok(service.folder(), &["sessions", "summaries", &id]).await;
    assert!(listed.contains("in use"), "{listed}");
    run_ok(service.folder(), &["sessions", "pins", "add", &id, "Speak", "slowly."]).await;
    let pins = run_ok(service.folder(), &["sessions", "pins", "list", &id, "--json"]).await;
    assert!(pins.contains("Speak slowly."), "{pins}");
    assert!(!run(service.folder(), &["sessions", "edit", &id, "no-such-file"]).await.status.success());
    service.stop().await;
}

/// No server tells how long a prompt is: neither the count of an upstream nor its usage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_cannot_count_is_counted_for_with_a_margin() {
    const SUMMARY: &str = "## User\n- Ann has a sister called Lena, who comes on Friday with the dog.";
    let mut stand_in = StandIn::start().await;
    let service = Service::start(&["--set", &format!("upstream.url={}", stand_in.url), "--ctx-size=2000"]).await;
    let prompts = Arc::new(Mutex::new(Vec::new()));
    let kept = prompts.clone();
    let model = tokio::spawn(async move {
        loop {
            let mut asked = stand_in.next().await;
            let messages = asked.request["messages"].as_array().unwrap().clone();
            let is_request = messages.last().unwrap().to_string().contains("(Memory)");
            kept.lock().unwrap().push(messages);
            asked.say(if is_request { SUMMARY } else { "That sounds like a plan for all of us." }).await;
            asked.done().await;
        }
    });
    let mut client = service.connect("?extensions=reprise").await;
    let mut turns = 0;
    while heard(&client, 0, "compaction.completed").is_none() {
        turns += 1;
        assert!(turns < 100, "the window never fills");
        turn(&mut client, turns).await.expect("the service answers");
        client.until("context.updated").await;
    }
    let told: Vec<[u64; 2]> =
        client.heard.iter().filter(|event| event["type"] == "context.updated").map(counted).collect();
    println!("{turns} turns, tokens with their margin: {told:?}");
    for [tokens, margin] in &told {
        // A fifth of the estimate (upstream.count_margin), so a sixth of the whole.
        assert!(margin * 6 >= *tokens && margin * 6 <= tokens + 6, "{margin} of {tokens}");
    }
    let [before, after] = [told[told.len() - 2], told[told.len() - 1]];
    assert!(before[0] > 3 * after[0] / 2, "{before:?} {after:?}");

    turn(&mut client, turns + 1).await.expect("the service answers");
    let prompt = prompts.lock().unwrap().last().cloned().unwrap();
    let memory = prompt[1]["content"].as_str().unwrap();
    // An upstream refuses a result without a call, so the same comes from the user, in the marks of one.
    assert!(memory.starts_with("<tool_response>") && memory.contains("sister called Lena"), "{memory}");
    assert!(prompt.iter().all(|message| !message.to_string().contains("This is turn 1.")));
    model.abort();
    service.stop().await;
}

fn counted(updated: &Value) -> [u64; 2] {
    ["tokens", "margin_tokens"].map(|key| updated[key].as_u64().unwrap_or_else(|| panic!("{updated}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_moment_leaves_the_session_before_or_after() {
    let kills = number("REPRISE_KILLS").unwrap_or(KILLS);
    let mut random = Random(number("REPRISE_SEED").unwrap_or(SEED));
    let mut folder = tempfile::tempdir().unwrap();
    let (mut id, mut said, mut swaps, mut in_use) = (String::new(), 0, 0, None);
    let mut round = 0;
    // On a busy machine a kill comes before most swaps: more of them follow until one was seen.
    while round < kills || (swaps == 0 && round < 5 * kills) {
        round += 1;
        let service = Service::in_folder(folder, &SMALL).await;
        let query =
            if id.is_empty() { "?extensions=reprise".to_owned() } else { format!("?session={id}&extensions=reprise") };
        let mut client = service.connect(&query).await;
        id = client.until("session.created").await["session"]["id"].as_str().unwrap().to_owned();
        // Up to a window that is full, and on until something is under way.
        let mut acknowledged = in_use;
        let mut begun = false;
        while !begun {
            let before = client.heard.len();
            said += 1;
            turn(&mut client, said).await.expect("the service answers");
            let waited = if fill(&client) > NEARLY_FULL { Duration::from_secs(2) } else { Duration::from_millis(1) };
            begun = within(&mut client, "compaction.started", waited).await.is_some()
                || heard(&client, before, "compaction.started").is_some();
        }
        let delay = Duration::from_micros(random.below(MICROSECONDS_UNTIL_KILL));
        let dead = async {
            sleep(delay).await;
            service.kill().await
        };
        let listening = async {
            while let Ok(event) = client.next().await {
                if event["type"] == "compaction.completed" {
                    acknowledged = event["version"].as_u64();
                }
            }
        };
        let (left, ()) = timeout(PATIENCE, async { tokio::join!(dead, listening) }).await.expect("it dies");
        folder = left;
        check_store(folder.path()).await;

        let service = Service::in_folder(folder, &SMALL).await;
        let session = service.get(&format!("/v1/sessions/{id}")).await;
        let stands = session["summary"]["version"].as_u64();
        // What was told to be in use is, or what came after it: that may be as a whole without being told.
        assert!(stands >= acknowledged, "round {round}: {stands:?}, told {acknowledged:?}, before {in_use:?}");
        assert_eq!(session["summary_is_stale"], false, "round {round}");
        let summaries = service.get(&format!("/v1/sessions/{id}/summaries")).await;
        let used: Vec<_> = summaries["data"].as_array().unwrap().iter().filter(|one| one["in_use"] == true).collect();
        assert_eq!(used.len(), usize::from(stands.is_some()), "round {round}: {summaries:#}");
        // One that was not used before a later one was made is not waited for.
        let waits = |one: &&Value| one["applied_at_ms"].is_null() && one["version"].as_u64() > stands;
        let unused = summaries["data"].as_array().unwrap().iter().filter(waits).count();
        swaps += u64::from(stands > in_use);
        // Every word is there, and the conversation goes on.
        let mut items = 0;
        let mut path = format!("/v1/sessions/{id}/items");
        loop {
            let page = service.get(&path).await;
            items +=
                page["data"].as_array().unwrap().iter().filter(|item| item["body"]["role"] == "user").count() as u64;
            let Some(after) = page["after"].as_str() else { break };
            path = format!("/v1/sessions/{id}/items?after={after}");
        }
        assert_eq!(items, said, "round {round}");
        let mut client = service.connect(&format!("?session={id}&extensions=reprise")).await;
        said += 1;
        let done = turn(&mut client, said).await.expect("the service answers");
        assert_ne!(done["response"]["status"], "failed", "round {round}: {done:#}");
        if unused > 0 {
            // What was made before the crash is put to use, or made again.
            let came = heard(&client, 0, "compaction.completed").is_some()
                || within(&mut client, "compaction.completed", PATIENCE).await.is_some();
            assert!(came, "round {round}: the swap is not made up for");
            swaps += 1;
        }
        folder = service.stop().await;
        // It may have come between the turn and the stop.
        let service = Service::in_folder(folder, &SMALL).await;
        in_use = service.get(&format!("/v1/sessions/{id}")).await["summary"]["version"].as_u64();
        folder = service.stop().await;
    }
    println!("{round} kills, {said} turns, {swaps} swaps seen");
    assert!(swaps > 0, "nothing was ever swapped");
}
