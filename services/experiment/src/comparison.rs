//! Arms side by side: differences that are shown, differences that are not, and warnings.

mod advice;
mod metric;
mod warning;

pub use advice::Advice;
pub use metric::{Better, Metric, MetricUnit};
pub use warning::Warning;

use crate::bootstrap::{Interval, Pairing, Resampling, Sample, Statistic, difference};
use crate::crossover::{Crossover, Period};
use crate::distributions::normal_quantile;
use crate::proportion::wilson;
use crate::quantiles::Quantiles;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq)]
pub struct ArmTurn {
    pub arm: usize, // index into the arms
    pub user: u64,
    pub session: u64,
    /// Number that turns of different arms share in a replay if they were said at the same time.
    pub pair: u64,
    pub period: u64,
    pub turn: u64,
    pub values: BTreeMap<Metric, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedUnit {
    Users,
    Sessions,    // with too few users
    Pairs,       // blocks of turns that every arm heard at the same time
    OwnSessions, // if each user met every arm in turn
    OwnDays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrawnUnit {
    Turn, // a replay, where all arms hear the same
    User,
    Session,
    Day,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub arms: Vec<String>,
    pub unit: ComparedUnit,
    pub level: f64, // probability that all intervals hold together
    pub traffic: Vec<Traffic>,
    pub rows: Vec<MetricRow>,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic {
    pub users: usize,
    pub sessions: usize,
    pub turns: usize,
    pub turns_per_session: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricRow {
    pub metric: Metric,
    pub cells: Vec<Option<ArmSummary>>, // one an arm; `None` if nothing was measured
    pub differences: Vec<Option<Difference>>, // of every arm but the first, from the first
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArmSummary {
    #[serde(flatten)]
    pub summary: Quantiles,
    pub mean: f64,
    pub rate: Option<Rate>, // for values that are yes or no
}

impl ArmSummary {
    pub fn value(&self, statistic: Statistic) -> f64 {
        match statistic {
            Statistic::Mean => self.mean,
            Statistic::P95 => self.summary.p95,
            Statistic::Median => self.summary.median,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    pub hits: usize,
    pub low: f64, // Wilson's, as if turns were independent
    pub high: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    #[serde(flatten)]
    pub interval: Interval,
    pub relative: Option<f64>, // of the first arm's value; `None` if that is zero
    pub verdict: DifferenceVerdict,
    /// Units beyond those there are until a difference of this size would be shown, four times in five. `None` if it is
    /// shown, or so small that it never would be.
    pub more_units: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(const_into_str)]
pub enum DifferenceVerdict {
    #[strum(serialize = "too few to tell")]
    TooFew,
    #[strum(serialize = "no difference shown")]
    NoDifferenceShown,
    #[strum(serialize = "higher")]
    Higher,
    #[strum(serialize = "lower")]
    Lower,
}

const LEAST_UNITS: usize = 8; // fewest independent units of an arm for any verdict
/// Level of all intervals of a comparison together. If each of twenty rows held 95 times in 100 by itself, most
/// comparisons would show a difference that does not exist.
const LEVEL: f64 = 0.95;

/// Compares arms. `weights` are those by which users were assigned; empty where something else was drawn.
pub fn compare(arms: &[String], weights: &[f64], turns: &[ArmTurn], drawn: DrawnUnit, seed: u64) -> Comparison {
    let traffic: Vec<Traffic> = (0..arms.len()).map(|arm| traffic(arm, turns)).collect();
    let fewest = |count: fn(&Traffic) -> usize| traffic.iter().map(count).min().unwrap_or(0);
    let are_many = fewest(|arm| arm.users) >= LEAST_UNITS;
    let unit = match drawn {
        DrawnUnit::Turn => ComparedUnit::Pairs,
        DrawnUnit::Session if is_of_crossover(turns, are_many) => ComparedUnit::OwnSessions,
        DrawnUnit::Day if is_of_crossover(turns, are_many) => ComparedUnit::OwnDays,
        _ if are_many => ComparedUnit::Users,
        _ => ComparedUnit::Sessions,
    };
    let measured: Vec<Metric> = Metric::all().filter(|metric| says_something(*metric, turns)).collect();
    // Bonferroni: each alone must be surer, so that all together are sure.
    let questions = (measured.len() * arms.len().saturating_sub(1)).max(1);
    let level = 1.0 - (1.0 - LEVEL) / questions as f64;
    let rows = measured.iter().map(|metric| row(*metric, arms.len(), turns, unit, level, seed)).collect();
    let mut warnings = warning::warnings(arms, weights, turns, &traffic, unit, seed);
    if is_crossover(unit) {
        warnings.extend(measured.iter().flat_map(|metric| drift(*metric, arms.len(), turns, measured.len())));
    }
    Comparison { arms: arms.to_vec(), unit, level: LEVEL, traffic, rows, warnings }
}

/// Numbers the block of neighbouring turns of a turn: neighbours share luck, and the machine's load.
pub fn pair_blocks(run: u64, turn: u64) -> u64 {
    const TURNS: u64 = 5;
    const MOST_BLOCKS: u64 = 1 << 32;
    run * MOST_BLOCKS + turn / TURNS
}

/// Returns false for an event that never happened in any arm. No recall at all is a finding, though.
fn says_something(metric: Metric, turns: &[ArmTurn]) -> bool {
    let counts = metric.statistic() == Statistic::Mean && metric != Metric::Recall;
    turns.iter().filter_map(|turn| turn.values.get(&metric)).any(|value| !counts || *value != 0.0)
}

fn traffic(arm: usize, turns: &[ArmTurn]) -> Traffic {
    let own = || turns.iter().filter(|turn| turn.arm == arm);
    let users = own().map(|turn| turn.user).collect::<BTreeSet<_>>().len();
    let sessions = own().map(|turn| turn.session).collect::<BTreeSet<_>>().len();
    let turns = own().count();
    Traffic { users, sessions, turns, turns_per_session: turns as f64 / sessions.max(1) as f64 }
}

fn row(metric: Metric, arms: usize, turns: &[ArmTurn], unit: ComparedUnit, level: f64, seed: u64) -> MetricRow {
    let samples: Vec<Vec<Sample>> = (0..arms).map(|arm| samples(metric, arm, turns, unit)).collect();
    let cells: Vec<Option<ArmSummary>> = samples.iter().map(|samples| cell(metric, samples)).collect();
    let differences = samples.iter().enumerate().skip(1).map(|(arm, other)| {
        let first = samples.first()?;
        let lacking = |units: usize| LEAST_UNITS.saturating_sub(units);
        let (interval, units, all, missing) = if is_crossover(unit) {
            let found = Crossover::fit(&periods(metric, arm, turns))?;
            (found.interval(level), found.periods / 2, found.periods, (2 * LEAST_UNITS).saturating_sub(found.periods))
        } else {
            let resampling = Resampling::of(first.len() + other.len(), level, seed ^ metric as u64);
            let pairing = if unit == ComparedUnit::Pairs { Pairing::Shared } else { Pairing::Independent };
            let interval = difference(first, other, metric.statistic(), pairing, &resampling)?;
            let (first, other) = (units(first), units(other));
            let fewest = first.min(other);
            match unit {
                ComparedUnit::Pairs => (interval, fewest, first, lacking(fewest)),
                _ => (interval, fewest, first + other, lacking(first) + lacking(other)),
            }
        };
        let base = cells.first()?.as_ref()?.value(metric.statistic());
        let relative = (base != 0.0).then(|| interval.estimate / base);
        let verdict = match () {
            () if units < LEAST_UNITS => DifferenceVerdict::TooFew,
            () if interval.low > 0.0 => DifferenceVerdict::Higher,
            () if interval.high < 0.0 => DifferenceVerdict::Lower,
            () => DifferenceVerdict::NoDifferenceShown,
        };
        let is_shown = matches!(verdict, DifferenceVerdict::Higher | DifferenceVerdict::Lower);
        let more_units = if is_shown { None } else { more_units(interval, level, all) };
        // Also what would be shown needs the units that any verdict needs.
        let more_units = more_units.map(|more| more.max(missing as u64));
        Some(Difference { interval, relative, verdict, more_units })
    });
    let differences = differences.collect();
    MetricRow { metric, cells, differences }
}

/// Returns true if users with several arms tell the arms apart, so that users are compared with themselves. Where each arm has
/// users enough (`are_many`), these must have half of the sessions or days: a user that an operator moved does not stand for
/// all others.
fn is_of_crossover(turns: &[ArmTurn], are_many: bool) -> bool {
    let mut of_user: BTreeMap<u64, (BTreeSet<usize>, BTreeSet<u64>)> = BTreeMap::new();
    for turn in turns {
        let (arms, periods) = of_user.entry(turn.user).or_default();
        arms.insert(turn.arm);
        periods.insert(turn.period);
    }
    let count = |several: bool| -> usize {
        let users = of_user.values().filter(|(arms, _)| (arms.len() > 1) == several);
        users.map(|(_, periods)| periods.len()).sum()
    };
    let several = count(true);
    several > 0 && (!are_many || several >= count(false))
}

fn is_crossover(unit: ComparedUnit) -> bool {
    matches!(unit, ComparedUnit::OwnSessions | ComparedUnit::OwnDays)
}

fn periods(metric: Metric, other: usize, turns: &[ArmTurn]) -> Vec<Period> {
    let mut values: BTreeMap<(u64, u64, usize), Vec<f64>> = BTreeMap::new();
    for turn in turns.iter().filter(|turn| turn.arm == 0 || turn.arm == other) {
        if let Some(value) = turn.values.get(&metric) {
            values.entry((turn.user, turn.period, turn.arm)).or_default().push(*value);
        }
    }
    let of = |((user, number, arm), values): ((u64, u64, usize), Vec<f64>)| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let value = match metric.statistic() {
            Statistic::Mean => Some(mean),
            Statistic::Median => Quantiles::of(values).map(|summary| summary.median),
            Statistic::P95 => Quantiles::of(values).map(|summary| summary.p95),
        };
        Some(Period { user, number, is_other: arm == other, value: value? })
    };
    values.into_iter().filter_map(of).collect()
}

fn drift(metric: Metric, arms: usize, turns: &[ArmTurn], questions: usize) -> Option<Warning> {
    let found = (1..arms).filter_map(|other| Crossover::fit(&periods(metric, other, turns)));
    let surest = found.min_by(|a, b| a.drift_p.total_cmp(&b.drift_p))?;
    let is_there = surest.drift_p < (1.0 - LEVEL) / (questions * arms.saturating_sub(1)).max(1) as f64;
    is_there.then(|| Warning::Drift { metric: metric.words(), change: surest.drift })
}

const POWER: f64 = 0.8;
const MOST_UNITS: f64 = 1e6;

/// Computes from the interval, which shrinks with the root of the units, how many more would show the estimate.
fn more_units(interval: Interval, level: f64, units: usize) -> Option<u64> {
    let sure = normal_quantile(0.5 + level / 2.0);
    let error = (interval.high - interval.low) / 2.0 / sure;
    let times = ((sure + normal_quantile(POWER)) * error / interval.estimate.abs()).powi(2);
    let more = units as f64 * (times - 1.0);
    (more.is_finite() && more < MOST_UNITS).then(|| more.ceil().max(1.0) as u64)
}

fn samples(metric: Metric, arm: usize, turns: &[ArmTurn], unit: ComparedUnit) -> Vec<Sample> {
    let own = turns.iter().filter(|turn| turn.arm == arm);
    own.filter_map(|turn| {
        let cluster = match unit {
            ComparedUnit::Users => turn.user,
            ComparedUnit::Sessions => turn.session,
            ComparedUnit::Pairs => turn.pair,
            ComparedUnit::OwnSessions | ComparedUnit::OwnDays => turn.session,
        };
        Some(Sample { cluster, value: *turn.values.get(&metric)? })
    })
    .collect()
}

fn units(samples: &[Sample]) -> usize {
    samples.iter().map(|sample| sample.cluster).collect::<BTreeSet<_>>().len()
}

fn cell(metric: Metric, samples: &[Sample]) -> Option<ArmSummary> {
    let summary = Quantiles::of(samples.iter().map(|sample| sample.value))?;
    let mean = samples.iter().map(|sample| sample.value).sum::<f64>() / samples.len() as f64;
    let yes_or_no = samples.iter().all(|sample| sample.value == 0.0 || sample.value == 1.0);
    let rate = (metric.statistic() == Statistic::Mean && yes_or_no).then(|| {
        let hits = samples.iter().filter(|sample| sample.value == 1.0).count();
        let interval = wilson(hits, samples.len())?;
        Some(Rate { hits, low: interval.low, high: interval.high })
    });
    Some(ArmSummary { summary, mean, rate: rate.flatten() })
}

#[cfg(test)]
mod tests;
