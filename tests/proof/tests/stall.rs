//! Inputs of small limits to every route and event. `cargo run --release -p proof -- stall --most-ms 150` is the full one.

use proof::stall::{Args, InputLimits, Sizes, heavy_fields, prove};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_route_and_event_answers_the_heaviest_inputs_within_its_ceiling() {
    let args = Args { only: None, at_once: 4, most_ms: None, json: false, sizes: Some(Sizes::small()) };
    let summary = prove(&args).await.unwrap();
    println!("{}", summary.line);
    assert_eq!(summary.failures, Vec::<String>::new(), "{}", summary.again);
    for (figure, least) in [("routes", 50), ("events", 13), ("attacks", 120), ("taken", 200), ("refused", 50)] {
        assert!(summary.figures[figure].as_u64() >= Some(least), "{figure}: {}", summary.line);
    }
}

#[test]
fn a_field_that_no_value_is_known_for_is_a_failure() {
    let schema =
        json!({"type": "object", "required": ["strange"], "properties": {"strange": {"description": "anything"}}});
    let limits = InputLimits { bytes: 10_000, item_bytes: 100, entries: 10, ..InputLimits::default() };
    let error = heavy_fields(&schema, &schema, &limits).unwrap_err();
    assert!(error.to_string().contains("'strange'"), "{error}");
    let limits = InputLimits { known: [("strange".to_owned(), json!([1]))].into(), ..limits };
    let (light, fields) = heavy_fields(&schema, &schema, &limits).unwrap();
    assert_eq!(light, json!({"strange": [1]}));
    let largest = fields.iter().map(|field| field.body(&light, &limits).to_string().len()).max();
    assert!(fields.len() >= 4 && largest > Some(5000), "{fields:?}");
}
