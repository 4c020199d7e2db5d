//! Bytes to events and back: a line of JSON, the JSON data that it announces, a payload.
//!
//! Knows no socket. Whatever comes, no more is kept than one line and its data.

use fields::{FieldError, Read, read};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use settings::WyomingSettings;

/// Limits of one event.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimits {
    pub line_bytes: usize,
    pub data_bytes: usize,
    pub payload_bytes: u64,
}

/// An event as it came, without its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct WyomingEvent {
    pub kind: String,
    pub data: Map<String, Value>,
}

/// Bytes of one connection. After a mistake nothing more can be read: the begin of the next event is lost.
pub struct FrameReader {
    limits: FrameLimits,
    buffer: Vec<u8>,
    // Begin of the unread rest in the buffer.
    at: usize,
    // Bytes behind `at` without an end of a line.
    searched: usize,
    stage: Stage,
    // Payload of the last event. `None`: payloads are let go.
    payload: Option<Vec<u8>>,
}

enum Stage {
    Line,
    Data { event: WyomingEvent, bytes: usize, payload_bytes: u64 },
    Payload { event: WyomingEvent, bytes: u64 },
}

// The line. `version` and whatever else stands there is let go.
#[derive(Deserialize)]
struct Head {
    r#type: String,
    data: Option<Map<String, Value>>,
    data_length: Option<u64>,
    payload_length: Option<u64>,
}

impl FrameLimits {
    pub fn of(settings: &WyomingSettings) -> FrameLimits {
        let &WyomingSettings { line_bytes, data_bytes, payload_bytes, .. } = settings;
        FrameLimits { line_bytes, data_bytes, payload_bytes }
    }
}

impl FrameReader {
    pub fn new(limits: FrameLimits) -> FrameReader {
        FrameReader { limits, buffer: Vec::new(), at: 0, searched: 0, stage: Stage::Line, payload: None }
    }

    /// Keeps payloads: `payload` takes that of the last event.
    pub fn with_payloads(limits: FrameLimits) -> FrameReader {
        FrameReader { payload: Some(Vec::new()), ..FrameReader::new(limits) }
    }

    pub fn payload(&mut self) -> Vec<u8> {
        self.payload.as_mut().map(std::mem::take).unwrap_or_default()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    pub fn event(&mut self) -> Read<Option<WyomingEvent>> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Line) {
                Stage::Line => {
                    let Some(line) = self.line()? else { return Ok(None) };
                    let Head { r#type: kind, data, data_length, payload_length } = head(line)?;
                    let (data_bytes, payload_bytes) = (data_length.unwrap_or(0), payload_length.unwrap_or(0));
                    let FrameLimits { data_bytes: most_data, payload_bytes: most_payload, .. } = self.limits;
                    let bytes = usize::try_from(data_bytes).ok().filter(|bytes| *bytes <= most_data);
                    let bytes =
                        bytes.ok_or_else(|| FieldError::too_large("data", most_data, "bytes (wyoming.data_bytes)"))?;
                    if payload_bytes > most_payload {
                        let most = usize::try_from(most_payload).unwrap_or(usize::MAX);
                        return Err(FieldError::too_large("payload", most, "bytes (wyoming.payload_bytes)"));
                    }
                    let event = WyomingEvent { kind, data: data.unwrap_or_default() };
                    self.payload.as_mut().map(Vec::clear).unwrap_or_default();
                    self.stage = Stage::Data { event, bytes, payload_bytes };
                }
                Stage::Data { mut event, bytes, payload_bytes } => {
                    let Some(data) = self.buffer.get(self.at..self.at + bytes) else {
                        self.stage = Stage::Data { event, bytes, payload_bytes };
                        return Ok(None);
                    };
                    if bytes > 0 {
                        event.data.extend(object(data, "data")?);
                    }
                    self.at += bytes;
                    self.stage = Stage::Payload { event, bytes: payload_bytes };
                }
                Stage::Payload { event, bytes } => {
                    let here = (self.buffer.len() - self.at) as u64;
                    let taken = here.min(bytes);
                    if let Some(payload) = &mut self.payload {
                        payload.extend_from_slice(&self.buffer[self.at..self.at + taken as usize]);
                    }
                    self.at += taken as usize;
                    if taken == bytes {
                        return Ok(Some(event));
                    }
                    self.stage = Stage::Payload { event, bytes: bytes - taken };
                    return Ok(None);
                }
            }
        }
    }

    // The next whole line, without its end.
    fn line(&mut self) -> Read<Option<&[u8]>> {
        let most = self.limits.line_bytes;
        let from = self.at;
        let rest = &self.buffer[from..];
        let end = rest[self.searched..].iter().position(|byte| *byte == b'\n').map(|end| self.searched + end);
        if end.unwrap_or(rest.len()) > most {
            return Err(FieldError::too_large(
                "line",
                most,
                "bytes (wyoming.line_bytes): send what is long behind the line",
            ));
        }
        let Some(end) = end else {
            self.searched = rest.len();
            return Ok(None);
        };
        (self.at, self.searched) = (from + end + 1, 0);
        Ok(Some(&self.buffer[from..from + end]))
    }
}

fn head(line: &[u8]) -> Read<Head> {
    read(&Value::Object(object(line, "line")?))
}

fn object(json: &[u8], part: &str) -> Read<Map<String, Value>> {
    match serde_json::from_slice(json) {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(FieldError::new("invalid_json", part, format!("the {part} of an event is not a JSON object"))),
    }
}

/// Writes an event as the protocol's own library does: data behind the line, so that no line is too long to be read.
pub fn write(kind: &str, data: Map<String, Value>) -> String {
    if data.is_empty() {
        return format!("{}\n", json!({ "type": kind, "version": VERSION }));
    }
    let data = Value::Object(data).to_string();
    format!("{}\n{data}", json!({ "type": kind, "version": VERSION, "data_length": data.len() }))
}

/// Writes an event with a payload behind its data.
pub fn write_with_payload(kind: &str, data: Value, payload: &[u8]) -> Vec<u8> {
    let data = data.to_string();
    let head = json!({ "type": kind, "version": VERSION, "data_length": data.len(), "payload_length": payload.len() });
    [format!("{head}\n{data}").as_bytes(), payload].concat()
}

// Version of the library whose events these are.
const VERSION: &str = "1.10.2";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: FrameLimits = FrameLimits { line_bytes: 1024, data_bytes: 2048, payload_bytes: 4096 };

    fn events_in(chunks: &[&[u8]]) -> (Vec<WyomingEvent>, Option<FieldError>) {
        let (mut reader, mut events) = (FrameReader::new(LIMITS), Vec::new());
        for chunk in chunks {
            reader.push(chunk);
            loop {
                match reader.event() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(wrong) => return (events, Some(wrong)),
                }
            }
            assert!(reader.buffer.len() - reader.at <= LIMITS.line_bytes.max(LIMITS.data_bytes) + chunk.len());
        }
        (events, None)
    }

    fn one(bytes: &str) -> WyomingEvent {
        let (mut events, wrong) = events_in(&[bytes.as_bytes()]);
        assert_eq!((events.len(), wrong), (1, None), "{bytes}");
        events.remove(0)
    }

    #[test]
    fn data_stands_in_the_line_or_behind_it() {
        let inline = one("{\"type\":\"transcript\",\"version\":\"1.10.2\",\"data\":{\"text\":\"good morning\"}}\n");
        assert_eq!((inline.kind.as_str(), &inline.data["text"]), ("transcript", &json!("good morning")));
        let data = r#"{"text":"gœd morning","language":"en"}"#;
        let line = format!(r#"{{"type":"transcript","data_length":{},"data":{{"text":"a","more":1}}}}"#, data.len());
        let behind = one(&format!("{line}\n{data}"));
        assert_eq!(Value::Object(behind.data), json!({ "text": "gœd morning", "more": 1, "language": "en" }));
        for nothing in ["", r#","data":null,"data_length":null,"payload_length":null"#, r#","data_length":0"#] {
            assert!(one(&format!("{{\"type\":\"describe\"{nothing}}}\r\n")).data.is_empty());
        }
    }

    #[test]
    fn a_payload_is_let_go() {
        let bytes = b"{\"type\":\"audio-chunk\",\"payload_length\":5}\n\n{}\x00\xff{\"type\":\"describe\"}\n";
        let (events, wrong) = events_in(&[bytes]);
        let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!((kinds, wrong), (vec!["audio-chunk", "describe"], None));
    }

    #[test]
    fn a_payload_is_kept_where_it_is_wanted() {
        let events = [
            write_with_payload("audio-chunk", json!({ "rate": 16_000 }), b"\n{}"),
            write("audio-stop", Map::new()).into_bytes(),
            write_with_payload("audio-chunk", json!({}), b"abc"),
        ];
        let mut reader = FrameReader::with_payloads(LIMITS);
        let mut payloads = Vec::new();
        for byte in events.concat() {
            reader.push(&[byte]);
            while let Some(event) = reader.event().unwrap() {
                payloads.push((event.kind, reader.payload()));
            }
        }
        let kinds = ["audio-chunk", "audio-stop", "audio-chunk"].map(str::to_owned);
        let expected: Vec<_> = kinds.into_iter().zip([b"\n{}".to_vec(), Vec::new(), b"abc".to_vec()]).collect();
        assert_eq!(payloads, expected);
    }

    #[test]
    fn what_is_written_is_read() {
        let data = json!({ "text": "line\nline", "context": { "a": [1, null] } });
        let written = write("handled", data.as_object().unwrap().clone()) + &write("handled-stop", Map::new());
        let (events, _) = events_in(&[written.as_bytes()]);
        assert_eq!(events[0], WyomingEvent { kind: "handled".into(), data: data.as_object().unwrap().clone() });
        assert_eq!(events[1], WyomingEvent { kind: "handled-stop".into(), data: Map::new() });
    }

    // Readers take a line of more than 64 KiB for a connection that was closed, and `data: null` for a mistake.
    #[test]
    fn what_is_long_stands_behind_its_line_and_nothing_is_null() {
        let data = json!({ "text": "so long ".repeat(100_000) });
        let written = write("handled", data.as_object().unwrap().clone());
        let line = written.lines().next().unwrap();
        assert!(line.len() < 200 && written.len() > 800_000, "{line}");
        assert_eq!(write("handled-stop", Map::new()), "{\"type\":\"handled-stop\",\"version\":\"1.10.2\"}\n");
        assert!(!written.contains("null"));
    }

    #[test]
    fn mistakes_are_named() {
        let long = format!("{{\"type\":\"{}\"}}\n", "x".repeat(LIMITS.line_bytes));
        let endless = "x".repeat(LIMITS.line_bytes + 1);
        for (bytes, code, part) in [
            (long.as_str(), "value_too_large", "line"),
            (endless.as_str(), "value_too_large", "line"),
            ("\n", "invalid_json", "line"),
            ("GET / HTTP/1.1\r\n", "invalid_json", "line"),
            ("[]\n", "invalid_json", "line"),
            ("{\"type\":\"a\",\"data\":{\"x\":NaN}}\n", "invalid_json", "line"),
            ("{}\n", "missing_required_parameter", "type"),
            ("{\"type\":null}\n", "missing_required_parameter", "type"),
            ("{\"type\":1}\n", "invalid_type", "type"),
            ("{\"type\":\"a\",\"data\":[]}\n", "invalid_type", "data"),
            ("{\"type\":\"a\",\"data_length\":-1}\n", "invalid_type", "data_length"),
            ("{\"type\":\"a\",\"data_length\":1.5}\n", "invalid_type", "data_length"),
            ("{\"type\":\"a\",\"data_length\":\"1\"}\n", "invalid_type", "data_length"),
            ("{\"type\":\"a\",\"data_length\":2049}\n", "value_too_large", "data"),
            ("{\"type\":\"a\",\"data_length\":1e300}\n", "value_too_large", "data"),
            ("{\"type\":\"a\",\"data_length\":18446744073709551615}\n", "value_too_large", "data"),
            ("{\"type\":\"a\",\"payload_length\":-1}\n", "invalid_type", "payload_length"),
            ("{\"type\":\"a\",\"payload_length\":4097}\n", "value_too_large", "payload"),
            ("{\"type\":\"a\",\"data_length\":4}\nnull", "invalid_json", "data"),
            ("{\"type\":\"a\",\"data_length\":2}\n[]", "invalid_json", "data"),
            // A length that lies ends inside of the data.
            ("{\"type\":\"a\",\"data_length\":3}\n{\"x\":1}", "invalid_json", "data"),
        ] {
            let (events, wrong) = events_in(&[bytes.as_bytes()]);
            let wrong = wrong.unwrap_or_else(|| panic!("{bytes:?} is {events:?}"));
            assert_eq!((wrong.code, wrong.path.as_str()), (code, part), "{bytes:?}");
            assert!(!wrong.message().is_empty());
        }
    }

    fn any_event() -> impl Strategy<Value = Vec<u8>> {
        let kind = prop_oneof![Just("transcript"), Just("describe"), Just("audio-chunk"), Just("no such thing")];
        let data = prop::option::of("\\PC{0,40}");
        (kind, data, prop::collection::vec(any::<u8>(), 0..40), any::<bool>()).prop_map(
            |(kind, text, payload, inline)| {
                let data = text.map(|text| json!({ "text": text }).to_string()).unwrap_or_default();
                let mut line = json!({ "type": kind });
                match inline {
                    true if !data.is_empty() => line["data"] = serde_json::from_str(&data).unwrap(),
                    _ => line["data_length"] = json!(data.len()),
                }
                line["payload_length"] = json!(payload.len());
                let behind = if line.get("data").is_some() { Vec::new() } else { data.into_bytes() };
                [format!("{line}\n").into_bytes(), behind, payload].concat()
            },
        )
    }

    proptest! {
        #[test]
        fn random_bytes_break_nothing(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..12)) {
            let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let whole = chunks.concat();
            prop_assert_eq!(events_in(&chunks), events_in(&[&whole]));
        }

        // Reads random lines that nearly are events.
        #[test]
        fn random_lines_break_nothing(line in r#"\{"type":"[a-z]{0,3}"(,"(data|data_length|payload_length)":(-?[0-9]{1,20}|null|\{\}|"[a-z]"|[0-9]e[0-9]{1,3}))*\}\n.{0,30}"#) {
            events_in(&[line.as_bytes()]);
        }

        // Events are the same however the network cuts them.
        #[test]
        fn cuts_change_nothing(events in prop::collection::vec(any_event(), 1..6), cuts in prop::collection::vec(1_usize..70, 1..40)) {
            let bytes = events.concat();
            let (mut rest, mut chunks) = (bytes.as_slice(), Vec::new());
            for cut in cuts.iter().cycle() {
                let (chunk, more) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            let (whole, wrong) = events_in(&[&bytes]);
            prop_assert_eq!((whole.len(), &wrong), (events.len(), &None));
            prop_assert_eq!(events_in(&chunks), (whole, None));
        }
    }
}
