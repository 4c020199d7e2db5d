//! Errors over HTTP, in the shape that OpenAI's clients read.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fields::{FieldError, printable};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use session::{Failure, FailureCode};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    pub status: StatusCode,
    /// The wider kind that clients tell apart, `invalid_request_error`.
    pub kind: &'static str,
    /// A word for programs.
    pub code: &'static str,
    pub message: String,
    pub param: Option<String>,
    pub retry_after_s: Option<u64>,
}

/// Error in the shape that OpenAI's clients read.
#[derive(Serialize, JsonSchema)]
pub struct ErrorAnswer<'a> {
    pub error: ErrorFields<'a>,
}

#[derive(Serialize, JsonSchema)]
pub struct ErrorFields<'a> {
    pub message: &'a str,
    #[serde(rename = "type")]
    pub kind: &'a str,
    pub param: Option<&'a str>,
    pub code: &'a str,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        let kind = match status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        ApiError { status, kind, code, message: printable(message), param: None, retry_after_s: None }
    }

    pub fn bad(code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(printable(param));
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> ApiError {
        self.retry_after_s = Some(seconds);
        self
    }

    fn answer(&self) -> ErrorAnswer<'_> {
        let ApiError { kind, code, message, param, .. } = self;
        ErrorAnswer { error: ErrorFields { message, kind, param: param.as_deref(), code } }
    }

    /// Renders the error for a stream, whose status was sent long ago: clients look for it there.
    pub fn frame(&self) -> String {
        json!(self.answer()).to_string()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.answer())).into_response();
        // Stock clients wait so long before they try again, and half a second where nothing is said.
        let is_over_soon = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if let Some(seconds) = self.retry_after_s.or(is_over_soon.then_some(1)) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> ApiError {
        use store::Error as E;
        let (status, code) = match &error {
            E::NoSession { .. } => (StatusCode::NOT_FOUND, "session_not_found"),
            E::NoItem { .. } => (StatusCode::NOT_FOUND, "item_not_found"),
            E::NoSummary { .. } => (StatusCode::NOT_FOUND, "summary_not_found"),
            E::NoPin { .. } => (StatusCode::NOT_FOUND, "pin_not_found"),
            E::NoFact { .. } => (StatusCode::NOT_FOUND, "memory_not_found"),
            E::StaleSummary { .. } => (StatusCode::CONFLICT, "stale_summary"),
            E::NoResponse { .. } => (StatusCode::NOT_FOUND, "response_not_found"),
            E::EmptyQuery { .. } | E::TooManyWords { .. } => (StatusCode::BAD_REQUEST, "invalid_value"),
            E::TooFast { .. } => (StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded"),
            E::UserFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota"),
            E::Busy { .. } | E::Closed | E::TookTooLong => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            E::Full { .. } | E::ReadOnly { .. } | E::Disk { .. } | E::CannotOpen { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "store_failed")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "store_failed"),
        };
        if status.is_server_error() {
            tracing::error!(%error, "the store could not do what a request needs");
        }
        ApiError::new(status, code, error.to_client())
    }
}

impl From<runtime::Error> for ApiError {
    fn from(error: runtime::Error) -> ApiError {
        let message = error.to_string();
        match error {
            runtime::Error::Store(error) => error.into(),
            runtime::Error::NoSuchModel { .. } => {
                ApiError::new(StatusCode::NOT_FOUND, "model_not_found", message).param("model")
            }
            runtime::Error::NoRoom => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(5),
            runtime::Error::TooManySessions { .. } | runtime::Error::TooManySessionsOfUser { .. } => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_sessions", message).retry_after(5)
            }
            runtime::Error::ArmOfAnotherModel { .. }
            | runtime::Error::PersonaOfAnotherModel { .. }
            | runtime::Error::NoExperiment => ApiError::bad("invalid_value", message).param("preset"),
            runtime::Error::NoSummaryToUndo | runtime::Error::NoSummaryToRedo | runtime::Error::NoSummaryToEdit => {
                ApiError::new(StatusCode::NOT_FOUND, "summary_not_found", message)
            }
            runtime::Error::NewerSummaryInUse { .. } => ApiError::bad("invalid_value", message).param("version"),
            runtime::Error::EmptyText | runtime::Error::TextTooLong { .. } | runtime::Error::SummaryTooLong { .. } => {
                ApiError::bad("invalid_value", message).param("text")
            }
            runtime::Error::DoesNotFit { .. } => ApiError::new(StatusCode::CONFLICT, "does_not_fit", message),
            runtime::Error::MemoriesFull { .. } => ApiError::new(StatusCode::CONFLICT, "memories_full", message),
            runtime::Error::PinsFull { .. } => ApiError::new(StatusCode::CONFLICT, "pins_full", message),
            runtime::Error::Model(_) => ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "model_unavailable", message),
            runtime::Error::Stopping => {
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", message).retry_after(5)
            }
        }
    }
}

impl From<access::Error> for ApiError {
    fn from(error: access::Error) -> ApiError {
        use access::Error as E;
        let message = error.to_string();
        let new = |status, code| ApiError::new(status, code, message.clone());
        match error {
            E::Store(error) => error.into(),
            E::NoHost => new(StatusCode::BAD_REQUEST, "missing_host"),
            E::ForeignHost => new(StatusCode::MISDIRECTED_REQUEST, "unknown_host"),
            E::ForeignOrigin => new(StatusCode::FORBIDDEN, "unknown_origin"),
            E::TooManyConnections(_) => new(StatusCode::TOO_MANY_REQUESTS, "too_many_connections").retry_after(1),
            E::TooManyBytes { .. } => new(StatusCode::TOO_MANY_REQUESTS, "too_many_bytes").retry_after(1),
            E::TooFast { wait_s, .. } => {
                new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded").retry_after(wait_s.ceil() as u64)
            }
            E::WrongKey => new(StatusCode::UNAUTHORIZED, "invalid_api_key"),
            E::NoKey | E::NoKeyYet { .. } => {
                let message = "a key is needed: send `Authorization: Bearer KEY`, or from a browser the websocket \
                               sub-protocols `realtime` and `openai-insecure-api-key.KEY`";
                ApiError::new(StatusCode::UNAUTHORIZED, "missing_api_key", message)
            }
            E::Scope { .. } => new(StatusCode::FORBIDDEN, "insufficient_scope"),
        }
    }
}

impl From<replies::Error> for ApiError {
    fn from(error: replies::Error) -> ApiError {
        let message = error.to_string();
        match error {
            replies::Error::Store(error) => error.into(),
            replies::Error::Runtime(error) => error.into(),
            replies::Error::Model(failure) => failure.into(),
            replies::Error::Request { code, message, param } => {
                ApiError { param: param.map(str::to_owned), ..ApiError::bad(code, message) }
            }
            replies::Error::Conversation(error) => ApiError::from(*error).param("conversation"),
            replies::Error::NoPreviousResponse { .. } => {
                ApiError::bad("previous_response_not_found", message).param("previous_response_id")
            }
            replies::Error::PreviousResponseActive { .. } => {
                let code = "conversation_already_has_active_response";
                ApiError::new(StatusCode::CONFLICT, code, message).param("previous_response_id")
            }
            replies::Error::NotOfThisSecret => {
                let message = "a client secret opens only the sessions that it began: make one for this session, with \
                               `session_id` in POST /v1/realtime/client_secrets";
                ApiError::new(StatusCode::FORBIDDEN, "insufficient_scope", message)
            }
        }
    }
}

impl From<FieldError> for ApiError {
    fn from(wrong: FieldError) -> ApiError {
        ApiError::bad(wrong.code, wrong.message()).param(wrong.path)
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> ApiError {
        ApiError::bad("invalid_value", rejection.body_text())
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        let status = match failure.code {
            FailureCode::PromptTooLong | FailureCode::InvalidRequest => StatusCode::BAD_REQUEST,
            FailureCode::Conflict => StatusCode::CONFLICT,
            // Stock clients try a conflict again.
            FailureCode::SessionDeleted => StatusCode::NOT_FOUND,
            FailureCode::Busy | FailureCode::Unavailable | FailureCode::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
            FailureCode::EngineFailed => StatusCode::INTERNAL_SERVER_ERROR,
            FailureCode::UpstreamFailed => StatusCode::BAD_GATEWAY,
            FailureCode::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        };
        let error = ApiError::new(status, failure.code.word(), error_message(&failure));
        match failure.code {
            FailureCode::PromptTooLong => error.param("messages"),
            FailureCode::Busy | FailureCode::Unavailable => error.retry_after(1),
            _ => error,
        }
    }
}

/// Returns the message of a failure. Clients such as litellm know a prompt that is too long by these words.
fn error_message(failure: &Failure) -> String {
    match failure.code {
        FailureCode::PromptTooLong => {
            printable(format!("This model's maximum context length is exceeded: {}", failure.message))
        }
        _ => printable(failure.message.as_str()),
    }
}

/// Names the side at fault in the words of OpenAI's clients.
pub fn error_kind(code: FailureCode) -> &'static str {
    if code.is_clients_fault() { "invalid_request_error" } else { "server_error" }
}

/// Renders a failure for a stream, in the words of OpenAI's clients.
pub fn failure_frame(failure: &Failure) -> String {
    let (code, message) = (failure.code, error_message(failure));
    let error = ErrorFields { message: &message, kind: error_kind(code), param: None, code: code.word() };
    json!(ErrorAnswer { error }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_the_store_tells_a_client_no_path_and_no_statement() {
        let path = std::path::PathBuf::from("/var/lib/reprise/store.sqlite3");
        let cause = "near \"SELECT\": syntax error".to_owned();
        for error in [
            store::Error::Defect { path: path.clone(), cause: cause.clone() },
            store::Error::Corrupt { path: path.clone(), cause: cause.clone() },
            store::Error::Disk { path: path.clone(), cause },
            store::Error::Busy { path: path.clone() },
            store::Error::Full { path: path.clone() },
            store::Error::ReadOnly { path },
        ] {
            let told = ApiError::from(error);
            assert!(told.status.is_server_error(), "{told:?}");
            assert!(!told.message.contains("SELECT") && !told.message.contains("sqlite3"), "{told:?}");
        }
    }

    #[test]
    fn a_full_disk_has_one_answer_that_says_what_to_do() {
        let full = || store::Error::Full { path: "store.sqlite3".into() };
        let of_session = Failure::new(FailureCode::StoreFailed, full().to_client());
        for told in [ApiError::from(full()), ApiError::from(of_session)] {
            assert_eq!((told.status, told.code), (StatusCode::SERVICE_UNAVAILABLE, "store_failed"));
            assert!(told.message.contains("make room"), "{told:?}");
        }
    }
}
