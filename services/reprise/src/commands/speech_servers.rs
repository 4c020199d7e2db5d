//! Servers of speech on the start screen and in `doctor`.

use settings::Settings;
use voices::{SpeechHealth, SpeechServers};

pub struct SpeechReport {
    pub kind: &'static str,
    pub is_up: bool,
    pub says: String,
}

const MOST_NAMES: usize = 6;

pub async fn ask(settings: &Settings) -> Vec<SpeechReport> {
    let servers = match SpeechServers::new(&settings.speech, |name| std::env::var(name).ok()) {
        Ok(servers) => servers,
        Err(error) => return vec![SpeechReport { kind: "speech", is_up: false, says: error.to_string() }],
    };
    servers.probe().await;
    let ears = servers.ears.map(|ears| report("ears", &ears.address().to_string(), ears.state()));
    let voice = servers.voice.map(|voice| report("voice", &voice.address().to_string(), voice.state()));
    ears.into_iter().chain(voice).collect()
}

fn report(kind: &'static str, address: &str, state: SpeechHealth) -> SpeechReport {
    match state {
        SpeechHealth::Up { program, names } => {
            let more = if names.len() > MOST_NAMES { ", ..." } else { "" };
            let names = names.iter().take(MOST_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
            let names = if names.is_empty() { names } else { format!(" ({names}{more})") };
            SpeechReport { kind, is_up: true, says: format!("{address}: {program}{names}") }
        }
        SpeechHealth::Down { trouble } => {
            SpeechReport { kind, is_up: false, says: format!("{trouble}; it is asked again (speech.retry_s)") }
        }
        SpeechHealth::Unknown => SpeechReport { kind, is_up: false, says: format!("{address} was not asked") },
    }
}
