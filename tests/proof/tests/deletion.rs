//! Deletions with kills of the real service. `cargo run --release -p proof -- deletion --deletions 1000` is for nights.

use proof::deletion::{Args, prove};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_is_gone_and_nothing_else() {
    let summary = prove(&Args { minutes: 0.0, deletions: Some(24), seed: 1, json: false }).await.unwrap();
    println!("{summary:#?}");
    assert_eq!(summary.failures, Vec::<String>::new(), "{}", summary.again);
    let figure = |name: &str| summary.figures[name].as_u64().unwrap();
    assert!(figure("deletions") >= 24 && figure("files") > 0, "{}: too little to mean much", summary.line);
}
