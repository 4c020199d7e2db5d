//! No length that a file states makes the reader allocate it: what a file costs follows from what it holds.

use testing::tiny;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use weights::ModelBytes;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

struct Watched;

// SAFETY: every call goes to the system's allocator unchanged; beside it only a thread's own number is written.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` through `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static WATCHED: Watched = Watched;

fn largest(bytes: &[u8]) -> usize {
    let bytes = ModelBytes::copy_of(bytes);
    LARGEST.set(0);
    let _ = weights::gguf::from_bytes(Path::new("bad.gguf"), bytes);
    LARGEST.get()
}

#[test]
fn every_length_of_a_file_may_lie() {
    // The pages of the families are the program's own, read once.
    assert!(!weights::family::all().is_empty());
    for file in [tiny::dense(), tiny::moe()] {
        let whole = file.bytes();
        let allowed = 4 * whole.len();
        assert!((1..=allowed).contains(&largest(&whole)));
        // Every length, count and dimension stands before the tensors' values.
        let values: usize = file.tensors.iter().map(|tensor| tensor.data.len().next_multiple_of(32)).sum();
        for at in 0..whole.len() - values - 8 {
            for lie in [1 << 31, u64::MAX - 63] {
                let mut bytes = whole.clone();
                bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(lie));
                let taken = largest(&bytes);
                assert!(taken <= allowed, "{lie} at byte {at}: {taken} bytes at once for a file of {}", bytes.len());
            }
        }
    }
}
