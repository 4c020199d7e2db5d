//! The `error` event's body, and the closed set of its codes.

use serde::Serialize;
use session::{ItemUse, Refusal};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ErrorBody {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub code: ErrorCode,
    pub message: String,
    /// The field that is wrong, as a path from the event.
    pub param: Option<String>,
    /// The client's own id of the event that caused this.
    pub event_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    InvalidJson,
    MissingRequiredParameter,
    InvalidType,
    InvalidValue,
    ValueTooLarge,
    AudioNotSupported,
    ContentNotSupported,
    ExtensionNotEnabled,
    ItemCreateDuplicateItemId,
    ItemCreateInvalidPreviousItemId,
    ItemRetrieveInvalidItemId,
    ItemDeleteInvalidItemId,
    ItemTruncateInvalidItemId,
    ItemReferenceInvalidItemId,
    ConversationAlreadyHasActiveResponse,
    ResponseCancelNotActive,
    InputTextBufferCommitEmpty,
    TooManyItems,
    TooManyResponses,
    RateLimitExceeded,
    StoreFailed,
    ServerError,
}

impl ErrorCode {
    pub fn name(self) -> &'static str {
        match self {
            ErrorCode::InvalidJson => "invalid_json",
            ErrorCode::MissingRequiredParameter => "missing_required_parameter",
            ErrorCode::InvalidType => "invalid_type",
            ErrorCode::InvalidValue => "invalid_value",
            ErrorCode::ValueTooLarge => "value_too_large",
            ErrorCode::AudioNotSupported => "audio_not_supported",
            ErrorCode::ContentNotSupported => "content_not_supported",
            ErrorCode::ExtensionNotEnabled => "extension_not_enabled",
            ErrorCode::ItemCreateDuplicateItemId => "item_create_duplicate_item_id",
            ErrorCode::ItemCreateInvalidPreviousItemId => "item_create_invalid_previous_item_id",
            ErrorCode::ItemRetrieveInvalidItemId => "item_retrieve_invalid_item_id",
            ErrorCode::ItemDeleteInvalidItemId => "item_delete_invalid_item_id",
            ErrorCode::ItemTruncateInvalidItemId => "item_truncate_invalid_item_id",
            ErrorCode::ItemReferenceInvalidItemId => "item_reference_invalid_item_id",
            ErrorCode::ConversationAlreadyHasActiveResponse => "conversation_already_has_active_response",
            ErrorCode::ResponseCancelNotActive => "response_cancel_not_active",
            ErrorCode::InputTextBufferCommitEmpty => "input_text_buffer_commit_empty",
            ErrorCode::TooManyItems => "too_many_items",
            ErrorCode::TooManyResponses => "too_many_responses",
            ErrorCode::RateLimitExceeded => "rate_limit_exceeded",
            ErrorCode::StoreFailed => "store_failed",
            ErrorCode::ServerError => "server_error",
        }
    }

    /// The wider kind of error that OpenAI's clients tell apart.
    pub fn kind(self) -> &'static str {
        match self {
            ErrorCode::StoreFailed | ErrorCode::ServerError => "server_error",
            ErrorCode::RateLimitExceeded => "rate_limit_error",
            _ => "invalid_request_error",
        }
    }
}

impl ErrorBody {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> ErrorBody {
        ErrorBody { kind: code.kind(), code, message: message.into(), param: None, event_id: None }
    }

    pub fn param(mut self, param: impl Into<String>) -> ErrorBody {
        self.param = Some(param.into());
        self
    }

    /// The client's id of the event that caused the error.
    pub fn caused_by(mut self, event_id: Option<String>) -> ErrorBody {
        self.event_id = event_id;
        self
    }
}

/// A refusal of the session in the protocol's words.
pub fn error_body(refusal: &Refusal, event_id: Option<String>) -> ErrorBody {
    let (code, param) = match refusal {
        Refusal::TooManyItems { .. } => (ErrorCode::TooManyItems, None),
        Refusal::NoSuchPlace { .. } => (ErrorCode::ItemCreateInvalidPreviousItemId, Some("previous_item_id")),
        Refusal::ItemExists { .. } => (ErrorCode::ItemCreateDuplicateItemId, Some("item.id")),
        Refusal::NoSuchItem { wanted: ItemUse::Read, .. } => (ErrorCode::ItemRetrieveInvalidItemId, Some("item_id")),
        Refusal::NoSuchItem { wanted: ItemUse::Delete, .. } => (ErrorCode::ItemDeleteInvalidItemId, Some("item_id")),
        Refusal::NoSuchItem { wanted: ItemUse::Truncate, .. } | Refusal::NotTruncatable => {
            (ErrorCode::ItemTruncateInvalidItemId, Some("item_id"))
        }
        Refusal::NoSuchPart { .. } => (ErrorCode::InvalidValue, Some("content_index")),
        Refusal::NoSuchReference { .. } => (ErrorCode::ItemReferenceInvalidItemId, None),
        Refusal::NoSuchConversation { .. } => (ErrorCode::InvalidValue, Some("response.conversation")),
        Refusal::ResponseActive { .. } => (ErrorCode::ConversationAlreadyHasActiveResponse, None),
        Refusal::TooManyResponses { .. } => (ErrorCode::TooManyResponses, None),
        Refusal::NoActiveResponse => (ErrorCode::ResponseCancelNotActive, None),
        Refusal::NothingSaid => (ErrorCode::InputTextBufferCommitEmpty, Some("text")),
        Refusal::StoreFailed { .. } => (ErrorCode::StoreFailed, None),
        Refusal::Stopping => (ErrorCode::ServerError, None),
    };
    let message = match refusal {
        Refusal::ResponseActive { response_id } => format!(
            "the conversation already has an active response ({response_id}): wait for response.done, or cancel it"
        ),
        // Stock clients know this message by its first words.
        Refusal::NoActiveResponse => "Cancellation failed: no active response found".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_written_as_its_name() {
        for code in [
            ErrorCode::ItemRetrieveInvalidItemId,
            ErrorCode::ConversationAlreadyHasActiveResponse,
            ErrorCode::InvalidJson,
        ] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
    }
}
