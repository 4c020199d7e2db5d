//! A request over Wyoming: one connection each. Closing it cancels the request.

use crate::Error;
use crate::frames::{FrameReader, WyomingEvent, write, write_with_payload};
use crate::server::Server;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub struct WyomingCall<'a> {
    server: &'a Server,
    stream: TcpStream,
    reader: FrameReader,
    buffer: Vec<u8>,
}

const READ_BYTES: usize = 16 << 10; // not a window: bytes of a buffer

impl WyomingCall<'_> {
    pub async fn connect<'a>(server: &'a Server, place: &str) -> Result<WyomingCall<'a>, Error> {
        let stream = match timeout(server.connect, TcpStream::connect(place)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(server.unreachable(error)),
            Err(_) => return Err(server.unreachable(format!("no connection within {} ms", server.connect.as_millis()))),
        };
        let _ = stream.set_nodelay(true);
        let reader = FrameReader::with_payloads(server.limits());
        Ok(WyomingCall { server, stream, reader, buffer: vec![0; READ_BYTES] })
    }

    pub async fn send(&mut self, kind: &str, data: Value) -> Result<(), Error> {
        let data = data.as_object().cloned().unwrap_or_else(Map::new);
        self.write(write(kind, data).as_bytes()).await
    }

    pub async fn send_audio(&mut self, rate: u32, samples: &[i16]) -> Result<(), Error> {
        let data = json!({ "rate": rate, "width": 2, "channels": 1 });
        self.write(&write_with_payload("audio-chunk", data, &speech::pcm::to_bytes(samples))).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.server.in_time(self.stream.write_all(bytes)).await?;
        written.map_err(|_| self.server.broke_off())
    }

    /// Returns the next event and its payload. An `error` of the server is one here too.
    pub async fn next(&mut self) -> Result<(WyomingEvent, Vec<u8>), Error> {
        let server = self.server;
        server.in_time(self.event()).await?
    }

    /// Returns the next event, however late it comes. The caller may drop the future.
    pub async fn event(&mut self) -> Result<(WyomingEvent, Vec<u8>), Error> {
        Self::read(&mut self.reader, &mut self.stream, &mut self.buffer, self.server).await
    }

    async fn read(
        reader: &mut FrameReader,
        stream: &mut TcpStream,
        buffer: &mut [u8],
        server: &Server,
    ) -> Result<(WyomingEvent, Vec<u8>), Error> {
        loop {
            let event = reader.event().map_err(|wrong| server.nonsense(wrong.message()))?;
            if let Some(event) = event {
                if event.kind == "error" {
                    let text = event.data.get("text").and_then(Value::as_str).unwrap_or("an error without words");
                    return Err(server.refused(text));
                }
                return Ok((event, reader.payload()));
            }
            match stream.read(buffer).await {
                Ok(0) | Err(_) => return Err(server.broke_off()),
                Ok(count) => reader.push(&buffer[..count]),
            }
        }
    }
}

/// Asks what the server has, of the kind `asr` or `tts`: its name and its speakers, or languages. Notes whether its ears tell
/// words while they hear.
pub async fn describe(server: &Server, place: &str, kind: &str) -> Result<(String, Vec<String>), Error> {
    let mut request = WyomingCall::connect(server, place).await?;
    request.send("describe", json!({})).await?;
    let info = loop {
        let (event, _) = request.next().await?;
        if event.kind == "info" {
            break event.data;
        }
    };
    let programs = info.get(kind).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_installed = |program: &&Value| program["installed"] != json!(false);
    let Some(program) = programs.iter().find(is_installed) else {
        let what = if kind == "asr" { "hears" } else { "speaks" };
        return Err(server.refused(&format!("it names no program that {what}")));
    };
    server.set_streaming(program["supports_transcript_streaming"] == json!(true));
    let name = program["name"].as_str().unwrap_or("a program without a name");
    let (list, field) = if kind == "asr" { ("models", "languages") } else { ("voices", "name") };
    let entries = program[list].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut names: Vec<String> = entries
        .iter()
        .filter(is_installed)
        .flat_map(|entry| match &entry[field] {
            Value::Array(many) => many.clone(),
            one => vec![one.clone()],
        })
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    names.sort();
    names.dedup();
    Ok((name.to_owned(), names))
}
