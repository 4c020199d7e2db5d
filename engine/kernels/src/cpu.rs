//! The processor that kernels run on: its level, detected once, and the threads.

pub(crate) mod lanes;
mod level;
#[cfg(target_os = "linux")]
mod pin;
mod pool;

pub(crate) use lanes::{Lanes, at_level};
pub use level::CpuLevel;
pub use pool::Pool;

pub struct Cpu {
    pub level: CpuLevel,
    pub pool: Pool,
}

impl Cpu {
    /// Starts `threads` threads, the caller's own included; 0 means one for each core.
    pub fn new(threads: usize) -> Cpu {
        Cpu { level: CpuLevel::detect(), pool: Pool::new(threads) }
    }

    /// Ties each thread to a core of its own, also the one that first asks for work; `yes: false` changes nothing.
    pub fn pinned(mut self, yes: bool) -> Cpu {
        self.pool.pin_at_first_job(yes);
        self
    }

    pub fn with_level(threads: usize, level: CpuLevel) -> Cpu {
        Cpu { level: level.min(CpuLevel::detect()), pool: Pool::new(threads) }
    }
}

/// A pointer that tasks of one `Pool::run` share because each writes a part of its own.
///
/// Kernels cut an output into disjoint pieces that do not lie one after the other (columns of a matrix, heads of
/// interleaved rows), which `chunks_mut` cannot express.
#[derive(Clone, Copy)]
pub struct DisjointParts<'a, T> {
    first: *mut T,
    len: usize,
    lifetime: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: `DisjointParts` only hands out memory through `part`, whose caller promises that no two tasks take overlapping parts.
unsafe impl<T: Send> Send for DisjointParts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for DisjointParts<'_, T> {}

impl<'a, T> DisjointParts<'a, T> {
    pub fn new(whole: &'a mut [T]) -> DisjointParts<'a, T> {
        DisjointParts { first: whole.as_mut_ptr(), len: whole.len(), lifetime: std::marker::PhantomData }
    }

    /// # Safety
    /// Parts that are alive at the same time, in this task or in others, do not overlap.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a part beyond its slice");
        // SAFETY: the range lies inside the slice that `new` borrowed for 'a, and the caller keeps parts disjoint.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(start), len) }
    }
}
