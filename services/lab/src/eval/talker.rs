//! A model that answers one question after the other, always with its likeliest words, without thinking.

use anyhow::Result;
use engine::StopReason;
use serde_json::{Map, Value};
use session::{Message, MessageRole, Prompt, Tool};
use terminal::answer::LocalModel;

pub struct Talker(pub LocalModel);

#[derive(Debug, Default)]
pub struct ModelAnswer {
    pub content: String,
    pub calls: Vec<(String, Map<String, Value>)>, // name and arguments of each call
    pub tokens: u32,
    pub finished: bool, // the model ended it, not a limit
}

impl Talker {
    pub fn answer(&mut self, messages: Vec<Message>, tools: &[Tool], max_tokens: usize) -> Result<ModelAnswer> {
        let prompt = Prompt { messages, tools: tools.to_vec(), ..Prompt::default() };
        let prompt = self.0.encode(&prompt, false)?;
        let options = |request: &mut engine::EngineRequest| {
            request.max_new_tokens = max_tokens;
            request.sampling.temperature = 0.0;
        };
        let answer = self.0.answer(prompt, options, &mut |_| Ok(()))?;
        let parsed = |text: &str| serde_json::from_str(if text.is_empty() { "{}" } else { text }).unwrap_or_default();
        Ok(ModelAnswer {
            content: answer.content,
            calls: answer.calls.into_iter().map(|(name, arguments)| (name, parsed(&arguments))).collect(),
            tokens: answer.tokens.len() as u32,
            finished: matches!(answer.stop_reason, StopReason::End { .. }),
        })
    }

    /// Counts the tokens of these messages and an empty one of the user: without one the template makes no prompt.
    pub fn count(&self, messages: &[Message]) -> Result<u32> {
        let messages = [messages, &[Message::new(MessageRole::User, "")]].concat();
        let prompt = self.0.encode(&Prompt { messages, ..Prompt::default() }, false)?;
        Ok(u32::try_from(prompt.tokens.len()).unwrap_or(u32::MAX))
    }
}
