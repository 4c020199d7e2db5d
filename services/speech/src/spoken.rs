//! Words of a reply and the samples at which they lie.
//!
//! Times of words come from the voice, if it tells them ([`SpokenText::mark`]). If not, in a piece that was spoken whole, a
//! character lies at its share of the samples in which something sounds; in one that is still spoken, the pace of the
//! pieces before it tells how long it will be.

use crate::{ms_of, samples_of};

/// A text as it is spoken, piece by piece.
#[derive(Clone, Debug)]
pub struct SpokenText {
    rate: u32,
    pieces: Vec<Piece>,
    // Samples of a character where no piece has been spoken yet.
    usual: f64,
}

#[derive(Clone, Debug)]
struct Piece {
    // Place of its first character in the reply.
    text_start: usize,
    // Without space at both ends.
    text: Vec<char>,
    // Ends of its words, in characters of the piece.
    word_ends: Vec<usize>,
    start: u64,
    samples: u64,
    // Stretches with sound, in samples of the piece.
    sounds: Vec<(u64, u64)>,
    block: Block,
    is_whole: bool,
    // Words whose times the voice has told, in their order.
    marks: Vec<Mark>,
}

/// Time of a word, as a voice tells it: from the begin of its piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordTime {
    pub word: String,
    pub start_ms: u64,
    /// `None`: it sounds until the next word begins.
    pub end_ms: Option<u64>,
}

// A word in characters and samples of its piece.
#[derive(Clone, Copy, Debug)]
struct Mark {
    first_char: usize,
    // Behind its last character and the punctuation that follows.
    end_char: usize,
    start: u64,
    end: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    samples: u64,
    loudest: u16,
}

// Milliseconds of a block that sounds or does not.
const BLOCK_MS: u64 = 5;
// Loudest sample of a block in which nothing sounds.
const QUIET: u16 = 160;
// A shorter silence is part of a word.
const GAP_MS: u64 = 90;
// Characters of a text that a voice may pass over between two words whose times it tells.
const FAR: usize = 48;
// Share of a character by which a word's end may be missed.
const SLACK: f64 = 0.05;

impl SpokenText {
    /// `chars_per_second`: pace of an unknown voice.
    pub fn new(rate: u32, chars_per_second: f64) -> SpokenText {
        SpokenText { rate, pieces: Vec::new(), usual: f64::from(rate) / chars_per_second.max(1.0) }
    }

    pub fn begin(&mut self, text_start: usize, text: &str) {
        self.end();
        let start = self.samples();
        let space = text.chars().take_while(|letter| letter.is_whitespace()).count();
        let text = text.trim();
        self.pieces.push(Piece {
            text_start: text_start + space,
            text: text.chars().collect(),
            word_ends: word_ends(text),
            start,
            samples: 0,
            sounds: Vec::new(),
            block: Block::default(),
            is_whole: false,
            marks: Vec::new(),
        });
    }

    /// Notes the time of the next word of the current piece. A word that is not in its text changes nothing.
    pub fn mark(&mut self, told: &WordTime) {
        let at = |ms| samples_of(ms, self.rate);
        if let Some(piece) = self.pieces.last_mut() {
            piece.mark(&told.word, at(told.start_ms), told.end_ms.map(at));
        }
    }

    pub fn push(&mut self, samples: &[i16]) {
        let (block, gap) = (samples_of(BLOCK_MS, self.rate).max(1), samples_of(GAP_MS, self.rate));
        if let Some(piece) = self.pieces.last_mut() {
            samples.iter().for_each(|sample| piece.push(*sample, block, gap));
        }
    }

    /// Ends the current piece: its voice has said all of it.
    pub fn end(&mut self) {
        if let Some(piece) = self.pieces.last_mut() {
            piece.is_whole = true;
        }
    }

    fn samples(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.start + piece.samples)
    }

    pub fn ms(&self) -> u64 {
        ms_of(self.samples(), self.rate)
    }

    /// Character up to which the reply has been given to the voice.
    pub fn text_end(&self) -> usize {
        self.pieces.last().map_or(0, |piece| piece.text_start + piece.chars())
    }

    /// Character behind the last whole word that was heard after this time.
    pub fn heard_chars(&self, ms: u64) -> usize {
        let at = samples_of(ms, self.rate);
        let mut heard = 0;
        for piece in &self.pieces {
            if at < piece.start || piece.samples == 0 && !piece.is_whole {
                break;
            }
            if piece.chars() == 0 {
                continue;
            }
            let into = at - piece.start;
            // Times of clients are whole milliseconds.
            let chars = if piece.is_whole && into + samples_of(1, self.rate) > piece.samples {
                piece.chars() as f64
            } else if piece.marks.is_empty() {
                self.chars_at(piece, into.min(piece.samples))
            } else {
                piece.marked_chars(into.min(piece.samples)) as f64
            };
            let end = piece.word_ends.iter().rfind(|end| **end as f64 <= chars + SLACK);
            let Some(end) = end else { break };
            heard = piece.text_start + end;
            if *end < piece.chars() {
                break;
            }
        }
        heard
    }

    fn chars_at(&self, piece: &Piece, into: u64) -> f64 {
        let sounding = piece.sounding(into) as f64;
        let whole = piece.sounding(piece.samples) as f64;
        let whole = if piece.is_whole { whole } else { whole.max(piece.chars() as f64 * self.pace()) };
        if whole == 0.0 { 0.0 } else { piece.chars() as f64 * sounding / whole }
    }

    // Samples of a character, in the pieces that were spoken whole.
    fn pace(&self) -> f64 {
        let spoken = self.pieces.iter().filter(|piece| piece.is_whole && piece.chars() > 0);
        let sums = spoken.map(|piece| (piece.sounding(piece.samples) as f64, piece.chars() as f64));
        let (samples, chars) = sums.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if chars > 0.0 && samples > 0.0 { samples / chars } else { self.usual }
    }
}

impl Piece {
    fn chars(&self) -> usize {
        self.text.len()
    }

    fn mark(&mut self, word: &str, start: u64, end: Option<u64>) {
        let word: Vec<char> = word.trim_matches(|letter: char| !letter.is_alphanumeric()).chars().collect();
        let (from, earliest) = self.marks.last().map_or((0, 0), |last| (last.end_char, last.start));
        let rest = self.text.get(from..).unwrap_or_default();
        // A voice may say a word that the text spells otherwise. One far behind is another word of the same spelling.
        let near = &rest[..rest.len().min(word.len() + FAR)];
        let is_word = |at: &usize| {
            let (before, some, behind) = (near[..*at].last(), &near[*at..*at + word.len()], rest.get(*at + word.len()));
            let ends = behind.is_none_or(|letter| !letter.is_alphanumeric() || is_wide(*letter));
            ends && before.is_none_or(|letter| !letter.is_alphanumeric())
                && some
                    .iter()
                    .zip(&word)
                    .all(|(one, other)| one == other || one.to_lowercase().eq(other.to_lowercase()))
        };
        let places = if word.is_empty() { 0 } else { (near.len() + 1).saturating_sub(word.len()) };
        let Some(at) = (0..places).find(is_word).filter(|_| start >= earliest) else { return };
        let first_char = from + at;
        let behind = &self.text[first_char + word.len()..];
        let marks = behind.iter().take_while(|letter| !letter.is_alphanumeric() && !letter.is_whitespace()).count();
        let end_char = first_char + word.len() + marks;
        self.marks.push(Mark { first_char, end_char, start, end: end.map(|end| end.max(start)) });
    }

    // Characters that were said before this sample, by the times of words.
    fn marked_chars(&self, into: u64) -> usize {
        let begun = self.marks.partition_point(|mark| mark.start <= into);
        let Some(mark) = begun.checked_sub(1).and_then(|last| self.marks.get(last)) else { return 0 };
        let last_sound = || self.sounds.last().filter(|_| self.is_whole).map(|(_, end)| *end);
        let is_last = begun == self.marks.len();
        // Where the next word has begun is another mark: a word without an end lasts until then.
        let end = mark.end.or_else(|| last_sound().filter(|_| is_last && mark.end_char == self.chars()));
        if end.is_some_and(|end| end <= into) { mark.end_char } else { mark.first_char }
    }

    fn push(&mut self, sample: i16, block: u64, gap: u64) {
        self.samples += 1;
        self.block.samples += 1;
        self.block.loudest = self.block.loudest.max(sample.unsigned_abs());
        if self.block.samples < block {
            return;
        }
        let Block { samples, loudest } = std::mem::take(&mut self.block);
        if loudest <= QUIET {
            return;
        }
        let begin = self.samples - samples;
        match self.sounds.last_mut().filter(|(_, end)| begin - *end < gap) {
            Some((_, end)) => *end = self.samples,
            None => self.sounds.push((begin, self.samples)),
        }
    }

    // Samples with sound before this one. A piece without any sound counts all of them.
    fn sounding(&self, into: u64) -> u64 {
        if self.sounds.is_empty() {
            return into;
        }
        self.sounds.iter().map(|(begin, end)| into.clamp(*begin, *end) - begin).sum()
    }
}

// Ends of words: where space follows, and behind each character of a script without spaces.
fn word_ends(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut letters = text.chars().enumerate().peekable();
    while let Some((at, letter)) = letters.next() {
        let ends_word = match letters.peek() {
            None => true,
            Some((_, next)) => next.is_whitespace() || is_wide(*next) || is_wide(letter) && next.is_alphanumeric(),
        };
        if ends_word && !letter.is_whitespace() {
            ends.push(at + 1);
        }
    }
    ends
}

// True for ideographs, kana and Hangul.
fn is_wide(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{9FFF}' | '\u{AC00}'..='\u{D7AF}' | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u32 = 24_000;
    // Samples of a character of the voice in these tests.
    const CHAR: usize = 1440;

    fn said(text: &str) -> Vec<i16> {
        vec![9000; text.trim().chars().count() * CHAR]
    }

    fn heard(spoken: &SpokenText, text: &str, ms: u64) -> String {
        text.chars().take(spoken.heard_chars(ms)).collect()
    }

    fn spoken(pieces: &[&str]) -> (SpokenText, String) {
        let (mut spoken, mut text) = (SpokenText::new(RATE, 15.0), String::new());
        for piece in pieces {
            spoken.begin(text.chars().count(), piece);
            said(piece).chunks(1024).for_each(|samples| spoken.push(samples));
            text += piece;
        }
        spoken.end();
        (spoken, text)
    }

    #[test]
    fn whole_words_are_heard() {
        let (spoken, text) = spoken(&["The light is on. ", "It is warm."]);
        // A character takes 60 ms.
        let rows = [
            (0, ""),
            (170, ""),
            (180, "The"),
            (530, "The"),
            (540, "The light"),
            (950, "The light is"),
            (960, "The light is on."),
            (1000, "The light is on."),
            (1080, "The light is on. It"),
            (9000, "The light is on. It is warm."),
        ];
        for (ms, expected) in rows {
            assert_eq!(heard(&spoken, &text, ms), expected, "{ms} ms");
        }
        assert_eq!((spoken.ms(), spoken.text_end()), (960 + 660, text.chars().count()));
    }

    #[test]
    fn silence_is_no_part_of_words() {
        let mut spoken = SpokenText::new(RATE, 15.0);
        let text = "One, two";
        spoken.begin(0, text);
        let quiet = |ms: usize| vec![3_i16; ms * 24];
        [quiet(300), said("One,"), quiet(500), said(" two")].iter().for_each(|samples| spoken.push(samples));
        spoken.push(&vec![0; CHAR + 24_000]);
        spoken.end();
        for (ms, expected) in [
            (290, ""),
            (300 + 150, ""),
            (300 + 320, "One,"),
            (900, "One,"),
            (300 + 240 + 500 + 150, "One,"),
            (1300, text),
            (2000, text),
        ] {
            assert_eq!(heard(&spoken, text, ms), expected, "{ms} ms");
        }
    }

    #[test]
    fn a_piece_that_was_cut_has_the_pace_of_those_before() {
        let mut spoken = SpokenText::new(RATE, 15.0);
        let text = "The light is on. It is very warm in here today.";
        spoken.begin(0, "The light is on.");
        spoken.push(&said("The light is on."));
        spoken.begin(17, "It is very warm in here today.");
        spoken.push(&said("It is very warm in here today.")[..CHAR * 12]);
        assert_eq!(heard(&spoken, text, 960 + 700), "The light is on. It is very");
        // No more than was sent is heard, however late the client says so.
        assert_eq!(heard(&spoken, text, 90_000), "The light is on. It is very");
        let mut first = SpokenText::new(RATE, 1000.0 / 60.0);
        first.begin(0, text);
        first.push(&said(text)[..CHAR * 10]);
        assert_eq!(heard(&first, text, 9000), "The light");
    }

    #[test]
    fn scripts_without_spaces_are_heard_by_the_character() {
        let (spoken, text) = spoken(&["厨房的灯现在亮了。"]);
        assert_eq!(heard(&spoken, &text, 185), "厨房的");
        assert_eq!(heard(&spoken, &text, 540), text);
        assert_eq!(word_ends("ab cd 厨房"), [2, 5, 7, 8]);
    }

    fn told(word: &str, start_ms: u64, end_ms: Option<u64>) -> WordTime {
        WordTime { word: word.into(), start_ms, end_ms }
    }

    #[test]
    fn times_that_a_voice_tells_decide() {
        let mut spoken = SpokenText::new(RATE, 15.0);
        let text = "Well... the 21 lamps (all) are on!";
        spoken.begin(0, text);
        // The share of characters would be wrong nearly everywhere.
        spoken.mark(&told("Well", 0, Some(2000)));
        spoken.mark(&told("THE", 2400, None));
        spoken.mark(&told("twenty", 2450, None));
        spoken.mark(&told("one", 2500, None));
        spoken.mark(&told("lamps", 2600, None));
        spoken.mark(&told("all", 2700, Some(2750)));
        spoken.mark(&told("are", 2800, None));
        spoken.mark(&told("on", 2900, None));
        spoken.push(&vec![9000; 3200 * 24]);
        spoken.push(&vec![0; 400 * 24]);
        for is_whole in [false, true] {
            for (ms, expected) in [
                (1999, ""),
                (2000, "Well..."),
                (2599, "Well..."),
                (2600, "Well... the 21"),
                (2700, "Well... the 21 lamps"),
                (2760, "Well... the 21 lamps (all)"),
                (2899, "Well... the 21 lamps (all)"),
                (3100, "Well... the 21 lamps (all) are"),
                (3250, if is_whole { text } else { "Well... the 21 lamps (all) are" }),
            ] {
                assert_eq!(heard(&spoken, text, ms), expected, "{ms} ms");
            }
            spoken.end();
        }
        assert_eq!(heard(&spoken, text, 90_000), text);
    }

    #[test]
    fn words_are_exact_where_their_times_are_told() {
        let words: Vec<String> =
            (0..1000_u64).map(|at| "abcdefghijk"[..1 + (at * 7 % 11) as usize].to_owned()).collect();
        let (mut spoken, mut text, mut times, mut seed, mut at) =
            (SpokenText::new(8000, 15.0), String::new(), Vec::new(), 3_u64, 0);
        let mut random = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for piece in words.chunks(9) {
            let piece = piece.join(" ") + ". ";
            spoken.begin(text.chars().count(), &piece);
            let begin = at;
            for word in piece.split_whitespace() {
                let (pause, length) = (random(300), 60 + random(900));
                spoken.mark(&told(word, at - begin + pause, Some(at - begin + pause + length)));
                at += pause + length;
                text += word;
                times.push((at, text.chars().count()));
                text += " ";
            }
            // Some of it is as silent as a pause.
            spoken.push(&vec![(random(3) * 9000) as i16; (at - begin) as usize * 8]);
        }
        spoken.end();
        for _ in 0..1000 {
            let ms = random(at);
            let complete = times.iter().rfind(|(end, _)| *end <= ms).map_or(0, |(_, chars)| *chars);
            assert_eq!(spoken.heard_chars(ms), complete, "{ms} ms");
        }
    }

    proptest! {
        #[test]
        fn no_told_time_is_trusted(text in "[a-c]{1,4}( [a-c]{1,4}){0,9}", times in prop::collection::vec(("[a-d]{0,4}", 0_u64..3000, prop::option::of(0_u64..4000)), 0..20), one in 0_u64..3000, more in 0_u64..3000) {
            let mut spoken = SpokenText::new(RATE, 15.0);
            spoken.begin(0, &text);
            spoken.push(&vec![9000; 2000 * 24]);
            times.iter().for_each(|(word, start, end)| spoken.mark(&told(word, *start, *end)));
            let heard = spoken.heard_chars(one);
            prop_assert!(heard <= text.len() && spoken.heard_chars(u64::MAX / 100_000) <= text.len());
            prop_assert!(heard == 0 || heard == text.len() || text.as_bytes()[heard] == b' ');
            prop_assert!(heard <= spoken.heard_chars(one + more));
        }

        #[test]
        fn more_time_hears_more_and_never_half_a_word(pieces in prop::collection::vec("[a-zé厨 .,]{0,20}", 0..6), one in 0_u64..9000, more in 0_u64..9000) {
            let refs: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (spoken, text) = spoken(&refs);
            let heard = spoken.heard_chars(one);
            prop_assert!(heard <= spoken.heard_chars(one + more));
            prop_assert!(spoken.heard_chars(u64::MAX / 100_000) <= text.chars().count());
            let mut at = text.chars().skip(heard.saturating_sub(1));
            let (last, next) = (at.next(), at.next());
            let is_inside = heard > 0 && last.is_some_and(|letter| letter.is_ascii_alphabetic()) && next.is_some_and(|letter| letter.is_ascii_alphabetic());
            // Two pieces may meet inside a word.
            let meets = pieces.iter().scan(0, |end, piece| { *end += piece.chars().count(); Some(*end) }).any(|end| end == heard);
            prop_assert!(!is_inside || meets, "{heard} of {text:?}");
        }
    }
}
