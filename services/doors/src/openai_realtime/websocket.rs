//! One websocket: a task that reads and a task that writes, so that neither waits for the other.

use super::error::error_body;
use super::frames::RateLimit;
use super::parse::{AudioEvent, Limits, NO_EARS, NO_ROOM, Received, note_audio, note_unread, parse};
use super::speaking_client::SpeakingClient;
use super::talk::{ClientInput, Happened, Talk};
use super::{EXTENSION, ErrorBody, Renderer};
use crate::entry::too_many_values;
use crate::{ApiError, App};
use access::Allowance;
use runtime::{Connected, End, ToWrite, Written, heavy};
use session::{Event, Input, Refusal};
use sockets::{OwnFrames, SocketEnd, SocketMessage, SocketReader, SocketWriter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tracing::Instrument;

/// Client of a session on one websocket.
pub struct RealtimeClient {
    pub app: App,
    pub speaker: SpeakingClient,
    pub connected: Arc<Connected>,
    pub limits: Limits,
    /// True while the connection has opted in to the extensions.
    pub extensions: Arc<AtomicBool>,
    /// Renderer and queue of the door's own frames.
    pub own: Renderer,
    pub own_frames: OwnFrames,
    /// Task that hears and speaks. `None`: there are neither ears nor a voice.
    pub to_talk: Option<mpsc::Sender<Box<ClientInput>>>,
}

/// Bytes of a message that takes little memory while it is read.
const SMALL_BYTES: usize = 64 << 10; // not a window: bytes of a message

impl RealtimeClient {
    /// Reads and writes until one of the two sides ends the connection.
    pub async fn converse(
        mut self: Box<Self>,
        mut reader: SocketReader,
        writer: SocketWriter,
        written: Written,
        renderer: Renderer,
        talk: Option<Box<Talk>>,
    ) {
        tracing::debug!(user = %self.speaker.caller.identity.user, "connected");
        let outgoing = self.connected.outgoing.clone();
        let found = Arc::<OnceLock<SocketEnd>>::default();
        let sending = Arc::<Mutex<()>>::default();
        let (own_frames, found_end, in_flight) = (self.own_frames.clone(), found.clone(), sending.clone());
        let writing = Writing { writer, written, renderer, talk, own_frames, found: found_end, sending: in_flight };
        let writing = tokio::spawn(writing.write().in_current_span());
        let end = loop {
            tokio::select! {
                message = reader.next() => {
                    let end = match message {
                        Ok(message) => match self.heard(message).await {
                            true => continue,
                            false => SocketEnd::BySession(End::SessionGone),
                        },
                        Err(end) => end,
                    };
                    let _ = found.set(end);
                    // What the client has received counts as heard, also where it leaves at once.
                    let _ = timeout(SETTLE, sending.lock()).await;
                    outgoing.end_now(End::Left);
                    break end;
                }
                // Queued frames are still written.
                end = outgoing.ended() => break SocketEnd::BySession(end),
            }
        };
        let goodbye = async {
            let _ = writing.await;
        };
        reader.close(end, goodbye).await;
    }

    /// Takes a message to the session. False: the session has left memory.
    async fn heard(&mut self, message: SocketMessage) -> bool {
        let SocketMessage::Text(text) = message else {
            let message = "events are text messages, and this one is binary";
            return self.refuse(ErrorBody::new("invalid_json", message)).await;
        };
        let mut share = self.app.replies.model.preparation().share();
        if text.len() > SMALL_BYTES {
            let counted = model::json_bytes(text.as_bytes());
            if counted > self.app.replies.settings.limits.message_bytes as u64 {
                let ApiError { code, message, .. } = too_many_values();
                return self.refuse(ErrorBody::new(code, message)).await;
            }
            if let Err(failure) = share.take_work(counted).await {
                return self.refuse(ErrorBody::new("server_error", failure.message)).await;
            }
        }
        let Received { event_id, mut input, is_extension, extensions, trace_parent, unread, audio } =
            match heavy::run(text.len(), || parse(&text, &self.limits)).await {
                Ok(received) => received,
                // Stock clients speak audio unasked, and an error for each piece ends or floods them.
                Err(error) if error.is_audio() || self.to_talk.is_none() && error.is_of_audio() => {
                    if self.to_talk.is_none() {
                        note_audio(&self.speaker.caller.identity.user, NO_EARS);
                    }
                    return true;
                }
                Err(error) => return self.refuse(error).await,
            };
        let bytes = text.len();
        drop((text, share));
        note_unread(&self.speaker.caller.identity.user, unread);
        if self.to_talk.is_none() && audio.as_ref().is_some_and(AudioEvent::is_alone) {
            note_audio(&self.speaker.caller.identity.user, NO_EARS);
            return true;
        }
        if is_extension && !self.extensions.load(Ordering::Relaxed) {
            let message = format!("connect with ?extensions={EXTENSION} or set session.extensions to use this event");
            let error = ErrorBody::new("extension_not_enabled", message).param("type");
            return self.refuse(error.caused_by(event_id)).await;
        }
        if let Some(names) = extensions {
            self.extensions.store(names.iter().any(|name| name == EXTENSION), Ordering::Relaxed);
        }
        if let Err(error) = self.speaker.name(&self.app, &mut input).await {
            let error = ErrorBody::new("store_failed", error.message);
            return self.refuse(error.caused_by(event_id)).await;
        }
        if let Some(trace_parent) = trace_parent
            && !self.connected.trace_next(trace_parent).await
        {
            return false;
        }
        if !input.wants_response() {
            return self.say(event_id, input, audio, bytes).await;
        }
        match self.app.access.gate.request(&self.speaker.caller) {
            Ok(left) => {
                let frame = self.own.rate_limits(rate_limits(left));
                self.say(event_id, input, audio, bytes).await && self.own_frames.queue(frame, &self.connected).await
            }
            Err(error) => {
                let error = ErrorBody::new("rate_limit_exceeded", error.to_string());
                self.refuse(error.caused_by(event_id)).await
            }
        }
    }

    // `bytes`: those of its message.
    async fn say(&mut self, event_id: Option<String>, input: Input, audio: Option<AudioEvent>, bytes: usize) -> bool {
        let Some(talk) = &self.to_talk else { return self.connected.say(event_id, input).await };
        let Some(held) = self.app.replies.runtime.held().taken(bytes) else {
            if audio.as_ref().is_some_and(AudioEvent::is_alone) {
                note_audio(&self.speaker.caller.identity.user, NO_ROOM);
                return true;
            }
            return self.refuse(error_body(&Refusal::NoRoom, event_id)).await;
        };
        talk.send(Box::new(ClientInput { event_id, input, audio, _held: held })).await.is_ok()
    }

    async fn refuse(&mut self, error: ErrorBody) -> bool {
        let frame = self.own.error(&error);
        self.own_frames.queue(frame, &self.connected).await
    }
}

fn rate_limits(allowance: Allowance) -> Vec<RateLimit> {
    vec![RateLimit {
        name: "requests",
        limit: allowance.limit,
        remaining: allowance.remaining,
        reset_seconds: allowance.reset_s,
    }]
}

/// The task that writes.
struct Writing {
    writer: SocketWriter,
    written: Written,
    renderer: Renderer,
    talk: Option<Box<Talk>>,
    own_frames: OwnFrames,
    /// End that the reader found.
    found: Arc<OnceLock<SocketEnd>>,
    /// Held from the begin of a write until what was written is counted.
    sending: Arc<Mutex<()>>,
}

const SETTLE: Duration = Duration::from_millis(100); // a write that takes longer is not on its way any more

const EVENTS_TOGETHER: u64 = 64;
const BYTES_TOGETHER: usize = 64 << 10; // not a window: bytes of frames

impl Writing {
    async fn write(mut self) {
        let end = self.write_all().await;
        if let Some(talk) = self.talk.take() {
            talk.leave();
        }
        if let Some(end) = end {
            self.writer.say_goodbye(end).await;
        }
    }

    // Writes until there is no more. `None`: the client reads no more.
    async fn write_all(&mut self) -> Option<SocketEnd> {
        let mut frames = Vec::new();
        loop {
            let next = tokio::select! {
                next = self.written.next() => Some(next),
                happened = happens(&mut self.talk) => {
                    match (happened, &mut self.talk) {
                        (Some(happened), Some(talk)) => talk.handle(happened, &mut self.renderer, &mut frames).await,
                        (_, talk) => {
                            if let Some(talk) = talk.take() {
                                talk.leave();
                            }
                        }
                    }
                    None
                }
                () = self.writer.ping_due() => {
                    let sent = tokio::select! {
                        sent = self.writer.ping() => sent.is_ok(),
                        () = self.written.ended_now() => true,
                    };
                    if !sent {
                        return None;
                    }
                    continue;
                }
            };
            // Waiting events go out together.
            let (mut taken, mut end, mut next) = (0, None, next);
            while let Some(one) = next {
                match one {
                    ToWrite::Event(event) => self.render(&event, &mut frames).await,
                    ToWrite::End(then) => {
                        end = Some(then);
                        break;
                    }
                }
                taken += 1;
                let has_room = frames.iter().map(String::len).sum::<usize>() < BYTES_TOGETHER;
                next = if taken < EVENTS_TOGETHER && has_room { self.written.try_next() } else { None };
            }
            if taken == 0 && frames.is_empty() && end.is_none() {
                continue;
            }
            let sending = self.sending.clone();
            let counting = sending.lock().await;
            let sent = tokio::select! {
                sent = self.writer.send(frames.drain(..)) => Some(sent),
                () = self.written.ended_now() => None,
            };
            match sent {
                Some(Ok(())) => self.written.done(taken),
                Some(Err(_)) => return None,
                None => {}
            }
            let end = match end {
                None => continue,
                Some(End::Left) => self.found.get().copied().unwrap_or(SocketEnd::ClientLeft),
                Some(end) => SocketEnd::BySession(end),
            };
            drop(counting);
            return Some(end);
        }
    }

    async fn render(&mut self, event: &Arc<Event>, frames: &mut Vec<String>) {
        match (&**event, &mut self.talk) {
            (Event::Reached { mark, .. }, _) => frames.extend(self.own_frames.take(*mark)),
            (_, Some(talk)) => talk.event(event, &mut self.renderer, frames).await,
            (event, None) => self.renderer.render(event, frames),
        }
    }
}

/// Waits for what a connection that hears and speaks does next. `None`: nothing any more.
async fn happens(talk: &mut Option<Box<Talk>>) -> Option<Happened> {
    match talk {
        Some(talk) => talk.next().await,
        None => std::future::pending().await,
    }
}
