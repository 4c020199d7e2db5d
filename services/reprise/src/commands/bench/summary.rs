//! Many numbers as a few.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

impl Summary {
    /// None of nothing.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let n = values.len();
        // The smallest value that 95 in 100 do not pass.
        let p95 = values[(n * 95).div_ceil(100) - 1];
        Some(Summary { n, median: (values[(n - 1) / 2] + values[n / 2]) / 2.0, p95, max })
    }
}

pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Summary::of(values).map(|summary| summary.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_nearest_rank() {
        let summary = Summary::of((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!(summary, Summary { n: 100, median: 50.5, p95: 95.0, max: 100.0 });
        assert_eq!(Summary::of([3.0]).unwrap(), Summary { n: 1, median: 3.0, p95: 3.0, max: 3.0 });
        assert_eq!(Summary::of([2.0, 9.0, 1.0]).unwrap(), Summary { n: 3, median: 2.0, p95: 9.0, max: 9.0 });
        assert_eq!(Summary::of([]), None);
    }
}
