//! Audio of a connection: formats, turns and the voice, as a client sets them and as they are echoed.

use super::frames::{AudioInput, AudioOutput, AudioView, FormatView, Modality, TranscriptionView, TurnDetectionView};
use fields::{FieldError, Read};
use serde_json::{Map, Value};
use settings::Persona;
use speech::{Detection, TurnWaits, g711};
use voices::{WantedVoice, is_language};

/// Settings of a connection that hears or speaks. The session does not know them.
#[derive(Clone, Debug, PartialEq)]
pub struct AudioConfig {
    /// True if there are ears; `speaks`: if there is a voice.
    pub hears: bool,
    pub speaks: bool,
    pub is_audio: bool,
    pub input: AudioFormat,
    pub output: AudioFormat,
    /// `None`: no transcripts are told.
    pub transcription: Option<Transcription>,
    pub noise_reduction: Option<String>,
    /// `None`: turns by hand.
    pub turns: Option<TurnSettings>,
    pub voice: Option<String>,
    /// Speaker and language of the persona.
    pub usual_voice: Option<String>,
    pub usual_language: Option<String>,
    pub speed: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AudioFormat {
    #[default]
    Pcm,
    MuLaw,
    ALaw,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcription {
    pub model: Option<String>,
    pub language: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnSettings {
    pub kind: TurnDetectionKind,
    pub create_response: bool,
    pub interrupt_response: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TurnDetectionKind {
    Silence { threshold: f64, prefix_ms: u64, silence_ms: u64, idle_ms: Option<u64> },
    Meaning { eagerness: &'static str },
}

/// Samples a second of the format `audio/pcm`.
pub const PCM_RATE: u32 = 24_000;
const PREFIX_MS: u64 = 300;
const SILENCE: TurnDetectionKind =
    TurnDetectionKind::Silence { threshold: 0.5, prefix_ms: PREFIX_MS, silence_ms: 500, idle_ms: None };
const LONGEST_MS: u64 = 60_000;

impl AudioFormat {
    pub fn rate(self) -> u32 {
        match self {
            AudioFormat::Pcm => PCM_RATE,
            AudioFormat::MuLaw | AudioFormat::ALaw => g711::RATE,
        }
    }

    pub fn encode(self, samples: &[i16]) -> Vec<u8> {
        match self {
            AudioFormat::Pcm => speech::pcm::to_bytes(samples),
            AudioFormat::MuLaw => samples.iter().map(|sample| g711::sample_to_mu_law(*sample)).collect(),
            AudioFormat::ALaw => samples.iter().map(|sample| g711::sample_to_a_law(*sample)).collect(),
        }
    }

    fn read(value: &Value, path: &str) -> Read<AudioFormat> {
        // The older form is a word alone.
        let kind = value.as_str().or(value["type"].as_str()).unwrap_or_default();
        let format = match kind {
            "audio/pcm" | "pcm16" => AudioFormat::Pcm,
            "audio/pcmu" | "g711_ulaw" => AudioFormat::MuLaw,
            "audio/pcma" | "g711_alaw" => AudioFormat::ALaw,
            _ => return Err(FieldError::invalid(path, "audio/pcm, audio/pcmu or audio/pcma")),
        };
        match value["rate"].as_u64() {
            Some(rate) if rate != u64::from(format.rate()) => {
                Err(FieldError::invalid(&format!("{path}.rate"), "24000 for audio/pcm"))
            }
            _ => Ok(format),
        }
    }

    fn view(self) -> FormatView {
        match self {
            AudioFormat::Pcm => FormatView { kind: "audio/pcm", rate: Some(PCM_RATE) },
            AudioFormat::MuLaw => FormatView { kind: "audio/pcmu", rate: None },
            AudioFormat::ALaw => FormatView { kind: "audio/pcma", rate: None },
        }
    }
}

impl AudioConfig {
    /// The protocol's defaults, for what there is.
    pub fn new(hears: bool, speaks: bool) -> AudioConfig {
        let turns = TurnSettings { kind: SILENCE, create_response: true, interrupt_response: true };
        AudioConfig {
            hears,
            speaks,
            is_audio: speaks,
            input: AudioFormat::Pcm,
            output: AudioFormat::Pcm,
            transcription: hears.then(Transcription::default),
            noise_reduction: None,
            turns: hears.then_some(turns),
            voice: None,
            usual_voice: None,
            usual_language: None,
            speed: 1.0,
        }
    }

    /// Takes the speaker and the language of a persona, where there is one.
    pub fn of_persona(self, persona: Option<&Persona>) -> AudioConfig {
        let (usual_voice, usual_language) =
            persona.map(|own| (own.voice.clone(), own.language.clone())).unwrap_or_default();
        AudioConfig { usual_voice, usual_language, ..self }
    }

    /// Language that the ears are asked for. `None`: that of the configuration.
    pub fn language(&self) -> Option<String> {
        let wanted = self.transcription.as_ref().and_then(|transcription| transcription.language.clone());
        wanted.or_else(|| self.usual_language.clone())
    }

    pub fn speaker(&self, language: Option<&str>) -> WantedVoice {
        let language = self.usual_language.clone().or_else(|| language.map(str::to_owned));
        WantedVoice { name: self.voice.clone(), usual: self.usual_voice.clone(), language, speed: self.speed }
    }

    /// Takes what a `session` object says of audio, in the present form or in the older flat one.
    pub fn apply(&mut self, session: &Value) -> Read<()> {
        if !self.hears && !self.speaks {
            return Ok(());
        }
        let session = &audio_fields(session)?;
        let mut new = self.clone();
        for name in ["modalities", "output_modalities"] {
            if let Some(is_audio) = wants_audio(&session[name]) {
                new.is_audio = is_audio && self.speaks;
            }
        }
        let (input, output) = (&session["audio"]["input"], &session["audio"]["output"]);
        for (value, path) in
            [(&session["input_audio_format"], "input_audio_format"), (&input["format"], "audio.input.format")]
        {
            if !value.is_null() {
                new.input = AudioFormat::read(value, path)?;
            }
        }
        for (value, path) in
            [(&session["output_audio_format"], "output_audio_format"), (&output["format"], "audio.output.format")]
        {
            if !value.is_null() {
                new.output = AudioFormat::read(value, path)?;
            }
        }
        let has = |object: &Value, name: &str| object.get(name).is_some();
        for (object, name) in [(session, "input_audio_transcription"), (input, "transcription")] {
            if has(object, name) {
                new.transcription = transcription(&object[name]).filter(|_| self.hears);
            }
        }
        if has(input, "noise_reduction") {
            new.noise_reduction = input["noise_reduction"]["type"].as_str().map(str::to_owned);
        }
        for (object, path) in [(session, "turn_detection"), (input, "audio.input.turn_detection")] {
            if has(object, "turn_detection") {
                new.turns = turns(&object["turn_detection"], path)?.filter(|_| self.hears);
            }
        }
        for voice in [&session["voice"], &output["voice"]] {
            if let Some(name) = voice.as_str().or(voice["id"].as_str()) {
                new.voice = Some(name.to_owned());
            }
        }
        for (value, path) in [(&session["speed"], "speed"), (&output["speed"], "audio.output.speed")] {
            if let Some(speed) = value.as_f64() {
                if !(0.25..=1.5).contains(&speed) {
                    return Err(FieldError::invalid(path, "between 0.25 and 1.5"));
                }
                new.speed = speed;
            }
        }
        *self = new;
        Ok(())
    }

    pub fn detection(&self, pause_ms: u64) -> Option<Detection> {
        let turns = self.turns?;
        Some(match turns.kind {
            TurnDetectionKind::Silence { threshold, prefix_ms, silence_ms, .. } => {
                let pause_ms = Some(pause_ms).filter(|pause| (1..silence_ms).contains(pause));
                Detection { pause_ms, ..Detection::silence(threshold as f32, prefix_ms, silence_ms) }
            }
            TurnDetectionKind::Meaning { eagerness } => {
                let (finished_ms, unknown_ms, open_ms) = match eagerness {
                    "low" => (900, 2500, 8000),
                    "high" => (350, 700, 2000),
                    _ => (500, 1300, 4000),
                };
                let waits = TurnWaits { finished_ms, unknown_ms, open_ms };
                let pause_ms = Some(if pause_ms == 0 { finished_ms / 2 } else { pause_ms.min(finished_ms / 2) });
                Detection { threshold: 0.5, prefix_ms: PREFIX_MS, waits, pause_ms }
            }
        })
    }

    pub fn idle_ms(&self) -> Option<u64> {
        match self.turns?.kind {
            TurnDetectionKind::Silence { idle_ms, .. } => idle_ms,
            TurnDetectionKind::Meaning { .. } => None,
        }
    }

    pub fn modality(&self) -> Modality {
        if self.is_audio { Modality::Audio } else { Modality::Text }
    }

    pub fn view(&self) -> AudioView<'_> {
        let turn_detection = self.turns.map(|turns| TurnDetectionView {
            kind: match turns.kind {
                TurnDetectionKind::Silence { .. } => "server_vad",
                TurnDetectionKind::Meaning { .. } => "semantic_vad",
            },
            create_response: turns.create_response,
            interrupt_response: turns.interrupt_response,
            threshold: if let TurnDetectionKind::Silence { threshold, .. } = turns.kind {
                Some(threshold)
            } else {
                None
            },
            prefix_padding_ms: if let TurnDetectionKind::Silence { prefix_ms, .. } = turns.kind {
                Some(prefix_ms)
            } else {
                None
            },
            silence_duration_ms: if let TurnDetectionKind::Silence { silence_ms, .. } = turns.kind {
                Some(silence_ms)
            } else {
                None
            },
            idle_timeout_ms: if let TurnDetectionKind::Silence { idle_ms, .. } = turns.kind { idle_ms } else { None },
            eagerness: if let TurnDetectionKind::Meaning { eagerness } = turns.kind { Some(eagerness) } else { None },
        });
        let transcription = self.transcription.as_ref().map(|transcription| TranscriptionView {
            model: transcription.model.as_deref(),
            language: transcription.language.as_deref(),
        });
        AudioView {
            input: AudioInput {
                format: self.hears.then(|| self.input.view()),
                noise_reduction: self.noise_reduction.as_deref().map(|kind| super::frames::NoiseReductionView { kind }),
                transcription,
                turn_detection,
            },
            output: AudioOutput {
                format: self.speaks.then(|| self.output.view()),
                voice: self.voice.as_deref(),
                speed: self.speaks.then_some(self.speed),
            },
        }
    }
}

/// Tells if a list of modalities wants audio. `None`: there is no list.
pub fn wants_audio(modalities: &Value) -> Option<bool> {
    let list = modalities.as_array()?;
    Some(list.iter().any(|modality| modality == "audio"))
}

fn transcription(value: &Value) -> Option<Transcription> {
    let text = |name: &str| value[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let language = text("language").filter(|language| is_language(language));
    value.is_object().then(|| Transcription { model: text("model"), language })
}

/// Takes what a `session` object says of audio and nothing else of it, because it waits in memory.
pub fn audio_fields(session: &Value) -> Read<Value> {
    let (mut fields, mut left) = (Map::new(), MOST_BYTES);
    for name in READ {
        let Some(value) = session.get(name) else { continue };
        if !fits(value, &mut left) {
            return Err(FieldError::too_large(name, MOST_BYTES, "bytes in all that is said of audio"));
        }
        fields.insert(name.to_owned(), value.clone());
    }
    Ok(Value::Object(fields))
}

const READ: [&str; 9] = [
    "modalities",
    "output_modalities",
    "input_audio_format",
    "output_audio_format",
    "input_audio_transcription",
    "turn_detection",
    "voice",
    "speed",
    "audio",
];
/// Bytes of such fields in memory. Stock clients write some hundreds, besides words that a transcription is to know.
const MOST_BYTES: usize = 16 << 10; // not a window: bytes of settings

// Takes the bytes of a value from what is left for it.
fn fits(value: &Value, left: &mut usize) -> bool {
    let own = size_of::<Value>() + value.as_str().map_or(0, str::len);
    let Some(rest) = left.checked_sub(own) else { return false };
    *left = rest;
    match value {
        Value::Array(list) => list.iter().all(|entry| fits(entry, left)),
        Value::Object(fields) => fields.iter().all(|(name, entry)| {
            *left = left.saturating_sub(name.len());
            fits(entry, left)
        }),
        _ => true,
    }
}

fn turns(value: &Value, path: &str) -> Read<Option<TurnSettings>> {
    let fields: &Map<String, Value> = match value {
        Value::Object(fields) => fields,
        // One client writes `false`.
        Value::Null | Value::Bool(false) => return Ok(None),
        _ => return Err(FieldError::invalid(path, "server_vad, semantic_vad or null")),
    };
    let flag = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(true);
    let ms = |name: &str, usual: u64| match fields.get(name) {
        None | Some(Value::Null) => Ok(usual),
        Some(value) => {
            let ms = value.as_u64().filter(|ms| *ms <= LONGEST_MS);
            ms.ok_or_else(|| FieldError::invalid(&format!("{path}.{name}"), "milliseconds, at most 60000"))
        }
    };
    let kind = match fields.get("type").and_then(Value::as_str).unwrap_or("server_vad") {
        "server_vad" => {
            let threshold = fields.get("threshold").and_then(Value::as_f64).unwrap_or(0.5);
            if !(0.0..=1.0).contains(&threshold) {
                return Err(FieldError::invalid(&format!("{path}.threshold"), "between 0 and 1"));
            }
            let idle_ms = Some(ms("idle_timeout_ms", 0)?).filter(|ms| *ms > 0);
            if idle_ms.is_some_and(|ms| !(5000..=30_000).contains(&ms)) {
                return Err(FieldError::invalid(&format!("{path}.idle_timeout_ms"), "between 5000 and 30000"));
            }
            let (prefix_ms, silence_ms) = (ms("prefix_padding_ms", PREFIX_MS)?, ms("silence_duration_ms", 500)?);
            TurnDetectionKind::Silence { threshold, prefix_ms, silence_ms, idle_ms }
        }
        "semantic_vad" => {
            let wanted = fields.get("eagerness").and_then(Value::as_str).unwrap_or("auto");
            let known = ["auto", "low", "medium", "high"].into_iter().find(|known| *known == wanted);
            let allowed = || FieldError::invalid(&format!("{path}.eagerness"), "auto, low, medium or high");
            TurnDetectionKind::Meaning { eagerness: known.ok_or_else(allowed)? }
        }
        _ => return Err(FieldError::invalid(&format!("{path}.type"), "server_vad or semantic_vad")),
    };
    let (create_response, interrupt_response) = (flag("create_response"), flag("interrupt_response"));
    Ok(Some(TurnSettings { kind, create_response, interrupt_response }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(session: Value) -> Value {
        let mut config = AudioConfig::new(true, true);
        config.apply(&session).unwrap();
        json!({ "modality": config.modality(), "audio": config.view() })
    }

    #[test]
    fn an_empty_session_has_the_defaults_of_the_protocol() {
        let pcm = json!({ "type": "audio/pcm", "rate": 24_000 });
        let turns = json!({
            "type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": 500,
            "create_response": true, "interrupt_response": true, "idle_timeout_ms": null,
        });
        let input = json!({ "format": pcm, "noise_reduction": null, "transcription": {}, "turn_detection": turns });
        let audio = json!({ "input": input, "output": { "format": pcm, "voice": null, "speed": 1.0 } });
        assert_eq!(view(json!({})), json!({ "modality": "audio", "audio": audio }));
    }

    #[test]
    fn both_forms_of_a_session_are_read() {
        let new = view(json!({
            "output_modalities": ["audio"],
            "audio": {
                "input": { "format": { "type": "audio/pcmu" }, "transcription": null, "turn_detection": { "type": "semantic_vad", "eagerness": "high" } },
                "output": { "format": { "type": "audio/pcma" }, "voice": { "id": "anna" }, "speed": 1.25 },
            },
        }));
        let old = view(json!({
            "modalities": ["audio", "text"], "input_audio_format": "g711_ulaw", "output_audio_format": "g711_alaw",
            "input_audio_transcription": null, "turn_detection": { "type": "semantic_vad", "eagerness": "high" }, "voice": "anna", "speed": 1.25,
        }));
        assert_eq!(new, old);
        assert_eq!(new["audio"]["input"]["turn_detection"]["eagerness"], "high");
        for by_hand in [json!(null), json!(false)] {
            let shown = view(json!({ "audio": { "input": { "turn_detection": by_hand } } }));
            assert_eq!(shown["audio"]["input"]["turn_detection"], Value::Null);
        }
        assert_eq!(view(json!({ "output_modalities": ["text"] }))["modality"], "text");
    }

    #[test]
    fn what_waits_is_only_what_is_read_and_a_language_is_a_name() {
        let session = json!({ "instructions": "i".repeat(1 << 20), "tools": vec![json!([]); 1000], "speed": 1.5 });
        assert_eq!(audio_fields(&session).unwrap(), json!({ "speed": 1.5 }));
        let language = |text: &str| view(json!({ "input_audio_transcription": { "language": text } }));
        assert_eq!(language("zh-Hant")["audio"]["input"]["transcription"], json!({ "language": "zh-Hant" }));
        for wrong in ["en\r\n--x", "e\"n", "e n", &"e".repeat(36)] {
            assert_eq!(language(wrong)["audio"]["input"]["transcription"], json!({}), "{wrong}");
        }
    }

    #[test]
    fn mistakes_are_named_and_change_nothing() {
        for (session, path) in [
            (
                json!({ "audio": { "input": { "format": { "type": "audio/pcm", "rate": 16_000 } } } }),
                "audio.input.format.rate",
            ),
            (json!({ "audio": { "output": { "format": { "type": "audio/opus" } } } }), "audio.output.format"),
            (json!({ "output_audio_format": 7 }), "output_audio_format"),
            (json!({ "audio": { "output": { "speed": 3 } } }), "audio.output.speed"),
            (json!({ "turn_detection": { "type": "server_vad", "threshold": 2 } }), "turn_detection.threshold"),
            (
                json!({ "turn_detection": { "type": "server_vad", "silence_duration_ms": -1 } }),
                "turn_detection.silence_duration_ms",
            ),
            (
                json!({ "turn_detection": { "type": "server_vad", "idle_timeout_ms": 100 } }),
                "turn_detection.idle_timeout_ms",
            ),
            (json!({ "turn_detection": { "type": "other" } }), "turn_detection.type"),
            (json!({ "turn_detection": { "type": "semantic_vad", "eagerness": "very" } }), "turn_detection.eagerness"),
            (json!({ "turn_detection": 7 }), "turn_detection"),
            (json!({ "voice": "v".repeat(MOST_BYTES) }), "voice"),
            (json!({ "audio": { "input": { "noise_reduction": { "type": vec![json!([]); 1000] } } } }), "audio"),
        ] {
            let mut config = AudioConfig::new(true, true);
            assert_eq!(config.apply(&session).unwrap_err().path, path, "{session}");
            assert_eq!(config, AudioConfig::new(true, true));
            // Without ears and a voice nothing of it means anything.
            assert_eq!(AudioConfig::new(false, false).apply(&session), Ok(()));
        }
    }
}
