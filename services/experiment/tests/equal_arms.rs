//! Replays of arms that differ in nothing but their name show no difference, also in chance: times on a busy machine.
//! They were recorded (golden/make_equal_arms.py has the recipe).

use experiment::{ArmTurn, DifferenceVerdict, DrawnUnit, Metric, compare, pair_blocks};
use serde_json::Value;
use std::collections::BTreeMap;

struct RecordedReplays {
    metrics: Vec<Metric>,
    replays: Vec<Vec<Vec<Option<f64>>>>, // run, turn, arm, then the values
}

fn recorded() -> RecordedReplays {
    let golden: Value = serde_json::from_str(include_str!("golden/equal_arms.json")).unwrap();
    let named = |name: &Value| {
        let found = Metric::all().find(|metric| serde_json::to_value(metric).unwrap() == *name);
        found.unwrap_or_else(|| panic!("{name} is no metric"))
    };
    RecordedReplays {
        metrics: golden["metrics"].as_array().unwrap().iter().map(named).collect(),
        replays: serde_json::from_value(golden["replays"].clone()).unwrap(),
    }
}

/// Lists the metrics that a comparison calls different. `slower` makes times of the second arm longer.
fn shown(replay: &[Vec<Option<f64>>], metrics: &[Metric], slower: f64, seed: u64) -> Vec<Metric> {
    let turns: Vec<ArmTurn> = replay
        .iter()
        .map(|row| {
            let [run, turn, arm] = [0, 1, 2].map(|at| row[at].unwrap() as u64);
            let values: BTreeMap<Metric, f64> = metrics
                .iter()
                .zip(&row[3..])
                .filter_map(|(metric, value)| {
                    let is_longer = arm == 1 && metric.is_time() && *metric != Metric::DecodeTokensPerSecond;
                    Some((*metric, if is_longer { (*value)? * slower } else { (*value)? }))
                })
                .collect();
            ArmTurn {
                arm: arm as usize,
                user: 0,
                session: run * 2 + arm,
                pair: pair_blocks(run, turn),
                period: 0,
                turn,
                values,
            }
        })
        .collect();
    let arms = ["one".to_owned(), "twin".to_owned()];
    let comparison = compare(&arms, &[], &turns, DrawnUnit::Turn, seed);
    assert!(comparison.warnings.is_empty(), "{:?}", comparison.warnings);
    let differs = |verdict| matches!(verdict, DifferenceVerdict::Higher | DifferenceVerdict::Lower);
    let rows = comparison.rows.iter().filter(|row| row.differences[0].is_some_and(|found| differs(found.verdict)));
    rows.map(|row| row.metric).collect()
}

#[test]
fn equal_arms_show_no_difference_and_a_slower_one_does() {
    let RecordedReplays { metrics, replays } = recorded();
    assert_eq!(replays.len(), 10);
    let seeds = || replays.iter().zip(1..);
    let found: Vec<_> = seeds().map(|(replay, seed)| shown(replay, &metrics, 1.0, seed)).collect();
    let alike = found.iter().filter(|shown| shown.is_empty()).count();
    println!("{alike} of {} replays show no difference: {found:?}", found.len());
    assert!(alike >= 9, "{found:?}");
    let slower: Vec<_> = seeds().map(|(replay, seed)| shown(replay, &metrics, 10.0, seed)).collect();
    let seen = slower.iter().filter(|shown| !shown.is_empty()).count();
    assert!(seen >= 9, "an arm that takes ten times as long is seen in {seen} of 10: {slower:?}");
}
