//! Memory of requests in preparation: bodies, rendered prompts, tokens. All of it is counted here, so that large
//! simultaneous requests wait for each other and the process stays under its ceiling.

use crate::plan::prepare_bytes;
use parking_lot::Mutex;
use session::{Failure, FailureCode};
use settings::Settings;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub struct PreparationMemory {
    /// Memory for bodies, apart because they come as slowly as their clients like: complete requests never wait for
    /// them.
    bodies: CountedMemory,
    bodies_of_users: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
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
    of_user: Option<Arc<Semaphore>>,
    body_of_user: Option<OwnedSemaphorePermit>,
    body: Option<OwnedSemaphorePermit>,
    work: Option<OwnedSemaphorePermit>,
}

/// Memory that values of JSON take beside their text, by the byte that stands before one: a place in a list, a list, an
/// object with its names.
const WORK_FOR_A_VALUE: [(u8, u64); 3] = [(b',', 64), (b'[', 128), (b'{', 704)];
/// Memory for each byte of a request while its body is parsed, its prompt rendered and cut into tokens.
const WORK_FOR_A_BYTE: u64 = 12;
// Quarters of the memory for bodies that one user takes at most: others go on beside bodies that never end.
const QUARTERS_OF_USER: u32 = 3;
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
        let bodies_of_users = Arc::default();
        PreparationMemory { bodies: of(bytes / 4), bodies_of_users, small: of(bytes / 8), large: of(bytes / 8 * 5) }
    }

    pub fn most_body_bytes(&self) -> u64 {
        let [work, bodies] = [self.large.total_kib, self.body_kib_of_user()].map(|kib| u64::from(kib) << 10);
        (work / WORK_FOR_A_BYTE).min(bodies)
    }

    pub fn share(&self) -> PreparationShare {
        PreparationShare { memory: self.clone(), of_user: None, body_of_user: None, body: None, work: None }
    }

    // Returns a share whose body counts as one of this user.
    pub fn share_of(&self, user: &str) -> PreparationShare {
        let users = &mut *self.bodies_of_users.lock();
        let known = users.get(user).and_then(Weak::upgrade);
        let of_user = known.unwrap_or_else(|| {
            users.retain(|_, memory| memory.strong_count() > 0);
            let memory = Arc::new(Semaphore::new(self.body_kib_of_user() as usize));
            users.insert(user.to_owned(), Arc::downgrade(&memory));
            memory
        });
        let mut share = self.share();
        share.of_user = Some(of_user);
        share
    }

    fn body_kib_of_user(&self) -> u32 {
        (self.bodies.total_kib / 4 * QUARTERS_OF_USER).max(1)
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
        self.take_of(&self.free_kib, kib).await
    }

    async fn take_of(&self, free_kib: &Arc<Semaphore>, kib: u32) -> Result<OwnedSemaphorePermit, Failure> {
        let taken = tokio::time::timeout(self.wait, free_kib.clone().acquire_many_owned(kib)).await;
        taken.ok().and_then(Result::ok).ok_or_else(|| {
            let message = "other requests take all memory for preparing (memory.prepare_bytes); try again in a moment, or \
                           send less at once";
            Failure::new(FailureCode::Busy, message)
        })
    }
}

impl PreparationShare {
    pub async fn add_body(&mut self, bytes: usize) -> Result<(), Failure> {
        let bodies = &self.memory.bodies;
        if let Some(of_user) = &self.of_user {
            let kib = kib(bytes as u64).min(self.memory.body_kib_of_user());
            add(&mut self.body_of_user, bodies.take_of(of_user, kib).await?);
        }
        add(&mut self.body, bodies.take(bytes as u64).await?);
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

fn add(taken: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match taken {
        Some(taken) => taken.merge(more),
        None => *taken = Some(more),
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

    #[tokio::test]
    async fn slow_bodies_of_one_user_leave_room_for_the_bodies_of_others() {
        let memory = PreparationMemory::new(16 << 20, Duration::from_millis(20));
        let mut slow = Vec::new();
        let failure = loop {
            let mut share = memory.share_of("bob");
            match share.add_body(100_000).await {
                Ok(()) => slow.push(share),
                Err(failure) => break failure,
            }
        };
        assert_eq!((failure.code, slow.len()), (FailureCode::Busy, (3 << 20) / (98 << 10)));
        memory.share_of("alice").add_body(1 << 19).await.unwrap();
        assert_eq!(memory.bodies_of_users.lock().len(), 2);
        drop(slow);
        memory.share_of("bob").add_body(3 << 20).await.unwrap();
        drop(memory.share_of("carol"));
        assert_eq!(memory.bodies_of_users.lock().len(), 1, "users without a body are forgotten");
    }
}
