//! Layout of a prompt whose client sends its whole conversation with each request.
//!
//! The parts stand in the order of a session's prompt: instructions, facts, words of an earlier conversation, the log,
//! and notes as late as possible.

use crate::items::order_results;
use crate::layout::{LaidOut, PLACEHOLDER, StableMarks, note_of_facts};
use crate::wording::Wording;
use session::{Message, MessageRole, Part, Prompt, TemplateOptions, Tool};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientLog {
    pub head: Option<Message>,
    pub remembered: String,
    pub carried: Vec<Message>,
    pub log: Vec<Message>,
    pub notes: Vec<LogNotes>,
    pub tools: Vec<Tool>,
    pub options: TemplateOptions,
}

/// Notes of the service before one message of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogNotes {
    pub before: usize,
    pub recall: Option<String>,
    /// Changes since the instructions at the head. They stand nearest to the question.
    pub changed_head: Option<String>,
}

impl ClientLog {
    /// Splits a client's prompt into its parts and puts `before` in front of its instructions.
    pub fn new(prompt: Prompt, before: &str, wording: &Wording) -> ClientLog {
        let Prompt { messages: mut log, tools, options } = prompt;
        settle(&mut log, wording);
        let mut head = log.first().filter(|first| first.role == MessageRole::System).cloned();
        log.drain(..usize::from(head.is_some()));
        if !before.is_empty() {
            head = Some(match head {
                Some(own) => with_text(own.clone(), format!("{}\n\n{}", before.trim(), own.text().trim())),
                None => Message::new(MessageRole::System, before.trim()),
            });
        }
        ClientLog { head, log, tools, options, ..ClientLog::default() }
    }

    pub fn head_text(&self) -> String {
        self.head.as_ref().map(Message::text).unwrap_or_default()
    }

    pub fn set_head(&mut self, text: &str) {
        if let Some(head) = self.head.take_if(|head| head.text() != text) {
            self.head = Some(with_text(head, text.to_owned()));
        }
    }

    pub fn lay_out(&self, wording: &Wording) -> LaidOut {
        let mut messages: Vec<Message> = self.head.iter().cloned().collect();
        let mut marks = StableMarks { head: messages.len(), ..StableMarks::default() };
        messages.extend(note_of_facts(&self.remembered, wording));
        marks.remembered = messages.len();
        messages.extend(self.carried.iter().cloned());
        (marks.context, marks.history) = (messages.len(), messages.len());
        let mut notes = self.notes.iter().peekable();
        let mut message_of_item = Vec::with_capacity(self.log.len());
        for (at, message) in self.log.iter().enumerate() {
            marks.history = messages.len();
            while let Some(LogNotes { recall, changed_head, .. }) = notes.next_if(|notes| notes.before == at) {
                messages.extend(recall.as_deref().map(|words| wording.note_of_words(words)));
                messages.extend(changed_head.as_deref().map(|lines| wording.note(lines)));
            }
            message_of_item.push(Some(messages.len()));
            messages.push(message.clone());
        }
        let places = order_results(&mut messages);
        message_of_item.iter_mut().flatten().for_each(|index| *index = places[*index]);
        for mark in [&mut marks.context, &mut marks.history] {
            *mark = places.iter().skip(*mark).copied().min().unwrap_or(messages.len());
        }
        let (tools, options) = (wording.ordered(self.tools.clone()), self.options.clone());
        LaidOut { prompt: Prompt { messages, tools, options }, marks, message_of_item }
    }

    /// Drops the oldest turns of the earlier conversation, down to `most_tokens` or less. Where the log grows into the
    /// room, half of what was left leaves at a time, so that most prompts begin as the one before.
    pub fn shorten_carried(&mut self, tokens: &[u64], most_tokens: u64, room_tokens: u64) {
        self.carried.drain(..turns_to_drop(&self.carried, tokens, most_tokens, room_tokens));
    }
}

/// Brings a client's messages into the order that templates take: one system message at the head, then a user's.
pub fn settle(messages: &mut Vec<Message>, wording: &Wording) {
    let head = messages.iter().take_while(|message| message.role == MessageRole::System).count();
    if head > 1 {
        let texts: Vec<String> = messages.drain(..head).map(|message| message.text().trim().to_owned()).collect();
        let joined = texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
        messages.insert(0, Message::new(MessageRole::System, joined));
    }
    let head = head.min(1);
    let is_note = |message: &&mut Message| message.role == MessageRole::System && wording.note.is_some();
    for message in messages[head..].iter_mut().filter(is_note) {
        *message = wording.note(message.text().trim());
    }
    if messages.get(head).is_none_or(|message| message.role != MessageRole::User) {
        messages.insert(head, Message::new(MessageRole::User, &wording.opening));
    }
}

pub fn next_prompt(mut prompt: Prompt, reply: &str) -> Prompt {
    prompt.messages.push(Message::new(MessageRole::Assistant, reply));
    prompt.messages.push(Message::new(MessageRole::User, PLACEHOLDER));
    prompt
}

fn with_text(message: Message, text: String) -> Message {
    Message { parts: vec![Part::Text(text)], ..message }
}

fn turns_to_drop(carried: &[Message], tokens: &[u64], most: u64, room: u64) -> usize {
    let mut budget = most;
    while budget > room {
        budget /= 2;
    }
    let is_user = |at: usize| carried[at].role == MessageRole::User;
    let is_turn = |at: usize| is_user(at) && at.checked_sub(1).is_none_or(|before| !is_user(before));
    let fits = |at: &usize| tokens.get(*at..).is_some_and(|rest| rest.iter().sum::<u64>() <= budget);
    (0..carried.len()).filter(|at| is_turn(*at)).find(fits).unwrap_or(carried.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use MessageRole::{Assistant, System, Tool, User};
    use session::ToolCall;
    use settings::ToolOrder;

    fn wording() -> Wording {
        Wording {
            note: Some(["[note] ".into(), "".into()]),
            opening: "(You speak first.)".into(),
            left_out: "".into(),
            no_question: "".into(),
            tool_order: ToolOrder::Name,
        }
    }

    fn said(messages: &[(MessageRole, &str)]) -> Vec<Message> {
        messages.iter().map(|(role, text)| Message::new(*role, *text)).collect()
    }

    fn lines(messages: &[Message]) -> Vec<String> {
        messages.iter().map(|message| format!("{:?}: {}", message.role, message.text()).to_lowercase()).collect()
    }

    fn settled(messages: &[(MessageRole, &str)]) -> Vec<String> {
        let mut messages = said(messages);
        settle(&mut messages, &wording());
        lines(&messages)
    }

    #[test]
    fn system_messages_of_a_client_find_a_place() {
        let expected = ["system: be brief.\n\nbe kind.", "user: hi", "user: [note] it is 10:05.", "user: well?"];
        let head = [(System, "Be brief."), (System, "Be kind. ")];
        let rest = [(User, "Hi"), (System, "It is 10:05."), (User, "Well?")];
        assert_eq!(settled(&[&head[..], &rest[..]].concat()), expected);
        assert_eq!(settled(&[(System, "Greet.")]), ["system: greet.", "user: (you speak first.)"]);
        let expected = ["user: (you speak first.)", "assistant: hello.", "user: hi"];
        assert_eq!(settled(&[(Assistant, "Hello."), (User, "Hi")]), expected);
        assert_eq!(settled(&[(System, "Be brief."), (User, "Hi")]), ["system: be brief.", "user: hi"]);
    }

    #[test]
    fn the_parts_of_a_prompt_stand_in_their_order() {
        let messages = said(&[(System, "Be brief."), (User, "Hi"), (Assistant, "Hello."), (User, "Well?")]);
        let prompt = Prompt { messages, ..Prompt::default() };
        let mut log = ClientLog::new(prompt, " A butler. ", &wording());
        assert_eq!(log.head_text(), "A butler.\n\nBe brief.");
        log.remembered = "Ann likes tea.\n".into();
        log.carried = said(&[(User, "Before"), (Assistant, "Then.")]);
        let changed_head = Some("It is 10:05.".into());
        log.notes = vec![LogNotes { before: 2, recall: Some("She said so.".into()), changed_head }];
        log.set_head("Be long.");
        let laid_out = log.lay_out(&wording());
        let expected = [
            "system: be long.",
            "user: [note] ann likes tea.",
            "user: before",
            "assistant: then.",
            "user: hi",
            "assistant: hello.",
            "user: [note] she said so.",
            "user: [note] it is 10:05.",
            "user: well?",
        ];
        assert_eq!(lines(&laid_out.prompt.messages), expected);
        assert_eq!(laid_out.marks, StableMarks { head: 1, remembered: 2, context: 4, history: 6 });
        assert_eq!(laid_out.message_of_item, [Some(4), Some(5), Some(8)]);
    }

    #[test]
    fn results_of_a_log_stand_in_the_order_of_their_calls() {
        let call = |id: &str| ToolCall { id: Some(id.into()), name: "f".into(), arguments: "{}".into() };
        let calls = Message { calls: vec![call("a"), call("b")], ..Message::new(Assistant, "") };
        let messages =
            vec![Message::new(User, "Both"), calls, Message::result("b", "Two"), Message::result("a", "One")];
        let log = ClientLog::new(Prompt { messages, ..Prompt::default() }, "", &wording());
        let laid_out = log.lay_out(&wording());
        assert_eq!(lines(&laid_out.prompt.messages)[2..], ["tool: one", "tool: two"]);
        assert_eq!((laid_out.marks.history, &laid_out.message_of_item[2..]), (2, &[Some(3), Some(2)][..]));
    }

    #[test]
    fn instructions_of_no_client_are_the_personas() {
        let prompt = || Prompt { messages: said(&[(User, "Hi")]), ..Prompt::default() };
        let mut log = ClientLog::new(prompt(), "", &wording());
        log.set_head("Be brief.");
        assert_eq!((log.head.clone(), log.head_text()), (None, String::new()));
        assert_eq!(ClientLog::new(prompt(), "A butler.\n", &wording()).head_text(), "A butler.");
    }

    #[test]
    fn whole_turns_leave_the_oldest_first_and_in_large_steps() {
        let carried: Vec<Message> =
            [Assistant, User, Assistant, User, Tool, Assistant].map(|role| Message::new(role, "x")).into();
        let tokens = [10; 6];
        for (most, room, left) in [
            (100, 100, 1),
            (50, 100, 1),
            (49, 100, 3),
            (30, 100, 3),
            (29, 100, 6),
            (100, 49, 6),
            (100, 50, 1),
            (0, 0, 6),
        ] {
            assert_eq!(turns_to_drop(&carried, &tokens, most, room), left, "{most} {room}");
        }
    }
}
