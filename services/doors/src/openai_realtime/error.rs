//! The `error` event's body.

use crate::ApiError;
use fields::{FieldError, printable};
use schemars::JsonSchema;
use serde::Serialize;
use session::{ItemUse, Refusal};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The wider kind of error that OpenAI's clients tell apart.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = ["invalid_request_error", "server_error", "rate_limit_error"]))]
    pub kind: &'static str,
    /// A word for programs.
    pub code: &'static str,
    pub message: String,
    /// The field that is wrong, as a path from the event.
    pub param: Option<String>,
    /// The client's own id of the event that caused this.
    pub event_id: Option<String>,
}

impl ErrorBody {
    pub fn new(code: &'static str, message: impl Into<String>) -> ErrorBody {
        let kind = match code {
            "store_failed" | "server_error" => "server_error",
            "rate_limit_exceeded" => "rate_limit_error",
            _ => "invalid_request_error",
        };
        ErrorBody { kind, code, message: printable(message), param: None, event_id: None }
    }

    pub fn param(mut self, param: impl Into<String>) -> ErrorBody {
        self.param = Some(printable(param));
        self
    }

    /// True if the event is one of audio alone.
    pub fn is_audio(&self) -> bool {
        self.code == "audio_not_supported" && self.param.as_deref() == Some("type")
    }

    /// True if audio that was sent is none.
    pub fn is_of_audio(&self) -> bool {
        self.param.as_deref() == Some("audio")
    }

    /// The client's id of the event that caused the error.
    pub fn caused_by(mut self, event_id: Option<String>) -> ErrorBody {
        self.event_id = event_id;
        self
    }
}

impl From<FieldError> for ErrorBody {
    fn from(wrong: FieldError) -> ErrorBody {
        ErrorBody::new(wrong.code, wrong.message()).param(wrong.path)
    }
}

impl From<ErrorBody> for ApiError {
    fn from(error: ErrorBody) -> ApiError {
        ApiError { param: error.param, ..ApiError::bad(error.code, error.message) }
    }
}

/// A refusal of the session in the protocol's words.
pub fn error_body(refusal: &Refusal, event_id: Option<String>) -> ErrorBody {
    let (code, param) = match refusal {
        Refusal::TooManyItems { .. } => ("too_many_items", None),
        Refusal::NoRoom => ("server_error", None),
        Refusal::TooMuchText { .. } => ("too_much_text", None),
        Refusal::NoSuchPlace { .. } => ("item_create_invalid_previous_item_id", Some("previous_item_id")),
        Refusal::ItemExists { .. } => ("item_create_duplicate_item_id", Some("item.id")),
        Refusal::NoSuchItem { wanted: ItemUse::Read, .. } => ("item_retrieve_invalid_item_id", Some("item_id")),
        Refusal::NoSuchItem { wanted: ItemUse::Delete, .. } => ("item_delete_invalid_item_id", Some("item_id")),
        Refusal::NoSuchItem { wanted: ItemUse::Truncate, .. } | Refusal::NotTruncatable => {
            ("item_truncate_invalid_item_id", Some("item_id"))
        }
        Refusal::NoSuchPart { .. } => ("invalid_value", Some("content_index")),
        Refusal::NoSuchReference { .. } => ("item_reference_invalid_item_id", None),
        Refusal::NoSuchConversation { .. } => ("invalid_value", Some("response.conversation")),
        Refusal::ResponseActive { .. } => ("conversation_already_has_active_response", None),
        Refusal::TooManyResponses { .. } => ("too_many_responses", None),
        Refusal::NoActiveResponse => ("response_cancel_not_active", None),
        Refusal::NothingThinks => ("stop_thinking_not_active", None),
        Refusal::NothingToResume => ("response_resume_not_possible", None),
        Refusal::SaidSince => ("conversation_went_on", None),
        Refusal::NothingSaid => ("input_text_buffer_commit_empty", Some("text")),
        Refusal::StoreFailed { .. } => ("store_failed", None),
        Refusal::Stopping => ("server_error", None),
    };
    let message = match refusal {
        Refusal::ResponseActive { response_id } => format!(
            "the conversation already has an active response ({response_id}): wait for response.done, or cancel it"
        ),
        // Stock clients know this message by its first words.
        Refusal::NoActiveResponse => "Cancellation failed: no active response found".to_owned(),
        Refusal::NoSuchConversation { .. } => format!("{refusal}: use auto or none"),
        Refusal::NothingSaid => {
            "nothing was said: send input_text_buffer.update first, or commit with a text".to_owned()
        }
        refusal => refusal.to_string(),
    };
    let mut error = ErrorBody::new(code, message).caused_by(event_id);
    error.param = match refusal {
        Refusal::NoSuchReference { index, .. } => Some(format!("response.input[{index}].id")),
        _ => param.map(str::to_owned),
    };
    error
}
