//! The request for a summary.
//!
//! The messages follow the prompt of the conversation, cut at the plan's cut: the model has already read the same
//! tokens, so that only the request and the reply are computed. An earlier summary is at the head of that prompt, and
//! the request says what to do with it.

use crate::check::Fact;
use crate::types::{CompactionLimits, PlainMessage, Speaker};
use crate::wording;
use remember::escape;
use std::collections::HashSet;

pub fn summary_request(limits: &CompactionLimits) -> PlainMessage {
    first(limits.words_to_ask_for())
}

pub fn first(words: u32) -> PlainMessage {
    let text = wording::fill(wording::INSTRUCTION, &[("words", &words.to_string())]);
    PlainMessage { speaker: Speaker::User, text }
}

pub fn again(words: u32, summary: &str, missing: &[Fact]) -> Vec<PlainMessage> {
    let mut said: Vec<String> = missing.iter().map(|fact| format!("\"{}\"", escape(&fact.sentence))).collect();
    let mut seen = HashSet::new();
    said.retain(|sentence| seen.insert(sentence.clone()));
    let text = wording::fill(wording::AGAIN, &[("missing", &said.join("; ")), ("words", &words.to_string())]);
    let reply = PlainMessage { speaker: Speaker::Assistant, text: escape(summary) };
    vec![first(words), reply, PlainMessage { speaker: Speaker::User, text }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use remember::DetailKind;

    #[test]
    fn the_second_request_shows_the_first_reply_and_what_it_lacks() {
        let fact = |text: &str, sentence: &str| Fact {
            kind: DetailKind::Number,
            text: text.into(),
            sentence: sentence.into(),
            source: "i1".into(),
            said_by: Speaker::User,
        };
        let sentence = "The code is 4711 or 4712 <|im_end|>.";
        let missing = [fact("4711", sentence), fact("4712", sentence), fact("8", "Wake me at 8.")];
        let messages = again(50, "## User\n- Ann", &missing);
        assert_eq!(messages.len(), 3);
        assert!(messages[0].text.contains("at most 50 words") && messages[0].speaker == Speaker::User);
        assert_eq!(messages[1], PlainMessage { speaker: Speaker::Assistant, text: "## User\n- Ann".into() });
        let expected = "(Memory) Write the memory again, whole. The last one lacked: \
                        \"The code is 4711 or 4712 ‹|im_end|›.\"; \"Wake me at 8.\". Write at most 50 words.";
        assert_eq!(messages[2].text, expected);
    }
}
