//! What was computed and may be of use again.
//!
//! A line is one past that was computed: its tokens, its pages, the state at its end, snapshots at positions before and
//! a trail of its last tokens. A request finds the line that takes it furthest; a past that was left stays findable
//! until its memory is needed. What is kept decides how fast a request is answered, never what is answered.

use std::collections::HashSet;
use std::sync::Arc;

use kernels::attention::Layout;
use kernels::cpu::Cpu;

use crate::disk::{Disk, Loaded, Stored};
use crate::memory::{Kind, Meter};
use crate::network::{Network, Workspace};
use crate::request::{OwnerId, Reason};
use crate::state::{KvFormats, PAGE, Snapshot, State};
use crate::trail::Trail;

/// One past: `state` stands at its end.
pub(crate) struct Line {
    pub state: State,
    /// Ascending by position, none behind the end.
    pub snapshots: Vec<Arc<Snapshot>>,
    pub trail: Trail,
    /// Made for something that may never be said: given up as soon as something better is known.
    pub speculative: bool,
    /// Who asked for what it holds last.
    pub owner: Option<OwnerId>,
}

impl Line {
    /// The furthest position up to `limit` that can be reached without the model, and the snapshot to start from.
    fn reach(&self, limit: usize) -> (usize, Option<&Arc<Snapshot>>) {
        if self.state.position <= limit {
            return (self.state.position, None);
        }
        let before = self.snapshots.iter().rev().find(|snapshot| snapshot.position <= limit);
        let covered = self.trail.covered();
        match before {
            Some(snapshot) if covered.start <= snapshot.position && limit <= covered.end => (limit, Some(snapshot)),
            Some(snapshot) => (snapshot.position, Some(snapshot)),
            None => (0, None),
        }
    }

    /// Remembers the present state, once.
    pub fn take_snapshot(&mut self) {
        if self.snapshots.last().is_none_or(|last| last.position < self.state.position) {
            self.snapshots.push(Arc::new(self.state.snapshot()));
        }
    }
}

impl Line {
    /// What must hold between the parts.
    fn check(&self, tokens: usize) -> Result<(), String> {
        let position = self.state.position;
        if tokens != position {
            return Err(format!("a line of {tokens} tokens stands at {position}"));
        }
        if self.state.pages.len() < position.div_ceil(PAGE) {
            return Err(format!("{} pages for {position} positions", self.state.pages.len()));
        }
        if !self.snapshots.is_sorted_by(|a, b| a.position < b.position) {
            return Err("snapshots out of order".to_string());
        }
        if self.snapshots.last().is_some_and(|last| last.position > position) || self.trail.covered().end > position {
            return Err(format!("a snapshot or a trail behind the end at {position}"));
        }
        Ok(())
    }
}

/// Adds up what lines hold, shared parts once, and compares with what the meter counted.
pub(crate) fn check_lines<'a>(lines: impl Iterator<Item = (usize, &'a Line)>, meter: &Meter) -> Result<(), String> {
    let mut seen = HashSet::new();
    let mut bytes = [0usize; Kind::ALL.len()];
    for (tokens, line) in lines {
        line.check(tokens)?;
        bytes[Kind::Live as usize] += size_of_val(&*line.state.recurrent) + size_of_val(&*line.state.conv);
        for page in line.state.pages.iter().filter(|page| seen.insert(Arc::as_ptr(page) as usize)) {
            bytes[Kind::Pages as usize] += page.len();
        }
        for snapshot in line.snapshots.iter().filter(|snapshot| seen.insert(Arc::as_ptr(snapshot) as usize)) {
            bytes[Kind::Snapshots as usize] += size_of_val(&*snapshot.recurrent) + size_of_val(&*snapshot.conv);
        }
        for (_, size) in line.trail.pieces().filter(|(piece, _)| seen.insert(*piece)) {
            bytes[Kind::Trails as usize] += size;
        }
    }
    for kind in Kind::ALL {
        if bytes[kind as usize] != meter.bytes(kind) {
            return Err(format!("{}: {} bytes held, {} counted", kind.name(), bytes[kind as usize], meter.bytes(kind)));
        }
    }
    Ok(())
}

struct Entry {
    tokens: Vec<u32>,
    line: Line,
    used: u64,
    /// Handed to the disk, or not worth it.
    saved: bool,
}

pub(crate) struct Cache {
    entries: Vec<Entry>,
    /// Counts uses, to tell old from new: the engine knows no clock.
    uses: u64,
    budget_bytes: usize,
    meter: Meter,
    disk: Option<Disk>,
    trail_tokens: usize,
    /// A file is read for a past only where that many tokens come with it.
    worth_reading_tokens: usize,
}

/// Where a request begins.
pub(crate) struct Found {
    pub line: Option<Line>,
    pub reason: Reason,
}

impl Cache {
    pub fn new(budget_bytes: usize, trail_tokens: usize, meter: &Meter) -> Cache {
        let meter = meter.clone();
        Cache { entries: Vec::new(), uses: 0, budget_bytes, meter, disk: None, trail_tokens, worth_reading_tokens: 0 }
    }

    pub fn set_disk(&mut self, disk: Disk, worth_reading_tokens: usize) {
        (self.disk, self.worth_reading_tokens) = (Some(disk), worth_reading_tokens);
    }

    pub fn disk(&mut self) -> Option<&mut Disk> {
        self.disk.as_mut()
    }

    /// Hands one line to the disk, the one used last first. Returns whether there was one.
    pub fn save_one(&mut self) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        let unsaved = self.entries.iter_mut().filter(|entry| !entry.saved);
        let Some(entry) = unsaved.max_by_key(|entry| entry.used) else { return false };
        entry.saved = true;
        disk.save(&entry.tokens, &entry.line);
        true
    }

    /// Drops what was computed for this owner, here and on disk.
    pub fn forget(&mut self, owner: OwnerId) {
        self.entries.retain(|entry| entry.line.owner != Some(owner));
        if let Some(disk) = &mut self.disk {
            disk.forget(owner);
        }
    }

    pub fn lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.entries.iter().map(|entry| (entry.tokens.len(), &entry.line))
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Keeps a line that ended; `tokens` are those its state holds.
    pub fn keep(&mut self, tokens: Vec<u32>, line: Line) {
        if line.state.position == 0 {
            return;
        }
        self.uses += 1;
        // A line that this one only makes longer holds nothing that this one lacks.
        let layout = line.state.layout;
        self.entries.retain(|old| old.line.state.layout != layout || !tokens.starts_with(&old.tokens));
        self.entries.push(Entry { tokens, line, used: self.uses, saved: false });
        self.make_room(0);
    }

    /// The line that takes a prompt furthest, but no further than `limit`. `running` are the lines of requests that are
    /// being computed: they can be branched from, not taken.
    pub fn find(
        &mut self,
        network: &Network,
        cpu: &Cpu,
        work: &mut Workspace,
        tokens: &[u32],
        layout: Layout,
        limit: usize,
        running: &[(&[u32], &Line)],
    ) -> Found {
        self.uses += 1;
        self.read_if_worth_it(network, tokens, layout, limit);
        let kept = self.entries.iter().map(|entry| (&entry.tokens[..], &entry.line));
        let mut known = 0;
        let mut edited = false;
        let mut best: Option<(usize, usize)> = None;
        for (at, (past, line)) in kept.chain(running.iter().copied()).enumerate() {
            if line.state.layout != layout {
                continue;
            }
            let common = common(past, tokens);
            if common > known || (common == known && common == past.len()) {
                (known, edited) = (common, common < past.len());
            }
            let (reached, _) = line.reach(common.min(limit));
            if reached > 0 && best.is_none_or(|(furthest, _)| reached > furthest) {
                best = Some((reached, at));
            }
        }
        let reached = best.map_or(0, |(reached, _)| reached);
        // A template's first tokens are everybody's: to know only those is to know nothing.
        let reason = if reached == 0 {
            Reason::Cold
        } else if reached < known.min(limit) {
            Reason::Evicted { known_tokens: known }
        } else if edited && known < tokens.len() {
            Reason::Edited { at: known }
        } else {
            Reason::NewText
        };
        let line = best.map(|(reached, at)| match at.checked_sub(self.entries.len()) {
            Some(running_at) => branch(network, cpu, work, running[running_at].1, reached, &self.meter),
            None => self.begin_from(network, cpu, work, at, reached),
        });
        Found { line, reason }
    }

    /// Brings a line from disk where it takes the prompt further than any that is here.
    fn read_if_worth_it(&mut self, network: &Network, tokens: &[u32], layout: Layout, limit: usize) {
        let Some(disk) = &mut self.disk else { return };
        let here = self.entries.iter().filter(|entry| entry.line.state.layout == layout);
        let here = here.map(|entry| entry.line.reach(common(&entry.tokens, tokens).min(limit)).0).max().unwrap_or(0);
        let ours = |kv: KvFormats| kv.key == layout.key_format && kv.value == layout.value_format;
        let reach = |stored: &Stored| {
            let limit = common(&stored.tokens, tokens).min(limit);
            stored.positions.iter().rev().find(|position| **position <= limit).copied().unwrap_or(0)
        };
        let there = disk.stored().iter().enumerate().filter(|(_, stored)| ours(stored.kv));
        let best = there.map(|(at, stored)| (reach(stored), at)).max();
        let Some((_, at)) = best.filter(|(reached, _)| *reached >= here + self.worth_reading_tokens) else { return };
        let bytes = disk.stored()[at].bytes as usize;
        self.make_room(bytes);
        let Some(disk) = &mut self.disk else { return };
        let Some(loaded) = disk.load(at, &self.meter) else { return };
        let owner = disk.owner_of(at);
        let Loaded { tokens, mut snapshots, pages } = loaded;
        let Some(end) = snapshots.pop() else { return };
        let shape = network.state_shape;
        let line = Line {
            state: State::at(&end, &pages, shape, layout, &self.meter),
            snapshots: snapshots.into_iter().map(Arc::new).collect(),
            trail: Trail::new(&shape, self.trail_tokens, &self.meter),
            speculative: false,
            owner,
        };
        self.entries.push(Entry { tokens, line, used: self.uses, saved: true });
    }

    fn begin_from(&mut self, network: &Network, cpu: &Cpu, work: &mut Workspace, at: usize, reached: usize) -> Line {
        let whole = self.entries[at].line.state.position == reached;
        if whole {
            return self.entries.remove(at).line;
        }
        let line = branch(network, cpu, work, &self.entries[at].line, reached, &self.meter);
        if self.entries[at].line.speculative {
            self.entries.remove(at);
        } else {
            self.entries[at].used = self.uses;
        }
        line
    }

    /// Frees what saves the least, until `bytes` more fit under the ceiling. Returns whether they do.
    pub fn make_room(&mut self, bytes: usize) -> bool {
        while self.meter.total_bytes() + bytes > self.budget_bytes {
            let Some(victim) = self.least_valuable() else { return false };
            match victim {
                Victim::Snapshot { entry, snapshot } => drop(self.entries[entry].line.snapshots.remove(snapshot)),
                Victim::Trail { entry } => self.entries[entry].line.trail.clear(),
                Victim::Line { entry } => drop(self.entries.remove(entry)),
            }
        }
        true
    }

    /// Value is the tokens that would have to be computed again, times how likely somebody comes back, per byte.
    fn least_valuable(&self) -> Option<Victim> {
        let mut least: Option<(f64, Victim)> = None;
        let mut offer = |value: f64, bytes: usize, victim: Victim| {
            let value = value / bytes.max(1) as f64;
            if least.as_ref().is_none_or(|(smallest, _)| value < *smallest) {
                least = Some((value, victim));
            }
        };
        for (at, entry) in self.entries.iter().enumerate() {
            let line = &entry.line;
            let likely = 1.0 / (1.0 + (self.uses - entry.used) as f64) * if line.speculative { 0.1 } else { 1.0 };
            let end = line.state.position;
            let mut before = 0;
            for (i, snapshot) in line.snapshots.iter().enumerate() {
                // Voice goes back a turn or two; rarely further.
                let near = 1.0 / (1.0 + (end - snapshot.position) as f64 / 256.0);
                if Arc::strong_count(snapshot) == 1 {
                    let bytes = size_of_val(&*snapshot.recurrent) + size_of_val(&*snapshot.conv);
                    offer(
                        (snapshot.position - before) as f64 * near * likely,
                        bytes,
                        Victim::Snapshot { entry: at, snapshot: i },
                    );
                }
                before = snapshot.position;
            }
            let bytes = line.trail.own_bytes();
            if bytes > 0 {
                offer(line.trail.covered().len() as f64 / 2.0 * likely, bytes, Victim::Trail { entry: at });
            }
            // Pages that others hold too are neither freed nor lost with this line.
            let own: Vec<usize> =
                line.state.pages.iter().filter(|page| Arc::strong_count(page) == 1).map(|page| page.len()).collect();
            let bytes =
                own.iter().sum::<usize>() + size_of_val(&*line.state.recurrent) + size_of_val(&*line.state.conv);
            let tokens = (own.len() * PAGE).min(end) + 1;
            offer(tokens as f64 * likely, bytes, Victim::Line { entry: at });
        }
        least.map(|(_, victim)| victim)
    }
}

enum Victim {
    Snapshot { entry: usize, snapshot: usize },
    Trail { entry: usize },
    Line { entry: usize },
}

/// How many tokens two pasts begin with together.
fn common(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A new line from a position of another that `reach` found.
fn branch(network: &Network, cpu: &Cpu, work: &mut Workspace, from: &Line, reached: usize, meter: &Meter) -> Line {
    let trail = from.trail.branch(reached);
    let snapshots = from.snapshots.iter().filter(|snapshot| snapshot.position <= reached).cloned().collect();
    let state = match from.reach(reached) {
        (_, Some(snapshot)) => {
            let mut state = State::at(snapshot, &from.state.pages, from.state.shape, from.state.layout, meter);
            if reached > state.position {
                // The pages hold more positions than the snapshot: those up to here are part of the past as well.
                state.pages = from.state.pages[..reached.div_ceil(PAGE)].to_vec();
                network.replay(cpu, &mut state, &from.trail, reached, work);
            }
            state
        }
        _ => from.state.branch(),
    };
    Line { state, snapshots, trail, speculative: false, owner: None }
}
