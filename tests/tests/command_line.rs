//! The command line itself: versions, completions of shells, manual pages.

use std::path::Path;
use std::process::{Command, Stdio};
use tests::service::{run, run_ok};

fn here() -> &'static Path {
    Path::new(".")
}

#[tokio::test]
async fn the_version_names_the_commit_and_the_level_of_the_processor() {
    let (short, long) = (run_ok(here(), &["-V"]).await, run_ok(here(), &["--version"]).await);
    let line = regex::Regex::new(r"^reprise \d+\.\d+\.\d+ \(([0-9a-f]{12}|unknown)\)\n").unwrap();
    assert!(line.is_match(&short) && short.lines().count() == 1, "{short}");
    let level = ["portable", "avx2", "avx512-vnni"].iter().any(|level| long.ends_with(&format!("kernels {level}\n")));
    assert!(line.is_match(&long) && level, "{long}");
    // A clone with git knows its commit.
    let root = tests::house::files::root();
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(&root).output();
    if std::env::var_os("REPRISE_BINARY").is_none() && git.is_ok_and(|output| output.status.success()) {
        assert!(!short.contains("unknown"), "{short}");
    }
}

/// The script that names the commit, in folders of which git knows nothing.
#[test]
fn a_build_without_git_asks_the_archive_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let source = tests::house::files::root().join("services/reprise/build.rs");
    let built = Command::new(rustc).args(["--edition", "2024", "-o"]).arg(&script).arg(source).status().unwrap();
    assert!(built.success());
    let commit_of = |archive: &str, variable: Option<&str>| {
        std::fs::write(folder.path().join("commit.txt"), archive).unwrap();
        let mut command = Command::new(&script);
        command.current_dir(folder.path()).env_clear().envs(variable.map(|commit| ("REPRISE_COMMIT", commit)));
        // A folder above that is a clone is another project's.
        command.env("PATH", "/usr/bin:/bin").env("GIT_CEILING_DIRECTORIES", std::env::temp_dir());
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let line = said.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=REPRISE_COMMIT="));
        line.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    let (written, other) = ("1d483919e1a5cd3ad6fd9a1a2e2f5a8b6a1c0f00\n", "a9523cd0a9523cd0");
    assert_eq!(commit_of("$Format:%H$\n", None), "unknown");
    assert_eq!(commit_of(written, None), "1d483919e1a5");
    assert_eq!(commit_of(written, Some(other)), "a9523cd0a952");
    assert_eq!(commit_of("$Format:%H$\n", Some("main; rm")), "unknown");
}

#[tokio::test]
async fn a_shell_completes_commands_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("reprise.bash");
    std::fs::write(&script, run_ok(here(), &["completions", "bash"]).await).unwrap();
    let typed = |words: &str| {
        let ask = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _reprise reprise \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &ask]).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    assert_eq!(typed("reprise se"), "serve sessions");
    assert_eq!(typed("reprise serve --pre"), "--preset");
    for (shell, begins) in [("zsh", "#compdef reprise"), ("fish", "#"), ("elvish", ""), ("powershell", "")] {
        let script = run_ok(here(), &["completions", shell]).await;
        assert!(script.starts_with(begins) && script.contains("sessions"), "{shell}: {script:.200}");
    }
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    run_ok(here(), &["man", pages.to_str().unwrap()]).await;
    let help = run_ok(here(), &["help"]).await;
    let commands = help.split("\nCommands:\n").nth(1).unwrap().lines().take_while(|line| !line.is_empty());
    let names: Vec<&str> = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names.into_iter().filter(|name| !name.is_empty() && *name != "help") {
        let page =
            std::fs::read_to_string(pages.join(format!("reprise-{name}.1"))).unwrap_or_else(|_| panic!("{name}"));
        assert!(page.contains(".TH ") && page.contains("SYNOPSIS"), "{name}: {page:.200}");
    }
    assert!(pages.join("reprise-keys-create.1").is_file());
    let page = std::fs::read_to_string(pages.join("reprise.1")).unwrap();
    assert!(!page.contains("kernels"), "a page says nothing about the machine that wrote it: {page}");

    // A folder that cannot be made is said.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let output = run(folder.path(), &["man", "file/man1"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("cannot write manual pages to file/man1"), "{said}");
}

/// A reader that has seen enough, as `| head -n 1` has, is no failure of the command, and says nothing.
#[test]
fn a_closed_output_ends_a_command_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let model = tests::service::tiny_model();
    let model = model.to_str().unwrap();
    let made = tests::reprise::command(folder.path()).args(["keys", "create", "--user", "anna"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let request = r#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
    std::fs::write(folder.path().join("request.json"), request).unwrap();
    for line in [
        "licenses",
        "completions bash",
        "--help",
        "plan",
        "plan --json",
        "doctor",
        "serve --print-config",
        "tensors builtin",
        "validate builtin",
        "run --model builtin --prompt Hello",
        "render --model builtin --request request.json",
        "publish OWNER/REPO MODEL --dry-run",
        "keys list",
        "who",
        "sessions check",
        "sessions export --all",
        "memories list",
    ] {
        let words: Vec<&str> = line.split(' ').map(|word| if word == "MODEL" { model } else { word }).collect();
        // Also where both outputs go to the reader, as with `2>&1`.
        for both in [false, true] {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = tests::reprise::command(folder.path());
            command.args(&words).stdin(Stdio::null()).stderr(Stdio::piped());
            if both {
                command.stderr(writer.try_clone().unwrap());
            }
            let output = command.stdout(writer).spawn().unwrap().wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{line}: {:?} {said}", output.status);
            assert!(!said.contains("roken pipe") && !said.contains("error"), "{line}: {said}");
        }
    }
    // A disk that is full is a failure, and no reason to panic.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output =
        tests::reprise::command(folder.path()).arg("who").stdout(full).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.starts_with("error: ") && !said.contains("panicked"), "{said}");
}

#[tokio::test]
async fn memories_name_their_user_and_are_not_all_deleted_without_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    run_ok(here, &["keys", "create", "--user", "anna"]).await;
    run_ok(here, &["memories", "add", "--person", "bob", "Bob likes tea."]).await;
    let json = |said: String| serde_json::from_str::<serde_json::Value>(&said).unwrap_or_else(|_| panic!("{said}"));
    let listed = json(run_ok(here, &["memories", "list", "--json"]).await);
    assert_eq!((&listed[0]["user"], &listed[0]["person"]), (&"anna".into(), &"bob".into()), "{listed}");
    assert_eq!(json(run_ok(here, &["memories", "search", "tea", "--json"]).await), listed);
    assert_eq!(json(run_ok(here, &["memories", "export"]).await), listed[0]);
    let said = run(here, &["memories", "export", "-o", "memories.jsonl"]).await;
    assert!(String::from_utf8_lossy(&said.stderr).contains("1 memory written to memories.jsonl"), "{said:?}");
    assert_eq!(json(std::fs::read_to_string(here.join("memories.jsonl")).unwrap()), listed[0]);
    // A person reads when it was said, and not the key by which facts replace each other.
    let shown = run_ok(here, &["memories", "show", listed[0]["id"].as_str().unwrap()]).await;
    assert!(shown.contains("said (UTC)") && !shown.contains("about"), "{shown}");

    let refused = run(here, &["memories", "forget", "--all", "--person", "bob"]).await;
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && words.contains("to delete 1 memory of \"bob\" for good"), "{words}");
    assert_eq!(json(run_ok(here, &["memories", "list", "--json"]).await), listed);
    let done = run_ok(here, &["memories", "forget", "--all", "--person", "bob", "--yes"]).await;
    assert_eq!(done, "1 forgotten\n");
}

/// Mistakes in the command line end a command with 2, whether clap finds them or the command.
#[test]
fn wrong_arguments_end_with_two_and_say_what_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("text.txt"), "Some words.").unwrap();
    for (line, says) in [
        ("lora extract a b --out c --rank 0", "from 1 upwards"),
        ("lora extract a b --out c --energy 2", "above 0 and up to 1"),
        ("imatrix --model builtin --text text.txt --out c --chunk 0", "from 1 upwards"),
        ("synth --shape nope --quant q4_0 --out c", "give one of 0.8B"),
        ("run --prompt x --thinking maybe", "off, on or a number"),
        ("run --prompt x --top-p 2", "from 0 to 1"),
        ("run --prompt x --temperature 9", "from 0 to 5"),
        ("run --prompt x --ctx-size 10", "at least 128"),
        ("run --request {", "is not JSON"),
        ("logits --tokens a --out c", "\"a\" is not a number"),
        ("probe --model builtin --lo 5000 --hi 4000", "largest window to try"),
        ("probe --model builtin --kv q9,q8", "use f32, f16, bf16, q8, q4, tq4, tq3"),
        ("plan --windows 999999999", "larger than the model's own"),
        ("publish OWNER text.txt", "OWNER/REPO"),
        ("bench --ctx 0", "from 1 upwards"),
        ("bench felt --turns 2", "from 3 upwards"),
        ("qa builtin --tokens 4", "from 8 upwards"),
        ("eval builtin --only nothing", "there are recall"),
        ("tensors builtin --only nothing", "no tensor of"),
    ] {
        let output = tests::reprise::command(folder.path()).args(line.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(says), "{line}: {:?} {said}", output.status);
    }
}

/// Many texts have that of their cause in them already.
#[test]
fn the_cause_of_a_failure_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "synth --shape 0.8B --quant q4_0 --out missing/x.gguf",
        "quantize missing out.gguf q4_0",
        "merge missing.yaml --out out",
        "--config missing.toml plan",
        "chat --url http://127.0.0.1:9",
    ] {
        let output = tests::reprise::command(folder.path()).args(line.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.matches("(os error ").count() == 1, "{line}: {said}");
    }
}

#[tokio::test]
async fn programs_read_of_what_was_written_what_people_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let json = |said: String| serde_json::from_str::<serde_json::Value>(&said).unwrap_or_else(|_| panic!("{said}"));
    let model = tests::service::tiny_model();
    let recipe = format!(
        "merge_method: linear\nmodels:\n  - model: {0}\n  - model: {0}/.\nparameters: {{weight: 0.5}}\n",
        model.display()
    );
    std::fs::write(here.join("recipe.yaml"), recipe).unwrap();
    let merged = json(run_ok(here, &["merge", "recipe.yaml", "--out", "merged", "--json"]).await);
    assert!(merged["file"] == "merged" && merged["took_s"].is_number() && merged["tensors"] == 56, "{merged}");
    let logits = ["logits", "--model", "builtin", "--tokens", "1,2", "--out", "logits.safetensors", "--json"];
    let logits = json(run_ok(here, &logits).await);
    assert_eq!((&logits["file"], &logits["positions"]), (&"logits.safetensors".into(), &2.into()));
    let key = json(run_ok(here, &["keys", "create", "--user", "anna", "--json"]).await);
    let id = key["id"].as_str().unwrap();
    let revoked = json(run_ok(here, &["keys", "revoke", id, "--json"]).await);
    assert_eq!(revoked, serde_json::json!({ "id": id, "revoked": true }));
    let exported = json(run_ok(here, &["sessions", "export", "--all", "-o", "all.jsonl", "--json"]).await);
    assert_eq!(exported, serde_json::json!({ "file": "all.jsonl", "sessions": 0 }));
    assert!(run_ok(here, &["sessions", "check"]).await.starts_with("no problems\n"));
}
