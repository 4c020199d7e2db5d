//! The websockets, held against RFC 6455 case by case.

use proof::websocket::{Args, prove};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn websockets_keep_to_their_rfc() {
    let summary = prove(&Args { case: None, json: false }).await.unwrap();
    println!("{}", summary.line);
    assert_eq!(summary.failures, Vec::<String>::new());
    assert!(summary.figures["cases"].as_u64().unwrap() > 400, "{}", summary.line);
}
