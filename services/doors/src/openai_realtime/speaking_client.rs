use crate::{ApiError, App};
use access::Caller;
use axum::http::HeaderMap;
use replies::BodyClues;
use session::Input;

/// Client of a connection, with its clues to its speakers.
#[derive(Clone)]
pub struct SpeakingClient {
    pub caller: Caller,
    /// Clues of the connection to its speakers.
    pub headers: HeaderMap,
    pub clues: BodyClues,
    // Person of the connection.
    pub person: String,
}

impl SpeakingClient {
    /// Finds the persons of the speakers that an input names.
    pub async fn name(&self, app: &App, input: &mut Input) -> Result<(), ApiError> {
        let SpeakingClient { caller, headers, clues, .. } = self;
        Ok(app.replies.persons.name_speakers(caller, headers, clues, input).await?)
    }
}
