//! Several persons in one conversation: the names that a prompt shows, and the past that each of them may read.
//!
//! All speakers hear the words of a conversation. Facts of a person from earlier ones stand in the prompts of that
//! person's turns alone.

use session::machine::is_hidden;
use session::{Item, Message, MessageRole, Part};
use settings::ShownSpeakers;
use std::borrow::Cow;
use std::sync::Arc;

/// Persons that a prompt is for. They decide on the words of the past in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    Asker,
    /// All speakers, because a summary is told to each of them. They read nothing that was looked up.
    Everyone,
    Count,
}

pub fn asker(items: &[Arc<Item>]) -> Option<&str> {
    items.iter().rfind(|item| item.is_said_by_user()).and_then(|item| person_of(item))
}

/// Returns the facts of the session's person `own`, if that person asks. An empty `own` is the home, whose facts all
/// may know.
pub fn facts_for<'a>(told: &'a str, own: &str, asker: Option<&str>) -> &'a str {
    let is_others = asker.is_some_and(|asker| !own.is_empty() && asker != own);
    if is_others { "" } else { told }
}

pub(crate) fn readable_facts<'a>(
    told: &'a str,
    audience: Audience,
    person: Option<&str>,
    items: &[Arc<Item>],
) -> &'a str {
    let own = person.unwrap_or_default();
    match audience {
        Audience::Asker => facts_for(told, own, asker(items)),
        Audience::Everyone => {
            let other = items.iter().filter_map(|item| person_of(item)).find(|person| *person != own);
            facts_for(told, own, other)
        }
        Audience::Count => told,
    }
}

pub(crate) fn readable<'a>(items: &'a [Arc<Item>], audience: Audience, person: Option<&str>) -> Cow<'a, [Arc<Item>]> {
    let has_persons = || items.iter().any(|item| person_of(item).is_some());
    match audience {
        Audience::Asker if has_persons() => kept(items, |at| is_looked_up_for(items, at, asker(items))),
        // A summary outlives the conversations that a note has copied words of.
        Audience::Everyone if person.is_some() || has_persons() => kept(items, |_| false),
        _ => Cow::Borrowed(items),
    }
}

fn kept(items: &[Arc<Item>], may_stay: impl Fn(usize) -> bool) -> Cow<'_, [Arc<Item>]> {
    let stays = |(at, item): &(usize, &Arc<Item>)| !is_hidden(item) || may_stay(*at);
    Cow::Owned(items.iter().enumerate().filter(stays).map(|(_, item)| item.clone()).collect())
}

/// True if the item was looked up for a question of this person. A note stands before its question, and a search behind
/// it.
fn is_looked_up_for(items: &[Arc<Item>], at: usize, person: Option<&str>) -> bool {
    let is_question = |item: &&Arc<Item>| item.is_said_by_user();
    let question = match items[at].is_note_of_past() {
        true => items[at..].iter().find(is_question),
        false => items[..at].iter().rfind(is_question),
    };
    question.is_some_and(|question| person_of(question) == person)
}

fn person_of(item: &Item) -> Option<&str> {
    item.speaker().and_then(|speaker| speaker.person.as_deref())
}

/// Shows speakers in a client's messages as the preset wants it. A name that the client wrote for the template stays.
/// `is_named_here` tells that the service wrote the name of the last message.
pub fn show_speakers(messages: &mut [Message], how: ShownSpeakers, is_named_here: bool) {
    match how {
        ShownSpeakers::Name => {}
        ShownSpeakers::Off => {
            if let Some(last) = messages.last_mut().filter(|_| is_named_here) {
                last.name = None;
            }
        }
        ShownSpeakers::Prefix => {
            for message in messages.iter_mut().filter(|message| message.role == MessageRole::User) {
                let first = message.parts.first_mut().and_then(|part| match part {
                    Part::Text(text) => Some(text),
                    Part::Image(_) => None,
                });
                show_name(&mut message.name, first, how);
            }
        }
    }
}

pub(crate) fn show_name(name: &mut Option<String>, words: Option<&mut String>, how: ShownSpeakers) {
    match how {
        ShownSpeakers::Name => {}
        ShownSpeakers::Off => *name = None,
        ShownSpeakers::Prefix => {
            if let (Some(name), Some(words)) = (name.take(), words) {
                let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
                *words = format!("{name}: {words}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::items::{ItemText, push_item};
    use crate::wording::Wording;
    use session::{ItemBody, ItemStatus, NamedSpeaker, Role};
    use settings::ToolOrder;

    fn said(id: &str, role: Role, text: &str, person: Option<&str>) -> Arc<Item> {
        let speaker =
            person.map(|person| NamedSpeaker { name: person.to_uppercase(), person: Some(person.to_owned()) });
        let body = ItemBody::Message { role, parts: vec![text.to_owned()], speaker };
        Arc::new(Item::new(id, body, ItemStatus::Completed))
    }

    fn conversation() -> Vec<Arc<Item>> {
        vec![
            said("recall_note_1", Role::System, "Anna's sister lives in Lisbon.", None),
            said("a", Role::User, "Where is she?", Some("anna")),
            said("b", Role::Assistant, "In Lisbon.", Some("anna")),
            said("recall_note_2", Role::System, "Ben's sister lives in Oslo.", None),
            said("c", Role::User, "And mine?", Some("ben")),
        ]
    }

    fn ids(items: &[Arc<Item>]) -> Vec<&str> {
        items.iter().map(|item| item.id.as_str()).collect()
    }

    #[test]
    fn a_turn_knows_what_was_looked_up_for_its_own_speaker() {
        let items = conversation();
        assert_eq!(asker(&items), Some("ben"));
        let asked = |items: &[Arc<Item>]| ids(&readable(items, Audience::Asker, None)).join(" ");
        assert_eq!(asked(&items), "a b recall_note_2 c");
        assert_eq!(asked(&items[..4]), "recall_note_1 a b");
        let unnamed = [&items[..], &[said("d", Role::User, "And theirs?", None)]].concat();
        assert_eq!(asked(&unnamed), "a b c d");
        let all = |items: &[Arc<Item>], person| ids(&readable(items, Audience::Everyone, person)).join(" ");
        assert_eq!(all(&items, None), "a b c", "a summary is told to all");
        // Without the name of a speaker, all is one person's.
        let one = vec![said("recall_note_1", Role::System, "x", None), said("a", Role::User, "y", None)];
        assert_eq!(asked(&one), "recall_note_1 a");
        assert_eq!((all(&one, None), all(&one, Some(""))), ("recall_note_1 a".into(), "a".into()));
        assert_eq!(readable(&items, Audience::Count, Some("")).len(), items.len());
    }

    #[test]
    fn a_speaker_is_shown_as_the_preset_wants_it() {
        let wording = Wording {
            note: None,
            opening: String::new(),
            left_out: String::new(),
            no_question: String::new(),
            tool_order: ToolOrder::Name,
        };
        for (how, words, name) in [
            (ShownSpeakers::Prefix, "ANNA: Where is she?", None),
            (ShownSpeakers::Off, "Where is she?", None),
            (ShownSpeakers::Name, "Where is she?", Some("ANNA")),
        ] {
            let (mut of_items, text) = (Vec::new(), ItemText::Shown { speakers: how, wording: &wording });
            conversation()[1..3].iter().for_each(|item| assert!(push_item(&mut of_items, item, text)));
            assert_eq!((of_items[0].text().as_str(), of_items[0].name.as_deref()), (words, name));
            assert_eq!((of_items[1].text().as_str(), of_items[1].name.as_deref()), ("In Lisbon.", None));
            // The same name in a client's log.
            let mut log = Vec::new();
            push_item(&mut log, &conversation()[1], ItemText::Verbatim);
            show_speakers(&mut log, how, true);
            assert_eq!(log, of_items[..1]);
        }
        let mut lines = vec![Message { name: Some("Ann\n\nSystem".into()), ..Message::new(MessageRole::User, "Hi") }];
        show_speakers(&mut lines, ShownSpeakers::Prefix, false);
        assert_eq!(lines[0].text(), "Ann System: Hi", "a name is one line");
        let mut log = vec![Message { name: Some("Ann".into()), ..Message::new(MessageRole::User, "Hi") }];
        show_speakers(&mut log, ShownSpeakers::Off, false);
        assert_eq!(log[0].name.as_deref(), Some("Ann"), "a name that the client wrote stays");
    }

    #[test]
    fn what_is_remembered_of_a_person_is_told_to_that_person() {
        let told_to_own = "My sister lives in Lisbon.";
        for (own, asker, told) in [
            ("anna", None, true),
            ("anna", Some("anna"), true),
            ("anna", Some("ben"), false),
            ("anna", Some(""), false),
            ("", Some("ben"), true),
        ] {
            assert_eq!(!facts_for(told_to_own, own, asker).is_empty(), told, "{own} {asker:?}");
        }
        let to_all = |items: &[Arc<Item>]| readable_facts(told_to_own, Audience::Everyone, Some("anna"), items);
        assert_eq!((to_all(&conversation()), to_all(&conversation()[..3])), ("", told_to_own));
    }
}
