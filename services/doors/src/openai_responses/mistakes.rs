//! Mistakes of a request in the words that OpenAI's clients know.

use crate::reader::FieldError;

pub fn wrong(param: &str, message: impl Into<String>) -> FieldError {
    FieldError::new("invalid_value", param, message)
}

pub fn unsupported(param: &str, message: impl Into<String>) -> FieldError {
    FieldError::new("unsupported_parameter", param, message)
}
