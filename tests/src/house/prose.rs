//! Doc comments that begin with a noun or a verb, and code that has few enough of them to be read.

use std::collections::BTreeMap;
use std::ops::Range;

use regex::Regex;
use toml::Table;

use super::files::File;
use super::source::{braces, line, rust_code};

/// First words behind which a comment has no head: the reader must guess what it speaks of. No noun and no verb is
/// among them but `See`, which sends the reader away. `Whether` is one of them: a flag says what it means when true.
const HEADLESS: &[&str] = &[
    "About",
    "After",
    "Already",
    "Also",
    "Although",
    "Always",
    "Among",
    "And",
    "Anything",
    "As",
    "At",
    "Because",
    "Before",
    "Behind",
    "Below",
    "Beside",
    "Besides",
    "Between",
    "Beyond",
    "Both",
    "But",
    "By",
    "During",
    "Either",
    "Enough",
    "Everything",
    "For",
    "From",
    "How",
    "However",
    "If",
    "In",
    "Inside",
    "Instead",
    "Into",
    "Neither",
    "Never",
    "None",
    "Not",
    "Nothing",
    "Of",
    "On",
    "Once",
    "Or",
    "Over",
    "See",
    "Since",
    "So",
    "Some",
    "Something",
    "Such",
    "Than",
    "That",
    "Then",
    "There",
    "Through",
    "To",
    "Too",
    "Under",
    "Unless",
    "Until",
    "Up",
    "What",
    "Whatever",
    "When",
    "Whenever",
    "Where",
    "Wherever",
    "Whether",
    "Which",
    "Whichever",
    "While",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Why",
    "With",
    "Within",
    "Without",
];

/// Headless comments of a folder that may be missing under its ceiling before the ceiling has to sink.
const HEADLESS_SLACK: usize = 3;
/// Comments per thousand lines that may be missing under a folder's ceiling before the ceiling has to sink.
const DENSITY_SLACK: usize = 2;

/// Doc comments whose first word has no head, counted by folder against the ceilings of `headless_comments`.
pub fn headless_comments(files: &[File], ceilings: &Table) -> Vec<String> {
    let complaint = |folder: &str, files: &[&File]| {
        let comments = files.iter().flat_map(|file| doc_comments(file).into_iter().map(move |comment| (file, comment)));
        let headless: Vec<String> = comments
            .filter(|(_, comment)| HEADLESS.contains(&comment.first_word))
            .map(|(file, comment)| format!("{}:{} {}", file.path, comment.line, comment.first_word))
            .collect();
        let some = headless[..headless.len().min(10)].join(", ");
        let found = format!("{} doc comments in {folder:?} begin without a noun or verb", headless.len());
        sinking(ceilings, folder, headless.len(), HEADLESS_SLACK, &found, &format!(": {some}"))
    };
    by_folder(files, ceilings).iter().filter_map(|(folder, files)| complaint(folder, files)).collect()
}

/// Doc comments per thousand lines, by folder against the ceilings of `comments_per_thousand_lines`. The help texts of a
/// command line are messages to users and do not count.
pub fn comments_per_thousand_lines(files: &[File], ceilings: &Table) -> Vec<String> {
    let complaint = |folder: &str, files: &[&File]| {
        let comments: usize = files.iter().map(|file| comments_for_readers(file)).sum();
        let lines: usize = files.iter().map(|file| file.text.lines().count()).sum();
        let density = (comments * 1000).div_ceil(lines.max(1));
        let found = format!("{folder:?} has {density} doc comments per thousand lines");
        let why = "; delete those that repeat a signature";
        sinking(ceilings, folder, density, DENSITY_SLACK, &found, why)
    };
    by_folder(files, ceilings).iter().filter_map(|(folder, files)| complaint(folder, files)).collect()
}

/// A complaint where `count` is over the folder's ceiling, and where it is so far below that the ceiling has to sink.
fn sinking(ceilings: &Table, folder: &str, count: usize, slack: usize, found: &str, over: &str) -> Option<String> {
    let ceiling = ceilings.get(folder).and_then(toml::Value::as_integer).unwrap_or(0) as usize;
    if count > ceiling {
        Some(format!("{found}, over {ceiling}{over}"))
    } else if count + slack < ceiling {
        Some(format!("{found}, well under {ceiling}: lower the ceiling in house.toml to {count}"))
    } else {
        None
    }
}

/// Rust files by the longest folder of `ceilings` that they lie in. Folders without files stay, so that a ceiling that
/// nothing needs any more is found too.
fn by_folder<'a>(files: &'a [File], ceilings: &'a Table) -> BTreeMap<&'a str, Vec<&'a File>> {
    let mut folders: BTreeMap<&str, Vec<&File>> = ceilings.keys().map(|folder| (folder.as_str(), Vec::new())).collect();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let holding = ceilings.keys().filter(|folder| file.path.starts_with(folder.as_str()));
        let folder = holding.max_by_key(|folder| folder.len()).map_or("", String::as_str);
        folders.entry(folder).or_default().push(file);
    }
    folders
}

fn comments_for_readers(file: &File) -> usize {
    let helps = help_texts(&file.text);
    doc_comments(file).iter().filter(|comment| !helps.iter().any(|lines| lines.contains(&comment.line))).count()
}

/// Lines, counted from one, of the types of which `clap` makes a command line, with the comments before them.
fn help_texts(text: &str) -> Vec<Range<usize>> {
    let derived = Regex::new(r"#\[derive\([^)]*\b(?:Args|Parser|Subcommand|ValueEnum)\b").expect("a pattern");
    let code = rust_code(text);
    let lines: Vec<&str> = text.lines().collect();
    let of_type = |found: regex::Match| {
        let begin = line(&code, found.start());
        let before =
            lines[..begin - 1].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
        let open = code[found.end()..].find('{').map_or(code.len(), |open| found.end() + open);
        begin - before.count()..line(&code, braces(&code, open).end) + 1
    };
    derived.find_iter(&code).map(of_type).collect()
}

struct DocComment<'a> {
    line: usize,
    first_word: &'a str,
}

/// Runs of consecutive `///` or `//!` lines.
fn doc_comments(file: &File) -> Vec<DocComment<'_>> {
    let lines: Vec<(usize, Option<(&str, &str)>)> = file.text.lines().map(marked).enumerate().collect();
    lines
        .chunk_by(|(_, a), (_, b)| a.map(|(marker, _)| marker) == b.map(|(marker, _)| marker))
        .filter(|run| run[0].1.is_some())
        .map(|run| {
            let mut words = run.iter().filter_map(|(_, line)| line.map(|(_, text)| word(text)));
            DocComment { line: run[0].0 + 1, first_word: words.find(|word| !word.is_empty()).unwrap_or_default() }
        })
        .collect()
}

/// The marker of a doc comment's line, and the text behind it.
fn marked(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let (marker, text) = line.split_at_checked(3)?;
    (matches!(marker, "///" | "//!") && !text.starts_with('/')).then_some((marker, text))
}

fn word(text: &str) -> &str {
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '`');
    let length = text.chars().take_while(|c| c.is_alphanumeric() || *c == '`').map(char::len_utf8).sum();
    &text[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().expect("TOML")
    }

    #[test]
    fn headless_comments_are_counted_by_folder() {
        let files = [
            File::new("a/x.rs", "//! What it is.\n//! Where it lies.\n\n/// Whose it is.\nfn x() {}\n// So much.\n"),
            File::new("a/b/x.rs", "    /// Returns what it is.\n    /// None: it is not.\n    /// `None` is code.\n"),
            File::new("a/b/x.md", "/// How"),
        ];
        assert_eq!(headless_comments(&files, &table("\"a/\" = 2\n\"a/b/\" = 0")), [""; 0]);
        let over = "2 doc comments in \"a/\" begin without a noun or verb, over 1: a/x.rs:1 What, a/x.rs:4 Whose";
        assert_eq!(headless_comments(&files, &table("\"a/\" = 1\n\"a/b/\" = 0")), [over]);
        assert_eq!(headless_comments(&files, &table(""))[0].split(',').next(), {
            Some("2 doc comments in \"\" begin without a noun or verb")
        });
    }

    #[test]
    fn a_ceiling_that_is_too_high_has_to_sink() {
        let files = [File::new("a/x.rs", "/// How it ends.\nfn x() {}\n")];
        assert_eq!(headless_comments(&files, &table("\"a/\" = 4")), [""; 0]);
        let under = "1 doc comments in \"a/\" begin without a noun or verb, well under 5: lower the ceiling in \
                     house.toml to 1";
        assert_eq!(headless_comments(&files, &table("\"a/\" = 5")), [under]);
        assert_eq!(headless_comments(&files, &table("\"a/\" = 1\n\"gone/\" = 9")).len(), 1);
    }

    #[test]
    fn comments_are_counted_per_thousand_lines() {
        let comment = "/// Returns x.\n/// Twice.\n";
        let files = [File::new("a/x.rs", &format!("{comment}{}", "fn x() {}\n".repeat(98)))];
        let at = |ceiling: usize| comments_per_thousand_lines(&files, &table(&format!("\"a/\" = {ceiling}")));
        assert_eq!((at(10), at(12)), (vec![], vec![]));
        let over = "\"a/\" has 10 doc comments per thousand lines, over 9; delete those that repeat a signature";
        assert_eq!(at(9), [over]);
        let under =
            "\"a/\" has 10 doc comments per thousand lines, well under 13: lower the ceiling in house.toml to 10";
        assert_eq!(at(13), [under]);
    }

    #[test]
    fn help_texts_of_a_command_line_are_no_comments() {
        let flags = "/// Starts it.\n#[derive(Clone, clap::Args)]\npub struct A {\n    /// Port.\n    port: u16,\n}\n";
        let choices = "#[derive(clap::ValueEnum)]\nenum E {\n    /// One.\n    One,\n}\n";
        let other = "/// Number.\n#[derive(Clone)]\npub struct B {\n    /// Value.\n    value: u16,\n}\n";
        let comments = |text: &str| comments_for_readers(&File::new("a.rs", text));
        assert_eq!([comments(flags), comments(choices), comments(other)], [0, 0, 2]);
        assert_eq!(comments(&[other, flags, other].concat()), 4);
    }

    #[test]
    fn a_comment_is_a_run_of_one_marker() {
        let text =
            "//! A page.\n/// `x`: a name.\n///\n/// So.\n//// In a ruler.\n///\n/// - In a list.\nlet x = \"\n/// é\n";
        let file = File::new("a.rs", text);
        let found: Vec<(usize, &str)> =
            doc_comments(&file).iter().map(|comment| (comment.line, comment.first_word)).collect();
        assert_eq!(found, [(1, "A"), (2, "`x`"), (6, "In"), (9, "é")]);
    }

    #[test]
    fn the_list_is_in_order() {
        assert!(HEADLESS.is_sorted_by(|a, b| a < b));
    }
}
