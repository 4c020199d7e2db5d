//! How the terminal client and the benchmarks get into a service.

use anyhow::{Context, Result, anyhow};
use reqwest::Url;
use serde_json::Value;
use settings::LimitSettings;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Where a service is and who comes.
pub struct Address<'a> {
    pub url: &'a Url,
    pub key: Option<&'a str>,
}

/// A connection with our extensions; `asked` is what else stands in the query.
pub async fn connect(
    address: Address<'_>,
    asked: &[(&str, Option<&str>)],
    limits: &LimitSettings,
    patience: Duration,
) -> Result<Socket> {
    let Address { url, key } = address;
    let mut at = url.clone();
    at.set_path("/v1/realtime");
    let asked = asked.iter().filter_map(|(name, value)| Some((name, (*value)?)));
    at.query_pairs_mut().append_pair("extensions", "reprise").extend_pairs(asked);
    at.set_scheme("ws").map_err(|()| anyhow!("{url} is no address of a service"))?;
    let mut request = at.as_str().into_client_request()?;
    if let Some(key) = key {
        let value = HeaderValue::from_str(&format!("Bearer {key}")).context("the key has characters no key has")?;
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    // The library's own outgoing buffer has no limit.
    let mut config = WebSocketConfig::default();
    config.max_message_size = Some(limits.message_bytes);
    config.max_frame_size = Some(limits.message_bytes);
    config.write_buffer_size = limits.header_bytes;
    config.max_write_buffer_size = limits.outgoing_bytes.max(2 * limits.header_bytes);
    let connecting = timeout(patience, connect_async_with_config(request, Some(config), true));
    let connected = connecting.await.with_context(|| format!("{url} does not answer"))?;
    connected.map(|(socket, _)| socket).map_err(|error| refused(url, error))
}

/// What a service says in refusing is more than its status.
fn refused(url: &Url, error: tungstenite::Error) -> anyhow::Error {
    if let tungstenite::Error::Http(response) = &error {
        let body: Value = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
        let message = body["error"]["message"].as_str().map_or_else(|| response.status().to_string(), str::to_owned);
        return anyhow!("{url} refuses: {message}");
    }
    anyhow!(error).context(format!("cannot connect to {url}: is the service started? (`reprise serve`)"))
}
