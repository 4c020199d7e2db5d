//! Responses: what was asked of the model and how it ended. Only an export reads them.

use crate::rows::{column, json, json_text};
use crate::sessions::touch;
use crate::writer::StoreFailure;
use crate::{Error, SessionRef, Store};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use session::{JsonText, ResponseStatus, StatusDetails, Usage};
use sqlx::sqlite::{SqliteConnection, SqliteRow};

/// A row as an export has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ResponseRecord {
    id: String,
    conversation: String,
    status: String,
    status_details: Value,
    metadata: Value,
    usage: Value,
    /// Null: measurements have it.
    report: Value,
    started_at_ms: i64,
    finished_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinishedResponse {
    pub id: String,
    pub status: ResponseStatus,
    /// Why it did not complete.
    pub details: Option<StatusDetails>,
    pub usage: Usage,
    pub finished_at_ms: i64,
}

impl Store {
    pub async fn begin_response(
        &self,
        session: &SessionRef,
        id: &str,
        in_conversation: bool,
        metadata: Option<&JsonText>,
        now_ms: i64,
    ) -> Result<(), Error> {
        let session = session.clone();
        let response = ResponseRecord {
            id: id.to_owned(),
            conversation: if in_conversation { "auto" } else { "none" }.to_owned(),
            status: status_word(ResponseStatus::InProgress).to_owned(),
            status_details: Value::Null,
            metadata: metadata.and_then(|text| serde_json::from_str(&text.0).ok()).unwrap_or_default(),
            usage: Value::Null,
            report: Value::Null,
            started_at_ms: now_ms,
            finished_at_ms: None,
        };
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                insert_response(connection, &session, &response).await
            })
        })
        .await
    }

    pub async fn finish_response(&self, session: &SessionRef, response: FinishedResponse) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, response.finished_at_ms).await?;
                let query = sqlx::query(
                    "UPDATE responses SET status = ?, status_details = ?, usage = ?, finished_at_ms = ?
                     WHERE session = ? AND id = ? AND status = 'in_progress'",
                );
                let finished = query
                    .bind(status_word(response.status))
                    .bind(json_text(&details_form(response.details.as_ref())))
                    .bind(json_text(&usage_form(&response.usage)))
                    .bind(response.finished_at_ms)
                    .bind(session.key)
                    .bind(&response.id)
                    .execute(connection)
                    .await?;
                let is_known = finished.rows_affected() == 1;
                if is_known { Ok(()) } else { Err(Error::NoResponse { response: response.id }.into()) }
            })
        })
        .await
    }
}

pub async fn insert_response(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    response: &ResponseRecord,
) -> Result<(), StoreFailure> {
    let query = sqlx::query(
        "INSERT INTO responses (session, id, conversation, status, status_details, metadata, usage, report,
            started_at_ms, finished_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(&response.id)
        .bind(&response.conversation)
        .bind(&response.status)
        .bind(json_text(&response.status_details))
        .bind(json_text(&response.metadata))
        .bind(json_text(&response.usage))
        .bind(json_text(&response.report))
        .bind(response.started_at_ms)
        .bind(response.finished_at_ms)
        .execute(connection)
        .await?;
    Ok(())
}

pub fn response_of(row: &SqliteRow) -> Result<ResponseRecord, StoreFailure> {
    Ok(ResponseRecord {
        id: column(row, "id")?,
        conversation: column(row, "conversation")?,
        status: column(row, "status")?,
        status_details: json(row, "status_details")?,
        metadata: json(row, "metadata")?,
        usage: json(row, "usage")?,
        report: json(row, "report")?,
        started_at_ms: column(row, "started_at_ms")?,
        finished_at_ms: column(row, "finished_at_ms")?,
    })
}

fn status_word(status: ResponseStatus) -> &'static str {
    match status {
        ResponseStatus::InProgress => "in_progress",
        ResponseStatus::Completed => "completed",
        ResponseStatus::Cancelled => "cancelled",
        ResponseStatus::Incomplete => "incomplete",
        ResponseStatus::Failed => "failed",
    }
}

fn details_form(details: Option<&StatusDetails>) -> Value {
    match details {
        None => Value::Null,
        Some(StatusDetails::Cancelled) => json!({ "type": "cancelled", "reason": "client_cancelled" }),
        Some(StatusDetails::MaxOutputTokens) => json!({ "type": "incomplete", "reason": "max_output_tokens" }),
        Some(StatusDetails::Failed(failure)) => {
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
