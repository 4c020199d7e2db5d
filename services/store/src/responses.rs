//! Responses: what was asked of the model and how it ended. Only an export reads them.

use crate::{Error, SessionRef, Store};
use serde_json::{Value, json};
use session::{JsonText, ResponseStatus, StatusDetails, Usage};

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
        let id = id.to_owned();
        let conversation = if in_conversation { "auto" } else { "none" };
        let (quota, metadata_bytes) = (self.quota.clone(), metadata.map_or(0, |text| text.0.len()));
        let metadata: Value = metadata.and_then(|text| serde_json::from_str(&text.0).ok()).unwrap_or_default();
        self.write_session(session, now_ms, async move |connection, session| {
            quota.take(connection, session, metadata_bytes, now_ms).await?;
            // No report: measurements have it.
            let query = sqlx::query(
                "INSERT INTO responses (session, id, conversation, status, status_details, metadata, usage, report,
                    started_at_ms)
                 VALUES (?, ?, ?, 'in_progress', 'null', ?, 'null', 'null', ?)",
            );
            let query = query.bind(session.key).bind(id).bind(conversation).bind(metadata).bind(now_ms);
            query.execute(connection).await?;
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
        let query = query.bind(status_word(status)).bind(details).bind(usage_form(&usage)).bind(finished_at_ms);
        let query = query.bind(session.key).bind(id.clone());
        let finished = self.execute_in(session, finished_at_ms, query).await?;
        if finished == 1 { Ok(()) } else { Err(Error::NoResponse { response: id }) }
    }
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
