//! The house as it stands, held against its rules. What each rule would find is shown in `tests/src/house/`.

use std::process::Command;

use tests::house::{files, rules, walls};

#[test]
fn no_room_uses_one_it_may_not() {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(files::root())
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let crates = walls::crates(&serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON"));
    let architecture =
        std::fs::read_to_string(files::root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    let rooms = walls::rooms(&architecture);
    assert!(
        crates.len() >= 9 && rooms.len() >= 9,
        "{} crates and {} rooms are too few to be all",
        crates.len(),
        rooms.len()
    );
    none(walls::complaints(&rooms, &crates));
}

#[test]
fn no_mod_rs() {
    none(rules::no_mod_rs(&files::all()));
}

#[test]
fn no_window_size_in_code() {
    none(rules::no_window_in_code(&files::all()));
}

#[test]
fn no_source_file_over_600_lines_without_a_reason() {
    none(rules::no_long_file_without_reason(&files::all()));
}

#[test]
fn no_path_of_one_machine() {
    none(rules::no_machine_paths(&files::all()));
}

#[test]
fn no_clock_or_environment_below_the_service() {
    none(rules::no_clock_or_environment_inside(&files::all()));
}

/// A reader of the README and CI run the same command.
#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let files = files::all();
    let text =
        |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str()).unwrap_or_default();
    let after = text("README.md").split("\nTest:\n\n```sh\n").nth(1).expect("README.md has a test command");
    let command = after.lines().next().unwrap_or_default();
    assert!(command.starts_with("cargo "), "{command:?}");
    let runs = text(".ci/run").lines().any(|line| line == format!("step {command}"));
    assert!(runs, ".ci/run does not run {command:?}");
}

/// A rule that sees no files holds always.
#[test]
fn the_files_are_all_seen() {
    let files = files::all();
    for path in ["README.md", "start.sh", ".ci/run", "config/default.toml", "engine/src/lib.rs", "tests/tests/house.rs"]
    {
        assert!(files.iter().any(|file| file.path == path), "{path} is not seen");
    }
    assert!(files.iter().filter(|file| file.path.ends_with(".rs")).count() > 60, "too few source files");
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
