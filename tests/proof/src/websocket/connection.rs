//! A websocket by hand: the handshake, bytes out, frames in.

use super::frames::{BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT};
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

pub struct Connection {
    stream: BufReader<TcpStream>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    Text(String),
    Pong(Vec<u8>),
    Ping,
    /// Close with its code, if it has one.
    Close(Option<u16>),
    End,
}

const PATIENCE: Duration = Duration::from_secs(60);

impl Connection {
    pub async fn open(address: &str, path: &str) -> Result<Connection> {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\r\n"
        );
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream: BufReader::new(stream) };
        connection.send(request.as_bytes()).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, connection.stream.read_u8()).await??);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        ensure!(head.starts_with("http/1.1 101"), "no websocket: {head}");
        // The key of RFC 6455, and what must be answered to it.
        ensure!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "the handshake is answered wrong: {head}");
        Ok(connection)
    }

    /// A server that has closed does not read, which is told by what arrives.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes).await;
        let _ = self.stream.get_mut().flush().await;
    }

    pub async fn next(&mut self) -> Result<Arrived> {
        let Ok(first) = timeout(PATIENCE, self.stream.read_u8()).await.context("nothing comes")? else {
            return Ok(Arrived::End);
        };
        let second = self.stream.read_u8().await?;
        ensure!(first & 0x70 == 0 && second & 0x80 == 0, "the server sends a frame that is reserved or masked");
        let length = match second {
            126 => u64::from(self.stream.read_u16().await?),
            127 => self.stream.read_u64().await?,
            short => u64::from(short),
        };
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await?;
        ensure!(first & 0x80 != 0, "the server sends fragments");
        Ok(match first & 0x0f {
            TEXT => Arrived::Text(String::from_utf8(payload).context("the server's text is no text")?),
            PONG => Arrived::Pong(payload),
            PING => Arrived::Ping,
            CLOSE => Arrived::Close(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
            CONTINUATION | BINARY => bail!("the server sends what it has no reason to"),
            opcode => bail!("the server sends the opcode {opcode}"),
        })
    }
}
