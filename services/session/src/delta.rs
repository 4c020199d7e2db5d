//! Deltas and failures: the words by which programs know them.

use crate::vocabulary::{Delta, Ending, Failure, FailureCode, Finish, ResponseStatus, StatusDetails};

impl Delta {
    /// Text without sentences and log probabilities.
    pub fn text(text: impl Into<String>, tokens: u64) -> Delta {
        Delta::Text { text: text.into(), tokens, sentences: Vec::new(), logprobs: Vec::new() }
    }

    pub fn is_last(&self) -> bool {
        matches!(self, Delta::Done { .. } | Delta::Failed(_))
    }
}

impl Failure {
    pub fn new(code: FailureCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub fn ending(self) -> Ending {
        (ResponseStatus::Failed, Some(StatusDetails::Failed(self)))
    }
}

impl Finish {
    pub fn ending(self) -> Ending {
        match self {
            Finish::Stop | Finish::ToolCalls | Finish::Warm => (ResponseStatus::Completed, None),
            Finish::Length => (ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens)),
            Finish::Cancelled | Finish::Held => (ResponseStatus::Cancelled, Some(StatusDetails::Cancelled)),
        }
    }
}

impl FailureCode {
    /// Whether the request is at fault, and not the service.
    pub fn is_clients_fault(self) -> bool {
        matches!(self, FailureCode::PromptTooLong | FailureCode::InvalidRequest | FailureCode::Conflict)
    }

    /// A word for programs.
    pub fn word(self) -> &'static str {
        self.into()
    }
}
