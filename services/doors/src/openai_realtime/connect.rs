//! `GET /v1/realtime`: from a request to a connection of a session.

use super::render::interest;
use super::speaking_client::SpeakingClient;
use super::talk::{Talk, WAITING_INPUTS};
use super::websocket::RealtimeClient;
use super::{EXTENSION, ErrorBody, Renderer, event_limits, session_update};
use crate::entry::Peer;
use crate::socket::{admit, upgrade as upgrade_socket};
use crate::{ApiError, App};
use access::Caller;
use axum::extract::rejection::QueryRejection;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use replies::identity::{BodyClues, is_private};
use runtime::{Attach, NewSession};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use session::ConfigUpdate;
use session::machine::Replay;
use sockets::OwnFrames;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::mpsc;

#[derive(Deserialize, JsonSchema)]
pub struct ConnectQuery {
    /// the preset of a new session
    model: Option<String>,
    /// a session to go on with
    session: Option<String>,
    /// with session: the last item the client has; the later ones are told
    after: Option<String>,
    /// may name a person, where a rule says so
    user: Option<String>,
    /// `true`: nothing of a new session is remembered
    private: Option<bool>,
    /// `reprise` for partial transcripts, sentences, reports and notices
    extensions: Option<String>,
}

pub async fn connect(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    asked: Result<Query<ConnectQuery>, QueryRejection>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let upgrade = upgrade.map_err(|_| {
        ApiError::bad("websocket_expected", "this is the address of a websocket: connect with a Realtime client")
    })?;
    let Query(asked) = asked?;
    let place = admit(&app, &caller)?;
    let extensions = wants_extensions(asked.extensions.as_deref().unwrap_or_default())?;
    let secret = caller.identity.session.as_ref();
    let model = secret.and_then(|session| session.get("model")).and_then(Value::as_str);
    let update = secret.map(|session| session_update(session, &event_limits(&app.replies.settings))).transpose()?;
    let model = asked.model.as_deref().filter(|name| !name.is_empty()).or(model).unwrap_or_default();
    let mut audio = app.audio().of_persona(app.replies.settings.personas.get(model));
    if let Some(session) = secret {
        audio.apply(session).map_err(|wrong| ErrorBody::from(wrong.under("session")))?;
    }
    let clues = clues(&asked, secret, model, update.as_ref())?;
    let scope = app.replies.persons.scope(&caller, &headers, &clues, &mut []).await?;
    let (session, replay) = match &asked.session {
        Some(id) => {
            let session = app.replies.open_session(&caller, id).await?;
            (session, asked.after.clone().map_or(Replay::All, Replay::After))
        }
        None => {
            let new = NewSession { update: update.as_ref(), ..scope.new_session(model) };
            let session = app.replies.runtime.create(new).await?;
            app.replies.begun.began(&caller, &session);
            (session, Replay::Nothing)
        }
    };
    let extensions = Arc::new(AtomicBool::new(extensions));
    let hears_or_speaks = audio.hears || audio.speaks;
    let attach = Attach {
        replay,
        interest: interest(extensions.clone(), hears_or_speaks),
        person: Some(scope.person.clone()),
        trace_parent: scope.trace_parent,
    };
    let (connected, written) = app.replies.runtime.attach(&session, attach).await?;
    let seed = runtime::random()?;
    let span = tracing::info_span!("connection", session = %session.id(), conn = connected.conn.0);
    let (limits, own_frames) = (event_limits(&app.replies.settings), OwnFrames::default());
    let (mut renderer, own) = (Renderer::new(extensions.clone(), seed), Renderer::new(extensions.clone(), !seed));
    let opened = (&caller.clone(), peer, place);
    let connected = Arc::new(connected);
    let speaker = SpeakingClient { caller, headers, clues, person: scope.person };
    let (to_talk, inputs) = mpsc::channel(WAITING_INPUTS);
    let place_in_session = (session, connected.clone());
    let talk =
        hears_or_speaks.then(|| Box::new(Talk::new(app.clone(), place_in_session, speaker.clone(), inputs, &audio)));
    let to_talk = talk.is_some().then_some(to_talk);
    renderer.audio = audio;
    let client =
        Box::new(RealtimeClient { app: app.clone(), speaker, connected, limits, extensions, own, own_frames, to_talk });
    let converse = |reader, writer| client.converse(reader, writer, written, renderer, talk);
    Ok(upgrade_socket(&app, opened, (upgrade, &["realtime"]), span, converse))
}

/// Returns true if the names, with commas between them, hold the extension. Names beside it may be those of a newer
/// service; a client that asks only for unknown ones would wait for events that never come.
fn wants_extensions(names: &str) -> Result<bool, ApiError> {
    let names = || names.split(',').map(str::trim).filter(|name| !name.is_empty());
    match names().next().filter(|_| names().all(|name| name != EXTENSION)) {
        None => Ok(names().next().is_some()),
        Some(unknown) => {
            let message = format!("there is no extension '{}': there is '{EXTENSION}'", fields::shown(unknown));
            Err(ApiError::bad("invalid_value", message).param("extensions"))
        }
    }
}

/// Collects the clues to a new session's speaker from the URL and from the request for its client secret.
fn clues(
    asked: &ConnectQuery,
    secret: Option<&Value>,
    model: &str,
    update: Option<&ConfigUpdate>,
) -> Result<BodyClues, ApiError> {
    let of_secret = |name: &str| secret.and_then(|session| session["metadata"][name].as_str());
    let private = is_private(of_secret("private"));
    let wrong = || ApiError::bad("invalid_value", "private must be true or false").param("session.metadata.private");
    Ok(BodyClues {
        model: model.to_owned(),
        user: of_secret("user").or(asked.user.as_deref()).map(str::to_owned),
        instructions: update.and_then(|update| update.instructions.clone()),
        is_private: private.ok_or_else(wrong)? || asked.private == Some(true),
        ..BodyClues::default()
    })
}

pub async fn schema() -> Json<Value> {
    Json(super::schema())
}
