//! `reprise ab` as people call it: the real binary, the built-in model, windows of it.

use serde_json::{Value, json};
use std::path::Path;
use tests::client::Client;
use tests::service::{Service, command, run, run_ok};

/// The demonstration, shortened: a run, and what it found.
async fn replay(folder: &Path, more: &[&str]) -> Value {
    let arguments = ["ab", "replay", "--json", "--runs", "1", "--reply", "24"];
    // As long as it takes: minutes on a machine that is busy with something else.
    let output = command(folder, &[&arguments, more].concat()).output().await.expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn row<'a>(report: &'a Value, metric: &str) -> &'a Value {
    let rows = report["comparison"]["rows"].as_array().expect("rows");
    rows.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("no {metric} in {rows:#?}"))
}

fn mean(report: &Value, metric: &str, arm: usize) -> f64 {
    row(report, metric)["cells"][arm]["mean"].as_f64().unwrap_or_else(|| panic!("no {metric} of arm {arm}"))
}

/// Half a window is full twice as often. A command that asks again for what was played is only told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_halved_window_is_compacted_more_often_and_a_replay_is_gone_on_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let html = folder.path().join("page.html");
    let first = replay(folder.path(), &["--turns", "4"]).await;
    assert_eq!(first["comparison"]["traffic"][0]["turns"], 4);
    assert_eq!(replay(folder.path(), &["--turns", "4"]).await, first, "nothing is played twice");
    // Another script is another replay.
    let out = run(folder.path(), &["ab", "replay", "--turns", "36"]).await;
    assert!(!out.status.success() && String::from_utf8_lossy(&out.stderr).contains("--again"));
    let page = html.to_str().expect("a path");
    let report = replay(folder.path(), &["--turns", "36", "--again", "--html", page]).await;
    let compactions = [0, 1].map(|arm| mean(&report, "compactions", arm));
    assert!(compactions[0] > compactions[1], "{compactions:?}");
    let bytes = &row(&report, "session_bytes")["cells"][1]["median"];
    assert!(bytes.as_f64().is_some_and(|bytes| bytes > 0.0), "{bytes}");
    let page = std::fs::read_to_string(&html).expect("a page");
    assert!(page.starts_with("<!doctype html>") && page.contains("<svg") && !page.contains("<script"));
}

/// Two presets that differ in nothing but their name. What of their times differs by chance is in `services/experiment`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_arms_are_equal_in_all_that_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("reprise.toml"), "[presets.twin]\nbase = \"builtin-1k\"\n").unwrap();
    let report = replay(folder.path(), &["--turns", "12", "--arms", "builtin-1k,twin"]).await;
    for metric in ["tokens_in", "tokens_out", "fill_share"] {
        let [one, other] = [0, 1].map(|arm| &row(&report, metric)["cells"][arm]);
        assert_eq!(one, other, "{metric}");
    }
}

/// People of both arms talk and say what they thought of it; the report has all of that and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_on_live_traffic_agrees_with_what_was_said() {
    const USERS: [(&str, usize, &[i64]); 4] =
        [("ann", 0, &[1, 1]), ("bob", 0, &[-1, 1]), ("cleo", 1, &[-1, -1]), ("dan", 1, &[1, 0, 1])];
    const ARMS: [&str; 2] = ["builtin-1k", "builtin-2k"];
    let folder = tempfile::tempdir().expect("a folder");
    let overrides: Vec<String> = USERS.iter().map(|(user, arm, _)| format!("{user} = {:?}", ARMS[*arm])).collect();
    let arms = ARMS.map(|arm| format!("{arm:?} = 1")).join(", ");
    let config = format!(
        "[experiment]\nname = \"windows\"\narms = {{ {arms} }}\noverrides = {{ {} }}\n[model]\npreset = \"builtin\"\n",
        overrides.join(", ")
    );
    std::fs::write(folder.path().join("reprise.toml"), config).unwrap();
    let mut keys = Vec::new();
    for (user, _, _) in USERS {
        let made = run_ok(folder.path(), &["keys", "create", "--user", user, "--json"]).await;
        let made: Value = serde_json::from_str(&made).unwrap();
        keys.push(format!("Bearer {}", made["key"].as_str().unwrap()));
    }
    let service = Service::built_in_model_in_folder(folder, &["--set", "auth.required=always"]).await;
    // By arm: turns, tokens that were computed, thumbs up, thumbs.
    let mut heard = [[0.0; 4]; 2];
    for ((user, arm, thumbs), key) in USERS.iter().zip(&keys) {
        let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
        let mut client = service.try_connect("?extensions=reprise", &headers[..1]).await.unwrap();
        let session = client.session_id().await;
        for (turn, thumb) in thumbs.iter().enumerate() {
            client.ask_for(if turn == 0 { "Hello" } else { "How are you?" }, 12).await;
            // The one or the other comes first.
            let since = client.heard.len();
            let found =
                |client: &Client, kind: &str| client.heard[since..].iter().find(|event| event["type"] == kind).cloned();
            let (told, report) = loop {
                if let (Some(told), Some(report)) = (found(&client, "context.updated"), found(&client, "turn.report")) {
                    break (told, report);
                }
                client.event().await;
            };
            assert_eq!(told["arm"], ARMS[*arm], "{user}");
            heard[*arm][0] += 1.0;
            heard[*arm][1] += report["computed_tokens"].as_f64().unwrap();
            if *thumb != 0 {
                heard[*arm][2] += f64::from(u8::from(*thumb > 0));
                heard[*arm][3] += 1.0;
            }
            let body = json!({"session_id": session, "response_id": report["response_id"], "value": thumb}).to_string();
            // What a turn cost is stored behind its report.
            loop {
                let (status, answer) = service.http("POST", "/v1/feedback", &headers, &body).await;
                if status == 200 {
                    break;
                }
                assert_eq!(status, 404, "{answer}");
            }
        }
    }
    // A client that names a preset is in no arm.
    let mut other = service.try_connect("?model=builtin", &[("authorization", keys[0].as_str())]).await.unwrap();
    other.ask_for("Hello", 12).await;
    other.until("response.done").await;

    let html = service.folder().join("report.html");
    let told = run_ok(service.folder(), &["ab", "report", "--json", "--html", html.to_str().unwrap()]).await;
    let report: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(report["comparison"]["arms"], json!(ARMS));
    for (arm, [turns, computed, up, thumbs]) in heard.into_iter().enumerate() {
        let traffic = &report["comparison"]["traffic"][arm];
        assert_eq!(
            (&traffic["users"], &traffic["sessions"], &traffic["turns"]),
            (&json!(2), &json!(2), &json!(turns as u64))
        );
        let sum = mean(&report, "computed_tokens", arm) * turns;
        assert!((sum - computed).abs() < 1e-6, "{sum} is not {computed}");
        assert_eq!(row(&report, "thumbs_up")["cells"][arm]["n"], json!(thumbs as u64));
        assert!((mean(&report, "thumbs_up", arm) * thumbs - up).abs() < 1e-9, "{up} of {thumbs}");
    }
    let warnings = report["comparison"]["warnings"].as_array().unwrap();
    let too_few: Vec<_> = warnings.iter().filter(|warning| warning["kind"] == "too_few_users").collect();
    assert_eq!(too_few.len(), 2, "{warnings:#?}");
    let page = std::fs::read_to_string(&html).unwrap();
    assert!(page.contains("2 users, 2 sessions, 4 turns") && page.contains("2 users, 2 sessions, 5 turns"), "{page}");
    assert!(page.contains("Take care:") && page.contains("builtin-2k"));
    service.stop().await;
}
