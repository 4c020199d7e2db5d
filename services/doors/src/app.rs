//! The service as its doors see it.

use crate::openai_realtime::AudioConfig;
use access::Access;
use axum::extract::FromRef;
use hub::SharedFetch;
use replies::Completions;
use tokio_util::sync::CancellationToken;
use voices::SpeechServers;

#[derive(Clone)]
pub struct App {
    pub replies: Completions,
    pub access: Access,
    pub pulls: SharedFetch,
    pub stopping: CancellationToken,
    pub speech: SpeechServers,
}

impl App {
    /// Audio settings of a connection that has set nothing.
    pub fn audio(&self) -> AudioConfig {
        AudioConfig::new(self.speech.ears.is_some(), self.speech.voice.is_some())
    }
}

impl FromRef<App> for Completions {
    fn from_ref(app: &App) -> Completions {
        app.replies.clone()
    }
}
