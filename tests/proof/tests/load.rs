//! A small house for some seconds. `cargo run --release -p proof -- load --minutes 30` is the full one.

use proof::load::{Args, HouseSizes, prove};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_house_stays_calm() {
    let args =
        Args { minutes: 0.2, sizes: HouseSizes { idle: 60, talking: 8, at_once: 2, crowd: 3, seed: 1 }, json: false };
    let summary = prove(&args).await.unwrap();
    println!("{}", summary.line);
    assert_eq!(summary.failures, Vec::<String>::new(), "{}", summary.again);
    for figure in ["turns", "barge_ins", "storms", "refused"] {
        assert!(summary.figures[figure].as_u64() > Some(0), "{figure}: {}", summary.line);
    }
}
