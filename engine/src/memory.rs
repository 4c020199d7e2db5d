//! What the engine holds, counted where it is allocated and freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    pub fn zeroed<T: Default + Clone>(&self, kind: Kind, len: usize) -> Counted<T> {
        self.counted(kind, vec![T::default(); len])
    }

    pub fn counted<T>(&self, kind: Kind, values: Vec<T>) -> Counted<T> {
        let values = values.into_boxed_slice();
        self.counts[kind as usize].fetch_add(size_of_val(&*values), Ordering::Relaxed);
        Counted { values, kind, meter: self.clone() }
    }
}

/// A slice that a meter knows of.
#[derive(Debug)]
pub struct Counted<T> {
    values: Box<[T]>,
    kind: Kind,
    meter: Meter,
}

impl<T> std::ops::Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> std::ops::DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<T> AsRef<[T]> for Counted<T> {
    fn as_ref(&self) -> &[T] {
        &self.values
    }
}

impl<T: Clone> Counted<T> {
    pub fn copy_as(&self, kind: Kind) -> Counted<T> {
        self.meter.counted(kind, self.values.to_vec())
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.meter.counts[self.kind as usize].fetch_sub(size_of_val(&*self.values), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_no_longer_counted() {
        let meter = Meter::default();
        let page = meter.zeroed::<u8>(Kind::Pages, 100);
        let state = meter.counted(Kind::Live, vec![1.0f32; 5]);
        let snapshot = state.copy_as(Kind::Snapshots);
        assert_eq!((meter.bytes(Kind::Pages), meter.bytes(Kind::Live), meter.bytes(Kind::Snapshots)), (100, 20, 20));
        drop((page, state));
        assert_eq!(meter.total_bytes(), 20);
        assert_eq!(&*snapshot, [1.0; 5]);
    }
}
