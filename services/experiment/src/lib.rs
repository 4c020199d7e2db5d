//! Experiments: assignment of users to arms, and differences between arms. Floor 0.
//!
//! Knows no configuration, no store and no clock: names, weights and numbers are arguments.

mod assignment;
mod bootstrap;
mod comparison;
mod crossover;
mod distributions;
mod proportion;
mod quantiles;
mod random;
mod traffic;

pub use assignment::{Arm, assign, assign_in_turn, assign_next};
pub use bootstrap::{Interval, Pairing, Resampling, Sample, Statistic, difference};
pub use comparison::{
    Advice, ArmSummary, ArmTurn, Better, ComparedUnit, Comparison, Difference, DifferenceVerdict, DrawnUnit, Metric,
    MetricRow, MetricUnit, Rate, Traffic, Warning, compare, pair_blocks,
};
pub use crossover::{Crossover, Period};
pub use distributions::{chi_square_tail, normal_cdf, normal_quantile, student_quantile, student_tail};
pub use proportion::wilson;
pub use quantiles::{Quantiles, median, quantile};
pub use random::SeededRandom;
pub use traffic::chi_square;
