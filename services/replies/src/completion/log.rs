//! Recognition of the log that a client sends with each request, by hashes of what was said. The hashes do not change
//! when a client writes the same in another way. Pure.
//!
//! The hashes leave out instructions and notes, because the time may stand in them; ids and arguments of calls, which
//! clients number and write anew; and words beside a call, which some clients drop.

use session::{Message, MessageRole, Part};
use sha2::{Digest, Sha256};

/// Number of last messages by which the service recognises a log whose client cut its front.
const LAST_FEW: usize = 4;
const HASH_DIGITS: usize = 32;

/// Log up to the end of an utterance of the assistant, or of a question that the assistant answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    pub role: MessageRole,
    pub messages: usize,
    pub hash: String,
    /// Hash of the last few messages up to the end. `None`: there are no others.
    pub last_few: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Utterance {
    pub role: MessageRole,
    pub messages: usize,
    pub said: String,
}

/// Splits a log into utterances, in their order. Several messages of the assistant in a row are one.
pub fn utterances(log: &[Message]) -> Vec<Utterance> {
    let mut all: Vec<(Utterance, bool)> = Vec::new();
    for (at, message) in log.iter().enumerate() {
        let (role, messages) = (message.role, at + 1);
        let calls: Vec<&str> = message.calls.iter().map(|call| call.name.as_str()).collect();
        let said = plain(message);
        if role == MessageRole::System || (role == MessageRole::Assistant && said.is_empty() && calls.is_empty()) {
            continue;
        }
        match all.last_mut() {
            Some((last, has_calls)) if role == MessageRole::Assistant && last.role == role => {
                if *has_calls || !calls.is_empty() {
                    if !*has_calls {
                        last.said.clear();
                    }
                    calls.iter().for_each(|call| last.said.extend(["\u{1}", call]));
                    *has_calls = true;
                } else {
                    last.said.extend([" ", &said]);
                }
                last.messages = messages;
            }
            _ => {
                let has_calls = !calls.is_empty();
                let said = if has_calls { format!("\u{1}{}", calls.join("\u{1}")) } else { said };
                all.push((Utterance { role, messages, said }, has_calls));
            }
        }
    }
    all.into_iter().map(|(utterance, _)| utterance).collect()
}

pub fn ends(log: &[Message]) -> Vec<LogEnd> {
    let utterances = utterances(log);
    let mut hash = String::new();
    let mut ends = Vec::new();
    for (at, utterance) in utterances.iter().enumerate() {
        hash = hashed(&hash, std::slice::from_ref(utterance));
        let is_reply = |utterance: &Utterance| utterance.role == MessageRole::Assistant;
        if is_reply(utterance) || utterances.get(at + 1).is_some_and(is_reply) {
            let first = (at + 1).checked_sub(LAST_FEW).filter(|first| *first > 0 && is_reply(utterance));
            let last_few = first.map(|first| hashed("last few", &utterances[first..=at]));
            ends.push(LogEnd { role: utterance.role, messages: utterance.messages, hash: hash.clone(), last_few });
        }
    }
    ends
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecognisedBy {
    pub hash: String,
    pub of_last_few: bool,
    /// True if the hash leaves the reply out: a client may come back with other words of the reply.
    pub of_question: bool,
}

pub fn marks(log_with_reply: &[Message], question: usize) -> Vec<RecognisedBy> {
    let ends = ends(log_with_reply);
    let before = ends.iter().rev().find(|end| end.messages <= question && end.role != MessageRole::Assistant);
    let before = before.map(|end| RecognisedBy { hash: end.hash.clone(), of_last_few: false, of_question: true });
    let Some(LogEnd { hash, last_few, .. }) = ends.last().cloned() else { return Vec::new() };
    let of_last_few = last_few.map(|hash| RecognisedBy { hash, of_last_few: true, of_question: false });
    [RecognisedBy { hash, of_last_few: false, of_question: false }]
        .into_iter()
        .chain(of_last_few)
        .chain(before)
        .collect()
}

/// Returns the hashes to look for, each with its number of messages: the longest part of a log first, then its last few
/// messages.
pub fn wanted(log: &[Message]) -> Vec<(String, usize)> {
    let ends = ends(log);
    let newest = ends.iter().rev().take(MOST_ENDS);
    // A log that was cut does not know how it began, so its last few may be all there is.
    let few = utterances(log);
    let replies = ends.iter().rev().filter(|end| end.role == MessageRole::Assistant);
    let cut = replies.take(MOST_CUT_ENDS).filter_map(|end| {
        let at = few.iter().position(|utterance| utterance.messages == end.messages)?;
        let first = (at + 1).checked_sub(LAST_FEW)?;
        Some((hashed("last few", &few[first..=at]), end.messages))
    });
    let whole: Vec<(String, usize)> = newest.map(|end| (end.hash.clone(), end.messages)).collect();
    whole.into_iter().chain(cut).collect()
}

/// Limits of the ends that are looked for. Between two of our replies a client may have a few utterances of its own,
/// and never this many.
const MOST_ENDS: usize = 64;
const MOST_CUT_ENDS: usize = 4;

fn hashed(before: &str, utterances: &[Utterance]) -> String {
    let mut hash = Sha256::new().chain_update(before);
    for utterance in utterances {
        let role = match utterance.role {
            MessageRole::System => b's',
            MessageRole::User => b'u',
            MessageRole::Assistant => b'a',
            MessageRole::Tool => b't',
        };
        hash = hash.chain_update([0, role]).chain_update(&utterance.said);
    }
    let digits: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..HASH_DIGITS].to_owned()
}

/// Joins the words with one space between. A hash stands for each image.
fn plain(message: &Message) -> String {
    let mut words: Vec<String> = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => words.extend(text.split_whitespace().map(str::to_owned)),
            Part::Image(image) => words.push(format!("\u{2}{}", hashed(&image.0, &[]))),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use session::ToolCall;

    fn user(text: &str) -> Message {
        Message::new(MessageRole::User, text)
    }

    fn assistant(text: &str) -> Message {
        Message::new(MessageRole::Assistant, text)
    }

    fn call(text: &str, name: &str, arguments: &str) -> Message {
        let call = ToolCall { id: Some("c1".into()), name: name.into(), arguments: arguments.into() };
        Message { calls: vec![call], ..assistant(text) }
    }

    #[test]
    fn the_same_in_another_way_is_the_same() {
        let last = |log: &[Message]| ends(log).pop().unwrap().hash;
        let log = vec![
            Message::new(MessageRole::System, "It is 08:00."),
            user("Light  on.\n"),
            call("Let me see.", "turn_on", r#"{"name":"lamp","area":null}"#),
            Message::result("c1", "done"),
            assistant("It is on."),
        ];
        let again = vec![
            Message::new(MessageRole::System, "It is 08:01."),
            user("Light on."),
            call("", "turn_on", r#"{"name":"lamp"}"#),
            Message::result("call_7", "done"),
            assistant("It is"),
            Message::new(MessageRole::System, "Be brief."),
            assistant(" on. "),
        ];
        assert_eq!(last(&log), last(&again));
        let split = [log[..2].to_vec(), vec![assistant("Let me see."), call("", "turn_on", "{}")], log[3..].to_vec()];
        assert_eq!(last(&log), last(&split.concat()));
        for (at, other) in [
            (1, user("Light off.")),
            (2, call("", "turn_off", "{}")),
            (3, Message::result("c1", "failed")),
            (4, assistant("It is off.")),
            (1, Message::result("c1", "Light on.")),
        ] {
            let mut changed = log.clone();
            changed[at] = other;
            assert_ne!(last(&log), last(&changed), "{at}");
        }
    }

    #[test]
    fn a_reply_is_found_again_in_the_next_log_and_in_one_that_was_cut() {
        let mut log = vec![user("one"), assistant("1"), user("two"), assistant("2"), user("three")];
        log.push(assistant("3"));
        let marks = marks(&log, 5);
        assert_eq!(marks.len(), 3);
        log.push(user("four"));
        let found =
            |log: &[Message]| wanted(log).into_iter().find(|(hash, _)| marks.iter().any(|mark| mark.hash == *hash));
        assert_eq!(found(&log).unwrap(), (marks[0].hash.clone(), 6));
        assert_eq!(found(&log[2..]).unwrap(), (marks[1].hash.clone(), 4));
        assert_eq!(found(&log[4..]), None, "too little to be sure");
        assert_eq!(wanted(&[user("one")]), []);
        // Other words of the last reply.
        let other = [&log[..5], &[assistant("drei"), user("four")]].concat();
        assert_eq!(found(&other).unwrap(), (marks[2].hash.clone(), 5));
        // What the home answered itself stands behind what was kept.
        let local = [log.clone(), vec![assistant("local"), user("five")]].concat();
        assert_eq!(found(&local).unwrap().1, 6);
    }

    proptest! {
        #[test]
        fn only_the_same_begin_is_found(one in logs(), other in logs()) {
            let (marks, wanted) = (marks(&one, 0), wanted(&other));
            let is_begin = !marks.is_empty() && {
                let (one, other) = (said(&one), said(&other));
                let until = one.iter().rposition(|(role, _)| *role == 'a').map_or(0, |at| at + 1);
                other.len() >= until && one[..until] == other[..until]
            };
            let found = marks.first().is_some_and(|mark| wanted.iter().any(|(hash, _)| *hash == mark.hash));
            prop_assert_eq!(found, is_begin);
        }
    }

    fn said(log: &[Message]) -> Vec<(char, String)> {
        let role = |role| if role == MessageRole::User { 'u' } else { 'a' };
        utterances(log).into_iter().map(|utterance| (role(utterance.role), utterance.said)).collect()
    }

    fn logs() -> impl Strategy<Value = Vec<Message>> {
        let message = (any::<bool>(), "[ab]{1,2}");
        proptest::collection::vec(message, 0..6).prop_map(|log| {
            log.into_iter().map(|(ours, text)| if ours { assistant(&text) } else { user(&text) }).collect()
        })
    }
}
