//! One owner of the model: requests in, events out, one bounded piece of work at a time.

use std::collections::HashSet;
use std::sync::Arc;

use kernels::cpu::Cpu;
use kernels::format::Format;
use text::Tokenizer;
use text::grammar::GrammarEnv;

use crate::cache::{Cache, CacheLimits, Line, Rights, Sought, Sums};
use crate::disk::{Disk, DiskLimits, Owner};
use crate::error::Error;
use crate::memory::{Kind, Meter};
use crate::network::{Lane, Network, Wanted};
use crate::place::Place;
use crate::request::{Event, Finish, OwnerId, Priority, Request, SeqId};
use crate::sequence::{Reply, Sequence, Start};
use crate::snapshot::Snapshot;
use crate::state::{KvFormats, PAGE, State, StateShape};
use crate::trail::Trail;

/// How much the engine takes on at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tokens of one step: a request that comes meanwhile, and a cancel, wait no longer than this takes.
    pub prefill_chunk_tokens: usize,
    /// Sequences that hold a state.
    pub max_sequences: usize,
    /// Requests that wait for one.
    pub max_waiting: usize,
    /// Ceiling over all that is kept of sequences: pages, snapshots, trails, states.
    pub memory_bytes: usize,
    /// How recurrent states are kept at positions to come back to: one of `snapshot::FORMATS`.
    pub snapshots: Format,
    /// At most so many tokens lie between two snapshots.
    pub snapshot_spacing_tokens: usize,
    /// Tokens to whose exact position a line can go back.
    pub trail_tokens: usize,
}

impl Limits {
    /// What has to fit so that a conversation of so many tokens can be answered, gone back in and gone on with.
    pub fn bytes_of(&self, shape: &StateShape, kv: KvFormats, tokens: usize) -> Result<usize, Error> {
        let pages = tokens.div_ceil(PAGE) + 1;
        let trail = Trail::new(shape, self.trail_tokens, &Meter::default());
        // A state and the one that branches from it, what is gone back to and the two that a step may take.
        let states = 2 * shape.fixed_bytes() + 3 * shape.snapshot_bytes(self.snapshots);
        let trails = trail.bytes_of(self.trail_tokens) + trail.bytes_of(self.prefill_chunk_tokens);
        Ok(pages * shape.page_bytes(&shape.layout(kv)?) + states + trails)
    }
}

pub struct Engine {
    network: Network,
    tokenizer: Arc<Tokenizer>,
    grammars: Option<GrammarEnv>,
    place: Place,
    limits: Limits,
    /// In the order of their arrival. Those without a state wait.
    sequences: Vec<Sequence>,
    cache: Cache,
    meter: Meter,
    /// Events of requests that ended between steps.
    ended: Vec<Event>,
    next_id: u64,
    /// Requests that held a state and are done.
    done: u64,
    sums: Sums,
    notes: Vec<String>,
}

/// Of a trail, for what is said in a turn and answered: a hundred tokens.
const TRAIL_PIECES: usize = 8;

/// Who comes while something is computed that nobody waits for waits for a part of a chunk, and not for a whole one.
const BACKGROUND_PARTS: usize = 4;

impl Engine {
    /// An engine that computes on the host's processors.
    pub fn new(network: Network, tokenizer: Arc<Tokenizer>, cpu: Cpu, limits: Limits) -> Engine {
        Engine::at(Place::host(cpu), network, tokenizer, limits)
    }

    pub fn at(place: Place, network: Network, tokenizer: Arc<Tokenizer>, limits: Limits) -> Engine {
        let meter = place.meter();
        meter.set_ceiling(limits.memory_bytes);
        let of_cache = CacheLimits {
            budget_bytes: limits.memory_bytes,
            trail_tokens: limits.trail_tokens,
            snapshots: limits.snapshots,
            needed_lines: limits.max_sequences,
        };
        Engine {
            cache: Cache::new(of_cache, &meter),
            meter,
            network,
            tokenizer,
            grammars: None,
            place,
            limits,
            sequences: Vec::new(),
            ended: Vec::new(),
            next_id: 0,
            done: 0,
            sums: Sums::default(),
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
        let owner = Owner { fingerprint: self.network.model.fingerprint, shape: self.network.state_shape };
        let worth_reading_tokens = limits.min_tokens;
        match Disk::open(limits, owner) {
            Ok(disk) => self.cache.set_disk(disk, worth_reading_tokens),
            Err(note) => self.notes.push(note),
        }
    }

    /// Hands one past to the disk's writer. Returns whether there was one that is not there yet. In the middle of work it
    /// costs nobody anything, so that it may be left for later where memory is short.
    pub fn save_one(&mut self) -> bool {
        self.cache.save_one(self.sequences.is_empty())
    }

    /// For the end: everything that is worth it goes to disk, and is there when this returns.
    pub fn save_all(&mut self) {
        for sequence in std::mem::take(&mut self.sequences) {
            self.keep(sequence);
        }
        while self.cache.save_one(true) {}
        if let Some(disk) = self.cache.disk() {
            disk.flush();
        }
    }

    /// Drops what was computed for an owner, here and on disk, and ends what is being computed for it. What others made
    /// of the same words is theirs and stays.
    pub fn forget(&mut self, owner: OwnerId) {
        let sequences = std::mem::take(&mut self.sequences);
        let (theirs, others) = sequences.into_iter().partition(|sequence| sequence.owner == Some(owner));
        self.sequences = others;
        let theirs: Vec<Sequence> = theirs;
        self.done += theirs.len() as u64;
        for mut sequence in theirs {
            let finish = Finish::Cancelled { rest: sequence.reply.rest() };
            self.ended.push(Event::Done { id: sequence.id, finish, report: sequence.report() });
        }
        self.cache.forget(owner);
    }

    /// What happened to files that were left out, one line each, since this was asked last.
    pub fn take_notes(&mut self) -> Vec<String> {
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(self.cache.disk().map(|disk| std::mem::take(&mut disk.notes)).unwrap_or_default());
        notes
    }

    pub fn limits(&self) -> &Limits {
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
        self.place.failure()
    }

    /// Takes a request. An error here means that nothing was taken and no event will come.
    pub fn submit(&mut self, request: Request) -> Result<SeqId, Error> {
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
        let id = SeqId(self.next_id);
        self.next_id += 1;
        let reply = Reply::new(&request, &self.network.model.stop_tokens, &self.tokenizer, grammar);
        self.sequences.push(Sequence {
            id,
            priority: request.priority,
            speculative: request.speculative,
            owner: request.owner,
            ctx_size: request.ctx_size,
            kv: request.kv,
            max_new_tokens: request.max_new_tokens,
            prompt_tokens: request.tokens.len(),
            given_tokens: request.given_tokens.unwrap_or(request.tokens.len()),
            tokens: request.tokens,
            marks: request.marks,
            line: None,
            parked_at: None,
            start: None,
            reply,
        });
        Ok(id)
    }

    /// Touches a piece of the memory that a turn takes which leaves its past before the end: a state, two snapshots, a
    /// trail, a page. Returns whether there was one to touch. For when nobody waits.
    pub fn prepare_one(&self) -> bool {
        let (shape, format) = (&self.network.state_shape, self.limits.snapshots);
        let values = size_of::<f32>();
        let [recurrent, conv] = [shape.recurrent(), shape.conv()].map(|count| shape.delta_layers * count * values);
        let snapshot = shape.snapshot_bytes(format) - conv;
        let page = self.cache.lines().next().map_or(0, |(_, line)| shape.page_bytes(&line.state.layout));
        self.meter.stock(&[
            (recurrent, 1),
            (conv, 3),
            (snapshot, 2),
            (Trail::piece_bytes(shape), TRAIL_PIECES),
            (page, 1),
        ])
    }

    /// A running reply has come to a place where the future may branch, as the end of a sentence is. Where there is no
    /// room it is not remembered.
    pub fn mark(&mut self, id: SeqId) {
        let Some(at) = self.sequences.iter().position(|sequence| sequence.id == id) else { return };
        let bytes = self.network.state_shape.snapshot_bytes(self.limits.snapshots);
        if self.make_room(bytes, self.sequences[at].rights())
            && let Some(line) = &mut self.sequences[at].line
        {
            line.take_snapshot(self.limits.snapshots);
        }
    }

    /// Ends a request; its `Done` comes with the next step. A request that is not there has ended already.
    pub fn cancel(&mut self, id: SeqId) {
        if let Some(at) = self.sequences.iter().position(|sequence| sequence.id == id) {
            let mut sequence = self.sequences.remove(at);
            let finish = Finish::Cancelled { rest: sequence.reply.rest() };
            self.ended.push(Event::Done { id, finish, report: sequence.report() });
            self.keep(sequence);
        }
    }

    /// One batch: a token for each reply that is being written, and a chunk of prompt. Returns whether there is more to
    /// do. A step takes no longer than one chunk.
    pub fn step(&mut self, events: &mut Vec<Event>) -> bool {
        events.append(&mut self.ended);
        if self.place.failure().is_some() {
            return self.lose(events);
        }
        self.admit(events);
        // Somebody waits for a reply: what nobody waits for stands still.
        let chosen = loop {
            let Some(first) = self.sequences.iter().filter(|s| s.line.is_some()).map(|s| s.priority).min() else {
                return !self.sequences.is_empty();
            };
            let chosen = self.choose(first);
            let rights = self.sequences[chosen[0].0].rights();
            if self.make_room(self.bytes_of(&chosen), rights) {
                break chosen;
            }
            self.give_way(events);
        };
        self.run(&chosen, events);
        if self.place.failure().is_some() {
            return self.lose(events);
        }
        !self.sequences.is_empty()
    }

    /// What computes has failed and everything it held is gone. What was written to disk is not: another engine goes on
    /// from there.
    fn lose(&mut self, events: &mut Vec<Event>) -> bool {
        let reason = self.failure().unwrap_or_default().to_string();
        for sequence in std::mem::take(&mut self.sequences) {
            events.push(Event::Failed { id: sequence.id, error: Error::Lost { reason: reason.clone() } });
        }
        false
    }

    /// Which sequences the next step takes further, and how far.
    fn choose(&self, priority: Priority) -> Vec<(usize, usize)> {
        let mut budget = self.limits.prefill_chunk_tokens;
        if priority == Priority::Background {
            budget = (budget / BACKGROUND_PARTS).max(1);
        }
        let mut chosen: Vec<(usize, usize)> = Vec::new();
        for decoding in [true, false] {
            for (at, sequence) in self.sequences.iter().enumerate() {
                let ours = sequence.line.is_some() && sequence.priority == priority;
                let count = sequence.pending().len().min(budget.max(usize::from(decoding)));
                if ours && sequence.is_decoding() == decoding && count > 0 {
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
    fn give_way(&mut self, events: &mut Vec<Event>) {
        let running = self.sequences.iter().enumerate().filter(|(_, s)| s.line.is_some());
        let Some((_, _, at)) = running.clone().map(|(at, s)| (s.priority, s.id, at)).max() else { return };
        if running.count() > 1 {
            self.sequences[at].parked_at = Some(self.done);
            self.set_aside(at);
            return;
        }
        let sequence = &self.sequences[at];
        // A reply that somebody needs soon is worth more than what somebody may need; a warm prompt is not.
        let needed = self.bytes_of(&[(at, 1)]);
        if sequence.max_new_tokens > 0 && sequence.rights() != Rights::All && self.make_room(needed, Rights::All) {
            return;
        }
        self.give_up(at, events);
    }

    fn give_up(&mut self, at: usize, events: &mut Vec<Event>) {
        let sequence = self.sequences.remove(at);
        events.push(Event::Failed { id: sequence.id, error: Error::NoRoom { budget_bytes: self.limits.memory_bytes } });
        self.keep(sequence);
    }

    fn make_room(&mut self, bytes: usize, rights: Rights) -> bool {
        let mut running: Vec<&mut Line> = self.sequences.iter_mut().filter_map(|s| s.line.as_mut()).collect();
        self.cache.make_room(bytes, rights, &mut running)
    }

    fn set_aside(&mut self, at: usize) {
        let sequence = &mut self.sequences[at];
        if let Some(line) = sequence.line.take() {
            self.cache.keep(sequence.tokens[..line.state.position].to_vec(), line);
        }
    }

    /// Gives a line to those that wait, the most urgent first; who is more urgent takes the place of who is less.
    fn admit(&mut self, events: &mut Vec<Event>) {
        loop {
            let running = self.sequences.iter().filter(|s| s.line.is_some()).count();
            let parked = |s: &Sequence| running > 0 && s.parked_at == Some(self.done);
            let waiting = self.sequences.iter().enumerate().filter(|(_, s)| s.line.is_none() && !parked(s));
            let Some((at, priority)) = waiting.map(|(at, s)| (at, s.priority)).min_by_key(|(at, p)| (*p, *at)) else {
                return;
            };
            let less_urgent = self.sequences.iter().enumerate().filter(|(_, s)| s.line.is_some());
            let less_urgent = less_urgent.map(|(at, s)| (s.priority, s.id, at)).max().filter(|(p, _, _)| *p > priority);
            if running >= self.limits.max_sequences.max(1) {
                let Some((_, _, last)) = less_urgent else { return };
                self.set_aside(last);
            }
            // A state, and a snapshot where it begins at a mark.
            let shape = self.network.state_shape;
            let bytes = shape.fixed_bytes() + shape.snapshot_bytes(self.limits.snapshots);
            let rights = self.sequences[at].rights();
            if let Ok(layout) = shape.layout(self.sequences[at].kv) {
                self.cache.touch(&self.sequences[at].tokens, layout);
            }
            if !self.make_room(bytes, rights) {
                if let Some((_, _, last)) = less_urgent {
                    self.sequences[last].parked_at = Some(self.done);
                    self.set_aside(last);
                } else if running > 0 {
                    self.sequences[at].parked_at = Some(self.done);
                } else if self.sequences[at].max_new_tokens == 0 || !self.make_room(bytes, Rights::All) {
                    self.give_up(at, events);
                }
                continue;
            }
            if let Err(error) = self.begin(at, events) {
                let id = self.sequences.remove(at).id;
                events.push(Event::Failed { id, error });
            }
        }
    }

    /// Finds how much of a sequence is known already.
    fn begin(&mut self, at: usize, events: &mut Vec<Event>) -> Result<(), Error> {
        let shape = self.network.state_shape;
        let sequence = &self.sequences[at];
        let layout = shape.layout(sequence.kv)?;
        // The last token has to go through the model to say what follows it.
        let limit = sequence.tokens.len() - usize::from(sequence.max_new_tokens > 0);
        let running: Vec<(&[u32], &Line)> = self
            .sequences
            .iter()
            .filter_map(|other| other.line.as_ref().map(|line| (&other.tokens[..line.state.position], line)))
            .collect();
        let (network, place) = (&self.network, &mut self.place);
        let sought = Sought { tokens: &sequence.tokens, layout, limit, rights: sequence.rights() };
        let found = self.cache.find(network, place, sought, &running);
        let mut line = match found.line {
            Some(line) => line,
            None => Line {
                state: State::new(shape, sequence.kv, &self.meter)?,
                snapshots: Vec::new(),
                trail: Trail::new(&shape, self.limits.trail_tokens, &self.meter),
                speculative: false,
                owner: None,
                given_tokens: 0,
            },
        };
        (line.speculative, line.owner) = (sequence.speculative, sequence.owner);
        line.given_tokens = sequence.given_tokens;
        let reused_tokens = line.state.position;
        if sequence.marks.contains(&reused_tokens) {
            line.take_snapshot(self.limits.snapshots);
        }
        let sequence = &mut self.sequences[at];
        sequence.line = Some(line);
        if sequence.start.is_none() {
            sequence.start = Some(Start { reused_tokens, reason: found.reason });
            events.push(Event::Started { id: sequence.id, reused_tokens, reason: found.reason });
        }
        if sequence.pending().is_empty() && sequence.max_new_tokens == 0 {
            let sequence = self.sequences.remove(at);
            events.push(Event::Done { id: sequence.id, finish: Finish::Warm, report: sequence.report() });
            self.keep(sequence);
        }
        Ok(())
    }

    /// Computes so many pending tokens of each of these sequences and lets those go on that have a next token.
    fn run(&mut self, chosen: &[(usize, usize)], events: &mut Vec<Event>) {
        let mut remembered = self.room_on_the_way(chosen);
        let mut lanes = Vec::with_capacity(chosen.len());
        let mut rest = &mut self.sequences[..];
        let mut passed = 0;
        for ((at, count), snapshots) in chosen.iter().zip(&mut remembered) {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(at - passed + 1);
            (rest, passed) = (tail, at + 1);
            let Some(Sequence { tokens, line: Some(line), max_new_tokens, .. }) = head.last_mut() else { continue };
            let position = line.state.position;
            let wanted = position + count == tokens.len() && *max_new_tokens > 0;
            lanes.push(Lane {
                state: &mut line.state,
                tokens: &tokens[position..][..*count],
                wanted: if wanted { Wanted::Last } else { Wanted::Nothing },
                trail: Some(&mut line.trail),
                snapshots,
            });
        }
        let Some(logits) = self.place.forward(&self.network, &mut lanes) else { return };
        let mut rows = logits.chunks_exact_mut(self.network.model.shape.vocab);
        let mut ended = Vec::new();
        for ((at, _), snapshots) in chosen.iter().zip(remembered) {
            let sequence = &mut self.sequences[*at];
            if let Some(line) = &mut sequence.line {
                line.snapshots.extend(snapshots.into_iter().map(Arc::new));
            }
            if !sequence.pending().is_empty() {
                continue;
            }
            if sequence.max_new_tokens == 0 {
                events.push(Event::Done { id: sequence.id, finish: Finish::Warm, report: sequence.report() });
                ended.push(sequence.id);
            } else if let Some(logits) = rows.next()
                && !sequence.go_on(logits, &self.network.model.stop_tokens, &self.tokenizer, events)
            {
                ended.push(sequence.id);
            }
        }
        for id in ended {
            if let Some(at) = self.sequences.iter().position(|sequence| sequence.id == id) {
                let sequence = self.sequences.remove(at);
                self.keep(sequence);
            }
        }
    }

    fn keep(&mut self, sequence: Sequence) {
        self.done += 1;
        let Sequence { mut tokens, line: Some(line), .. } = sequence else { return };
        tokens.truncate(line.state.position);
        self.cache.keep(tokens, line);
    }

    /// Room for the states that these sequences pass and should remember, the last ones first where there is little.
    fn room_on_the_way(&mut self, chosen: &[(usize, usize)]) -> Vec<Vec<Snapshot>> {
        let (shape, format) = (self.network.state_shape, self.limits.snapshots);
        let needed = self.bytes_of(chosen) + shape.snapshot_bytes(format);
        let mut remembered = Vec::with_capacity(chosen.len());
        for (at, count) in chosen {
            let (stops, rights) =
                (self.sequences[*at].stops(*count, self.limits.snapshot_spacing_tokens), self.sequences[*at].rights());
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

    /// The most that these tokens may allocate: pages, and a trail for each sequence.
    fn bytes_of(&self, chosen: &[(usize, usize)]) -> usize {
        let shape = &self.network.state_shape;
        let lines = chosen.iter().filter_map(|(at, count)| Some((self.sequences[*at].line.as_ref()?, *count)));
        lines
            .map(|(line, count)| {
                let (position, pages) = (line.state.position, line.state.pages.len());
                let needed = (position + count).div_ceil(PAGE) - position / PAGE;
                let shared = pages - position / PAGE;
                (needed.max(shared)) * shape.page_bytes(&line.state.layout) + line.trail.bytes_of(count)
            })
            .sum()
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
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
        let waiting = self.sequences.iter().filter(|s| s.line.is_none() && s.priority == request.priority).count();
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
        let running = self.sequences.iter().filter_map(|s| Some((s.position(), s.line.as_ref()?)));
        self.sums.check(self.cache.lines().chain(running), &self.meter, self.limits.memory_bytes)
    }

    /// Requests that are not done, by priority.
    pub fn load(&self, priority: Priority) -> usize {
        self.sequences.iter().filter(|sequence| sequence.priority == priority).count()
    }

    /// Bytes that are kept of sequences, by kind.
    pub fn memory_bytes(&self, kind: Kind) -> usize {
        self.meter.bytes(kind)
    }

    /// Bytes that are kept for this owner, by kind. What several owners share counts for each.
    pub fn owner_bytes(&self, owner: OwnerId) -> [(Kind, usize); Kind::ALL.len()] {
        let mut bytes = [0; Kind::ALL.len()];
        let mut seen = HashSet::new();
        let kept = self.cache.lines().map(|(_, line)| line);
        let running = self.sequences.iter().filter_map(|sequence| sequence.line.as_ref());
        for line in kept.chain(running).filter(|line| line.owner == Some(owner)) {
            line.add_bytes(&mut seen, &mut bytes);
        }
        Kind::ALL.map(|kind| (kind, bytes[kind as usize]))
    }

    /// Pasts that are kept beside those of running requests.
    pub fn kept_lines(&self) -> usize {
        self.cache.len()
    }
}
