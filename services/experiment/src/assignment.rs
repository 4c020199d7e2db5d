//! Assignment of users to arms: a pure function of the experiment's name, the user's id and the weights.
//!
//! The first eight bytes of SHA-256 over `experiment 0x00 user`, read as a big-endian number and divided by 2^64, are
//! the user's place between 0 and 1. The arms, sorted by name, lie side by side on that line, each as wide as its share
//! of the weights. So the same user is in the same arm for ever, in every process and on every machine, and two
//! experiments with different names split users independently.

use crate::random::SeededRandom;
use sha2::{Digest, Sha256};

#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    pub name: String,
    pub weight: f64, // only its share of all weights counts
}

pub fn assign<'a>(experiment: &str, user: &str, arms: &'a [Arm]) -> Option<&'a Arm> {
    let mut arms: Vec<&Arm> = arms.iter().filter(|arm| arm.weight > 0.0 && arm.weight.is_finite()).collect();
    arms.sort_by(|a, b| a.name.cmp(&b.name));
    let all: f64 = arms.iter().map(|arm| arm.weight).sum();
    let mut left = place(experiment, user) * all;
    for arm in &arms {
        left -= arm.weight;
        if left < 0.0 {
            return Some(arm);
        }
    }
    arms.last().copied()
}

/// Draws an arm for a user's day of this number, counted from 0. Days come in blocks, each of which has every arm as often as
/// its weight says, in an order that follows from the hash of experiment, user and block: so a user meets all arms soon, and as
/// often in the evening of the experiment as in its morning.
pub fn assign_in_turn<'a>(experiment: &str, user: &str, number: u64, arms: &'a [Arm]) -> Option<&'a Arm> {
    let mut slots = slots(arms);
    let (block, at) = (number / slots.len().max(1) as u64, number % slots.len().max(1) as u64);
    SeededRandom::new(hash(experiment, &format!("{user}\0{block}"))).shuffle(&mut slots);
    slots.get(at as usize).copied()
}

/// Draws an arm for a user's next session, of those that its block still lacks. `had` are the sessions that the user has in each
/// arm, and `draw` is a number that no other draw has. Sessions that were deleted are not in `had`: a number of the session
/// would stand still where each new one takes the place of an old one, and the user would meet one arm only.
pub fn assign_next<'a>(
    experiment: &str,
    user: &str,
    had: &[(String, u64)],
    draw: u64,
    arms: &'a [Arm],
) -> Option<&'a Arm> {
    let slots = slots(arms);
    let count = |arm: &Arm| had.iter().filter(|(name, _)| *name == arm.name).map(|(_, count)| *count).sum::<u64>();
    let mut counts: Vec<(&Arm, u64, u64)> = Vec::new(); // with the sessions of a block, and those that were had
    for arm in slots.iter().copied() {
        match counts.last_mut() {
            Some((last, of_block, _)) if last.name == arm.name => *of_block += 1,
            _ => counts.push((arm, 1, count(arm))),
        }
    }
    let all: u64 = counts.iter().map(|(_, _, had)| had).sum();
    let blocks = all / slots.len().max(1) as u64 + 1;
    let lacking = counts.iter().flat_map(|(arm, of_block, had)| {
        let left = (of_block * blocks).saturating_sub(*had);
        std::iter::repeat_n(*arm, usize::try_from(left).unwrap_or(usize::MAX))
    });
    let lacking: Vec<&Arm> = lacking.take(MOST_LACKING).collect();
    SeededRandom::new(hash(experiment, &format!("{user}\0{draw}"))).pick(&lacking).copied()
}

const MOST_LACKING: usize = 10_000;
// Most places of an arm in a block: weights that differ more are rounded.
const MOST_PLACES: f64 = 8.0;
const NEAR: f64 = 0.01; // of a share of a block to that of a weight

// Lists the arms of a block, sorted by name, each as often as it weighs: of the least blocks the first that is near.
fn slots(arms: &[Arm]) -> Vec<&Arm> {
    let mut arms: Vec<&Arm> = arms.iter().filter(|arm| arm.weight > 0.0 && arm.weight.is_finite()).collect();
    arms.sort_by(|a, b| a.name.cmp(&b.name));
    let least = arms.iter().map(|arm| arm.weight).fold(f64::INFINITY, f64::min);
    let all: f64 = arms.iter().map(|arm| arm.weight / least).sum();
    let block = |times: u32| -> (f64, Vec<f64>) {
        let count = |arm: &&Arm| (arm.weight / least * f64::from(times)).round().min(MOST_PLACES);
        let counts: Vec<f64> = arms.iter().map(count).collect();
        let places: f64 = counts.iter().sum();
        let miss = |(arm, count): (&&Arm, &f64)| (count / places - arm.weight / least / all).abs();
        (arms.iter().zip(&counts).map(miss).fold(0.0, f64::max), counts)
    };
    let blocks: Vec<(f64, Vec<f64>)> = (1..=MOST_PLACES as u32).map(block).collect();
    let near = blocks.iter().find(|(miss, _)| *miss < NEAR);
    let Some((_, counts)) = near.or_else(|| blocks.iter().min_by(|a, b| a.0.total_cmp(&b.0))) else {
        return Vec::new();
    };
    arms.iter().zip(counts).flat_map(|(arm, count)| std::iter::repeat_n(*arm, *count as usize)).collect()
}

fn place(experiment: &str, user: &str) -> f64 {
    hash(experiment, user) as f64 / 2f64.powi(64)
}

fn hash(experiment: &str, user: &str) -> u64 {
    let hash = Sha256::new().chain_update(experiment).chain_update([0]).chain_update(user).finalize();
    hash.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square;
    use proptest::prelude::*;

    fn arms(weights: &[(&str, f64)]) -> Vec<Arm> {
        weights.iter().map(|(name, weight)| Arm { name: (*name).into(), weight: *weight }).collect()
    }

    /// Recipe in Python: `int.from_bytes(hashlib.sha256(b"windows\0" + user).digest()[:8], "big") / 2**64`.
    #[test]
    fn the_place_is_what_the_recipe_says() {
        for (user, expected) in [("ann", PLACE_OF_ANN), ("bob", PLACE_OF_BOB), ("", PLACE_OF_NOBODY)] {
            assert!((place("windows", user) - expected).abs() < 1e-15, "{user}: {}", place("windows", user));
        }
    }

    const PLACE_OF_ANN: f64 = 0.3196159272278636;
    const PLACE_OF_BOB: f64 = 0.6004881285521617;
    const PLACE_OF_NOBODY: f64 = 0.04278090450181585;

    /// Chi-square over 100,000 ids, for several experiments and weights. A right function has one value of p in twenty
    /// below 0.05: the test demands about as many, and none that is absurd.
    #[test]
    fn a_hundred_thousand_users_are_split_as_the_weights_say() {
        let mut unlikely = 0;
        for experiment in ["windows", "kv", "thinking", "tail", "a", "b", "spring", "autumn"] {
            for weights in [vec![1.0, 1.0], vec![1.0, 3.0], vec![0.2, 0.3, 0.5]] {
                let arms: Vec<Arm> =
                    (0..).zip(&weights).map(|(i, weight)| Arm { name: format!("arm_{i}"), weight: *weight }).collect();
                let mut counts = vec![0u64; arms.len()];
                for user in 0..100_000 {
                    let arm = assign(experiment, &format!("user_{user}"), &arms).unwrap();
                    counts[arms.iter().position(|other| other == arm).unwrap()] += 1;
                }
                let p = chi_square(&counts, &weights).unwrap();
                assert!(p > 1e-4, "{experiment}: {counts:?} has p = {p}");
                unlikely += usize::from(p < 0.05);
            }
        }
        assert!(unlikely <= 5, "{unlikely} of 24 are below 0.05");
    }

    #[test]
    fn the_balance_test_can_fail() {
        assert!(chi_square(&[50_500, 49_500], &[1.0, 1.0]).unwrap() < 0.01);
        assert!(chi_square(&[50_000, 50_000], &[1.0, 1.01]).unwrap() > 0.01);
        assert_eq!(chi_square(&[1, 9], &[0.0, 1.0]), Some(0.0));
        assert_eq!(chi_square(&[0, 0], &[1.0, 1.0]), None);
    }

    #[test]
    fn experiments_are_independent() {
        let arms = arms(&[("a", 1.0), ("b", 1.0)]);
        let mut counts = [0u64; 4];
        for user in 0..100_000 {
            let user = format!("user_{user}");
            let index = |experiment| usize::from(assign(experiment, &user, &arms).unwrap().name == "b");
            counts[2 * index("windows") + index("kv")] += 1;
        }
        assert!(chi_square(&counts, &[1.0; 4]).unwrap() > 0.01, "{counts:?}");
    }

    #[test]
    fn a_user_meets_each_arm_once_in_each_block() {
        let two = arms(&[("a", 1.0), ("b", 1.0)]);
        let uneven = arms(&[("a", 1.0), ("b", 2.0), ("c", 0.0)]);
        let mut orders = std::collections::BTreeSet::new();
        for user in (0..40).map(|user| format!("user_{user}")) {
            for (arms, block, of_b) in [(&two, 2, 1), (&uneven, 3, 2)] {
                for first in (0..60).step_by(block) {
                    let names: Vec<&str> = (first..first + block)
                        .map(|number| assign_in_turn("x", &user, number as u64, arms).unwrap().name.as_str())
                        .collect();
                    assert_eq!(names.iter().filter(|name| **name == "b").count(), of_b, "{names:?}");
                    orders.insert(names.concat());
                }
            }
        }
        assert_eq!(orders.len(), 2 + 3, "every order comes: {orders:?}");
        assert_eq!(assign_in_turn("x", "ann", 3, &[]), None);
        let huge = arms(&[("a", 1e-9), ("b", 1e9)]);
        assert!((0..9).all(|number| assign_in_turn("x", "ann", number, &huge).is_some()));
    }

    #[test]
    fn a_block_has_each_arm_as_often_as_it_weighs() {
        for (weights, expected) in [
            (&[1.0, 1.0][..], &[1, 1][..]),
            (&[2.0, 3.0], &[2, 3]),
            (&[0.4, 0.6], &[2, 3]),
            (&[1.0, 1.4], &[5, 7]),
            (&[1.0, 2.0, 4.0], &[1, 2, 4]),
            (&[1.0, 1000.0], &[1, 8]),
        ] {
            let arms: Vec<Arm> =
                (0..).zip(weights).map(|(i, weight)| Arm { name: format!("{i}"), weight: *weight }).collect();
            let slots = slots(&arms);
            let counts: Vec<usize> =
                arms.iter().map(|arm| slots.iter().filter(|slot| slot.name == arm.name).count()).collect();
            assert_eq!(counts, expected, "{weights:?}");
        }
        assert!(slots(&[]).is_empty());
    }

    /// Plays a user with `kept` sessions at most: each new one takes the place of the oldest one.
    fn met(kept: usize, arms: &[Arm], sessions: u64) -> Vec<String> {
        let mut met: Vec<String> = Vec::new();
        for draw in 0..sessions {
            let now = &met[met.len().saturating_sub(kept)..];
            let had: Vec<(String, u64)> = arms
                .iter()
                .map(|arm| (arm.name.clone(), now.iter().filter(|name| **name == arm.name).count() as u64))
                .collect();
            met.push(assign_next("x", "ann", &had, draw * 3, arms).unwrap().name.clone());
        }
        met
    }

    #[test]
    fn sessions_come_in_blocks_also_where_old_ones_are_deleted() {
        let (two, uneven) = (arms(&[("a", 1.0), ("b", 1.0)]), arms(&[("a", 1.0), ("b", 2.0), ("c", 0.0)]));
        let of = |names: &[String], arm: &str| names.iter().filter(|name| *name == arm).count();
        for (arms, block, of_b) in [(&two, 2, 1), (&uneven, 3, 2)] {
            let all = met(1000, arms, 60);
            assert!(all.chunks(block).all(|names| of(names, "b") == of_b), "{all:?}");
            for kept in 0..8 {
                let names = met(kept, arms, 600);
                let share = of(&names, "b") as f64 / 600.0;
                assert!((share - of_b as f64 / block as f64).abs() < 0.07, "{kept} kept: {share}");
                assert!(names.chunks(60).all(|names| of(names, "a") > 4), "{kept} kept: {names:?}");
            }
        }
        let orders: std::collections::BTreeSet<String> =
            met(1000, &two, 60).chunks(2).map(|pair| pair.concat()).collect();
        assert_eq!(orders.len(), 2);
        let foreign = [("gone".to_owned(), 9), ("a".to_owned(), 1)];
        assert_eq!(assign_next("x", "ann", &foreign, 1, &two).unwrap().name, "b", "an arm that is not there any more");
        assert_eq!(assign_next("x", "ann", &[], 1, &[]), None);
        assert!(assign_next("x", "ann", &[("a".to_owned(), u64::MAX / 16)], 1, &two).is_some());
    }

    #[test]
    fn an_arm_without_weight_gets_nobody() {
        let arms = arms(&[("a", 0.0), ("b", 1.0), ("c", f64::NAN)]);
        assert!((0..1000).all(|user| assign("x", &user.to_string(), &arms).unwrap().name == "b"));
        assert_eq!(assign("x", "ann", &arms[..1]), None);
        assert_eq!(assign("x", "ann", &[]), None);
    }

    proptest! {
        /// The order of arms in a file changes nothing, and an arm with more weight loses no user.
        #[test]
        fn stable(experiment in "\\PC{0,12}", user in "\\PC{0,24}", more in 1.0f64..10.0) {
            let two = arms(&[("a", 1.0), ("b", 1.0)]);
            let turned = arms(&[("b", 1.0), ("a", 1.0)]);
            let first = assign(&experiment, &user, &two).unwrap();
            prop_assert_eq!(&first.name, &assign(&experiment, &user, &turned).unwrap().name);
            let heavier = arms(&[("a", 1.0), ("b", more)]);
            if first.name == "b" {
                prop_assert_eq!("b", &assign(&experiment, &user, &heavier).unwrap().name);
            }
        }
    }
}
