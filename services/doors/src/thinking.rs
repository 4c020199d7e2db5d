//! Ending the thinking of a reply over HTTP, for whatever is no client of the session: a button, an automation.

use crate::ApiError;
use axum::Json;
use axum::http::StatusCode;
use runtime::{Attach, Runtime, ToWrite};
use serde_json::{Value, json};
use session::machine::Replay;
use session::{Event, Input};
use std::sync::Arc;
use store::{SessionRef, new_id};

/// Of a response, or of the one of the conversation. Answered when the model was told.
pub async fn stop(
    runtime: &Runtime,
    session: &SessionRef,
    response_id: Option<String>,
) -> Result<Json<Value>, ApiError> {
    let interest = |event: &Event| matches!(event, Event::ThinkingStopped { .. } | Event::Refused { .. });
    let attach = Attach { replay: Replay::Nothing, interest: Arc::new(interest), person: None };
    let (connected, mut written) = runtime.attach(session, attach).await?;
    let mark = new_id("stop")?;
    connected.say(Some(mark.clone()), Input::StopThinking { response_id: response_id.clone() }).await;
    while let ToWrite::Event(event) = written.next().await {
        written.done(1);
        match &*event {
            Event::ThinkingStopped { response_id: id } if response_id.as_ref().is_none_or(|wanted| wanted == id) => {
                return Ok(Json(json!({ "object": "response.thinking_stopped", "response_id": id })));
            }
            Event::Refused { input_id, refusal } if input_id.as_ref() == Some(&mark) => {
                return Err(ApiError::new(StatusCode::CONFLICT, "no_active_response", refusal.to_string()));
            }
            _ => {}
        }
    }
    Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the session ended: try again"))
}
