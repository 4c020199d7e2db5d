//! What changes from step to step: tokens, whose they are, and where everything lies. One copy brings it to the device.

use bytemuck::Pod;
use gpu::lanes::Lane;
use gpu::{Buffer, Device, Error};

use crate::recurrence_log::RecurrenceLog;
use crate::snapshot::{Snapshot, SnapshotCopy};
use crate::state::SequenceState;

pub(super) struct StepInputs {
    lanes: Vec<Lane>,
    /// The rows of lanes in pieces, from one place to come back to to the next: the first piece of each lane that has more
    /// than one, or is one, then the second ones. Empty: every lane is one.
    stretches: Vec<RecurrenceSpan>,
    tokens: Vec<u32>,
    lane_of_row: Vec<u32>,
    /// Rows of which logits are wanted.
    wanted: Vec<u32>,
    /// Where each row goes in its lane's recurrence log, or comes from.
    log_rows: Vec<u64>,
    has_log: bool,
    /// Addresses of pages, lane after lane.
    pages: Vec<u64>,
    /// All of it, as it lies on the device.
    bytes: Vec<u8>,
    there: Buffer<u8>,
}

/// What the recurrences of a step go over without a stop.
#[derive(Default)]
pub(super) struct RecurrenceSpan {
    lanes: Vec<Lane>,
    /// Address of the lanes.
    pub at: u64,
    /// Taken at the end of it.
    pub taken: Vec<SnapshotCopy>,
}

impl RecurrenceSpan {
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Rows of the lane with the most.
    pub fn longest(&self) -> usize {
        longest(&self.lanes)
    }
}

fn longest(lanes: &[Lane]) -> usize {
    lanes.iter().map(|lane| lane.count as usize).max().unwrap_or(0)
}

/// Addresses on the device, for kernels. Those before the pages hang on nothing but the numbers of rows and lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct InputAddresses {
    pub lanes: u64,
    /// 0: no row has a recurrence log.
    pub log_rows: u64,
    pub tokens: u64,
    pub lane_of_row: u64,
    pub wanted: u64,
}

impl StepInputs {
    pub fn new(device: &Device) -> Result<StepInputs, Error> {
        Ok(StepInputs {
            lanes: Vec::new(),
            stretches: Vec::new(),
            tokens: Vec::new(),
            lane_of_row: Vec::new(),
            wanted: Vec::new(),
            log_rows: Vec::new(),
            has_log: false,
            pages: Vec::new(),
            bytes: Vec::new(),
            there: Buffer::new(device, 0)?,
        })
    }

    pub fn clear(&mut self) {
        self.lanes.clear();
        self.stretches.clear();
        [&mut self.tokens, &mut self.lane_of_row, &mut self.wanted].into_iter().for_each(Vec::clear);
        [&mut self.log_rows, &mut self.pages].into_iter().for_each(Vec::clear);
        self.has_log = false;
    }

    /// The next `count` rows are tokens of this state. They lie in the recurrence log from the state's position on.
    pub fn add_lane(&mut self, state: &SequenceState, count: usize, log: Option<&RecurrenceLog>) -> Result<(), Error> {
        let (index, first) = (self.lanes.len() as u32, self.lane_of_row.len());
        self.lanes.push(Lane {
            // Where its pages begin among all, until it is known where those lie.
            pages: self.pages.len() as u64,
            recurrent: state.recurrent.address()?,
            conv: state.conv.address()?,
            first: first as u32,
            count: count as u32,
            position: state.position as u32,
            key_kind: super::kind_of(state.layout.key_format),
            value_kind: super::kind_of(state.layout.value_format),
            unused: 0,
        });
        for page in &state.pages {
            self.pages.push(page.address()?);
        }
        self.lane_of_row.resize(first + count, index);
        for position in state.position..state.position + count {
            self.log_rows.push(log.map_or(Ok(0), |log| log.address(position))?);
        }
        self.has_log |= log.is_some();
        Ok(())
    }

    /// Of the lane that was added last a snapshot is taken where each of these stands, which is behind some of its rows and
    /// before others. To be called for all lanes or for none.
    pub fn add_stops(&mut self, state: &SequenceState, snapshots: &[&Snapshot]) -> Result<(), Error> {
        let Some(lane) = self.lanes.last().copied() else { return Ok(()) };
        let end = state.position + lane.count as usize;
        let stops = snapshots.iter().map(|snapshot| snapshot.position).chain([end]);
        let mut begin = state.position;
        for (number, stop) in stops.enumerate() {
            if self.stretches.len() == number {
                self.stretches.push(RecurrenceSpan::default());
            }
            let stretch = &mut self.stretches[number];
            let first = lane.first + (begin - state.position) as u32;
            stretch.lanes.push(Lane { first, count: (stop - begin) as u32, pages: 0, ..lane });
            if let Some(snapshot) = snapshots.get(number) {
                stretch.taken.push(SnapshotCopy::of(state, snapshot)?);
            }
            begin = stop;
        }
        Ok(())
    }

    /// Empty: all lanes are one.
    pub fn stretches(&self) -> &[RecurrenceSpan] {
        &self.stretches
    }

    pub fn add_tokens(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
    }

    pub fn want(&mut self, rows: std::ops::Range<usize>) {
        self.wanted.extend(rows.map(|row| row as u32));
    }

    pub fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Rows and lanes, and the rows of the lane with the most.
    pub fn sizes(&self) -> (usize, usize, usize) {
        (self.lane_of_row.len(), self.lanes.len(), longest(&self.lanes))
    }

    /// Copies everything to the device.
    pub fn send(&mut self) -> Result<InputAddresses, Error> {
        let bytes = size_of_val(&*self.lanes)
            + [&self.log_rows, &self.pages].map(|values| size_of_val(&**values)).iter().sum::<usize>()
            + [&self.tokens, &self.lane_of_row, &self.wanted]
                .map(|values| size_of_val(&**values))
                .iter()
                .sum::<usize>()
            + self.stretches.iter().map(|stretch| size_of_val(&*stretch.lanes)).sum::<usize>()
            + ALIGNED_TO * (6 + self.stretches.len());
        if self.there.len() < bytes {
            self.there = Buffer::new(&self.there.device().clone(), bytes.next_power_of_two())?;
        }
        let base = self.there.address();
        let mut next = 0;
        let mut place = |bytes: usize| {
            let at = next;
            next = (at + bytes).next_multiple_of(ALIGNED_TO);
            base + at as u64
        };
        let mut places = InputAddresses {
            lanes: place(size_of_val(&*self.lanes)),
            log_rows: place(size_of_val(&*self.log_rows)),
            tokens: place(self.lane_of_row.len() * size_of::<u32>()),
            lane_of_row: place(size_of_val(&*self.lane_of_row)),
            wanted: place(size_of_val(&*self.wanted)),
        };
        let pages = place(size_of_val(&*self.pages));
        for stretch in &mut self.stretches {
            stretch.at = place(size_of_val(&*stretch.lanes));
        }
        for lane in &mut self.lanes {
            lane.pages = pages + lane.pages * size_of::<u64>() as u64;
        }
        self.bytes.clear();
        append(&mut self.bytes, &self.lanes);
        append(&mut self.bytes, &self.log_rows);
        // What is replayed has no tokens any more.
        self.tokens.resize(self.lane_of_row.len(), 0);
        [&self.tokens, &self.lane_of_row, &self.wanted].into_iter().for_each(|all| append(&mut self.bytes, all));
        append(&mut self.bytes, &self.pages);
        self.stretches.iter().for_each(|stretch| append(&mut self.bytes, &stretch.lanes));
        self.there.write(0, &self.bytes)?;
        if !self.has_log {
            places.log_rows = 0;
        }
        Ok(places)
    }
}

/// So that kernels may read whole lanes at once.
const ALIGNED_TO: usize = 16;

fn append<T: Pod>(bytes: &mut Vec<u8>, values: &[T]) {
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes.resize(bytes.len().next_multiple_of(ALIGNED_TO), 0);
}
