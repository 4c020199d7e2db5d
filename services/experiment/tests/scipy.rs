//! Known answers of SciPy. `golden/make_scipy.py` is the recipe.

use experiment::{
    Pairing, Quantiles, Resampling, Sample, Statistic, chi_square, difference, normal_cdf, student_quantile, wilson,
};
use serde_json::Value;

fn golden(name: &str) -> Vec<Value> {
    let all: Value = serde_json::from_str(include_str!("golden/scipy.json")).unwrap();
    let cases = all[name].as_array().unwrap_or_else(|| panic!("no {name} in the golden")).clone();
    assert!(!cases.is_empty());
    cases
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn near(found: f64, expected: f64, tolerance: f64, of: &Value) {
    let allowed = tolerance * expected.abs().max(1e-12);
    assert!((found - expected).abs() <= allowed, "{found} where SciPy has {expected}: {of}");
}

#[test]
fn chi_square_p_values() {
    for case in golden("chi_square") {
        let counts: Vec<u64> = numbers(&case["counts"]).into_iter().map(|count| count as u64).collect();
        near(chi_square(&counts, &numbers(&case["weights"])).unwrap(), number(&case["p"]), 1e-9, &case);
    }
}

#[test]
fn normal_and_student() {
    for case in golden("normal_cdf") {
        near(normal_cdf(number(&case[0])), number(&case[1]), 1e-9, &case);
    }
    for case in golden("student_quantile") {
        let found = student_quantile(number(&case[0]), number(&case[1]));
        assert!((found - number(&case[2])).abs() <= 1e-8 * number(&case[2]).abs().max(1.0), "{found}: {case}");
    }
}

#[test]
fn wilson_intervals() {
    for case in golden("wilson") {
        let count = |name: &str| case[name].as_u64().unwrap() as usize;
        let found = wilson(count("hits"), count("of")).unwrap();
        assert!((found.low - number(&case["low"])).abs() < 1e-9, "{found:?}: {case}");
        assert!((found.high - number(&case["high"])).abs() < 1e-9, "{found:?}: {case}");
    }
    assert_eq!(wilson(0, 0), None);
}

#[test]
fn medians_and_nearest_ranks() {
    for case in golden("summary") {
        let found = Quantiles::of(numbers(&case["values"])).unwrap();
        near(found.median, number(&case["median"]), 1e-12, &case);
        near(found.p95, number(&case["p95"]), 1e-12, &case);
    }
}

/// Two random draws agree only so far: within a hundredth of the interval for means; medians and
/// p95 jump from one measured number to the next.
#[test]
fn bootstrap_intervals() {
    for (name, statistic, tolerance) in
        [("mean", Statistic::Mean, 0.02), ("median", Statistic::Median, 0.06), ("p95", Statistic::P95, 0.06)]
    {
        for case in golden(name) {
            let arm = |name: &str| -> Vec<Sample> {
                (0..).zip(numbers(&case[name])).map(|(cluster, value)| Sample { cluster, value }).collect()
            };
            let pairing = if case["paired"] == true { Pairing::Shared } else { Pairing::Independent };
            let resampling = Resampling { seed: 7, level: 0.95, resamples: 40_000, widen: false };
            let found = difference(&arm("a"), &arm("b"), statistic, pairing, &resampling).unwrap();
            let (low, high) = (number(&case["low"]), number(&case["high"]));
            let allowed = tolerance * (high - low);
            assert!(
                (found.low - low).abs() < allowed && (found.high - high).abs() < allowed,
                "{name}: {found:?} and {low} to {high}"
            );
        }
    }
}
