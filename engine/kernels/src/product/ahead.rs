//! Prefetches of panels.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Panels of many rows that are worked on together.
pub(super) const TOGETHER: usize = 2;
/// Prefetch distance of few rows: the memory's latency in bytes at its full speed.
pub(super) const AHEAD: usize = 8192; // not a window: bytes
const BLOCKS_AHEAD: usize = 2; // prefetch distance of many rows, in blocks of two panels

#[inline(always)]
pub(super) fn ask(place: *const u8) {
    // SAFETY: every x86-64 processor has this instruction, which reads nothing.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
}

pub(super) struct Ahead {
    places: [*const u8; TOGETHER],
    /// Lines of a block that are still to be prefetched, and their number with each group.
    left: usize,
    at_once: usize,
}

impl Ahead {
    pub fn new(panels: [&[u8]; TOGETHER], block: usize, block_bytes: usize, groups: usize) -> Ahead {
        let wanted = (block + BLOCKS_AHEAD) * block_bytes;
        // Behind the last block of two panels the next two begin.
        let from = if wanted < panels[0].len() { wanted } else { wanted + (TOGETHER - 1) * panels[0].len() };
        let lines = block_bytes.div_ceil(64);
        let places = panels.map(|panel| panel.as_ptr().wrapping_add(from));
        Ahead { places, left: lines, at_once: lines.div_ceil(groups) }
    }

    #[inline(always)]
    pub fn ask(&mut self) {
        for _ in 0..self.at_once.min(self.left) {
            for place in &mut self.places {
                ask(*place);
                *place = place.wrapping_add(64);
            }
            self.left -= 1;
        }
    }
}
