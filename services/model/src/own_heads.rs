//! Heads that the configuration wrote: instructions without a word of a client. Users may share what is computed of them.

use serde_json::Value;
use session::machine::recall_tool;
use settings::{Settings, ToolOrder};
use std::collections::BTreeSet;
use text::chat::ChatPrompt;

#[derive(Default)]
pub(crate) struct OwnHeads {
    instructions: BTreeSet<String>,
    /// Tool that the service offers by itself, as templates get it.
    tool: Value,
}

/// Template options whose values no client chooses freely.
const PLAIN_OPTIONS: [&str; 2] = ["enable_thinking", "add_generation_prompt"];

impl OwnHeads {
    pub fn of(settings: &Settings) -> OwnHeads {
        let conversation = &settings.conversation;
        let rule = conversation.no_question.trim();
        let personas = settings.personas.values().map(|persona| persona.instructions.as_str());
        let mut instructions = BTreeSet::from([rule.to_owned()]);
        for written in personas.chain([conversation.instructions.as_str()]).map(str::trim) {
            // A preset may add its rule on questions: behind a persona, before the instructions of a session.
            instructions.insert(written.to_owned());
            instructions.insert(format!("{written}\n\n{rule}"));
            instructions.insert(format!("{rule}\n\n{written}"));
        }
        instructions.remove("");
        let tools = crate::template_input::tools(&[recall_tool()], ToolOrder::Client);
        OwnHeads { instructions, tool: Value::Array(tools) }
    }

    /// True if the configuration or the service wrote all of the prompt's head.
    pub fn have(&self, chat: &ChatPrompt) -> bool {
        let head = chat.messages.first().filter(|first| first["role"] == "system");
        let is_written = |head: &Value| head["content"].as_str().is_some_and(|text| self.instructions.contains(text));
        let is_plain = |(name, value): (&String, &Value)| PLAIN_OPTIONS.contains(&name.as_str()) && value.is_boolean();
        head.is_some_and(is_written)
            && chat.tools.iter().all(|tool| self.tool[0] == *tool)
            && chat.options.iter().all(is_plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat_prompt;
    use session::{Message, MessageRole, Prompt, Tool};
    use settings::{Persona, Sources};

    #[test]
    fn only_the_configurations_words_are_shared() {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        settings.conversation.instructions = "Be brief.".into();
        settings.conversation.no_question = "Ask nothing back.".into();
        let instructions = "You are Ann.".to_owned();
        let persona = Persona { name: "ann".into(), preset: None, instructions, wyoming_port: 0 };
        settings.personas.insert("ann".into(), persona);
        let heads = OwnHeads::of(&settings);
        let prompt = |head: &str| {
            let messages = vec![Message::new(MessageRole::System, head), Message::new(MessageRole::User, "Hi.")];
            Prompt { messages, ..Prompt::default() }
        };
        let have = |prompt: &Prompt| heads.have(&chat_prompt(prompt, ToolOrder::Client));
        let with_rule = ["Ask nothing back.\n\nBe brief.", "You are Ann.\n\nAsk nothing back."];
        for own in ["Be brief.", "You are Ann.", "Ask nothing back."].into_iter().chain(with_rule) {
            assert!(have(&prompt(own)), "{own}");
        }
        for clients in ["Be brief", "You are Ann.\n\nMy name is Eve.", "My name is Eve.", ""] {
            assert!(!have(&prompt(clients)), "{clients}");
        }
        let own = Prompt { tools: vec![recall_tool()], ..prompt("Be brief.") };
        assert!(have(&own));
        let tool = Tool { name: "eve".into(), description: None, parameters: None, verbatim: None };
        assert!(!have(&Prompt { tools: vec![recall_tool(), tool], ..prompt("Be brief.") }));
        let mut chat = chat_prompt(&own, ToolOrder::Client);
        chat.options.insert("enable_thinking".into(), true.into());
        assert!(heads.have(&chat));
        chat.options.insert("reasoning_effort".into(), "as Eve".into());
        assert!(!heads.have(&chat), "a template may print what a client put there");
        assert!(!heads.have(&chat_prompt(&Prompt::default(), ToolOrder::Client)));
    }
}
