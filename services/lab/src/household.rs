//! A household that talks to its assistant for two months: three people in two rooms tell, correct and take back facts,
//! and ask for them in later conversations. The same seed makes the same talk.

use crate::dice::Dice;
use serde::Serialize;
use std::collections::BTreeMap;

pub const PEOPLE: [&str; 3] = ["anna", "ben", "cleo"];
pub const ROOMS: [&str; 2] = ["kitchen", "study"];
const DAYS: usize = 60;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HomeTalk {
    pub day: usize,
    pub person: &'static str,
    pub room: &'static str,
    pub turns: Vec<HomeTurn>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HomeTurn {
    pub says: String,
    pub asks: Option<HomeQuestion>, // `None`: it asks nothing
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HomeQuestion {
    /// Present value. `None`: it was never told, or is to be forgotten.
    pub right: Option<String>,
    pub wrong: Vec<String>,   // earlier and forgotten values
    pub foreign: Vec<String>, // values that others told of theirs
    /// True if it was told earlier in this conversation: showing it then proves no memory.
    pub is_fresh: bool,
}

/// A thing that people have, with the sentences to tell, correct and ask for it.
struct HomeSubject {
    name: &'static str,
    told: &'static str,
    corrected: &'static str,
    asked: &'static str,
    values: &'static [&'static str],
}

const CITIES: &[&str] =
    &["Lisbon", "Porto", "Leeds", "Oslo", "Turin", "Lyon", "Graz", "Bergen", "Malmo", "Utrecht", "Cork", "Bilbao"];
const NAMES: &[&str] =
    &["Biscuit", "Rex", "Milo", "Luna", "Otto", "Nala", "Simba", "Coco", "Bruno", "Rocky", "Tilda", "Momo"];
const DOCTORS: &[&str] = &[
    "Harper",
    "Okafor",
    "Lindqvist",
    "Moreau",
    "Tanaka",
    "Novak",
    "Silva",
    "Brandt",
    "Costa",
    "Jansen",
    "Weber",
    "Rossi",
];
const COLOURS: &[&str] = &[
    "green",
    "purple",
    "orange",
    "turquoise",
    "crimson",
    "beige",
    "indigo",
    "magenta",
    "olive",
    "maroon",
    "ochre",
    "teal",
];
const FOODS: &[&str] = &[
    "walnuts",
    "shrimps",
    "strawberries",
    "celery",
    "mustard",
    "lupins",
    "sesame",
    "peaches",
    "mussels",
    "kiwis",
    "hazelnuts",
    "oysters",
];
const WORKS: &[&str] = &[
    "hospital", "harbour", "bakery", "library", "airport", "museum", "brewery", "nursery", "theatre", "foundry",
    "laundry", "quarry",
];

const SUBJECTS: [HomeSubject; 6] = [
    HomeSubject {
        name: "sister",
        told: "My sister lives in {}.",
        corrected: "My sister moved to {}.",
        asked: "Where does my sister live?",
        values: CITIES,
    },
    HomeSubject {
        name: "dog",
        told: "My dog is called {}.",
        corrected: "My dog is called {} now.",
        asked: "What is the name of my dog?",
        values: NAMES,
    },
    HomeSubject {
        name: "dentist",
        told: "Well, the dentist I always go to is Doctor {}.",
        corrected: "I have a new dentist, Doctor {}.",
        asked: "Who is my dentist?",
        values: DOCTORS,
    },
    HomeSubject {
        name: "colour",
        told: "My favourite colour is {}.",
        corrected: "Actually, my favourite colour is {}.",
        asked: "What is my favourite colour?",
        values: COLOURS,
    },
    HomeSubject {
        name: "allergy",
        told: "Remember that my allergy is to {}.",
        corrected: "Remember that my allergy is to {} and nothing else.",
        asked: "What is my allergy?",
        values: FOODS,
    },
    HomeSubject {
        name: "brother",
        told: "My brother works at the {}.",
        corrected: "My brother works at the {} now.",
        asked: "Where does my brother work?",
        values: WORKS,
    },
];

const SMALL_TALK: [&str; 8] = [
    "What time is it?",
    "Turn on the light, please.",
    "Tell me a joke.",
    "Will it rain tomorrow?",
    "Play some music.",
    "Set a timer for ten minutes.",
    "Good morning.",
    "Thank you, that is all.",
];

#[derive(Clone, Default)]
struct ToldFacts {
    holds: Option<String>,
    wrong: Vec<String>,
    changed_in: usize, // the conversation of its last change
}

/// Makes the talk, and then every question of every person, often enough that a leak would show.
pub fn household(seed: u64, talks: usize, least_questions: usize) -> Vec<HomeTalk> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut told: BTreeMap<(usize, usize), ToldFacts> = BTreeMap::new();
    // A value is one person's, so that a leak of it is recognised.
    let mut unused: Vec<Vec<&str>> = SUBJECTS.iter().map(|subject| subject.values.to_vec()).collect();
    let mut all = Vec::new();
    for number in 0..talks {
        let person = (number + dice.below(2)) % PEOPLE.len();
        let mut turns = vec![plain(SMALL_TALK[dice.below(SMALL_TALK.len())])];
        for _ in 0..2 + dice.below(3) {
            let subject = dice.below(SUBJECTS.len());
            let facts = told.entry((person, subject)).or_default().clone();
            let known = facts.holds.is_some();
            match dice.below(10) {
                0 if known && facts.changed_in < number => {
                    let name = SUBJECTS[subject].name;
                    turns.push(plain(&format!("Forget what I said about my {name}.")));
                    forget(&mut told, person, subject, number);
                }
                1..=3 if known && facts.changed_in < number => {
                    tell(&mut dice, &mut told, &mut unused, (person, subject), number, &mut turns);
                }
                _ if !known && facts.wrong.is_empty() => {
                    tell(&mut dice, &mut told, &mut unused, (person, subject), number, &mut turns);
                }
                _ => turns.push(question(&told, person, subject, number)),
            }
        }
        turns.push(plain(SMALL_TALK[dice.below(SMALL_TALK.len())]));
        let (day, room) = (number * DAYS / talks.max(1), ROOMS[dice.below(ROOMS.len())]);
        all.push(HomeTalk { day, person: PEOPLE[person], room, turns });
    }
    let asked = |talks: &[HomeTalk]| {
        let turns = talks.iter().flat_map(|talk| &talk.turns);
        turns.filter_map(|turn| turn.asks.as_ref()).map(|asks| asks.foreign.len()).sum::<usize>()
    };
    while asked(&all) < least_questions {
        let number = all.len();
        let (person, room) = (number % PEOPLE.len(), ROOMS[dice.below(ROOMS.len())]);
        let turns: Vec<HomeTurn> =
            (0..SUBJECTS.len()).map(|subject| question(&told, person, subject, usize::MAX)).collect();
        all.push(HomeTalk { day: DAYS, person: PEOPLE[person], room, turns });
        if told.is_empty() {
            break;
        }
    }
    all
}

fn plain(says: &str) -> HomeTurn {
    HomeTurn { says: says.to_owned(), asks: None }
}

fn tell(
    dice: &mut Dice,
    told: &mut BTreeMap<(usize, usize), ToldFacts>,
    unused: &mut [Vec<&str>],
    (person, subject): (usize, usize),
    number: usize,
    turns: &mut Vec<HomeTurn>,
) {
    let left = &mut unused[subject];
    if left.is_empty() {
        return;
    }
    let value = left.remove(dice.below(left.len())).to_owned();
    let facts = told.entry((person, subject)).or_default();
    let form = if facts.holds.is_some() { SUBJECTS[subject].corrected } else { SUBJECTS[subject].told };
    turns.push(plain(&form.replace("{}", &value)));
    facts.wrong.extend(facts.holds.replace(value));
    facts.changed_in = number;
}

fn forget(told: &mut BTreeMap<(usize, usize), ToldFacts>, person: usize, subject: usize, number: usize) {
    let facts = told.entry((person, subject)).or_default();
    let forgotten = facts.holds.take();
    facts.wrong.extend(forgotten);
    facts.changed_in = number;
}

fn question(told: &BTreeMap<(usize, usize), ToldFacts>, person: usize, subject: usize, number: usize) -> HomeTurn {
    let own = told.get(&(person, subject)).cloned().unwrap_or_default();
    let others = told.iter().filter(|((other, about), _)| *other != person && *about == subject);
    let foreign = others.flat_map(|(_, facts)| facts.holds.iter().chain(&facts.wrong).cloned()).collect();
    let is_fresh = own.changed_in == number && (own.holds.is_some() || !own.wrong.is_empty());
    let asks = HomeQuestion { right: own.holds, wrong: own.wrong, foreign, is_fresh };
    HomeTurn { says: SUBJECTS[subject].asked.to_owned(), asks: Some(asks) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_talk_with_everything_in_it() {
        let talks = household(1, 30, 500);
        assert_eq!(talks, household(1, 30, 500));
        assert_ne!(talks, household(2, 30, 500));
        let questions = || talks.iter().flat_map(|talk| &talk.turns).filter_map(|turn| turn.asks.as_ref());
        assert!(questions().map(|asks| asks.foreign.len()).sum::<usize>() >= 500);
        assert!(questions().any(|asks| asks.right.is_none() && !asks.wrong.is_empty()));
        assert!(questions().any(|asks| asks.right.is_some() && !asks.wrong.is_empty()));
        assert!(PEOPLE.iter().all(|person| talks.iter().any(|talk| talk.person == *person)));
    }
}
