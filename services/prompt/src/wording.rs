//! Words of the service inside a prompt. They come from the settings.

use session::{Message, MessageRole};
use settings::Questions;

/// Words for what chat templates have no role for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wording {
    /// Words around a system message outside the head. It becomes a user's message, because many templates allow no
    /// other, and the words tell it from speech. `None` leaves it as it is.
    pub note: Option<[String; 2]>,
    /// User message before an assistant that speaks first: templates want a question.
    pub opening: String,
    pub left_out: String,
    pub no_question: String,
}

impl Wording {
    pub fn note(&self, text: &str) -> Message {
        match &self.note {
            None => Message::new(MessageRole::System, text),
            Some([before, after]) => Message::new(MessageRole::User, format!("{before}{text}{after}")),
        }
    }

    /// Returns the instructions before a client's: those of the persona, and the rule on questions of the preset.
    pub fn before_instructions(&self, persona: &str, questions: Questions) -> String {
        let rule = if questions == Questions::None { self.no_question.trim() } else { "" };
        [persona.trim(), rule].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
    }
}
