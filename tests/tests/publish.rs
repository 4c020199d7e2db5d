//! `reprise publish` with the real binary, against a stand-in that speaks the hub's protocol.

use serde_json::Value;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;
use tests::upload_hub::{REPO, RequestKind, Trouble, UploadHub};

const TOKEN: &str = "hf_may_write";
const MODEL: &str = "dense-wide.q8_0.gguf";

struct Desk {
    folder: TempDir,
    hub: UploadHub,
}

impl Desk {
    fn new() -> Desk {
        let folder = tempfile::tempdir().unwrap();
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/gguf").join(MODEL);
        std::fs::copy(model, folder.path().join(MODEL)).unwrap();
        Desk { folder, hub: UploadHub::start(TOKEN) }
    }

    fn model(&self) -> Vec<u8> {
        std::fs::read(self.folder.path().join(MODEL)).unwrap()
    }

    fn run(&self, token: &str, more: &[&str]) -> Output {
        let mut command = tests::reprise::command(self.folder.path());
        command.env("HF_TOKEN", token).args(["publish", REPO, MODEL, "--json"]).args(more);
        for set in [&format!("hub.url={}", self.hub.url), "hub.retry_ms=1", "hub.retries=3"] {
            command.args(["--set", set]);
        }
        command.output().unwrap()
    }

    fn published(&self, more: &[&str]) -> Value {
        let output = self.run(TOKEN, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The message of a refusal, after which the hub has no commit more.
    fn refused(&self, token: &str, more: &[&str]) -> String {
        let before = self.hub.files();
        let output = self.run(token, more);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(self.hub.files(), before);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn puts(&self) -> usize {
        self.hub.seen().iter().filter(|seen| seen.line.starts_with("PUT ")).count()
    }
}

#[test]
fn a_model_with_its_card_is_one_commit() {
    let desk = Desk::new();
    let report = desk.published(&["--base", "someone/base@abc", "--license", "apache-2.0"]);
    assert_eq!((report["repo"].as_str(), desk.hub.commits()), (Some(REPO), 1));
    let files = desk.hub.files();
    assert_eq!(files[MODEL], desk.model());
    let card = String::from_utf8(files["README.md"].clone()).unwrap();
    assert!(card.contains("base_model: \"someone/base\"") && card.contains("| architecture | qwen35 |"), "{card}");
    let hash = report["files"].as_array().unwrap().iter().find(|file| file["path"] == MODEL).unwrap()["sha256"].clone();
    assert!(card.contains(hash.as_str().unwrap()), "{card}");
    let seen = desk.hub.seen();
    let with_token = |seen: &&tests::upload_hub::SeenUpload| seen.token.is_some();
    assert!(
        seen.iter().filter(with_token).all(|seen| !seen.line.contains("/objects/") || seen.line.contains("/batch"))
    );
    // The same once more changes nothing and sends nothing.
    let again = desk.published(&["--base", "someone/base@abc", "--license", "apache-2.0"]);
    assert_eq!((&again["commit"], desk.hub.commits(), desk.puts()), (&report["commit"], 1, 0));
}

#[test]
fn a_file_in_parts() {
    let desk = Desk::new();
    desk.hub.in_parts(desk.model().len() / 3);
    desk.hub.next(RequestKind::Object, &[Trouble::Cut(1000), Trouble::Status(503)]);
    desk.published(&[]);
    assert_eq!((&desk.hub.files()[MODEL], desk.puts()), (&desk.model(), 4 + 2));
}

#[test]
fn what_breaks_is_tried_again_and_resumes() {
    let desk = Desk::new();
    desk.hub.next(RequestKind::Create, &[Trouble::Status(429)]);
    desk.hub.next(RequestKind::Object, &[Trouble::Cut(100_000), Trouble::Status(500)]);
    desk.hub.next(RequestKind::Commit, &[Trouble::Status(502), Trouble::Unanswered]);
    desk.published(&[]);
    assert_eq!((&desk.hub.files()[MODEL], desk.hub.commits(), desk.puts()), (&desk.model(), 1, 3));

    // A run that gave up before its commit: the next one finds the bytes there.
    let desk = Desk::new();
    desk.hub.next(RequestKind::Commit, &[Trouble::Status(500); 4]);
    assert!(desk.refused(TOKEN, &[]).contains("500"));
    assert_eq!(desk.puts(), 1);
    let report = desk.published(&[]);
    assert_eq!((report["files"][1]["path"].as_str(), report["files"][1]["sent"].as_bool()), (Some(MODEL), Some(false)));
    assert_eq!((desk.puts(), &desk.hub.files()[MODEL]), (0, &desk.model()));
}

#[test]
fn nothing_is_overwritten_unless_it_is_asked_for() {
    let desk = Desk::new();
    desk.hub.put(MODEL, b"another model");
    let why = desk.refused(TOKEN, &[]);
    assert!(why.contains(MODEL) && why.contains("--replace"), "{why}");
    desk.hub.put("README.md", b"Words of a person.");
    assert!(desk.refused(TOKEN, &[]).contains("README.md"));
    assert_eq!(desk.puts(), 0);
    desk.published(&["--replace"]);
    assert_eq!(desk.hub.files()[MODEL], desk.model());
}

#[test]
fn refusals_say_what_to_do() {
    let desk = Desk::new();
    assert!(desk.refused("", &[]).contains("HF_TOKEN"));
    assert!(desk.refused("hf_wrong", &[]).contains("HF_TOKEN"));
    for overtaken in [Trouble::Overtaken, Trouble::Status(409)] {
        desk.hub.next(RequestKind::Commit, &[overtaken]);
        assert!(desk.refused(TOKEN, &[]).contains("changed while"));
    }
    desk.hub.forbid();
    assert!(desk.refused(TOKEN, &[]).contains("may not write"));
    std::fs::write(desk.folder.path().join(MODEL), b"no model").unwrap();
    assert!(desk.refused(TOKEN, &[]).contains(MODEL));
    let output = tests::reprise::command(desk.folder.path()).args(["publish", "someone", MODEL]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("OWNER/REPO"), "{output:?}");
    // An object that no command measured.
    std::fs::write(desk.folder.path().join("other.json"), r#"{"name": "other"}"#).unwrap();
    let why = desk.refused(TOKEN, &["--report", "other.json"]);
    assert!(why.contains("other.json is no report"), "{why}");
    let output = tests::reprise::command(desk.folder.path()).args(["publish", REPO]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn a_trial_sends_nothing() {
    let desk = Desk::new();
    let report = desk.published(&["--dry-run"]);
    assert!(report["card"].as_str().unwrap().contains(MODEL));
    assert_eq!(report["files"].as_array().unwrap().len(), 2);
    assert!(desk.hub.seen().is_empty());
}

#[test]
fn every_file_of_a_folder_is_published_or_told() {
    let desk = Desk::new();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/reference/dense-tied");
    let path = |name: &str| desk.folder.path().join(name);
    let mut bytes = 0;
    std::fs::create_dir_all(path("model/more")).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        bytes += std::fs::copy(model.join(name), path("model").join(name)).unwrap();
    }
    let output = desk.run(TOKEN, &["model", "--dry-run"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("model/more is left out: only files of a folder are published"), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let card = report["card"].as_str().unwrap();
    let size = format!("{:.2} KiB", bytes as f64 / 1024.0);
    assert!(card.contains(&format!("| `model` | {size} |")), "{size}: {card}");
    assert!(card.contains("- SHA-256 of `model.safetensors`: "), "{card}");

    // One of two files of a name would be lost.
    std::fs::create_dir(path("other")).unwrap();
    std::fs::write(path("other/config.json"), "{}").unwrap();
    for files in [["model", "other"], ["other/config.json", "model"]] {
        assert!(desk.refused(TOKEN, &files).contains("two files are called config.json"));
    }
    // So would flags of a card that is given.
    std::fs::write(path("README.md"), "Words of a person.").unwrap();
    std::fs::write(path("card.md"), "Other words.").unwrap();
    for (flags, says) in [
        (&["README.md", "--card", "card.md"][..], "two cards"),
        (&["README.md", "--license", "mit"], "for a card that is made"),
        (&["--card", "card.md", "--base", "someone/base"], "for a card that is made"),
    ] {
        let output = desk.run(TOKEN, flags);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains(says), "{told}");
    }
    assert_eq!(desk.hub.commits(), 0);
}
