//! Events of a session to events of this protocol, each as it is written.

use super::intents::intent_of;
use super::parse::Transcript;
use crate::ApiError;
use fields::printable;
use metrics::counter;
use replies::Render;
use serde_json::{Map, Value, json};
use session::{Event, Failure, ItemBody, Response, ResponseStatus, StatusDetails};
use voices::write;

/// Describes the only program of a port. No language is named, so none is excluded. `controls`: its replies
/// may be intents.
pub fn info(name: &str, model: &str, controls: bool) -> String {
    let attribution = json!({ "name": "Reprise", "url": "" });
    let version = env!("CARGO_PKG_VERSION");
    let model = json!({
        "name": model, "attribution": attribution, "installed": true, "description": null, "version": version, "languages": [],
    });
    let program = json!({
        "name": name, "attribution": attribution, "installed": true, "version": version, "models": [model],
        "description": "Keeps each conversation, for as long as it is", "supports_handled_streaming": true,
        "supports_home_control": controls,
    });
    event(
        "info",
        json!({
            "asr": [], "tts": [], "handle": [program], "intent": [], "wake": [], "mic": [], "snd": [],
        }),
    )
}

pub fn pong(text: Option<&str>) -> String {
    event("pong", text.map_or_else(|| json!({}), |text| json!({ "text": text })))
}

/// Home Assistant speaks the text.
pub fn error(code: &str, text: &str) -> String {
    event("error", json!({ "text": printable(text), "code": code }))
}

pub fn refused(refused: &ApiError) -> String {
    count("error");
    error(refused.code, &refused.message)
}

/// The client is gone, or has said something else meanwhile.
pub fn left() {
    count("left");
}

pub fn interrupted(context: Option<&Map<String, Value>>) -> String {
    with_context("not-handled", Some("This was interrupted."), context)
}

/// Home Assistant carries it out and says the text, or else its own.
fn intent(name: &str, entities: Vec<Value>, text: &str, context: Option<&Map<String, Value>>) -> String {
    let mut data = Map::from_iter([("name".to_owned(), json!(name)), ("entities".to_owned(), json!(entities))]);
    data.extend((!text.is_empty()).then(|| ("text".to_owned(), json!(text))));
    data.extend(context.map(|context| ("context".to_owned(), Value::Object(context.clone()))));
    write("intent", data)
}

fn event(kind: &str, data: Value) -> String {
    write(kind, data.as_object().cloned().unwrap_or_default())
}

fn with_context(kind: &str, text: Option<&str>, context: Option<&Map<String, Value>>) -> String {
    let mut data = Map::new();
    data.extend(text.map(|text| ("text".to_owned(), json!(text))));
    data.extend(context.map(|context| ("context".to_owned(), Value::Object(context.clone()))));
    write(kind, data)
}

fn count(outcome: &'static str) {
    counter!("reprise_wyoming_turns_total", "outcome" => outcome).increment(1);
}

/// A reply on its way. It streams, and says all of it again at the end, because Home Assistant reads nothing else.
pub struct WyomingReply {
    context: Option<Map<String, Value>>,
    text: String,
    has_begun: bool,
    is_over: bool,
}

impl WyomingReply {
    pub fn to(transcript: &Transcript) -> WyomingReply {
        WyomingReply { context: transcript.context.clone(), text: String::new(), has_begun: false, is_over: false }
    }

    fn begin(&mut self, out: &mut Vec<String>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            out.push(with_context("handled-start", None, self.context.as_ref()));
        }
    }

    fn done(&mut self, response: &Response, out: &mut Vec<String>) -> Result<(), Failure> {
        if let Some(StatusDetails::Failed(failure)) = &response.details {
            return Err(failure.clone());
        }
        self.is_over = true;
        let context = self.context.as_ref();
        let has_calls = response.output.iter().any(|item| matches!(item.body, ItemBody::FunctionCall { .. }));
        if response.status == ResponseStatus::Cancelled {
            count("interrupted");
            out.push(interrupted(context));
        } else if let Some((name, entities)) = intent_of(&response.output) {
            count("intent");
            out.push(intent(name, entities, &self.text, context));
        } else if self.text.is_empty() && has_calls {
            count("not_handled");
            out.push(with_context("not-handled", Some("I cannot do that from here."), context));
        } else {
            count("handled");
            // Readers skip fields that they do not know; Home Assistant leaves the microphone shut whatever it is told.
            let mut data = Map::from_iter([("text".to_owned(), json!(self.text))]);
            data.extend(response.expects_answer().then(|| ("expects_answer".to_owned(), json!(true))));
            data.extend(context.map(|context| ("context".to_owned(), Value::Object(context.clone()))));
            let handled = write("handled", data);
            self.begin(out);
            out.push(handled + &write("handled-stop", Map::new()));
        }
        Ok(())
    }
}

impl Render for WyomingReply {
    fn add(&mut self, event: &Event, out: &mut Vec<String>) -> Result<(), Failure> {
        match event {
            Event::TextDelta { text, .. } => {
                self.begin(out);
                self.text.push_str(text);
                out.push(write("handled-chunk", Map::from_iter([("text".to_owned(), json!(text))])));
            }
            Event::ResponseDone { response } => self.done(response, out)?,
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut Vec<String>) {}

    fn failed(&mut self, failure: &Failure, out: &mut Vec<String>) {
        count("error");
        self.is_over = true;
        out.push(error(failure.code.word(), &failure.message));
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::{FailureCode, Item, ItemStatus, MaxTokens};
    use voices::{FrameLimits, FrameReader};

    fn read(frames: &[String]) -> Vec<(String, Value)> {
        let limits = FrameLimits { line_bytes: 1 << 16, data_bytes: 1 << 20, payload_bytes: 0 };
        let mut reader = FrameReader::new(limits);
        reader.push(frames.concat().as_bytes());
        let next = || reader.event().unwrap().map(|event| (event.kind, Value::Object(event.data)));
        std::iter::from_fn(next).collect()
    }

    fn reply() -> WyomingReply {
        let context = json!({ "conversation_id": "01K" }).as_object().cloned();
        WyomingReply::to(&Transcript { text: "x".into(), context, ..Transcript::default() })
    }

    fn delta(text: &str) -> Event {
        let (response_id, item_id, text) = ("r".into(), "i".into(), text.into());
        Event::TextDelta { response_id, item_id, output_index: 0, text, logprobs: vec![] }
    }

    fn done(status: ResponseStatus, details: Option<StatusDetails>, output: Vec<Item>) -> Event {
        let max_output_tokens = MaxTokens::Unlimited;
        let (id, conversation_id) = ("r".into(), None);
        let response =
            Response { id, status, details, output, conversation_id, max_output_tokens, usage: None, metadata: None };
        Event::ResponseDone { response: Box::new(response) }
    }

    fn told(events: &[Event]) -> Vec<(String, Value)> {
        let (mut reply, mut out) = (reply(), Vec::new());
        for event in events {
            if let Err(failure) = reply.add(event, &mut out) {
                reply.failed(&failure, &mut out);
            }
        }
        read(&out)
    }

    #[test]
    fn a_reply_streams_and_is_said_as_a_whole_before_it_stops() {
        let context = json!({ "conversation_id": "01K" });
        let told = told(&[delta("Good "), delta("mörning."), done(ResponseStatus::Completed, None, vec![])]);
        let expected = [
            ("handled-start", json!({ "context": context })),
            ("handled-chunk", json!({ "text": "Good " })),
            ("handled-chunk", json!({ "text": "mörning." })),
            ("handled", json!({ "text": "Good mörning.", "context": context })),
            ("handled-stop", json!({})),
        ];
        assert_eq!(told, expected.map(|(kind, data)| (kind.to_owned(), data)));
    }

    #[test]
    fn every_end_is_told_in_words() {
        let call = ItemBody::FunctionCall { call_id: "c".into(), name: "f".into(), arguments: "{}".into() };
        let calls = vec![Item::new("i", call, ItemStatus::Completed)];
        let failure = Failure::new(FailureCode::Busy, "too many requests wait already");
        let kinds = |events: &[Event]| told(events).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
        assert_eq!(kinds(&[done(ResponseStatus::Completed, None, calls)]), ["not-handled"]);
        assert_eq!(kinds(&[done(ResponseStatus::Cancelled, None, vec![])]), ["not-handled"]);
        // Nothing to say is a silent reply, and a reply that is cut off is a reply.
        assert_eq!(
            kinds(&[done(ResponseStatus::Completed, None, vec![])]),
            ["handled-start", "handled", "handled-stop"]
        );
        let cut = [delta("Good"), done(ResponseStatus::Incomplete, Some(StatusDetails::MaxOutputTokens), vec![])];
        assert_eq!(told(&cut)[2].1["text"], "Good");
        let failed = told(&[delta("Go"), done(ResponseStatus::Failed, Some(StatusDetails::Failed(failure)), vec![])]);
        let error = json!({ "text": "too many requests wait already", "code": "busy" });
        assert_eq!(failed.last().unwrap(), &("error".to_owned(), error));
    }

    #[test]
    fn info_is_what_home_assistant_reads() {
        let told = read(&[info("kitchen", "qwen", false)]);
        let program = &told[0].1["handle"][0];
        assert_eq!((told.len(), &program["name"], &program["installed"]), (1, &json!("kitchen"), &json!(true)));
        assert_eq!(program["models"][0]["languages"], json!([]));
        assert_eq!(program["supports_handled_streaming"], true);
        let no_text = read(&[pong(None), pong(Some("a")), error("busy", "wait")]);
        assert_eq!(no_text[0], ("pong".to_owned(), json!({})));
        assert_eq!((&no_text[1].1["text"], &no_text[2].1["code"]), (&json!("a"), &json!("busy")));
    }
}
