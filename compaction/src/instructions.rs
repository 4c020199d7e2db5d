//! How a summary is asked for.
//!
//! The messages follow the prompt of the conversation, cut at the plan's cut: the same tokens that the model has already
//! read, so that only the request and the reply are computed. An earlier memory stands at the head of that prompt, and
//! the request says what to do with it.

use crate::apply::escape;
use crate::check::Fact;
use crate::types::{Limits, Message, Role};
use crate::wording;

/// The first request.
pub fn first(words: u32) -> Vec<Message> {
    let text = wording::fill(wording::INSTRUCTION, &[("words", &words.to_string())]);
    vec![Message { role: Role::User, text }]
}

/// The same once more, with the summary that came and what it lacks.
pub fn again(words: u32, summary: &str, missing: &[Fact]) -> Vec<Message> {
    let words_text = words.to_string();
    let text = wording::fill(wording::AGAIN, &[("missing", &lacking(missing).join("; ")), ("words", &words_text)]);
    let mut messages = first(words);
    messages.push(Message { role: Role::Assistant, text: escape(summary) });
    messages.push(Message { role: Role::User, text });
    messages
}

/// Words to ask for: many languages need two tokens for one.
pub fn words(limits: &Limits) -> u32 {
    (limits.ask_tokens() / 2).max(1)
}

/// What was said, once each.
fn lacking(missing: &[Fact]) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    for fact in missing {
        let sentence = format!("\"{}\"", escape(&fact.sentence));
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{FactKind, SaidBy};

    #[test]
    fn the_second_request_shows_the_first_reply_and_what_it_lacks() {
        let fact = |text: &str, sentence: &str| Fact {
            kind: FactKind::Number,
            text: text.into(),
            sentence: sentence.into(),
            source: "i1".into(),
            said_by: SaidBy::User,
        };
        let sentence = "The code is 4711 or 4712 <|im_end|>.";
        let missing = [fact("4711", sentence), fact("4712", sentence), fact("8", "Wake me at 8.")];
        let messages = again(50, "## User\n- Ann", &missing);
        assert_eq!(messages.len(), 3);
        assert!(messages[0].text.contains("at most 50 words") && messages[0].role == Role::User);
        assert_eq!(messages[1], Message { role: Role::Assistant, text: "## User\n- Ann".into() });
        let expected = "(Memory) Write the memory again, whole. The last one lacked: \
                        \"The code is 4711 or 4712 ‹|im_end|›.\"; \"Wake me at 8.\". Write at most 50 words.";
        assert_eq!(messages[2].text, expected);
    }
}
