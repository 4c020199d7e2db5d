//! Memory of NVIDIA cards, told by the driver's own library (NVML), which is there where the driver is. Nothing of it is
//! needed to build or to run.

use libloading::Library;
use std::ffi::{c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

pub struct Gpu {
    devices: Vec<Device>,
    memory_info: MemoryInfo,
    processes: Option<Processes>,
    shutdown: Shutdown,
    /// The functions above are in it: it goes last.
    _library: Library,
}

/// A handle of the library.
#[derive(Clone, Copy)]
struct Device(*mut c_void);

// SAFETY: the library's handles may be used from any thread, and its functions from several at once.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

type Shutdown = unsafe extern "C" fn() -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut Process) -> c_int;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlProcessInfo_t`, as the third version of the function fills it in.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Process {
    pid: c_uint,
    used: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

const SUCCESS: c_int = 0;
const MOST_PROCESSES: usize = 256;
/// What the driver says where it does not know.
const UNKNOWN: c_ulonglong = c_ulonglong::MAX;

impl Gpu {
    /// None where there is no driver or no card.
    pub fn find() -> Option<Gpu> {
        // SAFETY: the driver's library runs nothing when it is loaded that touches this process's own state.
        let library = ["libnvidia-ml.so.1", "nvml.dll"].iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the types are those of the library's header for these names.
        let (init, count, handle, memory_info, processes, shutdown) = unsafe {
            (
                *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?,
                *library.get::<unsafe extern "C" fn(*mut c_uint) -> c_int>(b"nvmlDeviceGetCount_v2\0").ok()?,
                *library
                    .get::<unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int>(b"nvmlDeviceGetHandleByIndex_v2\0")
                    .ok()?,
                *library.get::<MemoryInfo>(b"nvmlDeviceGetMemoryInfo\0").ok()?,
                library.get::<Processes>(b"nvmlDeviceGetComputeRunningProcesses_v3\0").ok().map(|found| *found),
                *library.get::<Shutdown>(b"nvmlShutdown\0").ok()?,
            )
        };
        // SAFETY: it takes nothing and may be called at any time.
        if unsafe { init() } != SUCCESS {
            return None;
        }
        let mut gpu = Gpu { devices: Vec::new(), memory_info, processes, shutdown, _library: library };
        let mut devices: c_uint = 0;
        // SAFETY: the pointer is to a number of ours.
        if unsafe { count(&raw mut devices) } != SUCCESS {
            return None;
        }
        for index in 0..devices {
            let mut device = null_mut();
            // SAFETY: the pointer is to a handle of ours, which the library fills in.
            if unsafe { handle(index, &raw mut device) } == SUCCESS {
                gpu.devices.push(Device(device));
            }
        }
        if gpu.devices.is_empty() { None } else { Some(gpu) }
    }

    /// `gpu_used`: what all programs use of all cards. `gpu_process`: what this one does, where the driver tells.
    pub fn memory_bytes(&self) -> Vec<(&'static str, u64)> {
        let used: Vec<u64> = self.devices.iter().filter_map(|device| self.used(*device)).collect();
        let own: Vec<u64> = self.devices.iter().filter_map(|device| self.own(*device)).collect();
        let sum = |name, bytes: Vec<u64>| (!bytes.is_empty()).then(|| (name, bytes.into_iter().sum()));
        [sum("gpu_used", used), sum("gpu_process", own)].into_iter().flatten().collect()
    }

    fn used(&self, device: Device) -> Option<u64> {
        let mut memory = Memory::default();
        // SAFETY: the handle is of this library, which is open, and the pointer is to a structure as it expects it.
        let result = unsafe { (self.memory_info)(device.0, &raw mut memory) };
        (result == SUCCESS).then_some(memory.used)
    }

    fn own(&self, device: Device) -> Option<u64> {
        let mut found = vec![Process::default(); MOST_PROCESSES];
        let mut count = MOST_PROCESSES as c_uint;
        // SAFETY: as above, and there is room for as many as `count` says.
        let result = unsafe { self.processes?(device.0, &raw mut count, found.as_mut_ptr()) };
        let own = |process: &&Process| process.pid == std::process::id() && process.used != UNKNOWN;
        let found = found.get(..count as usize)?;
        (result == SUCCESS).then(|| found.iter().find(own).map(|process| process.used))?
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // SAFETY: it was initialised once by `find`, and no handle is used after this.
        unsafe { (self.shutdown)() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `REQUIRE_CUDA=1` a machine without a card fails.
    #[test]
    fn a_card_tells_its_memory() {
        match Gpu::find() {
            Some(gpu) => {
                let bytes = gpu.memory_bytes();
                assert!(bytes.iter().any(|(kind, bytes)| *kind == "gpu_used" && *bytes > 0), "{bytes:?}");
            }
            None => {
                assert!(std::env::var_os("REQUIRE_CUDA").is_none(), "no NVIDIA driver here");
                eprintln!("skipped: no NVIDIA driver here");
            }
        }
    }
}
