//! Memory of requests in preparation: bodies, rendered prompts, tokens. All of it is counted here, so that large
//! simultaneous requests wait for each other and the process stays under its ceiling.

use crate::plan::prepare_bytes;
use session::{Failure, FailureCode};
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub struct PreparationMemory {
    /// Memory for bodies, apart because they come as slowly as their clients like: complete requests never wait for
    /// them.
    bodies: CountedMemory,
    /// Memory for small requests, so that a user's turn does not wait for large ones.
    small: CountedMemory,
    large: CountedMemory,
}

#[derive(Clone, Debug)]
struct CountedMemory {
    free_kib: Arc<Semaphore>,
    total_kib: u32,
    wait: Duration,
}

/// Memory that a request has taken. Dropping it gives the memory back.
#[derive(Debug)]
pub struct PreparationShare {
    memory: PreparationMemory,
    body: Option<OwnedSemaphorePermit>,
    work: Option<OwnedSemaphorePermit>,
}

/// Memory that values of JSON take beside their text, by the byte that stands before one: a place in a list, a list, an
/// object with its names.
const WORK_FOR_A_VALUE: [(u8, u64); 3] = [(b',', 64), (b'[', 128), (b'{', 704)];
/// Memory for each byte of a request while its body is parsed, its prompt rendered and cut into tokens.
const WORK_FOR_A_BYTE: u64 = 12;
/// Small requests that fit at once, which defines their size.
const SMALL_REQUESTS: u32 = 8;
/// Share above which the allocator gives unused memory back.
const LARGE_KIB: usize = 16 << 10; // not a window: KiB of memory

/// Returns the bytes of text that take as much memory as this JSON: a list of small values takes far more than its text.
pub fn json_bytes(text: &[u8]) -> u64 {
    let of_values =
        WORK_FOR_A_VALUE.map(|(mark, work)| work * text.iter().filter(|byte| **byte == mark).count() as u64);
    (text.len() as u64).max(of_values.iter().sum::<u64>() / WORK_FOR_A_BYTE)
}

impl PreparationMemory {
    pub fn of(settings: &Settings) -> PreparationMemory {
        PreparationMemory::new(prepare_bytes(settings), Duration::from_millis(settings.limits.prepare_wait_ms))
    }

    pub fn new(bytes: u64, wait: Duration) -> PreparationMemory {
        let of = |bytes: u64| {
            let total_kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).max(1);
            CountedMemory { free_kib: Arc::new(Semaphore::new(total_kib as usize)), total_kib, wait }
        };
        PreparationMemory { bodies: of(bytes / 4), small: of(bytes / 8), large: of(bytes / 8 * 5) }
    }

    pub fn most_body_bytes(&self) -> u64 {
        let [work, bodies] = [&self.large, &self.bodies].map(|memory| u64::from(memory.total_kib) << 10);
        (work / WORK_FOR_A_BYTE).min(bodies)
    }

    pub fn share(&self) -> PreparationShare {
        PreparationShare { memory: self.clone(), body: None, work: None }
    }

    /// Takes memory for a prompt without a body, by its `bytes`. One larger than the total waits until it is alone.
    pub async fn share_for(&self, bytes: usize) -> Result<PreparationShare, Failure> {
        let mut share = self.share();
        share.take_work(bytes as u64).await?;
        Ok(share)
    }
}

impl CountedMemory {
    async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, Failure> {
        let kib = kib(bytes).min(self.total_kib);
        let taken = tokio::time::timeout(self.wait, self.free_kib.clone().acquire_many_owned(kib)).await;
        taken.ok().and_then(Result::ok).ok_or_else(|| {
            let message = "other requests take all memory for preparing (memory.prepare_bytes); try again in a moment, or \
                           send less at once";
            Failure::new(FailureCode::Busy, message)
        })
    }
}

impl PreparationShare {
    pub async fn add_body(&mut self, bytes: usize) -> Result<(), Failure> {
        let more = self.memory.bodies.take(bytes as u64).await?;
        match &mut self.body {
            Some(body) => body.merge(more),
            None => self.body = Some(more),
        }
        Ok(())
    }

    pub async fn take_work(&mut self, bytes: u64) -> Result<(), Failure> {
        let (needed, memory) = (bytes.saturating_mul(WORK_FOR_A_BYTE), &self.memory);
        let is_small = kib(needed) <= memory.small.total_kib / SMALL_REQUESTS;
        self.work = Some(if is_small { &memory.small } else { &memory.large }.take(needed).await?);
        Ok(())
    }
}

impl Drop for PreparationShare {
    fn drop(&mut self) {
        if self.work.as_ref().is_some_and(|work| work.num_permits() >= LARGE_KIB) {
            give_memory_back();
        }
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX).saturating_add(1)
}

/// Limits the memory pools of the C library, of which threads otherwise have their own, eight for each core. No thread
/// of another pool uses what one thread frees, so that many pools grow for hours, and a model that sleeps leaves its
/// pieces in all of them.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn share_pools(sleeps: bool) {
    unsafe extern "C" {
        fn mallopt(option: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
    }
    const MOST_POOLS: std::ffi::c_int = -8; // M_ARENA_MAX
    const MOST_FAST: std::ffi::c_int = 1; // M_MXFAST
    const FEWEST: usize = 2;
    let cores = std::thread::available_parallelism().map_or(FEWEST, usize::from);
    let pools = if sleeps { FEWEST } else { cores.max(FEWEST) };
    // SAFETY: the function of the C library takes numbers and may be called by any thread at any time.
    unsafe { mallopt(MOST_POOLS, std::ffi::c_int::try_from(pools).unwrap_or(std::ffi::c_int::MAX)) };
    // Small freed pieces join their neighbours at once. Otherwise one allocation joins all that a large request left, and
    // other threads wait for it.
    // SAFETY: as above.
    unsafe { mallopt(MOST_FAST, 0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn share_pools(_: bool) {}

/// Gives freed memory back, which the C library keeps for the next time, which may never come.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_memory_back() {
    unsafe extern "C" {
        fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    // SAFETY: the function of the C library takes a number and may be called by any thread at any time.
    unsafe { malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_memory_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_requests_wait_for_each_other_and_then_are_refused() {
        let memory = PreparationMemory::new(16 << 20, Duration::from_millis(20));
        let mut first = memory.share();
        first.take_work(800 << 10).await.unwrap();
        let mut second = memory.share();
        let failure = second.take_work(800 << 10).await.unwrap_err();
        assert_eq!(failure.code, FailureCode::Busy);
        assert!(failure.message.contains("memory.prepare_bytes"), "{failure}");
        second.take_work(10).await.unwrap();
        drop(first);
        memory.share().take_work(800 << 10).await.unwrap();
        // One larger than the total is prepared alone.
        drop(second);
        memory.share().take_work(1 << 30).await.unwrap();
    }

    #[test]
    fn many_small_values_count_as_more_than_their_text() {
        let said = br#"{"messages": [{"role": "user", "content": "Good morning, and welcome to a long, long day at the sea."}]}"#;
        assert!(json_bytes(said) < 2 * said.len() as u64, "{}", json_bytes(said));
        assert_eq!(json_bytes(&b"ab, ".repeat(1000)), 64 * 1000 / WORK_FOR_A_BYTE);
        assert_eq!(json_bytes(&[b'x'; 1000]), 1000);
        for (values, bytes) in [("1,", 2.5), ("[],", 5.0), (r#"{"":1},"#, 8.0)] {
            let text = values.repeat(1000);
            assert!(json_bytes(text.as_bytes()) as f64 > bytes * text.len() as f64, "{values}");
        }
    }

    #[tokio::test]
    async fn slow_bodies_do_not_stop_what_is_complete() {
        let memory = PreparationMemory::new(16 << 20, Duration::from_millis(20));
        let mut slow = memory.share();
        slow.add_body(2 << 20).await.unwrap();
        slow.add_body((2 << 20) - 2048).await.unwrap();
        assert_eq!(memory.share().add_body(4096).await.unwrap_err().code, FailureCode::Busy);
        memory.share().take_work(1 << 20).await.unwrap();
        assert_eq!(memory.most_body_bytes(), (10 << 20) / WORK_FOR_A_BYTE);
    }
}
