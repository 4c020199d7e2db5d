//! Frames of what is told of television, a book, a game, a dream, or for another person: it is no fact of the speaker.

use crate::languages::{LANGUAGES, LanguageWords, has};
use crate::text::{contains_phrase, folded, sentences, words};
use crate::wishes::without_fillers;

/// Returns true if the words of a message say that what it tells is not so: 'in that show the brother lives in Oslo'.
pub fn is_only_told(message: &str) -> bool {
    let said = folded(message);
    let parts = sentences(&said);
    let is_framed = |language: &LanguageWords| {
        let frames = &language.frames;
        parts.iter().any(|sentence| {
            let start = without_fillers(sentence);
            let begins = |phrase: &String| {
                start.strip_prefix(phrase.as_str()).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            frames.beginnings.iter().any(begins)
                || frames.phrases.iter().any(|phrase| contains_phrase(start, phrase))
                || tells_of_work(&words(start), language)
        })
    };
    LANGUAGES.iter().any(is_framed)
}

// True for 'in the game I have a car' and 'the woman in that drama', and not for 'I work in a film studio' or 'my brother loves that show'.
fn tells_of_work(said: &[&str], language: &LanguageWords) -> bool {
    let is_own = |word: &&str| {
        has(|language| &language.first_person, word) || has(|language| &language.lasting.possessives, word)
    };
    if said.first().is_some_and(is_own) {
        return false;
    }
    let frames = &language.frames;
    (0..said.len()).any(|at| {
        let before = &said[at.saturating_sub(MOST_BETWEEN)..at];
        let determiner = before.iter().rposition(|word| frames.determiners.contains(*word));
        let is_in = |from: usize| from > 0 && frames.inside.contains(said[from - 1]);
        let place = determiner.map(|found| at - before.len() + found);
        let is_work = frames.works.contains(said[at]) && place.is_some();
        let is_place = frames.places.contains(said[at]) && (is_in(at) || place.is_some_and(is_in));
        is_work || is_place
    })
}

// Words between 'the' and 'drama', with 'the'.
const MOST_BETWEEN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_tells_that_it_is_not_so() {
        for told in [
            "in that show the brother lives in Oslo",
            "The woman in the hospital drama was allergic to penicillin.",
            "Um, if I lived in Oslo I would cycle",
            "Take a letter. Dear Sir, I am a widow",
            "they said on the radio that a man has had the same boiler since 1971",
            "Let's play pretend, I'm your nan and I live in a home",
            "Stell dir vor, ich wohne in Oslo",
        ] {
            assert!(is_only_told(told), "{told}");
        }
        for so in [
            "my brother lives in Oslo",
            "I read the news on local radio",
            "My wife works in a film studio",
            "our daughter loves that show with the dragons",
            "The radio is in the kitchen",
            "I dreamt of being a pilot, and I fly for KLM now",
        ] {
            assert!(!is_only_told(so), "{so}");
        }
    }
}
