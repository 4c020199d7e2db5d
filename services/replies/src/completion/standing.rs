//! What the service put into prompts of clients that send their whole conversation: which instructions stand at the head, and
//! which notes before which question. It is laid out again when the client sends its log again, so that only what is new is
//! computed. In memory alone, with a bound; asks no model, no store and no clock.

#[cfg(test)]
mod tests;

use parking_lot::Mutex;
use prompt::changed_head::{HeadChange, changed_bytes, head_changes};
use session::{Message, MessageRole, Part};
use settings::{ChangedHead, PresetPrompt, PromptSettings};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::sync::Arc;

pub type LogHash = [u8; 16];

/// Instructions with their digest, by which they are compared: they are as long as a client likes, and as many as its turns.
#[derive(Clone, Debug)]
pub struct Head {
    text: Arc<str>,
    digest: LogHash,
}

impl Head {
    pub fn new(text: &str) -> Head {
        Head { text: text.into(), digest: first_half(Sha256::new().chain_update(text)) }
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Head {}

impl Deref for Head {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

/// The client whose prompt it is: what one is told stands in no prompt of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromptClient {
    pub user: String,
    /// Of all that tells it from the user's other clients, and of what stands in the prompt beside the instructions.
    pub digest: LogHash,
}

/// What was put before a question, and behind which instructions it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingTurn {
    pub head: Head,
    pub recall: Option<String>,
    /// Since `head`.
    pub changed: Option<String>,
    /// Newer instructions that were read meanwhile: they stand at the head from the next question on.
    pub read: Option<Head>,
}

/// How a log is laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct StandingLog {
    /// The instructions that stand in the prompt.
    pub head: Head,
    /// What makes them the client's.
    pub changes: Vec<HeadChange>,
    /// Notes of earlier questions, by the message of the log that they stand before.
    pub notes: Vec<(usize, StandingTurn)>,
    /// The last message of the log is a question: what was put before it when it was asked last.
    pub question: Option<(LogHash, Option<StandingTurn>)>,
    /// Messages up to the reply to the last question that is known. None: it is a new log.
    pub known: Option<usize>,
    /// With the client's instructions at the head although notes could have stood before the question: what makes those of the
    /// last turn the client's.
    pub could_note: Option<Vec<HeadChange>>,
    /// So much changed that the new instructions should take the place of the old ones.
    pub wants_new_head: bool,
}

pub struct StandingPrompts {
    most_bytes: usize,
    most_bytes_per_user: usize,
    compared_bytes: usize,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    by_name: HashMap<String, UserPrompts>,
    reading: HashSet<PromptClient>,
    /// Counts uses, so that what was not used for longest goes first.
    uses: u64,
}

#[derive(Default)]
struct UserPrompts {
    turns: HashMap<(LogHash, LogHash), KeptPrompt>,
    bytes: usize,
    used: u64,
    /// `Store::memory_changes`, when the notes of the past were last known to hold.
    memory_changes: u64,
}

struct KeptPrompt {
    turn: StandingTurn,
    used: u64,
}

/// Instructions of one client that a new conversation may begin with, the newest ones.
const HEADS: usize = 4;
/// Lines that may change until they are other instructions, however short they are: the time to compare grows with them.
const MOST_LINES: usize = 256;
/// Where all behind the instructions is read anyway, such a part of `new_head_share` is enough for new ones.
const CUT_LOG_PART: f64 = 0.25;
/// What an entry takes besides its texts.
const ENTRY_BYTES: usize = 192;

impl StandingPrompts {
    pub fn new(settings: &PromptSettings) -> StandingPrompts {
        let (most_bytes, most_bytes_per_user) = (settings.kept_bytes, settings.kept_bytes_per_user);
        let compared_bytes = settings.compared_bytes;
        StandingPrompts { most_bytes, most_bytes_per_user, compared_bytes, users: Mutex::default() }
    }

    /// How this log is laid out behind these instructions.
    pub fn look(
        &self,
        client: &PromptClient,
        mode: ChangedHead,
        limits: &PresetPrompt,
        head: &Head,
        log: &[Message],
    ) -> StandingLog {
        let hashes = question_hashes(log);
        let turns = self.known_turns(client, &hashes);
        let question = hashes.last().filter(|(at, _)| at + 1 == log.len());
        let question =
            question.map(|(at, hash)| (*hash, turns.iter().find(|(of, _)| of == at).map(|(_, turn)| turn.clone())));
        let mut earlier: Vec<(usize, StandingTurn)> =
            turns.into_iter().filter(|(at, _)| question.is_none() || at + 1 < log.len()).collect();
        let known = earlier.last().map(|(at, _)| at + 2);
        let is_cut = known.is_none() && log.iter().any(|message| message.role == MessageRole::Assistant);
        let most = if known.is_some() { limits.most_changed_share } else { limits.new_head_share };
        let candidates = newest_head(&earlier).map_or_else(|| self.newest_heads(client), |standing| vec![standing]);
        let near = candidates.into_iter().filter_map(|old| {
            if old == *head {
                return Some((old, Vec::new(), 0.0));
            }
            let longer = old.len().max(head.len());
            if longer > self.compared_bytes {
                return None;
            }
            let longer = longer.max(1) as f64;
            if old.len().abs_diff(head.len()) as f64 / longer > most {
                return None;
            }
            let changes = head_changes(&old, head, MOST_LINES)?;
            let share = changed_bytes(&changes) as f64 / longer;
            (share <= most).then_some((old, changes, share))
        });
        // The newest of those that are equally near.
        let nearest = near.reduce(|best, other| if other.2 < best.2 { other } else { best });
        let own = || head.clone();
        let (head, changes, could_note, share) = match (mode, nearest) {
            (_, Some((old, changes, _))) if changes.is_empty() => (old, changes, None, 0.0),
            (ChangedHead::Notes, Some((old, changes, share))) if question.is_some() || known.is_some() => {
                (old, changes, None, share)
            }
            (ChangedHead::Exact, Some((_, changes, _))) => (own(), Vec::new(), Some(changes), 0.0),
            _ => (own(), Vec::new(), None, 0.0),
        };
        // A note about instructions that do not stand there any more says nothing.
        for (_, turn) in &mut earlier {
            if turn.head != head {
                turn.changed = None;
            }
        }
        let enough = if is_cut { limits.new_head_share * CUT_LOG_PART } else { limits.new_head_share };
        StandingLog { head, changes, notes: earlier, question, known, could_note, wants_new_head: share > enough }
    }

    /// Lets notes of the past go that were put in before the last of these changes: words that they have copied may be gone.
    pub fn follow(&self, user: &str, memory_changes: u64) {
        let mut users = self.users.lock();
        let Some(user) = users.by_name.get_mut(user).filter(|user| user.memory_changes != memory_changes) else {
            return;
        };
        user.memory_changes = memory_changes;
        user.turns.values_mut().for_each(|kept| kept.turn.recall = None);
    }

    /// Keeps what was put before a question. `memory_changes`: before its note of the past was looked for.
    pub fn keep(&self, client: &PromptClient, question: LogHash, mut turn: StandingTurn, memory_changes: u64) {
        let mut users = self.users.lock();
        users.uses += 1;
        let used = users.uses;
        let user = users.by_name.entry(client.user.clone()).or_default();
        user.used = used;
        if user.turns.is_empty() {
            user.memory_changes = memory_changes;
        }
        turn.recall.take_if(|_| user.memory_changes != memory_changes);
        user.turns.insert((client.digest, question), KeptPrompt { turn, used });
        user.shrink(self.most_bytes_per_user.min(self.most_bytes));
        users.shrink(self.most_bytes);
    }

    /// New instructions of a client are to be read. None: others are on their way.
    pub fn begin_new_head(self: &Arc<Self>, client: &PromptClient, question: LogHash, head: Head) -> Option<NewHead> {
        let is_first = self.users.lock().reading.insert(client.clone());
        is_first.then(|| NewHead { prompts: self.clone(), client: client.clone(), question, head })
    }

    /// Something of this user was deleted.
    pub fn forget(&self, user: &str) {
        self.users.lock().by_name.remove(user);
    }

    pub fn forget_all(&self) {
        self.users.lock().by_name.clear();
    }

    /// The turns of a log that are known, by their questions.
    fn known_turns(&self, client: &PromptClient, hashes: &[(usize, LogHash)]) -> Vec<(usize, StandingTurn)> {
        let mut users = self.users.lock();
        users.uses += 1;
        let used = users.uses;
        let Some(user) = users.by_name.get_mut(&client.user) else { return Vec::new() };
        user.used = used;
        let known = hashes.iter().filter_map(|(at, hash)| {
            let kept = user.turns.get_mut(&(client.digest, *hash))?;
            kept.used = used;
            Some((*at, kept.turn.clone()))
        });
        known.collect()
    }

    /// The instructions of the client that stood last, the newest first.
    fn newest_heads(&self, client: &PromptClient) -> Vec<Head> {
        let users = self.users.lock();
        let Some(user) = users.by_name.get(&client.user) else { return Vec::new() };
        let of_client = user.turns.iter().filter(|((digest, _), _)| *digest == client.digest);
        let mut newest: Vec<&KeptPrompt> = of_client.map(|(_, kept)| kept).collect();
        newest.sort_by_key(|kept| std::cmp::Reverse(kept.used));
        let mut heads: Vec<Head> = Vec::new();
        for head in newest.iter().flat_map(|kept| kept.turn.read.iter().chain([&kept.turn.head])) {
            if heads.len() < HEADS && !heads.contains(head) {
                heads.push(head.clone());
            }
        }
        heads
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.users.lock().by_name.values().map(|user| user.bytes).sum()
    }
}

/// Instructions that are being read, until it is dropped.
pub struct NewHead {
    prompts: Arc<StandingPrompts>,
    client: PromptClient,
    question: LogHash,
    head: Head,
}

impl NewHead {
    /// They were read.
    pub fn stands(self) {
        let mut users = self.prompts.users.lock();
        let user = users.by_name.get_mut(&self.client.user);
        if let Some(kept) = user.and_then(|user| user.turns.get_mut(&(self.client.digest, self.question))) {
            kept.turn.read = Some(self.head.clone());
        }
    }
}

impl Drop for NewHead {
    fn drop(&mut self) {
        self.prompts.users.lock().reading.remove(&self.client);
    }
}

/// The instructions of the last turn, or those that were read since to take their place.
fn newest_head(turns: &[(usize, StandingTurn)]) -> Option<Head> {
    let (_, last) = turns.last()?;
    let read = turns.iter().rev().filter(|(_, turn)| turn.head == last.head).find_map(|(_, turn)| turn.read.clone());
    Some(read.unwrap_or_else(|| last.head.clone()))
}

impl Users {
    fn shrink(&mut self, most: usize) {
        while self.by_name.values().map(|user| user.bytes).sum::<usize>() > most {
            let oldest = self.by_name.iter().min_by_key(|(_, user)| user.used).map(|(name, _)| name.clone());
            let Some(oldest) = oldest else { return };
            self.by_name.remove(&oldest);
        }
    }
}

impl UserPrompts {
    /// Turns that were not used for longest go first, and some more, so that not each new one looks through all.
    fn shrink(&mut self, most: usize) {
        self.bytes = self.count_bytes();
        if self.bytes <= most {
            return;
        }
        let mut by_use: Vec<((LogHash, LogHash), u64)> =
            self.turns.iter().map(|(key, kept)| (*key, kept.used)).collect();
        by_use.sort_by_key(|(_, used)| *used);
        for keys in by_use.chunks(by_use.len().div_ceil(8)) {
            keys.iter().for_each(|(key, _)| drop(self.turns.remove(key)));
            self.bytes = self.count_bytes();
            if self.bytes <= most {
                return;
            }
        }
    }

    /// Instructions that several turns share count once.
    fn count_bytes(&self) -> usize {
        let mut heads: HashMap<*const u8, usize> = HashMap::new();
        let mut bytes = 0;
        for KeptPrompt { turn, .. } in self.turns.values() {
            let texts = [&turn.recall, &turn.changed].map(|text| text.as_ref().map_or(0, String::len));
            bytes += ENTRY_BYTES + texts.iter().sum::<usize>();
            heads.extend([&turn.head].into_iter().chain(&turn.read).map(|head| (head.as_ptr(), head.len())));
        }
        bytes + heads.values().sum::<usize>()
    }
}

/// Of each question, all of the log up to it. What a template does not print is let go.
fn question_hashes(log: &[Message]) -> Vec<(usize, LogHash)> {
    let (mut hash, mut questions) = (LogHash::default(), Vec::new());
    for (at, message) in log.iter().enumerate() {
        let mut next = Sha256::new().chain_update(hash);
        let mut field = |kind: u8, text: &str| {
            next.update([kind]);
            next.update((text.len() as u64).to_le_bytes());
            next.update(text);
        };
        field(message.role as u8, message.name.as_deref().unwrap_or_default());
        for part in &message.parts {
            match part {
                Part::Text(text) => field(10, text),
                Part::Image(image) => field(11, &image.0),
            }
        }
        for call in &message.calls {
            field(12, &call.name);
            field(13, &call.arguments);
        }
        hash = first_half(next);
        if message.role == MessageRole::User && log.get(at + 1).is_none_or(|next| next.role != MessageRole::User) {
            questions.push((at, hash));
        }
    }
    questions
}

pub fn first_half(hash: Sha256) -> LogHash {
    let whole = hash.finalize();
    let mut half = LogHash::default();
    half.iter_mut().zip(whole).for_each(|(to, from)| *to = from);
    half
}
