//! A service that its users leave alone, with the real binary: its memory goes back, and the first sound wakes it.

use serde_json::{Value, json};
use tests::client::PATIENCE;
use tests::service::Service;
use tokio::time::timeout;

/// Memory that the service may use while its model sleeps.
const ASLEEP_BYTES: u64 = 60 << 20;

async fn falls_asleep(service: &Service, asleep: bool) {
    let until = async {
        while service.get("/healthz").await["asleep"] != json!(asleep) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, until).await.expect("the model sleeps when nothing is asked, and wakes for a user");
}

async fn says(service: &Service, text: &str) -> Value {
    let body = json!({ "messages": [{ "role": "user", "content": text }], "max_tokens": 8 });
    let (status, answer) = service.http("POST", "/v1/chat/completions", &[], &body.to_string()).await;
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test]
async fn a_service_that_is_left_alone_gives_its_memory_back_and_wakes_for_a_user() {
    let service = Service::start(&["--set", "memory.idle_s=1"]).await;
    says(&service, "Hello.").await;
    falls_asleep(&service, true).await;
    // A client that only looks does not wake it.
    let (_, loaded) = service.http("GET", "/api/ps", &[], "").await;
    assert_eq!(loaded, r#"{"models":[]}"#);
    assert!(service.get("/healthz").await["asleep"] == json!(true));
    let memory = service.memory_bytes("VmRSS");
    assert!(memory <= ASLEEP_BYTES, "{memory} bytes");
    // A connection wakes it before a word is said.
    let client = service.connect("").await;
    falls_asleep(&service, false).await;
    drop(client);
    falls_asleep(&service, true).await;
    assert!(says(&service, "Are you there?").await["usage"]["prompt_tokens"].as_u64().unwrap() > 0);
    service.stop().await;
}
