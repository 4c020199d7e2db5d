//! Working memory of a kernel's task, kept by its thread: no allocation once a thread has seen its largest task.

use std::cell::RefCell;
use std::thread::LocalKey;

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

/// Lends the values that the thread keeps in a place of the caller's. Calls for the same place must not nest.
pub(crate) fn with<T: Clone + Default, R>(
    place: &'static LocalKey<RefCell<Vec<T>>>,
    len: usize,
    work: impl FnOnce(&mut [T]) -> R,
) -> R {
    place.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, T::default());
        }
        work(&mut scratch[..len])
    })
}
