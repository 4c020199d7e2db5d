//! Heads that the configuration wrote: instructions without a word of a client. Users may share what is computed of them.

use session::machine::recall_tool;
use session::{MessageRole, Prompt, TemplateOptions, Tool};
use settings::Settings;
use std::collections::BTreeSet;

#[derive(Default)]
pub(crate) struct OwnHeads {
    instructions: BTreeSet<String>,
    tool: Tool,
}

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
        OwnHeads { instructions, tool: recall_tool() }
    }

    /// True if the configuration or the service wrote all of the prompt's head.
    pub fn have(&self, prompt: &Prompt) -> bool {
        let head = prompt.messages.first().filter(|first| first.role == MessageRole::System);
        // No client chooses freely whether the model thinks. Other options may be printed by a template.
        let plain = TemplateOptions { enable_thinking: prompt.options.enable_thinking, ..TemplateOptions::default() };
        head.is_some_and(|head| self.instructions.contains(&head.text()))
            && prompt.tools.iter().all(|tool| *tool == self.tool)
            && prompt.options == plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::Message;
    use settings::{Persona, Sources};

    #[test]
    fn only_the_configurations_words_are_shared() {
        let mut settings = Settings::load(&Sources::default()).unwrap().settings;
        settings.conversation.instructions = "Be brief.".into();
        settings.conversation.no_question = "Ask nothing back.".into();
        let instructions = "You are Ann.".to_owned();
        let persona = Persona { name: "ann".into(), preset: None, instructions, ..Persona::default() };
        settings.personas.insert("ann".into(), persona);
        let heads = OwnHeads::of(&settings);
        let prompt = |head: &str| {
            let messages = vec![Message::new(MessageRole::System, head), Message::new(MessageRole::User, "Hi.")];
            Prompt { messages, ..Prompt::default() }
        };
        let with_rule = ["Ask nothing back.\n\nBe brief.", "You are Ann.\n\nAsk nothing back."];
        for own in ["Be brief.", "You are Ann.", "Ask nothing back."].into_iter().chain(with_rule) {
            assert!(heads.have(&prompt(own)), "{own}");
        }
        for clients in ["Be brief", "You are Ann.\n\nMy name is Eve.", "My name is Eve.", ""] {
            assert!(!heads.have(&prompt(clients)), "{clients}");
        }
        let own = Prompt { tools: vec![recall_tool()], ..prompt("Be brief.") };
        assert!(heads.have(&own));
        let tool = Tool { name: "eve".into(), description: None, parameters: None, verbatim: None };
        assert!(!heads.have(&Prompt { tools: vec![recall_tool(), tool], ..prompt("Be brief.") }));
        let mut chosen = own;
        chosen.options.enable_thinking = Some(true);
        assert!(heads.have(&chosen));
        chosen.options.reasoning_effort = Some("as Eve".into());
        assert!(!heads.have(&chosen), "a template may print what a client put there");
        assert!(!heads.have(&Prompt::default()));
    }
}
