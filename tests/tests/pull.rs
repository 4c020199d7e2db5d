//! `reprise pull` with the real binary, against a stand-in that speaks the hub's protocol.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;
use tests::hub::{COMMIT, REPO, StandInHub, Trouble};
use tests::service::tiny_model;

const MODEL: &str = "dense-wide.q8_0.gguf";

fn model() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/gguf").join(MODEL)).unwrap()
}

struct Home {
    folder: TempDir,
    hub: StandInHub,
}

impl Home {
    fn with(files: &[(&str, Vec<u8>)]) -> Home {
        Home { folder: tempfile::tempdir().unwrap(), hub: StandInHub::start(files) }
    }

    fn pull(&self, asked: &str, sets: &[&str]) -> Output {
        let mut command = tests::reprise::command(self.folder.path());
        command.env("HF_TOKEN", "hf_a_secret").args(["pull", asked, "--json"]);
        let url = format!("hub.url={}", self.hub.url);
        for set in [&[url.as_str(), "hub.retry_ms=1", "hub.retries=3"][..], sets].concat() {
            command.args(["--set", set]);
        }
        command.output().unwrap()
    }

    fn pulled(&self, asked: &str) -> Value {
        let output = self.pull(asked, &[]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn pulled_files(&self, asked: &str) -> Vec<String> {
        let output = self.pull(asked, &[]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let files = report["files"].as_array().unwrap();
        files.iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }

    fn refused(&self, asked: &str, sets: &[&str]) -> String {
        let output = self.pull(asked, sets);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn names(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.models().join(REPO)).unwrap();
        let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }

    fn models(&self) -> PathBuf {
        self.folder.path().join("data/models")
    }

    /// A file that the operator put into the folder of models.
    fn put(&self, name: &str, bytes: &[u8]) {
        let path = self.models().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    fn file(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.models().join(REPO).join(name)).unwrap()
    }
}

#[test]
fn a_model_is_fetched_checked_and_not_fetched_again() {
    let home = Home::with(&[(MODEL, model()), ("README.md", b"# A model".to_vec())]);
    let report = home.pulled(REPO);
    assert_eq!(report["commit"], COMMIT);
    assert_eq!(report["model"], format!("data/models/{REPO}/{MODEL}"));
    assert_eq!(report["files"][0]["fetched_bytes"], model().len());
    assert!(home.file(MODEL) == model());
    assert_eq!(home.names(), [MODEL]);
    let seen = home.hub.seen();
    // At the commit that was listed; and the token is the hub's alone.
    assert!(seen.iter().any(|seen| seen.path == format!("/{REPO}/resolve/{COMMIT}/{MODEL}")), "{seen:?}");
    assert!(seen.iter().all(|seen| seen.download == seen.token.is_none()), "{seen:?}");

    let again = home.pulled(&format!("{}/{REPO}/blob/main/{MODEL}", home.hub.url));
    assert_eq!(again["files"][0]["fetched_bytes"], 0);
    assert!(home.hub.seen().iter().all(|seen| !seen.download));
    // A file of that name that is another one belongs to the user.
    home.hub.put(MODEL, model().into_iter().rev().collect());
    assert!(home.refused(REPO, &[]).contains("is not the file that the hub has"));
    assert!(home.file(MODEL) == model());
}

/// The start of a session at home: the preset knows where its model is.
#[test]
fn a_preset_names_what_is_fetched() {
    let home = Home::with(&[(MODEL, model()), ("other.gguf", vec![1, 2, 3])]);
    let config = format!(
        "[presets.kitchen]\nctx_size = 200\n[presets.kitchen.source]\nrepo = \"{REPO}\"\nfile = \"{MODEL}\"\n" // not a window: a small model's
    );
    std::fs::write(home.folder.path().join("reprise.toml"), &config).unwrap();
    let report = home.pulled("kitchen");
    assert_eq!(
        (&report["preset"], report["model"].as_str()),
        (&"kitchen".into(), Some("data/models/someone/Model-GGUF/dense-wide.q8_0.gguf"))
    );
    // A file in a folder of the repository lies where its preset looks for it.
    home.hub.put("BF16/x.gguf", model());
    let config = config.replace(MODEL, "BF16/x.gguf");
    std::fs::write(home.folder.path().join("reprise.toml"), config).unwrap();
    assert_eq!(home.pulled("kitchen")["preset"], "kitchen");
    assert!(home.file("BF16/x.gguf") == model());
    let several = home.refused(REPO, &[]);
    assert!(several.contains("several models") && several.contains("other.gguf"), "{several}");
}

#[test]
fn what_was_begun_is_gone_on_with() {
    let home = Home::with(&[(MODEL, model())]);
    // Within one call, after every kind of failure.
    home.hub.next_downloads(&[Trouble::Cut(1000), Trouble::Status(503), Trouble::Stall(2000), Trouble::Cut(0)]);
    let output = home.pull(REPO, &["hub.silence_s=3"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(home.file(MODEL) == model());
    let ranges: Vec<_> = home.hub.seen().into_iter().filter(|seen| seen.download).map(|seen| seen.range).collect();
    let from = |bytes: usize| Some(format!("bytes={bytes}-"));
    assert_eq!(ranges, [None, from(1000), from(1000), from(3000), from(3000)]);

    // And from one call to the next.
    let home = Home::with(&[(MODEL, model())]);
    home.hub.next_downloads(&[Trouble::Cut(5000), Trouble::Status(500), Trouble::Status(502)]);
    let error = home.refused(REPO, &["hub.retries=2"]);
    assert!(error.contains("the hub answered 502") && error.contains("is kept, try again"), "{error}");
    assert_eq!(home.names().len(), 1);
    assert!(home.names()[0].ends_with(".part"));
    home.hub.seen();
    let report = home.pulled(REPO);
    assert_eq!(report["files"][0]["fetched_bytes"], model().len() - 5000);
    assert!(home.file(MODEL) == model());
    assert_eq!(home.names(), [MODEL]);
}

#[test]
fn what_is_damaged_never_gets_a_name() {
    let home = Home::with(&[(MODEL, model())]);
    home.hub.next_downloads(&[Trouble::Damage]);
    home.pulled(REPO);
    assert!(home.file(MODEL) == model(), "the second time was right");

    let home = Home::with(&[(MODEL, model())]);
    home.hub.next_downloads(&[Trouble::Damage, Trouble::Damage]);
    let error = home.refused(REPO, &[]);
    assert!(error.contains("SHA-256") && error.contains("damages it"), "{error}");
    assert!(!home.names().contains(&MODEL.to_owned()));

    // A part that was spoiled meanwhile, and a hub that knows no ranges.
    let home = Home::with(&[(MODEL, model())]);
    home.hub.next_downloads(&[Trouble::Cut(4000), Trouble::Status(500), Trouble::Status(500)]);
    home.refused(REPO, &["hub.retries=1"]);
    let part = home.models().join(REPO).join(&home.names()[0]);
    std::fs::write(&part, vec![7; 4000]).unwrap();
    home.hub.next_downloads(&[Trouble::NoRanges]);
    home.pulled(REPO);
    assert!(home.file(MODEL) == model());
}

#[test]
fn a_folder_and_a_model_in_parts() {
    let tiny = |name: &str| (name.to_owned(), std::fs::read(tiny_model().join(name)).unwrap());
    let files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"].map(tiny);
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    let home = Home::with(&[&files[..], &[("README.md", vec![1]), ("onnx/model.safetensors", vec![1])]].concat());
    let report = home.pulled(REPO);
    assert_eq!((report["model"].as_str(), &report["trouble"]), (Some("data/models/someone/Model-GGUF"), &Value::Null));
    for (name, bytes) in &files {
        assert!(home.file(name) == *bytes, "{name}");
    }
    // A preset without a file means the folder.
    let config = format!("[presets.kitchen]\nctx_size = 200\n[presets.kitchen.source]\nrepo = \"{REPO}\"\n"); // not a window: a small model's
    std::fs::write(home.folder.path().join("reprise.toml"), config).unwrap();
    assert_eq!(home.pulled("kitchen")["preset"], "kitchen");

    let home = Home::with(&[("x-00001-of-00002.gguf", vec![1; 10]), ("x-00002-of-00002.gguf", vec![2; 20])]);
    let error = home.refused(REPO, &[]);
    // Both came, and are no model.
    assert!(error.contains("x-00001-of-00002.gguf") && home.names().len() == 2, "{error}");
}

/// The hub has another version of the model. It is not fetched into this one, and this one stays whole.
#[test]
fn a_model_that_is_not_renewed_stays_as_it_is() {
    let tiny = |name: &'static str| (name, std::fs::read(tiny_model().join(name)).unwrap());
    let files = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"].map(tiny);
    let home = Home::with(&files);
    home.pulled(REPO);
    for (name, bytes) in &files {
        let mut other = bytes.clone();
        other.extend_from_slice(b" ");
        home.hub.put(name, other);
    }
    let error = home.refused(REPO, &[]);
    assert!(error.contains("model.safetensors is there, and is not the file that the hub has"), "{error}");
    for (name, bytes) in &files {
        assert!(home.file(name) == *bytes, "{name} is of the other version");
    }
    assert_eq!(home.names().len(), files.len());
}

#[test]
fn a_sentence_encoder_is_fetched_by_its_name() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/encoder/golden/tiny");
    let tiny = |name: &'static str| (name, std::fs::read(folder.join(name)).unwrap());
    let home = Home::with(&["config.json", "model.safetensors", "tokenizer.json"].map(tiny));
    home.hub.put("onnx/model.safetensors", vec![1]);
    let config = format!("[remember]\nencoders = {{ encoder = \"{REPO}\" }}\n");
    std::fs::write(home.folder.path().join("reprise.toml"), config).unwrap();
    let report = home.pulled("encoder");
    assert_eq!((report["model"].as_str(), &report["trouble"]), (Some("data/models/someone/Model-GGUF"), &Value::Null));
    assert_eq!(home.names(), ["config.json", "model.safetensors", "tokenizer.json"]);
    // One that cannot be opened is told.
    home.hub.put("tokenizer.json", b"{}".to_vec());
    std::fs::remove_file(home.models().join(REPO).join("tokenizer.json")).unwrap();
    let error = home.refused("encoder", &[]);
    assert!(error.contains("tokenizer.json"), "{error}");
}

fn kitchen(home: &Home) {
    let config = format!(
        "[presets.kitchen]\nctx_size = 200\n[presets.kitchen.source]\nrepo = \"{REPO}\"\nfile = \"{MODEL}\"\n" // not a window: a small model's
    );
    std::fs::write(home.folder.path().join("reprise.toml"), config).unwrap();
}

/// Layouts of earlier versions, and of the page of instructions.
#[test]
fn a_model_that_lies_in_the_folder_of_models_itself_is_still_found() {
    let home = Home::with(&[(MODEL, model())]);
    kitchen(&home);
    home.put(MODEL, &model());
    for asked in ["kitchen", REPO] {
        let report = home.pulled(asked);
        assert_eq!(
            (report["model"].as_str(), &report["preset"]),
            (Some(&*format!("data/models/{MODEL}")), &"kitchen".into())
        );
        assert_eq!(report["files"][0]["fetched_bytes"], 0);
    }
    assert!(!home.models().join("someone").exists());
    let mut resolves = tests::reprise::command(home.folder.path());
    let doctor = resolves
        .args(["doctor", "--json", "--set", "model.preset=kitchen", "--set", "engine.device=cpu"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&doctor.stdout).contains(&format!("data/models/{MODEL},")), "{doctor:?}");
}

#[test]
fn a_file_of_another_repository_or_of_the_operator_is_never_replaced() {
    // The hub tells no hash of `config.json`, and none of this model either.
    let theirs = vec![7; 100];
    let home = Home::with(&[("own.json", theirs.clone()), (MODEL, model())]);
    home.put("own.json", b"the operator's");
    home.put(MODEL, b"the operator's, too");
    let report = home.pulled_files(&format!("{REPO}/own.json"));
    assert_eq!(report, ["data/models/someone/Model-GGUF/own.json"]);
    assert!(std::fs::read(home.models().join("own.json")).unwrap() == b"the operator's");
    let report = home.pulled(&format!("{REPO}/{MODEL}"));
    assert_eq!(report["model"], format!("data/models/{REPO}/{MODEL}"));
    assert!(std::fs::read(home.models().join(MODEL)).unwrap() == b"the operator's, too");
    // A preset uses the operator's file, so fetching another one beside it would change nothing: the operator decides.
    kitchen(&home);
    assert!(home.refused("kitchen", &[]).contains(&format!("data/models/{MODEL} is there, and is not the file")));

    // What was fetched may be renewed; what was changed by hand since, or put there by hand, may not.
    home.hub.put("own.json", vec![8; 90]);
    home.pulled_files(&format!("{REPO}/own.json"));
    assert!(home.file("own.json") == [8; 90]);
    home.put(&format!("{REPO}/own.json"), b"changed by hand");
    home.put(&format!("{REPO}/hand.json"), b"put there by hand");
    home.hub.put("hand.json", vec![9; 17]);
    for name in ["own.json", "hand.json"] {
        let error = home.refused(&format!("{REPO}/{name}"), &[]);
        assert!(error.contains("is not the file that the hub has"), "{error}");
    }
    assert!(home.file("own.json") == b"changed by hand" && home.file("hand.json") == b"put there by hand");
    assert!(home.names().iter().all(|name| !name.ends_with(".part")), "{:?}", home.names());
}

#[cfg(unix)]
#[test]
fn no_name_of_a_hub_leads_out_of_the_folder_of_models() {
    let other_folder = tempfile::tempdir().unwrap();
    let home = Home::with(&[(MODEL, model()), ("sub/x.json", vec![1; 10]), (".hidden.json", vec![1; 10])]);
    for wrong in ["..%2f", "../x", "someone/..", "/etc/x", ".someone/Model-GGUF"] {
        let error = home.refused(wrong, &[]);
        assert!(error.contains("neither OWNER/REPO nor a preset"), "{wrong}: {error}");
    }
    // Names that begin with a point are this service's own.
    assert!(home.refused(&format!("{REPO}/.hidden.json"), &[]).contains("neither OWNER/REPO nor a preset"));
    // A link that leads out is followed for a file that is read, and not for one that is written.
    std::fs::create_dir_all(home.models().join(REPO)).unwrap();
    std::os::unix::fs::symlink(other_folder.path(), home.models().join(REPO).join("sub")).unwrap();
    assert!(home.refused(&format!("{REPO}/sub/x.json"), &[]).contains("leads out of the folder"));
    std::os::unix::fs::symlink(other_folder.path().join("x.gguf"), home.models().join(REPO).join(MODEL)).unwrap();
    assert!(home.refused(&format!("{REPO}/{MODEL}"), &[]).contains("is not the file that the hub has"));
    assert_eq!(std::fs::read_dir(other_folder.path()).unwrap().count(), 0);
    std::fs::write(other_folder.path().join("x.gguf"), model()).unwrap();
    assert_eq!(home.pulled(REPO)["files"][0]["fetched_bytes"], 0);
}

#[test]
fn what_cannot_be_fetched_is_told() {
    let home = Home::with(&[(MODEL, model())]);
    for (asked, says) in [
        ("nobody/nothing", "is not on http://"),
        ("qwen9b", "neither OWNER/REPO nor a preset"),
        ("builtin", "names no repository"),
        (&format!("{REPO}/missing.gguf"), "has no file missing.gguf; it has dense-wide.q8_0.gguf"),
        (&format!("{REPO}@v9"), "has no revision v9"),
    ] {
        let error = home.refused(asked, &[]);
        assert!(error.contains(says), "{asked}: {error}");
    }
    home.hub.demand("hf_another");
    assert!(home.refused(REPO, &[]).contains("set a token (HF_TOKEN)"));
    home.hub.gate();
    assert!(home.refused(REPO, &[]).contains("accept its terms at http://"));
    let refused = home.refused("https://hub.example/a/b", &[]);
    assert!(refused.contains("set hub.url"), "{refused}");
    let nobody = home.refused(REPO, &["hub.url=http://127.0.0.1:1", "hub.retries=1"]);
    assert!(nobody.contains("try again"), "{nobody}");
}

/// Downloads over Ollama's API, if the operator allows them.
mod through_ollamas_api {
    use super::{MODEL, Value, model};
    use serde_json::json;
    use tests::hub::{REPO, StandInHub, Trouble};
    use tests::service::Service;
    use tokio::io::AsyncWriteExt;

    async fn service(hub: &StandInHub) -> Service {
        let url = format!("hub.url={}", hub.url);
        let sets = [url.as_str(), "ollama.pull=true", "hub.retry_ms=1", "hub.silence_s=2"];
        Service::start(&sets.iter().flat_map(|set| ["--set", *set]).collect::<Vec<_>>()).await
    }

    async fn pull(service: &Service, model: &str, stream: bool) -> (u16, Vec<Value>) {
        let body = json!({ "model": model, "stream": stream, "insecure": false }).to_string();
        let (status, text) = service.http("POST", "/api/pull", &[], &body).await;
        (status, text.lines().map(|line| serde_json::from_str(line).expect(line)).collect())
    }

    #[tokio::test]
    async fn a_model_is_fetched_with_lines_of_progress() {
        let hub = StandInHub::start(&[(MODEL, model())]);
        // Long enough for a line in the middle.
        hub.next_downloads(&[Trouble::Stall(1000)]);
        let service = service(&hub).await;
        let (status, lines) = pull(&service, &format!("hf.co/{REPO}"), true).await;
        assert_eq!(status, 200, "{lines:?}");
        assert_eq!(lines.last().unwrap()["status"], "success");
        let begun = lines.iter().find(|line| line["completed"].is_u64()).expect("a line of progress");
        assert_eq!(begun["total"], model().len());
        let digest = begun["digest"].as_str().unwrap();
        assert!(digest.starts_with("sha256:") && begun["status"] == format!("pulling {}", &digest[7..19]), "{begun}");
        assert!(std::fs::read(service.folder().join("data/models").join(REPO).join(MODEL)).unwrap() == model());

        // It is there now. A name that no hub has is an error in a line, or a status.
        assert_eq!(pull(&service, REPO, false).await, (200, vec![json!({ "status": "success" })]));
        let (status, lines) = pull(&service, "nobody/nothing", false).await;
        assert!(status == 502 && lines[0]["error"].as_str().unwrap().contains("nobody/nothing"), "{status} {lines:?}");
        assert!(pull(&service, "nobody/nothing", true).await.1.last().unwrap()["error"].is_string());
        assert_eq!(pull(&service, "no name", false).await.0, 404);
        service.stop().await;
    }

    /// One at a time; another client reads along, and what is fetched outlives the client that asked for it.
    #[tokio::test]
    async fn a_client_that_hangs_up_loses_nothing() {
        let hub = StandInHub::start(&[(MODEL, model()), ("other.gguf", vec![1; 10])]);
        hub.next_downloads(&[Trouble::Stall(1000)]);
        let service = service(&hub).await;
        let name = format!("{REPO}/{MODEL}");
        let body = json!({ "model": name }).to_string();
        let mut client = tokio::net::TcpStream::connect(&service.address).await.unwrap();
        let head = format!("POST /api/pull HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        client.write_all(head.replace("host: x", "host: localhost").as_bytes()).await.unwrap();
        while !hub.seen().iter().any(|seen| seen.download) {
            tokio::task::yield_now().await;
        }
        drop(client);
        let (status, lines) = pull(&service, &format!("{REPO}/other.gguf"), false).await;
        assert!(status == 503 && lines[0]["error"].as_str().unwrap().contains(MODEL), "{status} {lines:?}");
        assert_eq!(pull(&service, &name, false).await.0, 200, "it reads along");
        assert!(std::fs::read(service.folder().join("data/models").join(REPO).join(MODEL)).unwrap() == model());
        let ranges: Vec<_> = hub.seen().into_iter().filter(|seen| seen.download).map(|seen| seen.range).collect();
        assert_eq!(ranges, [Some("bytes=1000-".to_owned())], "gone on with, once");
        service.stop().await;
    }
}
