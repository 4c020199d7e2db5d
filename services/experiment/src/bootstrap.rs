//! Difference of two arms and its interval, by drawing the measured turns again and again.
//!
//! Clusters are drawn (a user with all turns, a session, a block of neighbouring turns), never single turns: turns of
//! one user resemble each other, and counted as independent they would show differences that do not exist.

use crate::distributions::{normal_cdf, normal_quantile, student_quantile};
use crate::quantiles::{quantile, rank};
use crate::random::SeededRandom;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    pub cluster: u64,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    Median,
    P95,
    Mean,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    Independent, // each arm has clusters of its own
    Shared,      // the same cluster in both arms is the same turns of a replay, and is drawn for both at once
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampling {
    pub seed: u64,
    pub level: f64, // probability that an interval holds the truth: 0.95
    pub resamples: usize,
    /// Widens the interval as much as few clusters need: without it, five clusters promise 95 in 100 and keep 85.
    pub widen: bool,
}

impl Resampling {
    pub fn of(values: usize, level: f64, seed: u64) -> Resampling {
        let resamples = (MOST_WORK / values.max(1)).clamp(LEAST_RESAMPLES, MOST_RESAMPLES);
        Resampling { seed, level, resamples, widen: true }
    }
}

const MOST_WORK: usize = 100_000_000;
const LEAST_RESAMPLES: usize = 2_000;
const MOST_RESAMPLES: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub estimate: f64,
    pub low: f64,
    pub high: f64,
}

/// Estimates `b` less `a`. `None` if one of them is empty.
pub fn difference(
    a: &[Sample],
    b: &[Sample],
    statistic: Statistic,
    pairing: Pairing,
    resampling: &Resampling,
) -> Option<Interval> {
    let (clusters_a, clusters_b) = match pairing {
        Pairing::Independent => (clusters(a), clusters(b)),
        Pairing::Shared => {
            let both = clusters(&[a, b].concat());
            (both.clone(), both)
        }
    };
    let (a, b) = (ClusteredSamples::new(a, &clusters_a), ClusteredSamples::new(b, &clusters_b));
    let all = |clusters: &[u64]| vec![1u32; clusters.len()];
    let estimate = b.statistic(statistic, &all(&clusters_b))? - a.statistic(statistic, &all(&clusters_a))?;
    let mut random = SeededRandom::new(resampling.seed);
    let mut drawn = Vec::with_capacity(resampling.resamples);
    let (mut weights_a, mut weights_b) = (all(&clusters_a), all(&clusters_b));
    for _ in 0..resampling.resamples {
        draw(&mut random, &mut weights_a);
        match pairing {
            Pairing::Independent => draw(&mut random, &mut weights_b),
            Pairing::Shared => weights_b.copy_from_slice(&weights_a),
        }
        // A draw in which an arm is missing from all clusters says nothing.
        if let (Some(a), Some(b)) = (a.statistic(statistic, &weights_a), b.statistic(statistic, &weights_b)) {
            drawn.push(b - a);
        }
    }
    drawn.sort_by(f64::total_cmp);
    let tail = tail(resampling, clusters_a.len().min(clusters_b.len()));
    // So few draws lie beyond a tail of few clusters that the last of them would stand for all: from the last that are known,
    // the interval is drawn out as a normal value is.
    let known = tail.max(LEAST_BEYOND / drawn.len().max(1) as f64).min(0.5);
    let times = if known < 0.5 && tail < known { normal_quantile(tail) / normal_quantile(known) } else { 1.0 };
    let (low, high) = (quantile(&drawn, known)?, quantile(&drawn, 1.0 - known)?);
    let (below, above) = ((estimate - low).max(0.0) * times, (high - estimate).max(0.0) * times);
    Some(Interval { estimate, low: estimate - below, high: estimate + above })
}

const LEAST_TAIL: f64 = 1e-15; // a normal value of it is a number
/// Draws beyond each end of an interval that make it sure.
const LEAST_BEYOND: f64 = 5.0;

fn tail(resampling: &Resampling, clusters: usize) -> f64 {
    let plain = (1.0 - resampling.level) / 2.0;
    if !resampling.widen || clusters < 2 {
        return plain;
    }
    let degrees = (clusters - 1) as f64;
    normal_cdf(((degrees + 1.0) / degrees).sqrt() * student_quantile(plain, degrees)).max(LEAST_TAIL)
}

fn draw(random: &mut SeededRandom, weights: &mut [u32]) {
    weights.fill(0);
    for _ in 0..weights.len() {
        let index = random.below(weights.len());
        weights[index] += 1;
    }
}

fn clusters(samples: &[Sample]) -> Vec<u64> {
    samples.iter().map(|sample| sample.cluster).collect::<BTreeSet<u64>>().into_iter().collect()
}

struct ClusteredSamples {
    values: Vec<(f64, u32)>, // in order, each with the index of its cluster
    sums: Vec<(f64, f64)>,   // sum and count of each cluster
}

impl ClusteredSamples {
    fn new(samples: &[Sample], clusters: &[u64]) -> ClusteredSamples {
        let index: BTreeMap<u64, u32> = clusters.iter().copied().zip(0..).collect();
        let mut values: Vec<(f64, u32)> =
            samples.iter().filter_map(|sample| Some((sample.value, *index.get(&sample.cluster)?))).collect();
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut sums = vec![(0.0, 0.0); clusters.len()];
        for (value, cluster) in &values {
            let sum = &mut sums[*cluster as usize];
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
        ClusteredSamples { values, sums }
    }

    /// Computes the statistic, each value counted as often as its cluster was drawn. `None` if that is never.
    fn statistic(&self, statistic: Statistic, weights: &[u32]) -> Option<f64> {
        if statistic == Statistic::Mean {
            let weighted = self.sums.iter().zip(weights).map(|((sum, count), weight)| {
                let weight = f64::from(*weight);
                (sum * weight, count * weight)
            });
            let (sum, count) = weighted.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
            return (count > 0.0).then(|| sum / count);
        }
        let weight = |cluster: u32| weights.get(cluster as usize).map_or(0, |weight| *weight as usize);
        let n: usize = self.values.iter().map(|(_, cluster)| weight(*cluster)).sum();
        if n == 0 {
            return None;
        }
        let (first, second) = match statistic {
            Statistic::Median => ((n - 1) / 2, n / 2),
            _ => (rank(n, 0.95), rank(n, 0.95)),
        };
        let (mut passed, mut low) = (0, None);
        for (value, cluster) in &self.values {
            passed += weight(*cluster);
            if passed > first {
                low.get_or_insert(*value);
            }
            if passed > second {
                return low.map(|low| (low + value) / 2.0);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = (u64, f64)>) -> Vec<Sample> {
        values.into_iter().map(|(cluster, value)| Sample { cluster, value }).collect()
    }

    fn resampling(seed: u64) -> Resampling {
        Resampling { seed, level: 0.95, resamples: 2_000, widen: true }
    }

    #[test]
    fn what_is_the_same_does_not_differ() {
        let a = samples((0..40).map(|i| (i / 4, i as f64)));
        for statistic in [Statistic::Median, Statistic::P95, Statistic::Mean] {
            let same = difference(&a, &a, statistic, Pairing::Shared, &resampling(1)).unwrap();
            assert_eq!(same, Interval { estimate: 0.0, low: 0.0, high: 0.0 });
            let apart = difference(&a, &a, statistic, Pairing::Independent, &resampling(1)).unwrap();
            assert!(apart.low < 0.0 && apart.high > 0.0 && apart.estimate == 0.0, "{apart:?}");
        }
    }

    #[test]
    fn a_shift_is_found_and_the_seed_decides_the_rest() {
        let a = samples((0..60).map(|i| (i, f64::from((i % 7) as u32))));
        let b: Vec<Sample> = a.iter().map(|sample| Sample { value: sample.value + 10.0, ..*sample }).collect();
        let found = difference(&a, &b, Statistic::Mean, Pairing::Independent, &resampling(3)).unwrap();
        assert!((found.estimate - 10.0).abs() < 1e-9 && found.low > 9.0 && found.high < 11.0, "{found:?}");
        let again = |seed| difference(&a, &b, Statistic::Mean, Pairing::Independent, &resampling(seed));
        assert_eq!(again(3), again(3));
        assert_ne!(again(3), again(4));
    }

    #[test]
    fn of_nothing_nothing_is_said() {
        let a = samples([(0, 1.0)]);
        assert_eq!(difference(&a, &[], Statistic::Mean, Pairing::Shared, &resampling(1)), None);
        assert_eq!(difference(&[], &a, Statistic::Median, Pairing::Independent, &resampling(1)), None);
    }

    /// Turns of few users that differ a lot: counted as if they were independent, chance would look like a finding.
    #[test]
    fn few_clusters_make_wide_intervals() {
        let wide = samples((0..400).map(|i| (i / 100, (i / 100) as f64 * 10.0)));
        let narrow: Vec<Sample> =
            wide.iter().enumerate().map(|(i, sample)| Sample { cluster: i as u64, ..*sample }).collect();
        let width = |samples: &[Sample]| {
            let found = difference(samples, samples, Statistic::Mean, Pairing::Independent, &resampling(1)).unwrap();
            found.high - found.low
        };
        assert!(width(&wide) > 5.0 * width(&narrow), "{} and {}", width(&wide), width(&narrow));
    }

    /// The promise itself: of 400 experiments without a difference, an interval of 95 in 100 misses zero in about 20,
    /// with many clusters and with few.
    #[test]
    fn an_interval_keeps_its_promise() {
        for clusters in [6u64, 30] {
            let mut wrong = 0;
            for seed in 0..400 {
                let mut random = SeededRandom::new(seed * 7 + clusters);
                let mut arm = || {
                    let mut samples = Vec::new();
                    for cluster in 0..clusters {
                        let user = normal(&mut random);
                        samples.extend((0..5).map(|_| Sample { cluster, value: user + normal(&mut random) }));
                    }
                    samples
                };
                let (a, b) = (arm(), arm());
                let options = Resampling { resamples: 600, ..resampling(seed) };
                let found = difference(&a, &b, Statistic::Mean, Pairing::Independent, &options).unwrap();
                wrong += usize::from(found.low > 0.0 || found.high < 0.0);
            }
            assert!((4..=32).contains(&wrong), "{wrong} of 400 with {clusters} clusters");
        }
    }

    /// The same for one row of twenty: few draws lie so far out, and few blocks make them fewer.
    #[test]
    fn an_interval_keeps_a_promise_that_is_hard_to_keep() {
        const TRIES: u64 = 1_000;
        const BLOCKS: u64 = 8;
        let level = 1.0 - 0.05 / 19.0;
        let wrong = (0..TRIES).filter(|seed| {
            let mut random = SeededRandom::new(seed * 13 + BLOCKS);
            let mut arm = || samples((0..BLOCKS).map(|block| (block, normal(&mut random))));
            let (a, b) = (arm(), arm());
            let options = Resampling { level, ..resampling(*seed) };
            let found = difference(&a, &b, Statistic::Mean, Pairing::Shared, &options).unwrap();
            found.low > 0.0 || found.high < 0.0
        });
        let wrong = wrong.count();
        println!("{wrong} of {TRIES} miss zero, where {:.1} may", TRIES as f64 * (1.0 - level));
        assert!(wrong <= 10, "{wrong} of {TRIES}");
    }

    fn normal(random: &mut SeededRandom) -> f64 {
        (0..12).map(|_| random.share()).sum::<f64>() - 6.0
    }
}
