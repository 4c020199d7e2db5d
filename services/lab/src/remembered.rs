//! Sixty days of a household and questions about what was said: the shapes of LongMemEval (single facts, updates, several
//! conversations, time, what was never said). The same seed makes the same days.

use crate::dice::Dice;
use serde::Serialize;
use std::collections::BTreeMap;

pub const SPEAKERS: [&str; 3] = ["anna", "ben", "cleo"];
const DAYS: usize = 60;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RememberedDays {
    pub talks: Vec<DayTalk>,
    pub questions: Vec<MemoryQuestion>,
    /// All values that were told, with the person that told each.
    pub values: Vec<(&'static str, String)>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DayTalk {
    pub day: usize,
    pub person: &'static str,
    pub says: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionShape {
    Single,
    Update,
    Several, // its answer stands in two conversations
    Time,
    Never,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryQuestion {
    pub shape: QuestionShape,
    pub person: &'static str,
    pub asks: String,
    /// Values that answer it. Empty: it was never said.
    pub right: Vec<String>,
    /// Earlier values of the same.
    pub older: Vec<String>,
}

impl RememberedDays {
    /// Lists the values that people other than this one told.
    pub fn foreign_to(&self, person: &str) -> Vec<&String> {
        self.values.iter().filter(|(teller, _)| *teller != person).map(|(_, value)| value).collect()
    }

    /// Leaves the first `most` conversations, and the questions that they answer.
    pub fn cut(&mut self, most: usize) {
        self.talks.truncate(most);
        let said: String = self.talks.iter().flat_map(|talk| &talk.says).map(|says| format!("{says}\n")).collect();
        self.questions
            .retain(|asked| asked.right.iter().chain(&asked.older).all(|value| said.contains(value.as_str())));
    }
}

/// Subject that people tell of others: `@` is the other, `{}` the value.
struct TellableThing {
    told: [&'static str; 3],
    changed: [&'static str; 2],
    asked: [&'static str; 3],
    asked_of_two: &'static str, // `@` and `%` are the others
    is_time: bool,              // its values are dates, and names otherwise
}

fn dated(number: usize) -> String {
    let month = ["January", "March", "April", "June", "July", "August", "September", "October", "November"][number % 9];
    let day = 1 + number / 9 % 28;
    let ending = match day {
        1 | 21 => "st",
        2 | 22 => "nd",
        3 | 23 => "rd",
        _ => "th",
    };
    format!("{month} {day}{ending}")
}

#[rustfmt::skip]
const THINGS: [TellableThing; 6] = [
    TellableThing {
        told: ["My @ lives in {}.", "You know, my @ has a flat in {}.", "We visit my @ in {} a lot, that's where the house is."],
        changed: ["My @ moved to {}.", "My @ lives in {} now."],
        asked: ["Where does my @ live?", "In which town is my @ at home?", "Where would I have to go to visit my @?"],
        asked_of_two: "Where do my @ and my % live?", is_time: false,
    },
    TellableThing {
        told: ["My @ works for {} and Sons.", "My @ has a job at {} and Sons.", "The firm where my @ is employed is called {} and Sons."],
        changed: ["My @ works for {} and Sons now.", "My @ changed jobs and works for {} and Sons now."],
        asked: ["Where does my @ work?", "Who employs my @?", "What is the company of my @ called?"],
        asked_of_two: "Where do my @ and my % work?", is_time: false,
    },
    TellableThing {
        told: ["My @ has a dog called {}.", "The dog of my @ is called {}.", "My @ got a puppy and its name is {}."],
        changed: ["The dog of my @ is called {} now.", "No, the dog of my @ is called {}."],
        asked: ["What is the dog of my @ called?", "What's the name of my @'s dog?", "Which name did my @ give to the pet?"],
        asked_of_two: "What are the dogs of my @ and my % called?", is_time: false,
    },
    TellableThing {
        told: ["The doctor of my @ is Doctor {}.", "My @ always goes to Doctor {}.", "My @ is a patient of Doctor {}."],
        changed: ["The doctor of my @ is Doctor {} now.", "My @ has a new doctor, Doctor {}."],
        asked: ["Who is the doctor of my @?", "Which doctor does my @ go to?", "Who treats my @ when there is an illness?"],
        asked_of_two: "Which doctors do my @ and my % go to?", is_time: false,
    },
    TellableThing {
        told: ["My @'s birthday is on {}.", "My @ was born on {}.", "My @ has a birthday on {}."],
        changed: ["My @'s birthday is on {}, I mixed that up.", "No, my @ was born on {}."],
        asked: ["When is my @'s birthday?", "On which day was my @ born?", "When do I have to congratulate my @?"],
        asked_of_two: "When are the birthdays of my @ and my %?", is_time: true,
    },
    TellableThing {
        told: ["My @ gets married on {}.", "The wedding of my @ is on {}.", "They set the date, my @ marries on {}."],
        changed: ["The wedding of my @ was moved to {}.", "The wedding of my @ is on {} now."],
        asked: ["When does my @ get married?", "On which day is the wedding of my @?", "When is my @ going to marry?"],
        asked_of_two: "When are the weddings of my @ and my %?", is_time: true,
    },
];

const OTHERS: [&str; 15] = [
    "sister",
    "brother",
    "aunt",
    "cousin",
    "neighbour",
    "daughter",
    "son",
    "boss",
    "uncle",
    "niece",
    "nephew",
    "godson",
    "godmother",
    "teacher",
    "grandfather",
];
/// Share of the things that stay unsaid: one in this many.
const NEVER_ONE_IN: usize = 3;
const SMALL_TALK: [&str; 10] = [
    "What time is it?",
    "Turn on the light in the hall, please.",
    "Tell me a joke.",
    "Will it rain tomorrow?",
    "I'm just making coffee.",
    "Set a timer for ten minutes.",
    "It smells of onions in here.",
    "That was a long day.",
    "Play some music.",
    "Thank you, that is all.",
];
const BEGINS: [&str; 16] =
    ["Bren", "Tar", "Vel", "Os", "Kal", "Mor", "Lin", "Fen", "Gar", "Hel", "Jas", "Nor", "Pel", "Rud", "Sel", "Wen"];
const ENDS: [&str; 16] = [
    "low", "vik", "mora", "wick", "dane", "ton", "ford", "by", "stad", "mark", "hall", "bury", "gate", "lund", "croft",
    "field",
];

#[derive(Default)]
struct ToldValue {
    now: String,
    older: Vec<String>,
}

/// Makes the days and about `questions` questions: of each shape as many, or all that the days have.
pub fn remembered_days(seed: u64, questions: usize) -> RememberedDays {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    // A value is said of one thing, so that a leak of it is recognised.
    let names = BEGINS.iter().flat_map(|begin| ENDS.iter().map(move |end| format!("{begin}{end}")));
    let (mut names, mut dates) = (shuffled(&mut dice, names.collect()), shuffled(&mut dice, (0..252).collect()));
    let mut said: BTreeMap<(usize, usize, usize), ToldValue> = BTreeMap::new();
    let mut never = Vec::new();
    let mut told: Vec<(usize, usize, String)> = Vec::new(); // day, person, words
    for person in 0..SPEAKERS.len() {
        for other in 0..OTHERS.len() {
            for (at, thing) in THINGS.iter().enumerate() {
                if dice.below(NEVER_ONE_IN) == 0 {
                    never.push((person, other, at));
                    continue;
                }
                let mut value = || match thing.is_time {
                    true => dates.pop().map(dated),
                    false => names.pop(),
                };
                let Some(now) = value() else { continue };
                let day = dice.below(DAYS * 2 / 3);
                told.push((day, person, filled(thing.told[dice.below(3)], OTHERS[other], "", &now)));
                let mut known = ToldValue { now, older: Vec::new() };
                if dice.below(3) == 0
                    && let Some(newer) = value()
                {
                    let day = day + 1 + dice.below(DAYS - day - 1);
                    told.push((day, person, filled(thing.changed[dice.below(2)], OTHERS[other], "", &newer)));
                    known.older.push(std::mem::replace(&mut known.now, newer));
                }
                said.insert((person, other, at), known);
            }
        }
    }
    told.sort_by_key(|(day, person, _)| (*day, *person));
    let of_value = |((person, ..), value): (&(usize, usize, usize), &ToldValue)| {
        let person = SPEAKERS[*person];
        value.older.iter().chain([&value.now]).map(|value| (person, value.clone())).collect::<Vec<_>>()
    };
    let values = said.iter().flat_map(of_value).collect();
    RememberedDays { talks: talks(&mut dice, told), questions: asked(&mut dice, &said, &never, questions), values }
}

fn talks(dice: &mut Dice, told: Vec<(usize, usize, String)>) -> Vec<DayTalk> {
    let mut talks: Vec<DayTalk> = Vec::new();
    for (day, person, words) in told {
        let mut small = || SMALL_TALK[dice.below(SMALL_TALK.len())].to_owned();
        match talks.last_mut() {
            Some(talk) if talk.day == day && talk.person == SPEAKERS[person] && talk.says.len() < LONGEST_TALK => {
                talk.says.push(words);
            }
            _ => talks.push(DayTalk { day, person: SPEAKERS[person], says: vec![small(), words, small()] }),
        }
    }
    talks
}

const LONGEST_TALK: usize = 6;

fn asked(
    dice: &mut Dice,
    said: &BTreeMap<(usize, usize, usize), ToldValue>,
    never: &[(usize, usize, usize)],
    most: usize,
) -> Vec<MemoryQuestion> {
    let mut shapes: BTreeMap<QuestionShape, Vec<MemoryQuestion>> = BTreeMap::new();
    let mut ask = |shape, person: usize, asks: String, right: Vec<String>, older: Vec<String>| {
        let question = MemoryQuestion { shape, person: SPEAKERS[person], asks, right, older };
        shapes.entry(shape).or_default().push(question);
    };
    for ((person, other, at), value) in said {
        let thing = &THINGS[*at];
        let shape = match (value.older.is_empty(), thing.is_time) {
            (false, _) => QuestionShape::Update,
            (true, true) => QuestionShape::Time,
            (true, false) => QuestionShape::Single,
        };
        for asks in thing.asked {
            let asks = filled(asks, OTHERS[*other], "", "");
            ask(shape, *person, asks, vec![value.now.clone()], value.older.clone());
        }
        let second = said.range((*person, *other + 1, 0)..(*person + 1, 0, 0)).find(|((_, _, same), _)| same == at);
        if let Some(((_, second, _), other_value)) = second {
            let asks = filled(thing.asked_of_two, OTHERS[*other], OTHERS[*second], "");
            let older = value.older.iter().chain(&other_value.older).cloned().collect();
            ask(QuestionShape::Several, *person, asks, vec![value.now.clone(), other_value.now.clone()], older);
        }
    }
    for (person, other, at) in never {
        for asks in THINGS[*at].asked {
            ask(QuestionShape::Never, *person, filled(asks, OTHERS[*other], "", ""), Vec::new(), Vec::new());
        }
    }
    let each = most.div_ceil(shapes.len().max(1));
    let chosen = shapes.into_values().flat_map(|questions| {
        let mut questions = shuffled(dice, questions);
        questions.truncate(each);
        questions
    });
    let mut chosen: Vec<MemoryQuestion> = chosen.collect();
    chosen.truncate(most);
    chosen
}

/// Returns a sentence of the day that says nothing lasting.
pub fn everyday(dice: &mut Dice) -> String {
    let [who, what, where_to, when] = [WHO, WHAT, WHERE, WHEN].map(|words| words[dice.below(words.len())]);
    format!("{who} {what} {where_to} {when}.")
}

#[rustfmt::skip]
const WHO: [&str; 8] = ["Somebody", "The neighbour", "My sister", "The postman", "My boss", "The cat", "The plumber", "My uncle"];
#[rustfmt::skip]
const WHAT: [&str; 8] = [
    "left a parcel", "dropped a glass", "sang loudly", "lost a glove", "was on the phone", "bought bread", "made a mess",
    "told a story",
];
#[rustfmt::skip]
const WHERE: [&str; 8] = [
    "in the hall", "at the station", "near the bakery", "on the stairs", "in the garden", "at the market", "by the river",
    "in the kitchen",
];
#[rustfmt::skip]
const WHEN: [&str; 8] = [
    "this morning", "just now", "an hour ago", "at noon", "last night", "before the rain", "during lunch", "on the way home",
];

fn filled(template: &str, other: &str, second: &str, value: &str) -> String {
    template.replace('@', other).replace('%', second).replace("{}", value)
}

fn shuffled<T>(dice: &mut Dice, mut items: Vec<T>) -> Vec<T> {
    for at in (1..items.len()).rev() {
        items.swap(at, dice.below(at + 1));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_makes_the_same_days_and_a_value_is_one_persons() {
        let days = remembered_days(1, 500);
        assert_eq!(days, remembered_days(1, 500));
        assert_ne!(days, remembered_days(2, 500));
        assert_eq!(days.questions.len(), 500);
        let count = |shape| days.questions.iter().filter(|question| question.shape == shape).count();
        use QuestionShape::*;
        assert_eq!([Single, Update, Several, Time, Never].map(count), [100; 5]);
        for question in &days.questions {
            let foreign: HashSet<&String> = days.foreign_to(question.person).into_iter().collect();
            let own: Vec<&String> = question.right.iter().chain(&question.older).collect();
            let said = days.talks.iter().filter(|talk| talk.person == question.person).flat_map(|talk| &talk.says);
            let said: Vec<&String> = said.collect();
            let is_own = |value: &&String| {
                !foreign.contains(*value) && !value.is_empty() && said.iter().any(|says| says.contains(value.as_str()))
            };
            assert!(own.iter().all(is_own), "{question:?}");
        }
        let tries: usize = days.questions.iter().map(|question| days.foreign_to(question.person).len()).sum();
        assert!(tries >= 50_000, "{tries}");
    }
}
