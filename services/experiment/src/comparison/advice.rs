//! Advice that follows from a comparison.

use super::{Better, Comparison, Difference, DifferenceVerdict, Metric};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Advice {
    /// An arm that is better in these and worse in nothing. It is the first where all others are worse.
    Take {
        arm: usize,
        better: Vec<Metric>,
    },
    /// An arm that is better in some and worse in others, as the first sees it.
    Weigh {
        arm: usize,
        better: Vec<Metric>,
        worse: Vec<Metric>,
    },
    /// The metric whose difference is nearest to being shown, and the units that would show it. Nothing is shown yet.
    Measure {
        metric: Metric,
        more_units: u64,
    },
    /// Arms without the turns that would tell them apart.
    TooLittle,
    Nothing,
}

impl Comparison {
    pub fn advice(&self) -> Advice {
        let others = 1..self.arms.len();
        let shown: Vec<(usize, Vec<Metric>, Vec<Metric>)> =
            others.map(|arm| (arm, self.shown(arm, true), self.shown(arm, false))).collect();
        let best = shown.iter().filter(|(_, better, worse)| !better.is_empty() && worse.is_empty());
        if let Some((arm, better, _)) = best.max_by_key(|(_, better, _)| better.len()) {
            return Advice::Take { arm: *arm, better: better.clone() };
        }
        if let Some((arm, better, worse)) = shown.iter().find(|(_, better, _)| !better.is_empty()) {
            return Advice::Weigh { arm: *arm, better: better.clone(), worse: worse.clone() };
        }
        if !shown.is_empty() && shown.iter().all(|(_, _, worse)| !worse.is_empty()) {
            let mut better: Vec<Metric> = shown.into_iter().flat_map(|(_, _, worse)| worse).collect();
            better.sort();
            better.dedup();
            return Advice::Take { arm: 0, better };
        }
        let nearest =
            self.rows.iter().filter(|row| row.metric.better() != Better::Neither).flat_map(|row| {
                row.differences.iter().flatten().filter_map(|found| Some((found.more_units?, row.metric)))
            });
        match nearest.min() {
            Some((more_units, metric)) => Advice::Measure { metric, more_units },
            None if self.was_told_apart() => Advice::Nothing,
            None => Advice::TooLittle,
        }
    }

    /// Returns true if every arm has a difference that enough was measured for.
    fn was_told_apart(&self) -> bool {
        let is_told =
            |found: &Option<Difference>| found.is_some_and(|found| found.verdict != DifferenceVerdict::TooFew);
        let of = |arm: usize| self.rows.iter().any(|row| row.differences.get(arm - 1).is_some_and(is_told));
        self.arms.len() > 1 && (1..self.arms.len()).all(of)
    }

    fn shown(&self, arm: usize, better: bool) -> Vec<Metric> {
        let is_so = |metric: Metric, verdict: DifferenceVerdict| match (metric.better(), verdict) {
            (Better::Higher, DifferenceVerdict::Higher) | (Better::Lower, DifferenceVerdict::Lower) => better,
            (Better::Higher, DifferenceVerdict::Lower) | (Better::Lower, DifferenceVerdict::Higher) => !better,
            _ => false,
        };
        let of = |row: &super::MetricRow| {
            let found = row.differences.get(arm - 1).copied().flatten()?;
            is_so(row.metric, found.verdict).then_some(row.metric)
        };
        self.rows.iter().filter_map(of).collect()
    }
}
