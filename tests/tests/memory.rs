//! `memory.total` holds for what clients send, not only for what the engine remembers.

#![cfg(target_os = "linux")]

use futures_util::future::join_all;
use serde_json::{Value, json};
use tests::http::try_http;
use tests::service::Service;

const TOTAL_BYTES: u64 = 512 << 20;

fn body(words: usize) -> String {
    let text: String = (0..words).map(|word| format!("word{word} ")).collect();
    json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 2 }).to_string()
}

/// Sixteen at the same time: the status of each and the code of its error; 0 where the service hung up.
async fn sixteen(service: &Service, body: &str) -> Vec<(u16, String)> {
    let asks = (0..16).map(|_| async {
        let asked = try_http(&service.address, "POST", "/v1/chat/completions", &[], body).await;
        let Ok((status, answer)) = asked else { return (0, String::new()) };
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    });
    join_all(asks).await
}

#[tokio::test]
async fn large_requests_at_once_stay_under_the_ceiling_and_give_their_memory_back() {
    let service = Service::start(&["--set", &format!("memory.total={TOTAL_BYTES}")]).await;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let before = service.memory_bytes("VmRSS");
    // Larger than can be prepared, and as large as can be: no window holds them.
    for (words, expected) in [(1_400_000, &[(0, ""), (413, "request_too_large")][..]), (140_000, &[])] {
        let body = body(words);
        let told = sixteen(&service, &body).await;
        println!("{:.1} MiB each: {told:?}; {:.0} MiB", mib(body.len() as u64), mib(service.memory_bytes("VmHWM")));
        for (status, code) in &told {
            let is_expected = match expected {
                [] => [(400, "context_length_exceeded"), (503, "busy")].contains(&(*status, code.as_str())),
                some => some.contains(&(*status, code.as_str())),
            };
            assert!(is_expected, "{status} {code}");
        }
        let peak = service.memory_bytes("VmHWM");
        assert!(peak <= TOTAL_BYTES, "{:.0} MiB", mib(peak));
    }
    // A body without a stated length is counted as it comes.
    let (status, answer) = service.http("POST", "/v1/chat/completions", &[], &body(5)).await;
    assert_eq!(status, 200, "{answer}");
    let after = service.memory_bytes("VmRSS");
    println!("before {:.0} MiB, after {:.0} MiB", mib(before), mib(after));
    assert!(after < before + (64 << 20), "{:.0} MiB were kept", mib(after - before));
    service.stop().await;
}
