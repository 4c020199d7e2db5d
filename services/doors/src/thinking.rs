//! `stop_thinking` over HTTP, for programs that are no clients of the session: a button, an automation.

use crate::ApiError;
use axum::Json;
use axum::http::StatusCode;
use runtime::{Runtime, SessionAnswer};
use serde_json::{Value, json};
use session::{Event, Input};
use store::SessionRef;

/// Ends the thinking of a response, or of the conversation's, and answers when the model was told.
pub async fn stop(
    runtime: &Runtime,
    session: &SessionRef,
    response_id: Option<String>,
) -> Result<Json<Value>, ApiError> {
    let stop = vec![Input::StopThinking { response_id: response_id.clone() }];
    let stops = |event: &Event| matches!(event, Event::ThinkingStopped { .. });
    let mut stopped = None;
    let is_done = |event: &Event| match event {
        Event::ThinkingStopped { response_id: id } if response_id.as_ref().is_none_or(|wanted| wanted == id) => {
            stopped = Some(id.clone());
            true
        }
        _ => false,
    };
    match runtime.say_and_wait(session, None, stop, stops, is_done).await? {
        SessionAnswer::Event(_) => Ok(Json(json!({ "object": "response.thinking_stopped", "response_id": stopped }))),
        SessionAnswer::Refused(refusal) => {
            Err(ApiError::new(StatusCode::CONFLICT, "no_active_response", refusal.to_string()))
        }
        SessionAnswer::SessionEnded => {
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "the session ended: try again"))
        }
    }
}
