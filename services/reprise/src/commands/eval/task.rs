//! The cases, and when an answer is right.

use anyhow::Result;
use compaction::{Entry, Kind, Limits, Pin};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::talker::{Said, Talker};

#[derive(Debug, Deserialize)]
pub struct Question {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    pub expect: Expect,
}

/// Stretches of conversation, each of which is summarised on top of what came before, and questions after the last.
#[derive(Debug, Deserialize)]
pub struct Compacted {
    system: String,
    stages: Vec<Vec<Value>>,
    /// What the last summary has to say.
    pub lines: Vec<String>,
    pub questions: Vec<Later>,
}

#[derive(Debug, Deserialize)]
pub struct Later {
    ask: String,
    pub expect: Expect,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum Expect {
    Says { says: String },
    Calls { calls: Call },
    Obeys { obeys: Style, value: String },
}

#[derive(Debug, Deserialize, Serialize)]
pub struct Call {
    name: String,
    arguments: Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Be called so.
    Call,
    End,
    Begin,
    /// Answer with one word.
    One,
}

/// What stands for the stretches that were summarised.
#[derive(Debug, Default)]
pub struct Memory {
    pub summary: String,
    pins: Vec<Pin>,
}

impl Question {
    pub fn is_right(&self, talker: &mut Talker) -> Result<(bool, String)> {
        let tools = self.tools.as_deref().unwrap_or_default();
        let said = talker.answer(&self.messages, tools, REPLY_TOKENS)?;
        Ok((self.expect.holds(&said), shown(&said)))
    }
}

impl Compacted {
    /// As the service does it: the request comes behind the conversation, and the memory in its place before the next.
    pub fn compact(&self, talker: &mut Talker) -> Result<Memory> {
        let mut memory = Memory::default();
        for stage in &self.stages {
            let mut messages = self.head(&memory);
            messages.extend(stage.iter().cloned());
            for request in compaction::instructions(compaction::words(&LIMITS)) {
                messages.push(json!({"role": "user", "content": request.text}));
            }
            memory.pins.extend(stage.iter().flat_map(pins));
            memory.summary = talker.answer(&messages, &[], SUMMARY_TOKENS)?.content;
        }
        Ok(memory)
    }

    pub fn ask(&self, later: &Later, memory: &Memory, talker: &mut Talker) -> Result<(bool, String)> {
        let mut messages = self.head(memory);
        messages.push(json!({"role": "user", "content": later.ask}));
        let said = talker.answer(&messages, &[], REPLY_TOKENS)?;
        Ok((later.expect.holds(&said), shown(&said)))
    }

    fn head(&self, memory: &Memory) -> Vec<Value> {
        let system = json!({"role": "system", "content": self.system});
        let told = compaction::memory(&memory.summary, &memory.pins, &LIMITS);
        std::iter::once(system).chain(told.map(|told| json!({"role": "tool", "content": told.text}))).collect()
    }
}

/// The sentences that the service would pin.
fn pins(message: &Value) -> Vec<Pin> {
    if message["role"] != "user" {
        return Vec::new();
    }
    let text = message["content"].as_str().unwrap_or_default().to_owned();
    let entry = Entry { id: String::new(), kind: Kind::User, text, tokens: 0, reasoning_tokens: 0 };
    let pin = |text| Pin { id: String::new(), text, source: None };
    compaction::detect_pins(&entry).into_iter().map(pin).collect()
}

impl Expect {
    fn holds(&self, said: &Said) -> bool {
        let text = said.content.trim();
        match self {
            Expect::Says { says } => text.to_lowercase().contains(&says.to_lowercase()),
            Expect::Calls { calls } => {
                let [(name, arguments)] = &said.calls[..] else { return false };
                let same = |(key, value): (&String, &Value)| arguments.get(key).map(plain) == Some(plain(value));
                *name == calls.name && arguments.len() == calls.arguments.len() && calls.arguments.iter().all(same)
            }
            Expect::Obeys { obeys: Style::Call, value } => text.contains(value.as_str()),
            Expect::Obeys { obeys: Style::End, value } => text.ends_with(&format!("{value}.")),
            Expect::Obeys { obeys: Style::Begin, value } => text.starts_with(value.as_str()),
            // Names of two words, dates and times are one answer.
            Expect::Obeys { obeys: Style::One, .. } => (1..=4).contains(&text.split_whitespace().count()),
        }
    }
}

/// The sets have numbers as text, the parser gives what the tool's schema says.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn shown(said: &Said) -> String {
    let calls = said.calls.iter().map(|(name, arguments)| format!("{name} {}", json!(arguments)));
    std::iter::once(said.content.clone()).chain(calls).collect::<Vec<_>>().join(" ").trim().to_owned()
}

const REPLY_TOKENS: usize = 120;
const SUMMARY_TOKENS: usize = 700;
/// What the memory may take of the window, as in the built-in model's preset; the other numbers are not asked here.
const LIMITS: Limits = Limits {
    ctx_size: 4000,
    soft_fill: 0.75,
    hard_fill: 0.92,
    target_fill: 0.5,
    tail_tokens: 600,
    summary_tokens: 480,
    reply_reserve_tokens: 512,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn said(content: &str, calls: Value) -> Said {
        let calls = calls.as_array().unwrap().iter();
        let call =
            |call: &Value| (call["name"].as_str().unwrap().to_owned(), call["arguments"].as_object().unwrap().clone());
        Said { content: content.to_owned(), calls: calls.map(call).collect() }
    }

    fn holds(expect: Value, content: &str, calls: Value) -> bool {
        serde_json::from_value::<Expect>(expect).unwrap().holds(&said(content, calls))
    }

    #[test]
    fn a_call_is_right_where_all_of_it_is() {
        let expect = json!({"calls": {"name": "set_timer", "arguments": {"amount": "25", "unit": "minutes"}}});
        let with = |calls: Value| holds(expect.clone(), "", calls);
        assert!(with(json!([{"name": "set_timer", "arguments": {"amount": 25, "unit": "minutes"}}])));
        assert!(!with(json!([{"name": "set_timer", "arguments": {"amount": 26, "unit": "minutes"}}])));
        assert!(!with(json!([{"name": "set_timer", "arguments": {"amount": 25}}])));
        assert!(!with(json!([{"name": "set_alarm", "arguments": {"amount": 25, "unit": "minutes"}}])));
        assert!(!with(json!([])));
    }

    #[test]
    fn an_instruction_is_obeyed_or_not() {
        let obeys =
            |style: &str, value: &str, text: &str| holds(json!({"obeys": style, "value": value}), text, json!([]));
        assert!(obeys("end", "Over", "Your dog is Rex. Over."));
        assert!(!obeys("end", "Over", "Over. Your dog is Rex."));
        assert!(obeys("begin", "Aye", "Aye. Your dog is Rex."));
        assert!(obeys("one", "", "Rex."));
        assert!(!obeys("one", "", "Your dog is called Rex."));
        assert!(!obeys("one", "", ""));
        assert!(obeys("call", "Captain", "Your dog is called Rex, Captain."));
        assert!(holds(json!({"says": "rex"}), "Your dog is called Rex.", json!([])));
    }
}
