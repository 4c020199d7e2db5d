//! HTTP as far as the tests need it: a client, and the head of a request for servers.

use crate::client::PATIENCE;
use crate::kept_secret;
use std::collections::BTreeMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

#[derive(Default)]
pub struct Head {
    pub path: String,
    headers: BTreeMap<String, String>,
}

impl Head {
    /// Takes one line. False at the empty line that ends the head, and where the client hung up.
    pub fn take(&mut self, line: &str) -> bool {
        if line.trim().is_empty() {
            return false;
        }
        if self.path.is_empty() {
            self.path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        } else if let Some((name, value)) = line.split_once(':') {
            self.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        true
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

pub async fn http(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String) {
    try_http(address, method, path, headers, body).await.expect("the service answers")
}

/// The same where no service may run just now, or one that is about to end.
pub async fn try_http(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> std::io::Result<(u16, String)> {
    let answer = raw(address, &request(address, method, path, headers, body.as_bytes())).await?;
    Ok((answer.status, answer.body))
}

pub fn request(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request += &format!("host: {address}\r\n");
    }
    for (name, value) in headers {
        kept_secret::note_header(name, value);
        request += &format!("{name}: {value}\r\n");
    }
    kept_secret::note_body(&String::from_utf8_lossy(body));
    request += "\r\n";
    [request.as_bytes(), body].concat()
}

#[derive(Debug)]
pub struct HttpAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// Sends bytes as they are and reads until the connection ends.
pub async fn raw(address: &str, request: &[u8]) -> std::io::Result<HttpAnswer> {
    timeout(PATIENCE, raw_however_long(address, request)).await.expect("an answer")
}

/// Sends bytes like `raw`, and waits as long as its caller does.
pub async fn raw_however_long(address: &str, request: &[u8]) -> std::io::Result<HttpAnswer> {
    let (mut reader, mut writer) = TcpStream::connect(address).await?.into_split();
    // A service that refuses a request early does not read all of it.
    let writing = async {
        let _ = writer.write_all(request).await;
        std::future::pending::<()>().await
    };
    let mut answer = Vec::new();
    tokio::select! {
        read = reader.read_to_end(&mut answer) => read.map(drop).or_else(|error| if answer.is_empty() { Err(error) } else { Ok(()) })?,
        () = writing => {}
    }
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| std::io::Error::other("the service hung up without an answer"))?;
    let head = head.to_ascii_lowercase();
    let body = if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.to_owned() };
    Ok(HttpAnswer { status, head, body })
}

fn unchunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        text.push_str(rest.get(..size).unwrap_or(rest));
        body = rest.get(size + 2..).unwrap_or_default();
    }
    text
}
