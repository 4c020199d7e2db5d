//! A request over HTTP, as clients of OpenAI's speech make it.

use crate::Error;
use crate::server::Server;
use futures_util::StreamExt;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

pub fn post(server: &Server, base: &str, path: &str) -> RequestBuilder {
    with_key(server, server.client.post(format!("{base}/{path}")))
}

fn with_key(server: &Server, request: RequestBuilder) -> RequestBuilder {
    match &server.key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}

/// Sends a request. A status that is no success is an error in the server's words.
pub async fn send(server: &Server, request: RequestBuilder) -> Result<Response, Error> {
    let response = server.in_time(request.send()).await?.map_err(|error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        server.unreachable(cause)
    })?;
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = whole(server, response).await.unwrap_or_default();
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    let words = said["error"]["message"].as_str().or(said["detail"].as_str()).or(said["error"].as_str());
    Err(server.refused(&format!("{status}: {}", words.unwrap_or_default())))
}

/// Reads an answer to its end, if it is no larger than may be.
pub async fn whole(server: &Server, response: Response) -> Result<Vec<u8>, Error> {
    let mut pieces = response.bytes_stream();
    let mut whole = Vec::new();
    let reading = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| server.broke_off())?;
            if whole.len() + piece.len() > server.answer_bytes {
                return Err(server.nonsense("an answer that is too long (speech.answer_bytes)"));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(())
    };
    server.in_time(reading).await??;
    Ok(whole)
}

/// Asks whether the server is there, and for its speakers where it lists them.
pub async fn describe(server: &Server, base: &str) -> Result<(String, Vec<String>), Error> {
    let models = with_key(server, server.client.get(format!("{base}/models")));
    match send(server, models).await {
        Ok(_) => {}
        // A server that has speech alone may list no models.
        Err(Error::Refused { message, .. }) if message.starts_with("404") || message.starts_with("405") => {}
        Err(error) => return Err(error),
    }
    let list = with_key(server, server.client.get(format!("{base}/audio/voices")));
    let listed = async {
        let list = whole(server, send(server, list).await?).await?;
        let list: Value = serde_json::from_slice(&list).map_err(|error| server.nonsense(error))?;
        let entries = list["voices"].as_array().or(list["data"].as_array()).or(list.as_array()).cloned();
        let name = |entry: &Value| {
            let name = entry.as_str().or(entry["id"].as_str()).or(entry["name"].as_str());
            name.map(str::to_owned)
        };
        Ok::<_, Error>(entries.unwrap_or_default().iter().filter_map(name).collect())
    };
    Ok((server.model.clone(), listed.await.unwrap_or_default()))
}

/// A form with a WAV file and fields of text. `mark`: its boundary, which no client can guess: audio could spell a known one, and go
/// on with fields of its own.
pub fn form(wav: &[u8], fields: &[(&str, &str)], mark: u128) -> (String, Vec<u8>) {
    let mark = format!("{mark:032x}");
    let mut body = Vec::with_capacity(wav.len() + 512);
    for (name, text) in fields {
        let head = format!("--{mark}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
        body.extend_from_slice(head.as_bytes());
    }
    let head = format!(
        "--{mark}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"speech.wav\"\r\nContent-Type: audio/wav\r\n\r\n"
    );
    body.extend_from_slice(head.as_bytes());
    body.extend_from_slice(wav);
    body.extend_from_slice(format!("\r\n--{mark}--\r\n").as_bytes());
    (format!("multipart/form-data; boundary={mark}"), body)
}

pub fn speech(server: &Server, text: &str, speaker: &str, speed: f64) -> Value {
    let mut body = json!({ "model": server.model, "input": text, "voice": speaker, "response_format": "pcm" });
    if speed != 1.0 {
        body["speed"] = json!(speed);
    }
    body
}
