//! One connection: its events in their order, and the reply to what was said last.

use super::intents;
use super::parse::{Transcript, WyomingRequest, parse};
use super::program::WyomingProgram;
use super::render::{WyomingReply, error, info, interrupted, left, pong, refused};
use crate::unread::note;
use crate::{ApiError, App};
use access::{ConnectionPlace, Refused};
use axum::http::StatusCode;
use fields::shown;
use fields::{FieldError, Read};
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt};
use metrics::counter;
use replies::{BodyClues, Completion};
use serde_json::{Map, Value};
use session::{ItemBody, NewItem, NewTurn, ResponseRequest, Role};
use sockets::say_goodbye;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::SessionRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OnceCell};
use tokio::time::{Instant, sleep_until, timeout};
use voices::{FrameLimits, FrameReader, WyomingEvent};

/// Serves a connection until either side ends it.
pub async fn serve(
    app: App,
    program: Arc<WyomingProgram>,
    stream: TcpStream,
    address: SocketAddr,
    place: ConnectionPlace,
) {
    let _ = stream.set_nodelay(true);
    let (write_limit, settings) =
        (Duration::from_millis(app.replies.settings.limits.write_ms), &app.replies.settings.wyoming);
    let limits = FrameLimits::of(settings);
    let idle = Duration::from_secs(settings.idle_s);
    let mut connection = WyomingConnection {
        app,
        program,
        stream,
        address,
        reader: FrameReader::new(limits),
        own: Arc::default(),
        asking: Arc::default(),
        turn: None,
        write_limit,
        idle,
    };
    let ended = connection.converse(place).await;
    if let Err(WyomingEnd::Refused(wrong)) = &ended
        && let Some(_told) = connection.app.access.gate.goodbye()
    {
        tell_goodbye(&mut connection.stream, wrong).await;
    }
    if connection.turn.take().is_some() {
        left();
    }
    tracing::debug!(%address, ended = ?ended.err(), "disconnected");
}

/// Tells a client that has no place the reason.
pub async fn refuse(refused: Refused, mut stream: TcpStream) {
    let error = ApiError::from(refused.error);
    tell_goodbye(&mut stream, &FieldError::new(error.code, "", error.message)).await;
}

async fn tell_goodbye(stream: &mut TcpStream, wrong: &FieldError) {
    let goodbye = error(wrong.code, &wrong.message());
    let _ = timeout(GOODBYE, say_goodbye(stream, goodbye.as_bytes())).await;
}

/// Time that a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 8192; // not a window: bytes of a buffer

/// Reason why the service ends a connection.
#[derive(Debug)]
enum WyomingEnd {
    /// Loss of the next event's begin, or want of room. The service tells the client.
    Refused(FieldError),
    Broken,
    Idle,
    Stopping,
}

struct WyomingConnection {
    app: App,
    program: Arc<WyomingProgram>,
    stream: TcpStream,
    address: SocketAddr,
    reader: FrameReader,
    /// The session of a client that gives its conversation no name.
    own: Arc<OnceCell<SessionRef>>,
    /// Held while a session is asked, so that what was said later is asked later.
    asking: Arc<Mutex<()>>,
    turn: Option<Turn>,
    write_limit: Duration,
    idle: Duration,
}

/// A reply that is being made. Dropping it stops the response; what was said stays.
struct Turn {
    context: Option<Map<String, Value>>,
    frames: BoxStream<'static, String>,
}

impl WyomingConnection {
    /// `Ok`: the client has left.
    async fn converse(&mut self, _place: ConnectionPlace) -> Result<(), WyomingEnd> {
        tracing::debug!(program = %self.program.name, "connected");
        let mut bytes = vec![0; READ_BYTES];
        let mut silent_until = Instant::now() + self.idle;
        let stopping = self.app.stopping.clone();
        loop {
            let is_replying = self.turn.is_some();
            tokio::select! {
                read = self.stream.read(&mut bytes) => {
                    let count = read.map_err(|_| WyomingEnd::Broken)?;
                    if count == 0 {
                        return Ok(());
                    }
                    self.reader.push(&bytes[..count]);
                    while let Some(event) = self.reader.event().map_err(WyomingEnd::Refused)? {
                        silent_until = Instant::now() + self.idle;
                        self.heard(event).await?;
                    }
                }
                frame = next_frame(&mut self.turn) => match frame {
                    Some(frame) => self.write(&frame).await?,
                    None => {
                        self.turn = None;
                        silent_until = Instant::now() + self.idle;
                    }
                },
                () = stopping.cancelled(), if !is_replying => return Err(WyomingEnd::Stopping),
                () = sleep_until(silent_until), if !is_replying => return Err(WyomingEnd::Idle),
            }
        }
    }

    async fn heard(&mut self, event: WyomingEvent) -> Result<(), WyomingEnd> {
        let kind = shown(&event.kind);
        let request = self.allowed(event);
        counter!("reprise_wyoming_events_total", "event" => word(&request)).increment(1);
        match request {
            Ok(WyomingRequest::Describe) => self.write(&self.info()).await,
            Ok(WyomingRequest::Ping { text }) => self.write(&pong(text.as_deref())).await,
            Ok(WyomingRequest::Transcript(transcript)) => self.answer(transcript).await,
            Ok(WyomingRequest::Other) => {
                note("Wyoming", &self.source(), vec![format!("{kind} (an event)")]);
                Ok(())
            }
            Err(wrong) => self.write(&error(wrong.code, &wrong.message())).await,
        }
    }

    /// Source of notices about this connection. The protocol has no keys.
    fn source(&self) -> String {
        self.address.ip().to_string()
    }

    fn info(&self) -> String {
        let WyomingProgram { name, model, .. } = &*self.program;
        let replies = &self.app.replies;
        let shown = if model.is_empty() { &replies.runtime.presets().model } else { model };
        info(name, shown, replies.settings.wyoming.intents)
    }

    /// Reads an event, and refuses a client that wants too much.
    fn allowed(&self, event: WyomingEvent) -> Read<WyomingRequest> {
        let (gate, settings) = (&self.app.access.gate, &self.app.replies.settings);
        let too_fast = |refused: access::Error| {
            let ApiError { code, message, .. } = ApiError::from(refused);
            FieldError::new(code, "", message)
        };
        let request = parse(event, &settings.limits)?;
        if request != WyomingRequest::Other {
            gate.request_of_address(self.address.ip()).map_err(too_fast)?;
        }
        if let WyomingRequest::Transcript(_) = request {
            gate.request_of_key(&format!("user {}", settings.wyoming.user)).map_err(too_fast)?;
        }
        Ok(request)
    }

    /// A client that says something else meanwhile does not want the first reply any more.
    async fn answer(&mut self, transcript: Transcript) -> Result<(), WyomingEnd> {
        if let Some(mut turn) = self.turn.take() {
            // A reply whose end is told or ready is over, though this connection has not looked again.
            let mut next = turn.frames.next().now_or_never();
            while let Some(Some(frame)) = next {
                self.write(&frame).await?;
                next = turn.frames.next().now_or_never();
            }
            if next.is_none() {
                left();
                drop(turn.frames);
                self.write(&interrupted(turn.context.as_ref())).await?;
            }
        }
        note("Wyoming", &self.source(), transcript.unread.clone());
        let context = transcript.context.clone();
        let reply = WyomingReply::to(&transcript);
        let (app, program, own) = (self.app.clone(), self.program.clone(), self.own.clone());
        let asking = self.asking.clone().lock_owned().await;
        // Also for a client that leaves at once: what was said is kept.
        let asked = tokio::spawn(async move {
            let _asking = asking;
            ask(app, program, own, transcript).await
        });
        let frames = async move {
            let completion = match asked.await {
                Ok(Ok(completion)) => completion,
                Ok(Err(error)) => return stream::once(async move { refused(&error) }).boxed(),
                Err(_) => {
                    let message = "something went wrong here: say it again";
                    let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message);
                    return stream::once(async move { refused(&error) }).boxed();
                }
            };
            match replies::streamed(completion, reply).await {
                Ok(frames) => frames.boxed(),
                Err(failure) => stream::once(async move { refused(&failure.into()) }).boxed(),
            }
        };
        self.turn = Some(Turn { context, frames: frames.flatten_stream().boxed() });
        Ok(())
    }

    async fn write(&mut self, frame: &str) -> Result<(), WyomingEnd> {
        match timeout(self.write_limit, self.stream.write_all(frame.as_bytes())).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(WyomingEnd::Broken),
        }
    }
}

/// Returns the next frame of the turn; waits for ever without one.
async fn next_frame(turn: &mut Option<Turn>) -> Option<String> {
    match turn {
        Some(turn) => turn.frames.next().await,
        None => pending().await,
    }
}

async fn ask(
    app: App,
    program: Arc<WyomingProgram>,
    own: Arc<OnceCell<SessionRef>>,
    transcript: Transcript,
) -> Result<Completion, ApiError> {
    let Transcript { text, name, satellite, device, .. } = transcript;
    let (user, model) = (&app.replies.settings.wyoming.user, &program.model);
    let clues = BodyClues { model: model.clone(), satellite, device, ..BodyClues::default() };
    let scope = app.replies.persons.scope_without_key(user, "Wyoming", &clues).await?;
    let new = scope.new_session(model);
    let session = match name {
        Some(name) => app.replies.runtime.named(new, program.session_name(name)).await?,
        None => own.get_or_try_init(|| app.replies.runtime.create(new)).await?.clone(),
    };
    tracing::debug!(session = session.id(), program = %program.name, "a turn begins");
    let item = NewItem { id: None, body: ItemBody::message(Role::User, text) };
    let request =
        ResponseRequest { config: intents::config(app.replies.settings.wyoming.intents), ..ResponseRequest::default() };
    let turn = NewTurn { interrupts: true, items: vec![item], request, ..NewTurn::default() };
    Ok(app.replies.talk(&session, &scope, turn).await?)
}

fn word(request: &Read<WyomingRequest>) -> &'static str {
    match request {
        Ok(WyomingRequest::Describe) => "describe",
        Ok(WyomingRequest::Ping { .. }) => "ping",
        Ok(WyomingRequest::Transcript(_)) => "transcript",
        Ok(WyomingRequest::Other) => "other",
        Err(_) => "refused",
    }
}
