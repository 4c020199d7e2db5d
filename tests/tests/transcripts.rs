//! Transcripts in docs/tools.md: each command is run, and prints what the page says. `UPDATE_TRANSCRIPTS=1` writes the page anew.
//!
//! Numbers with a fraction and numbers at the end of a line differ between machines and are not compared.

use std::path::Path;
use std::process::Command;

use regex::Regex;
use tests::house::files::root;
use tests::reprise::binary;

const PAGE: &str = "docs/tools.md";
const PROMPT: &str = "$ ";
const TOOLS: [&str; 11] = [
    "import",
    "quantize",
    "imatrix",
    "tensors",
    "validate",
    "qa",
    "probe",
    "publish",
    "merge",
    "lora extract",
    "lora merge",
];

/// Runs a line of shell beside the project's models and test data.
fn run(folder: &Path, line: &str) -> String {
    let mut command = Command::new("/bin/bash");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.join("bin").display());
    command.arg("-c").arg(format!("{{ {line}; }} 2>/dev/null")).current_dir(folder).env_clear();
    let output = command.env("HOME", folder).env("PATH", path).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the page with what its commands print.
fn played(page: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(binary(), folder.path().join("bin/reprise")).unwrap();
    for name in ["models", "tests"] {
        std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    let mut out = String::new();
    for (at, part) in page.split("```").enumerate() {
        let separator = if at > 0 { "```" } else { "" };
        out += separator;
        let is_transcript = at % 2 == 1 && part.starts_with(&format!("\n{PROMPT}"));
        if !is_transcript {
            out += part;
            continue;
        }
        out += "\n";
        for line in part.lines().filter(|line| line.starts_with(PROMPT)) {
            out += line;
            out += "\n";
            let printed = run(folder.path(), &line[PROMPT.len()..]);
            printed.lines().for_each(|line| out += &format!("{}\n", line.trim_end()));
        }
    }
    out
}

/// Returns a text without what differs between machines.
fn comparable(text: &str) -> String {
    let numbers = Regex::new(r"-?\d+\.\d+(e-?\d+)?|\d+ tokens/s|\d+$").unwrap();
    let spaces = Regex::new(r" +").unwrap();
    let line = |line: &str| spaces.replace_all(&numbers.replace_all(line.trim_end(), "#"), " ").into_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn commands_print_what_the_page_says() {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    for tool in TOOLS {
        assert!(page.contains(&format!("\n{PROMPT}reprise {tool} ")), "no transcript of {tool}");
    }
    let played = played(&page);
    if std::env::var_os("UPDATE_TRANSCRIPTS").is_some() {
        std::fs::write(&path, played).unwrap();
        return;
    }
    for (found, expected) in comparable(&played).lines().zip(comparable(&page).lines()) {
        assert_eq!(found, expected, "{PAGE}: run this test with UPDATE_TRANSCRIPTS=1 and read what changed");
    }
    assert_eq!(played.lines().count(), page.lines().count());
}

#[test]
fn other_words_are_seen_and_other_fractions_are_not() {
    assert_eq!(comparable("a  0.12 s  17\nb"), comparable("a 3.4 s 5\nb"));
    assert_ne!(comparable("12 tensors of x"), comparable("13 tensors of x"));
    assert_ne!(comparable("clean: 0 problems, 2 warnings"), comparable("clean: 1 problem, 2 warnings"));
}
