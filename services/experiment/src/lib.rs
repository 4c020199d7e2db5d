//! Experiments: which arm a user is in, and whether arms differ. Floor 0.
//!
//! Knows no configuration, no store and no clock: who uses it brings names, weights and numbers.

mod assignment;
mod bootstrap;
mod comparison;
mod distributions;
mod proportion;
mod random;
mod summary;
mod traffic;

pub use assignment::{Arm, assign};
pub use bootstrap::{Interval, Pairing, Resampling, Sample, Statistic, difference};
pub use comparison::{
    Better, Cell, Comparison, Difference, Metric, Rate, Row, Traffic, Turn, Unit, Verdict, Warning, compare,
    pair_blocks,
};
pub use distributions::{chi_square_tail, normal_cdf, student_quantile};
pub use proportion::wilson;
pub use random::Random;
pub use summary::{Summary, median, quantile};
pub use traffic::chi_square;
