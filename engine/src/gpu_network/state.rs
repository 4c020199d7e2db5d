//! What a sequence remembers, on the device: with the meaning and the layout of `crate::state`, so that host and device
//! exchange pages and states byte by byte.

use std::ops::Range;
use std::sync::Arc;

use gpu::lanes::Lane;
use gpu::{Buffer, Device, Error};
use kernels::attention::Layout;

use super::kind_of;
use crate::state::{PAGE, StateShape};

/// The state of a sequence at one position.
pub struct GpuState {
    pub shape: StateShape,
    pub layout: Layout,
    pub position: usize,
    /// Shared between the branches of a conversation; who writes into a shared one gets a copy first.
    pub pages: Vec<Arc<Buffer<u8>>>,
    recurrent: Buffer<f32>,
    conv: Buffer<f32>,
    /// Addresses of the pages, for kernels.
    table: Buffer<u64>,
    trail: Trail,
    device: Device,
}

/// The part of a state that cannot be cut back, at one position.
pub struct GpuSnapshot {
    pub position: usize,
    recurrent: Buffer<f32>,
    conv: Buffer<f32>,
}

/// What the recurrences consumed for the last tokens, in a ring for each layer.
struct Trail {
    /// [linear layers, rows, channels and gates]
    ring: Buffer<f32>,
    rows: usize,
    covered: Range<usize>,
}

/// Pages that a new table has room for; it grows by doubling.
const FIRST_TABLE: usize = 64;

impl GpuState {
    pub fn new(device: &Device, shape: StateShape, layout: Layout, trail_tokens: usize) -> Result<GpuState, Error> {
        let width = shape.heads.channels() + 2 * shape.heads.value_heads;
        Ok(GpuState {
            shape,
            layout,
            position: 0,
            pages: Vec::new(),
            recurrent: Buffer::zeroed(device, shape.delta_layers * shape.recurrent())?,
            conv: Buffer::zeroed(device, shape.delta_layers * shape.conv())?,
            table: Buffer::new(device, FIRST_TABLE)?,
            trail: Trail {
                ring: Buffer::new(device, shape.delta_layers * trail_tokens * width)?,
                rows: trail_tokens,
                covered: 0..0,
            },
            device: device.clone(),
        })
    }

    /// Another state at this position, which shares the pages.
    pub fn branch(&self) -> Result<GpuState, Error> {
        let snapshot = self.snapshot()?;
        self.back_to(&snapshot)
    }

    pub fn snapshot(&self) -> Result<GpuSnapshot, Error> {
        let (recurrent, conv) = (self.recurrent.duplicate()?, self.conv.duplicate()?);
        Ok(GpuSnapshot { position: self.position, recurrent, conv })
    }

    /// A state at an earlier position of this one's past: shares the pages, and knows the same trail.
    pub fn back_to(&self, snapshot: &GpuSnapshot) -> Result<GpuState, Error> {
        let state = GpuState {
            shape: self.shape,
            layout: self.layout,
            position: snapshot.position,
            pages: self.pages.clone(),
            recurrent: snapshot.recurrent.duplicate()?,
            conv: snapshot.conv.duplicate()?,
            table: self.table.duplicate()?,
            trail: Trail {
                ring: self.trail.ring.duplicate()?,
                rows: self.trail.rows,
                covered: self.trail.covered.clone(),
            },
            device: self.device.clone(),
        };
        Ok(state)
    }

    /// Positions that `GpuNetwork::replay` can go to from a snapshot that lies among them.
    pub fn covered(&self) -> Range<usize> {
        self.trail.covered.clone()
    }

    /// Pages for `more` positions behind the present one, owned by this state alone. Those behind are given up.
    pub fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let bytes = self.shape.page_bytes(&self.layout);
        let needed = (self.position + more).div_ceil(PAGE);
        let first = self.position / PAGE;
        self.pages.truncate(needed);
        let mut changed = false;
        while self.pages.len() < needed {
            self.pages.push(Arc::new(Buffer::new(&self.device, bytes)?));
            changed = true;
        }
        for page in &mut self.pages[first..needed] {
            if Arc::get_mut(page).is_none() {
                *page = Arc::new(page.duplicate()?);
                changed = true;
            }
        }
        if needed > self.table.len() {
            self.table = Buffer::new(&self.device, needed.next_power_of_two())?;
            changed = true;
        }
        if changed {
            let addresses: Vec<u64> = self.pages.iter().map(|page| page.address()).collect();
            self.table.write(0, &addresses)?;
        }
        // A trail that does not end here is another past's.
        if self.trail.covered.end != self.position {
            self.trail.covered = self.position..self.position;
        }
        Ok(())
    }

    /// Values on the host, for disk and for tests: (recurrent, convolution).
    pub fn to_host(&self) -> Result<(Vec<f32>, Vec<f32>), Error> {
        Ok((self.recurrent.to_vec()?, self.conv.to_vec()?))
    }

    /// As kernels see it; the caller says which rows are its tokens.
    pub(super) fn as_lane(&self) -> Lane {
        Lane {
            pages: self.table.address(),
            recurrent: self.recurrent.address(),
            conv: self.conv.address(),
            trail: if self.trail.rows > 0 { self.trail.ring.address() } else { 0 },
            trail_rows: self.trail.rows as u32,
            position: self.position as u32,
            key_kind: kind_of(self.layout.key_format),
            value_kind: kind_of(self.layout.value_format),
            ..Lane::default()
        }
    }

    /// So many tokens went through the model.
    pub(super) fn advanced(&mut self, count: usize) {
        self.position += count;
        let covered = &mut self.trail.covered;
        *covered = covered.start.max(self.position.saturating_sub(self.trail.rows))..self.position;
    }

    pub(super) fn moved_to(&mut self, position: usize) {
        self.position = position;
        self.trail.covered.end = position;
    }

    pub(super) fn ring(&self) -> (u64, usize) {
        (self.trail.ring.address(), self.trail.rows)
    }
}
