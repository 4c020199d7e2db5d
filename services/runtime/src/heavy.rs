//! Work whose size a client chooses, kept away from the tasks of other clients.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// Bytes below which work takes less time than handing it over.
const SMALL_BYTES: usize = 64 << 10; // not a window: bytes of a request
/// Permit for large pieces of work, one at a time: speech needs the other cores.
static TURN: Semaphore = Semaphore::const_new(1);

/// Runs `work` over this number of bytes. Large work waits its turn, and the worker's other tasks move to another
/// thread.
pub async fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < SMALL_BYTES {
        return work();
    }
    let _turn = TURN.acquire().await;
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        // A runtime of one thread has no other to move to.
        _ => work(),
    }
}
