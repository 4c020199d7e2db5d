//! The service as its doors see it.

use crate::admin::state_streams::StateStreams;
use crate::openai_realtime::AudioConfig;
use access::Access;
use axum::extract::FromRef;
use hub::SharedFetch;
use replies::Completions;
use settings::ExplainedValue;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use voices::SpeechServers;

#[derive(Clone)]
pub struct App {
    pub replies: Completions,
    pub access: Access,
    pub pulls: SharedFetch,
    pub stopping: CancellationToken,
    pub speech: SpeechServers,
    pub start: Arc<StartFacts>,
    pub state_streams: StateStreams,
    // Turns of clients that have left, until they are kept.
    pub late_turns: TaskTracker,
}

/// Facts about this start, for administrators.
#[derive(Clone, Debug, Default)]
pub struct StartFacts {
    pub settings: Vec<ExplainedValue>,
    pub device: String,
    pub notes: Vec<String>, // wishes of the configuration that the machine could not meet
    pub planned_bytes: Vec<(&'static str, u64)>,
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
