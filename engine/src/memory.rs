//! What the engine holds, counted where it is allocated and freed.
//!
//! Pages, states and snapshots are large, live for seconds to days and die in no order: a heap that holds them keeps the
//! holes. So each large piece is a mapping of its own, which the system has back the moment it is dropped, and what is
//! counted is what the process takes, but for the rest of each piece's last 4 KiB.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytemuck::Pod;
use memmap2::MmapMut;

/// Smaller pieces are left to the heap: a mapping costs a system call and the rest of a page.
const MAPPED_BYTES: usize = 1 << 16; // not a window: bytes of a piece

/// A clone counts into the same sums.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    counts: Arc<[AtomicUsize; Kind::COUNT]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Keys and values.
    Pages,
    /// Recurrent and convolution states at positions to come back to.
    Snapshots,
    /// What the recurrences consumed for the last tokens.
    Trails,
    /// States of sequences that are being computed.
    Live,
}

impl Kind {
    const COUNT: usize = 4;
    pub const ALL: [Kind; Kind::COUNT] = [Kind::Pages, Kind::Snapshots, Kind::Trails, Kind::Live];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Pages => "pages",
            Kind::Snapshots => "snapshots",
            Kind::Trails => "trails",
            Kind::Live => "live",
        }
    }
}

impl Meter {
    pub fn bytes(&self, kind: Kind) -> usize {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn total_bytes(&self) -> usize {
        Kind::ALL.iter().map(|kind| self.bytes(*kind)).sum()
    }

    /// Zeroed memory that is counted until it is dropped.
    pub fn zeroed<T: Pod>(&self, kind: Kind, len: usize) -> Counted<T> {
        let bytes = len * size_of::<T>();
        // A system that gives no more mappings may still have room in the heap.
        let mapped = (bytes >= MAPPED_BYTES).then(|| MmapMut::map_anon(bytes).ok()).flatten();
        let values = match mapped {
            Some(map) => Values::Mapped(map, PhantomData),
            None => Values::Heap(vec![T::zeroed(); len].into_boxed_slice()),
        };
        self.counts[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        Counted { values, bytes, kind, meter: self.clone() }
    }

    /// A copy that is counted until it is dropped.
    pub fn counted<T: Pod>(&self, kind: Kind, values: &[T]) -> Counted<T> {
        let mut counted = self.zeroed(kind, values.len());
        counted.copy_from_slice(values);
        counted
    }
}

/// A slice that a meter knows of.
#[derive(Debug)]
pub struct Counted<T> {
    values: Values<T>,
    bytes: usize,
    kind: Kind,
    meter: Meter,
}

#[derive(Debug)]
enum Values<T> {
    Heap(Box<[T]>),
    Mapped(MmapMut, PhantomData<T>),
}

impl<T: Pod> std::ops::Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.values {
            Values::Heap(values) => values,
            Values::Mapped(map, _) => bytemuck::cast_slice(map),
        }
    }
}

impl<T: Pod> std::ops::DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.values {
            Values::Heap(values) => values,
            Values::Mapped(map, _) => bytemuck::cast_slice_mut(map),
        }
    }
}

impl<T: Pod> AsRef<[T]> for Counted<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T: Pod> Counted<T> {
    pub fn copy_as(&self, kind: Kind) -> Counted<T> {
        self.meter.counted(kind, self)
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.meter.counts[self.kind as usize].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_no_longer_counted() {
        let meter = Meter::default();
        let page = meter.zeroed::<u8>(Kind::Pages, 100);
        let state = meter.counted(Kind::Live, &[1.0f32; 5]);
        let snapshot = state.copy_as(Kind::Snapshots);
        assert_eq!((meter.bytes(Kind::Pages), meter.bytes(Kind::Live), meter.bytes(Kind::Snapshots)), (100, 20, 20));
        drop((page, state));
        assert_eq!(meter.total_bytes(), 20);
        assert_eq!(&*snapshot, [1.0; 5]);
    }

    #[test]
    fn large_pieces_are_as_small_ones() {
        let meter = Meter::default();
        for len in [0, 1, MAPPED_BYTES / 4 - 1, MAPPED_BYTES / 4, MAPPED_BYTES] {
            let mut piece = meter.zeroed::<f32>(Kind::Live, len);
            assert!(piece.len() == len && piece.iter().all(|value| *value == 0.0));
            piece.fill(2.0);
            let copy = piece.copy_as(Kind::Snapshots);
            drop(piece);
            assert!(copy.len() == len && copy.iter().all(|value| *value == 2.0));
            assert_eq!(meter.total_bytes(), len * 4);
        }
        assert_eq!(meter.total_bytes(), 0);
    }
}
