//! The memory of sequences, on the host or on a GPU, counted where it is allocated and freed.
//!
//! Pages, states and snapshots are large, live for seconds to days and die in no order, so that a heap would keep the
//! holes. Each large buffer is a mapping of its own: the count is what the process takes, but for the rest of each
//! buffer's last 4 KiB. Buffers have few sizes, and the first touch of new memory costs more than the work on it. So a
//! dropped mapping waits for the next buffer of its size, and counts meanwhile.
//!
//! A GPU reports a failure late, and then all its memory is lost. So allocations and copies there return no error: the
//! meter keeps the first failure, and the engine asks for it before it reports results (`MemoryMeter::failure`).

use parking_lot::Mutex;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytemuck::Pod;
use gpu::{Buffer, Device};
use memmap2::MmapMut;

/// Size from which on a buffer is a mapping: that costs a system call and the rest of a page.
const MAPPED_BYTES: usize = 1 << 16; // not a window: bytes of a buffer

#[derive(Clone, Default)]
pub struct MemoryMeter {
    counts: Arc<[AtomicUsize; MemoryKind::COUNT]>,
    spare: Arc<Mutex<SpareMappings>>,
    device: Option<Arc<MeteredDevice>>, // `None`: the memory is on the host
}

#[derive(Default)]
struct SpareMappings {
    maps: Vec<MmapMut>,
    ceiling_bytes: usize,
}

pub(crate) const SPARE_PART: usize = 8; // divisor of the ceiling that waiting mappings may take

const SMALLEST_PAGE: usize = 4096; // not a window: bytes

struct MeteredDevice {
    device: Device,
    failure: OnceLock<String>,
}

/// States of pasts that are kept in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptStates {
    pub states: usize,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    Pages, // keys and values
    /// Recurrent and convolution states at positions that later requests continue from.
    Snapshots,
    RecurrenceLogs, // inputs of the recurrences for the last tokens
    Live,           // recurrent and convolution states at the ends of sequences
    Spare,          // dropped memory that waits for the next buffer of its size
    MovedSnapshots, // on the host, because a GPU's memory was short
}

impl MemoryKind {
    const COUNT: usize = 6;
    pub const ALL: [MemoryKind; MemoryKind::COUNT] = [
        MemoryKind::Pages,
        MemoryKind::Snapshots,
        MemoryKind::RecurrenceLogs,
        MemoryKind::Live,
        MemoryKind::Spare,
        MemoryKind::MovedSnapshots,
    ];

    pub fn name(self) -> &'static str {
        match self {
            MemoryKind::Pages => "pages",
            MemoryKind::Snapshots => "snapshots",
            MemoryKind::RecurrenceLogs => "recurrence_logs",
            MemoryKind::Live => "live",
            MemoryKind::Spare => "spare",
            MemoryKind::MovedSnapshots => "moved_snapshots",
        }
    }
}

impl MemoryMeter {
    pub fn on(device: &Device) -> MemoryMeter {
        let device = MeteredDevice { device: device.clone(), failure: OnceLock::new() };
        MemoryMeter { device: Some(Arc::new(device)), ..MemoryMeter::default() }
    }

    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref().map(|on| &on.device)
    }

    pub fn failure(&self) -> Option<&str> {
        self.device.as_ref()?.failure.get().map(String::as_str)
    }

    pub(crate) fn keep_failure<R>(&self, result: Result<R, gpu::Error>) -> Option<R> {
        let keep = |error: gpu::Error| self.device.as_ref().map(|on| on.failure.set(error.to_string()));
        result.map_err(keep).ok()
    }

    pub fn bytes(&self, kind: MemoryKind) -> usize {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// Bytes in use under the ceiling. Waiting mappings do not count: they are freed when memory is needed. Moved snapshots have
    /// a ceiling of their own.
    pub fn used_bytes(&self) -> usize {
        let counts = |kind: &&MemoryKind| !matches!(kind, MemoryKind::Spare | MemoryKind::MovedSnapshots);
        MemoryKind::ALL.iter().filter(counts).map(|kind| self.bytes(*kind)).sum()
    }

    /// Sets the ceiling. From now on dropped mappings may wait.
    pub fn set_ceiling(&self, bytes: usize) {
        // Memory on the host is only a stage on the way to a GPU then.
        self.spare.lock().ceiling_bytes = if self.device.is_some() { 0 } else { bytes };
    }

    fn take_spare(&self, bytes: usize) -> Option<MmapMut> {
        let mut spare = self.spare.lock();
        let at = spare.maps.iter().rposition(|map| map.len() == bytes)?;
        self.counts[MemoryKind::Spare as usize].fetch_sub(bytes, Ordering::Relaxed);
        Some(spare.maps.remove(at))
    }

    fn give_back(&self, map: MmapMut) {
        let mut spare = self.spare.lock();
        self.counts[MemoryKind::Spare as usize].fetch_add(map.len(), Ordering::Relaxed);
        spare.maps.push(map);
        let most = spare.ceiling_bytes / SPARE_PART;
        self.shrink(&mut spare, most);
    }

    /// Touches the first of these buffers, given as (bytes, count), of which fewer wait, and lets it wait. Returns
    /// false if there was none, or no room in this part of the ceiling. For idle moments.
    pub fn stock(&self, buffers: &[(usize, usize)], part: usize) -> bool {
        let mut spare = self.spare.lock();
        let most = spare.ceiling_bytes / part;
        let lacks = |&&(bytes, count): &&(usize, usize)| {
            bytes >= MAPPED_BYTES && spare.maps.iter().filter(|map| map.len() == bytes).count() < count
        };
        let Some(&(bytes, _)) = buffers.iter().find(lacks) else { return false };
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

    fn free_spare(&self, bytes: usize) {
        if self.bytes(MemoryKind::Spare) > 0 {
            let mut spare = self.spare.lock();
            let room = spare.ceiling_bytes.saturating_sub(self.used_bytes() + bytes);
            self.shrink(&mut spare, room);
        }
    }

    pub fn zeroed<T: Pod>(&self, kind: MemoryKind, len: usize) -> MeteredBuffer<T> {
        match self.device() {
            None => MeteredBuffer::Host(self.staged(kind, len)),
            Some(device) => self.on_device(kind, len, self.keep_failure(Buffer::zeroed(device, len))),
        }
    }

    pub fn copied<T: Pod>(&self, kind: MemoryKind, values: &[T]) -> MeteredBuffer<T> {
        match self.device() {
            None => {
                let mut copy = self.on_host(kind, values.len(), false);
                copy.copy_from_slice(values);
                MeteredBuffer::Host(copy)
            }
            Some(device) => self.on_device(kind, values.len(), self.keep_failure(Buffer::of(device, values))),
        }
    }

    /// Allocates zeros on the host, to be filled there. `HostMemory::settled` moves them to where the meter's memory is.
    pub fn staged<T: Pod>(&self, kind: MemoryKind, len: usize) -> HostMemory<T> {
        self.on_host(kind, len, true)
    }

    /// Allocates a buffer that is written completely before it is read. On the host it has old contents.
    pub fn unwritten<T: Pod>(&self, kind: MemoryKind, len: usize) -> MeteredBuffer<T> {
        match self.device {
            None => MeteredBuffer::Host(self.on_host(kind, len, false)),
            Some(_) => self.zeroed(kind, len),
        }
    }

    fn on_host<T: Pod>(&self, kind: MemoryKind, len: usize, zeroed: bool) -> HostMemory<T> {
        let bytes = len * size_of::<T>();
        let is_large = bytes >= MAPPED_BYTES;
        if let Some(mut map) = is_large.then(|| self.take_spare(bytes)).flatten() {
            if zeroed {
                map.fill(0);
            }
            return HostMemory { values: HostStorage::Mapped(map, PhantomData), count: self.count(kind, bytes) };
        }
        self.free_spare(bytes);
        // A system that refuses more mappings may still have room on the heap.
        let values = match is_large.then(|| weights::zeroed_pages(bytes)) {
            Some(Ok(map)) => HostStorage::Mapped(map, PhantomData),
            _ => HostStorage::Heap(vec![T::zeroed(); len].into_boxed_slice()),
        };
        HostMemory { values, count: self.count(kind, bytes) }
    }

    fn on_device<T>(&self, kind: MemoryKind, len: usize, buffer: Option<Buffer<T>>) -> MeteredBuffer<T> {
        MeteredBuffer::Device(DeviceMemory { buffer, len, count: self.count(kind, len * size_of::<T>()) })
    }

    fn count(&self, kind: MemoryKind, bytes: usize) -> CountedBytes {
        self.counts[kind as usize].fetch_add(bytes, Ordering::Relaxed);
        CountedBytes { bytes, kind, meter: self.clone() }
    }
}

/// Bytes that a meter counts until this is dropped.
struct CountedBytes {
    bytes: usize,
    kind: MemoryKind,
    meter: MemoryMeter,
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.meter.counts[self.kind as usize].fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

pub struct HostMemory<T> {
    values: HostStorage<T>,
    count: CountedBytes,
}

enum HostStorage<T> {
    Heap(Box<[T]>),
    Mapped(MmapMut, PhantomData<T>),
    Dropped,
}

pub struct DeviceMemory<T> {
    buffer: Option<Buffer<T>>, // `None`: the GPU had failed before
    len: usize,
    count: CountedBytes,
}

pub enum MeteredBuffer<T> {
    Host(HostMemory<T>),
    Device(DeviceMemory<T>),
}

impl<T: Pod> std::ops::Deref for HostMemory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.values {
            HostStorage::Heap(values) => values,
            HostStorage::Mapped(map, _) => bytemuck::cast_slice(map),
            HostStorage::Dropped => &[],
        }
    }
}

impl<T: Pod> std::ops::DerefMut for HostMemory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.values {
            HostStorage::Heap(values) => values,
            HostStorage::Mapped(map, _) => bytemuck::cast_slice_mut(map),
            HostStorage::Dropped => &mut [],
        }
    }
}

impl<T: Pod> HostMemory<T> {
    /// Moves the values to where the meter's memory is.
    pub fn settled(self) -> MeteredBuffer<T> {
        match self.count.meter.device {
            None => MeteredBuffer::Host(self),
            Some(_) => self.count.meter.copied(self.count.kind, &self),
        }
    }
}

impl<T> Drop for HostMemory<T> {
    fn drop(&mut self) {
        if let HostStorage::Mapped(map, _) = std::mem::replace(&mut self.values, HostStorage::Dropped) {
            self.count.meter.give_back(map);
        }
    }
}

impl<T> DeviceMemory<T> {
    fn lost(&self) -> gpu::Error {
        gpu::Error::Lost { reason: self.count.meter.failure().unwrap_or("the memory was not allocated").to_string() }
    }
}

impl AsRef<[u8]> for MeteredBuffer<u8> {
    fn as_ref(&self) -> &[u8] {
        self.host()
    }
}

impl<T> MeteredBuffer<T> {
    pub fn bytes(&self) -> usize {
        self.count().bytes
    }

    pub fn kind(&self) -> MemoryKind {
        self.count().kind
    }

    fn count(&self) -> &CountedBytes {
        match self {
            MeteredBuffer::Host(HostMemory { count, .. }) | MeteredBuffer::Device(DeviceMemory { count, .. }) => count,
        }
    }
}

impl<T: Pod> MeteredBuffer<T> {
    /// Returns the values for the CPU. Empty: they are on a GPU, whose executor reads them.
    pub fn host(&self) -> &[T] {
        match self {
            MeteredBuffer::Host(memory) => memory,
            MeteredBuffer::Device(_) => &[],
        }
    }

    pub fn host_mut(&mut self) -> &mut [T] {
        match self {
            MeteredBuffer::Host(memory) => memory,
            MeteredBuffer::Device(_) => &mut [],
        }
    }

    /// Moves a GPU's values to the host. `None`: they lie there already, or the GPU failed.
    pub(crate) fn moved(&self, kind: MemoryKind) -> Option<MeteredBuffer<T>> {
        let MeteredBuffer::Device(DeviceMemory { buffer: Some(buffer), len, count }) = self else { return None };
        let mut copy = count.meter.on_host(kind, *len, false);
        count.meter.keep_failure(buffer.read(0, &mut copy))?;
        Some(MeteredBuffer::Host(copy))
    }

    pub fn copy_as(&self, kind: MemoryKind) -> MeteredBuffer<T> {
        match self {
            MeteredBuffer::Host(memory) => memory.count.meter.copied(kind, memory),
            MeteredBuffer::Device(DeviceMemory { buffer, len, count }) => {
                let copy = buffer.as_ref().and_then(|from| count.meter.keep_failure(from.duplicate()));
                count.meter.on_device(kind, *len, copy)
            }
        }
    }

    /// Returns the values, copied from a GPU if they are there. The copy waits for the values, but not for work that the GPU is
    /// given meanwhile.
    pub fn on_host(&self) -> Result<Cow<'_, [T]>, gpu::Error> {
        match self {
            MeteredBuffer::Host(memory) => Ok(Cow::Borrowed(memory)),
            MeteredBuffer::Device(memory) => match &memory.buffer {
                Some(buffer) => buffer.to_vec_beside().map(Cow::Owned),
                None => Err(memory.lost()),
            },
        }
    }

    pub(crate) fn address(&self) -> Result<u64, gpu::Error> {
        match self {
            MeteredBuffer::Host(_) => Err(gpu::Error::Lost { reason: "the memory lies on the host".to_string() }),
            MeteredBuffer::Device(memory) => match &memory.buffer {
                Some(buffer) => Ok(buffer.address()),
                None => Err(memory.lost()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_no_longer_counted() {
        let meter = MemoryMeter::default();
        let page = meter.zeroed::<u8>(MemoryKind::Pages, 100);
        let state = meter.copied(MemoryKind::Live, &[1.0f32; 5]);
        let snapshot = state.copy_as(MemoryKind::Snapshots);
        assert_eq!(
            (meter.bytes(MemoryKind::Pages), meter.bytes(MemoryKind::Live), meter.bytes(MemoryKind::Snapshots)),
            (100, 20, 20)
        );
        drop((page, state));
        assert_eq!(meter.used_bytes(), 20);
        assert_eq!(snapshot.host(), [1.0; 5]);
    }

    #[test]
    fn a_dropped_mapping_is_used_again_below_the_ceiling() {
        let (meter, len) = (MemoryMeter::default(), 2 * MAPPED_BYTES);
        meter.set_ceiling(10 * len);
        let mut first = meter.zeroed::<u8>(MemoryKind::Pages, len);
        first.host_mut().fill(7);
        let address = first.host().as_ptr();
        drop(first);
        assert_eq!((meter.used_bytes(), meter.bytes(MemoryKind::Spare)), (0, len));
        // A buffer of the same size uses it, as zeros or with the old contents.
        let again = meter.zeroed::<u8>(MemoryKind::Pages, len);
        assert!(again.host().as_ptr() == address && again.host().iter().all(|byte| *byte == 0));
        drop(again);
        assert_eq!(meter.unwritten::<f32>(MemoryKind::Live, len / 4).host().as_ptr() as usize, address as usize);
        // No more than a part of the ceiling waits, and a buffer that is needed frees it.
        drop([(); 5].map(|()| meter.zeroed::<u8>(MemoryKind::Pages, len)));
        assert_eq!(meter.bytes(MemoryKind::Spare), len);
        let most = meter.zeroed::<u8>(MemoryKind::Pages, 10 * len);
        assert_eq!((meter.used_bytes(), meter.bytes(MemoryKind::Spare)), (10 * len, 0));
        drop(most);
        assert_eq!(meter.bytes(MemoryKind::Spare), 0);
    }

    #[test]
    fn buffers_are_touched_in_advance_as_far_as_there_is_room() {
        let (meter, bytes) = (MemoryMeter::default(), MAPPED_BYTES);
        let buffers = [(bytes / 2, 3), (bytes, 2), (2 * bytes, 1)];
        let all = || std::iter::from_fn(|| meter.stock(&buffers, SPARE_PART).then_some(())).count();
        assert_eq!(all(), 0, "nothing may wait where no ceiling is known");
        meter.set_ceiling(8 * 4 * bytes);
        assert_eq!((all(), meter.bytes(MemoryKind::Spare)), (3, 4 * bytes));
        let taken = meter.zeroed::<u8>(MemoryKind::Pages, bytes);
        assert!(meter.bytes(MemoryKind::Spare) == 3 * bytes && taken.host().iter().all(|byte| *byte == 0));
        assert_eq!((all(), meter.bytes(MemoryKind::Spare)), (1, 4 * bytes));
        // Buffers in use come first.
        let most = meter.zeroed::<u8>(MemoryKind::Pages, 30 * bytes);
        assert_eq!((all(), meter.used_bytes() + meter.bytes(MemoryKind::Spare)), (0, 32 * bytes));
        drop((taken, most));
    }

    #[test]
    fn large_buffers_behave_as_small_ones() {
        let meter = MemoryMeter::default();
        for len in [0, 1, MAPPED_BYTES / 4 - 1, MAPPED_BYTES / 4, MAPPED_BYTES] {
            let mut buffer = meter.zeroed::<f32>(MemoryKind::Live, len);
            assert!(buffer.host().len() == len && buffer.host().iter().all(|value| *value == 0.0));
            buffer.host_mut().fill(2.0);
            let copy = buffer.copy_as(MemoryKind::Snapshots);
            drop(buffer);
            assert!(copy.host().len() == len && copy.host().iter().all(|value| *value == 2.0));
            assert_eq!(meter.used_bytes(), len * 4);
        }
        assert_eq!(meter.used_bytes(), 0);
    }
}
