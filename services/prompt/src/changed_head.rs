//! Changes of instructions, line by line, and the note that tells a model of them. Pure, with a bound on the work for
//! any lines.

mod lines;
#[cfg(test)]
mod tests;

use lines::hunks;
use std::collections::HashMap;

/// One hunk of changed lines; `at` is the first of them in the old instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadChange {
    pub at: usize,
    pub removed: Vec<String>,
    pub added: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadWording {
    pub changed: String,
    pub at: String,
    pub from: String,
    pub to: String,
    pub back: String,
}

pub fn head_changes(old: &str, new: &str, most: usize) -> Option<Vec<HeadChange>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut numbers = HashMap::new();
    let (before, after) = (numbered(&old, &mut numbers), numbered(&new, &mut numbers));
    let words = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    let changes = hunks(&before, &after, most)?.into_iter().map(|hunk| HeadChange {
        at: hunk.old.start,
        removed: words(&old[hunk.old]),
        added: words(&new[hunk.new]),
    });
    Some(changes.collect())
}

fn numbered<'a>(lines: &[&'a str], numbers: &mut HashMap<&'a str, usize>) -> Vec<usize> {
    let number = |line: &&'a str| {
        let next = numbers.len();
        *numbers.entry(*line).or_insert(next)
    };
    lines.iter().map(number).collect()
}

pub fn apply(old: &str, changes: &[HeadChange]) -> String {
    let old: Vec<&str> = old.split('\n').collect();
    let (mut lines, mut next) = (Vec::new(), 0);
    for change in changes {
        lines.extend(old.get(next..change.at).unwrap_or_default());
        lines.extend(change.added.iter().map(String::as_str));
        next = change.at + change.removed.len();
    }
    lines.extend(old.get(next..).unwrap_or_default());
    lines.join("\n")
}

pub fn changed_bytes(changes: &[HeadChange]) -> usize {
    let bytes = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    changes.iter().map(|change| bytes(&change.removed).max(bytes(&change.added))).sum()
}

/// Words the note for a model. `None` if no visible line changed. The lines that the note before also had come first,
/// so that two notes share the longest prefix.
pub fn note_of_changes(old: &str, changes: &[HeadChange], wording: &HeadWording, before: &str) -> Option<String> {
    let old: Vec<&str> = old.split('\n').collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    old.iter().for_each(|line| *times.entry(line.trim()).or_default() += 1);
    let mut told: Vec<String> = Vec::new();
    let mut last_place = None;
    for change in changes.iter().flat_map(line_by_line) {
        let lines = |lines: &[String], before: &str| {
            let seen = lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
            seen.map(|line| format!("\n{before}{line}")).collect::<String>()
        };
        let lines = lines(&change.removed, &wording.from) + &lines(&change.added, &wording.to);
        if lines.is_empty() {
            continue;
        }
        let place = place(&old, &times, &change);
        match (place, told.last_mut()) {
            (Some(_), Some(last)) if place == last_place => last.push_str(&lines),
            (Some(line), _) => told.push(format!("\n{}{}{lines}", wording.at, old[line].trim())),
            (None, _) => told.push(lines),
        }
        last_place = place;
    }
    told.sort_by_key(|lines| !before.contains(lines.as_str()));
    (!told.is_empty()).then(|| format!("{}{}", wording.changed, told.concat()))
}

/// Splits a change of as many added as removed lines into pairs, each of which replaces one line.
fn line_by_line(change: &HeadChange) -> Vec<HeadChange> {
    if change.removed.len() != change.added.len() {
        return vec![change.clone()];
    }
    let pairs = change.removed.iter().zip(&change.added).enumerate();
    let pair = |(line, (removed, added)): (usize, (&String, &String))| HeadChange {
        at: change.at + line,
        removed: vec![removed.clone()],
        added: vec![added.clone()],
    };
    pairs.map(pair).collect()
}

/// Returns the line that says what the change is about: the nearest one with less indentation, or the one before it.
/// `None` if the removed line occurs once in the instructions and needs no place.
fn place(old: &[&str], times: &HashMap<&str, usize>, change: &HeadChange) -> Option<usize> {
    let first = change.removed.iter().chain(&change.added).find(|line| !line.trim().is_empty())?;
    let is_only_one = |line: &String| times.get(line.trim()) == Some(&1);
    let outdent = indentation(first);
    if outdent == 0 && change.removed.iter().any(|line| !line.trim().is_empty() && is_only_one(line)) {
        return None;
    }
    let mut before = (0..change.at.min(old.len())).rev().filter(|line| !old[*line].trim().is_empty());
    match outdent {
        0 => before.next(),
        _ => before.find(|line| indentation(old[*line]) < outdent),
    }
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
