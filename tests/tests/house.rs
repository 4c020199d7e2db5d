//! The house as it stands, held against its rules. What each rule would find is shown in `tests/src/house/`.

use std::process::Command;

use tests::house::{
    allowed, circles, commands, doors, files, names, pages, prose, purity, rules, source, walls, windows,
};

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
    let rooms = walls::rooms(&page("ARCHITECTURE.md"));
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
fn no_module_by_its_path() {
    none(rules::no_path_attributes(&files::all()));
}

#[test]
fn no_window_size_in_code() {
    none(windows::no_window_in_code(&source::product(&files::all())));
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
fn no_clock_below_the_service_and_no_protocol_inside() {
    none(purity::breaches(&source::product(&files::all())));
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let found = circles::circles(&source::product(&files::all()));
    none(allowed::shrinking(&found, &allowed::list(&allowed::house(), "circles")));
}

#[test]
fn no_door_uses_another() {
    none(doors::doors_that_use_doors(&source::product(&files::all())));
}

#[test]
fn no_command_for_users_uses_what_measures() {
    none(commands::commands_that_use_lab(&source::product(&files::all())));
}

#[test]
fn no_type_has_the_name_of_another_crates() {
    let house = allowed::house();
    let (kept, open) = (allowed::list(&house, "kept_names"), allowed::list(&house, "names"));
    let found = names::types_of_several_crates(&source::product(&files::all()));
    none(allowed::shrinking(&found, &[kept, open].concat()));
}

#[test]
fn no_old_word_comes_back() {
    let files = files::all();
    let house = allowed::house();
    let found = names::old_words(source::rust_with_tests(&files), house["old_words"].as_table().expect("a table"));
    none(allowed::shrinking(&found, &allowed::list(&house, "old_words_in_use")));
}

#[test]
fn comments_name_the_actor() {
    let house = allowed::house();
    let ceilings = house["comments_without_an_actor"].as_table().expect("a table");
    none(pages::comments_without_an_actor(&files::all(), ceilings));
}

#[test]
fn doc_comments_begin_with_a_noun_or_verb_and_are_few() {
    let (house, files) = (allowed::house(), files::all());
    let ceilings = |name: &str| house[name].as_table().cloned().expect("a table");
    none(prose::headless_comments(&files, &ceilings("headless_comments")));
    none(prose::comments_per_thousand_lines(&files, &ceilings("comments_per_thousand_lines")));
}

#[test]
fn pages_are_short() {
    let architecture = page("ARCHITECTURE.md");
    none(pages::long_page("ARCHITECTURE.md", &architecture, pages::LONGEST_ARCHITECTURE));
    none(pages::glossary(&architecture));
    none(pages::missing_places(&architecture, &files::all()));
    none(pages::long_rows("SPEED.md", &page("SPEED.md")));
}

#[test]
fn walks_enter_each_room_once_and_name_places_that_are_there() {
    let walks = page("docs/walks.md");
    for walk in ["An utterance", "A chat completion", "A summary", "A fact", "A tensor"] {
        assert!(walks.contains(&format!("\n## {walk}\n")), "docs/walks.md has no walk {walk:?}");
    }
    let architecture = page("ARCHITECTURE.md");
    let rooms = walls::rooms(&architecture);
    none(pages::wrong_walks(&walks, &rooms.iter().map(|room| room.name.as_str()).collect()));
    none(pages::missing_places(&walks, &files::all()));
    assert!(architecture.contains("(docs/walks.md)"), "ARCHITECTURE.md does not link docs/walks.md");
}

#[test]
fn pages_of_additions_name_files_and_names_that_are_there() {
    let steps = page("docs/adding.md");
    let known = ["a door", "a format of keys and values", "a weight format", "a model family", "a GPU interface"];
    for addition in known.into_iter().chain(["a setting", "a language", "a command"]) {
        assert!(steps.contains(&format!("\n## Add {addition}\n")), "docs/adding.md does not say how to add {addition}");
    }
    none(pages::broken_steps(&steps, &files::all()));
    assert!(page("ARCHITECTURE.md").contains("(docs/adding.md)"), "ARCHITECTURE.md does not link docs/adding.md");
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

fn page(path: &str) -> String {
    std::fs::read_to_string(files::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
