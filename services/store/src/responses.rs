//! Responses: what was asked of the model and how it ended.

use crate::items::touch;
use crate::records::words;
use crate::rows::{column, json, json_text, word};
use crate::writer::Failure;
use crate::{Error, SessionRef, Store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    InProgress,
    Completed,
    Cancelled,
    Failed,
    Incomplete,
}

/// Part of the conversation, or beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conversation {
    Auto,
    None,
}

words! {
    ResponseStatus {
        InProgress = "in_progress", Completed = "completed", Cancelled = "cancelled", Failed = "failed",
        Incomplete = "incomplete",
    }
    Conversation { Auto = "auto", None = "none" }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    pub id: String,
    pub conversation: Conversation,
    pub status: ResponseStatus,
    pub status_details: Value,
    pub metadata: Value,
    pub usage: Value,
    pub report: Value,
    pub started_at_ms: i64,
    pub finished_at_ms: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinishedResponse {
    pub id: String,
    pub status: ResponseStatus,
    pub status_details: Value,
    pub usage: Value,
    pub report: Value,
    pub finished_at_ms: i64,
}

impl Store {
    pub async fn begin_response(
        &self,
        session: &SessionRef,
        id: &str,
        conversation: Conversation,
        metadata: Value,
        now_ms: i64,
    ) -> Result<(), Error> {
        let (session, id) = (session.clone(), id.to_owned());
        self.write(move |connection| {
            Box::pin(async move {
                touch(connection, &session, now_ms).await?;
                let response = Response {
                    id,
                    conversation,
                    status: ResponseStatus::InProgress,
                    status_details: Value::Null,
                    metadata,
                    usage: Value::Null,
                    report: Value::Null,
                    started_at_ms: now_ms,
                    finished_at_ms: None,
                };
                insert_response(connection, &session, &response).await
            })
        })
        .await
    }
}

pub async fn insert_response(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    response: &Response,
) -> Result<(), Failure> {
    let query = sqlx::query(
        "INSERT INTO responses (session, id, conversation, status, status_details, metadata, usage, report,
            started_at_ms, finished_at_ms)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    );
    query
        .bind(session.key)
        .bind(&response.id)
        .bind(response.conversation.word())
        .bind(response.status.word())
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

pub async fn finish_response(
    connection: &mut SqliteConnection,
    session: &SessionRef,
    response: FinishedResponse,
) -> Result<(), Failure> {
    touch(connection, session, response.finished_at_ms).await?;
    let query = sqlx::query(
        "UPDATE responses SET status = ?, status_details = ?, usage = ?, report = ?, finished_at_ms = ?
         WHERE session = ? AND id = ? AND status = 'in_progress'",
    );
    let finished = query
        .bind(response.status.word())
        .bind(json_text(&response.status_details))
        .bind(json_text(&response.usage))
        .bind(json_text(&response.report))
        .bind(response.finished_at_ms)
        .bind(session.key)
        .bind(&response.id)
        .execute(connection)
        .await?;
    if finished.rows_affected() == 1 { Ok(()) } else { Err(Error::NoResponse { response: response.id }.into()) }
}

pub fn response_of(row: &SqliteRow) -> Result<Response, Failure> {
    Ok(Response {
        id: column(row, "id")?,
        conversation: word(row, "conversation", Conversation::from_word)?,
        status: word(row, "status", ResponseStatus::from_word)?,
        status_details: json(row, "status_details")?,
        metadata: json(row, "metadata")?,
        usage: json(row, "usage")?,
        report: json(row, "report")?,
        started_at_ms: column(row, "started_at_ms")?,
        finished_at_ms: column(row, "finished_at_ms")?,
    })
}
