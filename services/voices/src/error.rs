/// Failure of a server of speech. Its words name the server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{server} cannot be reached: {cause}")]
    Unreachable { server: String, cause: String },
    #[error("{server} did not answer within {seconds} s (speech.answer_s)")]
    Silent { server: String, seconds: u64 },
    #[error("{server} answers other requests: this one got no place within {seconds} s (speech.requests)")]
    Busy { server: String, seconds: u64 },
    #[error("{server} broke off in the middle of its answer")]
    BrokeOff { server: String },
    #[error("{server} refused: {message}")]
    Refused { server: String, message: String },
    #[error("{server} sent what makes no sense: {what}")]
    Nonsense { server: String, what: String },
    #[error("{server} cannot be asked: {cause}")]
    Address { server: String, cause: String },
}

impl Error {
    /// Word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Unreachable { .. } | Error::Address { .. } => "speech_server_unreachable",
            Error::Silent { .. } => "speech_server_timeout",
            Error::Busy { .. } => "speech_server_busy",
            Error::BrokeOff { .. } | Error::Refused { .. } | Error::Nonsense { .. } => "speech_server_failed",
        }
    }
}
