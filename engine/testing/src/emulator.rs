//! Runs the CUDA kernels on the CPU: the same sources, compiled by the system's C++ compiler behind a small header that makes
//! each thread of a block a fiber (`shim.h`). It finds errors that a GPU hides: threads that wait for each other for ever,
//! and writes beside a buffer. It shows nothing about speed.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

use gpu::backend::{Backend, GpuWork, Recording};
use gpu::device::{Capabilities, GpuApi, GpuMemory, MatrixUnits, Processors, Properties};
use gpu::{Device, Error, GpuFeature, Launch};
use kernels::cuda::Program;
use sha2::{Digest, Sha256};

const SHIM: &str = include_str!("emulator/shim.h");
const NAME: &str = "an emulated GPU";
const TOTAL_BYTES: usize = 1 << 30;
/// Bytes around each allocation that no kernel may write.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xA5;

#[derive(Debug, Clone, thiserror::Error)]
pub enum EmulatorError {
    #[error("the emulator needs a C++ compiler: {reason}")]
    NoCompiler { reason: String },
    #[error("the emulator: {reason}")]
    Failed { reason: String },
}

pub fn gpu_error(error: EmulatorError) -> Error {
    Error::NoGpu { reason: error.to_string() }
}

pub struct Emulator {
    capabilities: Capabilities,
    programs: HashMap<&'static str, libloading::Library>,
    /// The start of each allocation, guards and all.
    memory: Mutex<HashMap<u64, Vec<u8>>>,
    launches: AtomicU64,
    /// Kernels that it still starts before it is lost, as a GPU can be.
    left: AtomicU64,
    profile: Mutex<Option<Vec<String>>>,
    recording: Mutex<HashMap<ThreadId, Vec<Started>>>,
}

#[derive(Clone)]
struct Started {
    program: &'static str,
    kernel: String,
    how: Launch,
    arguments: Vec<u8>,
}

type Kernel = unsafe extern "C" fn(*const c_void);
type Emulate = unsafe extern "C" fn(Kernel, *const c_void, u32, u32, u32, u32, u32, i32) -> *const c_char;

impl Emulator {
    pub fn open(folder: &Path, sources: &[Program]) -> Result<Emulator, EmulatorError> {
        let mut programs = HashMap::new();
        for (name, file) in build_all(folder, sources)? {
            // SAFETY: the library is one that was built from our sources; loading it runs no more than the table of halves.
            let library = unsafe { libloading::Library::new(&file) }
                .map_err(|error| EmulatorError::Failed { reason: error.to_string() })?;
            programs.insert(name, library);
        }
        Ok(Emulator {
            capabilities: Capabilities {
                api: GpuApi::Cuda,
                // As small as the smallest real ones.
                processors: Processors { count: 4, shared_bytes: 99 << 10 },
                lanes: 32,
                integer_dot: true,
                matrix_units: MatrixUnits::OfGroups,
                overlapping_launches: false,
                events: false,
                memory: GpuMemory::Separate,
            },
            programs,
            memory: Mutex::new(HashMap::new()),
            launches: AtomicU64::new(0),
            left: AtomicU64::new(u64::MAX),
            profile: Mutex::new(None),
            recording: Mutex::new(HashMap::new()),
        })
    }

    /// Returns the emulator as a device. Products by groups of warps are off until a test asks for them.
    pub fn device(self: &Arc<Emulator>) -> Device {
        let device = Device::new(self.clone());
        device.set_feature(GpuFeature::GroupProducts, false);
        device
    }

    pub fn break_after(&self, kernels: u64) {
        self.left.store(kernels, Ordering::Relaxed);
    }

    fn check_lost(&self) -> Result<(), Error> {
        if self.left.load(Ordering::Relaxed) > 0 {
            return Ok(());
        }
        Err(Error::Lost { reason: "as a test wanted".to_string() })
    }

    fn held_bytes(&self) -> usize {
        self.memory.lock().values().map(|memory| memory.len() - 3 * GUARD).sum()
    }
}

impl Backend for Emulator {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn properties(&self) -> Result<Properties, Error> {
        let free_bytes = TOTAL_BYTES.saturating_sub(self.held_bytes());
        let generation = "compute capability 8.0".to_string();
        Ok(Properties { name: NAME.to_string(), generation, memory_bytes: TOTAL_BYTES, free_bytes })
    }

    fn used_bytes(&self) -> Result<usize, Error> {
        Ok(self.held_bytes())
    }

    fn hold(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn launch(
        &self,
        program: &'static str,
        kernel: &str,
        how: Launch,
        arguments: &[u8],
        _overlap: bool,
    ) -> Result<(), Error> {
        if let Some(recording) = self.recording.lock().get_mut(&std::thread::current().id()) {
            recording.push(Started { program, kernel: kernel.to_string(), how, arguments: arguments.to_vec() });
            return Ok(());
        }
        if let Some(started) = &mut *self.profile.lock() {
            started.push(kernel.to_string());
        }
        self.check_lost()?;
        self.left.fetch_sub(u64::from(self.left.load(Ordering::Relaxed) < u64::MAX), Ordering::Relaxed);
        let failed = |reason: String| Error::Launch { kernel: kernel.to_string(), reason };
        let library = self.programs.get(program).ok_or_else(|| failed(format!("there is no program {program}")))?;
        // Sixteen-byte alignment, as a GPU gives to arguments.
        let aligned: Vec<u128> = arguments
            .chunks(16)
            .map(|chunk| {
                let mut bytes = [0; 16];
                bytes[..chunk.len()].copy_from_slice(chunk);
                u128::from_ne_bytes(bytes)
            })
            .collect();
        // Every other launch runs its threads backwards, so that a missing barrier shows in one of them.
        let backwards = (self.launches.fetch_add(1, Ordering::Relaxed) % 2) as i32;
        // SAFETY: the symbols have these types in `shim.h`, the arguments are the structure that the launcher of this
        // kernel declares with the same fields, and the library outlives the call.
        let answer = unsafe {
            let emulate: libloading::Symbol<Emulate> =
                library.get(b"emulate").map_err(|error| failed(error.to_string()))?;
            let start: libloading::Symbol<Kernel> =
                library.get(kernel.as_bytes()).map_err(|error| failed(error.to_string()))?;
            let (x, y, z) = how.grid;
            emulate(*start, aligned.as_ptr().cast(), x, y, z, how.threads, how.shared_bytes as u32, backwards)
        };
        if answer.is_null() {
            return Ok(());
        }
        // SAFETY: what is not null is a constant text.
        Err(failed(unsafe { CStr::from_ptr(answer) }.to_string_lossy().into_owned()))
    }

    fn profile(&self, work: GpuWork) -> Result<Vec<(String, f32)>, Error> {
        *self.profile.lock() = Some(Vec::new());
        let result = work();
        let started = self.profile.lock().take().unwrap_or_default();
        result.map(|()| started.into_iter().map(|kernel| (kernel, f32::NAN)).collect())
    }

    fn is_profiled(&self) -> bool {
        self.profile.lock().is_some()
    }

    /// Reports writes beside a buffer. All work is done when it is asked for.
    fn synchronize(&self) -> Result<(), Error> {
        let beside = || Error::Lost { reason: "a kernel wrote beside its memory".to_string() };
        let memory = self.memory.lock();
        if memory.iter().all(|(address, memory)| is_sound(*address, memory)) { Ok(()) } else { Err(beside()) }
    }

    fn time(&self, work: GpuWork) -> Result<f32, Error> {
        work().map(|()| f32::NAN)
    }

    fn record(&self, work: GpuWork) -> Result<Recording, Error> {
        let thread = std::thread::current().id();
        self.recording.lock().insert(thread, Vec::new());
        let result = work();
        let started = self.recording.lock().remove(&thread).unwrap_or_default();
        result.map(|()| Box::new(started) as Recording)
    }

    fn is_recording(&self) -> bool {
        self.recording.lock().contains_key(&std::thread::current().id())
    }

    fn replay(&self, recording: &Recording) -> Result<(), Error> {
        let started = recording.downcast_ref::<Vec<Started>>().expect("this device recorded it");
        started.iter().try_for_each(|one| self.launch(one.program, &one.kernel, one.how, &one.arguments, false))
    }

    /// New memory holds NaN, so that a kernel that counts on zeros is found.
    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.check_lost()?;
        let free_bytes = TOTAL_BYTES.saturating_sub(self.held_bytes());
        if bytes > free_bytes {
            return Err(Error::Memory { wanted_mib: bytes.div_ceil(1 << 20), free_mib: free_bytes >> 20 });
        }
        let mut memory = vec![GUARD_BYTE; bytes + 3 * GUARD];
        let address = (memory.as_ptr() as usize).next_multiple_of(GUARD) + GUARD;
        let start = address - memory.as_ptr() as usize;
        memory[start..start + bytes].fill(0xFF);
        self.memory.lock().insert(address as u64, memory);
        Ok(address as u64)
    }

    unsafe fn free(&self, address: u64) {
        if let Some(memory) = self.memory.lock().remove(&address)
            && !is_sound(address, &memory)
            && !std::thread::panicking()
        {
            panic!("a kernel wrote beside its memory");
        }
    }

    fn allocate_host(&self, _: usize) -> Result<Option<NonNull<u8>>, Error> {
        Ok(None)
    }

    unsafe fn free_host(&self, _: NonNull<u8>) {}

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        self.check_lost()?;
        // SAFETY: `Buffer` is the only caller and has checked the range against its allocation.
        unsafe { std::ptr::copy(from.as_ptr(), to as *mut u8, from.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        self.check_lost()?;
        // SAFETY: as above.
        unsafe { std::ptr::copy(from as *const u8, to.as_mut_ptr(), to.len()) };
        self.synchronize()
    }

    unsafe fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.check_lost()?;
        // SAFETY: as above.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        self.check_lost()?;
        // SAFETY: as above.
        unsafe { std::ptr::write_bytes(at as *mut u8, byte, bytes) };
        Ok(())
    }
}

pub fn open_emulator(folder: &Path) -> Result<Arc<Emulator>, EmulatorError> {
    Emulator::open(folder, gpu::programs(GpuApi::Cuda)).map(Arc::new)
}

pub fn has_emulator() -> bool {
    match open_emulator(&std::env::temp_dir().join("reprise-gpu-tests")) {
        Ok(_) => true,
        Err(error @ EmulatorError::NoCompiler { .. }) => {
            println!("skipped: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn is_emulated(device: &Device) -> bool {
    device.properties().is_ok_and(|properties| properties.name == NAME)
}

fn is_sound(address: u64, memory: &[u8]) -> bool {
    let start = address as usize - memory.as_ptr() as usize;
    let bytes = memory.len() - 3 * GUARD;
    memory[..start].iter().chain(&memory[start + bytes..]).all(|byte| *byte == GUARD_BYTE)
}

pub fn build_all(folder: &Path, sources: &[Program]) -> Result<Vec<(&'static str, PathBuf)>, EmulatorError> {
    std::fs::create_dir_all(folder).map_err(|error| EmulatorError::Failed { reason: error.to_string() })?;
    std::thread::scope(|scope| {
        let begin = |program: &Program| {
            let source = program.source();
            (program.name, scope.spawn(move || build(folder, &source)))
        };
        let builds: Vec<_> = sources.iter().map(begin).collect();
        let ended = || EmulatorError::Failed { reason: "its thread ended".to_string() };
        builds.into_iter().map(|(name, build)| Ok((name, build.join().map_err(|_| ended())??))).collect()
    })
}

/// Compiles a program, once for each text of it.
fn build(folder: &Path, source: &str) -> Result<PathBuf, EmulatorError> {
    let hash = Sha256::new().chain_update(SHIM).chain_update(source).finalize();
    let name = hex::encode(&hash[..12]);
    let file = folder.join(format!("{name}.so"));
    if file.exists() {
        return Ok(file);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    // With a name of its own, so that two programs that build the same thing do not write into one file.
    let own = format!("{name}.{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let (text, part) = (folder.join(format!("{own}.cpp")), folder.join(format!("{own}.part")));
    let failed = |reason: String| EmulatorError::Failed { reason };
    std::fs::write(&text, format!("{SHIM}\n{source}")).map_err(|error| failed(error.to_string()))?;
    let object = folder.join(format!("{own}.o"));
    let compile = |arguments: &[&std::ffi::OsStr]| {
        let output = Command::new("g++").args(arguments).output();
        let output = output.map_err(|error| EmulatorError::NoCompiler { reason: format!("g++: {error}") })?;
        if output.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&output.stderr).into_owned())) }
    };
    // In two steps: the check of alignment calls the header, and its own library would be linked for nothing.
    let flags = ["-std=c++17", "-O2", "-fPIC", "-w", "-fsanitize=alignment", "-c", "-o"].map(std::ffi::OsStr::new);
    compile(&[&flags[..], &[object.as_os_str(), text.as_os_str()]].concat())?;
    compile(&["-shared".as_ref(), "-o".as_ref(), part.as_os_str(), object.as_os_str()])?;
    std::fs::rename(&part, &file).map_err(|error| failed(error.to_string()))?;
    for left in [&text, &object] {
        let _ = std::fs::remove_file(left);
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::cuda::PRELUDE;

    const WRONG: &str = r#"
        struct Place { float* out; };
        // Reads what another thread writes, with or without waiting for it.
        KERNEL(turn_around, 64, Place) {
            SHARED(float, values);
            values[threadIdx.x] = static_cast<float>(threadIdx.x);
            __syncthreads();
            a.out[threadIdx.x] = values[63 - threadIdx.x];
        }
        KERNEL(turn_around_at_once, 64, Place) {
            SHARED(float, values);
            values[threadIdx.x] = static_cast<float>(threadIdx.x);
            a.out[threadIdx.x] = values[63 - threadIdx.x];
        }
        KERNEL(wait_apart, 64, Place) { if (threadIdx.x < 32) __syncthreads(); else warp_sum(threadIdx.x < 40 ? 1.0f : 2.0f); if (threadIdx.x == 33) return; warp_sum(1.0f); }
        KERNEL(half_a_warp_sums, 32, Place) { if (threadIdx.x < 16) a.out[0] = warp_sum(1.0f); }
        KERNEL(beside_the_shared, 32, Place) { SHARED(float, values); values[64] = 1.0f; }
        KERNEL(beside_the_memory, 32, Place) { a.out[64] = 1.0f; }
        KERNEL_AHEAD(some_do_not_wait, 32, Place) { if (threadIdx.x != 7) follow(); }
        KERNEL(read_between, 32, Place) {
            float4 four = *reinterpret_cast<float4*>(a.out + 1 + threadIdx.x % 2 * 4);
            a.out[0] = four.x;
        }
        KERNEL(read_before_it_lands, 32, Place) {
            SHARED(float, values);
            copy_ahead(values + threadIdx.x % 16 * 4, a.out, true);
            end_of_copies();
            a.out[threadIdx.x] = values[threadIdx.x % 16 * 4];
        }
    "#;

    fn run(emulated: &Emulator, kernel: &str, out: u64) -> Result<(), Error> {
        let threads = if kernel.starts_with("turn") || kernel.starts_with("wait") { 64 } else { 32 };
        let how = Launch { grid: (1, 1, 1), threads, shared_bytes: 64 * 4 };
        emulated.launch("wrong", kernel, how, &out.to_ne_bytes(), false)
    }

    /// A checker that finds nothing in what is wrong proves nothing about what is right.
    #[test]
    fn what_is_wrong_is_found() {
        let folder = std::env::temp_dir().join("reprise-gpu-tests");
        let program = Program { name: "wrong", parts: &[PRELUDE, WRONG], only_for: None };
        let emulated = match Emulator::open(&folder, &[program]) {
            Ok(emulated) => emulated,
            Err(error @ EmulatorError::NoCompiler { .. }) => {
                println!("skipped: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let out = emulated.allocate(64 * 4).unwrap();
        let values = |out: u64| {
            let mut bytes = [0; 64 * 4];
            // SAFETY: `out` has room for so many values.
            unsafe { emulated.copy_out(&mut bytes, out) }.unwrap();
            bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect::<Vec<f32>>()
        };
        let turned: Vec<f32> = (0..64).rev().map(|i| i as f32).collect();
        for _ in 0..2 {
            run(&emulated, "turn_around", out).unwrap();
            assert_eq!(values(out), turned);
        }
        // In one of both orders the race shows.
        let raced = [(); 2].map(|()| {
            run(&emulated, "turn_around_at_once", out).unwrap();
            values(out) == turned
        });
        assert_eq!(raced, [false; 2]);
        for (kernel, why) in [
            ("wait_apart", "wait for each other"),
            ("half_a_warp_sums", "wait for each other"),
            ("beside_the_shared", "beyond the shared memory"),
            ("read_between", "not aligned"),
            ("some_do_not_wait", "did not wait"),
        ] {
            let error = run(&emulated, kernel, out).unwrap_err().to_string();
            assert!(error.contains(why), "{kernel}: {error}");
        }
        run(&emulated, "read_before_it_lands", out).unwrap();
        assert!(values(out)[..32].iter().all(|value| value.is_nan()));
        assert!(emulated.synchronize().is_ok());
        run(&emulated, "beside_the_memory", out).unwrap();
        assert!(emulated.synchronize().is_err());
        emulated.memory.lock().clear();
    }
}
