//! Comparison of a newer statement with an older one: whether both are about the same, by whom and what they name.

use crate::aspects::Aspects;
use crate::languages::has;
use crate::nouns::is_same_stem;
use crate::text::stems;

/// Differences of a newer statement from an older one, in whom and what both are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub of_others: bool, // 'my niece', 'my cousin'
    pub names_another: bool,
    pub of_another_thing: bool,
    pub replaces_nothing: bool, // it says another thing of the same, or the same of another
    pub of_unnamed: bool,
}

/// Statement as others are compared with it.
pub struct ComparedStatement<'a> {
    pub about: &'a str,
    pub aspects: &'a Aspects,
}

impl Differences {
    pub fn between(newer: &ComparedStatement, older: &ComparedStatement) -> Differences {
        Differences {
            of_others: newer.aspects.begins_with_others(older.aspects),
            names_another: names_another(newer.about, older.about),
            of_another_thing: newer.aspects.is_of_another_thing(older.aspects),
            replaces_nothing: !may_replace(newer.about, older.about),
            of_unnamed: newer.aspects.is_of_unnamed(older.aspects),
        }
    }
}

// Tells whether a newer statement may take the place of an older one, by what they are `about`: where each says something of which one
// holds at a time, it is the same of the same.
pub(crate) fn may_replace(newer: &str, older: &str) -> bool {
    let (Some((subject, relation)), Some((other, old_relation))) = (newer.split_once('|'), older.split_once('|'))
    else {
        return true;
    };
    relation == old_relation && (is_same_stem(subject, other) || is_open(subject) || is_open(other))
}

// Tells whether two statements say the same thing of subjects that have no word in common: 'Ann lives in Porto', 'Ben moved to Lyon'.
fn names_another(newer: &str, older: &str) -> bool {
    let (Some((subject, relation)), Some((other, old_relation))) = (newer.split_once('|'), older.split_once('|'))
    else {
        return false;
    };
    // 'Emma has left the bakery and works in a bank' names more than the Emma that it is about.
    let names_same = || subject.split(' ').any(|stem| other.split(' ').any(|known| is_same_stem(known, stem)));
    relation == old_relation && !is_open(subject) && !is_open(other) && !names_same()
}

/// Returns true if both say the same of one whom only the older statement calls by name and kind: 'my sister Anna lives in Lisbon', and
/// 'my sister moved to Porto' or 'Anna moved to Porto'.
pub fn leaves_out_name(newer: &str, older: &str, text_of_older: &str) -> bool {
    let (Some((subject, relation)), Some((other, old_relation))) = (newer.split_once('|'), older.split_once('|'))
    else {
        return false;
    };
    let [short, long] = [subject, other].map(|stems| stems.split(' ').filter(|stem| !stem.is_empty()));
    let (short, long): (Vec<&str>, Vec<&str>) = (short.collect(), long.collect());
    let is_less = !short.is_empty() && long.len() == short.len() + 1 && short.iter().all(|stem| long.contains(stem));
    if relation != old_relation || !is_less {
        return false;
    }
    let said: Vec<&str> = text_of_older.split_whitespace().collect();
    said.windows(2).any(|pair| {
        // 'My sister's Rex' is not the sister.
        let is_name = pair[1].starts_with(char::is_uppercase) && pair[0].chars().all(char::is_alphabetic);
        let [kind, name] = [pair[0], pair[1]].map(stems);
        let is_left_out = |word: &[String], kept: &[String]| {
            let has = |word: &[String], all: &[&str]| word.len() == 1 && all.contains(&word[0].as_str());
            has(word, &long) && !has(word, &short) && has(kept, &short)
        };
        is_name && (is_left_out(&name, &kind) || is_left_out(&kind, &name))
    })
}

// 'I told you wrong, her name is Ann' says nothing of whom.
fn is_open(subject: &str) -> bool {
    let says_whom = |stem: &str| !has(|language| &language.lasting.of_wishes, stem);
    subject.is_empty() || !subject.split(' ').any(says_whom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::about;

    fn are_of_others(newer: &str, older: &str) -> bool {
        Aspects::of(newer).begins_with_others(&Aspects::of(older))
    }

    #[test]
    fn what_is_said_of_one_corrects_nothing_of_another() {
        assert!(are_of_others("My niece has a flat in Oslo.", "You know, my cousin has a flat in Bergen."));
        assert!(are_of_others("My grandmother sings.", "My grandfather's choir meets on Mondays."));
        assert!(!are_of_others("My cousins sing.", "My cousin's choir meets on Mondays."));
        assert!(are_of_others("Our cat is called Tom", "The dog of my uncle is called Rex"));
        assert!(!are_of_others("The dog of my uncle is called Odin", "My uncle's dog is called Rex"));
        assert!(!are_of_others("No, the dog's name is Odin", "My dog is called Rex"));
        assert!(!are_of_others("My son moved to Porto", "My son lives in Lisbon"));
        assert!(!are_of_others("My new car is red", "My car is blue"));
        assert!(!are_of_others("not gluten, it's lactose that Mia can't have", "Mia cannot eat gluten"));
        // What a sentence names on its way differs from what it is about.
        for (newer, older) in [
            ("My inhaler has found a new home in my handbag", "The spare inhaler is in my bedside drawer"),
            ("You've muddled that, my love, it was the left one", "I had my right hip replaced"),
            ("he retired in June, my dad", "my father is a bus driver in Cork"),
        ] {
            assert!(!are_of_others(newer, older), "{newer}");
        }
        let is_of_unnamed = |newer: &str, older: &str| Aspects::of(newer).is_of_unnamed(&Aspects::of(older));
        assert!(is_of_unnamed("my doctor is Dr Halvorsen", "I do the early shift at the clinic"));
        assert!(!is_of_unnamed("my mum lives in Cardiff now", "Mum lives in Swansea"));
    }

    #[test]
    fn a_name_may_be_left_out() {
        let leaves_out = |newer: &str, older: &str| leaves_out_name(&about(newer), &about(older), older);
        let anna = "My sister Anna lives in Lisbon.";
        assert!(leaves_out("My sister moved to Porto.", anna) && leaves_out("Anna moved to Porto.", anna));
        assert!(leaves_out("Meine Schwester wohnt in Porto.", "Meine Schwester Anna wohnt in Lissabon."));
        assert!(!leaves_out("My sister Lena moved to Porto.", anna) && !leaves_out("My brother moved to Porto.", anna));
        assert!(!leaves_out("My sister works in Porto.", anna) && !leaves_out(anna, "My sister lives in Porto."));
        assert!(!leaves_out("My sister is called Anna.", "My sister's dog is called Rex."));
        assert!(!leaves_out("I moved to Porto.", "My sister lives in Lisbon."));
    }

    #[test]
    fn one_state_takes_the_place_of_another_of_the_same() {
        let [lives, called] = ["My sister moved to Porto.", "My sister is called Ann."].map(about);
        assert!(may_replace(&lives, &about("My sister lives in Lisbon.")) && !may_replace(&lives, &called));
        assert!(!may_replace(&lives, &about("My brother lives in Lisbon.")));
        let [mum, mother] = ["My mum moved to Leeds.", "My mother lives in Cork."].map(about);
        assert!(may_replace(&mum, &mother) && !names_another(&mum, &mother));
        assert!(may_replace(&about("He likes tea."), &called));
        assert!(may_replace(&about("I told you wrong, her name is Anna"), &called));
        let [left, works] =
            ["Emma has left the bakery and works in a bank", "My sister Emma works in a bakery."].map(about);
        assert!(!may_replace(&left, &works) && !names_another(&left, &works));
        assert!(names_another(&lives, &about("My brother lives in Lisbon.")) && !names_another(&lives, &called));
    }
}
