//! A byte-level vocabulary in the family's manner: 256 bytes, words that merges build up from them, reserved places,
//! control tokens at the end.
//!
//! Common words are whole tokens, as in a trained vocabulary, so that ordinary text has about as many tokens as it
//! would have there. The rest of the merges make invented words, from syllables.

use std::collections::{HashMap, HashSet};

use super::random::RandomStream;

const WORDS: &str = include_str!("../../data/words.txt");

pub struct Vocabulary {
    pub tokens: Vec<String>,
    /// The kinds of the file format: see `kind`.
    pub types: Vec<i32>,
    pub merges: Vec<String>,
    pub loudness: Vec<Loudness>,
    pub end_of_turn: u32,
    pub end_of_text: u32,
}

/// Size of a token's row in the head, which decides how often it is generated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loudness {
    /// All zeros: its logit is 0, and the best of thousands of words is above that.
    Silent,
    /// Can be read, and is not generated of itself: control tokens, bytes, parts of words.
    Quiet,
    /// Words, with 1; punctuation, with more, so that there are sentences.
    Loud(f32),
}

mod kind {
    pub const NORMAL: i32 = 1;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
}

/// The family's control tokens. The first three never show in text; the others do.
const CONTROL: [(&str, i32); 9] = [
    ("<|endoftext|>", kind::CONTROL),
    ("<|im_start|>", kind::CONTROL),
    ("<|im_end|>", kind::CONTROL),
    ("<think>", kind::USER_DEFINED),
    ("</think>", kind::USER_DEFINED),
    ("<tool_call>", kind::USER_DEFINED),
    ("</tool_call>", kind::USER_DEFINED),
    ("<tool_response>", kind::USER_DEFINED),
    ("</tool_response>", kind::USER_DEFINED),
];

/// A vocabulary of `size` tokens, a quarter of them real. `size` is 512 or more.
pub fn build(size: usize, seed: u64) -> Vocabulary {
    let mut merger = Merger::new(256 + (size - 256 - CONTROL.len()) / 4);
    for run in ["\n\n", "  ", "    ", "...", "::", "://", ".\n", "\",", "):", "()", "--"] {
        merger.add(run);
    }
    for word in WORDS.split_whitespace() {
        merger.add(word);
        merger.add(&format!(" {word}"));
    }
    for word in WORDS.split_whitespace() {
        let capital = capitalized(word);
        merger.add(&capital);
        merger.add(&format!(" {capital}"));
    }
    let stream = RandomStream::new(seed, "vocabulary");
    let mut draws = (0..).map(|i| stream.bits(i));
    // Short words run out where nearly all merges are already known, so the number of tries has a limit.
    for _ in 0..8 * size {
        if merger.is_full() {
            break;
        }
        merger.add(&format!(" {}", invented(&mut draws)));
    }

    let bytes_to_chars = bytes_to_chars();
    let shown = |bytes: &[u8]| bytes.iter().map(|&byte| bytes_to_chars[usize::from(byte)]).collect::<String>();
    let mut tokens: Vec<String> = merger.tokens.iter().map(|bytes| shown(bytes)).collect();
    let merges = merger.merges.iter().map(|&(a, b)| format!("{} {}", tokens[a as usize], tokens[b as usize])).collect();
    let mut types = vec![kind::NORMAL; tokens.len()];
    let mut loudness: Vec<Loudness> = merger.tokens.iter().map(|bytes| loudness_of(bytes)).collect();
    for i in tokens.len()..size - CONTROL.len() {
        tokens.push(format!("[reserved_{i}]"));
        types.push(kind::UNUSED);
        loudness.push(Loudness::Silent);
    }
    let first_control = tokens.len() as u32;
    for (token, kind) in CONTROL {
        tokens.push(token.to_string());
        types.push(kind);
        loudness.push(Loudness::Quiet);
    }
    Vocabulary { tokens, types, merges, loudness, end_of_turn: first_control + 2, end_of_text: first_control }
}

fn loudness_of(bytes: &[u8]) -> Loudness {
    match bytes {
        b"." | b"?" | b"!" | b"..." | b"," | b";" | b":" => Loudness::Loud(1.9),
        _ => match std::str::from_utf8(bytes) {
            // With the space before it, so that what is generated are words and not one long word.
            Ok(text) if text.starts_with(' ') && text.len() > 2 && text[1..].chars().all(char::is_alphabetic) => {
                Loudness::Loud(1.0)
            }
            _ => Loudness::Quiet,
        },
    }
}

struct Merger {
    limit: usize,
    /// Places of the 256 bytes in the list are those of the family: first the bytes that print, then the others.
    tokens: Vec<Vec<u8>>,
    by_bytes: HashMap<Vec<u8>, u32>,
    merges: Vec<(u32, u32)>,
    /// (rank, token) of each pair that merges.
    ranks: HashMap<(u32, u32), (u32, u32)>,
    seen: HashSet<String>,
}

impl Merger {
    fn new(limit: usize) -> Merger {
        let prints = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let printing = (0..=255u8).filter(prints);
        let others = (0..=255u8).filter(|byte| !prints(byte));
        let tokens: Vec<Vec<u8>> = printing.chain(others).map(|byte| vec![byte]).collect();
        let by_bytes = tokens.iter().cloned().zip(0..).collect();
        Merger { limit, tokens, by_bytes, merges: Vec::new(), ranks: HashMap::new(), seen: HashSet::new() }
    }

    fn is_full(&self) -> bool {
        self.tokens.len() >= self.limit
    }

    /// Makes `word` one token, by merging from the left what the merges so far leave of it. New merges rank behind all
    /// others, so the words before it stay whole.
    fn add(&mut self, word: &str) {
        if !self.seen.insert(word.to_string()) {
            return;
        }
        let mut parts = self.encode(word);
        while parts.len() > 1 {
            if self.is_full() {
                return;
            }
            let pair = (parts[0], parts[1]);
            let bytes = [self.tokens[pair.0 as usize].as_slice(), &self.tokens[pair.1 as usize]].concat();
            let token = *self.by_bytes.entry(bytes.clone()).or_insert_with(|| {
                self.tokens.push(bytes);
                self.tokens.len() as u32 - 1
            });
            self.ranks.insert(pair, (self.merges.len() as u32, token));
            self.merges.push(pair);
            parts = self.encode(word);
        }
    }

    fn encode(&self, word: &str) -> Vec<u32> {
        let mut parts: Vec<u32> = word.bytes().map(|byte| self.by_bytes[[byte].as_slice()]).collect();
        loop {
            let best = (1..parts.len()).filter_map(|i| {
                let &(rank, token) = self.ranks.get(&(parts[i - 1], parts[i]))?;
                Some((rank, i, token))
            });
            match best.min() {
                None => return parts,
                Some((_, i, token)) => {
                    parts[i - 1] = token;
                    parts.remove(i);
                }
            }
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// One to four syllables, each a start, a vowel and perhaps an end.
fn invented(draws: &mut impl Iterator<Item = u64>) -> String {
    const STARTS: [&str; 24] = [
        "b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "tr", "br", "pl",
        "sh", "ch", "gr",
    ];
    const VOWELS: [&str; 9] = ["a", "e", "i", "o", "u", "ea", "ou", "ai", "y"];
    const ENDS: [&str; 12] = ["", "", "", "n", "r", "s", "l", "t", "nd", "ck", "m", "st"];
    let Some(bits) = draws.next() else { return String::new() };
    let syllables = [1, 2, 2, 2, 3, 3, 3, 4][(bits & 7) as usize];
    let mut rest = bits >> 3;
    let mut pick = |list: &[&'static str]| {
        let chosen = list[(rest % list.len() as u64) as usize];
        rest /= list.len() as u64;
        chosen
    };
    let mut word = String::new();
    for _ in 0..syllables {
        word += pick(&STARTS);
        word += pick(&VOWELS);
        word += pick(&ENDS);
    }
    word
}

/// The character that stands for each byte in token strings: itself where it prints, else one from 256 on.
fn bytes_to_chars() -> [char; 256] {
    let mut next = 256u32;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) {
            return char::from(byte);
        }
        next += 1;
        char::from_u32(next - 1).unwrap_or('?')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_whole_and_places_are_kept() {
        let vocabulary = build(40_000, 1);
        assert_eq!(vocabulary.tokens.len(), 40_000);
        assert_eq!(vocabulary.types.len(), 40_000);
        assert_eq!(vocabulary.loudness.len(), 40_000);
        let distinct: HashSet<&String> = vocabulary.tokens.iter().collect();
        assert_eq!(distinct.len(), 40_000);
        let place = |token: &str| vocabulary.tokens.iter().position(|t| t == token);
        for word in ["the", "Ġthe", "Ġkitchen", "ĠKitchen", "ĠkÃ¼che"] {
            assert!(place(word).is_some_and(|id| id < 10_000), "{word} at {:?}", place(word));
        }
        assert_eq!(place("!"), Some(0));
        assert_eq!(place("Ā"), Some(188));
        assert_eq!(vocabulary.tokens[vocabulary.end_of_turn as usize], "<|im_end|>");
        assert_eq!(vocabulary.tokens[vocabulary.end_of_text as usize], "<|endoftext|>");
        assert_eq!(vocabulary.types[vocabulary.end_of_turn as usize], kind::CONTROL);
    }

    #[test]
    fn merges_build_their_tokens() {
        let vocabulary = build(8_000, 1);
        let places: HashMap<&str, usize> = vocabulary.tokens.iter().map(String::as_str).zip(0..).collect();
        let mut known: HashSet<String> = vocabulary.tokens[..256].iter().cloned().collect();
        for merge in &vocabulary.merges {
            let (a, b) = merge.split_once(' ').unwrap();
            assert!(known.contains(a) && known.contains(b), "{merge} merges what is not there yet");
            assert!(places.contains_key(format!("{a}{b}").as_str()), "{merge} makes no token");
            known.insert(format!("{a}{b}"));
        }
        assert_eq!(known.len(), 256 + (8_000 - 256 - 9) / 4, "every real token can be made");
    }

    #[test]
    fn only_text_is_loud() {
        let vocabulary = build(8_000, 1);
        for (token, loudness) in vocabulary.tokens.iter().zip(&vocabulary.loudness) {
            if let Loudness::Loud(_) = loudness {
                assert!(!token.starts_with('<') && !token.starts_with('['), "{token}");
            }
        }
        let loud = vocabulary.loudness.iter().filter(|l| matches!(l, Loudness::Loud(_))).count();
        assert!(loud > 500, "{loud} of 1933 tokens are words");
    }

    #[test]
    fn the_smallest_vocabulary_has_words_too() {
        let vocabulary = build(512, 1);
        assert!(vocabulary.loudness.iter().filter(|l| matches!(l, Loudness::Loud(_))).count() > 10);
        assert_ne!(build(40_000, 1).tokens, build(40_000, 2).tokens);
        assert_eq!(build(40_000, 1).tokens, build(40_000, 1).tokens);
    }
}
