//! Tails and quantiles, by `statrs`. A golden of SciPy holds them.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal, StudentsT};

/// Probability that a chi-square value is at least this large by chance.
pub fn chi_square_tail(value: f64, degrees: f64) -> f64 {
    ChiSquared::new(degrees).map_or(1.0, |chi_square| chi_square.sf(value))
}

pub fn normal_cdf(z: f64) -> f64 {
    Normal::standard().cdf(z)
}

/// Value that Student's t stays below with this probability.
pub fn student_quantile(probability: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::NAN, |student| student.inverse_cdf(probability))
}

pub fn student_tail(value: f64, degrees: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees).map_or(1.0, |student| student.sf(value))
}

/// Value that a normal value stays below with this probability.
pub fn normal_quantile(probability: f64) -> f64 {
    Normal::standard().inverse_cdf(probability)
}
