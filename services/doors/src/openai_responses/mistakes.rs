//! Mistakes of a request in the words that OpenAI's clients know.

use crate::reader::Wrong;

pub fn wrong(param: &str, message: impl Into<String>) -> Wrong {
    Wrong::new("invalid_value", param, message)
}

pub fn unsupported(param: &str, message: impl Into<String>) -> Wrong {
    Wrong::new("unsupported_parameter", param, message)
}
