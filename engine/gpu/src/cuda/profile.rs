//! Times of kernels, by events around them.

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::{Cuda, check};
use crate::backend::{Backend, GpuWork};
use crate::error::Error;

pub(super) struct Span {
    kernel: String,
    begin: sys::CUevent,
    end: sys::CUevent,
}

impl Cuda {
    /// Records an event behind all work so far. None: nothing is profiled.
    pub(super) fn mark(&self) -> Result<Option<sys::CUevent>, Error> {
        if self.profile.lock().is_none() {
            return Ok(None);
        }
        let mut event = null_mut();
        // SAFETY: the event is made here, and destroyed by `profile`, which waits for it.
        unsafe {
            check("making an event", sys::cuEventCreate(&raw mut event, 0))?;
            check("recording an event", sys::cuEventRecord(event, self.stream))?;
        }
        Ok(Some(event))
    }

    pub(super) fn note(&self, kernel: &str, begin: Option<sys::CUevent>) -> Result<(), Error> {
        if let (Some(begin), Some(end)) = (begin, self.mark()?)
            && let Some(spans) = &mut *self.profile.lock()
        {
            spans.push(Span { kernel: kernel.to_string(), begin, end });
        }
        Ok(())
    }

    pub(super) fn profiled(&self, work: GpuWork) -> Result<Vec<(String, f32)>, Error> {
        *self.profile.lock() = Some(Vec::new());
        let result = work();
        let spans = self.profile.lock().take().unwrap_or_default();
        self.synchronize()?;
        let mut kernels = Vec::new();
        for span in spans {
            // SAFETY: both events were recorded, and what they wait for is done.
            let elapsed_ms = unsafe { elapsed_ms(span.begin, span.end)? };
            // SAFETY: only this function has them.
            unsafe {
                let _ = sys::cuEventDestroy_v2(span.begin);
                let _ = sys::cuEventDestroy_v2(span.end);
            }
            kernels.push((span.kernel, elapsed_ms));
        }
        result.map(|()| kernels)
    }
}

/// # Safety
/// Both events are ones that were recorded and reached.
pub(super) unsafe fn elapsed_ms(begin: sys::CUevent, end: sys::CUevent) -> Result<f32, Error> {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
    let mut elapsed_ms = 0.0;
    // SAFETY: the library is loaded, and this is its function's type in every version. The name without a number is the one that
    // drivers older than the bindings have too.
    unsafe {
        let elapsed = sys::culib().get::<Elapsed>(b"cuEventElapsedTime\0");
        let reason = "the driver cannot tell times".to_string();
        let elapsed = elapsed.map_err(|_| Error::Driver { action: "exactness events", reason })?;
        check("exactness events", elapsed(&raw mut elapsed_ms, begin, end))?;
    }
    Ok(elapsed_ms)
}
