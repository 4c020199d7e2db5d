//! Memory that an input takes: every allocation of a thread is counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: every call goes to the system's allocator as it came, and nothing but a number is kept of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps what `alloc` demands.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps what `dealloc` demands.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps what `realloc` demands.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

pub fn held_bytes() -> i64 {
    HELD.with(Cell::get)
}

/// The most that this thread held while it did this, beyond what it held before.
pub fn most_bytes_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = held_bytes();
    MOST.with(|most| most.set(before));
    let done = work();
    let most = MOST.with(Cell::get) - before;
    (done, u64::try_from(most).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_and_given_back_is_counted() {
        let before = held_bytes();
        let (_, most) = most_bytes_of(|| drop(vec![0_u8; 1 << 20]));
        assert!((1 << 20..2 << 20).contains(&most), "{most}");
        assert_eq!(held_bytes(), before);
        let (kept, _) = most_bytes_of(|| vec![0_u8; 1 << 16]);
        assert!(held_bytes() - before >= 1 << 16);
        drop(kept);
    }
}
