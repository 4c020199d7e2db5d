//! Words that mean another day when they are said on another.

use crate::languages::LANGUAGES;
use crate::text::{contains_phrase, folded, is_unspaced, words};
use std::collections::HashSet;
use std::sync::LazyLock;

/// Returns true if a reader needs the day on which a text was said: 'my exam is tomorrow', 'the dentist is on Thursday'.
pub fn is_of_its_day(text: &str) -> bool {
    let said = folded(text);
    words(&said).into_iter().any(|word| WORDS.contains(word))
        || PHRASES.iter().any(|phrase| contains_phrase(&said, phrase))
}

static WORDS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| all_days().filter(|day| !is_phrase(day)).collect());

// Several words, or of a script without spaces.
static PHRASES: LazyLock<Vec<&'static str>> = LazyLock::new(|| all_days().filter(|day| is_phrase(day)).collect());

fn all_days() -> impl Iterator<Item = &'static str> {
    let lists = LANGUAGES.iter().flat_map(|language| language.days.iter().chain(&language.weekdays));
    lists.map(String::as_str)
}

fn is_phrase(day: &str) -> bool {
    day.contains([' ', '\'', '-']) || day.contains(is_unspaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_words_need_their_day() {
        for text in [
            "My exam is tomorrow",
            "the dentist is on Thursday",
            "The boiler was serviced two weeks ago.",
            "Ich bin seit letztem Monat vierzig",
            "来週ローマに行きます",
            "我下个月去北京",
            "J'ai un examen aujourd'hui",
        ] {
            assert!(is_of_its_day(text), "{text}");
        }
        for text in
            ["My birthday's the ninth of March", "Leo takes a blue inhaler before football", "Mein Hund heißt Rex"]
        {
            assert!(!is_of_its_day(text), "{text}");
        }
    }
}
