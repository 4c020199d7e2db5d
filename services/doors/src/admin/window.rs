//! The window of a session in numbers: the parts of its next prompt, and its turns.

use crate::ApiError;
use crate::extract::{Asked, JsonAnswer, JsonBody, OwnSession, rows};
use axum::Json;
use axum::extract::{Query, State};
use replies::Completions;
use runtime::WindowParts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::Measurement;

/// Tokens of the session's next prompt. The parts add up to `total_tokens`.
#[derive(Serialize, JsonSchema)]
pub struct WindowAnswer {
    #[schemars(extend("const" = "session.window"))]
    object: &'static str,
    session_id: String,
    ctx_size: u32,
    reply_reserve_tokens: u32,
    instructions_tokens: u64,
    tools_tokens: u64,
    facts_tokens: u64,
    summary_tokens: u64,
    pins_tokens: u64,
    turns_tokens: u64,
    marks_tokens: u64,
    total_tokens: u64,
    /// Above zero where an upstream's tokens are an estimate.
    margin_tokens: u64,
    /// Tokens from which on the next silence brings a summary.
    soft_tokens: u32,
}

pub async fn window(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
) -> Result<Json<WindowAnswer>, ApiError> {
    let parts: WindowParts = replies.runtime.window(&session).await?;
    Ok(Json(WindowAnswer {
        object: "session.window",
        session_id: session.id().to_owned(),
        ctx_size: parts.ctx_size,
        reply_reserve_tokens: parts.reply_reserve_tokens,
        instructions_tokens: parts.instructions_tokens,
        tools_tokens: parts.tools_tokens,
        facts_tokens: parts.facts_tokens,
        summary_tokens: parts.summary_tokens,
        pins_tokens: parts.pins_tokens,
        turns_tokens: parts.turns_tokens,
        marks_tokens: parts.marks_tokens,
        total_tokens: parts.total_tokens,
        margin_tokens: parts.margin_tokens,
        soft_tokens: parts.soft_tokens,
    }))
}

#[derive(Deserialize, JsonSchema)]
pub struct TurnsPage {
    /// turns at most
    limit: Option<u32>,
    /// goes on from a page: the `before` that stood there
    before: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub struct TurnNumbers {
    turn: u64,
    response_id: Option<String>,
    preset: String,
    arm: Option<String>,
    ctx_size: u64,
    fill_tokens: u64,
    reused_tokens: u64,
    /// Reused tokens that were read ahead since the last turn, while no user waited.
    warm_tokens: u64,
    computed_tokens: u64,
    computed_reason: Option<String>,
    output_tokens: u64,
    queue_ms: f64,
    prefill_ms: f64,
    first_token_ms: Option<f64>,
    first_sentence_ms: Option<f64>,
    total_ms: f64,
    barged_in: bool,
    /// The user's thumb: 1, -1, 0 or null.
    feedback: Option<i64>,
    created_at_ms: i64,
}

#[derive(Serialize, JsonSchema)]
pub struct TurnsAnswer {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<TurnNumbers>,
    has_more: bool,
    before: Option<u64>,
}

pub async fn turns(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    page: Asked<TurnsPage>,
) -> Result<Json<TurnsAnswer>, ApiError> {
    let Query(TurnsPage { limit, before }) = page?;
    let limit = rows(&replies.settings, limit, None);
    let mut turns = replies.store.turns_page(&session, before, limit + 1).await?;
    let has_more = turns.len() > limit as usize;
    turns.truncate(limit as usize);
    let before = turns.last().filter(|_| has_more).map(|turn| turn.turn);
    Ok(Json(TurnsAnswer { object: "list", data: turns.into_iter().map(numbers).collect(), has_more, before }))
}

fn numbers(turn: Measurement) -> TurnNumbers {
    TurnNumbers {
        turn: turn.turn,
        response_id: turn.response,
        preset: turn.preset,
        arm: turn.arm,
        ctx_size: turn.ctx_size,
        fill_tokens: turn.fill_tokens,
        reused_tokens: turn.reused_tokens,
        warm_tokens: turn.warm_tokens,
        computed_tokens: turn.computed_tokens,
        computed_reason: turn.computed_reason,
        output_tokens: turn.tokens_out,
        queue_ms: turn.queue_ms,
        prefill_ms: turn.prefill_ms,
        first_token_ms: turn.first_token_ms,
        first_sentence_ms: turn.first_sentence_ms,
        total_ms: turn.total_ms,
        barged_in: turn.barged_in,
        feedback: turn.feedback,
        created_at_ms: turn.created_at_ms,
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionTitle {
    /// Empty: the first words stand in its place again.
    title: String,
}

pub async fn rename(
    State(replies): State<Completions>,
    OwnSession(session): OwnSession,
    JsonBody(SessionTitle { title }): JsonBody<SessionTitle>,
) -> JsonAnswer {
    let (title, limit) = (title.trim(), replies.settings.limits.title_chars);
    if title.chars().count() > limit {
        let message = format!("a title has at most {limit} characters (limits.title_chars)");
        return Err(ApiError::bad("invalid_value", message).param("title"));
    }
    replies.store.set_title(&session, title).await?;
    Ok(Json(json!({ "object": "session.title", "session_id": session.id(), "title": title })))
}
