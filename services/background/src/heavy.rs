//! Work whose size a client chooses, kept away from the tasks of other clients.

use crate::last::run_last;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

// Bytes below which work takes less time than handing it over.
pub const SMALL_BYTES: usize = 64 << 10; // not a window: bytes of a request
// Permit for large pieces of work, one at a time, on a thread that comes last: speech needs the cores.
static TURNS: LazyLock<HeavyTurns> = LazyLock::new(HeavyTurns::default);

/// Runs `work` over this number of bytes. Large work waits its turn, and the worker's other tasks move to another
/// thread.
pub async fn run<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes < SMALL_BYTES {
        return work();
    }
    let here = Handle::current();
    // A runtime of one thread has no other to move to. Learning has one, and would hold the turn while all others come before it.
    if here.runtime_flavor() != RuntimeFlavor::MultiThread {
        return work();
    }
    let _turn = TURNS.take(bytes).await;
    tokio::task::block_in_place(|| {
        run_last(|| {
            let _inside = here.enter();
            work()
        })
    })
}

// Turns of work that waits. The smallest goes first, so that a client with many large pieces keeps only itself waiting.
#[derive(Default)]
struct HeavyTurns(Mutex<HeavyState>);

#[derive(Default)]
struct HeavyState {
    is_taken: bool,
    count: u64,
    // By the bytes of the work, then by age.
    waiting: BTreeMap<(usize, u64), oneshot::Sender<HeavyTurn>>,
}

struct HeavyTurn {
    // `None`: it was given on.
    turns: Option<&'static HeavyTurns>,
}

impl HeavyTurns {
    async fn take(&'static self, bytes: usize) -> Option<HeavyTurn> {
        let given = {
            let state = &mut *self.0.lock();
            if !std::mem::replace(&mut state.is_taken, true) {
                return Some(HeavyTurn { turns: Some(self) });
            }
            let (sender, given) = oneshot::channel();
            state.count += 1;
            let at = (bytes, state.count);
            state.waiting.insert(at, sender);
            given
        };
        given.await.ok()
    }
}

impl Drop for HeavyTurn {
    fn drop(&mut self) {
        let Some(turns) = self.turns.take() else { return };
        loop {
            let next = {
                let state = &mut *turns.0.lock();
                let next = state.waiting.pop_first();
                state.is_taken = next.is_some();
                next
            };
            let Some((_, waiting)) = next else { return };
            match waiting.send(HeavyTurn { turns: Some(turns) }) {
                Ok(()) => return,
                // Its request was given up.
                Err(mut turn) => turn.turns = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_smallest_waits_for_one_piece_only() {
        static OWN: LazyLock<HeavyTurns> = LazyLock::new(HeavyTurns::default);
        let first = OWN.take(1).now_or_never().flatten().expect("the only turn");
        let mut large: Vec<_> = (0..100).map(|_| Box::pin(OWN.take(1 << 24))).collect();
        assert!(large.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut small = Box::pin(OWN.take(1 << 17));
        assert!((&mut small).now_or_never().is_none());
        drop(first);
        assert!(large.iter_mut().all(|one| one.now_or_never().is_none()));
        let turn = small.now_or_never().flatten().expect("the next turn");
        // Requests that were given up lose no turn.
        let last = large.pop();
        drop(large);
        drop(turn);
        let turn = last.and_then(|last| last.now_or_never().flatten()).expect("the last turn");
        drop(turn);
        assert!(OWN.take(1).now_or_never().flatten().is_some());
    }
}
