//! A real GPU, through the driver. One stream: what is asked first is done first, and a copy out is the only wait.

mod cache;
mod profile;

pub use cache::compile_ahead;

use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::thread::ThreadId;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUresult};

use crate::backend::{Backend, GpuWork, Recording};
use crate::error::Error;
use crate::hardware::{Capabilities, GpuApi, GpuMemory, Launch, MatrixUnits, Processors, Properties};

pub(crate) struct Cuda {
    capabilities: Capabilities,
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Kernels are recorded on a stream of their own, so that what other threads ask for meanwhile is not recorded.
    recorder: Mutex<sys::CUstream>,
    recording: Mutex<Option<(ThreadId, Stream)>>,
    /// Copies to the host that no reply waits for: by one thread at a time.
    side: Mutex<SideStream>,
    modules: HashMap<&'static str, sys::CUmodule>,
    functions: Mutex<HashMap<String, (sys::CUfunction, usize)>>,
    target: u32,
    /// True if the device reads the host's own memory where it lies, at a time of its own.
    reads_host: bool,
    profile: Mutex<Option<Vec<profile::Span>>>,
}

struct Stream(sys::CUstream);

struct SideStream {
    stream: sys::CUstream,
    asked: sys::CUevent,
}

// SAFETY: the driver's handles may be used by any thread; each call here makes the context current first.
unsafe impl Send for Cuda {}
// SAFETY: as above; what changes is behind a mutex.
unsafe impl Sync for Cuda {}

pub(crate) struct CudaGraph {
    graph: sys::CUgraph,
    ready: sys::CUgraphExec,
}

// SAFETY: as for `Cuda`.
unsafe impl Send for CudaGraph {}
// SAFETY: as for `Cuda`.
unsafe impl Sync for CudaGraph {}

/// Driver of CUDA 11.8: older ones lack the call that starts kernels here.
const FIRST_DRIVER: i32 = 11080;

/// Hopper, and a driver that keeps it in graphs that are recorded.
const FIRST_TARGET_TO_OVERLAP: u32 = 90;
const FIRST_DRIVER_TO_OVERLAP: i32 = 12040;

impl Cuda {
    pub fn open(ordinal: usize, cache: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Cuda, Error> {
        // SAFETY: it only looks whether the driver's library can be loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoDriver { library: "libcuda.so" });
        }
        // SAFETY: each call gets places of the types that the driver's manual gives for it, in the order it asks for:
        // the driver is initialised, then the device is found, then its context, then everything in that context.
        unsafe {
            let no_gpu = |result: CUresult| Error::NoGpu { reason: describe(result) };
            of(sys::cuInit(0)).map_err(no_gpu)?;
            let (mut device, mut driver) = (0, 0);
            of(sys::cuDriverGetVersion(&mut driver)).map_err(no_gpu)?;
            if driver < FIRST_DRIVER {
                let reason = format!("its driver is one of CUDA {}.{}", driver / 1000, driver % 1000 / 10);
                return Err(Error::NoGpu { reason: format!("{reason}; install one of CUDA 12 or later") });
            }
            of(sys::cuDeviceGet(&mut device, ordinal as i32)).map_err(no_gpu)?;
            let major = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
            let minor = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
            let count = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
            let shared = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
            let pageable = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS)?;
            let integrated = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)?;
            if major < 8 {
                return Err(Error::TooOld { name: name(device), major, minor });
            }
            let target = (major * 10 + minor) as u32;
            // From here on whatever goes wrong gives back what was taken.
            let mut cuda = Cuda {
                capabilities: Capabilities {
                    api: GpuApi::Cuda,
                    processors: Processors { count, shared_bytes: shared as usize },
                    lanes: 32,
                    integer_dot: true,
                    matrix_units: MatrixUnits::OfWarps,
                    overlapping_launches: target >= FIRST_TARGET_TO_OVERLAP && driver >= FIRST_DRIVER_TO_OVERLAP,
                    events: true,
                    memory: if integrated != 0 { GpuMemory::Shared } else { GpuMemory::Separate },
                },
                device,
                context: null_mut(),
                stream: null_mut(),
                recorder: Mutex::new(null_mut()),
                recording: Mutex::new(None),
                side: Mutex::new(SideStream { stream: null_mut(), asked: null_mut() }),
                modules: HashMap::new(),
                functions: Mutex::new(HashMap::new()),
                target,
                reads_host: pageable != 0,
                profile: Mutex::new(None),
            };
            check("taking the GPU", sys::cuDevicePrimaryCtxRetain(&mut cuda.context, device))?;
            check("taking the GPU", sys::cuCtxSetCurrent(cuda.context))?;
            let recorder = cuda.recorder.get_mut();
            let side = cuda.side.get_mut();
            for stream in [&mut cuda.stream, recorder, &mut side.stream] {
                check("making a stream", sys::cuStreamCreate(stream, 1))?;
            }
            // 2: its time is not taken.
            check("making an event", sys::cuEventCreate(&mut side.asked, 2))?;
            keep_freed_memory(device)?;
            let modules = &mut cuda.modules;
            cache::programs(target, driver, cache, progress, &mut |program, code| {
                let mut module = null_mut();
                check("loading kernels", sys::cuModuleLoadData(&mut module, code.as_ptr().cast()))?;
                modules.insert(program, module);
                Ok(())
            })?;
            if cuda.modules.contains_key("groups") {
                cuda.capabilities.matrix_units = MatrixUnits::OfGroups;
            }
            Ok(cuda)
        }
    }

    fn of_pool(&self, what: sys::CUmemPool_attribute) -> Result<usize, Error> {
        let mut bytes = 0u64;
        let pool = pool(self.device)?;
        // SAFETY: the attribute is a number of 64 bits.
        check("asking for used memory", unsafe { sys::cuMemPoolGetAttribute(pool, what, (&raw mut bytes).cast()) })?;
        Ok(bytes as usize)
    }

    fn function(&self, program: &'static str, kernel: &str, shared_bytes: usize) -> Result<sys::CUfunction, Error> {
        let failed = |reason: String| Error::Launch { kernel: kernel.to_string(), reason };
        let mut functions = self.functions.lock();
        if !functions.contains_key(kernel) {
            let module = *self.modules.get(program).ok_or_else(|| failed(format!("there is no program {program}")))?;
            let name = CString::new(kernel).map_err(|error| failed(error.to_string()))?;
            let mut function = null_mut();
            // SAFETY: the module is loaded and the name ends in a zero.
            of(unsafe { sys::cuModuleGetFunction(&mut function, module, name.as_ptr()) })
                .map_err(|result| failed(describe(result)))?;
            functions.insert(kernel.to_string(), (function, 0));
        }
        let Some((function, allowed)) = functions.get_mut(kernel) else { return Err(failed("it is gone".to_string())) };
        // Without asking a kernel has 48 KiB, less what it declares itself. Asking always, we need not know how much that is.
        if shared_bytes > *allowed {
            let what = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is one of a loaded module.
            of(unsafe { sys::cuFuncSetAttribute(*function, what, shared_bytes as i32) })
                .map_err(|result| failed(format!("{shared_bytes} bytes of shared memory: {}", describe(result))))?;
            *allowed = shared_bytes;
        }
        Ok(*function)
    }

    /// Returns the stream that this thread records, if it records.
    fn recorded_into(&self) -> Option<sys::CUstream> {
        let recording = self.recording.lock();
        recording.as_ref().filter(|(thread, _)| *thread == std::thread::current().id()).map(|(_, stream)| stream.0)
    }

    /// Makes the context current for this thread, which the driver asks of every caller.
    fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context was retained when this was opened.
        check("taking the GPU", unsafe { sys::cuCtxSetCurrent(self.context) })
    }
}

impl Backend for Cuda {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn properties(&self) -> Result<Properties, Error> {
        // What was freed in the stream's order is free when the stream has come there.
        self.synchronize()?;
        let (mut free_bytes, mut memory_bytes) = (0, 0);
        // SAFETY: both are places for a size.
        check("asking for free memory", unsafe { sys::cuMemGetInfo_v2(&mut free_bytes, &mut memory_bytes) })?;
        let [reserved, used] = [
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
        ];
        // What we hold for ourselves is free for us.
        free_bytes += self.of_pool(reserved)?.saturating_sub(self.of_pool(used)?);
        let name = name(self.device);
        let generation = format!("compute capability {}.{}", self.target / 10, self.target % 10);
        Ok(Properties { name, generation, memory_bytes, free_bytes })
    }

    fn used_bytes(&self) -> Result<usize, Error> {
        self.synchronize()?;
        self.of_pool(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
    }

    fn hold(&self, bytes: usize) -> Result<(), Error> {
        let address = self.allocate(bytes)?;
        // Freed memory stays in the pool.
        // SAFETY: it was allocated above.
        unsafe { self.free(address) };
        Ok(())
    }

    fn launch(
        &self,
        program: &'static str,
        kernel: &str,
        how: Launch,
        arguments: &[u8],
        overlap: bool,
    ) -> Result<(), Error> {
        self.enter()?;
        let function = self.function(program, kernel, how.shared_bytes)?;
        let stream = self.recorded_into().unwrap_or(self.stream);
        let mut parameters = [arguments.as_ptr().cast_mut().cast::<c_void>()];
        let mut attribute = sys::CUlaunchAttribute_st {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue_union { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig_st {
            gridDimX: how.grid.0,
            gridDimY: how.grid.1,
            gridDimZ: how.grid.2,
            blockDimX: how.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: how.shared_bytes as u32,
            hStream: stream,
            attrs: &raw mut attribute,
            numAttrs: overlap.into(),
        };
        let begin = self.mark()?;
        // SAFETY: the arguments are the one structure that the kernel's source declares; the driver copies them and the
        // attribute before it returns.
        let result = unsafe { sys::cuLaunchKernelEx(&raw const config, function, parameters.as_mut_ptr(), null_mut()) };
        self.note(kernel, begin)?;
        of(result).map_err(|result| match lost(result) {
            Some(lost) => lost,
            None => Error::Launch { kernel: kernel.to_string(), reason: format!("{} ({how:?})", describe(result)) },
        })
    }

    fn profile(&self, work: GpuWork) -> Result<Vec<(String, f32)>, Error> {
        self.profiled(work)
    }

    fn is_profiled(&self) -> bool {
        self.profile.lock().is_some()
    }

    fn synchronize(&self) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: the stream lives as long as this.
        check("waiting for the GPU", unsafe { sys::cuStreamSynchronize(self.stream) })
    }

    fn time(&self, work: GpuWork) -> Result<f32, Error> {
        self.enter()?;
        let (mut first, mut last) = (null_mut(), null_mut());
        // SAFETY: the events are made here, recorded in our stream and destroyed after it was waited for.
        unsafe {
            check("making an event", sys::cuEventCreate(&mut first, 0))?;
            check("making an event", sys::cuEventCreate(&mut last, 0))?;
            check("recording an event", sys::cuEventRecord(first, self.stream))?;
            let result = work();
            check("recording an event", sys::cuEventRecord(last, self.stream))?;
            self.synchronize()?;
            let elapsed_ms = profile::elapsed_ms(first, last)?;
            let _ = sys::cuEventDestroy_v2(first);
            let _ = sys::cuEventDestroy_v2(last);
            result.map(|()| elapsed_ms)
        }
    }

    fn record(&self, work: GpuWork) -> Result<Recording, Error> {
        self.enter()?;
        // One at a time.
        let recorder = self.recorder.lock();
        // What is in it when something fails is given back.
        let mut recorded = CudaGraph { graph: null_mut(), ready: null_mut() };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is ours; capture is ended on every way out of `work`.
        unsafe {
            check("recording a graph", sys::cuStreamBeginCapture_v2(*recorder, mode))?;
            *self.recording.lock() = Some((std::thread::current().id(), Stream(*recorder)));
            let result = work();
            *self.recording.lock() = None;
            let ended = check("recording a graph", sys::cuStreamEndCapture(*recorder, &mut recorded.graph));
            result.and(ended)?;
            let made = sys::cuGraphInstantiateWithFlags(&mut recorded.ready, recorded.graph, 0);
            check("making a graph", made)?;
        }
        Ok(Box::new(recorded))
    }

    fn is_recording(&self) -> bool {
        self.recorded_into().is_some()
    }

    fn replay(&self, recording: &Recording) -> Result<(), Error> {
        let Some(graph) = recording.downcast_ref::<CudaGraph>() else {
            return Err(Error::Driver { action: "starting a graph", reason: "another GPU recorded it".to_string() });
        };
        self.enter()?;
        // SAFETY: the graph was recorded in this context.
        check("starting a graph", unsafe { sys::cuGraphLaunch(graph.ready, self.stream) })
    }

    fn allocate(&self, bytes: usize) -> Result<u64, Error> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the address is a place for one; memory comes in the stream's order.
        let result = unsafe { sys::cuMemAllocAsync(&mut address, bytes.max(1), self.stream) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let free_mib = self.properties().map_or(0, |properties| properties.free_bytes >> 20);
            return Err(Error::Memory { wanted_mib: bytes.div_ceil(1 << 20), free_mib });
        }
        check("taking memory", result).map(|()| address)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: the address came from `allocate`, and `Buffer` frees it once. A lost device frees nothing, and
        // a drop has no way to report it.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            let _ = sys::cuMemFreeAsync(address, self.stream);
        }
    }

    fn allocate_host(&self, bytes: usize) -> Result<Option<NonNull<u8>>, Error> {
        self.enter()?;
        let mut address = null_mut();
        // SAFETY: the address is a place for one.
        check("taking memory of the host", unsafe { sys::cuMemAllocHost_v2(&raw mut address, bytes.max(1)) })?;
        let reason = "the driver gave none".to_string();
        NonNull::new(address.cast()).map(Some).ok_or(Error::Driver { action: "taking memory of the host", reason })
    }

    unsafe fn free_host(&self, address: NonNull<u8>) {
        // SAFETY: the address came from `allocate_host`, and `HostBuffer` frees it once. Copies into it were waited for.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            let _ = sys::cuMemFreeHost(address.as_ptr().cast());
        }
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: `Buffer` has checked the range. From memory that is not pinned the driver returns when it has read it; where
        // the device itself reads it, the wait below ends before `from` does.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.as_ptr().cast(), from.len(), self.stream) };
        check("copying to the GPU", result)?;
        if self.reads_host { self.synchronize() } else { Ok(()) }
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: as above; the wait below ends before `to` is used.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), self.stream) };
        check("copying from the GPU", result).and_then(|()| self.synchronize())
    }

    unsafe fn copy_out_beside(&self, to: &mut [u8], from: u64) -> Result<(), Error> {
        self.enter()?;
        let side = self.side.lock();
        // SAFETY: streams and event live as long as this. `Buffer` has checked the range, and lives until the wait at the
        // end is over, before which `to` is not used.
        unsafe {
            check("recording an event", sys::cuEventRecord(side.asked, self.stream))?;
            check("waiting for an event", sys::cuStreamWaitEvent(side.stream, side.asked, 0))?;
            let copied = sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, to.len(), side.stream);
            check("copying from the GPU", copied)?;
            check("waiting for a copy", sys::cuStreamSynchronize(side.stream))
        }
    }

    unsafe fn copy_within(&self, to: u64, from: u64, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        // SAFETY: `Buffer` has checked both ranges.
        check("copying on the GPU", unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream) })
    }

    unsafe fn fill(&self, at: u64, byte: u8, bytes: usize) -> Result<(), Error> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `Buffer` has checked the range.
        check("filling memory", unsafe { sys::cuMemsetD8Async(at, byte, bytes, self.stream) })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        if self.context.is_null() {
            return;
        }
        let recorder = *self.recorder.get_mut();
        let side = self.side.get_mut();
        // SAFETY: everything here was made by `open`, and nothing uses it any more. What was not made is null, which the
        // driver refuses.
        unsafe {
            let _ = sys::cuCtxSetCurrent(self.context);
            let _ = sys::cuStreamSynchronize(self.stream);
            let _ = sys::cuEventDestroy_v2(side.asked);
            for module in self.modules.values() {
                let _ = sys::cuModuleUnload(*module);
            }
            for stream in [recorder, side.stream, self.stream] {
                if !stream.is_null() {
                    let _ = sys::cuStreamDestroy_v2(stream);
                }
            }
            // What we held goes back to the system, for the next program and for this one.
            if let Ok(pool) = pool(self.device) {
                let _ = sys::cuMemPoolTrimTo(pool, 0);
            }
            let _ = sys::cuDevicePrimaryCtxRelease_v2(self.device);
        }
    }
}

impl Drop for CudaGraph {
    fn drop(&mut self) {
        // SAFETY: what is not null was made by `record`.
        unsafe {
            if !self.ready.is_null() {
                let _ = sys::cuGraphExecDestroy(self.ready);
            }
            if !self.graph.is_null() {
                let _ = sys::cuGraphDestroy(self.graph);
            }
        }
    }
}

/// Keeps freed memory for the process: pages and snapshots come and go at every turn.
fn keep_freed_memory(device: sys::CUdevice) -> Result<(), Error> {
    let (pool, mut threshold) = (pool(device)?, u64::MAX);
    let what = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the attribute is a number of 64 bits.
    check("keeping memory", unsafe { sys::cuMemPoolSetAttribute(pool, what, (&raw mut threshold).cast()) })
}

fn pool(device: sys::CUdevice) -> Result<sys::CUmemoryPool, Error> {
    let mut pool = null_mut();
    // SAFETY: the device exists, and the pool is a place for one.
    check("asking for the memory pool", unsafe { sys::cuDeviceGetDefaultMemPool(&mut pool, device) })?;
    Ok(pool)
}

fn attribute(device: sys::CUdevice, what: Attribute) -> Result<i32, Error> {
    let mut value = 0;
    // SAFETY: the value is a place for a number.
    check("asking what the GPU is", unsafe { sys::cuDeviceGetAttribute(&mut value, what, device) }).map(|()| value)
}

fn name(device: sys::CUdevice) -> String {
    let mut name = [0; 256];
    // SAFETY: the place is as long as is said; the driver ends what it writes with a zero.
    let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device) };
    if result != CUresult::CUDA_SUCCESS {
        return "a GPU".to_string();
    }
    name[255] = 0;
    // SAFETY: the last byte is a zero, whatever the driver wrote.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
}

fn of(result: CUresult) -> Result<(), CUresult> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(result) }
}

fn check(action: &'static str, result: CUresult) -> Result<(), Error> {
    of(result).map_err(|result| lost(result).unwrap_or_else(|| Error::Driver { action, reason: describe(result) }))
}

/// Returns the error of a device that must be opened again; None after a result that leaves it usable.
fn lost(result: CUresult) -> Option<Error> {
    let fatal = [
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
        CUresult::CUDA_ERROR_LAUNCH_FAILED,
        CUresult::CUDA_ERROR_LAUNCH_TIMEOUT,
        CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUresult::CUDA_ERROR_MISALIGNED_ADDRESS,
        CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        CUresult::CUDA_ERROR_INVALID_PC,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE,
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE,
        CUresult::CUDA_ERROR_ASSERT,
    ];
    fatal.contains(&result).then(|| Error::Lost { reason: describe(result) })
}

fn describe(result: CUresult) -> String {
    let mut text = null();
    // SAFETY: the driver gives a constant text, or leaves null where it does not know the number.
    unsafe {
        if sys::cuGetErrorString(result, &mut text) == CUresult::CUDA_SUCCESS && !text.is_null() {
            return CStr::from_ptr(text).to_string_lossy().into_owned();
        }
    }
    format!("error {}", result as u32)
}
