//! The cases, and when an answer is right.

use anyhow::Result;
use compaction::{
    Attempt, AttemptStep, CompactionLimits, Passage, PassageKind, PinnedText, PlainMessage, PromptSizes, PromptView,
    Speaker, SummaryJob, SummaryPlan, SummaryReply,
};
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
#[derive(Clone, Debug, Default)]
pub struct Memory {
    pub summary: String,
    pins: Vec<PinnedText>,
    /// What no summary stands for.
    kept: Vec<Value>,
}

impl Question {
    pub fn is_right(&self, talker: &mut Talker) -> Result<(bool, String)> {
        let tools = self.tools.as_deref().unwrap_or_default();
        let said = talker.answer(&self.messages, tools, REPLY_TOKENS)?;
        Ok((self.expect.holds(&said), shown(&said)))
    }
}

impl Compacted {
    /// The first summary that the model makes of each stretch, good or bad: what the model can.
    pub fn summarise(&self, talker: &mut Talker) -> Result<Memory> {
        let mut memory = Memory::default();
        for stage in &self.stages {
            let mut messages = self.head(&memory);
            messages.extend(stage.iter().cloned());
            messages.push(plain_message(&compaction::summary_request(&LIMITS)));
            memory.pins.extend(stage.iter().flat_map(pins));
            memory.summary = talker.answer(&messages, &[], SUMMARY_TOKENS)?.content;
        }
        Ok(memory)
    }

    /// As the service does it: a summary is checked, asked for again, and completed with what it lacks.
    pub fn compact(&self, talker: &mut Talker) -> Result<Memory> {
        let mut memory = Memory::default();
        for stage in &self.stages {
            memory.kept.extend(stage.iter().cloned());
            memory.pins.extend(stage.iter().flat_map(pins));
            let before = self.head(&memory);
            let (mut attempt, mut step) = Attempt::begin(self.job(&memory, talker)?, whole(&memory.kept));
            loop {
                step = match step {
                    AttemptStep::Ask(ask) => {
                        let messages = [before.clone(), ask.messages.iter().map(plain_message).collect()].concat();
                        let said = talker.answer(&messages, &[], ask.max_tokens as usize)?;
                        attempt.replied(SummaryReply {
                            text: said.content,
                            tokens: said.tokens,
                            finished: said.finished,
                        })
                    }
                    AttemptStep::Measure(outcome) => {
                        let after = Memory { summary: outcome.summary, pins: memory.pins.clone(), kept: Vec::new() };
                        attempt.measured(talker.count(&self.head(&after))?)
                    }
                    AttemptStep::Swap(outcome) => {
                        (memory.summary, memory.kept) = (outcome.summary, Vec::new());
                        break;
                    }
                    // What was said stays in the prompt.
                    AttemptStep::GiveUp(_) => break,
                };
            }
        }
        Ok(memory)
    }

    pub fn ask(&self, later: &Later, memory: &Memory, talker: &mut Talker) -> Result<(bool, String)> {
        let mut messages = self.head(memory);
        messages.push(json!({"role": "user", "content": later.ask}));
        let said = talker.answer(&messages, &[], REPLY_TOKENS)?;
        Ok((later.expect.holds(&said), shown(&said)))
    }

    fn job(&self, memory: &Memory, talker: &Talker) -> Result<SummaryJob> {
        let nothing_tokens = talker.count(&[])?;
        let passage = |(number, message): (usize, &Value)| {
            let kind = if message["role"] == "user" { PassageKind::User } else { PassageKind::Assistant };
            let tokens = talker.count(std::slice::from_ref(message))? - nothing_tokens;
            Ok(Passage { id: number.to_string(), kind, text: text_of(message), tokens })
        };
        let passages = memory.kept.iter().enumerate().map(passage).collect::<Result<_>>()?;
        let view = PromptView { passages, summary: memory.summary.clone(), ..PromptView::default() };
        let fixed_tokens = talker.count(&self.head(&Memory { kept: Vec::new(), ..memory.clone() }))?;
        let sizes = PromptSizes { fixed_tokens, ..PromptSizes::default() };
        Ok(SummaryJob { view, sizes, limits: LIMITS, pins: memory.pins.clone() })
    }

    fn head(&self, memory: &Memory) -> Vec<Value> {
        let system = json!({"role": "system", "content": self.system});
        let told = compaction::context_message(&memory.summary, &memory.pins, &LIMITS);
        let told = told.as_ref().map(plain_message);
        std::iter::once(system).chain(told).chain(memory.kept.iter().cloned()).collect()
    }
}

/// All of it goes into the summary: the sets end where the service would cut.
fn whole(kept: &[Value]) -> SummaryPlan {
    let through = kept.len().saturating_sub(1).to_string();
    SummaryPlan { through, left_out: Vec::new(), request_tokens: 0, expected_tokens: 0 }
}

fn plain_message(message: &PlainMessage) -> Value {
    let role = match message.speaker {
        Speaker::User => "user",
        Speaker::Assistant => "assistant",
        Speaker::Context => "tool",
    };
    json!({"role": role, "content": message.text})
}

fn text_of(message: &Value) -> String {
    message["content"].as_str().unwrap_or_default().to_owned()
}

/// The sentences that the service would pin.
fn pins(message: &Value) -> Vec<PinnedText> {
    if message["role"] != "user" {
        return Vec::new();
    }
    let text = text_of(message);
    let passage = Passage { id: String::new(), kind: PassageKind::User, text, tokens: 0 };
    let pin = |text| PinnedText { id: String::new(), text, source: None };
    compaction::detect_pins(&passage).into_iter().map(pin).collect()
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
const LIMITS: CompactionLimits = CompactionLimits {
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
        Said { content: content.to_owned(), calls: calls.map(call).collect(), tokens: 0, finished: true }
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

    #[test]
    fn what_the_service_lets_stand_holds_what_was_told_whatever_the_model_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let models = settings::Flag::new("--models", "model.models_dir", folder.path().display().to_string());
        let sources = settings::Sources { flags: vec![models], ..settings::Sources::default() };
        let settings = settings::Settings::load(&sources).unwrap().settings;
        let precision = crate::opening::precision(&settings, None);
        let opened = crate::opening::open(&settings, "builtin", precision).unwrap();
        let mut talker = Talker::new(opened, &settings, precision);
        let say = |role: &str, text: &str| json!({"role": role, "content": text});
        let told = |text: &str| vec![say("user", text), say("assistant", "Noted.")];
        let case = Compacted {
            system: "You are a voice assistant.".to_owned(),
            stages: vec![
                [told("From now on call me Captain."), told("My door code is 4711.")].concat(),
                [told("My sister is called Ruth."), told("We live in Rome.")].concat(),
            ],
            lines: Vec::new(),
            questions: Vec::new(),
        };
        let memory = case.compact(&mut talker).unwrap();
        assert_eq!(
            memory.pins.iter().map(|pin| pin.text.as_str()).collect::<Vec<_>>(),
            ["From now on call me Captain."]
        );
        let shown = json!(case.head(&memory)).to_string();
        for told in ["From now on call me Captain.", "4711", "Ruth", "Rome"] {
            assert!(shown.contains(told), "{told} is not in {shown}");
        }
    }
}
