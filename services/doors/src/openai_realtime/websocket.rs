//! One websocket: a task that reads and a task that writes, so that neither waits for the other.

use super::frames::RateLimit;
use super::parse::{Limits, Received, note_unread, parse};
use super::{EXTENSION, ErrorBody, Renderer};
use crate::access::{Caller, Left};
use crate::unended::Unended;
use crate::{ApiError, App};
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use axum::http::HeaderMap;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use replies::BodyClues;
use replies::heavy;
use runtime::{Connected, End, ToWrite, Written};
use session::{Input, InputItem, ItemBody};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::Instrument;

pub struct Socket {
    pub app: App,
    pub caller: Caller,
    /// What the connection tells of its speakers.
    pub headers: HeaderMap,
    pub clues: BodyClues,
    pub connected: Connected,
    pub written: Written,
    pub unended: Arc<Unended>,
    pub limits: Limits,
    /// The connection has opted in to the extensions.
    pub extensions: Arc<AtomicBool>,
    /// Drawn at random for the ids of frames.
    pub seed: u64,
}

/// Until one of the two sides ends it.
pub async fn converse(socket: Socket, websocket: WebSocket) {
    let Socket { app, caller, headers, clues, connected, written, unended, limits, extensions, seed } = socket;
    let (sink, stream) = websocket.split();
    let outgoing = connected.outgoing.clone();
    tracing::debug!(user = %caller.identity.user, "connected");
    let ping = Duration::from_secs(app.settings.limits.ping_s);
    let renderer = Renderer::new(extensions.clone(), seed);
    let writer = tokio::spawn(write(sink, written, renderer, ping).in_current_span());
    let own = Renderer::new(extensions.clone(), !seed);
    let last_heard = Instant::now();
    let mut reader =
        Reader { app, caller, headers, clues, connected, stream, unended, limits, extensions, own, last_heard };
    let end = match reader.read().await {
        // What is queued is still written.
        Ended::ByUs(end) => end,
        Ended::ByThem(end) => {
            outgoing.end_now(end);
            end
        }
    };
    // The goodbye is written, and the client's heard, so that the connection ends as connections should.
    let _ = timeout(GOODBYE, async {
        let _ = writer.await;
        while let Some(Ok(_)) = reader.stream.next().await {}
    })
    .await;
    tracing::debug!(?end, "disconnected");
}

/// How long a goodbye may take on either side.
const GOODBYE: Duration = Duration::from_secs(2);
/// A message of so many bytes takes little memory while it is read.
const SMALL_BYTES: usize = 64 << 10; // not a window: bytes of a message
/// Pings that may go unanswered.
const PINGS: u32 = 3;

/// Which side ended it. What the reader finds out ends it at once.
enum Ended {
    ByUs(End),
    ByThem(End),
}

struct Reader {
    app: App,
    caller: Caller,
    headers: HeaderMap,
    clues: BodyClues,
    connected: Connected,
    stream: SplitStream<WebSocket>,
    unended: Arc<Unended>,
    limits: Limits,
    extensions: Arc<AtomicBool>,
    /// Writes the frames that are the door's own.
    own: Renderer,
    last_heard: Instant,
}

impl Reader {
    async fn read(&mut self) -> Ended {
        let limits = self.app.settings.limits.clone();
        let dead = Duration::from_secs(limits.ping_s) * PINGS;
        let mut silent_until = Instant::now() + Duration::from_millis(limits.first_message_ms);
        let mut has_spoken = false;
        let revoked = self.app.revoked.clone().until(self.caller.identity.key.clone());
        tokio::pin!(revoked);
        loop {
            let outgoing = self.connected.outgoing.clone();
            let message = tokio::select! {
                message = self.stream.next() => message,
                end = outgoing.ended() => return Ended::ByUs(end),
                () = &mut revoked => return Ended::ByThem(End::KeyRevoked),
                () = tokio::time::sleep_until(silent_until) => {
                    return Ended::ByThem(if has_spoken { End::Idle } else { End::NeverSpoke });
                }
                () = tokio::time::sleep_until(self.last_heard + dead) => return Ended::ByThem(End::Dead),
            };
            self.last_heard = Instant::now();
            let text = match message {
                None | Some(Ok(Message::Close(_))) => return Ended::ByThem(End::ClientLeft),
                Some(Err(error)) => return Ended::ByThem(self.unended.end().unwrap_or_else(|| broken(&error))),
                Some(Ok(Message::Ping(carried) | Message::Pong(carried))) => {
                    self.unended.control_frame(carried.len());
                    continue;
                }
                Some(Ok(Message::Binary(_))) => None,
                Some(Ok(Message::Text(text))) => Some(text),
            };
            has_spoken = true;
            silent_until = self.last_heard + Duration::from_secs(limits.idle_s);
            if !self.heard(text).await {
                return Ended::ByThem(End::SessionGone);
            }
            // Until here it was in memory.
            self.unended.message_ended();
        }
    }

    /// Gives the words of each speaker the person that rules name.
    async fn name_speakers(&self, input: &mut Input) -> Result<(), ApiError> {
        let mut bodies: Vec<&mut ItemBody> = Vec::new();
        match input {
            Input::AddItem { item, .. } => bodies.push(&mut item.body),
            Input::Respond(request) => {
                for item in request.input.iter_mut().flatten() {
                    if let InputItem::Item(item) = item {
                        bodies.push(&mut item.body);
                    }
                }
            }
            Input::HeardAll { speaker: Some(speaker), .. } => {
                speaker.person = self.person_of(&speaker.name).await?;
            }
            _ => {}
        }
        for body in bodies {
            if let ItemBody::Message { speaker: Some(speaker), .. } = body {
                speaker.person = self.person_of(&speaker.name).await?;
            }
        }
        Ok(())
    }

    async fn person_of(&self, name: &str) -> Result<Option<String>, ApiError> {
        Ok(self.app.persons.person_of(&self.caller, &self.headers, &self.clues, name).await?)
    }

    /// False: the session is not there any more.
    async fn heard(&mut self, text: Option<Utf8Bytes>) -> bool {
        let Some(text) = text else {
            let message = "events are text messages, and this one is binary";
            return self.refuse(ErrorBody::new("invalid_json", message)).await;
        };
        let mut share = self.app.model.preparation().share();
        if text.len() > SMALL_BYTES
            && let Err(failure) = share.take_work(text.len() as u64).await
        {
            return self.refuse(ErrorBody::new("server_error", failure.message)).await;
        }
        let Received { event_id, mut input, is_extension, extensions, unread } =
            match heavy::run(text.len(), || parse(&text, &self.limits)).await {
                Ok(received) => received,
                Err(error) => return self.refuse(error).await,
            };
        drop((text, share));
        note_unread(unread);
        if is_extension && !self.extensions.load(Ordering::Relaxed) {
            let message = format!("connect with ?extensions={EXTENSION} or set session.extensions to use this event");
            let error = ErrorBody::new("extension_not_enabled", message).param("type");
            return self.refuse(error.caused_by(event_id)).await;
        }
        if let Some(names) = extensions {
            self.extensions.store(names.iter().any(|name| name == EXTENSION), Ordering::Relaxed);
        }
        if let Err(error) = self.name_speakers(&mut input).await {
            return self.refuse(ErrorBody::new("store_failed", error.message).caused_by(event_id)).await;
        }
        if !input.wants_response() {
            return self.connected.say(event_id, input).await;
        }
        let gate = &self.app.gate;
        let allowed =
            gate.request_of_address(self.caller.address).and_then(|_| gate.request_of_key(&self.caller.account));
        match allowed {
            Ok(left) => {
                let frame = self.own.rate_limits(rate_limits(left));
                self.connected.say(event_id, input).await && self.connected.relay(frame).await
            }
            Err(error) => {
                let error = ErrorBody::new("rate_limit_exceeded", error.message);
                self.refuse(error.caused_by(event_id)).await
            }
        }
    }

    async fn refuse(&mut self, error: ErrorBody) -> bool {
        let frame = self.own.error(&error);
        self.connected.relay(frame).await
    }
}

fn rate_limits(left: Left) -> Vec<RateLimit> {
    vec![RateLimit { name: "requests", limit: left.limit, remaining: left.remaining, reset_seconds: left.reset_s }]
}

/// The library's error is not ours to match on, but its words tell a message that is too large from any other trouble.
pub fn broken(error: &axum::Error) -> End {
    let words = error.to_string();
    if words.contains("too long") || words.contains("too large") {
        End::TooLarge
    } else if words.contains("UTF-8") {
        End::NoText
    } else if words.contains("reset") || words.contains("closed") || words.contains("IO error") {
        End::ClientLeft
    } else {
        End::BadMessage
    }
}

async fn write(mut sink: SplitSink<WebSocket, Message>, mut written: Written, mut renderer: Renderer, ping: Duration) {
    let mut frames = Vec::new();
    let mut pings = interval(ping);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let next = tokio::select! {
            next = written.next() => next,
            _ = pings.tick() => {
                let sent = tokio::select! {
                    sent = sink.send(Message::Ping(Default::default())) => sent.is_ok(),
                    () = written.ended_now() => true,
                };
                if !sent {
                    return;
                }
                continue;
            }
        };
        // What waits goes out together.
        let (mut taken, mut end, mut next) = (0, None, Some(next));
        while let Some(one) = next {
            match one {
                ToWrite::Event(event) => renderer.render(&event, &mut frames),
                ToWrite::End(then) => {
                    end = Some(then);
                    break;
                }
            }
            taken += 1;
            let has_room = frames.iter().map(String::len).sum::<usize>() < BYTES_TOGETHER;
            next = if taken < EVENTS_TOGETHER && has_room { written.try_next() } else { None };
        }
        let sent = tokio::select! {
            sent = send_all(&mut sink, &mut frames) => Some(sent),
            () = written.ended_now() => None,
        };
        match sent {
            Some(true) => written.done(taken),
            Some(false) => return,
            None => {}
        }
        let Some(end) = end else { continue };
        let _ = timeout(GOODBYE, say_goodbye(&mut sink, end)).await;
        return;
    }
}

const EVENTS_TOGETHER: u64 = 64;
const BYTES_TOGETHER: usize = 64 << 10; // not a window: bytes of frames

async fn send_all(sink: &mut SplitSink<WebSocket, Message>, frames: &mut Vec<String>) -> bool {
    for frame in frames.drain(..) {
        if sink.feed(Message::Text(frame.into())).await.is_err() {
            return false;
        }
    }
    sink.flush().await.is_ok()
}

pub async fn say_goodbye(sink: &mut SplitSink<WebSocket, Message>, end: End) {
    let (code, reason) = match end {
        End::Draining => (1001, "the service stops: connect again and go on"),
        End::StoreStalled => (1011, "the store does not answer"),
        End::SessionGone => (1001, "the session was deleted, or left memory: connect again"),
        End::KeyRevoked => (1008, "the key was revoked"),
        End::TooSlow => (1008, "the connection does not read what it is sent"),
        End::NoRoom => (1013, "clients send more at once than there is room for: try again in a moment"),
        End::TooLarge => (1009, "the message is too large"),
        End::BadMessage => (1002, "this is no websocket message"),
        End::NoText => (1007, "a text message is UTF-8"),
        End::NeverSpoke => (1008, "the connection never said anything"),
        End::Idle => (1000, "nothing was said for a long time"),
        End::Dead => (1001, "the connection does not answer"),
        End::ClientLeft => (1000, ""),
    };
    let _ = sink.send(Message::Close(Some(CloseFrame { code, reason: Utf8Bytes::from_static(reason) }))).await;
}
