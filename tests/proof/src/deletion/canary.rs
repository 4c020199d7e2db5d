//! Words that are said once and nowhere else.

use ::tests::random::Random;
use std::collections::HashMap;

const LETTERS: usize = 14;
/// Letters at a word's end that are looked for: an index keeps only the end of a word that begins as the one before it.
pub const NEEDLE: usize = 9;

pub fn word(random: &mut Random) -> String {
    (0..LETTERS).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// Words that are gone, by their ends.
#[derive(Default)]
pub struct Needles(HashMap<[u8; NEEDLE], String>);

impl Needles {
    pub fn add(&mut self, word: &str) {
        if let Some(end) = word.as_bytes().last_chunk() {
            self.0.insert(*end, word.to_owned());
        }
    }

    /// Leaves out words that a model said with another letter or one more: those stay with what it said. Returns how many.
    pub fn leave_out_said_otherwise(&mut self, said: &str) -> usize {
        let before = self.0.len();
        for other in said.split(|letter: char| !letter.is_alphanumeric()) {
            for part in other.as_bytes().windows(NEEDLE) {
                if self.0.get(part).is_some_and(|word| word != other) {
                    self.0.remove(part);
                }
            }
        }
        before - self.0.len()
    }

    pub fn in_bytes(&self, bytes: &[u8]) -> Vec<String> {
        let ends = bytes.windows(NEEDLE).filter_map(|window| self.0.get(window));
        let mut found: Vec<String> = ends.cloned().collect();
        found.sort();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_found_whole_and_by_its_end() {
        let mut random = Random(7);
        let words: Vec<String> = (0..3).map(|_| word(&mut random)).collect();
        let mut needles = Needles::default();
        needles.add(&words[0]);
        let said = format!("…{} {}", words[1], words[0]);
        assert_eq!(needles.in_bytes(said.as_bytes()), [words[0].clone()]);
        assert_eq!(needles.in_bytes(words[0].get(5..).unwrap().as_bytes()), [words[0].clone()]);
        assert!(needles.in_bytes(words[0].get(6..).unwrap().as_bytes()).is_empty());
        assert!(needles.in_bytes(words[2].as_bytes()).is_empty() && needles.in_bytes(b"abc").is_empty());

        assert_eq!(needles.leave_out_said_otherwise(&said), 0);
        let longer = format!("Your parrot is called {}w.", words[2]);
        needles.add(&words[2]);
        assert_eq!(needles.leave_out_said_otherwise(&longer), 1);
        let otherwise = format!("Your parrot is called Z{}.", &words[0][1..]);
        assert_eq!(needles.leave_out_said_otherwise(&otherwise), 1);
        assert!(needles.in_bytes(words[0].as_bytes()).is_empty());
    }
}
