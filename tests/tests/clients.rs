//! The clients that people have, from PyPI and npm, against the real binary with a tiny model.
//!
//! The scripts are in `tests/clients/`. Where the packages are is told by `REPRISE_CLIENTS_VENV` (a virtual environment
//! with `requirements.txt`) and `REPRISE_CLIENTS_NODE` (a folder with `package.json`'s `node_modules`). Without them a
//! test says that it is skipped, and with `REQUIRE_CLIENTS=1` it fails.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tests::service::{Service, check_store};
use tests::speech::{ScriptedSpeech, vowel};
use tests::upstream::StandIn;
use tests::wyoming::own_address;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// A script ends itself before that, and says where it was.
const DEADLINE: Duration = Duration::from_secs(300);

#[tokio::test]
async fn openai_python_chat() {
    python("openai_chat.py").await;
}

#[tokio::test]
async fn openai_python_completions() {
    python("openai_completions.py").await;
}

#[tokio::test]
async fn openai_python_responses() {
    python("openai_responses.py").await;
}

#[tokio::test]
async fn home_assistant() {
    python("home_assistant.py").await;
}

/// Release of openai-python that Home Assistant has, beside the newest one.
#[tokio::test]
async fn home_assistant_with_its_own_pins() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "home-assistant/openai") else { return };
    let pins = venv.join("home-assistant");
    let pin = include_str!("../clients/requirements-home-assistant.txt").trim().replace("openai==", "");
    for script in ["openai_chat.py", "home_assistant.py"] {
        let environment = [("PYTHONPATH", pins.as_path()), ("OPENAI_PIN", Path::new(&pin))];
        let service = Service::start(&["--set", "preset.sampling.temperature=0"]).await;
        run(service, venv.join("bin/python"), &["-B"], script, &environment).await;
    }
}

#[tokio::test]
async fn openai_python_realtime() {
    python("openai_realtime.py").await;
}

/// The example of the client library's page in Python, over a service that is killed and starts again.
#[tokio::test]
async fn the_python_example_talks_on_after_a_loss() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let service = Service::with_the_built_in_model().await;
    let address = service.address.clone();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../services/console/client/examples/terminal.py");
    let mut terminal = Command::new(venv.join("bin/python"))
        .args(["-B", example, &format!("http://{address}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the example starts");
    let mut types = terminal.stdin.take().expect("a keyboard");
    let mut screen = BufReader::new(terminal.stdout.take().expect("a screen")).lines();
    let mut say = async |words: &str| {
        types.write_all(format!("{words}\n").as_bytes()).await.expect("it reads");
        let line = timeout(DEADLINE, screen.next_line()).await.expect("it answers").expect("it writes");
        assert!(line.is_some_and(|line| !line.trim().is_empty()), "the reply has no words");
    };
    say("Good morning!").await;
    let folder = service.kill().await;
    // What answers meanwhile takes a connection and ends it without a word.
    let mute = TcpListener::bind(&address).await.expect("the port is free");
    drop(timeout(DEADLINE, mute.accept()).await.expect("the example tries again").expect("a connection"));
    drop(mute);
    let (_, port) = address.rsplit_once(':').expect("a port");
    let arguments = ["serve", &format!("--port={port}"), "--preset=builtin", "--set=wyoming.port=0"];
    let again = Service::with_arguments(folder, &[], &arguments).await;
    let Ok(service) = again else { panic!("the service does not start again") };
    say("Who are you?").await;
    drop(types);
    assert!(timeout(DEADLINE, terminal.wait()).await.expect("it ends").expect("it ran").success());
    let sessions = service.get("/v1/sessions").await;
    assert_eq!(sessions["data"].as_array().map(Vec::len), Some(1), "{sessions}");
    assert_eq!(sessions["data"][0]["items"], 4, "{sessions}");
}

#[tokio::test]
async fn pipecat_chat() {
    python("pipecat_chat.py").await;
}

#[tokio::test]
async fn pipecat_responses() {
    python_with_sense("pipecat_responses.py").await;
}

#[tokio::test]
async fn pipecat_realtime() {
    python("pipecat_realtime.py").await;
}

#[tokio::test]
async fn livekit_chat() {
    python("livekit_chat.py").await;
}

#[tokio::test]
async fn livekit_responses() {
    python_with_sense("livekit_responses.py").await;
}

#[tokio::test]
async fn livekit_realtime() {
    python("livekit_realtime.py").await;
}

#[tokio::test]
async fn agents_sdk_chat() {
    python("agents_chat.py").await;
}

#[tokio::test]
async fn agents_sdk_responses() {
    python_with_sense("agents_responses.py").await;
}

#[tokio::test]
async fn agents_sdk_realtime() {
    python("agents_realtime.py").await;
}

#[tokio::test]
async fn ollama_python() {
    python("ollama_chat.py").await;
}

#[tokio::test]
async fn wyoming_handle() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let address = own_address();
    let (host, port) = (format!("wyoming.host={}", address.ip()), format!("wyoming.port={}", address.port()));
    let settings = ["--set", "preset.sampling.temperature=0", "--set", &host, "--set", &port];
    let service = Service::start(&settings).await;
    let address = address.to_string();
    let environment = [("REPRISE_WYOMING", Path::new(&address))];
    run(service, venv.join("bin/python"), &["-B"], "wyoming_handle.py", &environment).await;
}

#[tokio::test]
async fn wyoming_intents() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let address = own_address();
    let mut stand_in = StandIn::start().await;
    let (host, port) = (format!("wyoming.host={}", address.ip()), format!("wyoming.port={}", address.port()));
    let upstream = format!("upstream.url={}", stand_in.url);
    let settings = ["--set", &host, "--set", &port, "--set", &upstream, "--set", "wyoming.intents=true"];
    let service = Service::start(&settings).await;
    let model = tokio::spawn(async move {
        loop {
            let mut asked = stand_in.next().await;
            let last = asked.request["messages"].as_array().and_then(|messages| messages.last()).cloned();
            if last.is_some_and(|last| last["content"] == "Dim the lamp.") {
                asked.say("Dimming it.").await;
                asked.call("HassLightSet", &serde_json::json!({ "name": "lamp", "brightness": 30 })).await;
            } else {
                asked.say("You are welcome.").await;
                asked.done().await;
            }
        }
    });
    let address = address.to_string();
    let environment = [("REPRISE_WYOMING", Path::new(&address))];
    run(service, venv.join("bin/python"), &["-B"], "wyoming_intents.py", &environment).await;
    model.abort();
}

/// No client of a home, but it asks for everything.
#[tokio::test]
async fn schemathesis() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/schemathesis") else { return };
    let often = ["limits.requests_per_minute_per_address=1000000", "limits.requests_per_minute_per_key=1000000"];
    let service = Service::start(&["--set", often[0], "--set", often[1]]).await;
    run(service, venv.join("bin/python"), &["-B"], "schemathesis_all.py", &[]).await;
}

#[tokio::test]
async fn npm_openai_chat() {
    node("node_chat.mjs").await;
}

#[tokio::test]
async fn npm_openai_realtime() {
    node("node_realtime.mjs").await;
}

#[tokio::test]
async fn openai_python_speech() {
    speaking("openai_speech.py").await;
}

#[tokio::test]
async fn agents_sdk_speech() {
    speaking("agents_speech.py").await;
}

#[tokio::test]
async fn livekit_speech() {
    speaking("livekit_speech.py").await;
}

#[tokio::test]
async fn pipecat_speech() {
    speaking("pipecat_speech.py").await;
}

#[tokio::test]
async fn openai_python_speech_with_a_tool() {
    speaking_with_a_tool("openai_speech_tools.py").await;
}

#[tokio::test]
async fn agents_sdk_speech_with_a_tool() {
    speaking_with_a_tool("agents_speech_tools.py").await;
}

#[tokio::test]
async fn livekit_speech_with_a_tool() {
    speaking_with_a_tool("livekit_speech_tools.py").await;
}

#[tokio::test]
async fn pipecat_speech_with_a_tool() {
    speaking_with_a_tool("pipecat_speech_tools.py").await;
}

/// Ears that recognise, and a voice that tells the times of its words: pocketsphinx and espeak-ng behind Wyoming.
#[tokio::test]
async fn real_ears_and_a_real_voice() {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    for program in ["espeak-ng", "flite"] {
        if Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().await.is_err() {
            return println!("skipped: there is no {program} (apt-get install {program})");
        }
    }
    let python = venv.join("bin/python");
    let server = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/clients/wyoming_speech.py"));
    let mut server = Command::new(&python)
        .args(["-B".as_ref(), server.as_os_str()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the servers of speech start");
    let mut screen = BufReader::new(server.stdout.take().expect("a screen")).lines();
    let address = timeout(DEADLINE, screen.next_line()).await.expect("it starts in time").expect("it writes");
    let address = address.expect("it says its address");
    let folder = tempfile::tempdir().expect("a folder");
    let file = microphone(folder.path());
    let (stt, tts) = (format!("speech.stt={address}"), format!("speech.tts={address}"));
    let service = Service::built_in_model_in_folder(folder, &["--set", &stt, "--set", &tts]).await;
    run(service, python, &["-B"], "honest_speech.py", &[("REPRISE_SPEECH", &file)]).await;
}

/// Runs a script with a model that calls a lamp where it has one, and tells when it is switched.
async fn speaking_with_a_tool(script: &str) {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let (ears, voice, mut stand_in) =
        (ScriptedSpeech::start().await, ScriptedSpeech::start().await, StandIn::start().await);
    ears.will_hear(&["Switch on the lamp.", "Is it on?", "Thank you."]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = microphone(folder.path());
    let addresses = [
        format!("speech.stt={}", ears.url()),
        format!("speech.tts={}", voice.url()),
        format!("upstream.url={}", stand_in.url),
    ];
    let settings: Vec<&str> = addresses.iter().flat_map(|address| ["--set", address]).collect();
    let service = Service::start(&settings).await;
    let model = tokio::spawn(async move {
        loop {
            let mut asked = stand_in.next().await;
            let messages = asked.request["messages"].as_array().cloned().unwrap_or_default();
            let has_called = messages.iter().any(|message| message["role"] == "tool");
            let has_tools = asked.request["tools"].as_array().is_some_and(|tools| !tools.is_empty());
            if has_tools && !has_called {
                asked.call("switch_lamp", &serde_json::json!({ "on": true })).await;
            } else {
                asked.say("The lamp is on now.").await;
                asked.done().await;
            }
        }
    });
    run(service, venv.join("bin/python"), &["-B"], script, &[("REPRISE_SPEECH", &file)]).await;
    model.abort();
}

/// Writes what the microphone of a script hears.
fn microphone(folder: &Path) -> PathBuf {
    let file = folder.join("voice.pcm");
    let samples: Vec<u8> = vowel(24_000, 2000).iter().flat_map(|sample| sample.to_le_bytes()).collect();
    std::fs::write(&file, samples).expect("a file");
    file
}

/// Runs a script in the client's default mode, which is audio: with scripted ears, a scripted voice and the built-in model.
async fn speaking(script: &str) {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let (ears, voice) = (ScriptedSpeech::start().await, ScriptedSpeech::start().await);
    ears.will_hear(&[
        "Good morning.",
        "Who are you?",
        "What can you do?",
        "Thank you.",
        "Good evening.",
        "Good night.",
    ]);
    let folder = tempfile::tempdir().expect("a folder");
    let file = microphone(folder.path());
    let (stt, tts) = (format!("speech.stt={}", ears.url()), format!("speech.tts={}", voice.url()));
    let service = Service::built_in_model_in_folder(folder, &["--set", &stt, "--set", &tts]).await;
    run(service, venv.join("bin/python"), &["-B"], script, &[("REPRISE_SPEECH", &file)]).await;
}

async fn python(script: &str) {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    // A random model that draws lots says nothing now and then, where a client insists on words.
    let service = Service::start(&["--set", "preset.sampling.temperature=0"]).await;
    // No __pycache__ in the sources.
    run(service, venv.join("bin/python"), &["-B"], script, &[]).await;
}

/// Runs a script with the built-in model, whose replies end by themselves: some clients take a reply at its limit for a
/// failure.
async fn python_with_sense(script: &str) {
    let Some(venv) = packages("REPRISE_CLIENTS_VENV", "bin/python") else { return };
    let service = Service::with_the_built_in_model().await;
    run(service, venv.join("bin/python"), &["-B"], script, &[]).await;
}

async fn node(script: &str) {
    let Some(folder) = packages("REPRISE_CLIENTS_NODE", "node_modules/openai") else { return };
    let service = Service::start(&["--set", "preset.sampling.temperature=0"]).await;
    run(service, "node".into(), &[], script, &[("REPRISE_CLIENTS_NODE", &folder)]).await;
}

/// The folder that the variable names, where it has this in it.
fn packages(variable: &str, part: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    let missing = match folder {
        Some(folder) if folder.join(part).exists() => return Some(folder),
        Some(folder) => format!("{variable} is {}, which has no {part}", folder.display()),
        None => format!("{variable} is not set"),
    };
    let is_required = std::env::var("REQUIRE_CLIENTS").is_ok_and(|value| value == "1");
    assert!(!is_required, "REQUIRE_CLIENTS is 1, but {missing}");
    println!("skipped: {missing}");
    None
}

/// The script against a service of its own. Nothing of this machine's configuration, keys or proxies is seen by it.
async fn run(service: Service, program: PathBuf, arguments: &[&str], script: &str, environment: &[(&str, &Path)]) {
    let scripts = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/clients"));
    let output = Command::new(program)
        .args(arguments)
        .arg(scripts.join(script))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", service.folder())
        .env("REPRISE_ADDRESS", &service.address)
        .env("OTEL_SDK_DISABLED", "true")
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1")
        .envs(environment.iter().copied())
        .current_dir(service.folder())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(DEADLINE, output).await.expect("the script ends itself").expect("the script starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{script}:\n{}", said(&output.stdout));
    assert!(output.status.success(), "{script} ({}): {}", output.status, said(&output.stderr));
    check_store(service.stop().await.path()).await;
}
