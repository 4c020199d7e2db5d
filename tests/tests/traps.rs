//! The list of what breaks the clients of a home (`tests/data/home/traps.toml`): each trap has a test.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tests::house::files::root;

#[derive(Debug)]
struct Trap {
    door: String,
    trap: String,
    shown: String,
}

fn traps(list: &str) -> Vec<Trap> {
    let list: toml::Table = toml::from_str(list).expect("TOML");
    let mut traps = Vec::new();
    for (door, table) in list {
        for entry in table["traps"].as_array().expect("a list") {
            let text = |name: &str| entry[name].as_str().expect("text").to_owned();
            traps.push(Trap { door: door.clone(), trap: text("trap"), shown: text("shown") });
        }
    }
    traps
}

/// Names of tests in a file in Rust, or of steps that a client's script runs.
fn tests_in(path: &Path, text: &str) -> Vec<String> {
    let pattern = match path.extension().and_then(|extension| extension.to_str()) {
        Some("rs") => r"(?m)^\s*#\[(?:tokio::)?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)",
        Some("py") => r"(?m)^(?:async )?def (\w+)\(",
        _ => return Vec::new(),
    };
    let pattern = Regex::new(pattern).expect("a pattern");
    let names = pattern.captures_iter(text).map(|found| found[1].to_owned());
    let is_run = |name: &String| {
        let run = text.rsplit_once("\nrun(").map_or("", |(_, run)| run);
        run.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
    };
    match path.extension() {
        Some(extension) if extension == "py" => names.filter(is_run).collect(),
        _ => names.collect(),
    }
}

fn collect(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, all);
            }
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            all.extend(tests_in(&path, &text));
        }
    }
}

fn complaints(traps: &[Trap], tests: &BTreeSet<String>, least: &[(&str, usize)]) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for Trap { door, trap, shown } in traps {
        *counts.entry(door).or_default() += 1;
        if !tests.contains(shown) {
            complaints.push(format!("{door}, {trap}: there is no test {shown}"));
        }
        if !known.insert((door, trap)) || trap.chars().count() > 120 {
            complaints.push(format!("{door}, {trap}: it stands there twice, or is too long"));
        }
    }
    for (door, least) in least {
        let found = counts.remove(door).unwrap_or(0);
        if found < *least {
            complaints.push(format!("{door} has {found} traps of {least}"));
        }
    }
    complaints.extend(counts.keys().map(|door| format!("there is no door {door}")));
    complaints
}

/// Known cases, by kind. The list only grows.
const KNOWN: [(&str, usize); 6] =
    [("home_assistant", 8), ("chat", 22), ("ollama", 24), ("wyoming", 18), ("responses", 24), ("frontends", 7)];

#[test]
fn each_trap_has_a_test() {
    let list = std::fs::read_to_string(root().join("tests/data/home/traps.toml")).unwrap();
    let mut tests = BTreeSet::new();
    for folder in
        ["services/doors", "services/fields", "services/voices", "engine/text", "tests/tests", "tests/clients"]
    {
        collect(&root().join(folder), &mut tests);
    }
    assert!(tests.len() > 300, "{}", tests.len());
    let complaints = complaints(&traps(&list), &tests, &KNOWN);
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_trap_without_its_test_is_found() {
    let tests = tests_in(
        Path::new("a.rs"),
        "#[tokio::test]\nasync fn one() {}\n#[test]\n#[ignore]\nfn two() {}\nfn helper() {}\n",
    );
    assert_eq!(tests, ["one", "two"]);
    assert_eq!(
        tests_in(Path::new("a.py"), "def helper():\n    pass\nasync def step():\n    pass\n\nrun(step)\n"),
        ["step"]
    );
    let tests = tests.into_iter().collect();
    let list = |traps: &str| self::traps(&format!("[chat]\ntraps = [{traps}]"));
    let good = list(r#"{ trap = "a", shown = "one" }, { trap = "b", shown = "two" }"#);
    assert_eq!(complaints(&good, &tests, &[("chat", 2)]), [""; 0]);
    assert_eq!(complaints(&good, &tests, &[("chat", 3)]), ["chat has 2 traps of 3"]);
    assert_eq!(complaints(&good, &tests, &[]), ["there is no door chat"]);
    let bad = list(r#"{ trap = "a", shown = "helper" }, { trap = "a", shown = "one" }"#);
    assert_eq!(complaints(&bad, &tests, &[("chat", 1)]).len(), 2);
}
