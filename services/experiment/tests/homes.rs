//! Simulated homes: three persons, forty sessions together, arms drawn in blocks for each of them. A difference that is there
//! is shown in four homes of five, and one that is not in one of twenty.

use experiment::{
    Advice, Arm, ArmTurn, ComparedUnit, Comparison, DifferenceVerdict, DrawnUnit, Metric, SeededRandom, Warning,
    assign_in_turn, compare,
};
use std::collections::BTreeMap;

const HOMES: u64 = 200;
const SESSIONS: usize = 40;

#[derive(Clone, Copy)]
struct Home {
    sessions: usize,
    shift: f64, // of the wait in the larger window, as a share
    drift: f64, // of the wait from one session to the next, as a share
}

fn normal(random: &mut SeededRandom) -> f64 {
    (0..12).map(|_| random.share()).sum::<f64>() - 6.0
}

// Plays a home. Persons differ by half in their waits, sessions of one person by a fifth, and turns by a fifth.
fn play(home: Home, seed: u64) -> Comparison {
    let mut random = SeededRandom::new(seed);
    let arms = ["large", "small"].map(|name| Arm { name: name.to_owned(), weight: 1.0 });
    let pace: Vec<f64> = (0..3).map(|_| 400.0 * (0.5 * normal(&mut random)).exp()).collect();
    let mut numbers = [0u64; 3];
    let mut turns = Vec::new();
    for session in 0..home.sessions {
        // Some talk more than others.
        let user = [0, 0, 0, 1, 1, 2][random.below(6)];
        let number = numbers[user];
        numbers[user] += 1;
        let drawn = assign_in_turn(&format!("home {seed}"), &format!("person {user}"), number, &arms).unwrap();
        let arm = usize::from(drawn.name == "large");
        let of_session = pace[user]
            * (0.2 * normal(&mut random)).exp()
            * (1.0 + home.drift * number as f64)
            * if arm == 1 { 1.0 + home.shift } else { 1.0 };
        for turn in 0..(3 + random.below(6) as u64) {
            let wait = of_session * (0.2 * normal(&mut random)).exp();
            let values = BTreeMap::from([
                (Metric::FirstTokenMs, wait),
                (Metric::TotalMs, 5.0 * wait * (0.3 * normal(&mut random)).exp()),
                (Metric::BargeIns, f64::from(u8::from(random.share() < 0.15))),
            ]);
            let (user, session) = (user as u64, session as u64);
            turns.push(ArmTurn { arm, user, session, pair: 0, period: number, turn, values });
        }
    }
    compare(&["small".to_owned(), "large".to_owned()], &[], &turns, DrawnUnit::Session, seed)
}

fn shows(comparison: &Comparison) -> Vec<Metric> {
    let is_shown = |verdict| matches!(verdict, DifferenceVerdict::Higher | DifferenceVerdict::Lower);
    let shown = comparison.rows.iter().filter(|row| row.differences[0].is_some_and(|found| is_shown(found.verdict)));
    shown.map(|row| row.metric).collect()
}

#[test]
fn a_difference_that_is_there_is_found_and_none_that_is_not() {
    let there = Home { sessions: SESSIONS, shift: 0.35, drift: 0.0 };
    let found = (0..HOMES).filter(|seed| shows(&play(there, *seed)).contains(&Metric::FirstTokenMs)).count();
    let none = Home { shift: 0.0, ..there };
    let wrong = (0..HOMES).filter(|seed| !shows(&play(none, *seed)).is_empty()).count();
    println!("found in {found} of {HOMES} homes, and in {wrong} where there is none");
    assert!(found * 5 >= HOMES as usize * 4, "found in {found} of {HOMES}");
    assert!(wrong * 20 <= HOMES as usize, "shown in {wrong} of {HOMES} where there is none");
}

// Sessions drawn one by one, and compared without regard to persons, miss what a home of three has to tell.
#[test]
fn users_are_compared_with_themselves() {
    let comparison = play(Home { sessions: SESSIONS, shift: 0.35, drift: 0.0 }, 1);
    assert_eq!(comparison.unit, ComparedUnit::OwnSessions);
    assert_eq!(comparison.warnings, [], "a user in several arms is what was drawn");
    let Advice::Take { arm: 0, better } = comparison.advice() else { panic!("{:?}", comparison.advice()) };
    assert!(better.contains(&Metric::FirstTokenMs), "{better:?}");
}

#[test]
fn drift_is_told_and_does_no_harm() {
    let drifting = Home { sessions: SESSIONS, shift: 0.0, drift: 0.05 };
    let homes: Vec<Comparison> = (0..HOMES).map(|seed| play(drifting, seed)).collect();
    let told = |home: &&Comparison| home.warnings.iter().any(|warning| matches!(warning, Warning::Drift { .. }));
    let (told, wrong) =
        (homes.iter().filter(told).count(), homes.iter().filter(|home| !shows(home).is_empty()).count());
    println!("drift is told in {told} of {HOMES} homes, a difference in {wrong}");
    assert!(told * 2 >= HOMES as usize && wrong * 20 <= HOMES as usize, "{told} told, {wrong} wrong");
}

// A home that is too short to show a difference says how many sessions more would show it; with as many, most homes do.
#[test]
fn the_sessions_still_needed_are_about_enough() {
    let short = Home { sessions: 16, shift: 0.35, drift: 0.0 };
    let mut needed: Vec<u64> = Vec::new();
    for seed in 0..HOMES {
        let comparison = play(short, seed);
        let wait = comparison.rows.iter().find(|row| row.metric == Metric::FirstTokenMs).unwrap();
        needed.extend(wait.differences[0].and_then(|found| found.more_units));
        if let (true, Advice::Measure { more_units, .. }) = (shows(&comparison).is_empty(), comparison.advice()) {
            assert!(more_units > 0);
        }
    }
    needed.sort_unstable();
    let median = needed[needed.len() / 2] as usize;
    let longer = Home { sessions: short.sessions + median, ..short };
    let found = (0..HOMES).filter(|seed| shows(&play(longer, *seed)).contains(&Metric::FirstTokenMs)).count();
    println!(
        "{} homes of 16 sessions ask for more, half of them for {median} or fewer; with these {found} show it",
        needed.len()
    );
    assert!(needed.len() > 20 && (10..60).contains(&median), "{median} more for {} homes", needed.len());
    assert!(found * 10 >= HOMES as usize * 6, "{found} of {HOMES}");
}
