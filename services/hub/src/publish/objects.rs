//! Objects: large files, sent whole or in parts to the addresses that the hub gives for them.

use super::source::{LocalFile, disk};
use super::{Content, SendProgress, Sent};
use crate::client::{FailedTry, HubClient, Tries, again};
use crate::error::Error;
use crate::name::Name;
use reqwest::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::SeekFrom;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

const LFS: &str = "application/vnd.git-lfs+json";
/// Header that tells how large the parts of an object are, where it is not sent whole.
const PART_BYTES: &str = "chunk_size";
const LOOK_EVERY: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 200_000;

#[derive(Deserialize)]
struct Batch {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    oid: String,
    /// Missing where the hub has the object.
    #[serde(default)]
    actions: BTreeMap<String, Action>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Action {
    href: String,
    #[serde(default)]
    header: BTreeMap<String, Value>,
}

#[derive(Clone, Copy)]
struct Span {
    begin: u64,
    bytes: u64,
}

impl HubClient {
    pub(super) async fn send_objects(
        &self,
        name: &Name,
        files: &mut [LocalFile],
        progress: SendProgress<'_>,
    ) -> Result<(), Error> {
        let waiting: Vec<&mut LocalFile> =
            files.iter_mut().filter(|file| file.is_object && file.how != Sent::Same).collect();
        for file in waiting {
            // Addresses expire, so each file asks for its own.
            let object = self.object(name, file).await?;
            match object.actions.get("upload") {
                None => file.how = Sent::There,
                Some(upload) => self.send_file(file, upload, progress).await?,
            }
            if let Some(verify) = object.actions.get("verify") {
                self.verify(name, file, verify).await?;
            }
        }
        Ok(())
    }

    async fn object(&self, name: &Name, file: &LocalFile) -> Result<Object, Error> {
        let url = format!("{}/{}.git/info/lfs/objects/batch", self.url(), name.repo);
        let wanted = json!({ "operation": "upload", "transfers": ["basic", "multipart"], "hash_algo": "sha256",
            "objects": [{ "oid": file.sha256, "size": file.bytes }] });
        let mut tries = Tries::new(self.options());
        let answer = loop {
            let request = self.client().post(&url).json(&wanted).header(ACCEPT, LFS).header(CONTENT_TYPE, LFS);
            let answer = match self.send(request, name, "main").await {
                Ok(response) => self.read_json(response).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(answer) => break answer,
                Err(failure) => tries.wait(&file.path, failure).await?,
            }
        };
        let batch: Batch = serde_json::from_value(answer).map_err(|error| self.no_hub(&error.to_string()))?;
        let object = batch.objects.into_iter().find(|object| object.oid == file.sha256);
        let object = object.ok_or_else(|| self.no_hub(&format!("it does not say where {} goes", file.path)))?;
        match object.error {
            None => Ok(object),
            Some(error) => {
                let status = error["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
                let why = error["message"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
                Err(Error::Refused { what: file.path.clone(), status, why })
            }
        }
    }

    async fn send_file(&self, file: &LocalFile, upload: &Action, progress: SendProgress<'_>) -> Result<(), Error> {
        let whole = Span { begin: 0, bytes: file.bytes };
        let part_bytes = upload.header.get(PART_BYTES).and_then(|bytes| match bytes {
            Value::String(text) => text.parse().ok(),
            number => number.as_u64(),
        });
        let Some(part_bytes) = part_bytes.filter(|bytes| *bytes > 0) else {
            let headers = self.headers(upload)?;
            return self.send_span(file, &upload.href, &headers, whole, progress).await.map(drop);
        };
        let mut parts = Vec::new();
        for (at, begin) in (0..file.bytes.max(1)).step_by(usize::try_from(part_bytes).unwrap_or(usize::MAX)).enumerate()
        {
            let number = at + 1;
            let address =
                upload.header.iter().find(|(key, _)| key.parse() == Ok(number)).and_then(|(_, url)| url.as_str());
            let address =
                address.ok_or_else(|| self.no_hub(&format!("it has no address for part {number} of {}", file.path)))?;
            let span = Span { begin, bytes: part_bytes.min(file.bytes - begin) };
            let answer = self.send_span(file, address, &HeaderMap::new(), span, progress).await?;
            let etag = answer.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
            parts.push(json!({ "partNumber": number, "etag": etag }));
        }
        self.complete(file, &upload.href, &json!({ "oid": file.sha256, "parts": parts })).await
    }

    /// Says that all parts are there. The address stands for itself: no token goes to it.
    async fn complete(&self, file: &LocalFile, url: &str, parts: &Value) -> Result<(), Error> {
        let mut tries = Tries::new(self.options());
        loop {
            let request = self.client().post(url).json(parts).header(ACCEPT, LFS).header(CONTENT_TYPE, LFS);
            let failure = match request.send().await {
                Ok(response) if response.status().is_success() => return Ok(()),
                Ok(response) => refused(file, &response),
                Err(error) => again(&error),
            };
            tries.wait(&file.path, failure).await?;
        }
    }

    async fn verify(&self, name: &Name, file: &LocalFile, verify: &Action) -> Result<(), Error> {
        let body = json!({ "oid": file.sha256, "size": file.bytes });
        let headers = self.headers(verify)?;
        let mut tries = Tries::new(self.options());
        loop {
            let request = self.client().post(&verify.href).headers(headers.clone()).json(&body);
            // Only the hub itself gets the token.
            let answer = match is_of(self.url(), &verify.href) {
                true => self.send(request, name, "main").await.map(drop),
                false => match request.send().await {
                    Ok(response) if response.status().is_success() => Ok(()),
                    Ok(response) => Err(refused(file, &response)),
                    Err(error) => Err(again(&error)),
                },
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(failure) => tries.wait(&file.path, failure).await?,
            }
        }
    }

    fn headers(&self, action: &Action) -> Result<HeaderMap, Error> {
        let mut headers = HeaderMap::new();
        for (key, value) in &action.header {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let pair = (HeaderName::from_bytes(key.as_bytes()), HeaderValue::from_str(&value));
            let (Ok(key), Ok(value)) = pair else { return Err(self.no_hub("it asks for a header that is none")) };
            headers.insert(key, value);
        }
        Ok(headers)
    }

    /// Sends a span of a file, again where that may help. A connection that takes nothing for `silence` is given up.
    async fn send_span(
        &self,
        file: &LocalFile,
        url: &str,
        headers: &HeaderMap,
        span: Span,
        progress: SendProgress<'_>,
    ) -> Result<Response, Error> {
        let mut tries = Tries::new(self.options());
        loop {
            let sent = Arc::new(AtomicU64::new(0));
            let body = body(file, span, sent.clone()).await?;
            let request =
                self.uploads().put(url).headers(headers.clone()).header(CONTENT_LENGTH, span.bytes).body(body);
            let sending = request.send();
            tokio::pin!(sending);
            let (mut seen, mut still) = (0, Duration::ZERO);
            let answer = loop {
                tokio::select! {
                    answer = &mut sending => break Some(answer),
                    () = tokio::time::sleep(LOOK_EVERY) => {
                        let now = sent.load(Ordering::Relaxed);
                        still = if now == seen { still + LOOK_EVERY } else { Duration::ZERO };
                        if now != seen {
                            progress(&file.path, span.begin + now);
                        }
                        seen = now;
                        if still >= self.options().silence {
                            break None;
                        }
                    }
                }
            };
            let failure = match answer {
                Some(Ok(response)) if response.status().is_success() => {
                    progress(&file.path, span.begin + span.bytes);
                    return Ok(response);
                }
                Some(Ok(response)) => refused(file, &response),
                Some(Err(_)) if has_changed(file).await => {
                    return Err(Error::FileChanged { file: file.path.clone() });
                }
                Some(Err(error)) => again(&error),
                None => FailedTry::Again { why: "the hub took nothing for a while".to_owned(), after: None },
            };
            tries.wait(&file.path, failure).await?;
        }
    }
}

async fn has_changed(file: &LocalFile) -> bool {
    match &file.content {
        Content::Text(_) => false,
        Content::File(path) => tokio::fs::metadata(path).await.map_or(true, |found| found.len() != file.bytes),
    }
}

async fn body(file: &LocalFile, span: Span, sent: Arc<AtomicU64>) -> Result<Body, Error> {
    let path = match &file.content {
        Content::Text(text) => return Ok(Body::from(text.clone())),
        Content::File(path) => path,
    };
    let mut opened = tokio::fs::File::open(path).await.map_err(|source| disk(path, source))?;
    opened.seek(SeekFrom::Start(span.begin)).await.map_err(|source| disk(path, source))?;
    let pieces = ReaderStream::with_capacity(opened.take(span.bytes), READ_BYTES);
    let counted = futures_util::StreamExt::inspect(pieces, move |piece| {
        if let Ok(piece) = piece {
            sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
    });
    Ok(Body::wrap_stream(counted))
}

fn refused(file: &LocalFile, response: &Response) -> FailedTry {
    let status = response.status();
    if status.is_server_error() || matches!(status.as_u16(), 408 | 429) {
        let why = format!("the hub answered {}", status.as_u16());
        return FailedTry::Again { why, after: crate::client::retry_after(response) };
    }
    FailedTry::Final(Error::Refused { what: file.path.clone(), status: status.as_u16(), why: String::new() })
}

fn is_of(hub: &str, url: &str) -> bool {
    match (Url::parse(hub), Url::parse(url)) {
        (Ok(hub), Ok(url)) => hub.origin() == url.origin(),
        _ => false,
    }
}
