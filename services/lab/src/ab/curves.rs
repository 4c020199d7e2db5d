//! Curves over a conversation: the median at each turn, and the range of most.

use experiment::{ArmTurn, Metric, quantile};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    pub metric: Metric,
    pub arms: Vec<Vec<CurvePoint>>, // one an arm, in its order
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    pub turn: f64, // middle of the turns that this point joins, counted from 1
    pub n: usize,
    pub median: f64,
    pub p10: f64, // one in ten is below, one in ten above
    pub p90: f64,
}

const METRICS: [Metric; 3] = [Metric::FirstTokenMs, Metric::FillShare, Metric::SessionBytes];
const MOST_POINTS: u64 = 100; // more points are no clearer

pub fn curves(arms: usize, turns: &[ArmTurn]) -> Vec<Curve> {
    let last = turns.iter().map(|turn| turn.turn).max().unwrap_or(0);
    let width = (last + 1).div_ceil(MOST_POINTS).max(1);
    let curve = |metric: Metric| {
        let arms = (0..arms).map(|arm| points(metric, arm, turns, width)).collect();
        Curve { metric, arms }
    };
    let curves = METRICS.into_iter().map(curve);
    curves.filter(|curve: &Curve| curve.arms.iter().any(|points| points.len() > 1)).collect()
}

fn points(metric: Metric, arm: usize, turns: &[ArmTurn], width: u64) -> Vec<CurvePoint> {
    let mut bins: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for turn in turns.iter().filter(|turn| turn.arm == arm) {
        if let Some(value) = turn.values.get(&metric) {
            bins.entry(turn.turn / width).or_default().push(*value);
        }
    }
    let point = |(bin, mut values): (u64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        let turn = (bin * width) as f64 + (width + 1) as f64 / 2.0;
        let at = |share| quantile(&values, share);
        Some(CurvePoint { turn, n: values.len(), median: at(0.5)?, p10: at(0.1)?, p90: at(0.9)? })
    };
    bins.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_put_together_where_there_are_many() {
        let turn = |turn: u64, value: f64| ArmTurn {
            arm: 0,
            user: 0,
            session: 0,
            pair: 0,
            period: 0,
            turn,
            values: BTreeMap::from([(Metric::FirstTokenMs, value)]),
        };
        let few: Vec<ArmTurn> = (0..10).map(|i| turn(i, i as f64)).collect();
        let found = curves(2, &few);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].arms[0].len(), found[0].arms[1].len()), (10, 0));
        assert_eq!(found[0].arms[0][3], CurvePoint { turn: 4.0, n: 1, median: 3.0, p10: 3.0, p90: 3.0 });
        let many: Vec<ArmTurn> = (0..300).map(|i| turn(i, i as f64)).collect();
        let found = curves(1, &many);
        assert_eq!(found[0].arms[0].len(), 100);
        assert_eq!(found[0].arms[0][0], CurvePoint { turn: 2.0, n: 3, median: 1.0, p10: 0.0, p90: 2.0 });
        assert!(curves(1, &few[..1]).is_empty());
    }
}
