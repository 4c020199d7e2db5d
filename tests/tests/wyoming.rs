//! The Wyoming protocol with the real binary: which port, where keys are demanded, and what a kitchen hears.

use serde_json::{Value, json};
use std::net::SocketAddr;
use tempfile::TempDir;
use tests::service::{Service, check_store, run};
use tests::wyoming::{WyomingClient, own_address, turn};

async fn service(folder: TempDir, address: SocketAddr, more: &[&str]) -> Service {
    let (host, port) = (format!("wyoming.host={}", address.ip()), format!("wyoming.port={}", address.port()));
    Service::in_folder(folder, &[&["--set", &host, "--set", &port], more].concat()).await
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn kitchen(conversation: &str) -> Value {
    json!({ "conversation_id": conversation, "satellite_id": "assist_satellite.kitchen" })
}

#[tokio::test]
async fn a_kitchen_talks_and_goes_on_after_the_power_failed() {
    let address = own_address();
    let service = self::service(folder(), address, &[]).await;
    assert!(service.screen.contains(&format!("tcp://{address}")), "{}", service.screen);
    let mut client = WyomingClient::connect(address).await;
    client.say("describe", json!({})).await;
    assert_eq!(client.event().await.unwrap().1["handle"][0]["name"], "reprise");
    for conversation in ["01A", "01B"] {
        let (kind, data) = turn(address, "Good morning.", kitchen(conversation)).await;
        assert_eq!((kind.as_str(), &data["context"]), ("handled", &kitchen(conversation)));
    }
    let service = self::service(service.kill().await, address, &[]).await;
    assert_eq!(turn(address, "And now?", kitchen("01C")).await.0, "handled");
    let sessions = service.get("/v1/sessions").await;
    assert_eq!(sessions["data"].as_array().unwrap().len(), 1, "{sessions:#}");
    assert_eq!(sessions["data"][0]["title"], "satellite assist_satellite.kitchen");
    let id = sessions["data"][0]["id"].as_str().unwrap();
    let items = service.get(&format!("/v1/sessions/{id}/items")).await;
    let said = items["data"].as_array().unwrap().iter().filter(|item| item["body"]["role"] == "user").count();
    assert_eq!(said, 3, "{items:#}");
    check_store(service.stop().await.path()).await;
}

/// A port that the user wrote is the one that is wanted; the usual one may be another service's.
#[tokio::test]
async fn a_port_that_is_taken_is_an_error_where_the_user_wrote_it() {
    let address = own_address();
    let first = service(folder(), address, &[]).await;
    let (host, port) = (format!("wyoming.host={}", address.ip()), format!("wyoming.port={}", address.port()));
    let (status, log) = match Service::try_start(folder(), &["--set", &host, "--set", &port]).await {
        Err(not_started) => not_started,
        Ok(_) => panic!("two services have one port"),
    };
    assert!(!status.success() && log.contains("set another wyoming.port, or 0 for none"), "{log}");
    first.stop().await;

    let usual = SocketAddr::new(address.ip(), 10_500);
    let taken = tokio::net::TcpListener::bind(usual).await;
    let second = Service::start(&["--set", &host, "--set", "wyoming.port=auto"]).await;
    assert!(!second.screen.contains("tcp://"), "{}", second.screen);
    let log = second.stop_and_read_log().await;
    assert!(log.contains("finds another program there") && log.contains("10500"), "{log}");
    drop(taken);
    let third = Service::start(&["--set", &host, "--set", "wyoming.port=auto"]).await;
    assert_eq!(turn(usual, "Good morning.", kitchen("01A")).await.0, "handled");
    third.stop().await;
}

#[tokio::test]
async fn where_keys_are_demanded_it_is_off_until_the_user_says_otherwise() {
    let address = own_address();
    let host = format!("wyoming.host={}", address.ip());
    let folder = folder();
    let made = run(folder.path(), &["keys", "create", "--user", "ann"]).await;
    assert!(made.status.success());
    let locked = ["--set", "auth.required=always", "--set", &host];
    let service = Service::in_folder(folder, &[&locked[..], &["--set", "wyoming.port=auto"]].concat()).await;
    assert!(!service.screen.contains("tcp://"), "{}", service.screen);
    let folder = service.stop().await;

    let port = format!("wyoming.port={}", address.port());
    let (status, log) = match Service::try_start(folder, &[&locked[..], &["--set", &port]].concat()).await {
        Err(not_started) => not_started,
        Ok(_) => panic!("a port without keys is open"),
    };
    assert!(!status.success() && log.contains("without_key = true in [wyoming]"), "{log}");

    let folder = tempfile::tempdir().expect("a folder");
    let made = run(folder.path(), &["keys", "create", "--user", "ann"]).await;
    assert!(made.status.success());
    let open = ["--set", &port, "--set", "wyoming.without_key=true", "--set", "wyoming.user=ann"];
    let service = Service::in_folder(folder, &[&locked[..], &open].concat()).await;
    assert_eq!(turn(address, "Good morning.", kitchen("01A")).await.0, "handled");
    check_store(service.stop().await.path()).await;
}
