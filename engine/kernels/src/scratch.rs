//! Working memory of a kernel's task, kept by its thread: no allocation once a thread has seen its largest task.

use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
    static SHARED: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Lends `len` values of undefined content. Calls must not nest.
pub(crate) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    with(&SCRATCH, len, work)
}

/// Lends memory that a caller shares with its tasks, which may take scratch of their own. Calls must not nest.
pub(crate) fn with_shared_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    with(&SHARED, len, work)
}

fn with<R>(
    place: &'static std::thread::LocalKey<RefCell<Vec<f32>>>,
    len: usize,
    work: impl FnOnce(&mut [f32]) -> R,
) -> R {
    place.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0.0);
        }
        work(&mut scratch[..len])
    })
}
