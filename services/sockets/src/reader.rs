//! Reading end of a websocket: whole messages, within limits of time.

use crate::end::SocketEnd;
use crate::half_open::HalfOpen;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::SplitStream;
use settings::LimitSettings;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

pub struct SocketReader {
    stream: SplitStream<WebSocket>,
    half_open: Arc<HalfOpen>,
    revoked: BoxFuture<'static, ()>,
    last_heard: Instant,
    silent_until: Instant,
    // Rings for both of them, and is set again when it rings, not with each message.
    alarm: Pin<Box<Sleep>>,
    has_spoken: bool,
    /// True while the last message is in memory: until the next one is awaited.
    has_message: bool,
    dead: Duration,
    idle: Duration,
}

#[derive(Debug)]
pub enum SocketMessage {
    Text(Utf8Bytes),
    Binary,
}

pub const GOODBYE: Duration = Duration::from_secs(2);
const PINGS: u32 = 3;

impl SocketReader {
    pub fn new(
        stream: SplitStream<WebSocket>,
        half_open: Arc<HalfOpen>,
        revoked: BoxFuture<'static, ()>,
        limits: &LimitSettings,
    ) -> Self {
        let now = Instant::now();
        let silent_until = now + Duration::from_millis(limits.first_message_ms);
        let dead = Duration::from_secs(limits.ping_s) * PINGS;
        SocketReader {
            stream,
            half_open,
            revoked,
            last_heard: now,
            silent_until,
            alarm: Box::pin(sleep_until(silent_until.min(now + dead))),
            has_spoken: false,
            has_message: false,
            dead,
            idle: Duration::from_secs(limits.idle_s),
        }
    }

    /// Returns the next message, or the reason why there is none. The caller may drop the future and call again.
    pub async fn next(&mut self) -> Result<SocketMessage, SocketEnd> {
        if std::mem::take(&mut self.has_message) {
            self.half_open.message_ended();
        }
        loop {
            let message = tokio::select! {
                message = self.stream.next() => message,
                () = &mut self.revoked => return Err(SocketEnd::KeyRevoked),
                () = &mut self.alarm => {
                    let (now, dead_at) = (Instant::now(), self.last_heard + self.dead);
                    if now >= self.silent_until {
                        return Err(if self.has_spoken { SocketEnd::Idle } else { SocketEnd::NeverSpoke });
                    }
                    if now >= dead_at {
                        return Err(SocketEnd::Dead);
                    }
                    self.alarm.as_mut().reset(dead_at.min(self.silent_until));
                    continue;
                }
            };
            self.last_heard = Instant::now();
            let message = match message {
                None | Some(Ok(Message::Close(_))) => return Err(SocketEnd::ClientLeft),
                Some(Err(error)) => {
                    return Err(self.half_open.end().unwrap_or_else(|| SocketEnd::of_error(&error)));
                }
                // A pong shows that the client is there, and says nothing.
                Some(Ok(Message::Ping(carried) | Message::Pong(carried))) => {
                    self.half_open.control_frame(carried.len());
                    continue;
                }
                Some(Ok(Message::Binary(_))) => SocketMessage::Binary,
                Some(Ok(Message::Text(text))) => SocketMessage::Text(text),
            };
            (self.has_message, self.has_spoken) = (true, true);
            self.silent_until = self.last_heard + self.idle;
            if self.silent_until < self.alarm.deadline() {
                self.alarm.as_mut().reset(self.silent_until);
            }
            return Ok(message);
        }
    }

    pub async fn close(mut self, end: SocketEnd, goodbye: impl Future<Output = ()>) {
        let _ = timeout(GOODBYE, async {
            goodbye.await;
            while let Some(Ok(_)) = self.stream.next().await {}
        })
        .await;
        tracing::debug!(?end, "disconnected");
    }
}
