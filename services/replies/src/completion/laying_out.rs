//! Notes of the service in the prompt of a client that sends its whole conversation: changes since the instructions that
//! are warm, and words of the past. The next prompt has them in the same places.

use super::standing::{Head, LogHash, NewHead, PromptClient, StandingLog, StandingTurn, first_half};
use super::{CompletionRequest, Completions};
use access::Caller;
use model::Measured;
use prompt::changed_head::{HeadChange, HeadWording, note_of_changes};
use prompt::{ClientLog, LaidOut, LogNotes};
use runtime::{ModelChoice, heavy};
use session::{Event, Message, MessageRole, Priority, Prompt, PromptNotes};
use settings::Preset;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use store::LogOwner;
use tokio::task::JoinHandle;

#[derive(Default)]
pub struct InsertedNotes {
    pub notes: PromptNotes,
    /// Prompt that the next one continues, if that one lacks the notes.
    pub without_notes: Option<Prompt>,
    pub new_head: Option<(Prompt, NewHead)>,
    /// Tokens that would have been computed with a note in the place of the changed instructions.
    pub with_note: Option<JoinHandle<Option<u64>>>,
    pub tokens_with_note: Option<u64>,
    pub next_note: Option<Message>,
}

impl InsertedNotes {
    pub fn tell(&mut self, event: Arc<Event>) -> Arc<Event> {
        let Event::Reported { response_id, report } = &*event else { return event };
        let mut report = report.clone();
        let notes_would_save_tokens = self.tokens_with_note.map(|tokens| report.computed_tokens.saturating_sub(tokens));
        let notes = PromptNotes { notes_would_save_tokens, ..std::mem::take(&mut self.notes) };
        report.notes = (notes != PromptNotes::default()).then(|| Box::new(notes));
        Arc::new(Event::Reported { response_id: response_id.clone(), report })
    }
}

pub struct KnownLog {
    client: PromptClient,
    log: StandingLog,
    own_head: Head,
    memory_changes: u64,
}

const BYTES_OF_A_TOKEN: usize = 4;
/// Tokens that a template writes around a message, about.
const AROUND_TOKENS: usize = 16;

impl Completions {
    pub fn known_log(
        &self,
        caller: &Caller,
        choice: &ModelChoice,
        request: &CompletionRequest,
        log: &ClientLog,
    ) -> Option<KnownLog> {
        if request.scope.is_private || request.priority != Priority::Talk || self.settings.prompt.kept_bytes == 0 {
            return None;
        }
        let client = client_of(caller, choice, request, log);
        let limits = &choice.preset.prompt;
        let mode = limits.changed_head.of_client(request.scope.changed_head);
        let own_head = Head::new(&log.head_text());
        let memory_changes = self.store.memory_changes(&client.user);
        self.standing.follow(&client.user, memory_changes);
        let known = self.standing.look(&client, mode, limits, &own_head, &log.log);
        Some(KnownLog { client, log: known, own_head, memory_changes })
    }

    pub async fn insert_notes(
        &self,
        mut log: ClientLog,
        known: Option<KnownLog>,
        owner: Option<&LogOwner>,
        preset: &Arc<Preset>,
    ) -> (Prompt, InsertedNotes) {
        let own = log.lay_out(&self.wording).prompt;
        let last = log.log.len().saturating_sub(1);
        let Some(KnownLog { client, log: standing, own_head, memory_changes }) = known else {
            let recall = match owner {
                Some(owner) => self.recall_note(&own, &[], owner, preset).await,
                None => None,
            };
            log.notes = vec![LogNotes { before: last, recall: recall.clone(), changed_head: None }];
            let notes = PromptNotes { recall, ..PromptNotes::default() };
            let inserted = InsertedNotes { notes, without_notes: Some(own), ..InsertedNotes::default() };
            return (log.lay_out(&self.wording).prompt, inserted);
        };
        let recall = match (&standing.question, owner) {
            (Some((_, Some(turn))), _) => turn.recall.clone(),
            (Some(_), Some(owner)) => self.recall_note(&own, &standing.notes, owner, preset).await,
            _ => None,
        };
        let mut turns = standing.notes.clone();
        let note = || self.note_of_head(&standing.head, &standing.changes, &turns);
        let changed = match &standing.question {
            Some(_) => heavy::run(standing.head.len(), note).await,
            None => None,
        };
        let now = StandingTurn { head: standing.head.clone(), recall: recall.clone(), changed, read: None };
        let question = standing.question.as_ref().map(|(hash, _)| *hash);
        turns.extend(question.map(|_| (last, now.clone())));
        log.notes = turns.iter().map(log_notes).collect();
        let head_as_sent = log.head.clone();
        log.set_head(&standing.head);
        let LaidOut { prompt, marks, message_of_item } = log.lay_out(&self.wording);
        if prompt != own && !self.fits(&prompt, preset).await {
            tracing::debug!("a prompt is left as its client sent it: there is no room for notes");
            return (own, InsertedNotes::default());
        }
        let report = PromptNotes {
            recall,
            changed_head: now.changed.clone(),
            changed_lines: count_lines(standing.could_note.as_ref().unwrap_or(&standing.changes)),
            notes_would_save_tokens: None,
        };
        let mut inserted = InsertedNotes { notes: report, ..InsertedNotes::default() };
        let last_note = turns.iter().rev().find_map(|(_, turn)| turn.changed.as_ref());
        let last_note =
            last_note.filter(|note| !standing.wants_new_head && **note != self.settings.prompt.changed_back);
        inserted.next_note = last_note.map(|note| self.wording.note(note));
        if let Some(question) = question {
            self.standing.keep(&client, question, now, memory_changes);
            if standing.wants_new_head {
                inserted.new_head =
                    self.new_head(ClientLog { head: head_as_sent, ..log.clone() }, &client, question, own_head);
            }
        }
        if let Some(changes) = &standing.could_note {
            let first = standing.known.and_then(|known| message_of_item.get(known).copied().flatten());
            let first = first.unwrap_or(marks.head);
            inserted.with_note = self.count_with_note(log, first, changes, &standing, preset);
        }
        (prompt, inserted)
    }

    async fn recall_note(
        &self,
        prompt: &Prompt,
        notes: &[(usize, StandingTurn)],
        owner: &LogOwner,
        preset: &Preset,
    ) -> Option<String> {
        let (question, before) = prompt.messages.split_last().filter(|(last, _)| last.role == MessageRole::User)?;
        // The newest words, as many as any window has room for.
        let mut left = (preset.ctx_size as usize).saturating_mul(BYTES_OF_A_TOKEN);
        let newest = before.iter().rev().map_while(|message| {
            let text = (left > 0).then(|| message.text())?;
            left = left.saturating_sub(text.len());
            Some(text)
        });
        let noted = notes.iter().filter_map(|(_, turn)| turn.recall.clone());
        let shown = newest.chain(noted).collect::<Vec<_>>().join("\n");
        self.runtime.note_of_past(&owner.user, &owner.person, preset, &question.text(), &shown).await
    }

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

    fn new_head(
        &self,
        mut log: ClientLog,
        client: &PromptClient,
        question: LogHash,
        head: Head,
    ) -> Option<(Prompt, NewHead)> {
        log.notes.iter_mut().for_each(|notes| notes.changed_head = None);
        let new_head = self.standing.begin_new_head(client, question, head)?;
        Some((log.lay_out(&self.wording).prompt, new_head))
    }

    /// Counts the tokens that a prompt with a note would have had to compute: those of the messages from `first` on,
    /// and of the note.
    fn count_with_note(
        &self,
        mut log: ClientLog,
        first: usize,
        changes: &[HeadChange],
        standing: &StandingLog,
        preset: &Arc<Preset>,
    ) -> Option<JoinHandle<Option<u64>>> {
        // The lines that went are no lines of this head, so the note has no place where they stood.
        let note = note_of_changes("", changes, &self.head_wording(), "")?;
        standing.question.as_ref()?;
        let before = log.log.len().saturating_sub(1);
        log.notes.push(LogNotes { before, recall: None, changed_head: Some(note) });
        let prompt = log.lay_out(&self.wording).prompt;
        let (model, preset) = (self.model.clone(), preset.clone());
        Some(tokio::spawn(async move {
            let Measured { messages, .. } = model.measure(&prompt, &preset).await.ok()?;
            Some(messages.get(first..)?.iter().sum())
        }))
    }
}

fn log_notes((before, turn): &(usize, StandingTurn)) -> LogNotes {
    LogNotes { before: *before, recall: turn.recall.clone(), changed_head: turn.changed.clone() }
}

fn count_lines(changes: &[HeadChange]) -> u64 {
    changes.iter().map(|change| (change.removed.len() + change.added.len()) as u64).sum()
}

/// Identifies a client: two programs of one user are two clients, and so are two persons at one program.
fn client_of(caller: &Caller, choice: &ModelChoice, request: &CompletionRequest, log: &ClientLog) -> PromptClient {
    let scope = &request.scope;
    let told = (
        (&scope.key, &scope.secret, &caller.path, &caller.address, &scope.agent),
        (&scope.person, &scope.room),
        (&choice.name, &choice.preset.name, &log.tools, &log.options),
    );
    let digest = first_half(Sha256::new().chain_update(format!("{told:?}")));
    PromptClient { user: caller.identity.user.clone(), digest }
}
