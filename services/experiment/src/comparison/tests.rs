use super::*;
use crate::SeededRandom;

fn live(users: u64, seed: u64, shift: f64) -> Vec<ArmTurn> {
    let mut random = SeededRandom::new(seed);
    let mut turns = Vec::new();
    for user in 0..users {
        let arm = (user % 2) as usize;
        let pace = 80.0 + 40.0 * random.share();
        for session in 0..3 {
            for turn in 0..6 {
                let first_token_ms = pace + 20.0 * random.share() + if arm == 1 { shift } else { 0.0 };
                turns.push(ArmTurn {
                    arm,
                    user,
                    session: user * 10 + session,
                    pair: 0,
                    period: session,
                    turn,
                    values: BTreeMap::from([
                        (Metric::FirstTokenMs, first_token_ms),
                        (Metric::BargeIns, f64::from(u8::from(random.share() < 0.2))),
                    ]),
                });
            }
        }
    }
    turns
}

fn arms() -> Vec<String> {
    vec!["small".to_owned(), "large".to_owned()]
}

fn verdicts(comparison: &Comparison) -> Vec<DifferenceVerdict> {
    comparison.rows.iter().flat_map(|row| row.differences.iter().flatten().map(|found| found.verdict)).collect()
}

#[test]
fn a_longer_wait_is_shown_and_the_rest_is_not() {
    let found = compare(&arms(), &[1.0, 1.0], &live(60, 1, 60.0), DrawnUnit::User, 1);
    assert_eq!(found.unit, ComparedUnit::Users);
    assert_eq!(verdicts(&found), [DifferenceVerdict::Higher, DifferenceVerdict::NoDifferenceShown]);
    let wait = found.rows[0].differences[0].unwrap();
    assert!((wait.interval.estimate - 60.0).abs() < 20.0, "{wait:?}");
    assert!(
        (wait.relative.unwrap() - wait.interval.estimate / found.rows[0].cells[0].unwrap().summary.median).abs() < 1e-9
    );
    let rate = found.rows[1].cells[0].unwrap().rate.unwrap();
    assert!(rate.low < 0.2 && rate.high > 0.2 && rate.hits > 60, "{rate:?}");
    assert_eq!(found.warnings, []);
}

#[test]
fn equal_arms_show_no_difference_in_nine_of_ten_seeds() {
    let shown = (0..20).filter(|seed| {
        let found = compare(&arms(), &[1.0, 1.0], &live(60, *seed, 0.0), DrawnUnit::User, *seed);
        verdicts(&found).iter().any(|verdict| *verdict != DifferenceVerdict::NoDifferenceShown)
    });
    assert!(shown.count() <= 2);
}

#[test]
fn few_users_are_told_and_sessions_are_compared() {
    let found = compare(&arms(), &[1.0, 1.0], &live(6, 1, 0.0), DrawnUnit::User, 1);
    assert_eq!(found.unit, ComparedUnit::Sessions);
    let words: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
    assert!(words[0].contains("small has 3 users, and 8 are the least"), "{words:?}");
    let found = compare(&arms(), &[1.0, 1.0], &live(2, 1, 500.0), DrawnUnit::User, 1);
    assert!(verdicts(&found).iter().all(|verdict| *verdict == DifferenceVerdict::TooFew), "{:?}", verdicts(&found));
}

#[test]
fn uneven_traffic_is_told() {
    let mut turns = live(80, 1, 0.0);
    turns.retain(|turn| turn.arm == 0 || turn.user < 20);
    let found = compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1);
    assert!(
        matches!(found.warnings[0], Warning::UnevenUsers { ref users, .. } if *users == [40, 10]),
        "{:?}",
        found.warnings
    );
    let words = found.warnings[0].to_string();
    assert!(words.starts_with("the arms have [40, 10] users, which their weights make unlikely (p = 0.00"), "{words}");
    assert_eq!(compare(&arms(), &[4.0, 1.0], &turns, DrawnUnit::User, 1).warnings, []);

    let mut turns = live(60, 1, 0.0);
    turns.retain(|turn| turn.arm == 0 || turn.turn < 3);
    let words = compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1).warnings[0].to_string();
    assert!(words.contains("sessions of large have 3.0 turns, those of the first arm 6.0"), "{words}");

    let mut turns = live(60, 1, 0.0);
    turns.iter_mut().filter(|turn| turn.user == 4 && turn.session == 41).for_each(|turn| turn.arm = 1);
    assert_eq!(
        compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1).warnings,
        [Warning::UsersInSeveralArms { users: 1 }]
    );
}

#[test]
fn an_arm_without_turns_is_no_trouble() {
    let mut turns = live(30, 1, 0.0);
    turns.retain(|turn| turn.arm == 0);
    let found = compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1);
    assert!(found.rows.iter().all(|row| row.cells[1].is_none() && row.differences == [None]));
    assert_eq!(found.warnings[0], Warning::NoTurns { arm: "large".to_owned() });
    assert_eq!(compare(&arms(), &[], &[], DrawnUnit::Turn, 1).rows, []);
}

/// The same turns at the same time: their common load cannot hide a small difference.
#[test]
fn pairs_see_more_than_single_turns() {
    let play = |shift: f64| {
        let mut random = SeededRandom::new(5);
        let mut turns = Vec::new();
        for turn in 0..120 {
            let mood = 300.0 * random.share();
            for arm in 0..2 {
                let first_token_ms = mood + 4.0 * random.share() + if arm == 1 { shift } else { 0.0 };
                let values = BTreeMap::from([(Metric::FirstTokenMs, first_token_ms)]);
                let (session, pair) = (arm as u64, pair_blocks(0, turn));
                turns.push(ArmTurn { arm, user: 0, session, pair, period: 0, turn, values });
            }
        }
        turns
    };
    let found = |shift| verdicts(&compare(&arms(), &[], &play(shift), DrawnUnit::Turn, 1))[0];
    assert_eq!(found(12.0), DifferenceVerdict::Higher);
    assert_eq!(found(0.0), DifferenceVerdict::NoDifferenceShown);
    let short: Vec<ArmTurn> = play(12.0).into_iter().filter(|turn| turn.turn < 20).collect();
    let short = compare(&arms(), &[], &short, DrawnUnit::Turn, 1);
    assert_eq!(verdicts(&short), [DifferenceVerdict::TooFew]);
    assert_eq!(short.warnings, [Warning::TooFewPairs { blocks: 4, least: LEAST_UNITS }]);
}

/// One user of many that met both arms does not stand for all.
#[test]
fn a_few_who_met_both_arms_do_not_leave_the_many_out() {
    let mut turns = live(60, 1, 60.0);
    turns.iter_mut().filter(|turn| turn.user == 4 && turn.session == 41).for_each(|turn| turn.arm = 1);
    let found = compare(&arms(), &[], &turns, DrawnUnit::Session, 1);
    assert_eq!(found.unit, ComparedUnit::Users);
    assert_eq!(verdicts(&found)[0], DifferenceVerdict::Higher);
    assert_eq!(found.warnings, [Warning::UsersInSeveralArms { users: 1 }]);
    // In a home they are all there is.
    turns.retain(|turn| turn.user < 8);
    assert_eq!(compare(&arms(), &[], &turns, DrawnUnit::Session, 1).unit, ComparedUnit::OwnSessions);
}

#[test]
fn where_little_was_measured_no_arm_is_advised() {
    let mut turns = live(30, 1, 0.0);
    let enough = compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1);
    assert!(matches!(enough.advice(), Advice::Measure { .. } | Advice::Nothing), "{:?}", enough.advice());
    turns.retain(|turn| turn.arm == 0);
    let empty = compare(&arms(), &[1.0, 1.0], &turns, DrawnUnit::User, 1);
    assert_eq!(empty.advice(), Advice::TooLittle, "an arm without a turn");
    assert_eq!(compare(&arms()[..1], &[], &turns, DrawnUnit::User, 1).advice(), Advice::TooLittle, "one arm");
    assert_eq!(compare(&arms(), &[], &[], DrawnUnit::Session, 1).advice(), Advice::TooLittle);
    // A clear difference of two users asks for the users that any verdict needs.
    let two = compare(&arms(), &[], &live(2, 1, 500.0), DrawnUnit::User, 1);
    assert_eq!(verdicts(&two)[0], DifferenceVerdict::TooFew);
    let more = two.rows[0].differences[0].unwrap().more_units;
    assert_eq!((two.unit, more), (ComparedUnit::Sessions, Some(2 * (LEAST_UNITS as u64 - 3))));
}
