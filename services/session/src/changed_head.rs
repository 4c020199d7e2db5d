//! What changed in instructions, line by line, and how a model is told. Pure, and bounded whatever the lines are.

mod lines;
#[cfg(test)]
mod tests;

use lines::hunks;
use std::collections::HashMap;

/// Lines of older instructions that gave way to others, in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadChange {
    /// The first of them.
    pub at: usize,
    pub removed: Vec<String>,
    pub added: Vec<String>,
}

/// The words around changes; they come from the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadWording {
    pub changed: String,
    /// Before the line under which others stand.
    pub at: String,
    pub from: String,
    pub to: String,
    /// Where nothing differs any more.
    pub back: String,
}

/// What makes the old text the new one, in the order of the lines. None: more lines than `most` were taken away or added.
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

/// Equal lines have one number.
fn numbered<'a>(lines: &[&'a str], numbers: &mut HashMap<&'a str, usize>) -> Vec<usize> {
    let number = |line: &&'a str| {
        let next = numbers.len();
        *numbers.entry(*line).or_insert(next)
    };
    lines.iter().map(number).collect()
}

/// The new text. Lines that the old one lacks are let go.
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

/// Bytes of the lines that changed: those of the longer side of each place.
pub fn changed_bytes(changes: &[HeadChange]) -> usize {
    let bytes = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
    changes.iter().map(|change| bytes(&change.removed).max(bytes(&change.added))).sum()
}

/// What a model is told. None: nothing that can be seen changed. What the note before said in the same words comes first, so that
/// two notes are alike as far as they can be.
pub fn note_of_changes(old: &str, changes: &[HeadChange], wording: &HeadWording, before: &str) -> Option<String> {
    let old: Vec<&str> = old.split('\n').collect();
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
        let place = place(&old, &change);
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

/// Where as many lines came as went, each took the place of one.
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

/// The line that says what the change is about, where its own lines do not: the nearest one that stands further out, or before it.
/// None: the removed line stands nowhere else in the instructions, so that it needs no place.
fn place(old: &[&str], change: &HeadChange) -> Option<usize> {
    let first = change.removed.iter().chain(&change.added).find(|line| !line.trim().is_empty())?;
    let is_only_one = |line: &String| old.iter().filter(|other| other.trim() == line.trim()).count() == 1;
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
