//! Inputs from a corpus: bits flipped, bytes put in and taken out, two inputs joined, words of the formats, and changes that
//! leave JSON JSON.

use super::corpus::Corpus;
use super::json;
use super::random::Random;

/// Words that readers look for, and numbers at their borders.
const WORDS: [&[u8]; 40] = [
    b"null",
    b"true",
    b"false",
    b"{}",
    b"[]",
    b"\"\"",
    b"-1",
    b"0",
    b"1e999",
    b"-0.0",
    b"18446744073709551616",
    b"9223372036854775807",
    b"NaN",
    b"\\u0000",
    b"\\ud800",
    b"\\",
    b"\"",
    b"{\"",
    b"\":",
    b",",
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff",
    b"\xc3\x28",
    b"\xf0\x9f\x92\xa9",
    b"<tool_call>",
    b"</tool_call>",
    b"<function=",
    b"</function>",
    b"<parameter=",
    b"</parameter>",
    b"<think>",
    b"</think>",
    b"<|im_end|>",
    b"{% raw %}",
    b"{{ x }}",
    b"\"type\":",
    b"\"data_length\":",
    b"\"$ref\":\"#\"",
];

/// Longest input, except those of the corpus.
const MOST_BYTES: usize = 64 << 10; // not a window: bytes of an input

pub struct Generator<'a> {
    corpus: &'a Corpus,
    random: Random,
}

impl<'a> Generator<'a> {
    pub fn new(corpus: &'a Corpus, seed: u64) -> Generator<'a> {
        Generator { corpus, random: Random(seed) }
    }

    pub fn input(&mut self, number: u64) -> Vec<u8> {
        if let Some(input) = self.corpus.inputs.get(number as usize) {
            return input.clone();
        }
        let mut random = Random(self.random.0 ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        let mut input = random.pick(&self.corpus.inputs).clone();
        for _ in 0..1 + random.below(4) {
            change(&mut input, self.corpus, &mut random);
            input.truncate(MOST_BYTES);
        }
        input
    }
}

fn change(input: &mut Vec<u8>, corpus: &Corpus, random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = at + random.below((input.len() - at).min(64) + 1);
    match random.below(14) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.next() as u8,
        2 => {
            let bytes: Vec<u8> = (0..1 + random.below(8)).map(|_| random.next() as u8).collect();
            input.splice(at..at, bytes);
        }
        3 => drop(input.drain(at..end)),
        4 => {
            let again = input[at..end].repeat(1 + random.below(8));
            input.splice(at..at, again);
        }
        5 => {
            let other = random.pick(&corpus.inputs);
            let from = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        6 | 7 => {
            let word = random.pick(&WORDS);
            input.splice(at..if random.one_in(2) { at } else { end }, word.iter().copied());
        }
        8 => input.truncate(at),
        _ => json::change(input, random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_seed_name_an_input() {
        let corpus = Corpus { inputs: vec![br#"{"model":"m","messages":[]}"#.to_vec(), b"[1,2,3]".to_vec()] };
        let of = |seed: u64, number: u64| Generator::new(&corpus, seed).input(number);
        assert_eq!(of(1, 0), corpus.inputs[0]);
        assert_eq!(of(1, 99), of(1, 99));
        let all: std::collections::BTreeSet<Vec<u8>> = (2..1000).map(|number| of(1, number)).collect();
        assert!(all.len() > 700, "{}", all.len());
        assert!((2..50).any(|number| of(1, number) != of(2, number)));
        let is_json = |input: &&Vec<u8>| serde_json::from_slice::<serde_json::Value>(input).is_ok();
        assert!(all.iter().filter(is_json).count() > 200, "many are still JSON");
    }
}
