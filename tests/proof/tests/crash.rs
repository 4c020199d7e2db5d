//! Kills of the real service, a few. `cargo run --release -p proof -- crash --minutes 30` is for nights.

use proof::crash::{Args, prove};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_was_acknowledged_or_heard_survives_kills() {
    let summary = prove(&Args { minutes: 0.0, kills: Some(8), seed: 1, json: false }).await.unwrap();
    println!("{summary:#?}");
    assert_eq!(summary.failures, Vec::<String>::new(), "{}", summary.again);
    let figure = |name: &str| summary.figures[name].as_u64().unwrap();
    assert!(figure("turns") > 8 && figure("heard_bytes") > 100, "{} turns: too few to mean much", figure("turns"));
}
