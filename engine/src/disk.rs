//! Cached sequences on disk, so that conversations continue from warm prefixes after a restart.
//!
//! One file for each sequence, and one for each full page, which sequences share. A file that is damaged, foreign or of
//! another version is a miss with a note, never an error. The disk's thread writes files from memory that it shares
//! with the cache.

mod file;
#[cfg(any(test, feature = "hostile"))]
pub mod hostile;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::DirEntry;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread::JoinHandle;

use kernels::cpu::Cpu;
use kernels::format::Format;

use crate::cached_sequence::{CachedSequence, has_left};
use crate::memory::{KeptStates, MemoryMeter};
use crate::request::{OwnerId, ReuseScope};
use crate::snapshot::Snapshot;
use crate::state::{KvFormats, KvPages, StateShape};

pub(crate) use file::{LoadedSequence, PageName};

#[derive(Clone, Debug)]
pub struct DiskLimits {
    pub folder: PathBuf,
    pub max_bytes: u64,
    pub min_tokens: usize, // length from which on reading is faster than computing
    pub heads: usize,      // number of newest heads, whose files are deleted last
}

/// Distance before the end of the extra state, for a conversation that goes back some turns after a restart.
const GOING_BACK_TOKENS: usize = 1024; // not a window: tokens

#[derive(Clone, Copy)]
pub(crate) struct ModelIdentity {
    pub fingerprint: [u8; 32],
    pub shape: StateShape,
}

pub(crate) struct StoredSequence {
    pub path: PathBuf,
    pub ours: bool, // true for the running model. Files of other models wait for these to run again
    pub owner: Option<OwnerId>,
    pub user: Option<u64>,
    pub head_tokens: usize,
    pub is_head_shared: bool,
    pub tokens: Vec<u32>,
    pub kv: KvFormats,
    pub snapshots: Format,
    pub positions: Vec<usize>, // positions of snapshots, ascending; the last is the end
    pub names: Vec<PageName>,  // names of the full pages
    pub bytes: u64,            // without the files of full pages
    pub page_file_bytes: u64,
    /// Value of the cache's `uses` at its last use; 0: before the start.
    pub kept_at: u64,
    used: u64,
}

pub(crate) struct DiskCache {
    limits: DiskLimits,
    model: ModelIdentity,
    stored: Vec<StoredSequence>,
    uses: u64,
    jobs: Option<Sender<DiskJob>>,
    done: Receiver<DiskNews>,
    thread: Option<JoinHandle<()>>,
    waiting: VecDeque<Vec<PageName>>,
    held_bytes: u64,          // size of the files, since the last look at them
    forgetting: Vec<OwnerId>, // owners whose files the disk's thread has yet to delete
    pub notes: Vec<String>,
}

enum DiskJob {
    Write(Box<file::WriteJob>),
    Forget(OwnerId),
    Tell(Box<dyn FnOnce() + Send>), // to be called when all earlier work is done
}

enum DiskNews {
    Written(Result<StoredSequence, String>),
    Forgotten(Vec<OwnerId>, std::io::Result<usize>),
}

impl StoredSequence {
    fn has_head(&self) -> bool {
        self.ours && self.head_tokens > 0 && self.positions.contains(&self.head_tokens)
    }

    fn has_head_of(&self, other: &StoredSequence) -> bool {
        let shared = self.head_tokens;
        let is_alike = self.user == other.user && self.kv == other.kv && shared == other.head_tokens;
        is_alike && self.tokens[..shared] == other.tokens[..shared]
    }

    pub fn scope(&self) -> ReuseScope {
        let StoredSequence { user, head_tokens, is_head_shared, .. } = *self;
        ReuseScope { user, head_tokens, is_head_shared }
    }
}

impl DiskCache {
    pub fn open(limits: DiskLimits, model: ModelIdentity) -> Result<DiskCache, String> {
        let (stored, notes) = find(&limits.folder, &model)?;
        let (jobs, work) = channel();
        let (tell, done) = channel();
        let folder = limits.folder.clone();
        let thread = std::thread::Builder::new()
            .name("state-writer".to_string())
            .spawn(move || work_through(&folder, &work, &tell))
            .map_err(|error| format!("cached conversations are not kept on disk: {error}"))?;
        let (jobs, thread) = (Some(jobs), Some(thread));
        let (waiting, forgetting) = (VecDeque::new(), Vec::new());
        let (uses, held_bytes) = (0, 0);
        let mut disk =
            DiskCache { limits, model, stored, uses, jobs, done, thread, waiting, held_bytes, forgetting, notes };
        disk.enforce();
        disk.sweep();
        Ok(disk)
    }

    /// Hands a sequence to the disk's thread, unless it is not worth it or is stored already. `of_head` are the
    /// snapshots of its head; `kept_at` is the cache's `uses` at its last use.
    pub fn save(
        &mut self,
        tokens: &[u32],
        sequence: &CachedSequence,
        kept_at: u64,
        of_head: &[Arc<Snapshot>],
        format: Format,
    ) {
        self.collect();
        let kv = KvFormats::of(&sequence.state.layout);
        let user = sequence.scope.user;
        let is_ours = |stored: &StoredSequence| stored.ours && stored.kv == kv && stored.user == user;
        let held = self.stored.iter().any(|stored| is_ours(stored) && stored.tokens.starts_with(tokens));
        if held || tokens.len() < self.limits.min_tokens || sequence.speculative || sequence.unsaved {
            return;
        }
        // The head's snapshots, from which other conversations go on, or else the first; the last before the reply,
        // which the next prompt may render differently; one some turns before it; the end. All other positions are
        // computed again from these.
        let ours = |snapshot: &&Arc<Snapshot>| snapshot.format == format;
        let kept: Vec<&Arc<Snapshot>> = sequence.snapshots.iter().filter(ours).collect();
        let last_until = |end: usize| kept.iter().rposition(|snapshot| snapshot.position <= end);
        let before = last_until(sequence.given_tokens.min(sequence.state.position - 1));
        let turns_ago = last_until(sequence.state.position.saturating_sub(GOING_BACK_TOKENS));
        let is_chosen = |at: &usize| {
            let is_end = kept[*at].position == sequence.state.position;
            (*at == 0 && of_head.is_empty()) || [before, turns_ago].contains(&Some(*at)) || is_end
        };
        let chosen = (0..kept.len()).filter(is_chosen).map(|at| kept[at]);
        let mut snapshots: Vec<Arc<Snapshot>> = chosen.chain(of_head.iter().filter(ours)).cloned().collect();
        snapshots.sort_by_key(|snapshot| snapshot.position);
        snapshots.dedup_by_key(|snapshot| snapshot.position);
        if snapshots.last().is_none_or(|last| last.position < sequence.state.position) {
            snapshots.push(Arc::new(Snapshot::of(&sequence.state, format, None)));
        }
        let path = self.limits.folder.join(file::name(tokens, kv, sequence.owner, sequence.scope));
        let names = file::page_names(tokens, kv, &self.model);
        let waiting = names.clone();
        let counts = [tokens.len() as u64, snapshots.len() as u64, sequence.scope.head_tokens as u64];
        let head = file::SequenceHead::new(&self.model, kv, format, counts);
        let positions = snapshots.iter().map(|snapshot| snapshot.position).collect();
        let contents = (tokens.to_vec(), positions, names);
        let Some((head, Ok(stored))) = head.map(|head| (head, file::stored(path, &head, true, contents))) else {
            return;
        };
        let stored = StoredSequence { kept_at, ..stored };
        let job = file::WriteJob { sequence: stored, head, snapshots, pages: sequence.state.pages.clone() };
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(DiskJob::Write(Box::new(job))).is_ok());
        self.waiting.extend(sent.then_some(waiting));
    }

    pub fn flush(&mut self) {
        while !self.waiting.is_empty() || !self.forgetting.is_empty() {
            match self.done.recv() {
                Ok(news) => self.take(news),
                Err(_) => (self.waiting, self.forgetting) = Default::default(),
            }
        }
        self.enforce();
    }

    /// Returns true while the disk's thread has work. Finished files take the places of those that they replace.
    pub fn is_writing(&mut self) -> bool {
        self.collect();
        !self.waiting.is_empty()
    }

    pub fn newest(&self) -> Option<usize> {
        let ours = self.stored.iter().enumerate().filter(|(_, stored)| stored.ours);
        ours.max_by_key(|(at, stored)| (stored.used, *at)).map(|(at, _)| at)
    }

    pub fn stored(&self) -> &[StoredSequence] {
        &self.stored
    }

    pub fn lacks_head_of(&self, tokens: &[u32], sequence: &CachedSequence) -> bool {
        let ReuseScope { user, head_tokens, .. } = sequence.scope;
        let Some(head) = tokens.get(..head_tokens).filter(|head| head.len() >= self.limits.min_tokens) else {
            return false;
        };
        let has_it = |stored: &StoredSequence| {
            stored.has_head()
                && stored.user == user
                && stored.head_tokens == head_tokens
                && stored.tokens.starts_with(head)
        };
        !self.stored.iter().any(has_it)
    }

    /// Lists the newest file of each head that has a state at its end, the newest head first. A head with which several
    /// files begin goes before one that may never return.
    pub fn heads(&self) -> Vec<usize> {
        let mut newest: Vec<usize> = Vec::new();
        let mut proven = HashSet::new();
        let mut by_age: Vec<usize> = (0..self.stored.len()).filter(|at| self.stored[*at].has_head()).collect();
        by_age.sort_by_key(|at| std::cmp::Reverse((self.stored[*at].used, *at)));
        for at in by_age {
            match newest.iter().position(|newer| self.stored[*newer].has_head_of(&self.stored[at])) {
                Some(known) => drop(proven.insert(newest[known])),
                None => newest.push(at),
            }
        }
        newest.sort_by_key(|at| !proven.contains(at));
        newest.truncate(self.limits.heads);
        newest
    }

    /// Reads a sequence up to the last of `wanted`, one of its positions, with the states in `wanted`. `shared` are its
    /// first pages that are in memory; `cpu` has the threads that read. A damaged file is deleted.
    pub fn load(
        &mut self,
        at: usize,
        wanted: RangeInclusive<usize>,
        shared: KvPages,
        meter: &MemoryMeter,
        cpu: Option<&Cpu>,
    ) -> Option<LoadedSequence> {
        self.uses += 1;
        self.stored[at].used = self.uses;
        match file::read(&self.stored[at].path, &self.model, wanted, shared, meter, cpu) {
            Ok(loaded) => Some(loaded),
            Err(what) => {
                let stored = self.stored.remove(at);
                self.notes.push(format!("deleted {}, which cannot be read: {what}", stored.path.display()));
                let _ = std::fs::remove_file(&stored.path);
                self.sweep();
                None
            }
        }
    }

    /// Lets the disk's thread delete an owner's files, also those of other models, and the pages that no other sequence
    /// has. Nothing reads them any more.
    pub fn forget(&mut self, owner: OwnerId) {
        self.stored.retain(|stored| stored.owner != Some(owner));
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(DiskJob::Forget(owner)).is_ok());
        self.forgetting.extend(sent.then_some(owner));
    }

    pub fn kept(&self) -> KeptStates {
        KeptStates { states: self.stored.len(), bytes: self.held_bytes }
    }

    /// Calls `done` when all files are gone that are forgotten by now.
    pub fn when_forgotten(&mut self, done: Box<dyn FnOnce() + Send>) {
        let Some(jobs) = &self.jobs else { return done() };
        if let Err(SendError(DiskJob::Tell(done))) = jobs.send(DiskJob::Tell(done)) {
            done();
        }
    }

    fn collect(&mut self) {
        while let Ok(news) = self.done.try_recv() {
            self.take(news);
        }
        self.enforce();
    }

    fn take(&mut self, news: DiskNews) {
        let written = match news {
            DiskNews::Written(written) => written,
            DiskNews::Forgotten(owners, done) => {
                for owner in owners {
                    let first = self.forgetting.iter().position(|forgetting| *forgetting == owner);
                    first.map(|at| self.forgetting.remove(at));
                }
                let folder = self.limits.folder.display();
                let failed = |error| format!("files of a deleted conversation are still in {folder}: {error}");
                self.notes.extend(done.err().map(failed));
                return;
            }
        };
        self.waiting.pop_front();
        match written {
            // Its file is deleted next.
            Ok(stored) if stored.owner.is_some_and(|owner| self.forgetting.contains(&owner)) => {}
            Ok(mut stored) => {
                self.uses += 1;
                stored.used = self.uses;
                // Earlier files of a past that became longer are of no use, nor are those that its conversation has
                // left.
                let is_left = |old: &StoredSequence| {
                    let is_alike = (old.owner, old.user) == (stored.owner, stored.user) && old.kept_at < stored.kept_at;
                    stored.tokens.starts_with(&old.tokens)
                        || (is_alike && has_left(&old.tokens, old.head_tokens, &stored.tokens))
                };
                let mut gone = Vec::new();
                self.stored.retain_mut(|old| {
                    let is_replaced = old.ours && old.kv == stored.kv && is_left(old);
                    let goes = is_replaced && (old.path == stored.path || delete(&old.path).is_ok());
                    gone.extend(goes.then(|| std::mem::take(&mut old.names)).into_iter().flatten());
                    !goes
                });
                self.stored.push(stored);
                self.delete_unnamed(&gone);
            }
            Err(what) => self.notes.push(what),
        }
    }

    /// Deletes the files that were not used for the longest time until the rest fits; those of the newest heads go
    /// last.
    fn enforce(&mut self) {
        let mut is_swept = true;
        loop {
            self.held_bytes = self.bytes();
            if self.held_bytes <= self.limits.max_bytes {
                break;
            }
            let heads = self.heads();
            let rank = |at: usize| heads.iter().position(|head| *head == at).map(std::cmp::Reverse);
            let all = self.stored.iter().enumerate();
            let oldest = all.min_by_key(|(at, stored)| (rank(*at), stored.used)).map(|(at, _)| at);
            let Some(at) = oldest else { break };
            let stored = self.stored.remove(at);
            let _ = delete(&stored.path);
            is_swept = false;
        }
        if !is_swept {
            self.sweep();
        }
    }

    fn bytes(&self) -> u64 {
        let sequences: u64 = self.stored.iter().map(|stored| stored.bytes).sum();
        let pages =
            self.stored.iter().flat_map(|stored| stored.names.iter().map(|name| (name, stored.page_file_bytes)));
        // A file of another model may say any size of its pages.
        pages.collect::<HashMap<_, _>>().values().fold(sequences, |bytes, page| bytes.saturating_add(*page))
    }

    fn sweep(&mut self) {
        let _ = sweep(&self.limits.folder, &self.named());
    }

    fn delete_unnamed(&self, names: &[PageName]) {
        if !names.is_empty() {
            let named = self.named();
            for name in names.iter().filter(|name| !named.contains(*name)) {
                let _ = delete(&file::page_path(&self.limits.folder, name));
            }
        }
    }

    fn named(&self) -> HashSet<PageName> {
        let sequences = self.stored.iter().flat_map(|stored| &stored.names);
        sequences.chain(self.waiting.iter().flatten()).copied().collect()
    }
}

fn work_through(folder: &Path, work: &Receiver<DiskJob>, tell: &Sender<DiskNews>) {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| work.recv().ok()) {
        if let DiskJob::Write(job) = job {
            if tell.send(DiskNews::Written(file::write(*job))).is_err() {
                return;
            }
            continue;
        }
        // One look through the folder is enough for all owners in a row.
        let (mut owners, mut to_tell, mut other) = (Vec::new(), Vec::new(), Some(job));
        while let Some(job) = other.take().or_else(|| work.try_recv().ok()) {
            match job {
                DiskJob::Forget(owner) => owners.push(owner),
                DiskJob::Tell(done) => to_tell.push(done),
                DiskJob::Write(_) => {
                    next = Some(job);
                    break;
                }
            }
        }
        if !owners.is_empty() {
            let done = forget_files(folder, &owners);
            if tell.send(DiskNews::Forgotten(owners, done)).is_err() {
                return;
            }
        }
        to_tell.into_iter().for_each(|done| done());
    }
}

/// Finds the sequences in a folder, the one written last at the end. Deletes and notes a file that is none.
fn find(folder: &Path, model: &ModelIdentity) -> Result<(Vec<StoredSequence>, Vec<String>), String> {
    std::fs::create_dir_all(folder)
        .map_err(|error| format!("cached conversations are not kept on disk: {}: {error}", folder.display()))?;
    let mut notes = Vec::new();
    let mut found = Vec::new();
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cached conversations are not kept on disk: {}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(file::EXTENSION) => {}
            // A process that ended while it wrote left this.
            Some("part") => {
                let _ = std::fs::remove_file(&path);
                continue;
            }
            _ => continue,
        }
        let modified = path.metadata().and_then(|metadata| metadata.modified()).ok();
        match file::read_head(&path, model) {
            Ok(stored) => found.push((modified, stored)),
            Err(what) => {
                notes.push(format!("deleted {}, which cannot be read: {what}", path.display()));
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    found.sort_by_key(|(modified, _)| *modified);
    Ok((found.into_iter().map(|(_, stored)| stored).collect(), notes))
}

fn sweep(folder: &Path, held: &HashSet<PageName>) -> std::io::Result<()> {
    let held: HashSet<PathBuf> = held.iter().map(|name| file::page_path(folder, name)).collect();
    for entry in entries(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "page") && !held.contains(&path) {
            delete(&path)?;
        }
    }
    Ok(())
}

impl Drop for DiskCache {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Deletes the files of owners, and returns their number.
pub fn forget_files(folder: &Path, owners: &[OwnerId]) -> std::io::Result<usize> {
    let mut deleted = 0;
    let mut held = HashSet::new();
    for entry in entries(folder)? {
        let path = entry?.path();
        if file::is_of(&path, owners) {
            delete(&path)?;
            deleted += 1;
        } else if is_sequence(&path) {
            // An unreadable file keeps no page: the next engine deletes it.
            held.extend(file::read_names(&path).unwrap_or_default());
        }
    }
    sweep(folder, &held)?;
    Ok(deleted)
}

/// Lists a folder, which no engine may have made yet.
fn entries(folder: &Path) -> std::io::Result<impl Iterator<Item = std::io::Result<DirEntry>>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        entries => Some(entries?),
    };
    Ok(entries.into_iter().flatten())
}

/// Copies the files of owners to another folder, the one written last at the end, and returns their number. A file that is damaged, or
/// deleted meanwhile, stays behind.
pub fn copy_files(folder: &Path, owners: &[OwnerId], to: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(to)?;
    let mut theirs = Vec::new();
    for entry in entries(folder)? {
        let path = entry?.path();
        if is_sequence(&path) && file::is_of(&path, owners) {
            theirs.push((path.metadata()?.modified()?, path));
        }
    }
    theirs.sort();
    let mut copied = 0;
    for (_, path) in theirs {
        match file::copy(&path, to) {
            Ok(()) => copied += 1,
            Err(error) if [ErrorKind::NotFound, ErrorKind::InvalidData].contains(&error.kind()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(copied)
}

/// Deletes the files of users' words that have no owner, while no engine runs: no deletion would find them. An earlier release
/// wrote such files.
pub fn forget_unowned_files(folder: &Path) -> std::io::Result<()> {
    for entry in entries(folder)? {
        let path = entry?.path();
        if is_sequence(&path) && file::is_unowned(&path) {
            delete(&path)?;
        }
    }
    Ok(())
}

fn is_sequence(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == file::EXTENSION)
}

fn delete(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
