//! Servers of speech: [`Ears`] make text of audio, a [`Voice`] makes audio of text. Each is an address of the
//! configuration, asked over Wyoming or over HTTP as OpenAI's clients ask.
//!
//! Both belong to others and may hang, lie, or die in the middle: every request gets a place within `speech.answer_s`, users in
//! turn, and ends as soon after that; its [`Error`] names the server. Dropping a request cancels it.
//!
//! ```
//! use settings::{Settings, Sources};
//! use voices::SpeechServers;
//!
//! let settings = Settings::load(&Sources::default()).unwrap().settings;
//! let servers = SpeechServers::new(&settings.speech, |_| None).unwrap();
//! assert!(servers.ears.is_none() && servers.voice.is_none());
//! ```

mod ears;
mod error;
mod frames;
mod http;
mod listening;
mod places;
mod server;
#[cfg(test)]
mod tests;
mod voice;
mod words;
mod wyoming;

pub use ears::{Ears, HeardWords, is_language};
pub use error::Error;
pub use frames::{FrameLimits, FrameReader, WyomingEvent, write, write_with_payload};
pub use listening::{LiveHearing, PartialWords};
pub use server::SpeechHealth;
pub use voice::{SaidPiece, Saying, VOICE_RATE, Voice, WantedVoice};

use settings::SpeechSettings;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Servers of the configuration; `None` where it names none.
#[derive(Clone, Default)]
pub struct SpeechServers {
    pub ears: Option<Arc<Ears>>,
    pub voice: Option<Arc<Voice>>,
}

impl SpeechServers {
    /// `key`: the environment, by the name of a variable.
    pub fn new(settings: &SpeechSettings, key: impl Fn(&str) -> Option<String>) -> Result<SpeechServers, Error> {
        let key = |name: &Option<String>| name.as_deref().and_then(&key);
        let ears = settings.stt.as_ref().map(|server| Ears::new(server, settings, key(&settings.stt_key_env)));
        let voice = settings.tts.as_ref().map(|server| Voice::new(server, settings, key(&settings.tts_key_env)));
        Ok(SpeechServers { ears: ears.transpose()?.map(Arc::new), voice: voice.transpose()?.map(Arc::new) })
    }

    /// Asks both whether they are there and what they have.
    pub async fn probe(&self) {
        let ears = async {
            if let Some(ears) = &self.ears {
                ears.probe().await;
            }
        };
        let voice = async {
            if let Some(voice) = &self.voice {
                voice.probe().await;
            }
        };
        tokio::join!(ears, voice);
    }

    /// Asks servers that are down again, every `retry`, until `stop`.
    pub async fn watch(self, retry: Duration, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(retry)).await.is_some() {
            let is_down = |state: SpeechHealth| matches!(state, SpeechHealth::Down { .. });
            if let Some(ears) = self.ears.as_ref().filter(|ears| is_down(ears.state())) {
                ears.probe().await;
            }
            if let Some(voice) = self.voice.as_ref().filter(|voice| is_down(voice.state())) {
                voice.probe().await;
            }
        }
    }
}
