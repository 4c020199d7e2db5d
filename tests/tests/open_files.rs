//! The service with as few open files as a small machine allows, and a stranger's program that opens connections without end.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tests::service::{Service, run_ok, tiny_model};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

/// Another address of this machine.
const STRANGER: &str = "127.0.0.2:0";
const FILES: usize = 256;

async fn connect_from(from: &str, to: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from.parse::<SocketAddr>().expect("an address"))?;
    socket.connect(to.parse().expect("an address")).await
}

/// Opens connections until it is stopped, and keeps twice as many as the service may have files. Each begins a request.
async fn flood(address: String, opened: Arc<AtomicUsize>, stop: Arc<AtomicBool>) {
    let mut open = std::collections::VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        if let Ok(mut stream) = connect_from(STRANGER, &address).await {
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").await;
            open.push_back(stream);
            opened.fetch_add(1, Ordering::Relaxed);
        }
        if open.len() > 2 * FILES {
            open.pop_front();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_who_opens_all_connections_takes_no_reply_of_another_user() {
    let folder = tempfile::tempdir().unwrap();
    let key = run_ok(folder.path(), &["keys", "create", "--user", "ann"]).await;
    let key = format!("Bearer {}", key.trim());
    let service = Service::with_open_files(folder, FILES, FILES, &["--set", "auth.required=always"]).await;
    let (opened, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let floods: Vec<_> =
        (0..2).map(|_| tokio::spawn(flood(service.address.clone(), opened.clone(), stop.clone()))).collect();
    while opened.load(Ordering::Relaxed) < 4 * FILES {
        tokio::task::yield_now().await;
    }
    let headers = [("authorization", key.as_str()), ("content-type", "application/json")];
    let mut failed = Vec::new();
    let turns = async {
        for turn in 0..20 {
            let message = json!({"role": "user", "content": format!("Hello for the time {turn}")});
            let body = json!({"messages": [message], "max_tokens": 4}).to_string();
            match tests::http::try_http(&service.address, "POST", "/v1/chat/completions", &headers, &body).await {
                Ok((200, answer)) if answer.contains("\"usage\"") => {}
                other => failed.push(format!("{turn}: {other:?}")),
            }
        }
    };
    let mut most = 0;
    let counting = async {
        loop {
            most = most.max(service.open_files());
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = turns => {}
        () = counting => {}
    }
    stop.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.await.unwrap();
    }
    assert!(failed.is_empty(), "{} of 20 replies failed, {failed:#?}", failed.len());
    assert!(most < FILES / 2, "{most} of {FILES} files were open at once: a refused connection holds none");
    service.stop().await;
}

#[tokio::test]
async fn a_service_may_open_as_many_files_as_the_system_lets_it() {
    let service = Service::with_open_files(tempfile::tempdir().unwrap(), 200, 4000, &[]).await;
    assert_eq!(service.open_files_limit(), (4000, 4000));
    assert!(!service.screen.contains("open files"), "{}", service.screen);
    service.stop().await;
}

#[tokio::test]
async fn too_few_files_are_told_with_what_is_done_about_it() {
    let service = Service::with_open_files(tempfile::tempdir().unwrap(), 200, 200, &[]).await;
    assert!(
        service.screen.contains("200 open files") && service.screen.contains("limits.connections"),
        "{}",
        service.screen
    );
    service.stop().await;
    let refused = Service::try_with_open_files(tempfile::tempdir().unwrap(), 100, 100, &[]).await;
    let (status, log) = refused.err().expect("it does not start");
    assert!(!status.success() && log.contains("100 open files") && log.contains("ulimit -n"), "{log}");

    let folder = tempfile::tempdir().unwrap();
    for (files, state) in [(4000, "good"), (200, "note"), (100, "problem")] {
        let mut doctor = std::process::Command::new("bash");
        doctor.args(["-ec", &format!("ulimit -n {files}\nexec \"$@\""), "bash"]).arg(tests::reprise::binary());
        let model = format!("model.path={}", tiny_model().display());
        doctor.args(["doctor", "--json", "--set", &model, "--set", "engine.device=cpu"]);
        let output = doctor.current_dir(folder.path()).env_clear().env("HOME", folder.path()).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["what"] == "open files");
        let found = found.unwrap_or_else(|| panic!("{report:#}"));
        assert!(found["state"] == state && found["says"].as_str().unwrap().contains(&files.to_string()), "{found}");
    }
}
