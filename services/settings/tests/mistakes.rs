//! One file per mistake: `mistakes/NAME.toml` is a user's file, `mistakes/NAME.txt` is Reprise's message.
//!
//! Lines `#! env NAME=VALUE` and `#! flag NAME KEY=VALUE` add environment and flags. `BLESS=1 cargo test -p settings`
//! writes the present messages; read the difference before you commit it.

use std::path::{Path, PathBuf};

use settings::{Flag, Settings, Sources};

#[test]
fn every_mistake_is_told_as_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    cases.sort();
    assert!(cases.len() >= 25, "only {} mistakes", cases.len());
    let mut differ = Vec::new();
    for case in &cases {
        let said = tell(case);
        let golden = case.with_extension("txt");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&golden, &said).unwrap();
        }
        let wanted = std::fs::read_to_string(&golden).unwrap_or_default();
        if said != wanted {
            differ.push(format!("{}\n--- wanted\n{wanted}--- said\n{said}", case.display()));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn every_message_has_its_four_parts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mistakes");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = std::fs::read_to_string(&path).unwrap();
            let lines = text
                .lines()
                .filter(|line| !line.ends_with("mistakes in the configuration") && !line.starts_with("  and "));
            for line in lines.filter(|line| !line.contains("not valid TOML") && !line.starts_with("cannot read")) {
                assert!(line.contains(": found ") && line.contains("; allowed: "), "{}: {line}", path.display());
            }
        }
    }
}

fn tell(case: &Path) -> String {
    let text = std::fs::read_to_string(case).unwrap();
    let mut sources = Sources { config_file: Some(case.to_path_buf()), ..Sources::default() };
    for line in text.lines() {
        if let Some((name, value)) = line.strip_prefix("#! env ").and_then(|rest| rest.split_once('=')) {
            sources.environment.insert(name.to_string(), value.to_string());
        }
        if let Some((name, rest)) = line.strip_prefix("#! flag ").and_then(|rest| rest.split_once(' ')) {
            let (key, value) = rest.split_once('=').unwrap();
            sources.flags.push(Flag::new(name, key, value));
        }
    }
    let folder = format!("{}/", case.parent().unwrap().display());
    match Settings::load(&sources) {
        Ok(_) => format!("{} loads without a mistake\n", case.display()),
        Err(error) => format!("{error}\n").replace(&folder, ""),
    }
}
