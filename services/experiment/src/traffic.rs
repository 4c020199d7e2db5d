//! Checks that arms got the users that their weights promise. If not, something other than chance sent them, and the
//! comparison cannot be trusted.

use crate::distributions::chi_square_tail;

/// Probability that counts differ from the weights at least this much by chance. `None` if there is nothing to compare.
pub fn chi_square(counts: &[u64], weights: &[f64]) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let weight: f64 = weights.iter().sum();
    if counts.len() != weights.len() || counts.len() < 2 || all == 0 || weight <= 0.0 {
        return None;
    }
    let expected = weights.iter().map(|share| share / weight * all as f64);
    let mut value = 0.0;
    for (count, expected) in counts.iter().zip(expected) {
        match expected > 0.0 {
            true => value += (*count as f64 - expected).powi(2) / expected,
            // A user is in an arm without weight.
            false if *count > 0 => return Some(0.0),
            false => {}
        }
    }
    let arms = weights.iter().filter(|share| **share > 0.0).count();
    if arms < 2 { None } else { Some(chi_square_tail(value, (arms - 1) as f64)) }
}
