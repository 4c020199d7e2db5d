//! Many numbers summed up in a few.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantiles {
    pub n: usize,
    pub median: f64,
    pub p95: f64,
    pub max: f64,
}

impl Quantiles {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Quantiles> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let max = *values.last()?;
        let n = values.len();
        let median = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
        Some(Quantiles { n, median, p95: values[rank(n, 0.95)], max })
    }
}

pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    Quantiles::of(values).map(|summary| summary.median)
}

/// Returns the smallest of the sorted values that a share of them does not pass.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    if sorted.is_empty() { None } else { sorted.get(rank(sorted.len(), share)).copied() }
}

/// Finds the nearest rank: a measured number, never one between two.
pub(crate) fn rank(n: usize, share: f64) -> usize {
    // A hair less, so that 0.95 of 100 is 95 and not the next number above it.
    ((n as f64 * share - 1e-9).ceil().max(1.0) as usize).min(n) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_nearest_rank() {
        let summary = Quantiles::of((1..=100).rev().map(f64::from)).unwrap();
        assert_eq!(summary, Quantiles { n: 100, median: 50.5, p95: 95.0, max: 100.0 });
        assert_eq!(Quantiles::of([3.0]).unwrap(), Quantiles { n: 1, median: 3.0, p95: 3.0, max: 3.0 });
        assert_eq!(Quantiles::of([2.0, 9.0, 1.0]).unwrap(), Quantiles { n: 3, median: 2.0, p95: 9.0, max: 9.0 });
        assert_eq!(Quantiles::of([]), None);
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!((quantile(&[1.0, 2.0], 0.0), quantile(&[1.0, 2.0], 1.0)), (Some(1.0), Some(2.0)));
    }
}
