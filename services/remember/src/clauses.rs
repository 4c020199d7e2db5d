//! Clauses of a sentence that says several things, each with the subject of the sentence. A correction of one then leaves the others.

use crate::languages::{LANGUAGES, LanguageWords};
use crate::text::folded;
use std::collections::HashSet;

/// Splits 'My sister Anna lives in Lisbon and works as a nurse' into 'My sister Anna lives in Lisbon' and 'My sister Anna works as a
/// nurse'. A sentence whose clauses the lists of words do not tell apart stays whole.
pub fn clauses(sentence: &str) -> Vec<String> {
    let said: Vec<&str> = sentence.split_whitespace().collect();
    let plain: Vec<String> = said.iter().map(|word| plain(word)).collect();
    let words = Words { said: &said, plain: &plain, language: language_of(&plain) };
    match words.subject().filter(|_| said.len() <= MOST_WORDS) {
        Some(subject) => words.clauses(&subject),
        None => vec![sentence.to_owned()],
    }
}

struct Words<'a> {
    said: &'a [&'a str],
    plain: &'a [String],
    language: &'static LanguageWords,
}

struct Subject<'a> {
    words: Vec<&'a str>,
    // Place of the verb.
    verb: usize,
}

struct Beginning {
    words: Vec<String>,
    // Word that is said behind them.
    next: usize,
}

impl<'a> Words<'a> {
    fn subject(&self) -> Option<Subject<'a>> {
        let verb = self.verb_from(0)?;
        let mut words = self.said[..verb].to_vec();
        // 'She's a nurse': the subject is in the verb.
        if let Some((head, _)) = self.said[verb].split_once(APOSTROPHES).filter(|_| self.is_in_verb(verb)) {
            words.push(head);
        }
        // 'Mum's got a dog': she has.
        let last = words.last_mut().filter(|_| !self.is_one_of(verb, |words| &words.lasting.copulas));
        if let Some(last) = last {
            *last = last.trim_end_matches("'s").trim_end_matches("’s");
        }
        (!words.is_empty() && self.is_whole_subject(&words)).then_some(Subject { words, verb })
    }

    // False where words before the verb are not the subject's alone: 'my uncle never lives', 'um so my sister'. Said again, they would
    // tell of the next clause what is not so.
    fn is_whole_subject(&self, words: &[&str]) -> bool {
        let plain: Vec<String> = words.iter().map(|word| plain(word)).collect();
        let [first, rest @ ..] = plain.as_slice() else { return false };
        let LanguageWords { negations, lasting, clauses, first_person, code, .. } = self.language;
        let begins = [&lasting.possessives, &clauses.possessives, &clauses.articles, &clauses.pronouns, first_person];
        let is_name = words.iter().all(|word| word.starts_with(char::is_uppercase));
        let is_begun = rest.is_empty() || is_name || begins.iter().any(|list| list.contains(first));
        // 'Really', 'hardly'.
        let is_manner = |word: &String| *code == "en" && word.len() > 4 && word.ends_with("ly");
        let is_beside =
            |word: &String| [negations, &lasting.small, &clauses.beside].iter().any(|list| list.contains(word));
        // 'My husband's are 45'.
        let is_cut_short = words.last().is_some_and(|last| last.ends_with("'s") || last.ends_with("’s"));
        is_begun && !is_cut_short && !plain.iter().any(|word| is_beside(word) || is_manner(word))
    }

    // True where 'he' may be either of two: 'my neighbour's wife', 'die Frau meines Chefs'.
    fn names_two(&self, subject: &Subject) -> bool {
        let LanguageWords { lasting, clauses, .. } = self.language;
        let determiners = [&lasting.possessives, &clauses.possessives, &clauses.articles];
        let determines = |word: &&&str| determiners.iter().any(|list| list.contains(&plain(word)));
        subject.words.iter().filter(determines).count() > 1
            || subject.words.iter().any(|word| word.contains(APOSTROPHES))
    }

    // True for a clause whose 'them' or 'there' only the clause before explains.
    fn points_back(&self, clause: &[String]) -> bool {
        let LanguageWords { clauses, first_person, .. } = self.language;
        let said = clause.first().map(|word| plain(word)).unwrap_or_default();
        let said = said.split('\'').next().unwrap_or_default();
        let is_mine = first_person.contains(said) && clauses.pronouns.contains(said);
        let points = |word: &String| {
            clauses.back.contains(&plain(word)) || is_mine && clauses.possessives.contains(&plain(word))
        };
        let is_cut_short =
            |words: &[String]| words[0].ends_with("'s") && self.language.lasting.copulas.contains(&plain(&words[1]));
        clause.iter().any(points) || clause.windows(2).any(is_cut_short)
    }

    fn clauses(&self, subject: &Subject) -> Vec<String> {
        let mut clauses: Vec<Vec<String>> =
            vec![self.said[..=subject.verb].iter().map(|word| (*word).to_owned()).collect()];
        let mut at = subject.verb + 1;
        while at < self.said.len() {
            let beginning = self.beginning(at, subject);
            let next = beginning.as_ref().map_or(at, |beginning| beginning.next);
            clauses.extend(beginning.map(|beginning| beginning.words));
            let current = clauses.len() - 1;
            clauses[current].push(self.said[next].to_owned());
            at = next + 1;
        }
        if clauses.iter().skip(1).any(|words| self.points_back(words)) {
            return vec![self.said.join(" ")];
        }
        let joined = clauses.iter().map(|words| words.join(" ").trim_end_matches([',', ';']).to_owned());
        joined.collect()
    }

    // Returns how a clause begins, where one begins at a word.
    fn beginning(&self, at: usize, subject: &Subject) -> Option<Beginning> {
        let is_joined = self.is_one_of(at, |words| &words.clauses.joins);
        if !is_joined && !self.is_parted(at) {
            return None;
        }
        let mut start = at + usize::from(is_joined);
        start += usize::from(self.is_one_of(start, |words| &words.lasting.small));
        let of_subject = |more: Option<&str>, next: usize| {
            let words = subject.words.iter().copied().chain(more);
            Some(Beginning { words: words.map(|word| word.trim_end_matches(',').to_owned()).collect(), next })
        };
        let whole = |next: usize| Some(Beginning { words: Vec::new(), next });
        if self.is_verb(start) {
            return of_subject(None, start);
        }
        if self.is_one_of(start, |words| &words.first_person) && self.reaches_verb(start) {
            return whole(start);
        }
        // 'We got a puppy, he's called Rex': he is not we.
        let is_another = subject.words.last().is_some_and(|last| self.is_first_person(&plain(last)));
        let is_another = is_another || self.names_two(subject);
        if self.is_one_of(start, |words| &words.clauses.pronouns) && self.is_verb(start + 1) {
            return if is_another { None } else { of_subject(None, start + 1) };
        }
        // 'and she's a nurse'.
        if self.is_pronoun_with_verb(start) {
            let (head, ending) = self.plain[start].split_once('\'')?;
            if self.is_first_person(head) {
                return whole(start);
            }
            return (!is_another)
                .then(|| Beginning { words: vec![subject.with_ending(&format!("'{ending}"))], next: start + 1 });
        }
        // 'and his wife is called Ana': whose, the subject says.
        if self.is_one_of(start, |words| &words.clauses.possessives) && self.reaches_verb(start) && !is_another {
            let ending = self.language.clauses.possessive_ending.first()?;
            return Some(Beginning { words: vec![subject.with_ending(ending)], next: start + 1 });
        }
        let is_noun = self.is_one_of(start, |words| &words.lasting.possessives) || self.is_article(start);
        if is_noun && self.reaches_verb(start) {
            return whole(start);
        }
        // 'I have a sister in Rome and a brother in Oslo'.
        let owns = is_joined && self.is_article(start) && self.is_one_of(subject.verb, |words| &words.clauses.owning);
        let verb = self.said[subject.verb];
        if owns { of_subject(Some(verb.split_once(APOSTROPHES).map_or(verb, |_| "have")), start) } else { None }
    }

    // Finds the verb of the clause that begins at a word. Without another, 'Ben's' and 'the cat's' have it.
    fn verb_from(&self, start: usize) -> Option<usize> {
        let end = self.said.len().min(start + MOST_SUBJECT);
        let ends =
            |at: &usize| *at > start && (self.is_parted(*at) || self.is_one_of(*at, |words| &words.clauses.joins));
        let clause: Vec<usize> = (start..end).take_while(|at| !ends(at)).collect();
        let pronoun = clause.iter().find(|at| self.is_pronoun_with_verb(**at));
        let verb = clause.iter().find(|at| **at > start && self.is_verb(**at));
        let noun = || clause.iter().find(|at| self.is_in_verb(**at) && **at + 1 < self.said.len());
        pronoun.filter(|at| verb.is_none_or(|verb| *at < verb)).or(verb).or_else(noun).copied()
    }

    fn reaches_verb(&self, start: usize) -> bool {
        self.verb_from(start).is_some()
    }

    // A noun stands behind 'my' and 'the': 'my work'.
    fn is_verb(&self, at: usize) -> bool {
        let is_noun = at > 0
            && (self.is_one_of(at - 1, |words| &words.lasting.possessives)
                || self.is_one_of(at - 1, |words| &words.clauses.possessives)
                || self.is_article(at - 1));
        !is_noun && self.is_one_of(at, |words| &words.clauses.verbs)
    }

    fn is_in_verb(&self, at: usize) -> bool {
        let ending = self.plain[at].split_once('\'').map(|(_, ending)| ending);
        ending.is_some_and(|ending| self.language.clauses.verb_endings.contains(ending))
    }

    fn is_pronoun_with_verb(&self, at: usize) -> bool {
        let head = self.plain.get(at).and_then(|word| word.split_once('\'')).map(|(head, _)| head);
        head.is_some_and(|head| self.language.clauses.pronouns.contains(head)) && self.is_in_verb(at)
    }

    fn is_first_person(&self, word: &str) -> bool {
        self.language.first_person.contains(word)
    }

    fn is_article(&self, at: usize) -> bool {
        self.is_one_of(at, |words| &words.clauses.articles)
    }

    fn is_parted(&self, at: usize) -> bool {
        at > 0 && self.said[at - 1].ends_with([',', ';'])
    }

    fn is_one_of(&self, at: usize, list: fn(&LanguageWords) -> &HashSet<String>) -> bool {
        self.plain.get(at).is_some_and(|word| list(self.language).contains(word))
    }
}

impl Subject<'_> {
    fn with_ending(&self, ending: &str) -> String {
        format!("{}{ending}", self.words.join(" ").trim_end_matches(','))
    }
}

// Of the languages with lists of verbs, the one that has most of the words. The first has those that several have.
fn language_of(plain: &[String]) -> &'static LanguageWords {
    let known = |language: &LanguageWords, word: &String| {
        let LanguageWords { common, lasting, clauses, .. } = language;
        [common, &lasting.possessives, &clauses.joins, &clauses.verbs].iter().any(|list| list.contains(word))
    };
    let count = |language: &LanguageWords| plain.iter().filter(|word| known(language, word)).count();
    let is_english = |language: &LanguageWords| language.code == "en";
    let best = LANGUAGES.iter().max_by_key(|language| (count(language), is_english(language)));
    best.unwrap_or(&LANGUAGES[0])
}

fn plain(word: &str) -> String {
    folded(word.trim_matches(|character: char| !character.is_alphanumeric()))
}

const APOSTROPHES: [char; 2] = ['\'', '’'];
const MOST_WORDS: usize = 40;
const MOST_SUBJECT: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_says_one_thing_or_several() {
        let cases: [(&str, &[&str]); 27] = [
            (
                "My sister Anna lives in Lisbon and works as a nurse.",
                &["My sister Anna lives in Lisbon", "My sister Anna works as a nurse."],
            ),
            ("I'm vegetarian and I work nights", &["I'm vegetarian", "I work nights"]),
            ("I have a sister in Rome and a brother in Oslo", &["I have a sister in Rome", "I have a brother in Oslo"]),
            (
                "My brother Tom drives a van, he plays chess and his wife is called Ana",
                &["My brother Tom drives a van", "My brother Tom plays chess", "My brother Tom's wife is called Ana"],
            ),
            (
                "my son plays the piano and my daughter plays chess",
                &["my son plays the piano", "my daughter plays chess"],
            ),
            ("Our dog is called Rex and he's nine", &["Our dog is called Rex", "Our dog's nine"]),
            ("My work starts at nine and ends at five", &["My work starts at nine", "My work ends at five"]),
            (
                "Meine Schwester wohnt in Köln und arbeitet als Lehrerin",
                &["Meine Schwester wohnt in Köln", "Meine Schwester arbeitet als Lehrerin"],
            ),
            ("my neighbor's wife is a vet and sings", &["my neighbor's wife is a vet", "my neighbor's wife sings"]),
            ("Mum's got a cockapoo and she does pottery", &["Mum's got a cockapoo", "Mum does pottery"]),
            ("Uncle Ray keeps pigeons and he plays chess", &["Uncle Ray keeps pigeons", "Uncle Ray plays chess"]),
            // One thing.
            (
                "my uncle never married and still lives with grandma",
                &["my uncle never married and still lives with grandma"],
            ),
            ("my brother really works nights and he's grumpy", &["my brother really works nights and he's grumpy"]),
            ("um so my sister works in Lyon and she's a cook", &["um so my sister works in Lyon and she's a cook"]),
            ("mi abuela nunca se casó y vive en Lugo", &["mi abuela nunca se casó y vive en Lugo"]),
            ("my neighbor's wife is a vet and he's retired", &["my neighbor's wife is a vet and he's retired"]),
            ("the twins are six and one of them plays chess", &["the twins are six and one of them plays chess"]),
            ("my aunt has a boat and we're visiting her in May", &["my aunt has a boat and we're visiting her in May"]),
            ("my feet are large and my husband's are larger", &["my feet are large and my husband's are larger"]),
            ("We got a puppy, he's called Rex", &["We got a puppy, he's called Rex"]),
            ("I have a son and he lives in Rome", &["I have a son and he lives in Rome"]),
            ("I like apples and pears", &["I like apples and pears"]),
            ("My sister and her husband live in Rome", &["My sister and her husband live in Rome"]),
            (
                "Salt and pepper are in the drawer, next to the oven",
                &["Salt and pepper are in the drawer, next to the oven"],
            ),
            ("I never eat fish and chips", &["I never eat fish and chips"]),
            ("My dog is black and white", &["My dog is black and white"]),
            ("", &[""]),
        ];
        for (sentence, expected) in cases {
            assert_eq!(clauses(sentence), expected, "{sentence}");
        }
    }
}
