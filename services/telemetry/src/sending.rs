//! Sending to a collector. What cannot be sent is given up: no turn waits for a collector.

use async_trait::async_trait;
use http::{Request, Response, StatusCode};
use metrics::counter;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;

/// Client for the exporters, whose threads are not the async runtime's.
#[derive(Clone, Debug)]
pub struct CollectorClient {
    client: reqwest::Client,
    runtime: Handle,
    is_failing: Arc<AtomicBool>,
}

const ANSWER_BYTES: usize = 64 << 10; // not a window: bytes

impl CollectorClient {
    pub fn new(client: reqwest::Client, runtime: Handle) -> CollectorClient {
        CollectorClient { client, runtime, is_failing: Arc::default() }
    }

    // Only changes are logged.
    fn note(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let why = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answers {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_failing = self.is_failing.swap(why.is_some(), Ordering::Relaxed);
        posted(why.is_none());
        match why {
            Some(why) if !was_failing => {
                tracing::warn!(
                    why,
                    "the collector at telemetry.otlp takes nothing; turns go on, and it is tried again"
                );
            }
            None if was_failing => tracing::info!("the collector at telemetry.otlp takes what it is sent again"),
            _ => {}
        }
    }
}

pub fn posted(is_taken: bool) {
    counter!("reprise_telemetry_posts_total", "taken" => if is_taken { "yes" } else { "no" }).increment(1);
}

#[async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sending = self.runtime.spawn(async move { post(&client, request).await });
        let sent = match sending.await {
            Ok(sent) => sent,
            Err(error) => Err(error.into()),
        };
        self.note(&sent);
        sent
    }
}

async fn post(client: &reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let mut response = client.execute(request.try_into()?).await?;
    let status: StatusCode = response.status();
    let retry_after = response.headers().get(http::header::RETRY_AFTER).cloned();
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if body.len() + piece.len() > ANSWER_BYTES {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&piece);
    }
    let mut answer = Response::builder().status(status);
    if let (Some(headers), Some(value)) = (answer.headers_mut(), retry_after) {
        headers.insert(http::header::RETRY_AFTER, value);
    }
    Ok(answer.body(body.into())?)
}
