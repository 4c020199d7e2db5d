//! Inputs of a step: tokens, their lanes, and the addresses of states, pages and log rows. One copy brings them to the
//! device.

use bytemuck::Pod;
use gpu::attention::{TURNED_KEYS, TURNED_VALUES};
use gpu::lanes::LaneArguments;
use gpu::{Buffer, Device, Error};

use crate::recurrence_log::RecurrenceLog;
use crate::snapshot::{Snapshot, SnapshotCopy};
use crate::state::SequenceState;

pub(super) struct StepInputs {
    lanes: Vec<LaneArguments>,
    /// Lanes cut at their snapshots: the first span has the rows of each lane up to its first snapshot or its end, the
    /// second those up to the next one, and so on. Empty if no lane has a snapshot before its end.
    spans: Vec<RecurrenceSpan>,
    drafts: DraftSpan,
    tokens: Vec<u32>,
    lane_of_row: Vec<u32>,
    wanted: Vec<u32>,   // rows with wanted logits
    log_rows: Vec<u64>, // address of each row in its lane's recurrence log
    has_log: bool,
    pages: Vec<u64>, // addresses of pages, lane after lane
    bytes: Vec<u8>,  // all inputs, in the layout of the device
    there: Buffer<u8>,
}

#[derive(Default)]
pub(super) struct RecurrenceSpan {
    lanes: Vec<LaneArguments>,
    pub at: u64,                   // address of the lanes
    pub copies: Vec<SnapshotCopy>, // snapshots at the end of the span
}

#[derive(Default)]
pub(super) struct DraftSpan {
    pub span: RecurrenceSpan,
    states: Vec<[u64; 2]>,
}

impl DraftSpan {
    /// Lists for each lane, of the recurrence and of the convolution: the address of its state, and the address for the
    /// copy of one layer.
    pub fn copies(&self) -> impl Iterator<Item = [[u64; 2]; 2]> + '_ {
        let lanes = self.states.iter().zip(&self.span.lanes);
        lanes.map(|([recurrent, conv], lane)| [[*recurrent, lane.recurrent], [*conv, lane.conv]])
    }
}

impl RecurrenceSpan {
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    pub fn longest(&self) -> usize {
        longest(&self.lanes)
    }
}

fn longest(lanes: &[LaneArguments]) -> usize {
    lanes.iter().map(|lane| lane.count as usize).max().unwrap_or(0)
}

/// Addresses of inputs on the device. They depend only on the numbers of rows and lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct InputAddresses {
    pub lanes: u64,
    pub log_rows: u64, // 0: no row has a recurrence log
    pub tokens: u64,
    pub lane_of_row: u64,
    pub wanted: u64,
}

impl StepInputs {
    pub fn new(device: &Device) -> Result<StepInputs, Error> {
        Ok(StepInputs {
            lanes: Vec::new(),
            spans: Vec::new(),
            drafts: DraftSpan::default(),
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
        self.spans.clear();
        self.drafts = DraftSpan::default();
        [&mut self.tokens, &mut self.lane_of_row, &mut self.wanted].into_iter().for_each(Vec::clear);
        [&mut self.log_rows, &mut self.pages].into_iter().for_each(Vec::clear);
        self.has_log = false;
    }

    /// Returns whether values of some lanes are rotated.
    pub fn turns(&self) -> bool {
        self.lanes.iter().any(|lane| lane.turned & TURNED_VALUES != 0)
    }

    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub fn add_lane(&mut self, state: &SequenceState, count: usize, log: Option<&RecurrenceLog>) -> Result<(), Error> {
        let (index, first) = (self.lanes.len() as u32, self.lane_of_row.len());
        self.lanes.push(LaneArguments {
            // The index of its first page, which `send` replaces by an address.
            pages: self.pages.len() as u64,
            recurrent: state.recurrent.address()?,
            conv: state.conv.address()?,
            first: first as u32,
            count: count as u32,
            position: state.position as u32,
            key_kind: super::kind_of(state.layout.key_format),
            value_kind: super::kind_of(state.layout.value_format),
            turned: (u32::from(state.layout.key_signs.is_some()) * TURNED_KEYS)
                | (u32::from(state.layout.value_signs.is_some()) * TURNED_VALUES),
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

    /// Cuts the last lane at these snapshots, which are before its end and its drafts. Callers do this for all lanes or
    /// for none.
    pub fn add_stops(&mut self, state: &SequenceState, snapshots: &[&Snapshot], drafts: usize) -> Result<(), Error> {
        let Some(lane) = self.lanes.last().copied() else { return Ok(()) };
        let end = state.position + lane.count as usize - drafts;
        if drafts > 0 {
            let first = lane.first + lane.count - drafts as u32;
            self.drafts.span.lanes.push(LaneArguments { first, count: drafts as u32, pages: 0, ..lane });
            self.drafts.states.push([lane.recurrent, lane.conv]);
        }
        let stops = snapshots.iter().map(|snapshot| snapshot.position).chain([end]);
        let mut begin = state.position;
        for (number, stop) in stops.enumerate() {
            if self.spans.len() == number {
                self.spans.push(RecurrenceSpan::default());
            }
            let span = &mut self.spans[number];
            let first = lane.first + (begin - state.position) as u32;
            span.lanes.push(LaneArguments { first, count: (stop - begin) as u32, pages: 0, ..lane });
            if let Some(snapshot) = snapshots.get(number) {
                span.copies.push(SnapshotCopy::of(state, snapshot)?);
            }
            begin = stop;
        }
        Ok(())
    }

    /// Gives each lane with drafts its place behind these addresses, with the given numbers of values for the
    /// recurrence and for the convolution.
    pub fn place_drafts(&mut self, [recurrent, conv]: [u64; 2], [recurrences, inputs]: [usize; 2]) {
        for (at, lane) in self.drafts.span.lanes.iter_mut().enumerate() {
            let behind = |from: u64, values: usize| from + (at * values * size_of::<f32>()) as u64;
            (lane.recurrent, lane.conv) = (behind(recurrent, recurrences), behind(conv, inputs));
        }
    }

    pub fn drafts(&self) -> &DraftSpan {
        &self.drafts
    }

    pub fn spans(&self) -> &[RecurrenceSpan] {
        &self.spans
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

    pub fn rows_of_lanes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.lanes.iter().map(|lane| (lane.first as usize, lane.count as usize))
    }

    pub fn sizes(&self) -> (usize, usize, usize) {
        // rows, lanes, and most rows of a lane
        (self.lane_of_row.len(), self.lanes.len(), longest(&self.lanes))
    }

    pub fn send(&mut self) -> Result<InputAddresses, Error> {
        // A replay has no tokens.
        self.tokens.resize(self.lane_of_row.len(), 0);
        // Parts whose size depends on more than the numbers of rows and lanes come last.
        self.bytes.clear();
        let lanes = append(&mut self.bytes, &self.lanes);
        let log_rows = append(&mut self.bytes, &self.log_rows);
        let [tokens, lane_of_row, wanted] =
            [&self.tokens, &self.lane_of_row, &self.wanted].map(|numbers| append(&mut self.bytes, numbers));
        let pages = append(&mut self.bytes, &self.pages);
        for span in self.spans.iter_mut().chain([&mut self.drafts.span]) {
            span.at = append(&mut self.bytes, &span.lanes);
        }
        if self.there.len() < self.bytes.len() {
            self.there = Buffer::new(&self.there.device().clone(), self.bytes.len().next_power_of_two())?;
        }
        let base = self.there.address();
        for lane in &mut self.lanes {
            lane.pages = base + pages + lane.pages * size_of::<u64>() as u64;
        }
        for span in self.spans.iter_mut().chain([&mut self.drafts.span]) {
            span.at += base;
        }
        // With the addresses of their pages now.
        self.bytes[..size_of_val(&*self.lanes)].copy_from_slice(bytemuck::cast_slice(&self.lanes));
        self.there.write(0, &self.bytes)?;
        Ok(InputAddresses {
            lanes: base + lanes,
            log_rows: if self.has_log { base + log_rows } else { 0 },
            tokens: base + tokens,
            lane_of_row: base + lane_of_row,
            wanted: base + wanted,
        })
    }
}

const ALIGNED_TO: usize = 16; // kernels read whole lanes at once

fn append<T: Pod>(bytes: &mut Vec<u8>, values: &[T]) -> u64 {
    let at = bytes.len();
    bytes.extend_from_slice(bytemuck::cast_slice(values));
    bytes.resize(bytes.len().next_multiple_of(ALIGNED_TO), 0);
    at as u64
}
