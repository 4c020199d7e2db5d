//! Rules for the end of a sentence: one character at a time, from the text before it and a few characters behind it.

use super::abbreviations::{self, Abbreviation};
use super::script::{
    continues_a_character, is_clause_mark, is_closer, is_closing_quote, is_emoji, is_hard_clause_mark, is_hard_stop,
    is_speakable, is_stop, is_strong_stop, is_wide, spaces_are_clauses, weight,
};

/// Character under judgement: `chars[at]`, where `chars` starts with the sentence.
pub struct JudgedCharacter<'a> {
    pub chars: &'a [char],
    pub at: usize,
    pub finished: bool,
    /// Weight from which the first sentence may end at a clause; `None` for later ones.
    pub first_clause_chars: Option<usize>,
    /// The same for scripts in which a space is a clause, in every sentence.
    pub clause_chars: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutVerdict {
    Skip(usize),
    Wait,
    Cut(usize),
}

/// Letters of the next word that are worth waiting for: no opener is longer.
const NEXT_WORD_CHARS: usize = 12;
/// Length from which a word is no abbreviation, even if a small letter follows its full stop.
const LONG_WORD_CHARS: usize = 6;

pub fn judge(position: &JudgedCharacter) -> CutVerdict {
    let Some(&character) = position.chars.get(position.at) else { return CutVerdict::Skip(position.chars.len()) };
    if is_stop(character) {
        judge_stop(position)
    } else if character == '\n' {
        judge_newline(position)
    } else if character.is_whitespace() {
        judge_space(position)
    } else if is_clause_mark(character) {
        judge_clause(position)
    } else {
        CutVerdict::Skip(position.at + 1)
    }
}

/// Chooses the end of a sentence that is too long: after a clause in its second half, else at its last space, else
/// anywhere but inside a character.
pub fn forced_cut(chars: &[char]) -> usize {
    let half = chars.len() / 2;
    let clause = (half..chars.len().saturating_sub(1))
        .rev()
        .find(|&at| is_hard_clause_mark(chars[at]) || (is_clause_mark(chars[at]) && chars[at + 1].is_whitespace()))
        .map(|at| end_of_space(chars, at + 1));
    let space = || (1..chars.len()).rev().find(|&at| chars[at - 1].is_whitespace() && !chars[at].is_whitespace());
    let anywhere = || {
        let mut end = chars.len();
        while end > 1 && (continues_a_character(chars[end - 1]) || chars[end - 2] == '\u{200D}') {
            end -= 1;
        }
        if end > 1 { end - 1 } else { chars.len() }
    };
    clause.filter(|&end| end < chars.len()).or_else(space).unwrap_or_else(anywhere)
}

fn judge_stop(position: &JudgedCharacter) -> CutVerdict {
    let JudgedCharacter { chars, at, finished, .. } = *position;
    let mut end = at;
    while end < chars.len() && (is_stop(chars[end]) || (end > at && (is_closer(chars[end]) || is_emoji(chars[end])))) {
        end += 1;
    }
    let mut next = end_of_space(chars, end);
    // French puts a space before the closing guillemet; a guillemet that opens has no space behind it.
    if next > end && next < chars.len() && chars[next] == '»' {
        match chars.get(next + 1) {
            None if !finished => return CutVerdict::Wait,
            Some(after) if after.is_whitespace() => {
                end = next + 1;
                next = end_of_space(chars, end);
            }
            _ => {}
        }
    }
    if next == chars.len() {
        return if finished { CutVerdict::Skip(next) } else { CutVerdict::Wait };
    }
    if !is_speakable(&chars[..end]) {
        return CutVerdict::Skip(end);
    }
    let spaced = next > end;
    let run = &chars[at..end];
    if run.iter().any(|&c| is_hard_stop(c)) || (spaced && chars[end..next].contains(&'\n')) {
        return CutVerdict::Cut(next);
    }
    if !spaced {
        // `3.14`, `e.g`, `example.com/?q=1`, `file.txt`: no end without a space, except in scripts without spaces.
        return if is_wide(chars[end]) { CutVerdict::Cut(end) } else { CutVerdict::Skip(end) };
    }
    let follower = chars[next];
    let stops: Vec<char> = run.iter().copied().filter(|&c| is_stop(c)).collect();
    if stops.iter().any(|&c| is_strong_stop(c)) {
        // "Stop!" he said.
        let goes_on = follower.is_lowercase() && run.iter().any(|&c| is_closing_quote(c));
        return if goes_on { CutVerdict::Skip(end) } else { CutVerdict::Cut(next) };
    }
    if stops.len() > 1 || stops.first() == Some(&'…') {
        // Well... maybe.
        return if follower.is_lowercase() { CutVerdict::Skip(end) } else { CutVerdict::Cut(next) };
    }
    judge_full_stop(position, end, next)
}

fn judge_full_stop(position: &JudgedCharacter, end: usize, next: usize) -> CutVerdict {
    let JudgedCharacter { chars, at, finished, .. } = *position;
    let (keep, cut) = (CutVerdict::Skip(end), CutVerdict::Cut(next));
    let follower = chars[next];
    let word_start = start_of_word(chars, at);
    let word = &chars[word_start..at];
    let opener = || match next_word(chars, next, finished) {
        None => CutVerdict::Wait,
        Some(word) if abbreviations::opens_sentences(&word) => cut,
        Some(_) => keep,
    };

    if !word.is_empty() && word.iter().all(char::is_ascii_digit) && word.len() <= 2 {
        return judge_ordinal(position, word_start, keep, cut, next);
    }
    if let [letter] = word
        && letter.is_alphabetic()
        && !is_wide(*letter)
    {
        // An initial or the letter of a spaced abbreviation: J. R. R., z. B., p. ex.
        let spaced_abbreviation = letter.is_lowercase() || follows_dotted_letter(chars, word_start);
        return if spaced_abbreviation { keep } else { opener() };
    }
    let plain: String = word.iter().filter(|&&c| c != '.' && c != '-').flat_map(|c| c.to_lowercase()).collect();
    let dotted = word.contains(&'.');
    match abbreviations::known(&plain) {
        Some(Abbreviation::Never) => return keep,
        Some(Abbreviation::BeforeNumber) if follower.is_numeric() => return keep,
        Some(Abbreviation::UnlessCapital) if follower.is_lowercase() || follower.is_numeric() => return keep,
        Some(Abbreviation::UnlessCapital) => return cut,
        // `us` and `la` are words too; as abbreviations they are written in capitals or with stops.
        Some(Abbreviation::UnlessOpener) if dotted || word[0].is_uppercase() => return opener(),
        _ => {}
    }
    if dotted && word.split(|&c| c == '.').all(|part| part.len() <= 2 && part.iter().all(|c| c.is_alphabetic())) {
        return opener(); // J.R.R., c.d.f.
    }
    if word.len() <= 3 && word.iter().all(|c| c.is_lowercase()) && follows_dotted_letter(chars, word_start) {
        return keep; // p. ex., t. ex., f. eks
    }
    // A small letter after the full stop of a short word: an abbreviation that no list has.
    if follower.is_lowercase() && word.len() < LONG_WORD_CHARS { keep } else { cut }
}

/// Judges numbers: `1. Milk` in a list, `am 3. Mai`; but also `You are number 7. Please wait`.
fn judge_ordinal(
    position: &JudgedCharacter,
    word_start: usize,
    keep: CutVerdict,
    cut: CutVerdict,
    next: usize,
) -> CutVerdict {
    let chars = position.chars;
    if !is_speakable(&chars[..word_start]) || chars[next].is_lowercase() {
        return keep;
    }
    let before = end_of_text(chars, word_start);
    let previous: String = chars[start_of_word(chars, before)..before].iter().flat_map(|c| c.to_lowercase()).collect();
    if abbreviations::precedes_ordinal(&previous) {
        return keep;
    }
    match next_word(chars, next, position.finished) {
        None => CutVerdict::Wait,
        Some(word) if abbreviations::follows_ordinal(&word) => keep,
        Some(_) => cut,
    }
}

fn judge_newline(position: &JudgedCharacter) -> CutVerdict {
    let next = end_of_space(position.chars, position.at);
    if next == position.chars.len() {
        return if position.finished { CutVerdict::Skip(next) } else { CutVerdict::Wait };
    }
    if is_speakable(&position.chars[..position.at]) { CutVerdict::Cut(next) } else { CutVerdict::Skip(next) }
}

/// Judges a space, which ends a sentence only in scripts without another mark.
fn judge_space(position: &JudgedCharacter) -> CutVerdict {
    let JudgedCharacter { chars, at, .. } = *position;
    let skip = CutVerdict::Skip(at + 1);
    let Some(&before) = at.checked_sub(1).and_then(|before| chars.get(before)) else { return skip };
    if !spaces_are_clauses(before) || weight_of(&chars[..at]) < position.clause_chars {
        return skip;
    }
    let next = end_of_space(chars, at);
    match chars.get(next) {
        None if position.finished => skip,
        None => CutVerdict::Wait,
        Some(&follower) if spaces_are_clauses(follower) => CutVerdict::Cut(next),
        Some(_) => skip,
    }
}

fn judge_clause(position: &JudgedCharacter) -> CutVerdict {
    let JudgedCharacter { chars, at, finished, .. } = *position;
    let skip = CutVerdict::Skip(at + 1);
    let Some(first_clause_chars) = position.first_clause_chars else { return skip };
    let mut end = at + 1;
    if weight_of(&chars[..end]) < first_clause_chars {
        return skip;
    }
    let mark = chars[at];
    if matches!(mark, '-' | '–') && !chars[..at].last().is_some_and(|before| before.is_whitespace()) {
        return skip; // well-known, 5–6
    }
    while end < chars.len() && is_closer(chars[end]) {
        end += 1;
    }
    let next = end_of_space(chars, end);
    if next == chars.len() {
        return if finished { skip } else { CutVerdict::Wait };
    }
    let spaced = next > end;
    // A dash or a comma before a number may be a sign or a thousands separator typed with a space.
    if (spaced && !(matches!(mark, '-' | '–') && chars[next].is_numeric())) || is_hard_clause_mark(mark) {
        CutVerdict::Cut(next)
    } else {
        skip
    }
}

fn weight_of(chars: &[char]) -> usize {
    chars.iter().map(|&character| weight(character)).sum()
}

fn end_of_space(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at].is_whitespace() {
        at += 1;
    }
    at
}

fn end_of_text(chars: &[char], mut at: usize) -> usize {
    while at > 0 && chars[at - 1].is_whitespace() {
        at -= 1;
    }
    at
}

fn start_of_word(chars: &[char], end: usize) -> usize {
    let mut start = end;
    while start > 0 && !chars[start - 1].is_whitespace() {
        start -= 1;
    }
    while start < end && !chars[start].is_alphanumeric() {
        start += 1;
    }
    start
}

fn next_word(chars: &[char], at: usize, finished: bool) -> Option<String> {
    let start = at + chars[at..].iter().take_while(|c| !c.is_alphanumeric() && !c.is_whitespace()).count();
    let letters = chars[start..].iter().take_while(|c| c.is_alphanumeric() || matches!(c, '\'' | '’')).count();
    if start + letters == chars.len() && letters <= NEXT_WORD_CHARS && !finished {
        return None;
    }
    let word = chars[start..start + letters].iter();
    Some(word.map(|&c| if c == '’' { '\'' } else { c }).flat_map(char::to_lowercase).collect())
}

fn follows_dotted_letter(chars: &[char], start: usize) -> bool {
    let end = end_of_text(chars, start);
    end >= 2
        && chars[end - 1] == '.'
        && chars[end - 2].is_alphabetic()
        && (end == 2 || !chars[end - 3].is_alphanumeric())
}
