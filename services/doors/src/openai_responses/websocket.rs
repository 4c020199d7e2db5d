//! `GET /v1/responses`: responses over a websocket, one after the other. The newest one that is not kept lives in the
//! connection, so that the next one may go on from it.

use super::parse::ResponsesRequest;
use super::render::{FrameShape, ResponsesReply};
use super::{answer, parse, prepared, refused, resolve_past};
use crate::entry::{Peer, too_many_values};
use crate::socket::{admit, upgrade as upgrade_socket};
use crate::{ApiError, App};
use access::Caller;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Utf8Bytes, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use fields::shown;
use model::PreparationShare;
use prompt::{ItemText, push_item};
use replies::{Completion, Completions, GoesOnFrom, Render};
use runtime::{End, HeldShare, heavy};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use session::{Event, Failure, FailureCode, Item, Message, ResponseStatus, text_bytes};
use sockets::{SocketEnd, SocketMessage, SocketReader, SocketWriter};
use std::sync::Arc;

#[derive(Deserialize, JsonSchema)]
pub struct ResponsesQuery {
    /// the preset of responses that name none
    model: Option<String>,
}

pub async fn connect(
    State(app): State<App>,
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
    let place = admit(&app, &caller)?;
    let span = tracing::info_span!("responses", user = %caller.identity.user);
    let (opened, held) = ((&caller.clone(), peer, place), app.replies.runtime.held().share());
    let (model, service) = (model.unwrap_or_default(), app.clone());
    let converse = |reader, writer| async move {
        let (newest, prepared, waiting) = (None, None, None);
        let connection =
            Connection { app: service, caller, headers, model, reader, writer, newest, prepared, waiting, held };
        connection.converse().await;
    };
    Ok(upgrade_socket(&app, opened, (upgrade, &["responses", "realtime"]), span, converse))
}

struct Connection {
    app: App,
    caller: Caller,
    /// Headers of the request that opened the connection.
    headers: HeaderMap,
    /// Model of responses that name none.
    model: String,
    reader: SocketReader,
    writer: SocketWriter,
    /// Newest response that is not kept.
    newest: Option<Unkept>,
    /// Prompt that was read ahead for the next response.
    prepared: Option<Prepared>,
    /// Request that came while another response is made.
    waiting: Option<Utf8Bytes>,
    /// Share of the text in `newest`, `prepared` and `waiting`.
    held: HeldShare,
}

struct Unkept {
    id: String,
    messages: Vec<Message>,
}

struct Prepared {
    id: String,
    goes_on_from: Option<GoesOnFrom>,
    input: Vec<Message>,
}

type Alive = Result<(), SocketEnd>;

impl Connection {
    async fn converse(mut self) {
        let end = loop {
            if let Err(end) = self.next().await {
                break end;
            }
        };
        self.reader.close(end, self.writer.say_goodbye(end)).await;
    }

    async fn next(&mut self) -> Alive {
        let message = match self.waiting.take() {
            Some(text) => SocketMessage::Text(text),
            None => tokio::select! {
                message = self.reader.next() => message?,
                () = self.writer.ping_due() => return self.writer.ping().await,
                () = self.app.stopping.cancelled() => return Err(SocketEnd::BySession(End::Draining)),
            },
        };
        match message {
            SocketMessage::Binary => self.tell(&binary()).await,
            SocketMessage::Text(text) => match self.create(&text).await? {
                Ok(()) => Ok(()),
                Err(error) => self.tell(&error).await,
            },
        }
    }

    /// Does what the client wants while no response is under way.
    async fn create(&mut self, text: &str) -> Result<Result<(), ApiError>, SocketEnd> {
        let share = match share_for(&self.app.replies, text).await {
            Ok(share) => share,
            Err(error) => return Ok(Err(error)),
        };
        let frame: Value = match heavy::run(text.len(), || serde_json::from_str(text)).await {
            Ok(frame) => frame,
            Err(error) => return Ok(Err(ApiError::bad("invalid_json", format!("the message is no JSON: {error}")))),
        };
        match frame["type"].as_str() {
            Some("response.create") => match self.asked(frame, text.len(), share).await {
                Ok(Asked::Reply(under_way)) => {
                    self.newest = None;
                    self.reply(*under_way).await
                }
                Ok(Asked::Prepared(frames)) => self.writer.send(frames).await.map(Ok),
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

async fn share_for(completions: &Completions, text: &str) -> Result<PreparationShare, ApiError> {
    let counted = model::json_bytes(text.as_bytes());
    if counted > completions.settings.limits.message_bytes as u64 {
        return Err(too_many_values());
    }
    let mut share = completions.model.preparation().share();
    share.add_body(text.len()).await?;
    share.take_work(counted).await?;
    Ok(share)
}

enum Asked {
    Reply(Box<UnderWay>),
    Prepared(Vec<String>),
}

struct UnderWay {
    completion: Completion,
    reply: ResponsesReply,
    /// Whole conversation of a response that is not kept.
    said: Option<Vec<Message>>,
}

impl Connection {
    async fn asked(&mut self, frame: Value, bytes: usize, share: PreparationShare) -> Result<Asked, ApiError> {
        self.app.access.gate.request(&self.caller)?;
        let completions = self.app.replies.clone();
        let mut request = heavy::run(bytes, || parse::request(&frame, &completions.settings)).await?;
        drop(frame);
        if request.model.is_empty() {
            request.model.clone_from(&self.model);
        }
        let (persons, caller, headers) = (&completions.persons, &self.caller, &self.headers);
        request.scope = persons.scope(caller, headers, &request.clues, &mut request.input).await?;
        self.recall(&mut request);
        if !request.generate {
            let (id, frames) = prepared(&completions, &request)?;
            self.prepared = None;
            self.hold(&request.input)?;
            self.prepared = Some(Prepared { id, goes_on_from: request.goes_on_from, input: request.input });
            return Ok(Asked::Prepared(frames));
        }
        if !request.store {
            resolve_past(&completions, &self.caller, &mut request).await?;
        }
        let said = (!request.store).then(|| request.input.clone());
        let (completion, reply) =
            answer(&completions, &self.caller, None, request, Arc::new(share), FrameShape::Message).await?;
        Ok(Asked::Reply(Box::new(UnderWay { completion, reply, said })))
    }

    /// Adds the past that this connection knows, if the client goes on from its newest or prepared response.
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

    /// Tells the reply to its end. A client that leaves stops it.
    async fn reply(&mut self, under_way: UnderWay) -> Result<Result<(), ApiError>, SocketEnd> {
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
                () = self.writer.ping_due() => self.writer.ping().await?,
                message = self.reader.next() => match message? {
                    SocketMessage::Binary => self.tell(&binary()).await?,
                    SocketMessage::Text(text) => match heavy::run(text.len(), || meanwhile(&text, &reply.id)).await {
                        Meanwhile::Cancel => canceller.cancel(),
                        Meanwhile::Next if self.waiting.is_some() => self.tell(&too_many()).await?,
                        Meanwhile::Next if self.held.take(text.len()) => self.waiting = Some(text),
                        Meanwhile::Next => self.tell(&runtime::Error::NoRoom.into()).await?,
                        Meanwhile::Nothing => {}
                        Meanwhile::Refused(error) => self.tell(&error).await?,
                    },
                },
            }
            self.writer.send(frames).await?;
        }
        let newest = said.zip(output).map(|(messages, output)| unkept(reply.id, messages, output));
        // Where there is no room for it, the client says all of it again, as after a connection that broke.
        self.newest = newest.filter(|newest| self.hold(&newest.messages).is_ok());
        Ok(Ok(()))
    }

    /// Takes room for text beside what is held already.
    fn hold(&mut self, said: &[Message]) -> Result<(), ApiError> {
        let newest = self.newest.as_ref().map_or(&[][..], |newest| &newest.messages);
        let prepared = self.prepared.as_ref().map_or(&[][..], |prepared| &prepared.input);
        let waiting = self.waiting.as_ref().map_or(0, |text| text.len());
        self.held.set((text_bytes(newest) + text_bytes(prepared) + waiting) as u64);
        if self.held.take(text_bytes(said)) { Ok(()) } else { Err(runtime::Error::NoRoom.into()) }
    }

    async fn tell(&mut self, error: &ApiError) -> Alive {
        let ApiError { status, kind, code, message, param, .. } = error;
        let body = json!({ "type": kind, "code": code, "message": message, "param": param });
        let frame = json!({ "type": "error", "status": status.as_u16(), "error": body });
        self.writer.send([frame.to_string()]).await
    }
}

/// Message of a client while a response is made.
enum Meanwhile {
    Cancel,
    /// Request for the next response.
    Next,
    /// Cancel of a response that is over.
    Nothing,
    Refused(ApiError),
}

fn meanwhile(text: &str, id: &str) -> Meanwhile {
    let frame: Value = match serde_json::from_str(text) {
        Ok(frame) => frame,
        Err(error) => {
            return Meanwhile::Refused(ApiError::bad("invalid_json", format!("the message is no JSON: {error}")));
        }
    };
    match (frame["type"].as_str(), frame["response_id"].as_str()) {
        (Some("response.cancel"), Some(other)) if other != id => Meanwhile::Nothing,
        (Some("response.cancel"), _) => Meanwhile::Cancel,
        (Some("response.create"), _) => Meanwhile::Next,
        _ => Meanwhile::Refused(unknown(&frame)),
    }
}

fn unkept(id: String, mut messages: Vec<Message>, output: Vec<Item>) -> Unkept {
    for item in output {
        push_item(&mut messages, &item, ItemText::Verbatim);
    }
    Unkept { id, messages }
}

fn unknown(frame: &Value) -> ApiError {
    let kind = shown(frame["type"].as_str().unwrap_or_default());
    let message = format!("there is no event '{kind}' here: send response.create or response.cancel");
    ApiError::bad("unsupported_parameter", message).param("type")
}

fn binary() -> ApiError {
    ApiError::bad("invalid_json", "events are text messages, and this one is binary")
}

fn too_many() -> ApiError {
    let message = "a response is under way and another one waits: open a connection for each, or wait";
    ApiError::new(axum::http::StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
}
