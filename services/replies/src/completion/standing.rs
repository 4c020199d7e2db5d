//! Layout of prompts of clients that send their whole conversation: the instructions at the head, and the notes before
//! each question. The service lays a log out in the same way when the client sends it again, so that the model computes
//! only what is new. The layout stays in memory, with a bound; it needs no model, no store and no clock.

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

/// Instructions, compared by their digest: a client may send long ones, and others with each turn.
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

/// Client whose prompt it is. No prompt shows what the service told another client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PromptClient {
    pub user: String,
    pub digest: LogHash,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandingTurn {
    pub head: Head,
    pub recall: Option<String>,
    pub changed: Option<String>,
    /// Newer instructions that the model has read meanwhile, which stand at the head from the next question on.
    pub read: Option<Head>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StandingLog {
    pub head: Head,
    pub changes: Vec<HeadChange>,
    /// Notes of earlier questions, by the message of the log that they stand before.
    pub notes: Vec<(usize, StandingTurn)>,
    /// Hash of the log up to its last message if that is a question, and the notes of the question if the client asked
    /// it before.
    pub question: Option<(LogHash, Option<StandingTurn>)>,
    /// Number of messages up to the reply to the last known question. `None`: the log is new.
    pub known: Option<usize>,
    /// Changes since the last turn's instructions, if the client's own stand at the head although a note could tell the
    /// changes.
    pub could_note: Option<Vec<HeadChange>>,
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
    uses: u64,
}

#[derive(Default)]
struct UserPrompts {
    turns: HashMap<(LogHash, LogHash), KeptPrompt>,
    bytes: usize,
    used: u64,
    memory_changes: u64,
}

struct KeptPrompt {
    turn: StandingTurn,
    used: u64,
}

const HEADS: usize = 4;
/// Limit of changed lines, beyond which instructions count as other ones: the time to compare grows with them.
const MOST_LINES: usize = 256;
/// Part of `new_head_share` that is enough for new instructions if the model reads all behind them anyway.
const CUT_LOG_PART: f64 = 0.25;
const ENTRY_BYTES: usize = 192;

impl StandingPrompts {
    pub fn new(settings: &PromptSettings) -> StandingPrompts {
        let (most_bytes, most_bytes_per_user) = (settings.kept_bytes, settings.kept_bytes_per_user);
        let compared_bytes = settings.compared_bytes;
        StandingPrompts { most_bytes, most_bytes_per_user, compared_bytes, users: Mutex::default() }
    }

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

    /// Drops notes of the past from before the last of these changes: words that the notes copied may be deleted.
    pub fn follow(&self, user: &str, memory_changes: u64) {
        let mut users = self.users.lock();
        let Some(user) = users.by_name.get_mut(user).filter(|user| user.memory_changes != memory_changes) else {
            return;
        };
        user.memory_changes = memory_changes;
        user.turns.values_mut().for_each(|kept| kept.turn.recall = None);
    }

    /// Keeps the notes before a question. `memory_changes` is the count from before the search of the past.
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

    pub fn begin_new_head(self: &Arc<Self>, client: &PromptClient, question: LogHash, head: Head) -> Option<NewHead> {
        let is_first = self.users.lock().reading.insert(client.clone());
        is_first.then(|| NewHead { prompts: self.clone(), client: client.clone(), question, head })
    }

    pub fn forget(&self, user: &str) {
        self.users.lock().by_name.remove(user);
    }

    pub fn forget_all(&self) {
        self.users.lock().by_name.clear();
    }

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

/// Instructions that the model reads, until this is dropped.
pub struct NewHead {
    prompts: Arc<StandingPrompts>,
    client: PromptClient,
    question: LogHash,
    head: Head,
}

impl NewHead {
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
    /// Drops the turns that were not used for longest, and some more, so that not each new one looks through all.
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

    /// Counts the bytes of all turns. Instructions that several turns share count once.
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

/// Returns the position of each question, with a hash of the log up to it. The hash leaves out what a template does not
/// print.
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
