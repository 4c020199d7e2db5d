//! What the engine holds, counted where it is allocated and freed: on the host, or on a GPU that computes.
//!
//! Pages, states and snapshots are large, live for seconds to days and die in no order: a heap that holds them keeps the
//! holes. So each large piece is a mapping of its own, which the system has back the moment it is dropped, and what is
//! counted is what the process takes, but for the rest of each piece's last 4 KiB.
//!
//! A GPU tells late that it failed, and then everything on it is lost. So memory is given and copied without an answer,
//! and the failure is kept: whoever tells of results asks for it first (`Meter::failure`).

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use gpu::{Buffer, Device};
use memmap2::MmapMut;

/// Smaller pieces are left to the heap: a mapping costs a system call and the rest of a page.
const MAPPED_BYTES: usize = 1 << 16; // not a window: bytes of a piece

/// A clone counts into the same sums.
#[derive(Clone, Default)]
pub struct Meter {
    counts: Arc<[AtomicUsize; Kind::COUNT]>,
    /// Where its memory lies. None: on the host.
    device: Option<Arc<OnDevice>>,
}

struct OnDevice {
    device: Device,
    failure: OnceLock<String>,
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
    /// Memory of a device.
    pub fn on(device: &Device) -> Meter {
        let device = OnDevice { device: device.clone(), failure: OnceLock::new() };
        Meter { device: Some(Arc::new(device)), ..Meter::default() }
    }

    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref().map(|on| &on.device)
    }

    /// Why nothing that lies on the device counts any more.
    pub fn failure(&self) -> Option<&str> {
        self.device.as_ref()?.failure.get().map(String::as_str)
    }

    /// Keeps the first failure. None: it failed.
    pub(crate) fn kept<R>(&self, result: Result<R, gpu::Error>) -> Option<R> {
        let keep = |error: gpu::Error| self.device.as_ref().map(|on| on.failure.set(error.to_string()));
        result.map_err(keep).ok()
    }

    pub fn bytes(&self, kind: Kind) -> usize {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    pub fn total_bytes(&self) -> usize {
        Kind::ALL.iter().map(|kind| self.bytes(*kind)).sum()
    }

    /// Zeroed memory that is counted until it is dropped.
    pub fn zeroed<T: Pod>(&self, kind: Kind, len: usize) -> Counted<T> {
        let Some(device) = self.device() else { return self.staged(kind, len) };
        self.count(kind, len, Values::Device(self.kept(Buffer::zeroed(device, len))))
    }

    /// A copy that is counted until it is dropped.
    pub fn counted<T: Pod>(&self, kind: Kind, values: &[T]) -> Counted<T> {
        let Some(device) = self.device() else {
            let mut counted = self.staged(kind, values.len());
            counted.copy_from_slice(values);
            return counted;
        };
        self.count(kind, values.len(), Values::Device(self.kept(Buffer::of(device, values))))
    }

    /// Zeroed memory that the host can write to wherever the rest lies; `Counted::settled` brings it there.
    pub fn staged<T: Pod>(&self, kind: Kind, len: usize) -> Counted<T> {
        let bytes = len * size_of::<T>();
        // A system that gives no more mappings may still have room in the heap.
        let mapped = (bytes >= MAPPED_BYTES).then(|| MmapMut::map_anon(bytes).ok()).flatten();
        // The first touch of a page is what new memory costs. That it is not there in one piece is as good as an answer.
        #[cfg(target_os = "linux")]
        let _ = mapped.as_ref().map(|map| map.advise(memmap2::Advice::HugePage));
        let values = match mapped {
            Some(map) => Values::Mapped(map, PhantomData),
            None => Values::Heap(vec![T::zeroed(); len].into_boxed_slice()),
        };
        self.count(kind, len, values)
    }

    fn count<T>(&self, kind: Kind, len: usize, values: Values<T>) -> Counted<T> {
        let bytes = len * size_of::<T>();
        self.counts[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        Counted { values, bytes, kind, meter: self.clone() }
    }
}

/// Values that a meter knows of. On the host a slice.
pub struct Counted<T> {
    values: Values<T>,
    bytes: usize,
    kind: Kind,
    meter: Meter,
}

enum Values<T> {
    Heap(Box<[T]>),
    Mapped(MmapMut, PhantomData<T>),
    /// None: the device had failed when it was asked for.
    Device(Option<Buffer<T>>),
}

const NOT_HERE: &str = "memory of a device is read by kernels and by `on_host`";

impl<T: Pod> std::ops::Deref for Counted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.values {
            Values::Heap(values) => values,
            Values::Mapped(map, _) => bytemuck::cast_slice(map),
            Values::Device(_) => panic!("{NOT_HERE}"),
        }
    }
}

impl<T: Pod> std::ops::DerefMut for Counted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.values {
            Values::Heap(values) => values,
            Values::Mapped(map, _) => bytemuck::cast_slice_mut(map),
            Values::Device(_) => panic!("{NOT_HERE}"),
        }
    }
}

impl<T: Pod> AsRef<[T]> for Counted<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> Counted<T> {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: Pod> Counted<T> {
    /// A copy in the same place.
    pub fn copy_as(&self, kind: Kind) -> Counted<T> {
        let copy = match &self.values {
            Values::Device(from) => from.as_ref().and_then(|from| self.meter.kept(from.duplicate())),
            _ => return self.meter.counted(kind, self),
        };
        self.meter.count(kind, self.bytes / size_of::<T>().max(1), Values::Device(copy))
    }

    /// What `Meter::staged` gave, where the meter's memory lies.
    pub fn settled(self) -> Counted<T> {
        if self.meter.device.is_none() { self } else { self.meter.counted(self.kind, &self) }
    }

    /// The values, copied where they lie on a device. That waits until they are there, but for nothing that is asked of
    /// the device meanwhile.
    pub fn on_host(&self) -> Result<Cow<'_, [T]>, gpu::Error> {
        match &self.values {
            Values::Device(Some(buffer)) => buffer.to_vec_beside().map(Cow::Owned),
            Values::Device(None) => Err(self.lost()),
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    /// What kernels are given.
    pub(crate) fn address(&self) -> Result<u64, gpu::Error> {
        match &self.values {
            Values::Device(Some(buffer)) => Ok(buffer.address()),
            _ => Err(self.lost()),
        }
    }

    fn lost(&self) -> gpu::Error {
        gpu::Error::Lost { reason: self.meter.failure().unwrap_or("the memory lies on the host").to_string() }
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
