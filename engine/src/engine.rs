//! One owner of the model: requests in, events out, one bounded piece of work at a time.

use std::collections::HashSet;
use std::sync::Arc;

use kernels::cpu::Cpu;
use text::Tokenizer;
use text::grammar::GrammarEnv;

use crate::active_request::{ActiveRequest, ReplyWriter, RequestStart};
use crate::cache::{CacheLimits, CachedSequence, EvictionRights, MemoryChecksums, PrefixQuery, SequenceCache};
use crate::disk::{DiskCache, DiskLimits, ModelIdentity};
use crate::error::Error;
use crate::executor::Executor;
use crate::limits::EngineLimits;
use crate::memory::{MemoryKind, MemoryMeter};
use crate::network::{Network, StepLane, WantedLogits};
use crate::recurrence_log::RecurrenceLog;
use crate::request::{EngineEvent, EngineRequest, OwnerId, RequestClass, RequestId, StopReason};
use crate::snapshot::Snapshot;
use crate::state::{PAGE_TOKENS, SequenceState};

pub struct Engine {
    network: Network,
    tokenizer: Arc<Tokenizer>,
    grammars: Option<GrammarEnv>,
    executor: Executor,
    limits: EngineLimits,
    /// In the order of their arrival. Those without a state wait.
    requests: Vec<ActiveRequest>,
    cache: SequenceCache,
    meter: MemoryMeter,
    /// Events of requests that ended between steps.
    ended: Vec<EngineEvent>,
    next_id: u64,
    /// Requests that held a state and are done.
    done: u64,
    sums: MemoryChecksums,
    notes: Vec<String>,
}

/// Of a recurrence log, for what is said in a turn and answered: a hundred tokens.
const LOG_PIECES: usize = 8;

/// Who comes while something is computed that nobody waits for waits for a part of a chunk, and not for a whole one.
const BACKGROUND_PARTS: usize = 4;

impl Engine {
    /// An engine that computes on the host's processors.
    pub fn new(network: Network, tokenizer: Arc<Tokenizer>, cpu: Cpu, limits: EngineLimits) -> Engine {
        Engine::with_executor(Executor::host(cpu), network, tokenizer, limits)
    }

    pub fn with_executor(
        executor: Executor,
        network: Network,
        tokenizer: Arc<Tokenizer>,
        limits: EngineLimits,
    ) -> Engine {
        let meter = executor.meter();
        meter.set_ceiling(limits.memory_bytes);
        let of_cache = CacheLimits {
            budget_bytes: limits.memory_bytes,
            recurrence_log_tokens: limits.recurrence_log_tokens,
            snapshots: limits.snapshots,
            needed_sequences: limits.max_sequences,
        };
        Engine {
            cache: SequenceCache::new(of_cache, &meter),
            meter,
            network,
            tokenizer,
            grammars: None,
            executor,
            limits,
            requests: Vec::new(),
            ended: Vec::new(),
            next_id: 0,
            done: 0,
            sums: MemoryChecksums::default(),
            notes: Vec::new(),
        }
    }

    /// Grammars made ready elsewhere: for a large vocabulary that takes longer than anybody should wait for a step.
    /// Without it the first request with a grammar makes them.
    pub fn set_grammars(&mut self, grammars: GrammarEnv) {
        self.grammars = Some(grammars);
    }

    /// Keeps pasts on disk as well, and knows those that are there. Without a usable folder there is a note instead.
    pub fn use_disk(&mut self, limits: DiskLimits) {
        let owner = ModelIdentity { fingerprint: self.network.model.fingerprint, shape: self.network.state_shape };
        let worth_reading_tokens = limits.min_tokens;
        match DiskCache::open(limits, owner) {
            Ok(disk) => self.cache.set_disk(disk, worth_reading_tokens),
            Err(note) => self.notes.push(note),
        }
    }

    /// Hands one past to the disk's writer. Returns whether there was one that is not there yet. In the middle of work it
    /// costs nobody anything, so that it may be left for later where memory is short.
    pub fn save_one(&mut self) -> bool {
        self.cache.save_one(self.requests.is_empty())
    }

    /// For the end: everything that is worth it goes to disk, and is there when this returns.
    pub fn save_all(&mut self) {
        for request in std::mem::take(&mut self.requests) {
            self.keep(request);
        }
        while self.cache.save_one(true) {}
        if let Some(disk) = self.cache.disk() {
            disk.flush();
        }
    }

    /// Drops what was computed for an owner, here and on disk, and ends what is being computed for it. What others made
    /// of the same words is theirs and stays.
    pub fn forget(&mut self, owner: OwnerId) {
        let requests = std::mem::take(&mut self.requests);
        let (theirs, others) = requests.into_iter().partition(|request| request.owner == Some(owner));
        self.requests = others;
        let theirs: Vec<ActiveRequest> = theirs;
        self.done += theirs.len() as u64;
        for mut request in theirs {
            let stop_reason = StopReason::Cancelled { rest: request.reply.rest() };
            self.ended.push(EngineEvent::Done { id: request.id, stop_reason, report: request.report() });
        }
        self.cache.forget(owner);
    }

    /// What happened to files that were left out, one sequence each, since this was asked last.
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

    /// Why this engine answers nothing any more: what it computes on is lost. Another one has to be opened.
    pub fn failure(&self) -> Option<&str> {
        self.executor.failure()
    }

    /// Takes a request. An error here means that nothing was taken and no event will come.
    pub fn submit(&mut self, request: EngineRequest) -> Result<RequestId, Error> {
        if let Some(reason) = self.failure() {
            return Err(Error::Lost { reason: reason.to_string() });
        }
        self.check(&request)?;
        let grammar = match &request.grammar {
            None => None,
            Some(grammar) => {
                if self.grammars.is_none() {
                    self.grammars = Some(GrammarEnv::new(self.tokenizer.clone(), &self.network.model.stop_tokens)?);
                }
                self.grammars.as_ref().map(|env| env.matcher(grammar)).transpose()?
            }
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let reply = ReplyWriter::new(&request, &self.network.model.stop_tokens, &self.tokenizer, grammar);
        self.requests.push(ActiveRequest {
            id,
            class: request.class,
            speculative: request.speculative,
            owner: request.owner,
            ctx_size: request.ctx_size,
            kv: request.kv,
            max_new_tokens: request.max_new_tokens,
            prompt_tokens: request.tokens.len(),
            given_tokens: request.given_tokens.unwrap_or(request.tokens.len()),
            tokens: request.tokens,
            marks: request.marks,
            sequence: None,
            parked_at: None,
            start: None,
            reply,
        });
        Ok(id)
    }

    /// Touches a piece of the memory that a turn takes which leaves its past before the end: a state, two snapshots, a
    /// recurrence log, a page. Returns whether there was one to touch. For when nobody waits.
    pub fn prepare_one(&self) -> bool {
        let (shape, format) = (&self.network.state_shape, self.limits.snapshots);
        let values = size_of::<f32>();
        let [recurrent, conv] = [shape.recurrent(), shape.conv()].map(|count| shape.delta_layers * count * values);
        let snapshot = shape.snapshot_bytes(format) - conv;
        let page = self.cache.sequences().next().map_or(0, |(_, sequence)| shape.page_bytes(&sequence.state.layout));
        self.meter.stock(&[
            (recurrent, 1),
            (conv, 3),
            (snapshot, 2),
            (RecurrenceLog::piece_bytes(shape), LOG_PIECES),
            (page, 1),
        ])
    }

    /// A running reply has come to a place where the future may branch, as the end of a sentence is. Where there is no
    /// room it is not remembered.
    pub fn mark(&mut self, id: RequestId) {
        let Some(at) = self.requests.iter().position(|request| request.id == id) else { return };
        let bytes = self.network.state_shape.snapshot_bytes(self.limits.snapshots);
        if self.make_room(bytes, self.requests[at].rights())
            && let Some(sequence) = &mut self.requests[at].sequence
        {
            sequence.take_snapshot(self.limits.snapshots);
        }
    }

    /// Ends a request; its `Done` comes with the next step. A request that is not there has ended already.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(at) = self.requests.iter().position(|request| request.id == id) {
            let mut request = self.requests.remove(at);
            let stop_reason = StopReason::Cancelled { rest: request.reply.rest() };
            self.ended.push(EngineEvent::Done { id, stop_reason, report: request.report() });
            self.keep(request);
        }
    }

    /// One batch: a token for each reply that is being written, and a chunk of prompt. Returns whether there is more to
    /// do. A step takes no longer than one chunk.
    pub fn step(&mut self, events: &mut Vec<EngineEvent>) -> bool {
        events.append(&mut self.ended);
        if self.executor.failure().is_some() {
            return self.lose(events);
        }
        self.admit(events);
        // Somebody waits for a reply: what nobody waits for stands still.
        let chosen = loop {
            let Some(first) = self.requests.iter().filter(|s| s.sequence.is_some()).map(|s| s.class).min() else {
                return !self.requests.is_empty();
            };
            let chosen = self.choose(first);
            let rights = self.requests[chosen[0].0].rights();
            if self.make_room(self.bytes_of(&chosen), rights) {
                break chosen;
            }
            self.give_way(events);
        };
        self.run(&chosen, events);
        if self.executor.failure().is_some() {
            return self.lose(events);
        }
        !self.requests.is_empty()
    }

    /// What computes has failed and everything it held is gone. What was written to disk is not: another engine goes on
    /// from there.
    fn lose(&mut self, events: &mut Vec<EngineEvent>) -> bool {
        let reason = self.failure().unwrap_or_default().to_string();
        for request in std::mem::take(&mut self.requests) {
            events.push(EngineEvent::Failed { id: request.id, error: Error::Lost { reason: reason.clone() } });
        }
        false
    }

    /// Which requests the next step takes further, and how far.
    fn choose(&self, class: RequestClass) -> Vec<(usize, usize)> {
        let mut budget = self.limits.prefill_chunk_tokens;
        if class == RequestClass::Background {
            budget = (budget / BACKGROUND_PARTS).max(1);
        }
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for decoding in [true, false] {
            for (at, request) in self.requests.iter().enumerate() {
                let ours = request.sequence.is_some() && request.class == class;
                let count = request.pending().len().min(budget.max(usize::from(decoding)));
                if ours && request.is_decoding() == decoding && count > 0 {
                    chosen.push((at, count));
                    budget = budget.saturating_sub(count);
                }
            }
        }
        chosen.sort_unstable();
        chosen
    }

    /// There is no room for the next step: the least urgent of those that run waits until another one is done. The last
    /// one can only be given up, for nobody else will make room for it.
    fn give_way(&mut self, events: &mut Vec<EngineEvent>) {
        let running = self.requests.iter().enumerate().filter(|(_, s)| s.sequence.is_some());
        let Some((_, _, at)) = running.clone().map(|(at, s)| (s.class, s.id, at)).max() else { return };
        if running.count() > 1 {
            self.requests[at].parked_at = Some(self.done);
            self.set_aside(at);
            return;
        }
        let request = &self.requests[at];
        // A reply that somebody needs soon is worth more than what somebody may need; a warm prompt is not.
        let needed = self.bytes_of(&[(at, 1)]);
        if request.max_new_tokens > 0
            && request.rights() != EvictionRights::All
            && self.make_room(needed, EvictionRights::All)
        {
            return;
        }
        self.give_up(at, events);
    }

    fn give_up(&mut self, at: usize, events: &mut Vec<EngineEvent>) {
        let request = self.requests.remove(at);
        events.push(EngineEvent::Failed {
            id: request.id,
            error: Error::NoRoom { budget_bytes: self.limits.memory_bytes },
        });
        self.keep(request);
    }

    fn make_room(&mut self, bytes: usize, rights: EvictionRights) -> bool {
        let mut running: Vec<&mut CachedSequence> =
            self.requests.iter_mut().filter_map(|s| s.sequence.as_mut()).collect();
        self.cache.make_room(bytes, rights, &mut running)
    }

    fn set_aside(&mut self, at: usize) {
        let request = &mut self.requests[at];
        if let Some(sequence) = request.sequence.take() {
            self.cache.keep(request.tokens[..sequence.state.position].to_vec(), sequence);
        }
    }

    /// Gives a sequence to those that wait, the most urgent first; who is more urgent takes the place of who is less.
    fn admit(&mut self, events: &mut Vec<EngineEvent>) {
        loop {
            let running = self.requests.iter().filter(|s| s.sequence.is_some()).count();
            let parked = |s: &ActiveRequest| running > 0 && s.parked_at == Some(self.done);
            let waiting = self.requests.iter().enumerate().filter(|(_, s)| s.sequence.is_none() && !parked(s));
            let Some((at, class)) = waiting.map(|(at, s)| (at, s.class)).min_by_key(|(at, p)| (*p, *at)) else {
                return;
            };
            let less_urgent = self.requests.iter().enumerate().filter(|(_, s)| s.sequence.is_some());
            let less_urgent = less_urgent.map(|(at, s)| (s.class, s.id, at)).max().filter(|(p, _, _)| *p > class);
            if running >= self.limits.max_sequences.max(1) {
                let Some((_, _, last)) = less_urgent else { return };
                self.set_aside(last);
            }
            // A state, and a snapshot where it begins at a mark.
            let shape = self.network.state_shape;
            let bytes = shape.fixed_bytes() + shape.snapshot_bytes(self.limits.snapshots);
            let rights = self.requests[at].rights();
            if let Ok(layout) = shape.layout(self.requests[at].kv) {
                self.cache.touch(&self.requests[at].tokens, layout);
            }
            if !self.make_room(bytes, rights) {
                if let Some((_, _, last)) = less_urgent {
                    self.requests[last].parked_at = Some(self.done);
                    self.set_aside(last);
                } else if running > 0 {
                    self.requests[at].parked_at = Some(self.done);
                } else if self.requests[at].max_new_tokens == 0 || !self.make_room(bytes, EvictionRights::All) {
                    self.give_up(at, events);
                }
                continue;
            }
            if let Err(error) = self.begin(at, events) {
                let id = self.requests.remove(at).id;
                events.push(EngineEvent::Failed { id, error });
            }
        }
    }

    /// Finds how much of a request is known already.
    fn begin(&mut self, at: usize, events: &mut Vec<EngineEvent>) -> Result<(), Error> {
        let shape = self.network.state_shape;
        let request = &self.requests[at];
        let layout = shape.layout(request.kv)?;
        // The last token has to go through the model to say what follows it.
        let limit = request.tokens.len() - usize::from(request.max_new_tokens > 0);
        let running: Vec<(&[u32], &CachedSequence)> = self
            .requests
            .iter()
            .filter_map(|other| {
                other.sequence.as_ref().map(|sequence| (&other.tokens[..sequence.state.position], sequence))
            })
            .collect();
        let (network, executor) = (&self.network, &mut self.executor);
        let sought = PrefixQuery { tokens: &request.tokens, layout, limit, rights: request.rights() };
        let found = self.cache.find(network, executor, sought, &running);
        let mut sequence = match found.sequence {
            Some(sequence) => sequence,
            None => CachedSequence {
                state: SequenceState::new(shape, request.kv, &self.meter)?,
                snapshots: Vec::new(),
                recurrence_log: RecurrenceLog::new(&shape, self.limits.recurrence_log_tokens, &self.meter),
                speculative: false,
                owner: None,
                given_tokens: 0,
            },
        };
        (sequence.speculative, sequence.owner) = (request.speculative, request.owner);
        sequence.given_tokens = request.given_tokens;
        let reused_tokens = sequence.state.position;
        if request.marks.contains(&reused_tokens) {
            sequence.take_snapshot(self.limits.snapshots);
        }
        let request = &mut self.requests[at];
        request.sequence = Some(sequence);
        if request.start.is_none() {
            request.start = Some(RequestStart { reused_tokens, reason: found.reason });
            events.push(EngineEvent::Started { id: request.id, reused_tokens, reason: found.reason });
        }
        if request.pending().is_empty() && request.max_new_tokens == 0 {
            let request = self.requests.remove(at);
            events.push(EngineEvent::Done { id: request.id, stop_reason: StopReason::Warm, report: request.report() });
            self.keep(request);
        }
        Ok(())
    }

    /// Computes so many pending tokens of each of these requests and lets those go on that have a next token.
    fn run(&mut self, chosen: &[(usize, usize)], events: &mut Vec<EngineEvent>) {
        let mut remembered = self.room_on_the_way(chosen);
        let mut lanes = Vec::with_capacity(chosen.len());
        let mut rest = &mut self.requests[..];
        let mut passed = 0;
        for ((at, count), snapshots) in chosen.iter().zip(&mut remembered) {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(at - passed + 1);
            (rest, passed) = (tail, at + 1);
            let Some(ActiveRequest { tokens, sequence: Some(sequence), max_new_tokens, .. }) = head.last_mut() else {
                continue;
            };
            let position = sequence.state.position;
            let wanted = position + count == tokens.len() && *max_new_tokens > 0;
            lanes.push(StepLane {
                state: &mut sequence.state,
                tokens: &tokens[position..][..*count],
                wanted: if wanted { WantedLogits::Last } else { WantedLogits::Nothing },
                recurrence_log: Some(&mut sequence.recurrence_log),
                snapshots,
            });
        }
        let Some(logits) = self.executor.forward(&self.network, &mut lanes) else { return };
        let mut rows = logits.chunks_exact_mut(self.network.model.shape.vocab);
        let mut ended = Vec::new();
        for ((at, _), snapshots) in chosen.iter().zip(remembered) {
            let request = &mut self.requests[*at];
            if let Some(sequence) = &mut request.sequence {
                sequence.snapshots.extend(snapshots.into_iter().map(Arc::new));
            }
            if !request.pending().is_empty() {
                continue;
            }
            if request.max_new_tokens == 0 {
                events.push(EngineEvent::Done {
                    id: request.id,
                    stop_reason: StopReason::Warm,
                    report: request.report(),
                });
                ended.push(request.id);
            } else if let Some(logits) = rows.next()
                && !request.go_on(logits, &self.network.model.stop_tokens, &self.tokenizer, events)
            {
                ended.push(request.id);
            }
        }
        for id in ended {
            if let Some(at) = self.requests.iter().position(|request| request.id == id) {
                let request = self.requests.remove(at);
                self.keep(request);
            }
        }
    }

    fn keep(&mut self, request: ActiveRequest) {
        self.done += 1;
        let ActiveRequest { mut tokens, sequence: Some(sequence), .. } = request else { return };
        tokens.truncate(sequence.state.position);
        self.cache.keep(tokens, sequence);
    }

    /// Room for the states that these requests pass and should remember, the last ones first where there is little.
    fn room_on_the_way(&mut self, chosen: &[(usize, usize)]) -> Vec<Vec<Snapshot>> {
        let (shape, format) = (self.network.state_shape, self.limits.snapshots);
        let needed = self.bytes_of(chosen) + shape.snapshot_bytes(format);
        let mut remembered = Vec::with_capacity(chosen.len());
        for (at, count) in chosen {
            let (stops, rights) =
                (self.requests[*at].stops(*count, self.limits.snapshot_spacing_tokens), self.requests[*at].rights());
            let mut snapshots = Vec::with_capacity(stops.len());
            for position in stops.into_iter().rev() {
                if !self.make_room(needed, rights) {
                    break;
                }
                snapshots.push(Snapshot::to_come(position, &shape, format, &self.meter));
            }
            snapshots.reverse();
            remembered.push(snapshots);
        }
        remembered
    }

    /// The most that these tokens may allocate: pages, and a recurrence log for each request.
    fn bytes_of(&self, chosen: &[(usize, usize)]) -> usize {
        let shape = &self.network.state_shape;
        let sequences = chosen.iter().filter_map(|(at, count)| Some((self.requests[*at].sequence.as_ref()?, *count)));
        sequences
            .map(|(sequence, count)| {
                let (position, pages) = (sequence.state.position, sequence.state.pages.len());
                let needed = (position + count).div_ceil(PAGE_TOKENS) - position / PAGE_TOKENS;
                let shared = pages - position / PAGE_TOKENS;
                (needed.max(shared)) * shape.page_bytes(&sequence.state.layout)
                    + sequence.recurrence_log.bytes_of(count)
            })
            .sum()
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
        self.network.state_shape.layout(request.kv)?;
        let waiting = self.requests.iter().filter(|s| s.sequence.is_none() && s.class == request.class).count();
        if waiting >= self.limits.max_waiting {
            return Err(Error::Busy { waiting });
        }
        Ok(())
    }

    /// Whether all parts of what is kept agree with each other and with what was counted. For tests, and for idle
    /// moments of debug builds: nothing may be shared with the disk's writer meanwhile.
    pub fn check_invariants(&mut self) -> Result<(), String> {
        if let Some(disk) = self.cache.disk() {
            disk.flush();
        }
        let running = self.requests.iter().filter_map(|s| Some((s.position(), s.sequence.as_ref()?)));
        self.sums.check(self.cache.sequences().chain(running), &self.meter, self.limits.memory_bytes)
    }

    /// Requests that are not done, by class.
    pub fn load(&self, class: RequestClass) -> usize {
        self.requests.iter().filter(|request| request.class == class).count()
    }

    /// Bytes that are kept of requests, by kind.
    pub fn memory_bytes(&self, kind: MemoryKind) -> usize {
        self.meter.bytes(kind)
    }

    /// Bytes that are kept for this owner, by kind. What several owners share counts for each.
    pub fn owner_bytes(&self, owner: OwnerId) -> [(MemoryKind, usize); MemoryKind::ALL.len()] {
        let mut bytes = [0; MemoryKind::ALL.len()];
        let mut seen = HashSet::new();
        let kept = self.cache.sequences().map(|(_, sequence)| sequence);
        let running = self.requests.iter().filter_map(|request| request.sequence.as_ref());
        for sequence in kept.chain(running).filter(|sequence| sequence.owner == Some(owner)) {
            sequence.add_bytes(&mut seen, &mut bytes);
        }
        MemoryKind::ALL.map(|kind| (kind, bytes[kind as usize]))
    }

    /// Pasts that are kept beside those of running requests.
    pub fn kept_sequences(&self) -> usize {
        self.cache.len()
    }
}
