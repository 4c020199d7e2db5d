//! Cases, and the judgement of answers.

use anyhow::Result;
use compaction::{
    Attempt, AttemptStep, CompactionLimits, Passage, PassageKind, PinnedText, PlainMessage, PromptSizes, PromptView,
    Speaker, SummaryJob, SummaryPlan, SummaryReply,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use session::{Message, MessageRole};

use super::said::{EvalMessage, EvalTool};
use super::talker::{ModelAnswer, Talker};

#[derive(Debug, Deserialize)]
pub struct EvalQuestion {
    messages: Vec<EvalMessage>,
    tools: Option<Vec<EvalTool>>,
    expect: Expect,
}

/// Stretches of conversation, each of which is summarised on top of the ones before, and questions after the last.
#[derive(Debug, Deserialize)]
pub struct CompactedCase {
    system: String,
    stages: Vec<Vec<EvalMessage>>,
    lines: Vec<String>, // demands on the last summary
    questions: Vec<LaterQuestion>,
}

#[derive(Debug, Deserialize)]
struct LaterQuestion {
    ask: String,
    expect: Expect,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", untagged)]
enum Expect {
    Says { says: String },
    Calls { calls: ExpectedCall },
    Obeys { obeys: Style, value: String },
}

#[derive(Debug, Deserialize, Serialize)]
struct ExpectedCall {
    name: String,
    arguments: Map<String, Value>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Style {
    Call, // be called so
    End,
    Begin,
    One, // answer with one word
}

#[derive(Clone)]
pub struct Judged {
    pub right: bool,
    pub said: String,
    pub expected: Value,
}

#[derive(Clone, Debug, Default)]
pub struct CompactedPrompt {
    pub summary: String,
    pins: Vec<PinnedText>,
    kept: Vec<Message>, // messages that no summary tells
}

impl EvalQuestion {
    pub fn ask(&self, talker: &mut Talker) -> Result<Judged> {
        let tools: Vec<_> = self.tools.iter().flatten().map(EvalTool::tool).collect();
        let messages = self.messages.iter().map(EvalMessage::message).collect();
        Ok(self.expect.judge(&talker.answer(messages, &tools, REPLY_TOKENS)?))
    }
}

impl CompactedCase {
    /// Makes the model's first summary of each stretch, good or bad: the ability of the model.
    pub fn summarise(&self, talker: &mut Talker) -> Result<CompactedPrompt> {
        let mut prompt = CompactedPrompt::default();
        for stage in &self.stages {
            let head = self.head(&prompt);
            let said: Vec<Message> = stage.iter().map(EvalMessage::message).collect();
            prompt.pins.extend(said.iter().flat_map(pins));
            let order = plain_message(&compaction::summary_request(&LIMITS));
            let messages = [head, said, vec![order]].concat();
            prompt.summary = talker.answer(messages, &[], SUMMARY_TOKENS)?.content;
        }
        Ok(prompt)
    }

    /// Makes summaries as the service does: checked, requested again, and completed with missing facts.
    pub fn compact(&self, talker: &mut Talker) -> Result<CompactedPrompt> {
        let mut prompt = CompactedPrompt::default();
        for stage in &self.stages {
            let said: Vec<Message> = stage.iter().map(EvalMessage::message).collect();
            prompt.pins.extend(said.iter().flat_map(pins));
            prompt.kept.extend(said);
            let before = self.head(&prompt);
            let (mut attempt, mut step) = Attempt::begin(self.job(&prompt, talker)?, whole(&prompt.kept));
            loop {
                step = match step {
                    AttemptStep::Ask(ask) => {
                        let messages = [before.clone(), ask.messages.iter().map(plain_message).collect()].concat();
                        let said = talker.answer(messages, &[], ask.max_tokens as usize)?;
                        attempt.replied(SummaryReply {
                            text: said.content,
                            tokens: said.tokens,
                            finished: said.finished,
                        })
                    }
                    AttemptStep::Measure(outcome) => {
                        let after =
                            CompactedPrompt { summary: outcome.summary, pins: prompt.pins.clone(), kept: Vec::new() };
                        attempt.measured(talker.count(&self.head(&after))?)
                    }
                    AttemptStep::Swap(outcome) => {
                        (prompt.summary, prompt.kept) = (outcome.summary, Vec::new());
                        break;
                    }
                    // The messages stay in the prompt.
                    AttemptStep::GiveUp(_) => break,
                };
            }
        }
        Ok(prompt)
    }

    pub fn keeps(&self, talker: &mut Talker) -> Result<Vec<Judged>> {
        let said = self.summarise(talker)?.summary;
        let judged = |line: &String| {
            let right = said.lines().any(|found| found.trim() == line);
            Judged { right, said: said.clone(), expected: json!(line) }
        };
        Ok(self.lines.iter().map(judged).collect())
    }

    pub fn ask_after(
        &self,
        way: fn(&CompactedCase, &mut Talker) -> Result<CompactedPrompt>,
        talker: &mut Talker,
    ) -> Result<Vec<Judged>> {
        let prompt = way(self, talker)?;
        let mut ask = |later: &LaterQuestion| {
            let mut messages = self.head(&prompt);
            messages.push(Message::new(MessageRole::User, &later.ask));
            Ok(later.expect.judge(&talker.answer(messages, &[], REPLY_TOKENS)?))
        };
        self.questions.iter().map(&mut ask).collect()
    }

    fn job(&self, prompt: &CompactedPrompt, talker: &Talker) -> Result<SummaryJob> {
        let nothing_tokens = talker.count(&[])?;
        let passage = |(number, message): (usize, &Message)| {
            let kind = if message.role == MessageRole::User { PassageKind::User } else { PassageKind::Assistant };
            let tokens = talker.count(std::slice::from_ref(message))? - nothing_tokens;
            Ok(Passage { id: number.to_string(), kind, text: message.text(), tokens })
        };
        let passages = prompt.kept.iter().enumerate().map(passage).collect::<Result<_>>()?;
        let view = PromptView { passages, summary: prompt.summary.clone(), ..PromptView::default() };
        let fixed_tokens = talker.count(&self.head(&CompactedPrompt { kept: Vec::new(), ..prompt.clone() }))?;
        let sizes = PromptSizes { fixed_tokens, ..PromptSizes::default() };
        Ok(SummaryJob { view, sizes, limits: LIMITS, pins: prompt.pins.clone() })
    }

    fn head(&self, prompt: &CompactedPrompt) -> Vec<Message> {
        let system = Message::new(MessageRole::System, &self.system);
        let told = compaction::context_message(&prompt.summary, &prompt.pins, &LIMITS);
        let told = told.as_ref().map(plain_message);
        std::iter::once(system).chain(told).chain(prompt.kept.iter().cloned()).collect()
    }
}

/// Plans a summary of everything: the sets end where the service would cut.
fn whole(kept: &[Message]) -> SummaryPlan {
    let through = kept.len().saturating_sub(1).to_string();
    SummaryPlan { through, left_out: Vec::new(), request_tokens: 0, expected_tokens: 0 }
}

fn plain_message(message: &PlainMessage) -> Message {
    let role = match message.speaker {
        Speaker::User => MessageRole::User,
        Speaker::Assistant => MessageRole::Assistant,
        Speaker::Context => MessageRole::Tool,
    };
    Message::new(role, &message.text)
}

fn pins(message: &Message) -> Vec<PinnedText> {
    if message.role != MessageRole::User {
        return Vec::new();
    }
    let text = message.text();
    let passage = Passage { id: String::new(), kind: PassageKind::User, text, tokens: 0 };
    let pin = |text| PinnedText { id: String::new(), text, source: None };
    compaction::detect_pins(&passage).into_iter().map(pin).collect()
}

impl Expect {
    fn judge(&self, said: &ModelAnswer) -> Judged {
        let calls = said.calls.iter().map(|(name, arguments)| format!("{name} {}", json!(arguments)));
        let shown = std::iter::once(said.content.clone()).chain(calls).collect::<Vec<_>>().join(" ");
        Judged { right: self.holds(said), said: shown.trim().to_owned(), expected: json!(self) }
    }

    fn holds(&self, said: &ModelAnswer) -> bool {
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

/// Writes a value as text: the sets have numbers as text, the parser gives the type of the tool's schema.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

const REPLY_TOKENS: usize = 120;
const SUMMARY_TOKENS: usize = 700;
/// Limits of the built-in model's preset for summaries and pins; the other numbers are not used here.
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

    fn said(content: &str, calls: Value) -> ModelAnswer {
        let calls = calls.as_array().unwrap().iter();
        let call =
            |call: &Value| (call["name"].as_str().unwrap().to_owned(), call["arguments"].as_object().unwrap().clone());
        ModelAnswer { content: content.to_owned(), calls: calls.map(call).collect(), tokens: 0, finished: true }
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
        let model =
            terminal::opening::ModelArgs { model: Some("builtin".to_owned()), precision: None, lora: Vec::new() };
        let model = model.open_on_host(&settings).unwrap();
        let mut talker = Talker(terminal::answer::LocalModel::new(model, &settings, 1 << 30));
        let say = |role: &str, text: &str| serde_json::from_value(json!({"role": role, "content": text})).unwrap();
        let told = |text: &str| -> [EvalMessage; 2] { [say("user", text), say("assistant", "Noted.")] };
        let case = CompactedCase {
            system: "You are a voice assistant.".to_owned(),
            stages: vec![
                [told("From now on call me Captain."), told("My door code is 4711.")].into_iter().flatten().collect(),
                [told("My sister is called Ruth."), told("We live in Rome.")].into_iter().flatten().collect(),
            ],
            lines: Vec::new(),
            questions: Vec::new(),
        };
        let prompt = case.compact(&mut talker).unwrap();
        assert_eq!(
            prompt.pins.iter().map(|pin| pin.text.as_str()).collect::<Vec<_>>(),
            ["From now on call me Captain."]
        );
        let shown = case.head(&prompt).iter().map(Message::text).collect::<Vec<_>>().join("\n");
        for told in ["From now on call me Captain.", "4711", "Ruth", "Rome"] {
            assert!(shown.contains(told), "{told} is not in {shown}");
        }
    }
}
