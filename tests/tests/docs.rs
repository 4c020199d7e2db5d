//! Pages of docs/: their commands run, their configurations load, their code is the scripts' of tests/clients.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tests::client::PATIENCE;
use tests::house::files::root;
use tests::service::Service;
use tests::snippets::{fences, with_code};
use tokio::process::Command;
use tokio::time::timeout;

/// Programs of commands that need a machine that a test has not: another network, a container engine, a registry.
const NOT_HERE: [&str; 2] = ["pip", "tailscale"];

fn pages() -> Vec<(String, PathBuf, String)> {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            (name, path, text)
        })
        .collect();
    pages.sort();
    pages
}

/// Pages whose commands run here. The others are older: their commands take hours, hubs or models.
const RUN: [&str; 11] = [
    "faq.md",
    "gpu.md",
    "home-assistant.md",
    "livekit.md",
    "open-webui.md",
    "openai-clients.md",
    "operations.md",
    "pipecat.md",
    "remote-access.md",
    "upstream-and-scaling.md",
    "your-own-frontend.md",
];

async fn typed(service: &Service, code: &str) -> Output {
    let code = code.replace("127.0.0.1:8080", &service.address);
    let tools = service.folder().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let _ = std::os::unix::fs::symlink(tests::reprise::binary(), tools.join("reprise"));
    let mut command = Command::new("/bin/bash");
    command.args(["-o", "pipefail", "-ec", &code]).env_clear().env("HOME", service.folder()).stdin(Stdio::null());
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", tools.display())).kill_on_drop(true);
    timeout(PATIENCE, command.current_dir(service.folder()).output()).await.expect("it ends").expect("it starts")
}

#[tokio::test]
async fn every_command_of_a_page_runs() {
    let service = Service::start(&["--set", "preset.reply_reserve_tokens=40"]).await;
    let other = Service::start(&[]).await;
    let mut count = 0;
    for (name, _, page) in pages().iter().filter(|(name, ..)| RUN.contains(&name.as_str())) {
        for code in fences(page, "sh") {
            let program = code.split_whitespace().next().unwrap_or_default();
            if program != "reprise" && !Path::new("/usr/bin").join(program).exists() {
                println!("skipped: there is no {program} for {name}");
                continue;
            }
            // What moves is imported where it is not yet.
            let there = if code.starts_with("reprise sessions import") { &other } else { &service };
            for moved in ["everything.jsonl", "computed"].map(|name| service.folder().join(name)) {
                if moved.exists() {
                    assert!(
                        Command::new("cp").arg("-r").args([&moved, other.folder()]).status().await.unwrap().success()
                    );
                }
            }
            let output = typed(there, &code).await;
            let [said, error] =
                [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            assert!(output.status.success(), "{name}: {code}\n{said}\n{error}");
            if program == "curl" && !code.contains("/metrics") {
                let answer: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{name}: {code}: {said}"));
                assert!(answer["error"].is_null(), "{name}: {code}: {said}");
            }
            count += 1;
        }
        for code in fences(page, "console") {
            let program = code.split_whitespace().next().unwrap_or_default();
            assert!(NOT_HERE.contains(&program), "{name}: nothing keeps {program} from running in this test");
        }
    }
    assert!(count > 10, "only {count} commands ran");
    service.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn every_configuration_of_a_page_loads() {
    let mut count = 0;
    for (name, _, page) in pages() {
        for code in fences(&page, "toml") {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("reprise.toml");
            // What a page leaves out.
            std::fs::write(&file, code.replace("...", "")).unwrap();
            let output = tests::service::run(folder.path(), &["serve", "--print-config"]).await;
            assert!(output.status.success(), "{name}:\n{code}\n{}", String::from_utf8_lossy(&output.stderr));
            count += 1;
        }
    }
    assert!(count > 5, "only {count} configurations");
}

/// `BLESS=1` writes the code anew.
#[test]
fn code_of_clients_is_what_their_tests_run() {
    let mut count = 0;
    for (name, path, page) in pages() {
        let current = with_code(&page, |file| std::fs::read_to_string(root().join(file)).unwrap());
        count += current.matches("<!-- code: ").count();
        if std::env::var_os("BLESS").is_some() && current != page {
            std::fs::write(path, &current).unwrap();
        }
        assert!(current == page || std::env::var_os("BLESS").is_some(), "{name} is old: run this test with BLESS=1");
    }
    assert!(count >= 6, "only {count} pieces of code");
}

#[test]
fn links_between_pages_lead_to_files() {
    let link = regex::Regex::new(r"\]\(([^)#:\s]+)(#[\w-]+)?\)").unwrap();
    let mut broken = Vec::new();
    let others = [
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "deploy/README.md",
        "deploy/lxc.md",
    ];
    let others = others.map(|name| {
        let path = root().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        (name.to_owned(), path, text)
    });
    for (name, path, page) in pages().into_iter().chain(others) {
        for found in link.captures_iter(&page) {
            let target = path.parent().unwrap().join(&found[1]);
            let heads = |anchor: &str| {
                let text = std::fs::read_to_string(&target).unwrap_or_default();
                text.lines().filter_map(|line| line.strip_prefix("## ")).any(|head| anchor_of(head) == anchor)
            };
            if !target.exists() || found.get(2).is_some_and(|anchor| !heads(&anchor.as_str()[1..])) {
                broken.push(format!("{name}: {}", &found[0]));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert_eq!(anchor_of("What the table does not show"), "what-the-table-does-not-show");
}

fn anchor_of(head: &str) -> String {
    let kept = head.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

// ---- The recorded conversation.

/// Messages of the client, each with the event that ends its answer.
fn script() -> Vec<(Value, &'static str)> {
    let partial = |text: &str| json!({"type": "input_text_buffer.update", "text": text});
    vec![
        (
            json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}),
            "session.updated",
        ),
        (partial("Good mor"), ""),
        (json!({"type": "input_text_buffer.commit", "text": "Good morning."}), "turn.report"),
    ]
}

/// Shows a frame on one line: no id, no long object, no time, which all differ from run to run.
fn shown(direction: char, frame: &Value) -> String {
    const KEPT: [&str; 12] = [
        "type",
        "text",
        "delta",
        "item",
        "role",
        "content",
        "index",
        "text_start",
        "text_end",
        "status",
        "reason",
        "session",
    ];
    fn short(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let kept = fields.iter().filter(|(key, value)| KEPT.contains(&key.as_str()) && !value.is_null());
                Value::Object(kept.map(|(key, value)| (key.clone(), short(value))).collect())
            }
            Value::Array(all) => Value::Array(all.iter().map(short).collect()),
            other => other.clone(),
        }
    }
    let mut line = match direction {
        '>' => frame.clone(),
        _ => short(frame),
    };
    if let Some(session) = line.get_mut("session").filter(|_| direction == '<') {
        *session = json!("...");
    }
    format!("{direction} {line}")
}

/// Types in their order; as many deltas as come count as one.
fn types(recorded: &str) -> Vec<String> {
    let frame = |line: &str| serde_json::from_str::<Value>(line.get(2..).unwrap_or_default()).unwrap_or_default();
    let named = |line: &str| format!("{} {}", &line[..1], frame(line)["type"].as_str().unwrap_or_default());
    let mut types: Vec<String> = recorded.lines().map(named).collect();
    types.dedup();
    types
}

/// `BLESS=1` records it anew.
#[tokio::test]
async fn the_recorded_conversation_happens_again() {
    let settings = ["--set", "preset.sampling.temperature=0", "--set", "preset.speculation.tokens=0"];
    let service = Service::built_in_model_in_folder(tempfile::tempdir().unwrap(), &settings).await;
    let mut client = service.connect("?extensions=reprise").await;
    let mut lines = vec![shown('<', &client.event().await)];
    for (said, until) in script() {
        lines.push(shown('>', &said));
        client.say(said).await;
        while !until.is_empty() {
            let frame = client.event().await;
            lines.push(shown('<', &frame));
            if frame["type"] == until {
                break;
            }
        }
    }
    service.stop().await;

    let (path, recorded) = (root().join("docs/your-own-frontend.md"), lines.join("\n"));
    let page = std::fs::read_to_string(&path).unwrap();
    let mark = "<!-- conversation -->\n```json\n";
    let (before, rest) = page.split_once(mark).expect("the page has a conversation");
    let (there, after) = rest.split_once("```").expect("it ends");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{before}{mark}{recorded}\n```{after}")).unwrap();
        return;
    }
    assert!(types(there).len() > 10, "{there}");
    assert_eq!(types(there), types(&recorded), "run this test with BLESS=1");
}
