//! Wall between commands for users and `lab`, which measures.

use std::sync::LazyLock;

use regex::Regex;

use super::source::{self, Source};

const FOLDER: &str = "services/reprise/src/";
/// File that names every command. Only there a command of `lab` stands.
const TABLE: &str = "services/reprise/src/main.rs";
/// Modules of `lab` that are commands.
const MEASURING: [&str; 6] = ["ab", "bench", "eval", "probe", "qa", "synth"];

static LAB: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\blab::(?<module>\w*)|\buse lab\b|\bextern crate lab\b").expect("a pattern"));

/// Complaints about commands for users that use `lab`: they would not be there without it.
pub fn commands_that_use_lab(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources.iter().filter(|source| source.path.starts_with(FOLDER)) {
        for found in LAB.captures_iter(&source.code) {
            let module = found.name("module").map_or("", |module| module.as_str());
            if source.path != TABLE || !MEASURING.contains(&module) {
                let line = source::line(&source.code, found.get_match().start());
                complaints.push(format!("{}:{line}: uses lab, which only commands that measure may", source.path));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::files::File;

    fn found(path: &str, text: &str) -> usize {
        commands_that_use_lab(&source::product(&[File::new(path, text)])).len()
    }

    #[test]
    fn a_command_for_users_that_uses_lab_is_found() {
        let file = "services/reprise/src/commands/keys.rs";
        for text in ["use lab::output::clean;", "fn f() { lab::bench::run() }", "use lab as x;", "use lab::{a, b};"] {
            assert_eq!(found(file, text), 1, "{text}");
        }
        assert_eq!(found(TABLE, "use lab::output::clean;"), 1);
        let complaint = "services/reprise/src/commands/keys.rs:2: uses lab, which only commands that measure may";
        assert_eq!(
            commands_that_use_lab(&source::product(&[File::new(file, "\nuse lab::output::clean;")])),
            [complaint]
        );
    }

    #[test]
    fn commands_that_measure_and_tests_may() {
        assert_eq!(found(TABLE, "fn f() { lab::bench::run() }"), 0);
        assert_eq!(found("services/reprise/src/commands/keys.rs", "// lab::output\nuse collab::x;"), 0);
        assert_eq!(found("services/reprise/src/a.rs", "#[cfg(test)]\nmod tests { use lab::ab; }"), 0);
        assert_eq!(found("services/lab/src/a.rs", "use lab::ab;"), 0);
    }
}
