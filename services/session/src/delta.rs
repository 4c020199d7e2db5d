//! Deltas and failures: constructors and the words for programs.

use crate::vocabulary::{Delta, Ending, Failure, FailureCode, Finish, ResponseStatus, StatusDetails};

impl Delta {
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
    pub fn is_clients_fault(self) -> bool {
        use FailureCode::{Conflict, InvalidRequest, PromptTooLong, SessionDeleted};
        matches!(self, PromptTooLong | InvalidRequest | Conflict | SessionDeleted)
    }

    pub fn word(self) -> &'static str {
        self.into()
    }
}
