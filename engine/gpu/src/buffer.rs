use std::marker::PhantomData;
use std::ptr::NonNull;

use bytemuck::Pod;

use crate::device::Device;
use crate::error::Error;

/// Values on a device, freed when this is dropped. The device works in the order in which it is
/// asked, so memory may be dropped while kernels that use it are still to come.
pub struct Buffer<T> {
    device: Device,
    address: u64,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub fn new(device: &Device, len: usize) -> Result<Buffer<T>, Error> {
        let address = device.allocate(len * size_of::<T>())?;
        Ok(Buffer { device: device.clone(), address, len, values: PhantomData })
    }

    pub fn zeroed(device: &Device, len: usize) -> Result<Buffer<T>, Error> {
        let buffer = Buffer::new(device, len)?;
        buffer.fill_bytes(0)?;
        Ok(buffer)
    }

    pub fn of(device: &Device, values: &[T]) -> Result<Buffer<T>, Error> {
        let buffer = Buffer::new(device, values.len())?;
        buffer.write(0, values)?;
        Ok(buffer)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn at(&self, start: usize) -> u64 {
        assert!(start <= self.len, "an address beyond its buffer");
        self.address + (start * size_of::<T>()) as u64
    }

    pub fn write(&self, start: usize, values: &[T]) -> Result<(), Error> {
        assert!(start + values.len() <= self.len, "values beyond their buffer");
        // SAFETY: the range lies in this buffer.
        unsafe { self.device.copy_in(self.at(start), bytemuck::cast_slice(values)) }
    }

    pub fn read(&self, start: usize, values: &mut [T]) -> Result<(), Error> {
        assert!(start + values.len() <= self.len, "values beyond their buffer");
        // SAFETY: the range lies in this buffer.
        unsafe { self.device.copy_out(bytemuck::cast_slice_mut(values), self.at(start)) }
    }

    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        self.read(0, &mut values)?;
        Ok(values)
    }

    /// Copies as `to_vec`, on another thread than the one that starts work: work that it starts meanwhile does not wait for the
    /// copy.
    pub fn to_vec_beside(&self) -> Result<Vec<T>, Error> {
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: the values are all of this buffer, which is borrowed meanwhile.
        unsafe { self.device.copy_out_beside(bytemuck::cast_slice_mut(&mut values), self.address)? };
        Ok(values)
    }

    pub fn copy_from(&self, start: usize, from: &Buffer<T>, from_start: usize, len: usize) -> Result<(), Error> {
        assert!(start + len <= self.len && from_start + len <= from.len, "values beyond their buffer");
        // SAFETY: both ranges lie in their buffers.
        unsafe { self.device.copy_within(self.at(start), from.at(from_start), len * size_of::<T>()) }
    }

    pub fn duplicate(&self) -> Result<Buffer<T>, Error> {
        let copy = Buffer::new(&self.device, self.len)?;
        copy.copy_from(0, self, 0, self.len)?;
        Ok(copy)
    }

    pub fn fill_bytes(&self, byte: u8) -> Result<(), Error> {
        // SAFETY: the bytes are all of this buffer.
        unsafe { self.device.fill(self.address, byte, self.len * size_of::<T>()) }
    }
}

/// Bytes that a device's memory reads and writes a second, in billions, copying so many; the median. NaN where there is no
/// clock.
pub fn copy_gb_per_s(device: &Device, bytes: usize, rounds: usize) -> Result<f64, Error> {
    let (from, to) = (Buffer::<u8>::zeroed(device, bytes)?, Buffer::<u8>::new(device, bytes)?);
    let once = |_| device.time(|| to.copy_from(0, &from, 0, bytes));
    let mut ms: Vec<f32> = (0..rounds.max(3)).map(once).collect::<Result<_, _>>()?;
    ms.sort_by(f32::total_cmp);
    Ok(2.0 * bytes as f64 / f64::from(ms[ms.len() / 2]) / 1e6)
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it.
        unsafe { self.device.free(self.address) };
    }
}

/// Memory of the host that the device copies into without a detour: what is read after every step. It grows and stays.
pub struct HostBuffer<T> {
    device: Device,
    memory: HostMemory<T>,
}

enum HostMemory<T> {
    Pinned { first: NonNull<T>, len: usize },
    Plain(Vec<T>),
}

// SAFETY: it owns its memory, as a vector does.
unsafe impl<T: Send> Send for HostBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostBuffer<T> {}

impl<T: Pod> HostBuffer<T> {
    pub fn new(device: &Device) -> HostBuffer<T> {
        HostBuffer { device: device.clone(), memory: HostMemory::Plain(Vec::new()) }
    }

    pub fn room(&mut self, len: usize) -> Result<&mut [T], Error> {
        if self.values().len() < len {
            self.release();
            self.memory = match self.device.allocate_host(len * size_of::<T>())? {
                // Zeros, so that they are values before the device has written any.
                Some(address) => {
                    // SAFETY: the driver gave room for so many bytes, aligned to pages.
                    unsafe { address.as_ptr().write_bytes(0, len * size_of::<T>()) };
                    HostMemory::Pinned { first: address.cast(), len }
                }
                None => HostMemory::Plain(vec![T::zeroed(); len]),
            };
        }
        Ok(&mut self.values_mut()[..len])
    }
}

impl<T> HostBuffer<T> {
    fn values(&self) -> &[T] {
        match &self.memory {
            // SAFETY: `room` filled so many values, and they live until `release`.
            HostMemory::Pinned { first, len } => unsafe { std::slice::from_raw_parts(first.as_ptr(), *len) },
            HostMemory::Plain(values) => values,
        }
    }

    fn values_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            // SAFETY: as above, and `self` is borrowed alone.
            HostMemory::Pinned { first, len } => unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), *len) },
            HostMemory::Plain(values) => values,
        }
    }

    fn release(&mut self) {
        if let HostMemory::Pinned { first, .. } = std::mem::replace(&mut self.memory, HostMemory::Plain(Vec::new())) {
            // SAFETY: `room` allocated it, and a copy out ends with a wait.
            unsafe { self.device.free_host(first.cast()) };
        }
    }
}

impl<T> Drop for HostBuffer<T> {
    fn drop(&mut self) {
        self.release();
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} values at {:#x}", self.len, self.address)
    }
}
