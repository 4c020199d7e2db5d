//! The rules about files: each takes the files and gives its complaints.

use std::sync::LazyLock;

use regex::Regex;

use super::files::File;
use super::source::{is_braces, line, rust_code};

const LONGEST: usize = 600;

/// `foo.rs` + `foo/`, so that an editor's tabs have names.
pub fn no_mod_rs(files: &[File]) -> Vec<String> {
    let mod_rs = files.iter().filter(|file| file.path == "mod.rs" || file.path.ends_with("/mod.rs"));
    mod_rs.map(|file| format!("{}: call it by its module's name", file.path)).collect()
}

/// A file that others take in by its path is compiled several times, and no reader sees whose module it is.
pub fn no_path_attributes(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let code = rust_code(&file.text);
        for found in PATH_ATTRIBUTE.find_iter(&code) {
            let line = line(&code, found.start());
            complaints.push(format!("{}:{line}: declare the module where its file lies, not by #[path]", file.path));
        }
    }
    complaints
}

static PATH_ATTRIBUTE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"#!?\s*\[[^\]]*\bpath\s*=").expect("a pattern"));

/// A source file over 600 lines says why in its first lines: `Over 600 lines because ...`.
pub fn no_long_file_without_reason(files: &[File]) -> Vec<String> {
    let sources = files.iter().filter(|file| is_braces(&file.path));
    let long = sources.filter(|file| file.text.lines().count() > LONGEST && !has_reason(&file.text));
    long.map(|file| format!("{}: {} lines without a reason", file.path, file.text.lines().count())).collect()
}

/// A file that names a folder of one machine works nowhere else.
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

/// Patterns in pieces, so that this file does not complain of itself.
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

fn has_reason(text: &str) -> bool {
    let comments = text.lines().take(20).filter(|line| line.trim_start().starts_with("//"));
    comments.filter_map(|line| line.split_once("600 lines because ")).any(|(_, why)| why.trim().len() >= 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mod_rs_is_found() {
        assert_eq!(no_mod_rs(&[File::new("a/mod.rs", ""), File::new("a/model.rs", "")]).len(), 1);
    }

    #[test]
    fn a_module_by_its_path_is_found() {
        for text in ["#[path = \"x.rs\"]\nmod x;", "# [ path=\"x.rs\" ]", "#[cfg_attr(test, path = \"x.rs\")]\nmod x;"]
        {
            assert_eq!(no_path_attributes(&[File::new("a.rs", text)]).len(), 1, "{text}");
        }
        let complaint = "a.rs:2: declare the module where its file lies, not by #[path]";
        assert_eq!(no_path_attributes(&[File::new("a.rs", "\n#[path = \"x\"]\nmod x;")]), [complaint]);
        for text in ["// #[path = \"x\"]", "\"#[path = 1]\"", "#[arg(value_name = \"PATH\")]", "let a = [path == b];"] {
            assert_eq!(no_path_attributes(&[File::new("a.rs", text)]), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = "x\n".repeat(601);
        let reasoned = format!("//! Over 600 lines because the table is one.\n{long}");
        let files = [("a.rs", &*long), ("b.rs", &reasoned), ("c.rs", "x"), ("d.md", &long)];
        let files = files.map(|(path, text)| File::new(path, text));
        assert_eq!(no_long_file_without_reason(&files), ["a.rs: 601 lines without a reason"]);
        let unreasoned = File::new("a.rs", &format!("// 600 lines because \n{long}"));
        assert_eq!(no_long_file_without_reason(&[unreasoned]).len(), 1);
    }

    #[test]
    fn a_machine_path_is_found() {
        for path in MACHINE_PATHS {
            assert_eq!(no_machine_paths(&[File::new("a.md", &format!("see \"{path}x\""))]).len(), 1, "{path}");
            assert_eq!(no_machine_paths(&[File::new("a.md", &format!("see src{path}x"))]).len(), 0, "{path}");
        }
    }
}
