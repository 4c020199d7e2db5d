//! Assignment of users to arms: a pure function of the experiment's name, the user's id and the weights.
//!
//! The first eight bytes of SHA-256 over `experiment 0x00 user`, read as a big-endian number and divided by 2^64, are
//! the user's place between 0 and 1. The arms, sorted by name, lie side by side on that line, each as wide as its share
//! of the weights. So the same user is in the same arm for ever, in every process and on every machine, and two
//! experiments with different names split users independently.

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

fn place(experiment: &str, user: &str) -> f64 {
    let hash = Sha256::new().chain_update(experiment).chain_update([0]).chain_update(user).finalize();
    let head = hash.iter().take(8).fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    head as f64 / 2f64.powi(64)
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
