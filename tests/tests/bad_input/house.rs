//! A service in which something was said before, and which must still have it after everything that comes.

use serde_json::{Value, json};
use std::net::SocketAddr;
use tests::client::user;
use tests::service::{Service, check_store};
use tests::wyoming::{own_address, turn};

pub struct House {
    pub service: Service,
    pub wyoming: SocketAddr,
    kept: Vec<(String, Value)>,
}

/// Many requests come from one address, and what is too large is soon too large.
const LIMITS: [&str; 5] = [
    "limits.requests_per_minute_per_key=1000000",
    "limits.requests_per_minute_per_address=1000000",
    "limits.body_bytes=1MiB",
    "limits.frame_bytes=1MiB",
    "limits.message_bytes=1MiB",
];

impl House {
    pub async fn new() -> House {
        let wyoming = own_address();
        let (host, port) = (format!("wyoming.host={}", wyoming.ip()), format!("wyoming.port={}", wyoming.port()));
        let set = LIMITS.into_iter().chain([host.as_str(), port.as_str()]).flat_map(|setting| ["--set", setting]);
        let service = Service::start(&set.collect::<Vec<_>>()).await;
        let mut client = service.connect("").await;
        client.session_id().await;
        client.say(user("The safe's number is 4711.")).await;
        client.until("conversation.item.done").await;
        assert_eq!(turn(wyoming, "Good morning.", json!({ "satellite_id": "kitchen" })).await.0, "handled");
        let body = json!({ "input": "My cat is Tom.", "max_output_tokens": 16 }).to_string();
        let (status, text) = service.http("POST", "/v1/responses", &[], &body).await;
        assert_eq!(status, 200, "{text}");
        let sessions = service.get("/v1/sessions").await;
        let mut kept = Vec::new();
        for session in sessions["data"].as_array().expect("a list") {
            let id = session["id"].as_str().expect("an id").to_owned();
            let items = items(&service, &id).await;
            kept.push((id, items));
        }
        assert_eq!(kept.len(), 3, "{sessions}");
        House { service, wyoming, kept }
    }

    /// Checks at the end that earlier items are unchanged, the store is sound, and the service had no trouble.
    pub async fn ends_as_it_began(self) {
        for (id, before) in &self.kept {
            assert_eq!(items(&self.service, id).await, *before, "{id}");
        }
        check_store(self.service.folder()).await;
        let log = self.service.stop_and_read_log().await;
        let trouble: Vec<&str> =
            log.lines().filter(|line| line.contains("panicked") || line.contains(" ERROR ")).collect();
        assert!(trouble.is_empty(), "{trouble:#?}");
        assert!(log.contains("stopped"), "{log}");
    }
}

async fn items(service: &Service, id: &str) -> Value {
    let items = service.get(&format!("/v1/sessions/{id}/items")).await["data"].clone();
    assert!(!items.as_array().expect("a list").is_empty(), "{id}");
    items
}
