//! Prefixes that survive a change, for conversations of any kind.
//!
//! Each change states the longest prefix that stays byte for byte: the messages before a mark of the old prompt.
//! A template prints messages one behind the other, so equal messages are equal bytes.

use prompt::{Audience, ClientLog, LaidOut, Layout, LogNotes, Wording, lay_out};
use proptest::prelude::*;
use session::{Context, Item, ItemBody, ItemStatus, Message, MessageRole, NamedSpeaker, Prompt, Role, SessionConfig};
use settings::{ShownSpeakers, ToolOrder};
use std::sync::Arc;

#[derive(Clone, Debug)]
struct Talk {
    items: Vec<Arc<Item>>,
    instructions: String,
    facts: String,
    person: &'static str,
    context: Context,
    partial: Option<String>,
    speakers: ShownSpeakers,
}

impl Talk {
    fn laid_out(&self) -> LaidOut {
        let wording = wording();
        let config = SessionConfig::new(self.instructions.clone());
        let layout = Layout {
            remembered: &self.facts,
            person: Some(self.person),
            partial: self.partial.as_deref(),
            speakers: self.speakers,
            ..Layout::new(&config, &self.context, &wording)
        };
        assert_eq!(layout.audience, Audience::Asker);
        lay_out(&self.items, &layout)
    }

    fn shared_with(&self, other: &Talk) -> usize {
        let (one, other) = (self.laid_out().prompt, other.laid_out().prompt);
        assert_eq!(one.tools, other.tools, "a template prints tools before all messages");
        one.messages.iter().zip(&other.messages).take_while(|(one, other)| one == other).count()
    }

    fn with(&self, change: impl FnOnce(&mut Talk)) -> Talk {
        let mut changed = self.clone();
        change(&mut changed);
        changed
    }

    fn first_looked_up(&self) -> Option<usize> {
        let laid_out = self.laid_out();
        let at = laid_out.prompt.messages.iter().position(|message| message.text().contains(PAST));
        at.filter(|_| self.items.iter().any(|item| item.speaker().is_some()))
    }
}

const PAST: &str = "(of the past)";

fn wording() -> Wording {
    Wording {
        note: Some(["[note] ".into(), "".into()]),
        opening: "(You speak first.)".into(),
        left_out: "(left out)".into(),
        no_question: "".into(),
        tool_order: ToolOrder::Name,
    }
}

fn message(id: &str, role: Role, text: &str, person: Option<&str>) -> Arc<Item> {
    let speaker = person.map(|person| NamedSpeaker { name: person.to_uppercase(), person: Some(person.to_owned()) });
    let body = ItemBody::Message { role, parts: vec![text.to_owned()], speaker };
    Arc::new(Item::new(id, body, ItemStatus::Completed))
}

/// Item, or a question behind the words of the past that the service found for it.
fn said() -> impl Strategy<Value = Vec<Arc<Item>>> {
    let words = "[a-z]{1,6}( [a-z]{1,6})?";
    let call = words.prop_map(|arguments| ItemBody::FunctionCall { call_id: "c".into(), name: "f".into(), arguments });
    let result = words.prop_map(|output| ItemBody::FunctionCallOutput { call_id: "c".into(), output });
    let tool = prop_oneof![call, result].prop_map(|body| Arc::new(Item::new("x", body, ItemStatus::Completed)));
    let noted = words.prop_map(|text| {
        let note = message("recall_note_1", Role::System, PAST, None);
        vec![note, message("x", Role::User, &text, Some("anna"))]
    });
    let item = prop_oneof![
        4 => (words, prop_oneof![Just(None), Just(Some("anna"))])
            .prop_map(|(text, person)| message("x", Role::User, &text, person)),
        3 => words.prop_map(|text| message("x", Role::Assistant, &text, None)),
        1 => words.prop_map(|text| message("x", Role::System, &text, None)),
        2 => tool,
    ];
    prop_oneof![8 => item.prop_map(|item| vec![item]), 1 => noted]
}

prop_compose! {
    fn talk()(
        items in proptest::collection::vec(said(), 0..10),
        first in "[a-z]{1,6}",
        facts in prop_oneof![Just(""), Just("- They like tea.")],
        person in prop_oneof![Just(""), Just("anna")],
        summary in proptest::option::of("[a-z]{1,9}"),
        notes in proptest::collection::vec("[A-Z]{0,4}", 0..3),
        partial in proptest::option::of("[a-z]{1,9}"),
        speakers in prop_oneof![Just(ShownSpeakers::Off), Just(ShownSpeakers::Prefix), Just(ShownSpeakers::Name)],
    ) -> Talk {
        // What a client adds before the first words are instructions.
        let items = [vec![message("x", Role::User, &first, Some("anna"))], items.concat()].concat();
        let preface = summary.map(|text| Message::new(MessageRole::Tool, text)).into_iter().collect();
        let context = Context { preface, notes, recall: true, ..Context::default() };
        Talk { items, instructions: "Be brief.".into(), facts: facts.into(), person, context, partial, speakers }
    }
}

fn last_person(talk: &Talk) -> Option<String> {
    let question = talk.items.iter().rfind(|item| item.role() == Some(Role::User));
    question.and_then(|item| item.speaker()).and_then(|speaker| speaker.person.clone())
}

proptest! {
    #[test]
    fn changed_instructions_leave_nothing(talk in talk()) {
        let changed = talk.with(|talk| talk.instructions.push_str(" Be kind."));
        prop_assert_eq!(talk.shared_with(&changed), 0);
    }

    #[test]
    fn a_learned_fact_leaves_the_instructions(talk in talk()) {
        let learned = talk.with(|talk| talk.facts.push_str("\n- They moved to Porto."));
        prop_assert_eq!(talk.shared_with(&learned), talk.laid_out().marks.head);
    }

    /// A summary leaves instructions and facts. It covers all items before the last question.
    #[test]
    fn a_summary_leaves_instructions_and_facts(talk in talk()) {
        let covered = talk.with(|talk| {
            talk.context.preface = vec![Message::new(MessageRole::Tool, "A NEW SUMMARY")];
            let question = talk.items.iter().rposition(|item| item.is_said_by_user()).unwrap();
            talk.items.drain(..question);
        });
        prop_assert_eq!(talk.shared_with(&covered), talk.laid_out().marks.remembered);
    }

    /// An appended item leaves all before the question; without notes, and with nothing half said, it leaves all.
    #[test]
    fn an_appended_item_leaves_the_history(talk in talk(), said in said()) {
        let appended = talk.with(|talk| talk.items.extend(said.iter().cloned()));
        prop_assume!(last_person(&talk) == last_person(&appended));
        let (shared, marks) = (talk.shared_with(&appended), talk.laid_out().marks);
        // A call joins the assistant's words right before it.
        let joins_words = matches!(said[0].body, ItemBody::FunctionCall { .. });
        // A system message at the end is the user's where the assistant answers it.
        let ends_in_system = talk.items.last().is_some_and(|item| item.role() == Some(Role::System));
        let answers = ends_in_system && !said.iter().any(|item| item.is_said_by_user());
        prop_assert!(shared + usize::from(joins_words || answers) >= marks.history, "{shared} of {marks:?}");
        // With notes a question takes their place.
        let has_notes = talk.context.notes.iter().any(|note| !note.is_empty());
        if has_notes && said.last().is_some_and(|item| item.is_said_by_user()) {
            prop_assert_eq!(shared, marks.history);
        }
        if !has_notes && talk.partial.is_none() && !ends_in_system && !joins_words {
            prop_assert_eq!(shared, talk.laid_out().prompt.messages.len());
        }
    }

    #[test]
    fn another_speaker_leaves_what_both_may_read(mut talk in talk()) {
        talk.context.notes.clear();
        talk.partial = None;
        talk.items.push(message("x", Role::User, "Well?", Some("anna")));
        talk.items.push(message("x", Role::Assistant, "Yes.", None));
        let other = talk.with(|talk| talk.items.push(message("x", Role::User, "AND ME?", Some("ben"))));
        let LaidOut { prompt, marks, .. } = talk.laid_out();
        let stays = match (marks.remembered > marks.head && talk.person == "anna", talk.first_looked_up()) {
            (true, _) => marks.head,
            (false, Some(looked_up)) => looked_up,
            (false, None) => prompt.messages.len(),
        };
        prop_assert_eq!(talk.shared_with(&other), stays);
    }

    #[test]
    fn a_partial_that_grows_leaves_its_own_words(mut talk in talk(), more in "[a-z]{1,6}") {
        let said = talk.partial.get_or_insert_with(|| "light".into()).clone();
        let grown = talk.with(|talk| talk.partial = Some(format!("{said} {more}")));
        let (before, after) = (talk.laid_out().prompt.messages, grown.laid_out().prompt.messages);
        prop_assert_eq!(talk.shared_with(&grown), before.len() - 1);
        prop_assert!(after.last().unwrap().text().starts_with(&before.last().unwrap().text()));
    }

    #[test]
    fn the_next_turn_of_a_log_leaves_the_history(said in proptest::collection::vec("[a-z]{1,6}", 1..6), noted in any::<bool>()) {
        let turn = |text: &String| [Message::new(MessageRole::User, text), Message::new(MessageRole::Assistant, "Yes.")];
        let system = Message::new(MessageRole::System, "Be brief.");
        let mut messages: Vec<Message> = [system].into_iter().chain(said.iter().flat_map(turn)).collect();
        messages.pop();
        let laid_out = |messages: &[Message]| {
            let mut log = ClientLog::new(Prompt { messages: messages.into(), ..Prompt::default() }, "", &wording());
            let note = LogNotes { before: log.log.len() - 1, recall: Some("They like tea.".into()), changed_head: None };
            log.notes.extend(noted.then_some(note));
            log.lay_out(&wording())
        };
        let before = laid_out(&messages);
        messages.extend([Message::new(MessageRole::Assistant, "Yes."), Message::new(MessageRole::User, "Well?")]);
        let after = laid_out(&messages);
        let (before_messages, after_messages) = (&before.prompt.messages, &after.prompt.messages);
        let shared = before_messages.iter().zip(after_messages).take_while(|(one, other)| one == other).count();
        prop_assert_eq!(shared, if noted { before.marks.history } else { before_messages.len() });
    }
}
