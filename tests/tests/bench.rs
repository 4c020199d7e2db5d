//! `reprise bench` as a program calls it: what is measured is there and fits together. How fast it is, no test says.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tests::reprise::binary;
use tests::service::Service;

fn model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/dense-wide")
}

fn bench(args: &[&str]) -> Output {
    Command::new(binary()).args(["--threads", "1", "bench"]).args(args).output().unwrap()
}

fn measure(args: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (model, plot) = (model(), folder.path().join("plot.svg"));
    let more = ["--json", "--model", model.to_str().unwrap(), "--plot", plot.to_str().unwrap()];
    let output = bench(&[args, &more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("<circle"), "{svg}");
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let machine = &measured["machine"];
    assert_eq!((&machine["threads"], &machine["version"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()));
    for key in ["cpu", "level"] {
        assert!(machine[key].as_str().is_some_and(|name| !name.is_empty()), "{machine}");
    }
    measured
}

fn positive(value: &Value) -> f64 {
    value.as_f64().filter(|number| *number > 0.0).unwrap_or_else(|| panic!("{value} is no measurement"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

#[test]
fn each_format_is_measured_behind_each_past_in_turns() {
    let few = ["--decode", "2", "--rounds", "1", "--memory-mib", "1"];
    let measured = measure(&[&["windows", "--ctx", "40,300", "--kv", "q8,q4,tq4"][..], &few].concat());
    let rows = list(&measured["windows"]);
    let of = |row: &Value| (row["ctx"].as_u64().unwrap(), row["kv"].as_str().unwrap().to_owned());
    let expected = [40, 300].map(|ctx| ["q8", "q4", "tq4"].map(|kv| (ctx, kv.to_owned()))).concat();
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected);
    for row in rows {
        for key in ["decode_tokens_per_s", "decode_share_of_memory_speed", "last_chunk_tokens_per_s", "kv_bytes"] {
            positive(&row[key]);
        }
        let beside = positive(&row["decode_beside_faster_of_q8_and_q4"]);
        assert!(beside <= 1.0 || row["kv"] == "tq4", "the faster of both is not faster than itself: {row}");
    }
    let [long, longest] = [3, 5].map(|at| rows[at]["kv_bytes"].as_u64().unwrap());
    assert!(long > longest, "tq4 takes less than q8");
    let wrong = bench(&["windows", "--kv", "q5"]);
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("give some of f16, q8"));
}

#[test]
fn states_in_fewer_bits_drift_and_exact_ones_do_not() {
    let model = model();
    let args = [
        "drift",
        "--model",
        model.to_str().unwrap(),
        "--precision",
        "f32",
        "--tokens",
        "96",
        "--every",
        "16",
        "--json",
    ];
    let output = bench(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = list(&measured["rows"]);
    let formats: Vec<&str> = rows.iter().map(|row| row["format"].as_str().unwrap()).collect();
    assert_eq!(formats, ["f32", "bf16", "q8_0", "log f32", "log bf16", "log bf16, decays too"]);
    let of = |key: &str| rows.iter().map(|row| row[key].as_f64().unwrap()).collect::<Vec<_>>();
    let (kl, bytes) = (of("kl_mean"), of("snapshot_bytes"));
    assert!(kl[0] == 0.0 && kl[1] > 0.0 && kl[2] > kl[1], "{kl:?}");
    assert!(kl[3] < 1e-9 && kl[4] > kl[3] && kl[5] > kl[3], "a log in f32 is exact: {kl:?}");
    assert!(bytes[0] > bytes[1] && bytes[1] > bytes[2] && bytes[3] == 2.0 * bytes[4], "{bytes:?}");
    assert_eq!(of("same_top_share")[0], 1.0);
    assert_eq!(of("times"), [6.0; 6]);
}

/// The built-in model has 4,096 tokens: the longest past without --ctx leaves room for what is read and written behind it.
#[test]
fn default_pasts_fit_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |args: &[&str]| tests::reprise::command(folder.path()).arg("bench").args(args).output().unwrap();
    let few = ["--model", "builtin", "--decode", "2", "--rounds", "1", "--memory-mib", "1", "--json"];
    for (what, rows, longest) in [(&["speed"][..], "contexts", 4064), (&["windows", "--kv", "q8"], "windows", 4094)] {
        let output = bench(&[what, &few[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
        let pasts: Vec<u64> = list(&measured[rows]).iter().map(|row| row["ctx"].as_u64().unwrap()).collect();
        assert_eq!(pasts, [512, longest]);
        let chosen = bench(&[what, &few[..], &["--ctx", "4096"]].concat());
        assert!(String::from_utf8_lossy(&chosen.stderr).contains("the model was made for 4096 tokens"), "{chosen:?}");
    }
}

#[test]
fn speed_is_measured_at_every_context_and_batch() {
    // Also without a subcommand.
    let counts = ["--ctx", "40,16", "--decode", "2", "--batch", "1,2", "--rounds", "2", "--memory-mib", "1"];
    for measured in [measure(&counts), measure(&[&["speed"], &counts[..]].concat())] {
        assert_eq!(measured["bench"], "speed");
        positive(&measured["memory_gb_per_s"]);
        let contexts = list(&measured["contexts"]);
        assert_eq!(contexts.iter().map(|at| at["ctx"].as_u64().unwrap()).collect::<Vec<_>>(), [16, 40]);
        let bytes = positive(&measured["model"]["weight_bytes_per_token"]);
        assert!(bytes < positive(&measured["model"]["weight_bytes"]));
        for at in contexts {
            for key in ["prefill_ms", "prefill_tokens_per_s", "prefill_last_chunk_tokens_per_s", "peak_rss_bytes"] {
                positive(&at[key]);
            }
            let batches: Vec<_> =
                list(&at["decode"]).iter().map(|decoded| decoded["batch"].as_u64().unwrap()).collect();
            assert_eq!(batches, [1, 2]);
            for decoded in list(&at["decode"]) {
                let steps_per_s = positive(&decoded["tokens_per_s"]) / positive(&decoded["batch"]);
                let speed = positive(&decoded["weight_gb_per_s"]);
                assert!((speed * 1e9 / (bytes * steps_per_s) - 1.0).abs() < 1e-6, "{decoded}");
            }
        }
        assert!(positive(&contexts[0]["prefill_ms"]) < positive(&contexts[1]["prefill_ms"]));
    }
}

#[test]
fn two_measurements_stand_beside_each_other_with_ratios_and_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let model = model();
    for name in ["a.json", "b.json"] {
        let sizes = ["--ctx", "16,40", "--decode", "2", "--rounds", "1", "--warmup", "1", "--memory-mib", "0"];
        let output = bench(&[&["--json", "--model", model.to_str().unwrap()], &sizes[..]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::write(path(name), output.stdout).unwrap();
    }
    let compare = ["--compare", &path("a.json"), &path("b.json"), "--plot", &path("plot.svg")];
    let output = bench(&[&compare[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = list(&compared["rows"]);
    // Reading from nothing and behind a past, memory, and writing, at both contexts.
    assert_eq!(rows.len(), 2 * 5, "{rows:?}");
    for row in rows {
        let [a, b, ratio] = ["a", "b", "ratio"].map(|key| positive(&row[key]));
        assert!((ratio - b / a).abs() < 1e-9, "{row}");
    }
    let svg = std::fs::read_to_string(path("plot.svg")).unwrap();
    assert_eq!(svg.matches("<circle").count(), 2 * 2 + 2, "two measurements at two contexts, and their names: {svg}");
    let output = bench(&compare);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("cached_prefill_ms") && printed.contains("ratio"), "{printed}");
}

#[test]
fn a_context_that_the_model_cannot_have_is_refused() {
    let model = model();
    let output = bench(&["--model", model.to_str().unwrap(), "--ctx", "5000", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("made for"), "{output:?}");
}

/// Twelve turns have each kind in them.
fn turns(door: &str) -> Value {
    let counts = ["--turns", "12", "--reply", "6", "--system", "30", "--history", "150", "--pause", "0"];
    let speech = ["--words-per-minute", "60000", "--door", door];
    let measured = measure(&[&["turns"], &counts[..], &speech].concat());
    assert_eq!((&measured["bench"], &measured["door"]), (&"turns".into(), &door.into()));
    let turns = list(&measured["turns"]);
    let kinds: Vec<&str> = turns.iter().map(|turn| turn["kind"].as_str().unwrap()).collect();
    let expected = [["turn"; 5].as_slice(), &["barge_in", "turn", "turn", "compaction", "turn", "turn", "barge_in"]];
    assert_eq!(kinds, expected.concat());
    for turn in turns {
        assert!(positive(&turn["prompt_tokens"]) >= turn["cached_tokens"].as_f64().unwrap(), "{turn}");
        assert!(turn["reply_tokens"].as_u64().unwrap() <= 6, "{turn}");
        let total = positive(&turn["total_ms"]);
        if !turn["first_token_ms"].is_null() {
            assert!(positive(&turn["first_token_ms"]) <= total, "{turn}");
        }
    }
    // A compaction makes the prompt shorter, and without one it grows.
    let prompt = |turn: usize| positive(&turns[turn - 1]["prompt_tokens"]);
    assert!(prompt(2) > prompt(1) && prompt(9) < prompt(8), "{turns:?}");
    let counted = |kind: &str| {
        let of_kind = turns[1..].iter().filter(|turn| turn["kind"] == kind && !turn["first_token_ms"].is_null());
        of_kind.count() as u64
    };
    for of_kind in list(&measured["summary"]) {
        let (kind, summary) = (of_kind["kind"].as_str().unwrap(), &of_kind["first_token_ms"]);
        assert_eq!(summary["n"].as_u64().unwrap_or(0), counted(kind), "{of_kind}");
        let [median, p95, max] = ["median", "p95", "max"].map(|key| positive(&summary[key]));
        assert!(median <= p95 && p95 <= max, "{of_kind}");
    }
    measured
}

#[test]
fn turns_over_the_websocket() {
    let measured = turns("realtime");
    for turn in list(&measured["turns"]) {
        let [prompt, computed] = ["prompt_tokens", "computed_tokens"].map(|key| positive(&turn[key]));
        assert!(computed <= prompt, "{turn}");
    }
    assert!(measured["speech"].is_null());
}

#[test]
fn turns_with_partial_transcripts() {
    let measured = turns("realtime-partial");
    assert_eq!(measured["speech"]["words_per_minute"], 60000.0);
}

#[test]
fn turns_over_chat_completions() {
    turns("chat");
}

/// The whole conversation is there again, over both doors.
#[test]
fn a_conversation_goes_on_after_a_kill() {
    for door in ["realtime", "chat"] {
        let counts = ["--turns", "4", "--reply", "4", "--system", "20", "--pause", "0", "--clock-in-system"];
        let measured = measure(&[&["turns", "--door", door, "--restart-before", "3"], &counts[..]].concat());
        positive(&measured["restart_ms"]);
        let turns = list(&measured["turns"]);
        assert_eq!(turns[2]["kind"], "restart");
        let prompts: Vec<f64> = turns.iter().map(|turn| positive(&turn["prompt_tokens"])).collect();
        assert!(prompts.is_sorted_by(|before, after| before < after), "{prompts:?}");
    }
}

#[test]
fn one_persona_is_computed_for_the_first_session_that_has_it() {
    let counts = ["--idle", "0", "--talking", "3", "--turns", "1", "--reply", "2", "--system", "300", "--in-turn"];
    let measured = measure(&[&["sessions"], &counts[..]].concat());
    let computed: Vec<f64> = list(&measured["first_turn_computed_tokens"]).iter().map(positive).collect();
    assert!(computed[0] > 2.0 * computed[1] && computed[0] > 2.0 * computed[2], "{computed:?}");
    assert!(measured["memory"]["bytes_per_idle_session"].is_null());
}

#[test]
fn sessions_that_are_idle_and_sessions_that_talk() {
    let counts = ["--idle", "5", "--talking", "2", "--turns", "2", "--reply", "4", "--system", "20"];
    let measured = measure(&[&["sessions"], &counts[..]].concat());
    assert_eq!((&measured["bench"], list(&measured["errors"])), (&"sessions".into(), &[][..]));
    assert_eq!(measured["connect_ms"]["n"], 5);
    let turns = list(&measured["turns"]);
    let mut talked: Vec<_> = turns.iter().map(|turn| (turn["session"].as_u64(), turn["turn"].as_u64())).collect();
    talked.sort();
    assert_eq!(talked, [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(session, turn)| (Some(session), Some(turn))));
    let memory = &measured["memory"];
    for moment in ["before", "with_idle", "after"] {
        assert!(positive(&memory[moment]["rss_bytes"]) <= positive(&memory[moment]["peak_rss_bytes"]), "{memory}");
    }
    assert!(memory["bytes_per_idle_session"].is_number(), "{memory}");
}

/// Counts of turns and computed tokens in conversations of a home; speed is not tested.
#[test]
fn a_home_begins_conversations_anew_over_a_restart_and_beside_a_peer() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (folder, url) = (tempfile::tempdir().unwrap(), format!("http://127.0.0.1:{port}"));
    let of_folder = |name: &str| folder.path().join(name).display().to_string();
    let command = format!(
        "{} serve --host 127.0.0.1 --port {port} --threads 1 --model {} --set store.path={} --set memory.disk_path={}",
        binary().display(),
        model().display(),
        of_folder("store"),
        of_folder("state")
    );
    let counts = ["--prompt", "700", "--tools", "3", "--turns", "3", "--rounds", "1", "--others", "1", "--reply", "4"];
    let pauses = ["--pause", "0", "--pause-before-restart", "2", "--peer", &url, "--peer-command", &command];
    let measured = measure(&[&["home"], &counts[..], &pauses].concat());
    assert_eq!((&measured["bench"], measured["entities"].as_u64() >= Some(10)), (&"home".into(), true));
    let rows = list(&measured["rows"]);
    let cases: Vec<&str> = rows.iter().map(|row| row["case"].as_str().unwrap()).collect();
    assert_eq!(cases.len(), 10, "{cases:?}");
    let computed = |row: usize| positive(&rows[row]["computed_tokens"]);
    assert!(computed(0) > 600.0 && computed(2) < 100.0, "{rows:?}");
    for row in rows {
        assert!(positive(&row["peer"]["computed_tokens"]) > 0.0 && positive(&row["ratio"]) > 0.0, "{row}");
    }
    let turns = |side: &str| list(&measured[side]).iter().filter(|turn| turn["case"] == "ordinary_turn").count();
    assert_eq!((turns("turns"), turns("peer_turns")), (2, 2));
}

/// Cost of a clock in the instructions: its line with notes, all behind it without; speed is not tested.
#[tokio::test]
async fn a_clock_at_the_top_costs_its_line_with_notes_and_all_without() {
    let model = model();
    let peer = Service::with_model(tempfile::tempdir().unwrap(), &model, &[]).await;
    let url = format!("http://{}", peer.address);
    let counts = ["--tables", "heads", "--prompt", "1500", "--turns", "4", "--reply", "4", "--pause", "0"];
    let more = ["--json", "--model", model.to_str().unwrap(), "--peer", &url];
    let output = bench(&[&["felt"], &counts[..], &more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    peer.stop().await;
    let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
    let table = &list(&measured["tables"])[0];
    assert_eq!((&measured["bench"], &table["table"]), (&"felt".into(), &"heads".into()));
    let rows = list(&table["rows"]);
    assert_eq!((rows.len(), list(&table["turns"]).len()), (9, 36));
    for row in rows {
        let (clock, client) = (row["clock"].as_str().unwrap(), row["client"].as_str().unwrap());
        let share = row["reused_share"].as_f64().unwrap();
        positive(&row["first_token_ms"]);
        match (clock, client) {
            ("top", "exact" | "peer") => assert!(share < 0.2, "{row}"),
            ("middle", "exact" | "peer") => assert!(share < 0.7, "{row}"),
            _ => assert!(share > 0.85, "{row}"),
        }
        let saves = clock != "unchanged" && client != "notes";
        assert_eq!(row["would_save_tokens"].as_u64().is_some_and(|tokens| tokens > 500), saves, "{row}");
        assert_eq!(row["holds"].is_null(), client != "notes", "{row}");
    }
}

#[test]
fn a_service_that_is_not_there_or_does_not_start_is_told_in_words() {
    // No program listens on port 1.
    let output = bench(&["turns", "--url", "http://127.0.0.1:1", "--door", "realtime"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot connect"), "{output:?}");
    let model = model();
    let no_room = ["--set", "memory.total=64MiB", "--set", "memory.token_cache_bytes=63MiB"];
    let output = bench(&[&["turns", "--model", model.to_str().unwrap()], &no_room[..]].concat());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && stderr.contains("does not start: "), "{stderr}");
}
