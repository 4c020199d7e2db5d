//! A token costs no memory once the buffers have seen one: counted over all threads, in a process of this test's own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does everything; the count touches none of its memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_allocation_per_token_after_warm_up() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference/gguf");
    for (file, threads, kv) in [
        ("dense-wide.q4_k_m.gguf", 2, Format::F16),
        ("dense-wide.q8_0.gguf", 1, Format::Q8_0),
        // More threads than heads: attention cuts the earlier positions between them.
        ("dense-wide.q4_k_m.gguf", 8, Format::Q8_0),
        ("moe.bf16.gguf", 2, Format::F16),
    ] {
        let mut model = weights::open(&folder.join(file), true).unwrap();
        let cpu = Cpu::new(threads);
        weights::pack(&mut model, weights::PackedPart::All, &cpu, None, true, &mut |_, _| ()).unwrap();
        let network = Network::new(model, Precision::Integer);
        let kv = KvFormats::new(kv, kv);
        let mut state = SequenceState::new(network.state_shape, kv, &MemoryMeter::default()).unwrap();
        let mut work = Workspace::default();
        let mut one = |state: &mut SequenceState, token: u32| {
            let mut lanes = [StepLane {
                state,
                tokens: &[token],
                wanted: WantedLogits::Last,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            }];
            network.forward(&cpu, &mut lanes, &mut work)[0]
        };
        // Different tokens, so that each expert has run once and each thread has had each kind of task.
        for token in 0..100 {
            one(&mut state, token * 3);
        }
        // All tokens are on the state's first page: a new page is memory that a state needs.
        let before = COUNT.load(Ordering::Relaxed);
        for token in 0..100 {
            one(&mut state, token * 3 + 1);
        }
        let allocations = COUNT.load(Ordering::Relaxed) - before;
        // A thread without a task in the warm-up may get its first one later, and an expert its first token: each once.
        assert!(allocations < 20, "{file} with {threads} threads: {allocations} allocations for 100 tokens");
        // The same after a long prompt, of which only pages grew: 20 whole ones, and the first tokens of the next.
        let tokens: Vec<u32> = (state.position as u32..20 * 256 + 10).map(|token| token % 300).collect();
        for tokens in tokens.chunks(256) {
            let mut lanes = [StepLane {
                state: &mut state,
                tokens,
                wanted: WantedLogits::Nothing,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            }];
            network.forward(&cpu, &mut lanes, &mut work);
        }
        let mut one = |state: &mut SequenceState, token: u32| {
            let mut lanes = [StepLane {
                state,
                tokens: &[token],
                wanted: WantedLogits::Last,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            }];
            network.forward(&cpu, &mut lanes, &mut work)[0]
        };
        for token in 0..50 {
            one(&mut state, token * 5);
        }
        let before = COUNT.load(Ordering::Relaxed);
        for token in 0..100 {
            one(&mut state, token * 3 + 2);
        }
        let allocations = COUNT.load(Ordering::Relaxed) - before;
        assert!(
            allocations < 20,
            "{file} with {threads} threads: {allocations} allocations for 100 tokens after 5,000"
        );
    }
}

#[test]
fn an_allocation_is_counted() {
    let before = COUNT.load(Ordering::Relaxed);
    drop(std::hint::black_box(vec![1u8; 100]));
    assert!(COUNT.load(Ordering::Relaxed) > before);
}
