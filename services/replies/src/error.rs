use session::Failure;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    #[error(transparent)]
    Model(#[from] Failure),
    #[error("{message}")]
    Request { code: &'static str, message: String, param: Option<&'static str> },
    #[error("a client secret opens only the sessions that it began, and the one that it was made for")]
    NotOfThisSecret,
    #[error("there is no response {id} to go on from: send the whole conversation instead")]
    NoPreviousResponse { id: String },
    #[error("the response {id} is not over: wait for its end, or cancel it")]
    PreviousResponseActive { id: String },
    #[error(transparent)]
    Conversation(Box<Error>),
}

impl Error {
    pub fn request(code: &'static str, message: impl Into<String>, param: Option<&'static str>) -> Error {
        Error::Request { code, message: message.into(), param }
    }
}
