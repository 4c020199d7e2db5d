//! Speech: servers that hear and speak, and how much audio may wait.

use crate::password::without_password;
use crate::reader::{Parsed, SectionReader, sections};

sections! {
    pub struct SpeechSettings {
        pub words_per_minute: u32 = whole(30..=600),
        pub first_clause_chars: usize = whole(1..=1000),
        pub max_sentence_chars: usize = whole(40..=10_000),
        pub stt: Option<SpeechServer> = speech_server(),
        pub stt_model: String = text(),
        pub stt_key_env: Option<String> = variable(),
        pub tts: Option<SpeechServer> = speech_server(),
        pub tts_model: String = text(),
        pub tts_key_env: Option<String> = variable(),
        pub tts_word_times: bool = bool(),
        pub voice: Option<String> = optional_text(),
        pub language: Option<String> = optional_text(),
        pub connect_ms: u64 = time(1..=600_000),
        pub answer_s: u64 = time(1..=600),
        pub retry_s: u64 = time(1..=86_400),
        pub requests: usize = whole(1..=1024),
        pub live_turns: usize = whole(0..=1024),
        pub waiting_turns: usize = whole(1..=1024),
        pub turn_s: u64 = time(1..=3600),
        pub piece_s: u64 = time(1..=3600),
        pub ahead_ms: u64 = time(100..=600_000),
        pub pause_ms: u64 = time(0..=10_000),
        pub answer_bytes: usize = bytes(1024..=1 << 30),
        pub keep_audio: bool = bool(),
        pub kept_audio_bytes: usize = bytes(0..=1 << 40),
        pub kept_items: usize = whole(16..=1 << 20),
    }
}

/// Address of a server that hears or speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpeechServer {
    // Host and port.
    Wyoming(String),
    // Base address of an OpenAI-compatible server, without a slash at its end.
    Http(String),
}

const ADDRESS: &str = "\"\", wyoming://HOST:PORT, or http(s)://HOST/v1";

impl SectionReader<'_> {
    fn speech_server(&self, key: &'static str) -> Option<SpeechServer> {
        self.text_as(key, None, ADDRESS, |text| if text.is_empty() { Ok(None) } else { server(text).map(Some) })
    }
}

fn server(text: &str) -> Parsed<SpeechServer> {
    if let Some(place) = text.strip_prefix("wyoming://") {
        let place = place.trim_end_matches('/');
        let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
        return match port {
            Some(Ok(port)) if port > 0 && !place.contains('/') => Ok(SpeechServer::Wyoming(place.to_string())),
            _ => Err(Some("a Wyoming server has a port, such as wyoming://127.0.0.1:10300".to_string())),
        };
    }
    let is_http = text.starts_with("http://") || text.starts_with("https://");
    if is_http { Ok(SpeechServer::Http(text.trim_end_matches('/').to_string())) } else { Err(None) }
}

impl std::fmt::Display for SpeechServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SpeechServer::Wyoming(place) => write!(f, "wyoming://{place}"),
            SpeechServer::Http(base) => f.write_str(&without_password(base)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_its_protocol() {
        for (text, shown) in [
            ("wyoming://127.0.0.1:10300", "wyoming://127.0.0.1:10300"),
            ("wyoming://[::1]:10300/", "wyoming://[::1]:10300"),
            ("http://speech.home:8000/v1/", "http://speech.home:8000/v1"),
            ("http://ann:secret@speech.home/v1", "http://…@speech.home/v1"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "wyoming://whisper",
            "wyoming://:1",
            "wyoming://a:0",
            "wyoming://a:99999",
            "wyoming://a/b:7",
            "tcp://a:1",
            "whisper:10300",
        ] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }
}
