//! Pages that stay short enough to be read, and comments that name their actor.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;
use toml::Table;

use super::files::File;
use super::source::is_braces;

const MOST_WORDS: usize = 40;
const LONGEST_ROW: usize = 300;
pub const LONGEST_ARCHITECTURE: usize = 16_000;

/// The glossary is the table of the section `## Words`.
pub fn glossary(architecture: &str) -> Vec<String> {
    let section = architecture.split("\n## Words\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    let mut complaints = Vec::new();
    if rows.is_empty() || rows.len() > MOST_WORDS {
        complaints.push(format!("the glossary of ARCHITECTURE.md has {} words, not 1 to {MOST_WORDS}", rows.len()));
    }
    let mut seen = BTreeSet::new();
    for word in rows.iter().filter_map(|row| row.split('|').nth(1)) {
        if !seen.insert(word.trim()) {
            complaints.push(format!("the glossary of ARCHITECTURE.md explains {:?} twice", word.trim()));
        }
    }
    complaints
}

/// Each optimisation is one row that is read at a glance.
pub fn long_rows(path: &str, text: &str) -> Vec<String> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.chars().count(), line));
    let long = lines.filter(|(_, length, line)| line.starts_with('|') && *length > LONGEST_ROW);
    long.map(|(at, length, _)| format!("{path}:{at}: a row of {length} characters, over {LONGEST_ROW}")).collect()
}

pub fn long_page(path: &str, text: &str, most: usize) -> Vec<String> {
    let length = text.chars().count();
    (length > most).then(|| format!("{path} has {length} characters, over {most}")).into_iter().collect()
}

/// Lines of comments whose actor is "who" or "nobody", counted by folder. A file belongs to the longest folder of
/// `ceilings` that it lies in.
pub fn comments_without_an_actor(files: &[File], ceilings: &Table) -> Vec<String> {
    let nobody = Regex::new(r"//.*\b(?i:who|whoever|nobody|somebody|anybody)\b").expect("a pattern");
    let mut counts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_braces(&file.path)) {
        let folders = ceilings.keys().filter(|folder| file.path.starts_with(folder.as_str()));
        let folder = folders.max_by_key(|folder| folder.len()).map_or("", String::as_str);
        let lines = file.text.lines().enumerate().filter(|(_, line)| nobody.is_match(line));
        counts.entry(folder).or_default().extend(lines.map(|(at, _)| format!("{}:{}", file.path, at + 1)));
    }
    let most = |folder: &str| ceilings.get(folder).and_then(toml::Value::as_integer).unwrap_or(0) as usize;
    let over = counts.iter().filter(|(folder, lines)| lines.len() > most(folder));
    let complaint = |(folder, lines): (&&str, &Vec<String>)| {
        let (count, most, some) = (lines.len(), most(folder), lines[..lines.len().min(10)].join(", "));
        format!("{count} comments in {folder:?} do not name the actor, over {most}: {some}")
    };
    over.map(complaint).collect()
}

/// Places such as `machine/core.rs:said` that a page names and no file has.
pub fn missing_places(page: &str, files: &[File]) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let places = quoted.filter_map(|place| place.split_once(".rs:"));
    let missing = places.filter(|(file, name)| {
        let name = name.rsplit("::").next().unwrap_or(name);
        let is_there =
            |text: &str| ["fn", "struct", "enum"].iter().any(|kind| has_word(text, &format!("{kind} {name}")));
        let is_named = |path: &str| {
            let path = path.trim_end_matches(".rs").replace("/src/", "/");
            path == *file || path.ends_with(&format!("/{file}"))
        };
        !files.iter().any(|source| is_named(&source.path) && is_there(&source.text))
    });
    missing.map(|(file, name)| format!("{file}.rs has no {name}")).collect()
}

/// Finds faults of the walks of a page: tables whose first column is a room. A walk enters no room twice, and names a place
/// in each.
pub fn wrong_walks(page: &str, rooms: &BTreeSet<&str>) -> Vec<String> {
    let mut complaints = Vec::new();
    for walk in page.split("\n## ").skip(1) {
        let title = walk.lines().next().unwrap_or_default();
        let lines: Vec<&str> = walk.lines().collect();
        let tables = lines.split(|line| !line.starts_with('|')).filter(|rows| !rows.is_empty());
        let tables: Vec<&[&str]> = tables.map(|rows| rows.get(2..).unwrap_or_default()).collect();
        if tables.iter().all(|rows| rows.len() < 3) {
            complaints.push(format!("{title} has no walk"));
        }
        for rows in tables {
            let mut entered = BTreeSet::new();
            for row in rows {
                let room = row.split('|').nth(1).unwrap_or_default().trim();
                if !rooms.contains(room) {
                    complaints.push(format!("{title}: {room} is no room"));
                } else if !entered.insert(room) {
                    complaints.push(format!("{title} enters {room} twice"));
                }
                if !row.contains(".rs:") {
                    complaints.push(format!("{title} names no place in {room}"));
                }
            }
        }
    }
    complaints
}

/// Finds paths of a page that no file or folder has, and names behind a path (`folder/file.rs:name`) that the file has not.
/// `NAME` stands for a name that a reader chooses.
pub fn broken_steps(page: &str, files: &[File]) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let steps =
        quoted.filter(|step| step.contains('/') && !step.contains(char::is_whitespace) && !step.contains("NAME"));
    let broken = steps.filter_map(|step| {
        let (path, name) = step.split_once(':').unwrap_or((step, ""));
        let file = files.iter().find(|file| file.path == path);
        let is_folder =
            || files.iter().any(|file| file.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')));
        match file {
            Some(file) if name.is_empty() || has_word(&file.text, name) => None,
            Some(_) => Some(format!("{path} has no {name}")),
            None if name.is_empty() && is_folder() => None,
            None => Some(format!("{path} is not there")),
        }
    });
    broken.collect()
}

fn has_word(text: &str, word: &str) -> bool {
    let mut after = text.match_indices(word).map(|(at, _)| &text[at + word.len()..]);
    after.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_to_no_file_and_to_no_name_is_broken() {
        let files = [File::new("a/b.rs", "pub struct Kind;"), File::new("a/c/d.toml", "")];
        let sound = "`a/b.rs`, `a/b.rs:Kind`, `a/c`, `a/NAME/x.rs`, `Kind`, `and/or that`";
        assert_eq!(broken_steps(sound, &files), [""; 0]);
        assert_eq!(
            broken_steps("`a/e.rs` `a/b.rs:Kin` `a/x`", &files),
            ["a/e.rs is not there", "a/b.rs has no Kin", "a/x is not there"]
        );
    }

    #[test]
    fn a_glossary_has_few_words_and_each_once() {
        let page = |rows: &[String]| {
            format!("# A\n## Words\n\n| word | what |\n|---|---|\n{}\n## B\n| x |\n", rows.join("\n"))
        };
        let rows = |count: usize| (0..count).map(|at| format!("| w{at} | x |")).collect::<Vec<_>>();
        assert_eq!(glossary(&page(&rows(40))), [""; 0]);
        assert_eq!(glossary(&page(&rows(41))), ["the glossary of ARCHITECTURE.md has 41 words, not 1 to 40"]);
        assert_eq!(glossary("# A\n"), ["the glossary of ARCHITECTURE.md has 0 words, not 1 to 40"]);
        let twice = [rows(2), rows(1)].concat();
        assert_eq!(glossary(&page(&twice)), ["the glossary of ARCHITECTURE.md explains \"w0\" twice"]);
    }

    #[test]
    fn a_long_row_and_a_long_page_are_found() {
        let row = |length: usize| format!("|{}|", "é".repeat(length - 2));
        assert_eq!(long_rows("a", &format!("x\n{}\n{}", row(300), "x".repeat(301))), [""; 0]);
        assert_eq!(long_rows("a", &format!("x\n{}", row(301))), ["a:2: a row of 301 characters, over 300"]);
        assert_eq!(
            (long_page("a", "éé", 2).len(), long_page("a", "ééé", 2)),
            (0, vec!["a has 3 characters, over 2".into()])
        );
    }

    #[test]
    fn a_place_that_is_not_there_is_found() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [file("services/session/src/machine/core.rs", "fn said_all() {}\nstruct Core;\nfn heard(")];
        let page =
            "`machine/core.rs:heard` then `core.rs:Core` and `core.rs:Core::said`, not `ore.rs:heard`, `cargo test`";
        assert_eq!(missing_places(page, &files), ["core.rs has no Core::said", "ore.rs has no heard"]);
    }

    #[test]
    fn a_walk_enters_each_room_once() {
        let rooms = BTreeSet::from(["doors", "store"]);
        let head = "\n## A word\n\n| room | places |\n|---|---|\n";
        let walk = |rows: &str| wrong_walks(&format!("# Walks\n{head}{rows}\n"), &rooms);
        let good = "| doors | `a.rs:x` |\n| store | `b.rs:y` |\n";
        assert_eq!(walk(&format!("{good}| doors | `a.rs:z` |")), ["A word enters doors twice"]);
        assert_eq!(walk(&format!("{good}| cellar | `a.rs:z` |")), ["A word: cellar is no room"]);
        assert_eq!(walk("| doors | `a.rs` |"), ["A word has no walk", "A word names no place in doors"]);
        let rooms = BTreeSet::from(["doors", "store", "model"]);
        assert_eq!(wrong_walks(&format!("# Walks\n{head}{good}| model | `c.rs:z` |\n"), &rooms), [""; 0]);
    }

    #[test]
    fn a_comment_without_an_actor_is_counted() {
        let files = [
            File::new("a/x.rs", "// Whoever waits\nlet who = 1; // a client\nlet x = 1; // who asks"),
            File::new("a/b/x.cu", "// nobody"),
            File::new("c.md", "// who"),
        ];
        let said = |ceilings: &str| comments_without_an_actor(&files, &ceilings.parse().expect("TOML"));
        assert_eq!(said("\"a/\" = 2\n\"a/b/\" = 1"), [""; 0]);
        let complaint = "2 comments in \"a/\" do not name the actor, over 1: a/x.rs:1, a/x.rs:3";
        assert_eq!(said("\"a/\" = 1\n\"a/b/\" = 1"), [complaint]);
        assert_eq!(said("\"a/\" = 2").len(), 1);
        assert_eq!(said("").len(), 1);
    }
}
