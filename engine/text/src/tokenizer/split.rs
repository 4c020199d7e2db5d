//! Cuts plain text into words by the family's pattern.
//!
//! All these patterns end with `\s+(?!\S)|\s+`: white space before a word leaves its last character to that word. A
//! look-ahead would need a backtracking matcher, which has a step limit and goes quadratic on long runs of spaces. Here
//! the two alternatives are a second pattern, `\s+`, and where that one matched the last character is given back: the
//! same words, in linear time and without capture groups.

use crate::Error;
use regex_automata::Input;
use regex_automata::meta::Regex;

const SPACE_TAIL: &str = r"\s+(?!\S)|\s+";

pub const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// A value of `tokenizer.ggml.pre` and what it stands for.
pub struct Pre {
    pub name: &'static str,
    pub pattern: &'static str,
    pub whole_words_first: bool,
}

pub const KNOWN: &[Pre] = &[
    Pre { name: "qwen35", pattern: QWEN35, whole_words_first: false },
    Pre { name: "qwen2", pattern: QWEN2, whole_words_first: false },
    Pre { name: "deepseek-r1-qwen", pattern: QWEN2, whole_words_first: false },
    Pre { name: "gpt-2", pattern: GPT2, whole_words_first: false },
    Pre { name: "llama-bpe", pattern: LLAMA3, whole_words_first: true },
];

pub fn of_pre(name: &str) -> Result<&'static Pre, Error> {
    KNOWN.iter().find(|pre| pre.name == name).ok_or_else(|| Error::UnknownPreTokenizer {
        found: name.to_string(),
        known: KNOWN.iter().map(|pre| pre.name).collect::<Vec<_>>().join(", "),
    })
}

pub struct Split {
    pattern: Regex,
    /// Which of the patterns is white space that no other alternative took.
    space: Option<usize>,
}

impl Split {
    pub fn new(pattern: &str) -> Result<Self, Error> {
        let (patterns, space) = match pattern.strip_suffix(SPACE_TAIL) {
            Some("") => (vec![r"\s+"], Some(0)),
            Some(head) if head.ends_with('|') => (vec![&head[..head.len() - 1], r"\s+"], Some(1)),
            _ => (vec![pattern], None),
        };
        let pattern = Regex::new_many(&patterns).map_err(|error| {
            let why = error.syntax_error().map_or(error.to_string(), |error| error.to_string());
            Error::Pattern { pattern: pattern.to_string(), why }
        })?;
        Ok(Self { pattern, space })
    }

    /// Every word in turn; what the pattern does not match comes as a word of its own, so nothing is lost.
    pub fn words<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) {
        let mut done = 0;
        let mut from = 0;
        while let Some(found) = self.pattern.find(Input::new(text).span(from..text.len())) {
            let (start, mut end) = (found.start(), found.end());
            if end == start {
                // An empty match says nothing: look again after the next character.
                let Some(next) = text[start..].chars().next() else { break };
                from = start + next.len_utf8();
                continue;
            }
            if self.space == Some(found.pattern().as_usize()) && end < text.len() {
                let last = text[start..end].chars().next_back().map_or(0, char::len_utf8);
                if end - last > start {
                    end -= last;
                }
            }
            if start > done {
                each(&text[done..start]);
            }
            each(&text[start..end]);
            done = end;
            from = end;
        }
        if done < text.len() {
            each(&text[done..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    fn words(pattern: &str, text: &str) -> Vec<String> {
        words_of(&Split::new(pattern).unwrap(), text)
    }

    fn words_of(split: &Split, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        split.words(text, |word| words.push(word.to_string()));
        words
    }

    /// The same pattern as it stands, by a matcher that knows look-ahead.
    fn words_by_backtracking(pattern: &fancy_regex::Regex, text: &str) -> Vec<String> {
        let mut words = Vec::new();
        let mut done = 0;
        for found in pattern.find_iter(text) {
            let found = found.unwrap();
            assert_eq!(found.start(), done, "these patterns match everything");
            words.push(found.as_str().to_string());
            done = found.end();
        }
        assert_eq!(done, text.len());
        words
    }

    #[test]
    fn space_before_a_word_belongs_to_it() {
        assert_eq!(words(QWEN35, "a   b \t\n c  "), ["a", "  ", " b", " \t\n", " c", "  "]);
        assert_eq!(words(QWEN35, "I'll pay 12€"), ["I", "'ll", " pay", " ", "1", "2", "€"]);
        assert_eq!(words(QWEN35, "नमस्ते"), ["नमस्ते"], "vowel signs do not end a word");
        assert_eq!(words(QWEN2, "नमस्ते").concat(), "नमस्ते");
        assert!(words(QWEN2, "नमस्ते").len() > 1);
    }

    #[test]
    fn a_long_run_of_spaces_takes_linear_time() {
        let text = format!("{}x", " ".repeat(3_000_000));
        assert_eq!(words(QWEN35, &text), [" ".repeat(2_999_999), " x".to_string()]);
    }

    #[test]
    fn an_unknown_pre_tokenizer_is_named_with_those_that_are_known() {
        let Err(error) = of_pre("tekken") else { panic!("tekken is not known") };
        let message = error.to_string();
        assert!(message.contains("\"tekken\"") && message.contains("qwen35, qwen2"), "{message}");
    }

    #[test]
    fn a_pattern_with_other_look_around_is_refused() {
        let Err(error) = Split::new(r"(?<=a)b|\s+") else { panic!("look-behind is not supported") };
        assert!(error.to_string().contains("(?<=a)b"), "{error}");
    }

    #[test]
    fn a_pattern_that_matches_little_or_nothing_loses_no_text() {
        assert_eq!(words("x*", "axb").concat(), "axb");
        assert_eq!(words("q", "äö").concat(), "äö");
    }

    proptest! {
        #[test]
        fn words_are_those_of_the_pattern_as_it_stands(text in r"([ \t\n\r\u{a0}\u{3000}]{0,3}|'[sStTrRvVmMlLdDeE]{1,2}|\PC|[a-z]{1,4}|[0-9]{1,4}|[.,!?\u{94d}\u{301}]{1,2}){0,24}") {
            static BOTH: LazyLock<Vec<(Split, fancy_regex::Regex)>> = LazyLock::new(|| {
                KNOWN.iter().map(|pre| (Split::new(pre.pattern).unwrap(), fancy_regex::Regex::new(pre.pattern).unwrap())).collect()
            });
            for (split, pattern) in BOTH.iter() {
                prop_assert_eq!(words_of(split, &text), words_by_backtracking(pattern, &text));
            }
        }
    }
}
