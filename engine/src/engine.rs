//! The engine: requests in, events out, one bounded step at a time. `schedule` chooses what a step computes, `batch`
//! computes it, `held` keeps stopped requests that may resume, `turns` lets users take turns.

mod batch;
mod held;
mod pace;
mod schedule;
mod turns;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use text::Tokenizer;
use text::grammar::GrammarEnv;

use crate::active_request::{ActiveRequest, ReplyWriter};
use crate::cache::{EvictionRights, SequenceCache};
use crate::cached_sequence::CachedSequence;
use crate::disk::{DiskCache, DiskLimits, ModelIdentity};
use crate::draft::{Draft, DraftLimits, Drafting};
use crate::error::Error;
use crate::executor::Executor;
use crate::limits::EngineLimits;
use crate::memory::{KeptStates, MemoryKind, MemoryMeter, SPARE_PART};
use crate::network::Network;
use crate::recurrence_log::RecurrenceLog;
use crate::request::{EngineEvent, EngineRequest, OwnerId, Priority, RequestId};
use crate::self_check::MemoryChecksums;
use pace::Pace;
use turns::Turns;

pub struct Engine {
    network: Network,
    tokenizer: Arc<Tokenizer>,
    grammars: Option<GrammarEnv>,
    executor: Executor,
    limits: EngineLimits,
    requests: Vec<ActiveRequest>, // in the order of their arrival; one without a sequence waits
    held: Vec<ActiveRequest>,     // stopped requests that may resume, the oldest first
    cache: SequenceCache,
    meter: MemoryMeter,
    ended: Vec<EngineEvent>,
    next_id: u64,
    done: u64,  // requests that have ended so far
    steps: u64, // steps that computed something
    drafting: Drafting,
    pace: Pace,
    turns: Turns,
    /// Most choices of a reply so far. The next ones find memory that was touched.
    most_choices: usize,
    checksums: MemoryChecksums,
    notes: Vec<String>,
}

/// Segments of the recurrence log that a turn fills with the user's words and the reply, or the end of a long prompt: a
/// hundred tokens.
const TURN_LOG_SEGMENTS: usize = 9;

const LONG_PROMPT_STATES: usize = 10; // snapshots and pages that a prompt of a few thousand tokens takes
/// Divisor of the ceiling that such buffers may take while they wait.
const LONG_PROMPT_PART: usize = 24;

impl Engine {
    pub fn new(executor: Executor, network: Network, tokenizer: Arc<Tokenizer>, limits: EngineLimits) -> Engine {
        let meter = executor.meter();
        meter.set_ceiling(limits.memory_bytes);
        Engine {
            cache: SequenceCache::new(limits, &meter),
            meter,
            network,
            tokenizer,
            grammars: None,
            executor,
            limits,
            requests: Vec::new(),
            held: Vec::new(),
            ended: Vec::new(),
            next_id: 0,
            done: 0,
            steps: 0,
            drafting: Drafting::default(),
            pace: Pace::default(),
            turns: Turns::default(),
            most_choices: 1,
            checksums: MemoryChecksums::default(),
            notes: Vec::new(),
        }
    }

    /// Takes grammars that another thread prepared, which takes longer than a step for a large vocabulary. Without this
    /// call the first request with a grammar prepares them.
    pub fn set_grammars(&mut self, grammars: GrammarEnv) {
        self.grammars = Some(grammars);
    }

    /// Keeps cached sequences on disk as well, and finds those that are there. An unusable folder is a note.
    pub fn use_disk(&mut self, limits: DiskLimits) {
        let model = ModelIdentity { fingerprint: self.network.model.fingerprint, shape: self.network.state_shape };
        let worth_reading_tokens = limits.min_tokens;
        match DiskCache::open(limits, model) {
            Ok(disk) => self.cache.set_disk(disk, worth_reading_tokens),
            Err(note) => self.notes.push(note),
        }
    }

    /// Lets steps compute drafts ahead: repeated text, and the model's predictions. Replies stay the same.
    pub fn use_drafts(&mut self, limits: DraftLimits) {
        let prediction = self.network.prediction_cost(limits.mtp_vocab);
        self.drafting.limit(limits, prediction);
    }

    /// Limits the time of a shared step. Background work takes less, a request without competition more; the prompt
    /// tokens of a step follow from their measured time.
    pub fn keep_pace(&mut self, step: Duration) {
        self.pace = Pace::new(Some(step));
    }

    /// Reports the time of the last step. Drafting pays only where one more row costs little, and a step has fewer
    /// prompt tokens where each takes long.
    pub fn took(&mut self, time: Duration) {
        self.drafting.took(time);
        self.pace.took(time);
    }

    pub fn read_heads(&mut self) {
        self.cache.read_heads(&self.network.state_shape, self.executor.cpu());
    }

    /// Reads the newest sequence from disk, whose conversation most likely continues after a restart.
    pub fn read_newest(&mut self) {
        self.cache.read_newest(&self.network.state_shape, &self.executor);
    }

    /// Hands one cached sequence to the disk's thread. Returns true if there may be more to save. While requests run,
    /// it neither waits for the disk's thread nor takes memory that they may need.
    pub fn save_one(&mut self) -> bool {
        self.cache.save_one(self.requests.is_empty())
    }

    /// Returns true while files of earlier calls of `save_one` are being written. When they are done, the files that
    /// they replace are deleted.
    pub fn is_saving(&mut self) -> bool {
        self.cache.disk().is_some_and(DiskCache::is_writing)
    }

    /// Writes every sequence that is worth it to disk and waits until that is done: for shutdown.
    pub fn save_all(&mut self) {
        let held = std::mem::take(&mut self.held);
        for request in std::mem::take(&mut self.requests).into_iter().chain(held) {
            self.keep(request);
        }
        while self.cache.save_one(true) {}
        if let Some(disk) = self.cache.disk() {
            disk.flush();
        }
    }

    /// Ends the requests of an owner and drops the owner's sequences, in memory and on disk. Sequences that other
    /// owners computed from the same text stay.
    pub fn forget(&mut self, owner: OwnerId) {
        for mut request in self.requests.extract_if(.., |request| request.owner == Some(owner)) {
            self.done += 1;
            self.ended.push(request.cancelled());
        }
        self.held.retain(|request| request.owner != Some(owner));
        self.cache.forget(owner);
    }

    /// Drops an owner's sequences, in memory and on disk, but for those of running requests, which are never written.
    pub fn forget_cached(&mut self, owner: OwnerId) {
        self.keep_off_disk(owner);
        self.cache.forget(owner);
    }

    /// Drops an owner's files. Its sequences in memory, and those of its running requests, are never written.
    pub fn forget_saved(&mut self, owner: OwnerId) {
        self.keep_off_disk(owner);
        self.cache.forget_saved(owner);
    }

    /// Calls `done` when the files of all owners that are forgotten by now are gone. The disk's thread deletes them, so
    /// that no step waits for it.
    pub fn when_forgotten(&mut self, done: impl FnOnce() + Send + 'static) {
        match self.cache.disk() {
            Some(disk) => disk.when_forgotten(Box::new(done)),
            None => done(),
        }
    }

    fn keep_off_disk(&mut self, owner: OwnerId) {
        for request in self.requests.iter_mut().chain(&mut self.held).filter(|request| request.owner == Some(owner)) {
            request.unsaved = true;
            request.sequence.iter_mut().for_each(|sequence| sequence.unsaved = true);
        }
    }

    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.cache.disk().map(|disk| std::mem::take(&mut disk.notes)).unwrap_or_default());
        notes
    }

    pub fn limits(&self) -> &EngineLimits {
        &self.limits
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Reason why this engine answers no more requests: its GPU is lost, or the model's file. The caller has to open
    /// another engine.
    pub fn failure(&self) -> Option<String> {
        let cut = || self.network.cut_file().map(|file| weights::Error::cut(file).to_string());
        self.executor.failure().map(str::to_string).or_else(cut)
    }

    pub fn submit(&mut self, request: EngineRequest) -> Result<RequestId, Error> {
        if self.failure().is_some() {
            return Err(self.lost());
        }
        self.check(&request)?;
        let gives_way = self.place_in_queue(request.user, request.priority)?;
        let grammar = match &request.grammar {
            None => None,
            Some(grammar) => {
                if self.grammars.is_none() {
                    self.grammars = Some(GrammarEnv::new(self.tokenizer.clone(), &self.network.model.stop_tokens)?);
                }
                self.grammars.as_ref().map(|env| env.matcher(grammar)).transpose()?
            }
        };
        if let Some(newest_of_crowd) = gives_way {
            self.refuse(newest_of_crowd);
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let reply = ReplyWriter::new(&request, &self.network.model.stop_tokens, &self.tokenizer, grammar);
        self.requests.push(ActiveRequest {
            id,
            priority: request.priority,
            speculative: request.speculative,
            one_off: request.one_off,
            unsaved: request.unsaved,
            owner: request.owner,
            user: request.user,
            scope: request.scope,
            ctx_size: request.ctx_size,
            kv: request.kv,
            max_new_tokens: request.max_new_tokens,
            prompt_tokens: request.tokens.len(),
            prompt_logprobs: request.prompt_logprobs,
            scored: 0,
            given_tokens: request.given_tokens.unwrap_or(request.tokens.len()),
            choice_of: request.choice_of,
            tokens: request.tokens,
            marks: request.marks,
            fork: request.fork,
            sequence: None,
            parked_at: None,
            computed_at: self.steps,
            start: None,
            resumed_at: None,
            draft: Draft::default(),
            drafted: 0,
            accepted: 0,
            reply,
        });
        Ok(id)
    }

    fn check(&self, request: &EngineRequest) -> Result<(), Error> {
        let vocab = self.network.shape().vocab;
        if request.tokens.is_empty() {
            return Err(Error::Empty);
        }
        if let Some(token) = request.tokens.iter().find(|token| **token as usize >= vocab) {
            return Err(Error::Token { token: *token, vocab });
        }
        let reply = usize::from(request.max_new_tokens > 0);
        if request.tokens.len() + reply > request.ctx_size {
            return Err(Error::Window { tokens: request.tokens.len(), ctx_size: request.ctx_size, reply });
        }
        request.sampling.check()?;
        let (tokens, most) = (request.sampling.logit_bias.len(), self.limits.max_logit_bias);
        if tokens > most {
            return Err(Error::LogitBias { tokens, most });
        }
        self.network.state_shape.layout(request.kv)?;
        Ok(())
    }

    /// Touches one piece of the memory that a turn after a barge-in takes: a state, snapshots, a recurrence log, pages;
    /// and of the memory for as many choices as a reply had. Returns false if all was touched. For idle moments, because
    /// the first touch of memory is slow.
    pub fn prepare_one(&self) -> bool {
        let (shape, format) = (&self.network.state_shape, self.limits.snapshots);
        let values = size_of::<f32>();
        let [recurrent, conv] = [shape.recurrent(), shape.conv()].map(|count| shape.delta_layers * count * values);
        let snapshot = shape.snapshot_bytes(format) - conv;
        let page = self.cache.sequences().next().map_or(0, |(_, sequence)| shape.page_bytes(&sequence.state.layout));
        let of_turn = [
            (recurrent, self.most_choices),
            (conv, 4 + self.most_choices),
            (snapshot, 4),
            (RecurrenceLog::segment_bytes(shape), TURN_LOG_SEGMENTS * self.most_choices),
            (page, 2 + self.most_choices),
        ];
        // More for a long prompt, if that is a small part of all memory.
        let of_prompt = [(conv, 1 + LONG_PROMPT_STATES), (snapshot, LONG_PROMPT_STATES), (page, LONG_PROMPT_STATES)];
        self.meter.stock(&of_turn, SPARE_PART) || self.meter.stock(&of_prompt, LONG_PROMPT_PART)
    }

    /// Takes a snapshot of a running request whose reply has reached a position where a later prompt may branch, such
    /// as the end of a sentence. Without room it does nothing.
    pub fn mark(&mut self, id: RequestId) {
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return };
        let bytes = self.network.state_shape.snapshot_bytes(self.limits.snapshots);
        let is_wanted = self.requests[at].sequence.as_ref().is_some_and(|now| now.wants_snapshot(&self.limits));
        if is_wanted
            && self.make_room(bytes, self.requests[at].rights())
            && let Some(sequence) = &mut self.requests[at].sequence
        {
            sequence.take_snapshot(&self.executor, &self.limits);
        }
    }

    /// Ends the thinking of a request: its next step gives the first token of the answer, if its prompt is computed.
    /// Does nothing for a request that does not think.
    pub fn stop_thinking(&mut self, id: RequestId) {
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return };
        let request = &mut self.requests[at];
        request.reply.stop_thinking();
        let has_begun = request.tokens.len() > request.prompt_tokens;
        let stop_tokens = &self.network.model.stop_tokens;
        if has_begun && !request.write_forced(stop_tokens, &self.tokenizer, &mut self.ended) {
            let request = self.requests.remove(at);
            self.keep(request);
        }
    }

    /// Ends a request; its `Done` comes with the next step. Does nothing if the request has ended.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(at) = self.requests.iter().position(|request| request.id == id) {
            let mut request = self.requests.remove(at);
            self.ended.push(request.cancelled());
            self.keep(request);
        }
    }

    /// Computes one batch: the next token of each reply, and a chunk of prompt. Returns true while requests are left. A
    /// step takes no longer than one chunk.
    pub fn step(&mut self, events: &mut Vec<EngineEvent>) -> bool {
        events.append(&mut self.ended);
        if self.failure().is_some() {
            return self.lose(events);
        }
        self.admit(events);
        let chosen = loop {
            let running = self.requests.iter().filter(|request| request.is_running());
            let Some(urgency) = running.map(|request| self.urgency(request)).min() else {
                return !self.requests.is_empty();
            };
            let chosen = self.choose(urgency);
            self.draft(&chosen);
            let has_all = chosen.iter().any(|(at, _)| self.requests[*at].rights() == EvictionRights::All);
            let rights = if has_all { EvictionRights::All } else { EvictionRights::Unneeded };
            if self.make_room(self.bytes_of(&chosen), rights) {
                break chosen;
            }
            self.free_memory_for_step(events);
        };
        self.steps += 1;
        let mut background_tokens = 0;
        for (at, count) in &chosen {
            let request = &mut self.requests[*at];
            request.computed_at = self.steps;
            background_tokens += if request.priority == Priority::Background { *count } else { 0 };
        }
        self.pace.begin_background(background_tokens);
        self.run(&chosen, events);
        if self.failure().is_some() {
            return self.lose(events);
        }
        !self.requests.is_empty()
    }

    /// Ends all requests, because the GPU failed and its memory is lost, or because weights are. Another engine can
    /// continue from the files on disk.
    fn lose(&mut self, events: &mut Vec<EngineEvent>) -> bool {
        self.held.clear();
        for request in std::mem::take(&mut self.requests) {
            events.push(EngineEvent::Failed { id: request.id, error: self.lost() });
        }
        false
    }

    fn lost(&self) -> Error {
        match (self.executor.failure(), self.network.cut_file()) {
            (None, Some(file)) => weights::Error::cut(file).into(),
            (reason, _) => Error::Lost { reason: reason.unwrap_or_default().to_string() },
        }
    }

    /// Evicts until `bytes` more fit, and returns true if they do. Held requests give way before sequences that the
    /// latest conversations need.
    fn make_room(&mut self, bytes: usize, rights: EvictionRights) -> bool {
        while self.held.iter().any(ActiveRequest::is_running) {
            if self.evict(bytes, EvictionRights::Unneeded) {
                return true;
            }
            self.give_up_held();
        }
        self.evict(bytes, rights)
    }

    fn evict(&mut self, bytes: usize, rights: EvictionRights) -> bool {
        let all = self.requests.iter_mut().chain(&mut self.held);
        let mut running: Vec<&mut CachedSequence> = all.filter_map(|request| request.sequence.as_mut()).collect();
        self.cache.make_room(bytes, rights, &mut running)
    }

    fn keep(&mut self, request: ActiveRequest) {
        self.done += 1;
        let ActiveRequest { mut tokens, sequence: Some(sequence), .. } = request else { return };
        tokens.truncate(sequence.state.position);
        self.cache.keep(tokens, sequence);
    }

    /// Checks that all parts of all sequences agree with each other and with the counted memory. For tests, and for
    /// idle moments of debug builds. It waits for the disk's thread, which shares memory with sequences.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        if let Some(disk) = self.cache.disk() {
            disk.flush();
        }
        let all = self.requests.iter().chain(&self.held);
        let running = all.filter_map(|request| Some((request.position(), request.sequence.as_ref()?)));
        let sequences = self.cache.sequences().chain(running);
        self.checksums.check(sequences, self.cache.heads(), &self.meter, self.limits.memory_bytes)
    }

    /// Returns the least lead of a chosen expert over one that was not, since the last call: near zero, rounding
    /// chooses, and the same tokens may have another answer elsewhere. For tests. `None`: there was no choice, or a GPU
    /// chose.
    pub fn take_least_lead(&mut self) -> Option<f32> {
        self.executor.take_least_lead()
    }

    pub fn memory_bytes(&self, kind: MemoryKind) -> usize {
        self.meter.bytes(kind)
    }

    /// Bytes of an owner's sequences, by kind. Shared parts count for each of their owners.
    pub fn owner_bytes(&self, owner: OwnerId) -> [(MemoryKind, usize); MemoryKind::ALL.len()] {
        let mut bytes = [0; MemoryKind::ALL.len()];
        let mut seen = HashSet::new();
        let kept = self.cache.sequences().map(|(_, sequence)| sequence);
        let running = self.requests.iter().chain(&self.held).filter_map(|request| request.sequence.as_ref());
        for sequence in kept.chain(running).filter(|sequence| sequence.owner == Some(owner)) {
            sequence.add_bytes(&mut seen, &mut bytes);
        }
        MemoryKind::ALL.map(|kind| (kind, bytes[kind as usize]))
    }

    pub fn kept_in_memory(&self) -> KeptStates {
        let kinds = [MemoryKind::Pages, MemoryKind::Snapshots, MemoryKind::MovedSnapshots, MemoryKind::RecurrenceLogs];
        let bytes = kinds.iter().map(|kind| self.meter.bytes(*kind) as u64).sum();
        KeptStates { states: self.cached_sequences(), bytes }
    }

    /// Returns nothing where states stay in memory.
    pub fn kept_on_disk(&self) -> KeptStates {
        self.cache.kept_on_disk()
    }

    pub fn cached_sequences(&self) -> usize {
        self.cache.len()
    }
}
