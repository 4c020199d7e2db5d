//! The rules about files: each takes the files and gives its complaints.

use super::files::File;
use super::lexer::{Language, tokens, without_tests};
use super::windows;

const LONGEST: usize = 600;

/// `foo.rs` + `foo/`, so that an editor's tabs have names.
pub fn no_mod_rs(files: &[File]) -> Vec<String> {
    let mod_rs = files.iter().filter(|file| file.path == "mod.rs" || file.path.ends_with("/mod.rs"));
    mod_rs.map(|file| format!("{}: call it by its module's name", file.path)).collect()
}

/// No window size in code outside `config/` and tests.
pub fn no_window_in_code(files: &[File]) -> Vec<String> {
    let test_files = test_module_files(files);
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| !is_test(&file.path) && !test_files.contains(&file.path)) {
        let Some(language) = language(&file.path) else { continue };
        for (line, window) in windows::find(&file.text, language) {
            complaints.push(format!("{}:{line}: the window size {window} belongs into config/", file.path));
        }
    }
    complaints
}

/// A source file over 600 lines says why in its first lines: `Over 600 lines because ...`.
pub fn no_long_file_without_reason(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| language(&file.path) == Some(Language::Braces));
    let long = sources.filter(|file| file.text.lines().count() > LONGEST && !has_reason(&file.text));
    long.map(|file| format!("{}: {} lines without a reason", file.path, file.text.lines().count())).collect()
}

/// Folders of somebody's machine mean that a file works nowhere else.
pub fn no_machine_paths(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(path) = MACHINE_PATHS.iter().find(|path| begins_path(line, path)) {
                complaints.push(format!("{}:{}: the path {path} is of one machine", file.path, number + 1));
            }
        }
    }
    complaints
}

/// Rooms below the service take time and environment as arguments.
pub fn no_clock_or_environment_inside(files: &[File]) -> Vec<String> {
    let rooms = ["engine/", "compaction/", "services/settings/"];
    let test_files = test_module_files(files);
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs") && file.path.contains("src/")) {
        let inside = rooms.iter().any(|room| file.path.starts_with(room));
        if !inside || is_test(&file.path) || test_files.contains(&file.path) {
            continue;
        }
        let (tokens, _) = without_tests(tokens(&file.text, Language::Braces));
        for (line, what) in clocks(&tokens) {
            complaints.push(format!("{}:{line}: {what} belongs to the caller", file.path));
        }
    }
    complaints
}

/// In pieces, so that this file is not its own complaint.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers\\"),
];

/// The path itself, not the end of a longer one such as `src/.../home/`.
fn begins_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '}' | ')' | '*'))
    })
}

fn clocks(tokens: &[super::lexer::At]) -> Vec<(usize, &'static str)> {
    use super::lexer::Token::Word;
    let mut found = Vec::new();
    for (index, at) in tokens.iter().enumerate() {
        let Word(word) = &at.token else { continue };
        let after_std = index >= 3 && matches!(&tokens[index - 3].token, Word(word) if word == "std");
        match word.as_str() {
            "Instant" | "SystemTime" => found.push((at.line, "the clock")),
            "env" if after_std => found.push((at.line, "the environment")),
            _ => {}
        }
    }
    found
}

fn language(path: &str) -> Option<Language> {
    match path.rsplit('.').next()? {
        "rs" | "cu" | "cuh" => Some(Language::Braces),
        "sh" | "run" => Some(Language::Shell),
        _ if path == ".ci/run" => Some(Language::Shell),
        _ => None,
    }
}

/// Files that are tests by their place.
fn is_test(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let folders = parts.get(..parts.len().saturating_sub(1)).unwrap_or_default();
    folders.iter().any(|folder| matches!(*folder, "tests" | "fuzz" | "config"))
}

/// Files of modules that are declared under `#[cfg(test)]`.
fn test_module_files(files: &[File]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let (_, modules) = without_tests(tokens(&file.text, Language::Braces));
        let stem = file.path.trim_end_matches(".rs");
        let folder = match stem.rsplit_once('/') {
            Some((folder, "lib" | "main")) => folder,
            _ => stem,
        };
        found.extend(modules.iter().map(|module| format!("{folder}/{module}.rs")));
    }
    found
}

fn has_reason(text: &str) -> bool {
    let comments = text.lines().take(20).filter(|line| line.trim_start().starts_with("//"));
    comments.filter_map(|line| line.split_once("600 lines because ")).any(|(_, why)| why.trim().len() >= 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_string(), text: text.to_string() }
    }

    #[test]
    fn a_mod_rs_is_found() {
        assert_eq!(no_mod_rs(&[file("a/mod.rs", ""), file("a/model.rs", "")]).len(), 1);
    }

    #[test]
    fn a_window_is_found_in_code_and_not_in_tests_or_config() {
        let code = "const CTX: u32 = 32768;";
        let found = |path: &str| no_window_in_code(&[file(path, code)]).len();
        assert_eq!(
            [found("engine/src/a.rs"), found("engine/kernels/src/a.cu"), found("services/x/examples/a.rs")],
            [1, 1, 1]
        );
        assert_eq!(
            [found("engine/tests/a.rs"), found("config/a.sh"), found("tests/src/a.rs"), found("README.md")],
            [0; 4]
        );
        assert_eq!(no_window_in_code(&[file("start.sh", "x --ctx-size 32768")]).len(), 1);
        assert_eq!(no_window_in_code(&[file(".ci/run", "x 32768")]).len(), 1);
    }

    #[test]
    fn a_file_of_a_test_module_is_a_test() {
        let code = "const CTX: u32 = 32768;";
        let files = [
            file("e/src/a.rs", "#[cfg(test)]\nmod proof;\nmod real;"),
            file("e/src/a/proof.rs", code),
            file("e/src/a/real.rs", code),
        ];
        let complaints = no_window_in_code(&files);
        assert_eq!(complaints, ["e/src/a/real.rs:1: the window size 32768 belongs into config/"]);
        let files = [file("e/src/lib.rs", "#[cfg(test)] mod proof;"), file("e/src/proof.rs", code)];
        assert_eq!(no_window_in_code(&files).len(), 0);
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "x\n".repeat(601);
        let reasoned = format!("//! Over 600 lines because the table is one.\n{long}");
        let files = [file("a.rs", &long), file("b.rs", &reasoned), file("c.rs", "x"), file("d.md", &long)];
        assert_eq!(no_long_file_without_reason(&files), ["a.rs: 601 lines without a reason"]);
        assert_eq!(no_long_file_without_reason(&[file("a.rs", &format!("// 600 lines because \n{long}"))]).len(), 1);
    }

    #[test]
    fn a_machine_path_is_found() {
        for path in MACHINE_PATHS {
            assert_eq!(no_machine_paths(&[file("a.md", &format!("see \"{path}x\""))]).len(), 1, "{path}");
            assert_eq!(no_machine_paths(&[file("a.md", &format!("see src{path}x"))]).len(), 0, "{path}");
        }
    }

    #[test]
    fn a_clock_in_the_engine_is_found() {
        let found = |path: &str, text: &str| no_clock_or_environment_inside(&[file(path, text)]).len();
        assert_eq!(found("engine/src/a.rs", "let t = std::time::Instant::now();"), 1);
        assert_eq!(found("engine/kernels/src/a.rs", "let t = std::env::var(\"X\");"), 1);
        assert_eq!(found("compaction/src/a.rs", "use std::time::SystemTime;"), 1);
        assert_eq!(found("engine/src/a.rs", "#[cfg(test)] mod tests { use std::time::Instant; }"), 0);
        assert_eq!(found("engine/src/a.rs", "// Instant\nlet t = env!(\"X\");"), 0);
        assert_eq!(found("services/conversation/src/a.rs", "use std::time::Instant;"), 0);
        assert_eq!(found("engine/src/tests/a.rs", "use std::time::Instant;"), 0);
    }
}
