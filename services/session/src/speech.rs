//! Time that a text takes to say, and the part of it that was said: an estimate.
//!
//! A stock client that stops the assistant sends only `audio_end_ms`, the milliseconds of speech it played. Reprise
//! sends text and hears no audio, so it estimates: a voice speaks `words_per_minute` words of six letters (the space
//! counts as one); an ideograph, kana or Hangul syllable takes as long as three letters, a digit as four, because
//! voices read numbers out; a comma is a pause of 150 ms, a full stop one of 350 ms. A word counts as heard when it is
//! complete. A client that knows better sends `text_end`.

use crate::sentences::script;

const LETTERS_PER_WORD: u64 = 6;
const LETTERS_PER_DIGIT: u64 = 4;
const CLAUSE_PAUSE_US: u64 = 150_000;
const SENTENCE_PAUSE_US: u64 = 350_000;
const US_PER_MINUTE: u64 = 60_000_000;

pub fn words(text: &str) -> Vec<String> {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

pub fn spoken_ms(text: &str, words_per_minute: u32) -> u64 {
    text.chars().map(|character| spoken_us(character, words_per_minute)).sum::<u64>().div_ceil(1000)
}

/// Counts the characters of `text` heard after `audio_end_ms` of speech: whole words, without the space after them.
pub fn heard_chars(text: &str, audio_end_ms: u64, words_per_minute: u32) -> usize {
    if audio_end_ms >= spoken_ms(text, words_per_minute) {
        return text.chars().count();
    }
    let available_us = audio_end_ms.saturating_mul(1000);
    let mut spent_us = 0;
    let mut heard = 0;
    let mut characters = text.chars().enumerate().peekable();
    while let Some((at, character)) = characters.next() {
        spent_us += spoken_us(character, words_per_minute);
        if spent_us > available_us {
            break;
        }
        let ends_word = match characters.peek() {
            None => true,
            Some((_, next)) if script::continues_a_character(*next) => false,
            Some((_, next)) => next.is_whitespace() || script::is_wide(character) || script::is_wide(*next),
        };
        if ends_word && !character.is_whitespace() {
            heard = at + 1;
        }
    }
    heard
}

fn spoken_us(character: char, words_per_minute: u32) -> u64 {
    let letter_us = US_PER_MINUTE / (u64::from(words_per_minute.max(1)) * LETTERS_PER_WORD);
    if script::continues_a_character(character) {
        0
    } else if character.is_numeric() {
        letter_us * LETTERS_PER_DIGIT
    } else if character.is_alphabetic() || character.is_whitespace() {
        letter_us * script::weight(character) as u64
    } else if script::is_stop(character) {
        SENTENCE_PAUSE_US
    } else if script::is_clause_mark(character) {
        CLAUSE_PAUSE_US
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u32 = 170;

    #[test]
    fn words_a_minute_are_words_a_minute() {
        // 170 words of five letters and a space.
        let text = "apple ".repeat(170);
        assert!((59_000..=61_000).contains(&spoken_ms(&text, RATE)), "{}", spoken_ms(&text, RATE));
    }

    #[test]
    fn only_finished_words_were_heard() {
        let text = "The kitchen light is on now.";
        let heard = |ms| text.chars().take(heard_chars(text, ms, RATE)).collect::<String>();
        let rows =
            [(0, ""), (150, ""), (200, "The"), (700, "The kitchen"), (1_100, "The kitchen light"), (60_000, text)];
        for (ms, expected) in rows {
            assert_eq!(heard(ms), expected, "{ms} ms");
        }
    }

    #[test]
    fn scripts_without_spaces_are_heard_by_the_character() {
        let text = "厨房的灯现在亮了。";
        assert_eq!(heard_chars(text, 600, RATE), 3);
        assert_eq!(heard_chars(text, 10_000, RATE), 9);
    }

    #[test]
    fn numbers_take_longer_than_letters() {
        assert!(spoken_ms("1234", RATE) > spoken_ms("abcd", RATE));
        assert_eq!(spoken_ms("", RATE), 0);
        assert!(spoken_ms("word", 0) > 0);
    }

    proptest! {
        #[test]
        fn more_time_hears_more(text in "\\PC{0,40}", one in 0u64..20_000, more in 0u64..20_000) {
            let heard = heard_chars(&text, one, RATE);
            prop_assert!(heard <= text.chars().count());
            prop_assert!(heard <= heard_chars(&text, one + more, RATE));
            prop_assert_eq!(heard_chars(&text, spoken_ms(&text, RATE), RATE), text.chars().count());
        }
    }
}
