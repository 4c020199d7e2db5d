//! What the engine holds, counted where it is allocated and freed: on the host, or on a GPU that computes.
//!
//! Pages, states and snapshots are large, live for seconds to days and die in no order: a heap that holds them keeps the
//! holes. So each large piece is a mapping of its own, and what is counted is what the process takes, but for the rest of
//! each piece's last 4 KiB. They have few sizes, and the first touch of new memory costs more than all that is done with
//! it: what was dropped waits a while for the next piece of its size, and is counted as well.
//!
//! A GPU tells late that it failed, and then everything on it is lost. So memory is given and copied without an answer,
//! and the failure is kept: whoever tells of results asks for it first (`MemoryMeter::failure`).

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytemuck::Pod;
use gpu::{Buffer, Device};
use memmap2::MmapMut;

/// Smaller pieces are left to the heap: a mapping costs a system call and the rest of a page.
const MAPPED_BYTES: usize = 1 << 16; // not a window: bytes of a piece

/// A clone counts into the same sums.
#[derive(Clone, Default)]
pub struct MemoryMeter {
    counts: Arc<[AtomicUsize; MemoryKind::COUNT]>,
    spare: Arc<Mutex<SpareMappings>>,
    /// Where its memory lies. None: on the host.
    device: Option<Arc<MeteredDevice>>,
}

/// Mappings that wait for the next piece of their size, the oldest first.
#[derive(Default)]
struct SpareMappings {
    maps: Vec<MmapMut>,
    /// All that is counted stays below this.
    ceiling_bytes: usize,
}

/// So much of the ceiling may wait at most.
const SPARE_PART: usize = 8;

/// What a system gives at a time, at least.
const SMALLEST_PAGE: usize = 4096; // not a window: bytes

struct MeteredDevice {
    device: Device,
    failure: OnceLock<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// Keys and values.
    Pages,
    /// Recurrent and convolution states at positions to come back to.
    Snapshots,
    /// What the recurrences consumed for the last tokens.
    RecurrenceLogs,
    /// States of sequences that are being computed.
    Live,
    /// Given back, and kept for what comes next.
    Spare,
}

impl MemoryKind {
    const COUNT: usize = 5;
    pub const ALL: [MemoryKind; MemoryKind::COUNT] =
        [MemoryKind::Pages, MemoryKind::Snapshots, MemoryKind::RecurrenceLogs, MemoryKind::Live, MemoryKind::Spare];

    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Pages => "pages",
            MemoryKind::Snapshots => "snapshots",
            MemoryKind::RecurrenceLogs => "trails",
            MemoryKind::Live => "live",
            MemoryKind::Spare => "spare",
        }
    }
}

impl MemoryMeter {
    /// Memory of a device.
    pub fn on(device: &Device) -> MemoryMeter {
        let device = MeteredDevice { device: device.clone(), failure: OnceLock::new() };
        MemoryMeter { device: Some(Arc::new(device)), ..MemoryMeter::default() }
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

    pub fn bytes(&self, kind: MemoryKind) -> usize {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// What is in use. What waits to be used again gives way to it.
    pub fn used_bytes(&self) -> usize {
        MemoryKind::ALL.iter().filter(|kind| **kind != MemoryKind::Spare).map(|kind| self.bytes(*kind)).sum()
    }

    /// From now on a part of this may wait to be used again, as long as all together stays below it.
    pub fn set_ceiling(&self, bytes: usize) {
        // What passes through the host on its way to a device is counted there.
        self.spare().ceiling_bytes = if self.device.is_some() { 0 } else { bytes };
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, SpareMappings> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A mapping of this size, with whatever stands in it.
    fn used_before(&self, bytes: usize) -> Option<MmapMut> {
        let mut spare = self.spare();
        let at = spare.maps.iter().rposition(|map| map.len() == bytes)?;
        self.counts[MemoryKind::Spare as usize].fetch_sub(bytes, Ordering::Relaxed);
        Some(spare.maps.remove(at))
    }

    fn give_back(&self, map: MmapMut) {
        let mut spare = self.spare();
        self.counts[MemoryKind::Spare as usize].fetch_add(map.len(), Ordering::Relaxed);
        spare.maps.push(map);
        let most = spare.ceiling_bytes / SPARE_PART;
        self.shrink(&mut spare, most);
    }

    /// Touches one more piece for what comes next, where of its size less than so many wait and there is room. Returns whether
    /// it did: where there is nothing else to do, as the first touch takes longer than what is done with it.
    pub fn stock(&self, pieces: &[(usize, usize)]) -> bool {
        let mut spare = self.spare();
        let most = spare.ceiling_bytes / SPARE_PART;
        let lacks = |&&(bytes, count): &&(usize, usize)| {
            bytes >= MAPPED_BYTES && spare.maps.iter().filter(|map| map.len() == bytes).count() < count
        };
        let Some(&(bytes, _)) = pieces.iter().find(lacks) else { return false };
        let waiting = self.bytes(MemoryKind::Spare) + bytes;
        if waiting > most || self.used_bytes() + waiting > spare.ceiling_bytes {
            return false;
        }
        let Ok(mut map) = weights::zeroed_pages(bytes) else { return false };
        map.iter_mut().step_by(SMALLEST_PAGE).for_each(|byte| *byte = 0);
        self.counts[MemoryKind::Spare as usize].fetch_add(bytes, Ordering::Relaxed);
        spare.maps.push(map);
        true
    }

    fn shrink(&self, spare: &mut SpareMappings, to_bytes: usize) {
        while self.bytes(MemoryKind::Spare) > to_bytes && !spare.maps.is_empty() {
            let bytes = spare.maps.remove(0).len();
            self.counts[MemoryKind::Spare as usize].fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// What waits gives way to so many bytes more.
    fn make_way(&self, bytes: usize) {
        if self.bytes(MemoryKind::Spare) > 0 {
            let mut spare = self.spare();
            let room = spare.ceiling_bytes.saturating_sub(self.used_bytes() + bytes);
            self.shrink(&mut spare, room);
        }
    }

    /// Zeroed memory that is counted until it is dropped.
    pub fn zeroed<T: Pod>(&self, kind: MemoryKind, len: usize) -> MeteredBuffer<T> {
        let Some(device) = self.device() else { return self.staged(kind, len) };
        self.count(kind, len, BufferStorage::Device(self.kept(Buffer::zeroed(device, len))))
    }

    /// A copy that is counted until it is dropped.
    pub fn counted<T: Pod>(&self, kind: MemoryKind, values: &[T]) -> MeteredBuffer<T> {
        let Some(device) = self.device() else {
            let mut counted = self.unwritten(kind, values.len());
            counted.copy_from_slice(values);
            return counted;
        };
        self.count(kind, values.len(), BufferStorage::Device(self.kept(Buffer::of(device, values))))
    }

    /// Zeroed memory that the host can write to wherever the rest lies; `MeteredBuffer::settled` brings it there.
    pub fn staged<T: Pod>(&self, kind: MemoryKind, len: usize) -> MeteredBuffer<T> {
        self.on_host(kind, len, true)
    }

    /// For what is written whole before it is read: on the host there stands whatever stood there.
    pub fn unwritten<T: Pod>(&self, kind: MemoryKind, len: usize) -> MeteredBuffer<T> {
        if self.device.is_some() { self.zeroed(kind, len) } else { self.on_host(kind, len, false) }
    }

    fn on_host<T: Pod>(&self, kind: MemoryKind, len: usize, zeroed: bool) -> MeteredBuffer<T> {
        let bytes = len * size_of::<T>();
        let is_large = bytes >= MAPPED_BYTES;
        if let Some(mut map) = is_large.then(|| self.used_before(bytes)).flatten() {
            if zeroed {
                map.fill(0);
            }
            return self.count(kind, len, BufferStorage::Mapped(map, PhantomData));
        }
        self.make_way(bytes);
        // A system that gives no more mappings may still have room in the heap.
        let values = match is_large.then(|| weights::zeroed_pages(bytes)) {
            Some(Ok(map)) => BufferStorage::Mapped(map, PhantomData),
            _ => BufferStorage::Heap(vec![T::zeroed(); len].into_boxed_slice()),
        };
        self.count(kind, len, values)
    }

    fn count<T>(&self, kind: MemoryKind, len: usize, values: BufferStorage<T>) -> MeteredBuffer<T> {
        let bytes = len * size_of::<T>();
        self.counts[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        MeteredBuffer { values, bytes, kind, meter: self.clone() }
    }
}

/// Values that a meter knows of. On the host a slice.
pub struct MeteredBuffer<T> {
    values: BufferStorage<T>,
    bytes: usize,
    kind: MemoryKind,
    meter: MemoryMeter,
}

enum BufferStorage<T> {
    Heap(Box<[T]>),
    Mapped(MmapMut, PhantomData<T>),
    /// None: the device had failed when it was asked for.
    Device(Option<Buffer<T>>),
    /// Dropped.
    Dropped,
}

const NOT_HERE: &str = "memory of a device is read by kernels and by `on_host`";

impl<T: Pod> std::ops::Deref for MeteredBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.values {
            BufferStorage::Heap(values) => values,
            BufferStorage::Mapped(map, _) => bytemuck::cast_slice(map),
            BufferStorage::Device(_) | BufferStorage::Dropped => panic!("{NOT_HERE}"),
        }
    }
}

impl<T: Pod> std::ops::DerefMut for MeteredBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.values {
            BufferStorage::Heap(values) => values,
            BufferStorage::Mapped(map, _) => bytemuck::cast_slice_mut(map),
            BufferStorage::Device(_) | BufferStorage::Dropped => panic!("{NOT_HERE}"),
        }
    }
}

impl<T: Pod> AsRef<[T]> for MeteredBuffer<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

impl<T> MeteredBuffer<T> {
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: Pod> MeteredBuffer<T> {
    /// A copy in the same place.
    pub fn copy_as(&self, kind: MemoryKind) -> MeteredBuffer<T> {
        let copy = match &self.values {
            BufferStorage::Device(from) => from.as_ref().and_then(|from| self.meter.kept(from.duplicate())),
            _ => return self.meter.counted(kind, self),
        };
        self.meter.count(kind, self.bytes / size_of::<T>().max(1), BufferStorage::Device(copy))
    }

    /// What `MemoryMeter::staged` gave, where the meter's memory lies.
    pub fn settled(self) -> MeteredBuffer<T> {
        if self.meter.device.is_none() { self } else { self.meter.counted(self.kind, &self) }
    }

    /// The values, copied where they lie on a device. That waits until they are there, but for nothing that is asked of
    /// the device meanwhile.
    pub fn on_host(&self) -> Result<Cow<'_, [T]>, gpu::Error> {
        match &self.values {
            BufferStorage::Device(Some(buffer)) => buffer.to_vec_beside().map(Cow::Owned),
            BufferStorage::Device(None) => Err(self.lost()),
            _ => Ok(Cow::Borrowed(self)),
        }
    }

    /// What kernels are given.
    pub(crate) fn address(&self) -> Result<u64, gpu::Error> {
        match &self.values {
            BufferStorage::Device(Some(buffer)) => Ok(buffer.address()),
            _ => Err(self.lost()),
        }
    }

    fn lost(&self) -> gpu::Error {
        gpu::Error::Lost { reason: self.meter.failure().unwrap_or("the memory lies on the host").to_string() }
    }
}

impl<T> Drop for MeteredBuffer<T> {
    fn drop(&mut self) {
        self.meter.counts[self.kind as usize].fetch_sub(self.bytes, Ordering::Relaxed);
        if let BufferStorage::Mapped(map, _) = std::mem::replace(&mut self.values, BufferStorage::Dropped) {
            self.meter.give_back(map);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_no_longer_counted() {
        let meter = MemoryMeter::default();
        let page = meter.zeroed::<u8>(MemoryKind::Pages, 100);
        let state = meter.counted(MemoryKind::Live, &[1.0f32; 5]);
        let snapshot = state.copy_as(MemoryKind::Snapshots);
        assert_eq!(
            (meter.bytes(MemoryKind::Pages), meter.bytes(MemoryKind::Live), meter.bytes(MemoryKind::Snapshots)),
            (100, 20, 20)
        );
        drop((page, state));
        assert_eq!(meter.used_bytes(), 20);
        assert_eq!(&*snapshot, [1.0; 5]);
    }

    #[test]
    fn what_was_dropped_is_used_again_below_the_ceiling() {
        let (meter, len) = (MemoryMeter::default(), 2 * MAPPED_BYTES);
        meter.set_ceiling(10 * len);
        let mut first = meter.zeroed::<u8>(MemoryKind::Pages, len);
        first.fill(7);
        let address = first.as_ptr();
        drop(first);
        assert_eq!((meter.used_bytes(), meter.bytes(MemoryKind::Spare)), (0, len));
        // Of the same size and zero, or as it was left.
        let again = meter.zeroed::<u8>(MemoryKind::Pages, len);
        assert!(again.as_ptr() == address && again.iter().all(|byte| *byte == 0));
        drop(again);
        assert_eq!(meter.unwritten::<f32>(MemoryKind::Live, len / 4).as_ptr() as usize, address as usize);
        // No more than a part of the ceiling waits, and what is needed takes its place.
        drop([(); 5].map(|()| meter.zeroed::<u8>(MemoryKind::Pages, len)));
        assert_eq!(meter.bytes(MemoryKind::Spare), len);
        let most = meter.zeroed::<u8>(MemoryKind::Pages, 10 * len);
        assert_eq!((meter.used_bytes(), meter.bytes(MemoryKind::Spare)), (10 * len, 0));
        drop(most);
        assert_eq!(meter.bytes(MemoryKind::Spare), 0);
    }

    #[test]
    fn what_comes_next_is_touched_before_as_far_as_there_is_room() {
        let (meter, bytes) = (MemoryMeter::default(), MAPPED_BYTES);
        let pieces = [(bytes / 2, 3), (bytes, 2), (2 * bytes, 1)];
        let all = || std::iter::from_fn(|| meter.stock(&pieces).then_some(())).count();
        assert_eq!(all(), 0, "nothing may wait where no ceiling is known");
        meter.set_ceiling(8 * 4 * bytes);
        assert_eq!((all(), meter.bytes(MemoryKind::Spare)), (3, 4 * bytes));
        let taken = meter.zeroed::<u8>(MemoryKind::Pages, bytes);
        assert!(meter.bytes(MemoryKind::Spare) == 3 * bytes && taken.iter().all(|byte| *byte == 0));
        assert_eq!((all(), meter.bytes(MemoryKind::Spare)), (1, 4 * bytes));
        // What is used comes first.
        let most = meter.zeroed::<u8>(MemoryKind::Pages, 30 * bytes);
        assert_eq!((all(), meter.used_bytes() + meter.bytes(MemoryKind::Spare)), (0, 32 * bytes));
        drop((taken, most));
    }

    #[test]
    fn large_pieces_are_as_small_ones() {
        let meter = MemoryMeter::default();
        for len in [0, 1, MAPPED_BYTES / 4 - 1, MAPPED_BYTES / 4, MAPPED_BYTES] {
            let mut piece = meter.zeroed::<f32>(MemoryKind::Live, len);
            assert!(piece.len() == len && piece.iter().all(|value| *value == 0.0));
            piece.fill(2.0);
            let copy = piece.copy_as(MemoryKind::Snapshots);
            drop(piece);
            assert!(copy.len() == len && copy.iter().all(|value| *value == 2.0));
            assert_eq!(meter.used_bytes(), len * 4);
        }
        assert_eq!(meter.used_bytes(), 0);
    }
}
