//! Several persons in one conversation: what a prompt shows of its speakers, and whose past a turn may know.
//!
//! What is said in a conversation all of its speakers have heard. What is remembered of a person beyond it is told in
//! that person's turns alone.

use session::machine::is_hidden;
use session::{Item, ItemBody, Role};
use settings::ShownSpeakers;
use std::borrow::Cow;
use std::sync::Arc;

/// Whose question these items end with. None: the session's person's.
pub fn asker(items: &[Arc<Item>]) -> Option<&str> {
    items.iter().rfind(|item| item.is_said_by_user()).and_then(|item| person_of(item))
}

fn person_of(item: &Item) -> Option<&str> {
    item.speaker().and_then(|speaker| speaker.person.as_deref())
}

/// Items as a prompt has them. Nothing changes where no client names speakers.
pub fn labelled(items: &[Arc<Item>], how: ShownSpeakers) -> Cow<'_, [Arc<Item>]> {
    if how == ShownSpeakers::Name || items.iter().all(|item| item.speaker().is_none()) {
        return Cow::Borrowed(items);
    }
    let shown = items.iter().map(|item| {
        let mut shown = Item::clone(item);
        match &mut shown.body {
            ItemBody::Message { role, parts, speaker } => {
                let speaker = speaker.take().filter(|_| *role == Role::User && how == ShownSpeakers::Prefix);
                let name = speaker.as_ref().and_then(|speaker| speaker.shown());
                if let (Some(name), Some(first)) = (name, parts.first_mut()) {
                    *first = format!("{name}: {first}");
                }
                Arc::new(shown)
            }
            ItemBody::FunctionCall { .. } | ItemBody::FunctionCallOutput { .. } => item.clone(),
        }
    });
    Cow::Owned(shown.collect())
}

/// Without what was looked up of the past of others: `asker` asks now. None: nothing that was looked up is told.
pub fn without_past_of_others<'a>(items: &'a [Arc<Item>], asker: Option<Option<&str>>) -> Cow<'a, [Arc<Item>]> {
    if items.iter().all(|item| person_of(item).is_none()) {
        return Cow::Borrowed(items);
    }
    let is_question = |item: &&Arc<Item>| item.is_said_by_user();
    let stays = |(at, item): (usize, &Arc<Item>)| {
        if !is_hidden(item) {
            return true;
        }
        // A note stands before its question, and a search behind it.
        let question = match item.is_note_of_past() {
            true => items[at..].iter().find(is_question),
            false => items[..at].iter().rfind(is_question),
        };
        asker.is_some_and(|asker| question.is_some_and(|question| person_of(question) == asker))
    };
    Cow::Owned(items.iter().enumerate().filter(|pair| stays(*pair)).map(|(_, item)| item.clone()).collect())
}

/// Leaves out what the service put into the conversation by itself.
pub fn without_notes<'a>(items: &[Arc<Item>]) -> Cow<'a, [Arc<Item>]> {
    Cow::Owned(items.iter().filter(|item| !is_hidden(item)).cloned().collect())
}

/// Returns what is told of the session's person, where that person asks. `own`: the session's person. Empty: the home, whose
/// facts all may know.
pub fn remembered<'a>(told: &'a str, own: &str, asker: Option<&str>) -> &'a str {
    let is_others = asker.is_some_and(|asker| !own.is_empty() && asker != own);
    if is_others { "" } else { told }
}

/// What is remembered of the session's person, where no other takes part.
pub fn remembered_by_all<'a>(told: &'a str, own: &str, items: &[Arc<Item>]) -> &'a str {
    let other = items.iter().filter_map(|item| person_of(item)).find(|person| *person != own);
    remembered(told, own, other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use session::{ItemStatus, NamedSpeaker};

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
        assert_eq!(ids(&without_past_of_others(&items, Some(Some("ben")))), ["a", "b", "recall_note_2", "c"]);
        assert_eq!(ids(&without_past_of_others(&items, Some(Some("anna")))), ["recall_note_1", "a", "b", "c"]);
        assert_eq!(ids(&without_past_of_others(&items, Some(None))), ["a", "b", "c"]);
        assert_eq!(ids(&without_past_of_others(&items, None)), ["a", "b", "c"], "a summary is told to all");
        // Where no speaker is named, all is one person's.
        let one = vec![said("recall_note_1", Role::System, "x", None), said("a", Role::User, "y", None)];
        assert!(matches!(without_past_of_others(&one, None), Cow::Borrowed(_)));
    }

    #[test]
    fn a_speaker_is_shown_as_the_preset_wants_it() {
        let items = conversation();
        let text = |how, at: usize| labelled(&items, how)[at].text();
        let name = |how, at: usize| labelled(&items, how)[at].speaker().map(|speaker| speaker.name.clone());
        assert_eq!(
            (text(ShownSpeakers::Prefix, 1), name(ShownSpeakers::Prefix, 1)),
            ("ANNA: Where is she?".into(), None)
        );
        assert_eq!(text(ShownSpeakers::Prefix, 2), "In Lisbon.");
        assert_eq!((text(ShownSpeakers::Off, 1), name(ShownSpeakers::Off, 1)), ("Where is she?".into(), None));
        assert_eq!(name(ShownSpeakers::Name, 1), Some("ANNA".into()));
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
            assert_eq!(!remembered(told_to_own, own, asker).is_empty(), told, "{own} {asker:?}");
        }
        assert_eq!(remembered_by_all(told_to_own, "anna", &conversation()), "");
        assert_eq!(remembered_by_all(told_to_own, "anna", &conversation()[..3]), told_to_own);
    }
}
