//! Responses: the requests to the model and their ends.

use crate::error::Result;
use crate::versions::versions_of;
use crate::{Error, ItemVersion, OrderKey, SessionRef, Store};
use serde_json::{Value, json};
use session::{Failure, FailureCode, JsonText, RequestDigest, ResponseStatus, StatusDetails, Usage};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

#[derive(Debug, Clone, PartialEq)]
pub struct NewResponse {
    pub id: String,
    pub in_conversation: bool,
    pub metadata: Option<JsonText>,
    pub of_request: Option<RequestDigest>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinishedResponse {
    pub id: String,
    pub status: ResponseStatus,
    pub details: Option<StatusDetails>,
    pub usage: Usage,
    pub finished_at_ms: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoredResponse {
    pub session: SessionRef,
    pub id: String,
    pub status: ResponseStatus,
    pub details: Option<StatusDetails>,
    pub metadata: Value,
    /// `None` while it is in progress.
    pub usage: Option<Usage>,
    pub started_at_ms: i64,
    /// Its items, in their current versions.
    pub output: Vec<ItemVersion>,
    /// Its end in the conversation. `None` for a response beside it.
    pub end: Option<ResponseEnd>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResponseEnd {
    pub order_key: OrderKey,
    /// Last item up to there. `None` if all were deleted.
    pub last_item: Option<String>,
    pub is_last: bool,
}

impl Store {
    pub async fn find_response(&self, user: &str, id: &str) -> Result<Option<StoredResponse>, Error> {
        self.read_moment(async |reader| find_response(reader, user, id).await).await
    }

    /// Lists the items of the turn that a response answered: what it said, and what was added since the response before
    /// it. Instructions stay, unless it is the only response of its conversation.
    pub async fn turn_of_response(&self, session: &SessionRef, id: &str) -> Result<Vec<String>, Error> {
        let query = sqlx::query_scalar(
            "WITH said AS (
                SELECT DISTINCT i.place, v.response FROM item_versions v
                JOIN items i ON i.session = v.session AND i.item_id = v.item_id
                WHERE v.session = ?1 AND v.response IS NOT NULL
             ), ours AS (SELECT min(place) AS first, max(place) AS last FROM said WHERE response = ?2)
             SELECT i.item_id FROM ours JOIN items i ON i.session = ?1 AND i.deleted = 0 AND i.place <= ours.last
                AND i.place > coalesce((SELECT max(place) FROM said WHERE response <> ?2 AND place < ours.first), x'')
             JOIN item_versions v ON v.key = i.current
             WHERE v.role IS NOT 'system' OR NOT EXISTS (SELECT 1 FROM said WHERE response <> ?2)
             ORDER BY i.place",
        );
        let query = query.bind(session.key).bind(id);
        self.read(async |reader| Ok(query.fetch_all(reader).await?)).await
    }

    pub async fn delete_response(&self, session: &SessionRef, id: &str, now_ms: i64) -> Result<(), Error> {
        let query = sqlx::query("DELETE FROM responses WHERE session = ? AND id = ? AND status <> 'in_progress'");
        let is_gone = self.execute_in(session, now_ms, query.bind(session.key).bind(id.to_owned())).await? == 1;
        self.owe_the_log();
        if is_gone { Ok(()) } else { Err(Error::NoResponse { response: id.to_owned() }) }
    }

    pub async fn begin_response(&self, session: &SessionRef, new: NewResponse, now_ms: i64) -> Result<(), Error> {
        let NewResponse { id, in_conversation, metadata, of_request } = new;
        let conversation = if in_conversation { "auto" } else { "none" };
        let (quota, metadata_bytes) = (self.quota.clone(), metadata.as_ref().map_or(0, |text| text.0.len()));
        let metadata: Value = metadata.and_then(|text| serde_json::from_str(&text.0).ok()).unwrap_or_default();
        self.write_session(session, now_ms, async move |connection, session| {
            quota.take(connection, session.user(), metadata_bytes, now_ms).await?;
            // The measurements have the report.
            let query = sqlx::query(
                "INSERT INTO responses (session, id, conversation, status, status_details, metadata, usage, report,
                    started_at_ms, request)
                 VALUES (?, ?, ?, 'in_progress', 'null', ?, 'null', 'null', ?, ?)",
            );
            let query = query.bind(session.key).bind(id).bind(conversation).bind(metadata).bind(now_ms);
            query.bind(of_request.map(|digest| digest.0.to_vec())).execute(connection).await?;
            Ok(())
        })
        .await
    }

    pub async fn finish_response(&self, session: &SessionRef, response: FinishedResponse) -> Result<(), Error> {
        let FinishedResponse { id, status, details, usage, finished_at_ms } = response;
        let query = sqlx::query(
            "UPDATE responses SET status = ?, status_details = ?, usage = ?, finished_at_ms = ?
             WHERE session = ? AND id = ? AND status = 'in_progress'",
        );
        let details = details.as_ref().map_or(Value::Null, details_form);
        let query = query.bind(status.word()).bind(details).bind(usage_form(&usage)).bind(finished_at_ms);
        let query = query.bind(session.key).bind(id.clone());
        let finished = self.execute_in(session, finished_at_ms, query).await?;
        if finished == 1 { Ok(()) } else { Err(Error::NoResponse { response: id }) }
    }
}

pub(crate) async fn find_response(
    reader: &mut SqliteConnection,
    user: &str,
    id: &str,
) -> Result<Option<StoredResponse>> {
    let query = sqlx::query(
        "SELECT r.*, s.user AS session_user, s.id AS session_id
         FROM responses r JOIN sessions s ON s.key = r.session
         WHERE r.id = ? AND s.user = ? AND s.deleted_at_ms IS NULL ORDER BY r.key LIMIT 1",
    );
    // The first one, where an import has the same response under another session.
    let Some(row) = query.bind(id).bind(user).fetch_optional(&mut *reader).await? else { return Ok(None) };
    let (user, session_id): (&str, &str) = (row.try_get("session_user")?, row.try_get("session_id")?);
    let session = SessionRef { key: row.try_get("session")?, user: user.into(), id: session_id.into() };
    let query = sqlx::query(
        "SELECT v.* FROM items i JOIN item_versions v ON v.key = i.current
         WHERE i.session = ?1 AND v.response = ?2 AND i.deleted = 0
            AND i.item_id IN (SELECT item_id FROM item_versions WHERE session = ?1 AND response = ?2)
         ORDER BY i.place",
    );
    let output = versions_of(&query.bind(session.key).bind(id).fetch_all(&mut *reader).await?, &session.id)?;
    let end = end_of(reader, &session, id).await?;
    let mut response = response_of(&row, session)?;
    (response.output, response.end) = (output, end);
    Ok(Some(response))
}

/// Finds the end of a response. Items keep their place even if they were deleted or are empty.
async fn end_of(reader: &mut SqliteConnection, session: &SessionRef, id: &str) -> Result<Option<ResponseEnd>> {
    let query = sqlx::query_scalar(
        "SELECT max(i.place) FROM items i WHERE i.session = ?1
            AND i.item_id IN (SELECT item_id FROM item_versions WHERE session = ?1 AND response = ?2)",
    );
    let order_key: Option<OrderKey> = query.bind(session.key).bind(id).fetch_one(&mut *reader).await?;
    let Some(order_key) = order_key else { return Ok(None) };
    let query = sqlx::query_scalar(
        "SELECT item_id FROM items WHERE session = ? AND place <= ? AND deleted = 0 ORDER BY place DESC LIMIT 1",
    );
    let last_item = query.bind(session.key).bind(&order_key).fetch_optional(&mut *reader).await?;
    let query = sqlx::query("SELECT 1 FROM items WHERE session = ? AND place > ? AND deleted = 0 LIMIT 1");
    let is_last = query.bind(session.key).bind(&order_key).fetch_optional(reader).await?.is_none();
    Ok(Some(ResponseEnd { order_key, last_item, is_last }))
}

fn response_of(row: &SqliteRow, session: SessionRef) -> Result<StoredResponse> {
    let (details, usage): (Value, Value) = (row.try_get("status_details")?, row.try_get("usage")?);
    Ok(StoredResponse {
        session,
        id: row.try_get("id")?,
        status: status_of(row.try_get("status")?),
        details: details_of(&details),
        metadata: row.try_get("metadata")?,
        usage: usage_of(&usage),
        started_at_ms: row.try_get("started_at_ms")?,
        output: Vec::new(),
        end: None,
    })
}

fn status_of(word: &str) -> ResponseStatus {
    match word {
        "in_progress" => ResponseStatus::InProgress,
        "completed" => ResponseStatus::Completed,
        "cancelled" => ResponseStatus::Cancelled,
        "incomplete" => ResponseStatus::Incomplete,
        _ => ResponseStatus::Failed,
    }
}

fn details_of(form: &Value) -> Option<StatusDetails> {
    match form["type"].as_str()? {
        "cancelled" => Some(StatusDetails::Cancelled),
        "incomplete" if form["reason"] == "max_output_tokens" => Some(StatusDetails::MaxOutputTokens),
        "failed" => {
            let is_clients_fault = form["error"]["type"] == "invalid_request_error";
            let code = if is_clients_fault { FailureCode::InvalidRequest } else { FailureCode::EngineFailed };
            let message = form["error"]["message"].as_str().unwrap_or_default();
            Some(StatusDetails::Failed(Failure::new(code, message)))
        }
        _ => None,
    }
}

fn usage_of(form: &Value) -> Option<Usage> {
    Some(Usage {
        input_tokens: form["input_tokens"].as_u64()?,
        output_tokens: form["output_tokens"].as_u64()?,
        cached_tokens: form["input_token_details"]["cached_tokens"].as_u64().unwrap_or(0),
        reasoning_tokens: form["output_token_details"]["reasoning_tokens"].as_u64().unwrap_or(0),
    })
}

fn details_form(details: &StatusDetails) -> Value {
    match details {
        StatusDetails::Cancelled => json!({ "type": "cancelled", "reason": "client_cancelled" }),
        StatusDetails::MaxOutputTokens => json!({ "type": "incomplete", "reason": "max_output_tokens" }),
        StatusDetails::Failed(failure) => {
            let kind = if failure.code.is_clients_fault() { "invalid_request_error" } else { "server_error" };
            let error = json!({ "type": kind, "code": failure.code.word(), "message": failure.message });
            json!({ "type": "failed", "error": error })
        }
    }
}

fn usage_form(usage: &Usage) -> Value {
    json!({
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": { "text_tokens": usage.cached_tokens, "audio_tokens": 0, "image_tokens": 0 },
        },
        "output_token_details": {
            "text_tokens": usage.output_tokens,
            "audio_tokens": 0,
            "reasoning_tokens": usage.reasoning_tokens,
        },
    })
}
