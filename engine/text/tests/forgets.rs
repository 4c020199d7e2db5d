//! A dropped tokenizer leaves nothing behind, however many threads used it: counted over all of this process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicIsize, Ordering};
use text::Tokenizer;

struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does everything; the count touches none of its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The service reopens a sleeping model again and again, and the users' words must not outlive it.
#[test]
fn a_tokenizer_that_is_dropped_leaves_nothing_behind() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/reference/dense-wide/tokenizer.json");
    let file = std::fs::read(path).unwrap();
    let letter = |i: usize| char::from(b'a' + (i % 26) as u8);
    let words: String =
        (0..2000).flat_map(|i| [' ', letter(i), letter(i / 26), letter(i / 7), letter(i * 11)]).collect();
    let used = || {
        let tokenizer = Tokenizer::from_json(&file).unwrap();
        assert!(tokenizer.encode(&words).len() > 2000);
    };
    // Allocations that are made once for the process.
    used();
    let before = HELD.load(Ordering::Relaxed);
    used();
    let left = HELD.load(Ordering::Relaxed) - before;
    assert!(left < 10_000, "{left} bytes are left");
}
