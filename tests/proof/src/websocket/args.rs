use super::cases::{Asking, Case, Expect, cases};
use super::connection::{Arrived, Connection};
use crate::summary::{Budget, Summary};
use anyhow::Result;
use serde_json::json;
use tests::http::{raw, request};
use tests::service::Service;

/// Sends right and wrong bytes to the websockets, and checks the answers
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Only cases with these words in their names
    #[arg(long)]
    pub case: Option<String>,
    #[arg(long)]
    pub json: bool,
}

/// A door's websocket: its path, and a message whose answer repeats a word.
const DOORS: [(&str, Asking); 2] = [
    ("/v1/realtime", |word| json!({"type": "conversation.item.retrieve", "item_id": word}).to_string()),
    ("/v1/responses", |word| json!({"type": "response.create", "previous_response_id": word}).to_string()),
];
const MOST_FRAME: usize = 1 << 20; // not a window: limits.frame_bytes
const MOST_MESSAGE: usize = 4 << 20; // not a window: limits.message_bytes

pub async fn prove(args: &Args) -> Result<Summary> {
    let budget = Budget::minutes(f64::from(u16::MAX));
    let unlimited = ["limits.requests_per_minute_per_key=1000000", "limits.requests_per_minute_per_address=1000000"];
    let set = ["--set", unlimited[0], "--set", unlimited[1], "--set", "logging.level=error"];
    let service = Service::start(&set).await;
    let (mut tried, mut failures) = (0, Vec::new());
    for (path, asking) in DOORS {
        for case in cases(asking, MOST_FRAME, MOST_MESSAGE) {
            if args.case.as_deref().is_some_and(|words| !case.name.contains(words)) {
                continue;
            }
            tried += 1;
            if let Err(why) = meets(&service.address, path, &case).await {
                failures.push(format!("{path}: {}: {why:#}", case.name));
            }
        }
        if args.case.is_none() {
            let (handshakes, wrong) = handshakes(&service.address, path).await?;
            tried += handshakes;
            failures.extend(wrong);
        }
    }
    // Whatever was sent, the service serves.
    let health = service.get("/healthz").await;
    if health["status"] != "ok" {
        failures.push(format!("the service is not well: {health}"));
    }
    service.stop().await;
    Ok(Summary {
        command: "websocket",
        seed: 0,
        seconds: budget.seconds(),
        line: format!("{tried} cases"),
        figures: json!({"cases": tried}),
        skipped: Vec::new(),
        failures,
        again: "cargo run --release -p proof -- websocket --case NAME".to_owned(),
    })
}

async fn meets(address: &str, path: &str, case: &Case) -> Result<()> {
    let mut connection = Connection::open(address, path).await?;
    for bytes in &case.sent {
        connection.send(bytes).await;
    }
    for expected in &case.expected {
        one(&mut connection, expected).await?;
    }
    Ok(())
}

async fn one(connection: &mut Connection, expected: &Expect) -> Result<()> {
    loop {
        let arrived = connection.next().await.map_err(|error| error.context(format!("{expected:?} was expected")))?;
        match (&arrived, expected) {
            (Arrived::Text(text), Expect::Answer(word)) if text.contains(word.as_str()) => return Ok(()),
            (Arrived::Pong(payload), Expect::Pong(wanted)) if payload == wanted => return Ok(()),
            (Arrived::Close(Some(code)), Expect::Close(codes)) if codes.contains(code) => {
                let end = connection.next().await?;
                anyhow::ensure!(end == Arrived::End, "{end:?} comes after the close");
                return Ok(());
            }
            (Arrived::End, Expect::NoAnswer(_)) => return Ok(()),
            (Arrived::Close(None), Expect::NoAnswer(_)) => {}
            (Arrived::Close(Some(code)), Expect::NoAnswer(codes)) if codes.contains(code) => {}
            // What the service tells besides: that the session is open, an error that names what was wrong.
            (Arrived::Text(text), _) if !text.contains("after") => {}
            (Arrived::Ping, _) => {}
            _ => anyhow::bail!("{expected:?} was expected, and {arrived:?} comes"),
        }
    }
}

/// Requests that are no handshake: how many, and those that were answered as if they were.
async fn handshakes(address: &str, path: &str) -> Result<(usize, Vec<String>)> {
    let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let (upgrade, connection, version) =
        (("upgrade", "websocket"), ("connection", "Upgrade"), ("sec-websocket-version", "13"));
    let cases = [
        ("no upgrade", vec![connection, version, key]),
        ("another upgrade", vec![("upgrade", "h2c"), connection, version, key]),
        ("no connection that upgrades", vec![upgrade, version, key]),
        ("no key", vec![upgrade, connection, version]),
        ("an old version", vec![upgrade, connection, ("sec-websocket-version", "8"), key]),
        ("no version", vec![upgrade, connection, key]),
    ];
    let count = cases.len();
    let mut wrong = Vec::new();
    for (name, headers) in cases {
        let request = request(address, "GET", path, &headers, b"");
        // The headers say how the connection goes on.
        let text = String::from_utf8_lossy(&request).replacen("connection: close\r\n", "", 1);
        let text = text.replacen("content-length: 0\r\n", "", 1);
        let text =
            if headers.contains(&connection) { text } else { text.replacen("host:", "connection: close\r\nhost:", 1) };
        match tokio::time::timeout(std::time::Duration::from_secs(30), raw(address, text.as_bytes())).await {
            Ok(Ok(answer)) if (400..500).contains(&answer.status) => {}
            Ok(answer) => wrong.push(format!("{path}: a handshake with {name} is answered {answer:?}")),
            Err(_) => wrong.push(format!("{path}: a handshake with {name} is left open")),
        }
    }
    Ok((count, wrong))
}
