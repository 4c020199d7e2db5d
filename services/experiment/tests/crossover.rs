//! Known answers of NumPy and SciPy for users that met both arms. `golden/make_crossover.py` is the recipe.

use experiment::{Crossover, Period, normal_quantile};
use serde_json::Value;

fn near(found: f64, expected: &Value) {
    let expected = expected.as_f64().unwrap();
    assert!((found - expected).abs() <= 1e-8 * expected.abs().max(1e-9), "{found} where the recipe has {expected}");
}

#[test]
fn as_least_squares_with_a_column_for_each_user() {
    let golden: Value = serde_json::from_str(include_str!("golden/crossover.json")).unwrap();
    let cases = golden["crossover"].as_array().unwrap();
    assert_eq!(cases.len(), 5);
    for case in cases {
        let rows: Vec<(u64, u64, u8, f64)> = serde_json::from_value(case["periods"].clone()).unwrap();
        let periods: Vec<Period> = rows
            .into_iter()
            .map(|(user, number, arm, value)| Period { user, number, is_other: arm == 1, value })
            .collect();
        let found = Crossover::fit(&periods).unwrap();
        near(found.estimate, &case["estimate"]);
        near(found.standard_error, &case["standard_error"]);
        near(found.degrees, &case["degrees"]);
        near(found.drift, &case["drift"]);
        near(found.drift_p, &case["drift_p"]);
        let interval = found.interval(0.95);
        near(interval.low, &case["low"]);
        near(interval.high, &case["high"]);
    }
    for pair in golden["normal_quantile"].as_array().unwrap() {
        near(normal_quantile(pair[0].as_f64().unwrap()), &pair[1]);
    }
}
