//! Aspects by which a question is compared with a statement, and a statement with an older one: whom they are of, and which thing
//! they tell.

use crate::about::{is_copula, is_filler, is_verb};
use crate::details::{details_of, is_correction};
use crate::languages::{LANGUAGES, LanguageWords, has};
use crate::nouns::is_same_noun;
use crate::text::{clause_before, contains_phrase, folded, without_ending, words};
use crate::{Detail, DetailKind};
use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Aspects {
    own: Vec<Possessed>,
    names: Vec<String>,
    words: Vec<String>,
    things: BTreeSet<&'static str>,
    is_correction: bool,
}

impl Aspects {
    pub fn of(text: &str) -> Aspects {
        let said = folded(text);
        Aspects {
            own: possessed(text),
            names: Vec::new(),
            words: words(&said).into_iter().map(str::to_owned).collect(),
            things: things(&said),
            is_correction: is_correction(text),
        }
    }

    pub fn of_question(text: &str) -> Aspects {
        Aspects { names: names(text), ..Aspects::of(text) }
    }

    // True where a statement is of another of the speaker's, or lacks the names.
    pub fn asks_of_others(&self, statement: &Aspects) -> bool {
        let has = |name: &String| statement.words.iter().any(|word| is_same_noun(name, word));
        let has_names = self.names.is_empty() || self.names.iter().any(has);
        if self.own.is_empty() || statement.own.is_empty() { !has_names } else { !self.shares_own(statement) }
    }

    /// True if the lists know a thing that each is about, and these are different: a birthday, and a wedding.
    pub fn is_of_another_thing(&self, other: &Aspects) -> bool {
        !self.things.is_empty() && !other.things.is_empty() && self.things.is_disjoint(&other.things)
    }

    pub fn is_of_the_same_thing(&self, other: &Aspects) -> bool {
        !self.things.is_disjoint(&other.things)
    }

    pub fn corrects(&self, older: &Aspects) -> bool {
        self.is_correction && self.is_of_the_same_thing(older) && self.shares_own(older)
    }

    /// Counts the nouns behind 'my' that a statement tells of and those before did not.
    pub fn newly_told(&self, statement: &Aspects, before: &[&Aspects]) -> usize {
        let tells = |told: &Aspects, noun: &str| told.words.iter().any(|word| is_same_noun(noun, word));
        let is_new = |noun: &str| tells(statement, noun) && !before.iter().any(|told| tells(told, noun));
        self.own.iter().filter(|own| is_new(&own.noun)).count()
    }

    // True if both begin with persons or things of the speaker, and these differ: 'my cousin ...' and 'my niece ...'.
    pub(crate) fn begins_with_others(&self, other: &Aspects) -> bool {
        let begins = |aspects: &Aspects| aspects.own.iter().any(|own| own.begins);
        begins(self) && begins(other) && !self.shares_own(other)
    }

    // True if it is of a person or thing of the speaker that the other does not name.
    pub(crate) fn is_of_unnamed(&self, other: &Aspects) -> bool {
        let is_named = |own: &Possessed| other.words.iter().any(|word| is_same_noun(&own.noun, word));
        !self.own.is_empty() && !self.own.iter().any(is_named)
    }

    fn shares_own(&self, other: &Aspects) -> bool {
        self.own.iter().any(|one| other.own.iter().any(|other| is_same_noun(&one.noun, &other.noun)))
    }
}

fn names(text: &str) -> Vec<String> {
    let said = folded(text);
    let said = words(&said);
    let count = |language: &LanguageWords| said.iter().filter(|word| language.common.contains(**word)).count();
    let most = |capitals: bool| {
        let those = LANGUAGES.iter().filter(|language| language.nouns_have_capitals == capitals);
        those.map(count).max().unwrap_or_default()
    };
    // Where all nouns have a capital, or the language is unknown, a capital makes no name.
    if most(true) >= most(false) {
        return Vec::new();
    }
    let names = details_of(text, false).into_iter().filter(|detail| detail.kind == DetailKind::Name);
    names
        .flat_map(|Detail { text, .. }| words(&folded(&text)).into_iter().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

fn things(text: &str) -> BTreeSet<&'static str> {
    let named = THINGS.named_in(text);
    if named.is_empty() { THINGS_ALONE.named_in(text) } else { named }
}

static THINGS: LazyLock<ThingWords> = LazyLock::new(|| ThingWords::of(|language| &language.things));
static THINGS_ALONE: LazyLock<ThingWords> = LazyLock::new(|| ThingWords::of(|language| &language.things_alone));

#[derive(Default)]
struct ThingWords {
    words: HashMap<&'static str, Vec<&'static str>>,
    phrases: Vec<(&'static str, &'static str)>,
}

impl ThingWords {
    fn of(lists: fn(&LanguageWords) -> &HashMap<String, Vec<String>>) -> ThingWords {
        let mut known = ThingWords::default();
        for (thing, word) in
            LANGUAGES.iter().flat_map(lists).flat_map(|(thing, list)| list.iter().map(move |word| (thing, word)))
        {
            match word.contains(' ') {
                true => known.phrases.push((word, thing)),
                false => known.words.entry(word).or_default().push(thing),
            }
        }
        known
    }

    fn named_in(&self, text: &str) -> BTreeSet<&'static str> {
        let plain = |word: &str| self.words.get(without_ending(word)).into_iter().flatten().copied();
        let by_phrase =
            self.phrases.iter().filter(|(phrase, _)| contains_phrase(text, phrase)).map(|(_, thing)| *thing);
        words(text).into_iter().flat_map(plain).chain(by_phrase).collect()
    }
}

/// Noun behind 'my', and whether the sentence, or a clause of it, begins with it: 'my sister sings', not 'he sold my car'.
#[derive(Clone, Debug, PartialEq)]
struct Possessed {
    noun: String,
    begins: bool,
}

fn possessed(text: &str) -> Vec<Possessed> {
    // 'Mia' is a name in most languages, and says 'my' in one.
    let is_name = |(at, word): (usize, &&str)| at > 0 && word.starts_with(char::is_uppercase);
    let names: Vec<bool> = words(text).iter().enumerate().map(is_name).collect();
    let folded = folded(text);
    let words = words(&folded);
    let is_possessive = |at: &usize| {
        has(|language| &language.lasting.possessives, words[*at]) && names.get(*at).is_none_or(|is_name| !is_name)
    };
    let says_little =
        |word: &&&str| has(|language| &language.lasting.small, word) || has(|language| &language.lasting.new, word);
    let behind = |at: usize| words[at + 1..].iter().find(|word| !says_little(word));
    let begins = |at: usize| begins_clause(clause_before(&folded, &words, at));
    let places = (0..words.len()).filter(is_possessive);
    places
        .filter_map(|at| Some(Possessed { noun: without_ending(behind(at)?).to_owned(), begins: begins(at) }))
        .collect()
}

// 'The dog of my uncle' begins with the uncle, too.
fn begins_clause(before: &[&str]) -> bool {
    let acts =
        |word: &str| is_copula(word) || is_verb(word) || has(|language| &language.first_person, without_ending(word));
    let says = |word: &str| !has(|language| &language.common, word) && !is_filler(word);
    !before.iter().any(|word| acts(word)) && before.iter().filter(|word| says(word)).count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aspects<const N: usize>(texts: [&str; N]) -> [Aspects; N] {
        texts.map(Aspects::of_question)
    }

    #[test]
    fn a_question_is_of_those_that_it_names() {
        let [question, own, other] = aspects([
            "Where does my niece live?",
            "You know, my niece rents a flat in Oslo.",
            "My nephew lives in Oslo.",
        ]);
        assert!(!question.asks_of_others(&own) && question.asks_of_others(&other));
        let [named, told, untold] =
            aspects(["What is the job of Kerstin?", "Kerstin is a nurse.", "My godmother is a nurse."]);
        assert!(!named.asks_of_others(&told) && named.asks_of_others(&untold));
        // The speaker's own words may tell of anyone.
        let [open, said] = aspects(["Where do we keep the ladder?", "The ladder is in my shed."]);
        assert!(!open.asks_of_others(&said));
    }

    #[test]
    fn a_thing_is_known_by_any_of_its_words() {
        let [asked, same, another, unknown] = aspects([
            "Which company employs my niece?",
            "My niece got a job at Halvard.",
            "My niece has a cat called Tom.",
            "My niece is left-handed.",
        ]);
        assert!(asked.is_of_the_same_thing(&same) && !asked.is_of_another_thing(&same));
        assert!(asked.is_of_another_thing(&another));
        assert!(!asked.is_of_another_thing(&unknown) && !asked.is_of_the_same_thing(&unknown));
        // A party is moved, too.
        let [home, moved, party] = aspects([
            "My niece lives in Oslo.",
            "My niece moved to Bergen.",
            "My niece's birthday was moved to Friday.",
        ]);
        assert!(moved.corrects(&home) && !party.corrects(&home) && !home.corrects(&moved));
        let [wohnt, gezogen] =
            aspects(["Meine Nichte hat eine Wohnung in Kiel.", "Meine Nichte wohnt jetzt in Bremen."]);
        assert!(gezogen.corrects(&wohnt));
    }

    #[test]
    fn a_second_statement_is_of_the_second_noun() {
        let [question, first, same, second] = aspects([
            "Where do my niece and my uncle work?",
            "My niece has a job at Halvard.",
            "My niece works at Orion now.",
            "My uncle works at Lumen.",
        ]);
        assert_eq!(question.newly_told(&first, &[]), 1);
        assert_eq!([&same, &second].map(|told| question.newly_told(told, &[&first])), [0, 1]);
    }
}
