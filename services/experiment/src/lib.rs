//! Experiments: assignment of users to arms, and differences between arms. Floor 0.
//!
//! Knows no configuration, no store and no clock: names, weights and numbers are arguments.

mod assignment;
mod bootstrap;
mod comparison;
mod distributions;
mod proportion;
mod quantiles;
mod random;
mod traffic;

pub use assignment::{Arm, assign};
pub use bootstrap::{Interval, Pairing, Resampling, Sample, Statistic, difference};
pub use comparison::{
    ArmSummary, ArmTurn, Better, ComparedUnit, Comparison, Difference, DifferenceVerdict, Metric, MetricRow,
    MetricUnit, Rate, Traffic, Warning, compare, pair_blocks,
};
pub use distributions::{chi_square_tail, normal_cdf, student_quantile};
pub use proportion::wilson;
pub use quantiles::{Quantiles, median, quantile};
pub use random::SeededRandom;
pub use traffic::chi_square;
