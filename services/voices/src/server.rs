//! Server of speech: an address, its limits, and what is known of the server behind it.

use crate::Error;
use crate::frames::FrameLimits;
use crate::places::{ServerPlace, ServerPlaces};
use fields::printable;
use parking_lot::Mutex;
use settings::{SpeechServer, SpeechSettings};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// State of a server as it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SpeechHealth {
    #[default]
    Unknown,
    Up {
        // Program and its models, as it names itself.
        program: String,
        // Names of its speakers, or of the languages that its ears know.
        names: Vec<String>,
    },
    Down {
        trouble: String,
    },
}

pub struct Server {
    /// Its name in errors: "the voice at wyoming://...".
    pub name: String,
    pub address: SpeechServer,
    pub model: String,
    pub key: Option<String>,
    pub client: reqwest::Client,
    pub connect: Duration,
    pub answer: Duration,
    pub answer_bytes: usize,
    places: Arc<ServerPlaces>,
    state: Mutex<SpeechHealth>,
    // True if its ears tell words while they hear.
    is_streaming: AtomicBool,
}

impl Server {
    pub fn new(
        (kind, address, model): (&str, &SpeechServer, &str),
        settings: &SpeechSettings,
        key: Option<String>,
    ) -> Result<Server, Error> {
        let name = format!("the {kind} at {address}");
        // Once for the process; an error says that it was done before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connect = Duration::from_millis(settings.connect_ms);
        let client = reqwest::Client::builder().connect_timeout(connect).redirect(reqwest::redirect::Policy::none());
        let client =
            client.build().map_err(|error| Error::Address { server: name.clone(), cause: error.to_string() })?;
        Ok(Server {
            name,
            address: address.clone(),
            model: model.to_owned(),
            key,
            client,
            connect,
            answer: Duration::from_secs(settings.answer_s),
            answer_bytes: settings.answer_bytes,
            places: ServerPlaces::new(settings.requests),
            state: Mutex::default(),
            is_streaming: AtomicBool::new(false),
        })
    }

    pub fn state(&self) -> SpeechHealth {
        self.state.lock().clone()
    }

    pub fn is_streaming(&self) -> bool {
        self.is_streaming.load(Ordering::Relaxed)
    }

    pub fn set_streaming(&self, is_streaming: bool) {
        self.is_streaming.store(is_streaming, Ordering::Relaxed);
    }

    /// Tells if the server lists this name among its own.
    pub fn lists(&self, wanted: &str) -> bool {
        match &*self.state.lock() {
            SpeechHealth::Up { names, .. } => names.iter().any(|name| name == wanted),
            SpeechHealth::Unknown | SpeechHealth::Down { .. } => false,
        }
    }

    pub fn set(&self, found: Result<(String, Vec<String>), Error>) {
        let state = match found {
            Ok((program, names)) => SpeechHealth::Up { program, names },
            Err(error) => SpeechHealth::Down { trouble: error.to_string() },
        };
        let before = std::mem::replace(&mut *self.state.lock(), state.clone());
        match (before, state) {
            (SpeechHealth::Down { .. }, SpeechHealth::Up { .. }) => {
                tracing::info!(server = self.name, "a server of speech is there again")
            }
            (SpeechHealth::Down { .. }, _) => {}
            (_, SpeechHealth::Down { trouble }) => tracing::warn!(trouble, "a server of speech is down"),
            _ => {}
        }
    }

    /// Notes a failure of a request: the server is asked again by and by.
    pub fn failed(&self, error: &Error) {
        if matches!(error, Error::Unreachable { .. } | Error::Silent { .. }) {
            self.set(Err(error.clone()));
        }
    }

    /// Waits for one of the requests that the server gets at once. A server that is busy is not down.
    pub async fn place(&self, user: &str) -> Result<ServerPlace, Error> {
        let busy = || Error::Busy { server: self.name.clone(), seconds: self.answer.as_secs() };
        timeout(self.answer, self.places.take(user)).await.ok().flatten().ok_or_else(busy)
    }

    pub async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let silent = || Error::Silent { server: self.name.clone(), seconds: self.answer.as_secs() };
        timeout(self.answer, work).await.map_err(|_| silent())
    }

    pub fn limits(&self) -> FrameLimits {
        FrameLimits { line_bytes: self.answer_bytes, data_bytes: self.answer_bytes, payload_bytes: MOST_PAYLOAD }
    }

    pub fn unreachable(&self, cause: impl std::fmt::Display) -> Error {
        Error::Unreachable { server: self.name.clone(), cause: self.told(&cause.to_string()) }
    }

    pub fn refused(&self, message: &str) -> Error {
        Error::Refused { server: self.name.clone(), message: self.told(message) }
    }

    pub fn nonsense(&self, what: impl std::fmt::Display) -> Error {
        Error::Nonsense { server: self.name.clone(), what: self.told(&what.to_string()) }
    }

    pub fn broke_off(&self) -> Error {
        Error::BrokeOff { server: self.name.clone() }
    }

    // Words of the server as they may be told: short, printable, without the key. Cut last, because half a key is one too.
    fn told(&self, words: &str) -> String {
        let words = match self.key.as_deref().filter(|key| !key.is_empty()) {
            Some(key) => Cow::Owned(words.replace(key, "...")),
            None => Cow::Borrowed(words),
        };
        printable(words.chars().take(MOST_TOLD).collect::<String>())
    }
}

// Bytes of one piece of audio that a server may send.
const MOST_PAYLOAD: u64 = 4 << 20;
// Characters of a server's words that are told to a client.
const MOST_TOLD: usize = 300;
