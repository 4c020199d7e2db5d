//! `GET /v1/responses`: responses over a websocket, one after the other. The newest one that is not kept lives in the
//! connection, so that the next one may go on from it.

use super::parse::{GoesOnFrom, ResponsesRequest};
use super::render::{FrameShape, ResponsesReply};
use super::{answer, parse, prepared, refused, resolve_past};
use crate::access::{Caller, Peer};
use crate::openai_realtime::{broken, say_goodbye};
use crate::unended::Unended;
use crate::{ApiError, App};
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message as Frame, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use prompt::{ItemText, push_item};
use replies::heavy;
use replies::{Completion, Completions, Render};
use runtime::{End, HeldShare};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use session::{Event, Failure, FailureCode, Item, Message, ResponseStatus};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::Instrument;

#[derive(Deserialize, JsonSchema)]
pub struct ResponsesQuery {
    /// the preset of responses that name none
    model: Option<String>,
}

/// Frames are handed to the network when this much has gathered, and whenever nothing more waits.
const WRITE_BUFFER_BYTES: usize = 16 << 10; // not a window: bytes of a buffer
/// Read at once. It is held for as long as the connection is silent; a longer message gets its room when it comes.
const READ_BUFFER_BYTES: usize = 4 << 10; // not a window: bytes of a buffer
/// How long a goodbye may take on either side.
const GOODBYE: Duration = Duration::from_secs(2);
/// Pings that may go unanswered.
const PINGS: u32 = 3;

pub async fn connect(
    State(app): State<App>,
    State(completions): State<Completions>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    asked: Result<Query<ResponsesQuery>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|_| {
        ApiError::bad("websocket_expected", "this is the address of a websocket: ask for one response with POST")
    })?;
    let Query(ResponsesQuery { model }) = asked?;
    if app.stopping.is_cancelled() {
        return Err(runtime::Error::Stopping.into());
    }
    let key_place = app.gate.connect_key(&caller.account)?;
    app.model.wake();
    let limits = &app.settings.limits;
    let upgrade = upgrade
        .protocols(["responses", "realtime"])
        .max_frame_size(limits.frame_bytes)
        .max_message_size(limits.message_bytes)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(limits.outgoing_bytes.saturating_add(2 * WRITE_BUFFER_BYTES));
    let span = tracing::info_span!("responses", user = %caller.identity.user);
    Ok(upgrade.on_upgrade(move |websocket| {
        async move {
            let model = model.unwrap_or_default();
            let (unended, body_ms) = (peer.unended.clone(), app.settings.limits.body_ms);
            unended.watch(app.runtime.held().share(), Duration::from_millis(body_ms));
            Connection::new(app, completions, caller, headers, model, unended, websocket).converse().await;
            drop((peer, key_place));
        }
        .instrument(span)
    }))
}

struct Connection {
    completions: Completions,
    caller: Caller,
    /// Of the request that opened the connection.
    headers: HeaderMap,
    model: String,
    sink: SplitSink<WebSocket, Frame>,
    ear: Ear,
    /// The newest response that is not kept.
    newest: Option<Unkept>,
    /// What was prepared for and not asked yet.
    prepared: Option<Prepared>,
    /// A response that is asked for while another is said.
    waiting: Option<Utf8Bytes>,
    /// Of what is said in `newest`, `prepared` and `waiting`.
    held: HeldShare,
}

/// What the client says, and how long it may be silent.
struct Ear {
    app: App,
    stream: SplitStream<WebSocket>,
    unended: Arc<Unended>,
    revoked: BoxFuture<'static, ()>,
    pings: Interval,
    last_heard: Instant,
    /// When it last sent a message.
    last_said: Instant,
    has_spoken: bool,
    /// The message that came last is in memory until the next one is awaited.
    has_message: bool,
}

struct Unkept {
    id: String,
    /// All that was said until its end.
    messages: Vec<Message>,
}

struct Prepared {
    id: String,
    goes_on_from: Option<GoesOnFrom>,
    input: Vec<Message>,
}

enum Heard {
    Text(Utf8Bytes),
    Binary,
    /// It is time for a ping.
    PingDue,
}

type Alive = Result<(), End>;

impl Connection {
    fn new(
        app: App,
        completions: Completions,
        caller: Caller,
        headers: HeaderMap,
        model: String,
        unended: Arc<Unended>,
        websocket: WebSocket,
    ) -> Connection {
        let (sink, stream) = websocket.split();
        let revoked = Box::pin(app.revoked.clone().until(caller.identity.key.clone()));
        let mut pings = interval(Duration::from_secs(app.settings.limits.ping_s));
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset();
        let now = Instant::now();
        let held = app.runtime.held().share();
        let ear = Ear {
            app,
            stream,
            unended,
            revoked,
            pings,
            last_heard: now,
            last_said: now,
            has_spoken: false,
            has_message: false,
        };
        let (newest, prepared, waiting) = (None, None, None);
        Connection { completions, caller, headers, model, sink, ear, newest, prepared, waiting, held }
    }

    async fn converse(mut self) {
        let end = loop {
            if let Err(end) = self.next().await {
                break end;
            }
        };
        let _ = timeout(GOODBYE, async {
            say_goodbye(&mut self.sink, end).await;
            while let Some(Ok(_)) = self.ear.stream.next().await {}
        })
        .await;
        tracing::debug!(?end, "disconnected");
    }

    async fn next(&mut self) -> Alive {
        let heard = match self.waiting.take() {
            Some(text) => Heard::Text(text),
            None => {
                let stopping = self.ear.app.stopping.clone();
                tokio::select! {
                    heard = self.ear.hear() => heard?,
                    () = stopping.cancelled() => return Err(End::Draining),
                }
            }
        };
        match heard {
            Heard::PingDue => self.send([Frame::Ping(Default::default())]).await,
            Heard::Binary => self.tell(&binary()).await,
            Heard::Text(text) => match self.create(&text).await? {
                Ok(()) => Ok(()),
                Err(error) => self.tell(&error).await,
            },
        }
    }

    /// What the client wants while no response is under way.
    async fn create(&mut self, text: &str) -> Result<Result<(), ApiError>, End> {
        let frame: Value = match heavy::run(text.len(), || serde_json::from_str(text)).await {
            Ok(frame) => frame,
            Err(error) => return Ok(Err(ApiError::bad("invalid_json", format!("the message is no JSON: {error}")))),
        };
        match frame["type"].as_str() {
            Some("response.create") => match self.asked(frame, text.len()).await {
                Ok(Asked::Reply(under_way)) => {
                    self.newest = None;
                    self.reply(*under_way).await
                }
                Ok(Asked::Prepared(frames)) => self.send(frames.into_iter().map(Frame::text)).await.map(Ok),
                Err(error) => Ok(Err(error)),
            },
            // Its end was on its way when the client sent this: a word now would be taken for the next response's.
            Some("response.cancel") => {
                tracing::debug!("there is no response to cancel any more");
                Ok(Ok(()))
            }
            _ => Ok(Err(unknown(&frame))),
        }
    }
}

enum Asked {
    Reply(Box<UnderWay>),
    Prepared(Vec<String>),
}

struct UnderWay {
    completion: Completion,
    reply: ResponsesReply,
    /// The whole conversation, where it is not kept.
    said: Option<Vec<Message>>,
}

impl Connection {
    async fn asked(&mut self, frame: Value, bytes: usize) -> Result<Asked, ApiError> {
        let gate = &self.ear.app.gate;
        gate.request_of_address(self.caller.address)?;
        gate.request_of_key(&self.caller.account)?;
        let mut share = self.ear.app.model.preparation().share();
        share.add_body(bytes).await?;
        share.take_work(bytes as u64).await?;
        let mut request = heavy::run(bytes, || parse::request(&frame, &self.completions.settings)).await?;
        drop(frame);
        if request.model.is_empty() {
            request.model.clone_from(&self.model);
        }
        let (persons, caller, headers) = (&self.completions.persons, &self.caller, &self.headers);
        request.scope = persons.scope(caller, headers, &request.clues, &mut request.input).await?;
        self.recall(&mut request);
        if !request.generate {
            let (id, frames) = prepared(&self.completions, &request)?;
            self.prepared = None;
            self.hold(&request.input)?;
            self.prepared = Some(Prepared { id, goes_on_from: request.goes_on_from, input: request.input });
            return Ok(Asked::Prepared(frames));
        }
        if !request.store {
            resolve_past(&self.completions, &self.caller, &mut request).await?;
        }
        let said = (!request.store).then(|| request.input.clone());
        let (completion, reply) =
            answer(&self.completions, &self.caller, None, request, Arc::new(share), FrameShape::Message).await?;
        Ok(Asked::Reply(Box::new(UnderWay { completion, reply, said })))
    }

    /// What this connection knows of the response that the client goes on from.
    fn recall(&mut self, request: &mut ResponsesRequest) {
        let Some(GoesOnFrom::Response(id)) = &request.goes_on_from else { return };
        if let Some(prepared) = self.prepared.take_if(|prepared| prepared.id == *id) {
            request.goes_on_from = prepared.goes_on_from;
            request.input.splice(0..0, prepared.input);
            return self.recall(request);
        }
        if let Some(newest) = self.newest.as_ref().filter(|newest| newest.id == *id) {
            request.goes_on_from = None;
            request.input.splice(0..0, newest.messages.iter().cloned());
        }
    }

    /// Until the response is over. A client that leaves stops it.
    async fn reply(&mut self, under_way: UnderWay) -> Result<Result<(), ApiError>, End> {
        let UnderWay { mut completion, mut reply, said } = under_way;
        let canceller = completion.canceller();
        let mut output = None;
        while !reply.is_over() {
            let mut frames = Vec::new();
            tokio::select! {
                event = completion.next() => match event {
                    Some(Ok(event)) => {
                        if let Err(failure) = reply.add(&event, &mut frames) {
                            return Ok(Err(refused(failure)));
                        }
                        if let Event::ResponseDone { response } = &*event {
                            output = Some(response.output.clone()).filter(|_| response.status != ResponseStatus::Failed);
                        }
                    }
                    Some(Err(failure)) => reply.failed(&failure, &mut frames),
                    None => {
                        let failure = Failure::new(FailureCode::Unavailable, "the reply broke off");
                        reply.failed(&failure, &mut frames);
                    }
                },
                heard = self.ear.hear() => match heard? {
                    Heard::PingDue => self.send([Frame::Ping(Default::default())]).await?,
                    Heard::Binary => self.tell(&binary()).await?,
                    Heard::Text(text) => match meanwhile(&text, &reply.id) {
                        Meanwhile::Cancel => canceller.cancel(),
                        Meanwhile::Next if self.waiting.is_some() => self.tell(&too_many()).await?,
                        Meanwhile::Next if self.held.take(text.len()) => self.waiting = Some(text),
                        Meanwhile::Next => self.tell(&runtime::Error::NoRoom.into()).await?,
                        Meanwhile::Nothing => {}
                        Meanwhile::Wrong(error) => self.tell(&error).await?,
                    },
                },
            }
            self.send(frames.into_iter().map(Frame::text)).await?;
        }
        let newest = said.zip(output).map(|(messages, output)| unkept(reply.id, messages, output));
        // Where there is no room for it, the client says all of it again, as after a connection that broke.
        self.newest = newest.filter(|newest| self.hold(&newest.messages).is_ok());
        Ok(Ok(()))
    }

    /// Takes room for what was said, beside what is held already.
    fn hold(&mut self, said: &[Message]) -> Result<(), ApiError> {
        let newest = self.newest.as_ref().map_or(&[][..], |newest| &newest.messages);
        let prepared = self.prepared.as_ref().map_or(&[][..], |prepared| &prepared.input);
        let bytes = |messages: &[Message]| messages.iter().map(Message::text_bytes).sum::<usize>();
        let waiting = self.waiting.as_ref().map_or(0, |text| text.len());
        self.held.set((bytes(newest) + bytes(prepared) + waiting) as u64);
        if self.held.take(bytes(said)) { Ok(()) } else { Err(runtime::Error::NoRoom.into()) }
    }

    async fn tell(&mut self, error: &ApiError) -> Alive {
        let ApiError { status, kind, code, message, param, .. } = error;
        let body = json!({ "type": kind, "code": code, "message": message, "param": param });
        let frame = json!({ "type": "error", "status": status.as_u16(), "error": body });
        self.send([Frame::text(frame.to_string())]).await
    }

    async fn send(&mut self, frames: impl IntoIterator<Item = Frame>) -> Alive {
        for frame in frames {
            self.sink.feed(frame).await.map_err(|_| End::ClientLeft)?;
        }
        self.sink.flush().await.map_err(|_| End::ClientLeft)
    }
}

impl Ear {
    /// The next message of the client, or why there will be none. May be dropped and called again.
    async fn hear(&mut self) -> Result<Heard, End> {
        if std::mem::take(&mut self.has_message) {
            self.unended.message_ended();
        }
        let limits = self.app.settings.limits.clone();
        let dead = Duration::from_secs(limits.ping_s) * PINGS;
        let patience = match self.has_spoken {
            true => Duration::from_secs(limits.idle_s),
            false => Duration::from_millis(limits.first_message_ms),
        };
        loop {
            // A pong shows that the client is there, and says nothing.
            let message = tokio::select! {
                message = self.stream.next() => message,
                () = &mut self.revoked => return Err(End::KeyRevoked),
                _ = self.pings.tick() => return Ok(Heard::PingDue),
                () = sleep_until(self.last_heard + dead) => return Err(End::Dead),
                () = sleep_until(self.last_said + patience) => {
                    return Err(if self.has_spoken { End::Idle } else { End::NeverSpoke });
                }
            };
            self.last_heard = Instant::now();
            let heard = match message {
                None | Some(Ok(Frame::Close(_))) => return Err(End::ClientLeft),
                Some(Err(error)) => return Err(self.unended.end().unwrap_or_else(|| broken(&error))),
                Some(Ok(Frame::Ping(carried) | Frame::Pong(carried))) => {
                    self.unended.control_frame(carried.len());
                    continue;
                }
                Some(Ok(Frame::Binary(_))) => Heard::Binary,
                Some(Ok(Frame::Text(text))) => Heard::Text(text),
            };
            self.has_message = true;
            (self.has_spoken, self.last_said) = (true, self.last_heard);
            return Ok(heard);
        }
    }
}

/// What a client may say while a response is under way.
enum Meanwhile {
    Cancel,
    /// It asks for the next response.
    Next,
    /// It speaks of a response that is over.
    Nothing,
    Wrong(ApiError),
}

fn meanwhile(text: &str, id: &str) -> Meanwhile {
    let frame: Value = match serde_json::from_str(text) {
        Ok(frame) => frame,
        Err(error) => {
            return Meanwhile::Wrong(ApiError::bad("invalid_json", format!("the message is no JSON: {error}")));
        }
    };
    match (frame["type"].as_str(), frame["response_id"].as_str()) {
        (Some("response.cancel"), Some(other)) if other != id => Meanwhile::Nothing,
        (Some("response.cancel"), _) => Meanwhile::Cancel,
        (Some("response.create"), _) => Meanwhile::Next,
        _ => Meanwhile::Wrong(unknown(&frame)),
    }
}

fn unkept(id: String, mut messages: Vec<Message>, output: Vec<Item>) -> Unkept {
    for item in output {
        push_item(&mut messages, &item, ItemText::Verbatim);
    }
    Unkept { id, messages }
}

fn unknown(frame: &Value) -> ApiError {
    let kind: String = frame["type"].as_str().unwrap_or_default().chars().take(KIND_CHARS).collect();
    let message = format!("there is no event '{kind}' here: send response.create or response.cancel");
    ApiError::bad("unsupported_parameter", message).param("type")
}

/// Of a type that is repeated.
const KIND_CHARS: usize = 64;

fn binary() -> ApiError {
    ApiError::bad("invalid_json", "events are text messages, and this one is binary")
}

fn too_many() -> ApiError {
    let message = "a response is under way and another one waits: open a connection for each, or wait";
    ApiError::new(axum::http::StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
}
