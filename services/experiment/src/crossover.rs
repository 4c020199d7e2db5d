//! Difference of two arms that the same users met in turn: sessions or days of one user, drawn for the arms in blocks.
//!
//! A user is a block: users differ more from each other than arms do, and all of that falls out. What is left is a line
//! with three terms, by least squares: the user's own level, the arm, and the number of the period, because a home changes
//! while an experiment runs.

use crate::bootstrap::Interval;
use crate::distributions::{student_quantile, student_tail};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    pub user: u64,
    pub number: u64, // among those of its user
    pub is_other: bool,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossover {
    pub estimate: f64,       // of the other arm, less the first
    pub standard_error: f64, // of the estimate
    pub degrees: f64,
    pub periods: usize,
    /// Change from one period to the next, whatever the arm, and the probability of such a change by chance.
    pub drift: f64,
    pub drift_p: f64,
}

const ROUNDING: f64 = 1e-12;

impl Crossover {
    /// Fits the line. `None` if no user met both arms, or too few periods are left to tell how much they scatter.
    pub fn fit(periods: &[Period]) -> Option<Crossover> {
        let mut of_user: BTreeMap<u64, Vec<&Period>> = BTreeMap::new();
        for period in periods.iter().filter(|period| period.value.is_finite()) {
            of_user.entry(period.user).or_default().push(period);
        }
        of_user.retain(|_, periods| {
            let arms: BTreeSet<bool> = periods.iter().map(|period| period.is_other).collect();
            arms.len() == 2
        });
        let (mut sums, mut count) = (Sums::default(), 0);
        for periods in of_user.values() {
            let rows: Vec<[f64; 3]> = periods.iter().map(|period| row(period)).collect();
            let mean: [f64; 3] =
                std::array::from_fn(|i| rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64);
            rows.iter().for_each(|row| sums.add(std::array::from_fn(|i| row[i] - mean[i])));
            count += rows.len();
        }
        let degrees = count as f64 - of_user.len() as f64 - 2.0;
        let [[arms, both], [_, numbers]] = sums.terms;
        let determinant = arms * numbers - both * both;
        // Where arm and number go together, neither has a share of its own.
        if degrees < 1.0 || determinant <= 1e-9 * arms * numbers {
            return None;
        }
        let [with_arm, with_number] = sums.with_value;
        // Values that are the same in each period differ by what rounding leaves of them, which is no finding.
        let largest = of_user.values().flatten().map(|period| period.value.abs()).fold(0.0, f64::max);
        let unless_rounded = |value: f64| if value.abs() <= ROUNDING * largest { 0.0 } else { value };
        let estimate = unless_rounded((numbers * with_arm - both * with_number) / determinant);
        let drift = unless_rounded((arms * with_number - both * with_arm) / determinant);
        let left = (sums.values - estimate * with_arm - drift * with_number).max(0.0);
        let error = |share: f64| (left / degrees * share / determinant).sqrt();
        let (standard_error, drift_error) = (error(numbers), error(arms));
        let drift_p = if drift == 0.0 { 1.0 } else { 2.0 * student_tail((drift / drift_error).abs(), degrees) };
        Some(Crossover { estimate, standard_error, degrees, periods: count, drift, drift_p })
    }

    pub fn interval(&self, level: f64) -> Interval {
        let half = student_quantile(0.5 + level / 2.0, self.degrees) * self.standard_error;
        Interval { estimate: self.estimate, low: self.estimate - half, high: self.estimate + half }
    }
}

fn row(period: &Period) -> [f64; 3] {
    [f64::from(u8::from(period.is_other)), period.number as f64, period.value]
}

// Sums of products, of rows whose user's mean is taken away.
#[derive(Default)]
struct Sums {
    terms: [[f64; 2]; 2], // of arm and number
    with_value: [f64; 2],
    values: f64,
}

impl Sums {
    fn add(&mut self, [arm, number, value]: [f64; 3]) {
        let terms = [arm, number];
        for (i, term) in terms.into_iter().enumerate() {
            (0..2).for_each(|j| self.terms[i][j] += term * terms[j]);
            self.with_value[i] += term * value;
        }
        self.values += value * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(user: u64, number: u64, is_other: bool, value: f64) -> Period {
        Period { user, number, is_other, value }
    }

    #[test]
    fn users_and_drift_fall_out() {
        // Levels of 10 and 1000, a drift of 2 a period, and 5 more in the other arm.
        let periods: Vec<Period> = (0..16)
            .map(|i| {
                let (user, number, is_other) = (i % 2, i / 2, (i / 2 + i) % 2 == 1);
                let level = if user == 0 { 10.0 } else { 1000.0 };
                let noise = if i / 4 % 2 == 0 { 0.01 } else { -0.01 };
                period(
                    user,
                    number,
                    is_other,
                    level + 2.0 * number as f64 + 5.0 * f64::from(u8::from(is_other)) + noise,
                )
            })
            .collect();
        let found = Crossover::fit(&periods).unwrap();
        assert!((found.estimate - 5.0).abs() < 0.02 && (found.drift - 2.0).abs() < 0.02, "{found:?}");
        assert!(found.drift_p < 1e-6 && found.degrees == 12.0, "{found:?}");
        let interval = found.interval(0.95);
        assert!(interval.low < 5.0 && interval.high > 5.0 && interval.high - interval.low < 0.1, "{interval:?}");
    }

    #[test]
    fn what_rounding_leaves_of_equal_values_is_no_finding() {
        for (small, large) in [(0.421, 0.2105), (1.0 / 3.0, 1.0 / 3.0), (0.1, 0.1), (1e9 / 7.0, 1e9 / 7.0)] {
            for periods in [17, 20, 31] {
                let of = |n: u64| {
                    let is_other = (n / 3 + n % 3).is_multiple_of(2);
                    period(n % 3, n / 3, is_other, if is_other { large } else { small })
                };
                let periods: Vec<Period> = (0..periods).map(of).collect();
                let found = Crossover::fit(&periods).unwrap();
                assert_eq!((found.drift, found.drift_p), (0.0, 1.0), "{found:?}");
                let interval = found.interval(0.95);
                assert_eq!(interval.low > 0.0 || interval.high < 0.0, small != large, "{interval:?}");
            }
        }
    }

    #[test]
    fn who_met_one_arm_says_nothing() {
        let one_arm: Vec<Period> = (0..10).map(|number| period(number % 2, number, number % 2 == 0, 1.0)).collect();
        assert_eq!(Crossover::fit(&one_arm), None);
        assert_eq!(Crossover::fit(&[]), None);
        // Two periods cannot tell how much periods scatter; and an arm that is a half of the time is the time.
        let two = [period(0, 0, false, 1.0), period(0, 1, true, 2.0)];
        assert_eq!(Crossover::fit(&two), None);
    }
}
