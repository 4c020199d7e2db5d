//! Times of words as servers tell them: `timestamps: [{word, start_time, end_time}]` in seconds, in the data of any event
//! of a Wyoming voice, and in each line of Kokoro's server. Wyoming itself has no such thing.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use speech::WordTime;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordTimes(pub Vec<WordTime>);

impl WordTimes {
    // Reads those of an event. What is no time of a word is passed over.
    pub fn of(data: &Map<String, Value>) -> WordTimes {
        let told = data.get("timestamps").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        WordTimes(told.iter().filter_map(word).collect())
    }
}

fn word(told: &Value) -> Option<WordTime> {
    let word = told["word"].as_str().filter(|word| !word.trim().is_empty())?.to_owned();
    Some(WordTime { word, start_ms: ms(&told["start_time"])?, end_ms: ms(&told["end_time"]) })
}

fn ms(seconds: &Value) -> Option<u64> {
    seconds
        .as_f64()
        .filter(|seconds| (0.0..LONGEST_S).contains(seconds))
        .map(|seconds| (seconds * 1000.0).round() as u64)
}

// Seconds that no piece of speech has.
const LONGEST_S: f64 = 86_400.0;

// Reads a line of Kokoro's server: its samples in bytes, and its words.
pub fn captioned(line: &[u8]) -> Option<(Vec<u8>, WordTimes)> {
    let line: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let audio = STANDARD.decode(line.get("audio")?.as_str()?).ok()?;
    Some((audio, WordTimes::of(&line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_are_read_and_nonsense_is_not() {
        let data = json!({ "timestamps": [
            { "word": "The", "start_time": 0.0254, "end_time": 0.31 },
            { "word": "light", "start_time": 0.4 },
            { "word": "is", "start_time": -1, "end_time": 2 },
            { "word": " ", "start_time": 1 },
            { "word": "on", "start_time": 1e300 },
            { "word": 7, "start_time": 1 }, "on", null,
        ] });
        let word = |word: &str, start_ms, end_ms| WordTime { word: word.into(), start_ms, end_ms };
        let found = WordTimes::of(data.as_object().unwrap());
        assert_eq!(found.0, [word("The", 25, Some(310)), word("light", 400, None)]);
        assert_eq!(
            captioned(br#"{"audio":"AQID","audio_format":"audio/pcm","timestamps":null}"#),
            Some((vec![1, 2, 3], WordTimes::default()))
        );
        for wrong in ["", "[]", "{}", r#"{"audio":"!"}"#, r#"{"audio":7}"#] {
            assert_eq!(captioned(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
