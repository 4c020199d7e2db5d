//! Starts, logs and proxies of the service, with the real binary.

use serde_json::Value;
use std::path::Path;
use std::process::{Output, Stdio};
use tempfile::TempDir;
use tests::client::PATIENCE;
use tests::hub::{REPO, StandInHub};
use tests::service::{Service, command, http, tiny_model};
use tests::upstream::StandIn;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// `start.sh` in a folder of its own, on a machine without cargo, with the binary where cargo would have put it.
fn start_sh(folder: &Path, has_binary: bool) -> Command {
    let root = tests::house::files::root();
    std::fs::copy(root.join("start.sh"), folder.join("start.sh")).unwrap();
    std::fs::create_dir_all(folder.join("tools")).unwrap();
    std::fs::create_dir_all(folder.join("target/release")).unwrap();
    let link = |from: &Path, to: &str| {
        let _ = std::os::unix::fs::symlink(from, folder.join(to));
    };
    link(Path::new("/usr/bin/dirname"), "tools/dirname");
    if has_binary {
        link(tests::reprise::binary(), "target/release/reprise");
    }
    let mut command = Command::new("/bin/bash");
    command.arg(folder.join("start.sh")).env_clear().env("PATH", folder.join("tools")).env("HOME", folder);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn ends(mut command: Command) -> (Output, String, String) {
    let output = timeout(PATIENCE, command.output()).await.expect("it ends").expect("it starts");
    let [said, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output, said, error)
}

#[tokio::test]
async fn start_sh_chooses_by_environment_and_flags_win() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = start_sh(folder.path(), true);
    command.env("LLM_BACKEND", "qwen3.5-9b-64k").env("CTX_SIZE", "60000").args(["--port", "1234", "--print-config"]);
    let (output, said, error) = ends(command).await;
    assert!(output.status.success(), "{error}");
    let line =
        |key: &str| said.lines().find(|line| line.starts_with(key)).unwrap_or_else(|| panic!("no {key}: {said}"));
    assert!(line("preset = ").contains("qwen3.5-9b-64k") && line("preset = ").contains("REPRISE__MODEL__PRESET"));
    assert!(line("port = 1234").contains("--port"));
    let set = said.lines().find(|line| line.contains("REPRISE__MODEL__CTX_SIZE")).expect("the window's origin");
    assert!(set.contains("60000"), "{set}");

    let mut command = start_sh(folder.path(), true);
    command.env("LLM_BACKEND", "qwen3.5-9b-64k").args(["--preset", "qwen3.5-9b-16k", "--print-config"]);
    let (_, said, _) = ends(command).await;
    let chosen = said.lines().find(|line| line.starts_with("preset = ")).unwrap();
    assert!(chosen.contains("qwen3.5-9b-16k") && chosen.contains("--preset"), "the flag wins: {chosen}");

    let nothing = tempfile::tempdir().unwrap();
    let (output, _, error) = ends(start_sh(nothing.path(), false)).await;
    assert!(output.status.code() == Some(1) && error.contains("install Rust"), "{error}");
}

/// A cargo that only counts how often it was asked to build.
#[tokio::test]
async fn start_sh_builds_what_changed_and_else_starts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["Cargo.toml", "services/reprise/src/main.rs"];
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for source in sources.map(|source| folder.path().join(source)) {
        std::fs::create_dir_all(source.parent().unwrap()).unwrap();
        let file = std::fs::File::create(source).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let start = async |more: &[&str]| {
        let mut command = start_sh(folder.path(), true);
        let cargo = folder.path().join("tools/cargo");
        std::fs::write(&cargo, "#!/bin/bash\necho \"$@\" >> builds\n").unwrap();
        std::fs::set_permissions(&cargo, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        for tool in ["find", "mkdir", "mv"] {
            let _ =
                std::os::unix::fs::symlink(Path::new("/usr/bin").join(tool), folder.path().join("tools").join(tool));
        }
        command.args(more);
        let begin = std::time::Instant::now();
        let (output, said, error) = ends(command).await;
        assert!(output.status.success(), "{error}");
        let builds = std::fs::read_to_string(folder.path().join("builds")).unwrap_or_default();
        (builds.lines().count(), said, begin.elapsed())
    };
    let print = ["--print-config"];
    assert_eq!(start(&print).await.0, 1, "a first start builds");
    let (builds, said, took) = start(&print).await;
    assert!(builds == 1 && said.contains("[server]"), "{builds}: {said:.100}");
    println!("a second start decides and prints its configuration in {took:?}");
    let file = std::fs::File::create(folder.path().join(sources[1])).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(start(&print).await.0, 2, "what changed is built");
}

/// The preset of a home whose model is on a stand-in for the hub.
fn home_without_its_model(folder: &Path) -> StandInHub {
    let model = std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/gguf/dense-wide.q8_0.gguf"));
    let hub = StandInHub::start(&[("model.gguf", model.unwrap())]);
    let settings = format!(
        "[hub]\nurl = {:?}\n[model]\npreset = \"home\"\n[wyoming]\nport = 0\n[presets.home]\nbase = \"default\"\nctx_size = 2000\n\
         source = {{ repo = {REPO:?}, file = \"model.gguf\" }}\n",
        hub.url
    );
    std::fs::write(folder.join("reprise.toml"), settings).unwrap();
    hub
}

#[tokio::test]
async fn a_missing_model_is_fetched_when_the_user_wants_it() {
    let folder = tempfile::tempdir().unwrap();
    let hub = home_without_its_model(folder.path());
    let file = folder.path().join("data/models").join(REPO).join("model.gguf");
    let mut command = start_sh(folder.path(), true);
    command.args(["--port", "0"]);
    let (output, _, error) = ends(command).await;
    assert!(!output.status.success() && error.contains("fetch it with `reprise pull home`"), "{error}");
    assert!(!file.exists() && hub.seen().is_empty(), "nothing is fetched without a question");

    let arguments = ["serve", "--port", "0", "--yes"];
    let service = Service::with_arguments(folder, &[], &arguments).await.unwrap_or_else(|(_, error)| panic!("{error}"));
    assert!(service.folder().join("data/models").join(REPO).join("model.gguf").is_file());
    assert!(service.screen.contains("preset home"), "{}", service.screen);
    let log = service.stop_and_read_log().await;
    assert!(log.contains("the model of preset home is not here: ") && log.contains(" are free"), "{log}");
    drop(hub);
}

/// A terminal is asked; any other word than yes leaves everything as it is.
#[tokio::test]
async fn a_terminal_is_asked_whether_to_fetch_the_model() {
    if !Path::new("/usr/bin/script").exists() {
        println!("skipped: there is no `script` to make a terminal with");
        return;
    }
    for (answer, fetched) in [("n\n", false), ("y\n", true)] {
        let folder = tempfile::tempdir().unwrap();
        let _hub = home_without_its_model(folder.path());
        // After the fetch the address is one that no machine has, so that the service ends.
        let serve = format!("{} serve --port 0 --host 192.0.2.1", tests::reprise::binary().display());
        let mut command = Command::new("/usr/bin/script");
        command.args(["-qec", &serve, "/dev/null"]).env_clear().env("HOME", folder.path()).env("TERM", "dumb");
        command.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut keys = child.stdin.take().unwrap();
        keys.write_all(answer.as_bytes()).await.unwrap();
        let output = timeout(PATIENCE, child.wait_with_output()).await.expect("it ends").unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("fetch it now? [y/N]"), "{said}");
        let file = folder.path().join("data/models").join(REPO).join("model.gguf");
        assert_eq!(file.exists(), fetched, "{answer:?}: {said}");
    }
}

#[tokio::test]
async fn the_screen_says_how_a_phone_gets_in() {
    let service = Service::start(&[]).await;
    let line = service.screen.lines().find(|line| line.contains("for a phone: "));
    match line {
        Some(line) => assert!(line.contains("--host 0.0.0.0, then http://") && line.contains("keys create"), "{line}"),
        None => println!("skipped: this machine has no network"),
    }
    service.stop().await;
}

#[tokio::test]
async fn start_sh_takes_the_model_that_is_there_and_stops_on_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("data/models")).unwrap();
    std::os::unix::fs::symlink(tiny_model(), folder.path().join("data/models/some-model")).unwrap();
    let mut command = start_sh(folder.path(), true);
    command.env("CTX_SIZE", "2500").args(["--preset", "default", "--port", "0"]);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut screen = String::new();
    while !screen.contains("reprise chat") {
        let line = timeout(PATIENCE, lines.next_line()).await.expect("a line").unwrap();
        screen += &line.unwrap_or_else(|| panic!("it ended after: {screen}"));
        screen.push('\n');
    }
    for part in ["address   http://127.0.0.1:", "2,500 tokens", "memory", "/v1/realtime"] {
        assert!(screen.contains(part), "no {part:?} in {screen}");
    }
    // The shell became the service, so a signal to the one is one to the other.
    let pid = child.id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let status = timeout(PATIENCE, child.wait()).await.expect("it stops").unwrap();
    assert!(status.success(), "{status}");
}

/// Says something that no log may hold, and gives back the log.
async fn log_of(more: &[&str]) -> String {
    let service = Service::start(more).await;
    let mut client = service.connect("?extensions=reprise").await;
    client.session_id().await;
    client.ask_for("The xylophone is under the bed.", 6).await;
    client.until("turn.report").await;
    drop(client);
    service.stop_and_read_log().await
}

#[tokio::test]
async fn logs_say_session_turn_and_request_and_what_people_say_only_when_asked_to() {
    let json = ["--set", "logging.format=json", "--set", "logging.level=trace"];
    let log = log_of(&json).await;
    assert!(!log.contains("xylophone"), "{log}");
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let done = lines.iter().find(|line| line["message"] == "a reply is done").unwrap_or_else(|| panic!("{log}"));
    let spans = done["spans"].as_array().unwrap();
    let field = |name: &str, key: &str| {
        let span = spans.iter().find(|span| span["name"] == name);
        span.map(|span| span[key].clone()).unwrap_or_default()
    };
    assert!(field("session", "session").as_str().is_some_and(|id| id.starts_with("sess_")), "{done:#}");
    assert_eq!(field("turn", "turn"), 1, "{done:#}");
    assert!(field("turn", "request").as_str().is_some_and(|id| id.starts_with("resp_")), "{done:#}");

    assert!(log_of(&[&json[..], &["--set", "logging.user_text=true"]].concat()).await.contains("xylophone"));
    let human = log_of(&[]).await;
    assert!(
        human.contains("a reply is done") && human.contains("session:turn: ") && human.contains("session=sess_"),
        "{human}"
    );
}

#[tokio::test]
async fn the_service_may_be_the_upstream_of_another_one() {
    let behind = Service::start(&[]).await;
    let upstream = format!("upstream.url=http://{}/v1", behind.address);
    let folder: TempDir = tempfile::tempdir().unwrap();
    let front = Service::in_folder(folder, &["--set", &upstream]).await;
    let mut client = front.connect("").await;
    client.session_id().await;
    for turn in 1..=3 {
        client.ask_for(&format!("This is turn {turn}."), 8).await;
        let done = client.until("response.done").await;
        assert!(matches!(done["response"]["status"].as_str(), Some("completed" | "incomplete")), "{done:#}");
        assert!(done["response"]["usage"]["input_tokens"].as_u64() > Some(0), "{done:#}");
    }
    // A barge-in here is heard there. The random model may be done before.
    let cancelled = r#"reprise_answers_total{purpose="reply",priority="talk",outcome="cancelled"}"#;
    for attempt in 0.. {
        assert!(attempt < 20, "the model never has much to say");
        client.ask_for("Tell me everything.", 2000).await;
        client.until("response.created").await;
        client.say(serde_json::json!({"type": "response.cancel"})).await;
        let done = loop {
            let event = client.event().await;
            if event["type"] == "response.done" {
                break event;
            }
        };
        if done["response"]["status"] == "cancelled" {
            break;
        }
        client.expect_error("response_cancel_not_active").await;
    }
    let told = async {
        while !behind.http("GET", "/metrics", &[], "").await.1.contains(cancelled) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.expect("the service behind stops decoding");
    front.stop().await;
    behind.stop().await;
}

#[tokio::test]
async fn it_is_ready_when_the_model_is_and_not_before() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = silent.local_addr().unwrap().to_string();
    // A port that is free a moment later too.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (address, folder) = (format!("127.0.0.1:{port}"), tempfile::tempdir().unwrap());
    let upstream = format!("upstream.url=http://{behind}/v1");
    // It is asked again and again.
    let often = ["limits.requests_per_minute_per_address=1000000", "limits.requests_per_minute_per_key=1000000"];
    let arguments = ["serve", "--port", &port.to_string(), "--set", &upstream, "--set", often[0], "--set", often[1]];
    let mut child = command(folder.path(), &arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    // It asks what model there is, and waits for the answer.
    let (asking, _) = timeout(PATIENCE, silent.accept()).await.expect("it looks for its model").unwrap();
    let (status, body) = http(&address, "GET", "/healthz", &[], "").await;
    assert!(status == 503 && body.contains("starting"), "{status}: {body}");

    // No server answers: it starts without, and says that it is not ready.
    drop((asking, silent));
    let health = async |expected: u16| loop {
        let (status, body) = http(&address, "GET", "/healthz", &[], "").await;
        let body: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        if status == expected && body["status"].is_string() {
            return body;
        }
        assert_eq!(status, 503, "{body}");
        tokio::task::yield_now().await;
    };
    let trouble = timeout(PATIENCE, health(503)).await.expect("it starts");
    assert_eq!(trouble["status"], "not_ready", "{trouble}");
    assert!(trouble["trouble"].is_string(), "it says why: {trouble}");

    let _stand_in = StandIn::at(&behind).await;
    let ready = timeout(PATIENCE, health(200)).await.expect("it finds its model");
    assert_eq!(ready["status"], "ok", "{ready}");
    child.kill().await.unwrap();
}

#[tokio::test]
async fn more_memory_than_the_machine_has_is_told_at_the_start() {
    let service = Service::start(&["--set", "memory.total=900000GiB"]).await;
    assert!(service.screen.contains("memory.total is 921600000 MiB and the machine has"), "{}", service.screen);
    service.stop().await;
}

#[tokio::test]
async fn a_command_line_for_llama_server_starts_the_service() {
    let folder = tempfile::tempdir().unwrap();
    let theirs = ["-c", "2000", "-t", "1", "-ngl", "0", "--no-mmap", "-ctk", "q8_0", "-ctv", "q4_0", "-np", "2"];
    let rest = ["--reasoning-budget", "0", "--jinja", "--api-key", "sk-of-theirs"];
    let service = Service::in_folder(folder, &[&theirs[..], &rest].concat()).await;
    assert_eq!(service.http("GET", "/v1/models", &[], "").await.0, 401);
    assert_eq!(service.http("GET", "/v1/models", &[("authorization", "Bearer sk-other")], "").await.0, 401);
    let headers = [("authorization", "Bearer sk-of-theirs")];
    let (status, models) = service.http("GET", "/v1/models", &headers, "").await;
    assert!(status == 200 && models.contains("2000"), "{models}");
    // Without it the next start does not know the key any more.
    let folder = service.stop().await;
    let service = Service::in_folder(folder, &["--set", "auth.required=always", "--api-key", "sk-new"]).await;
    assert_eq!(service.http("GET", "/v1/models", &headers, "").await.0, 401);
    service.stop().await;

    for (command, flag, says) in [("serve", "--mlock", "--no-mmap"), ("run", "--n-predict", "--max-tokens")] {
        let output = self::command(Path::new("."), &[command, flag, "5"]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says) && said.contains(flag), "{said}");
    }
}
