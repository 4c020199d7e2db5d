//! What the service puts into the prompt of a client that sends its whole conversation, and what it remembers of that: the
//! instructions that are warm, notes of what changed in them, and words of the past.

use super::standing::{LogHash, NewHead, PromptClient, StandingLog, StandingTurn, first_half};
use super::{CompletionRequest, Completions};
use crate::Caller;
use model::Measured;
use runtime::ModelChoice;
use session::changed_head::{HeadChange, HeadWording, note_of_changes};
use session::{Event, Message, MessageRole, Part, Priority, Prompt, PromptNotes};
use settings::Preset;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use store::LogOwner;
use tokio::task::JoinHandle;

/// What became of a prompt.
#[derive(Default)]
pub struct PutIn {
    pub notes: PromptNotes,
    /// What the next prompt goes on from, where it does not have the notes.
    pub without_notes: Option<Prompt>,
    /// The same conversation behind new instructions, which are to be read in the silence.
    pub new_head: Option<(Prompt, NewHead)>,
    /// Tokens that would have been computed with a note in the place of the changed instructions.
    pub with_note: Option<JoinHandle<Option<u64>>>,
    pub tokens_with_note: Option<u64>,
    /// As the next note will begin, most likely.
    pub next_note: Option<Message>,
}

impl PutIn {
    /// The report of a reply says what was put in.
    pub fn tell(&mut self, event: Arc<Event>) -> Arc<Event> {
        let Event::Reported { response_id, report } = &*event else { return event };
        let mut report = report.clone();
        let notes_would_save_tokens = self.tokens_with_note.map(|tokens| report.computed_tokens.saturating_sub(tokens));
        let notes = PromptNotes { notes_would_save_tokens, ..std::mem::take(&mut self.notes) };
        report.notes = (notes != PromptNotes::default()).then(|| Box::new(notes));
        Arc::new(Event::Reported { response_id: response_id.clone(), report })
    }
}

/// A client and how its log was laid out before.
pub struct KnownLog {
    client: PromptClient,
    log: StandingLog,
    /// The client's instructions.
    own_head: Arc<str>,
    memory_changes: u64,
}

/// About what a template writes around a message, in tokens.
const AROUND_TOKENS: usize = 16;

impl Completions {
    /// What is known of the log, whose messages are settled. None: nothing may be remembered of it.
    pub fn known_log(&self, caller: &Caller, choice: &ModelChoice, request: &CompletionRequest) -> Option<KnownLog> {
        if request.scope.is_private || request.priority != Priority::Talk || self.settings.prompt.kept_bytes == 0 {
            return None;
        }
        let (head, log) = split(&request.prompt.messages);
        let client = client_of(caller, choice, request);
        let limits = &choice.preset.prompt;
        let mode = limits.changed_head.of_client(request.scope.changed_head);
        let own_head = Arc::<str>::from(head.map(Message::text).unwrap_or_default());
        let memory_changes = self.store.memory_changes(&client.user);
        self.standing.follow(&client.user, memory_changes);
        let known = self.standing.look(&client, mode, limits, &own_head, log);
        Some(KnownLog { client, log: known, own_head, memory_changes })
    }

    /// Puts in what stands before the questions of the log, which is the last `many` messages. `owner`: whose past is looked through
    /// for the last question.
    pub async fn put_in(
        &self,
        prompt: &mut Prompt,
        many: usize,
        known: Option<KnownLog>,
        owner: Option<&LogOwner>,
        preset: &Arc<Preset>,
    ) -> PutIn {
        let Some(KnownLog { client, log, own_head, memory_changes }) = known else {
            let recall = match owner {
                Some(owner) => self.recall_note(prompt, &[], owner, preset).await,
                None => None,
            };
            let (at, without_notes) = (prompt.messages.len().saturating_sub(1), Some(prompt.clone()));
            prompt.messages.splice(at..at, recall.as_deref().map(|note| self.wording.note(note)));
            return PutIn {
                notes: PromptNotes { recall, ..PromptNotes::default() },
                without_notes,
                ..PutIn::default()
            };
        };
        let recall = match (&log.question, owner) {
            (Some((_, Some(turn))), _) => turn.recall.clone(),
            (Some(_), Some(owner)) => self.recall_note(prompt, &log.notes, owner, preset).await,
            _ => None,
        };
        let mut notes = log.notes.clone();
        let changed = log.question.as_ref().and_then(|_| self.note_of_head(&log.head, &log.changes, &notes));
        let now = StandingTurn { head: log.head.clone(), recall: recall.clone(), changed, read: None };
        let question = log.question.as_ref().map(|(hash, _)| *hash);
        notes.extend(question.map(|_| (many.saturating_sub(1), now.clone())));
        let client_prompt = prompt.clone();
        let placed = self.lay_out(prompt, many, &log.head, &notes);
        let is_own = *prompt == client_prompt;
        if !is_own && !self.fits(prompt, preset).await {
            tracing::debug!("a prompt is left as its client sent it: there is no room for notes");
            *prompt = client_prompt;
            return PutIn::default();
        }
        let report = PromptNotes {
            recall,
            changed_head: now.changed.clone(),
            changed_lines: count_lines(log.could_note.as_ref().unwrap_or(&log.changes)),
            notes_would_save_tokens: None,
        };
        let mut put_in = PutIn { notes: report, ..PutIn::default() };
        let last_note = notes.iter().rev().find_map(|(_, turn)| turn.changed.as_ref());
        let last_note = last_note.filter(|note| !log.wants_new_head && **note != self.settings.prompt.changed_back);
        put_in.next_note = last_note.map(|note| self.wording.note(note));
        if let Some(question) = question {
            self.standing.keep(&client, question, now, memory_changes);
            if log.wants_new_head {
                put_in.new_head = self.new_head(client_prompt, many, notes, &client, question, own_head);
            }
        }
        if let Some(changes) = &log.could_note {
            let first = log.known.and_then(|known| placed.get(known).copied());
            let first = first.unwrap_or_else(|| split(&prompt.messages).0.map_or(0, |_| 1));
            put_in.with_note = self.count_with_note(prompt.clone(), first, changes, &log, preset);
        }
        put_in
    }

    /// The words of its past for the last question, where there are any.
    async fn recall_note(
        &self,
        prompt: &Prompt,
        notes: &[(usize, StandingTurn)],
        owner: &LogOwner,
        preset: &Preset,
    ) -> Option<String> {
        let (question, before) = prompt.messages.split_last().filter(|(last, _)| last.role == MessageRole::User)?;
        let noted = notes.iter().filter_map(|(_, turn)| turn.recall.clone());
        let shown = before.iter().map(Message::text).chain(noted).collect::<Vec<_>>().join("\n");
        self.runtime.note_of_past(&owner.user, &owner.person, preset, &question.text(), &shown).await
    }

    /// What is said before the question of instructions that changed. Where the last note says the same, nothing is.
    fn note_of_head(&self, old: &str, changes: &[HeadChange], notes: &[(usize, StandingTurn)]) -> Option<String> {
        let wording = self.head_wording();
        let last = notes.iter().rev().find_map(|(_, turn)| turn.changed.as_ref());
        match (note_of_changes(old, changes, &wording, last.map_or("", String::as_str)), last) {
            (None, None) => None,
            (None, Some(_)) => Some(wording.back),
            (now, _) => now,
        }
        .filter(|now| last != Some(now))
    }

    fn head_wording(&self) -> HeadWording {
        let prompt = &self.settings.prompt;
        HeadWording {
            changed: prompt.changed.clone(),
            at: prompt.changed_at.clone(),
            from: prompt.changed_from.clone(),
            to: prompt.changed_to.clone(),
            back: prompt.changed_back.clone(),
        }
    }

    /// Gives back where each message of the log stands.
    fn lay_out(&self, prompt: &mut Prompt, many: usize, head: &str, notes: &[(usize, StandingTurn)]) -> Vec<usize> {
        if let Some(first) = prompt.messages.first_mut().filter(|first| first.role == MessageRole::System)
            && first.text() != head
        {
            first.parts = vec![Part::Text(head.to_owned())];
        }
        let log = prompt.messages.split_off(prompt.messages.len().saturating_sub(many));
        let mut notes = notes.iter().peekable();
        let mut placed = Vec::with_capacity(log.len());
        for (at, message) in log.into_iter().enumerate() {
            while let Some((_, turn)) = notes.next_if(|(of, _)| *of == at) {
                // What changed stands nearest to the question.
                let told = turn.recall.iter().chain(&turn.changed);
                prompt.messages.extend(told.map(|note| self.wording.note(note)));
            }
            placed.push(prompt.messages.len());
            prompt.messages.push(message);
        }
        placed
    }

    /// Whether there is room for it and a reply.
    async fn fits(&self, prompt: &Prompt, preset: &Preset) -> bool {
        let room = preset.ctx_size.saturating_sub(preset.reply_reserve_tokens) as usize;
        let text = |text: &Option<session::JsonText>| text.as_ref().map_or(0, |text| text.0.len());
        let tools = prompt.tools.iter().map(|tool| {
            let description = tool.description.as_ref().map_or(0, String::len);
            64 + tool.name.len() + description + text(&tool.parameters) + text(&tool.verbatim)
        });
        let calls = |message: &Message| -> usize {
            message.calls.iter().map(|call| 64 + call.name.len() + 2 * call.arguments.len()).sum()
        };
        let messages = prompt.messages.iter().map(|message| AROUND_TOKENS + message.text().len() + calls(message));
        // A token is a byte at least.
        if messages.sum::<usize>() + tools.sum::<usize>() <= room {
            return true;
        }
        match self.model.measure(prompt, preset).await {
            Ok(measured) => measured.total.tokens <= room as u64,
            Err(failure) => {
                tracing::warn!(%failure, "a prompt is left as its client sent it");
                false
            }
        }
    }

    /// The conversation behind the client's instructions as they are now.
    fn new_head(
        &self,
        mut prompt: Prompt,
        many: usize,
        mut notes: Vec<(usize, StandingTurn)>,
        client: &PromptClient,
        question: LogHash,
        head: Arc<str>,
    ) -> Option<(Prompt, NewHead)> {
        notes.iter_mut().for_each(|(_, turn)| turn.changed = None);
        let new_head = self.standing.begin_new_head(client, question, head.clone())?;
        self.lay_out(&mut prompt, many, &head, &notes);
        Some((prompt, new_head))
    }

    /// Counts what a prompt with a note would have had to compute: what stands from the message `first` on, and the note.
    fn count_with_note(
        &self,
        mut prompt: Prompt,
        first: usize,
        changes: &[HeadChange],
        log: &StandingLog,
        preset: &Arc<Preset>,
    ) -> Option<JoinHandle<Option<u64>>> {
        // The lines that went are no lines of this head, so the note has no place where they stood.
        let note = note_of_changes("", changes, &self.head_wording(), "")?;
        log.question.as_ref()?;
        let at = prompt.messages.len().saturating_sub(1);
        prompt.messages.insert(at, self.wording.note(&note));
        let (model, preset) = (self.model.clone(), preset.clone());
        Some(tokio::spawn(async move {
            let Measured { messages, .. } = model.measure(&prompt, &preset).await.ok()?;
            Some(messages.get(first..)?.iter().sum())
        }))
    }
}

/// The instructions and what follows them.
fn split(messages: &[Message]) -> (Option<&Message>, &[Message]) {
    match messages.split_first() {
        Some((first, log)) if first.role == MessageRole::System => (Some(first), log),
        _ => (None, messages),
    }
}

/// Messages of the log.
pub fn log_length(prompt: &Prompt) -> usize {
    split(&prompt.messages).1.len()
}

fn count_lines(changes: &[HeadChange]) -> u64 {
    changes.iter().map(|change| (change.removed.len() + change.added.len()) as u64).sum()
}

/// Two programs of one user are two clients, and so are two persons at one program.
fn client_of(caller: &Caller, choice: &ModelChoice, request: &CompletionRequest) -> PromptClient {
    let (scope, prompt) = (&request.scope, &request.prompt);
    let told = (
        (&scope.key, &scope.secret, &caller.path, &caller.address, &scope.agent),
        (&scope.person, &scope.room),
        (&choice.name, &choice.preset.name, &prompt.tools, &prompt.options),
    );
    let digest = first_half(Sha256::new().chain_update(format!("{told:?}")));
    PromptClient { user: caller.identity.user.clone(), digest }
}
