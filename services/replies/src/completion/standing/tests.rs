use super::*;
use prompt::changed_head::apply;
use proptest::prelude::*;
use settings::{Settings, Sources};
use std::sync::LazyLock;

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings::load(&Sources::default()).unwrap().settings);

fn prompts(bytes: usize, bytes_per_user: usize) -> Arc<StandingPrompts> {
    let settings = PromptSettings { kept_bytes: bytes, kept_bytes_per_user: bytes_per_user, ..SETTINGS.prompt.clone() };
    Arc::new(StandingPrompts::new(&settings))
}

fn client(user: &str, digest: u8) -> PromptClient {
    PromptClient { user: user.to_owned(), digest: [digest; 16] }
}

fn message(text: &str) -> Message {
    let role = if text.ends_with('?') { MessageRole::User } else { MessageRole::Assistant };
    Message::new(role, text)
}

fn head(clock: &str) -> String {
    format!("{clock}\n{}", (0..40).map(|line| format!("Rule {line} of the home.\n")).collect::<String>())
}

struct Talk {
    prompts: Arc<StandingPrompts>,
    client: PromptClient,
    limits: PresetPrompt,
    log: Vec<Message>,
}

impl Talk {
    fn new(prompts: &Arc<StandingPrompts>, client: PromptClient) -> Talk {
        let limits = SETTINGS.chosen().unwrap().prompt;
        Talk { prompts: prompts.clone(), client, limits, log: Vec::new() }
    }

    fn look(&self, mode: ChangedHead, head: &str) -> StandingLog {
        self.prompts.look(&self.client, mode, &self.limits, &Head::new(head), &self.log)
    }

    fn turn(&mut self, mode: ChangedHead, head: &str, question: &str) -> StandingLog {
        self.log.push(message(question));
        let standing = self.look(mode, head);
        let changed = (!standing.changes.is_empty()).then(|| format!("note at {question}"));
        let turn = StandingTurn { head: standing.head.clone(), recall: None, changed, read: None };
        self.prompts.keep(&self.client, standing.question.as_ref().unwrap().0, turn, 0);
        self.log.push(message(&format!("To {question} yes.")));
        standing
    }
}

fn noted(standing: &StandingLog) -> Vec<(usize, Option<&str>)> {
    standing.notes.iter().map(|(at, turn)| (*at, turn.changed.as_deref())).collect()
}

#[test]
fn notes_stay_where_they_stood_and_the_first_instructions_at_the_head() {
    let mut talk = Talk::new(&prompts(1 << 20, 1 << 20), client("ann", 1));
    let first = talk.turn(ChangedHead::Notes, &head("8:00"), "one?");
    assert_eq!((&*first.head, first.changes.len(), first.known), (head("8:00").as_str(), 0, None));
    let second = talk.turn(ChangedHead::Notes, &head("8:01"), "two?");
    assert_eq!((&*second.head, second.known), (head("8:00").as_str(), Some(2)));
    assert_eq!(apply(&second.head, &second.changes), head("8:01"));
    assert_eq!(noted(&second), [(0, None)]);
    let third = talk.turn(ChangedHead::Notes, &head("8:02"), "three?");
    assert_eq!(noted(&third), [(0, None), (2, Some("note at two?"))]);
    assert_eq!(apply(&third.head, &third.changes), head("8:02"));
    // A call and its result: the question was told already.
    talk.log.push(message("four?"));
    let question = talk.look(ChangedHead::Notes, &head("8:03")).question.unwrap().0;
    let turn = StandingTurn { head: third.head.clone(), recall: Some("past".into()), changed: None, read: None };
    talk.prompts.keep(&talk.client, question, turn.clone(), 0);
    // The same question again.
    assert_eq!(talk.look(ChangedHead::Notes, &head("8:03")).question, Some((question, Some(turn))));
    talk.log.push(Message::new(MessageRole::Assistant, ""));
    talk.log.push(Message::result("c", "done"));
    let result = talk.look(ChangedHead::Notes, &head("8:04"));
    assert_eq!((result.question, result.known), (None, Some(8)));
    assert_eq!(result.notes.last().unwrap().1.recall.as_deref(), Some("past"));
}

#[test]
fn a_new_conversation_of_the_same_client_begins_with_what_is_warm() {
    let prompts = prompts(1 << 20, 1 << 20);
    Talk::new(&prompts, client("ann", 1)).turn(ChangedHead::Notes, &head("8:00"), "one?");
    let mut next = Talk::new(&prompts, client("ann", 1));
    let standing = next.turn(ChangedHead::Notes, &head("9:00"), "Other words?");
    assert_eq!((&*standing.head, standing.known), (head("8:00").as_str(), None));
    // Nothing of it is another client's, or another user's.
    for other in [client("ann", 2), client("ben", 1)] {
        let standing = Talk::new(&prompts, other).turn(ChangedHead::Notes, &head("9:00"), "one?");
        assert_eq!((&*standing.head, standing.changes.len()), (head("9:00").as_str(), 0));
    }
    // Other instructions.
    let other = Talk::new(&prompts, client("ann", 1)).turn(ChangedHead::Notes, "You write titles.", "one?");
    assert_eq!(&*other.head, "You write titles.");
}

#[test]
fn exact_says_what_a_note_would_have_said() {
    let mut talk = Talk::new(&prompts(1 << 20, 1 << 20), client("ann", 1));
    assert_eq!(talk.turn(ChangedHead::Exact, &head("8:00"), "one?").could_note, None);
    assert_eq!(talk.turn(ChangedHead::Exact, &head("8:00"), "two?").could_note, None);
    let changed = talk.turn(ChangedHead::Exact, &head("8:01"), "three?");
    assert_eq!((&*changed.head, changed.changes.len()), (head("8:01").as_str(), 0));
    assert_eq!(apply(&head("8:00"), &changed.could_note.unwrap()), head("8:01"));
}

#[test]
fn too_much_is_put_exactly_and_much_is_read_in_the_silence() {
    let lines = |changed: usize| {
        let line = |line: usize| format!("Rule {line} {}.", if line < changed { "is new" } else { "stands." });
        (0..100).map(line).collect::<Vec<_>>().join("\n")
    };
    let begin = || {
        let mut talk = Talk::new(&prompts(1 << 20, 1 << 20), client("ann", 1));
        talk.turn(ChangedHead::Notes, &lines(0), "one?");
        talk
    };
    let little = begin().turn(ChangedHead::Notes, &lines(5), "two?");
    assert!(!little.wants_new_head && !little.changes.is_empty());
    let other = begin().turn(ChangedHead::Notes, &lines(60), "two?");
    assert!(!other.wants_new_head && other.changes.is_empty() && *other.head == *lines(60));
    let mut talk = begin();
    let much = talk.turn(ChangedHead::Notes, &lines(20), "two?");
    assert!(much.wants_new_head && *much.head == *lines(0));
    let question = much.question.unwrap().0;
    let read = |talk: &Talk| talk.prompts.begin_new_head(&talk.client, question, Head::new(&lines(20)));
    let reading = read(&talk).unwrap();
    assert!(read(&talk).is_none(), "one at a time");
    drop(reading);
    let reading = read(&talk).unwrap();
    // The next turn comes before it was read, and the one after it behind the new instructions.
    let waits = talk.turn(ChangedHead::Notes, &lines(21), "three?");
    assert!(*waits.head == *lines(0));
    reading.stands();
    let new = talk.turn(ChangedHead::Notes, &lines(21), "four?");
    assert!(*new.head == *lines(20) && !new.wants_new_head);
    assert_eq!(noted(&new), [(0, None), (2, None), (4, None)], "notes about the old ones say nothing any more");
    let after = talk.turn(ChangedHead::Notes, &lines(22), "five?");
    assert_eq!(noted(&after).last(), Some(&(6, Some("note at four?"))));
}

#[test]
fn a_log_that_was_cut_takes_new_instructions_sooner() {
    let mut talk = Talk::new(&prompts(1 << 20, 1 << 20), client("ann", 1));
    let lines =
        |changed: usize| (0..100).map(|line| format!("Rule {line} {}", line < changed)).collect::<Vec<_>>().join("\n");
    for (turn, question) in ["one?", "two?", "three?"].into_iter().enumerate() {
        assert!(!talk.turn(ChangedHead::Notes, &lines(turn), question).wants_new_head);
    }
    talk.log.drain(..2);
    talk.log.push(message("four?"));
    let cut = talk.look(ChangedHead::Notes, &lines(4));
    assert!(cut.wants_new_head && cut.known.is_none() && *cut.head == *lines(0), "{cut:?}");
}

#[test]
fn what_is_deleted_is_gone_and_room_is_bounded() {
    let prompts = prompts(60_000, 30_000);
    let mut ann = Talk::new(&prompts, client("ann", 1));
    ann.turn(ChangedHead::Notes, &head("8:00"), "one?");
    prompts.forget("ann");
    ann.log.truncate(0);
    assert_eq!(&*ann.turn(ChangedHead::Notes, &head("8:01"), "one?").head, head("8:01"));
    for turn in 0..1_000 {
        ann.turn(ChangedHead::Notes, &head(&format!("8:{turn}")), &format!("{turn}?"));
        if turn % 100 == 0 {
            // So that no log is longer than a conversation.
            ann.log.clear();
        }
        assert!(prompts.bytes() <= 30_000, "{}", prompts.bytes());
    }
    // What was used last is there.
    assert!(ann.turn(ChangedHead::Notes, &head("9:00"), "last?").known.is_some());
    for user in 0..100 {
        Talk::new(&prompts, client(&user.to_string(), 1)).turn(ChangedHead::Notes, &head("8:00"), "one?");
        assert!(prompts.bytes() <= 60_000, "{}", prompts.bytes());
    }
    prompts.forget_all();
    assert_eq!(prompts.bytes(), 0);
}

proptest! {
    #[test]
    fn the_instructions_and_the_last_note_are_the_clients(turns in proptest::collection::vec((0..6_usize, 0..4_usize, any::<bool>()), 1..20)) {
        let mut talk = Talk::new(&prompts(1 << 20, 1 << 20), client("ann", 1));
        for (clock, back, is_new) in turns {
            if is_new {
                talk.log.clear();
            }
            let shorter = talk.log.len().saturating_sub(2 * back);
            talk.log.truncate(shorter);
            let told = head(&format!("It is {clock}"));
            let before = talk.log.clone();
            let standing = talk.turn(ChangedHead::Notes, &told, &format!("{back}?"));
            prop_assert_eq!(apply(&standing.head, &standing.changes), told);
            prop_assert!(standing.notes.iter().all(|(at, turn)| before[*at].role == MessageRole::User && turn.head == standing.head || turn.changed.is_none()));
        }
    }
}

#[test]
fn instructions_beyond_the_limit_are_not_compared_and_equal_ones_still_stand() {
    let long = |clock: &str| format!("{clock}\n{}", "The lamp is on.\n".repeat(SETTINGS.prompt.compared_bytes / 16));
    let mut talk = Talk::new(&prompts(1 << 22, 1 << 22), client("ann", 1));
    let first = talk.turn(ChangedHead::Notes, &long("8:00"), "one?");
    let again = talk.turn(ChangedHead::Notes, &long("8:00"), "two?");
    assert!(std::ptr::eq(&*again.head, &*first.head), "the same text is kept once");
    let changed = talk.turn(ChangedHead::Notes, &long("8:01"), "three?");
    assert!(changed.changes.is_empty() && *changed.head == *long("8:01"));
    let mut short = Talk::new(&prompts(1 << 22, 1 << 22), client("ann", 1));
    short.turn(ChangedHead::Notes, &head("8:00"), "one?");
    assert_eq!(short.turn(ChangedHead::Notes, &head("8:01"), "two?").changes.len(), 1);
}
