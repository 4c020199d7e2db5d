//! Code without its comments, its strings and its tests, so that a regular expression can look for something in the rest.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::files::File;

pub struct Source<'a> {
    pub path: &'a str,
    pub text: &'a str,
    /// The text with spaces where comments, strings and tests were: bytes and lines stay where they are.
    pub code: String,
    /// The same with its strings.
    pub code_and_strings: String,
    /// Files that this one declares under `#[cfg(test)]`.
    test_files: Vec<String>,
}

/// Returns the sources of the product: Rust, CUDA and shell that is no test.
pub fn product(files: &[File]) -> Vec<Source<'_>> {
    let mut sources: Vec<Source> = files.iter().filter(|file| !is_test(&file.path)).filter_map(source).collect();
    let tests: BTreeSet<String> = sources.iter().flat_map(|source| source.test_files.clone()).collect();
    sources.retain(|source| !tests.contains(source.path));
    sources
}

/// All Rust code, tests too.
pub fn rust_with_tests(files: &[File]) -> impl Iterator<Item = (&str, String)> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.map(|file| (file.path.as_str(), rust_code(&file.text)))
}

/// Blanks the comments and strings of Rust.
pub fn rust_code(text: &str) -> String {
    blanked(text, &BRACES, true)
}

pub fn is_braces(path: &str) -> bool {
    [".rs", ".cu", ".cuh"].iter().any(|end| path.ends_with(end))
}

pub fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

pub fn braces(code: &str, open: usize) -> Range<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return open..at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    open..code.len()
}

static BRACES: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r##"(?s)(?<comment>//[^\n]*|/\*.*?\*/)|r"[^"]*"|r#".*?"#|"(?:\\.|[^"\\])*"|'(?:\\.[^']*|[^'\\])'"##;
    Regex::new(pattern).expect("a pattern")
});
static SHELL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?m)(?<comment>(?:^|\s)#[^\n]*)|"(?:\\.|[^"\\])*""#).expect("a pattern"));
static TEST: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*(?:(?:pub )?mod (\w+);|[^;{]*[;{])").expect("a pattern")
});

fn source(file: &File) -> Option<Source<'_>> {
    let shell = file.path.ends_with(".sh") || file.path.ends_with(".run") || file.path == ".ci/run";
    if !shell && !is_braces(&file.path) {
        return None;
    }
    let syntax: &Regex = if shell { &SHELL } else { &BRACES };
    let mut code = blanked(&file.text, syntax, true);
    let mut code_and_strings = blanked(&file.text, syntax, false);
    let mut test_files = Vec::new();
    while let Some(found) = TEST.captures(&code) {
        if let Some(module) = found.get(1) {
            test_files.push(format!("{}{}.rs", children(&file.path), module.as_str()));
        }
        let item = found.get_match().range();
        let range = match code[item.clone()].ends_with('{') {
            true => item.start..braces(&code, item.end - 1).end,
            false => item,
        };
        for text in [&mut code, &mut code_and_strings] {
            let spaces = spaces(&text[range.clone()]);
            text.replace_range(range.clone(), &spaces);
        }
    }
    Some(Source { path: &file.path, text: &file.text, code, code_and_strings, test_files })
}

/// The folder, with its `/`, in which the modules of this file lie.
pub fn children(path: &str) -> String {
    let stem = path.trim_end_matches(".rs");
    match stem.rsplit_once('/') {
        Some((folder, "lib" | "main")) => format!("{folder}/"),
        _ => format!("{stem}/"),
    }
}

fn blanked(text: &str, syntax: &Regex, strings_too: bool) -> String {
    let blank = |found: &regex::Captures| match strings_too || found.name("comment").is_some() {
        true => spaces(&found[0]),
        false => found[0].to_string(),
    };
    syntax.replace_all(text, blank).into_owned()
}

fn spaces(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

fn is_test(path: &str) -> bool {
    let folders = path.rsplit_once('/').map(|(folders, _)| folders).unwrap_or_default();
    folders.split('/').any(|folder| matches!(folder, "tests" | "testing" | "fuzz" | "config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(path: &str, text: &str, strings: bool) -> String {
        let source =
            source(&File::new(path, text)).map(|source| if strings { source.code_and_strings } else { source.code });
        source.unwrap_or_default().chars().filter(char::is_ascii_digit).collect()
    }

    #[test]
    fn comments_strings_and_characters_are_no_code() {
        let text = "1 // 2\n/* 3\n4 */ 5 '6' '\\'' 7 'a 8 r#\"9 \" 9\"# r\"9\" \"9 \\\" // 9\" 0";
        assert_eq!(numbers("a.rs", text, false), "15780");
        assert_eq!(numbers("a.rs", text, true), "1567899999".to_string() + "0");
        assert_eq!(numbers("a.sh", "1 # 2\n$# 3 a#4 \"# 5\"", true), "1345");
        assert_eq!(numbers("a.md", "1", true), "");
    }

    #[test]
    fn bytes_stay_where_they_are() {
        let file = File::new("a.rs", "a /* é\n*/ b \"ü\n\" c");
        let source = source(&file).expect("code");
        assert_eq!([source.code.len(), source.code_and_strings.len()], [file.text.len(); 2]);
        assert_eq!(line(&source.code, source.code.find('c').expect("c")), 3);
    }

    #[test]
    fn items_under_cfg_test_are_left_out() {
        let text = "1 #[cfg(test)] mod tests { 2 { \"}\" 3 } } 4 #[cfg(test)] fn a(x: u8) -> u8 { 6 } 7 #[cfg(test)] use b; 8\n\
                    #[cfg(test)]\n#[path = \"x\"]\nmod far; 9";
        assert_eq!(numbers("a.rs", text, false), "14789");
    }

    #[test]
    fn a_file_of_a_test_module_is_a_test() {
        let test = "#[cfg(test)]\nmod proof;\nmod real;";
        let files = [("e/src/a.rs", test), ("e/src/a/proof.rs", ""), ("e/src/a/real.rs", ""), ("e/src/lib.rs", test)];
        let more = [
            ("e/src/proof.rs", ""),
            ("e/tests/a.rs", ""),
            ("e/fuzz/a.rs", ""),
            ("e/testing/a.rs", ""),
            ("config/a.sh", ""),
            ("a.md", ""),
        ];
        let files: Vec<File> = files.iter().chain(&more).map(|(path, text)| File::new(path, text)).collect();
        let paths: Vec<&str> = product(&files).iter().map(|source| source.path).collect();
        assert_eq!(paths, ["e/src/a.rs", "e/src/a/real.rs", "e/src/lib.rs"]);
    }
}
