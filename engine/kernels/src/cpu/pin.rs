//! Ties threads to cores, where the system can.

/// A thread of this process, as the system names it.
#[cfg(target_os = "linux")]
pub(super) type Thread = std::os::unix::thread::RawPthread;

/// As many cores as the largest machines have, one bit each.
#[cfg(target_os = "linux")]
type Cores = [u64; 64];

#[cfg(target_os = "linux")]
unsafe extern "C" {
    fn pthread_self() -> Thread;
    fn pthread_setaffinity_np(thread: Thread, size: usize, cores: *const Cores) -> i32;
    fn pthread_getaffinity_np(thread: Thread, size: usize, cores: *mut Cores) -> i32;
}

/// The caller to the first core that it may use, the others to those behind it, from the start again where cores end. What
/// the system refuses stays as it is.
#[cfg(target_os = "linux")]
pub(super) fn pin(others: impl Iterator<Item = Thread>) {
    // SAFETY: has no conditions.
    let own = unsafe { pthread_self() };
    let allowed: Vec<usize> = cores_of(own);
    for (thread, core) in std::iter::once(own).chain(others).zip(allowed.iter().cycle()) {
        let mut cores: Cores = [0; 64];
        cores[core / 64] = 1 << (core % 64);
        // SAFETY: the thread lives (the caller, or one whose handle the caller holds), and the size is that of the set.
        unsafe { pthread_setaffinity_np(thread, size_of::<Cores>(), &cores) };
    }
}

/// Where a living thread may run; empty where the system does not tell.
#[cfg(target_os = "linux")]
fn cores_of(thread: Thread) -> Vec<usize> {
    let mut cores: Cores = [0; 64];
    // SAFETY: the thread lives, and the size is that of the set.
    let refused = unsafe { pthread_getaffinity_np(thread, size_of::<Cores>(), &mut cores) } != 0;
    let all = (0..64 * cores.len()).filter(|core| cores[core / 64] >> (core % 64) & 1 == 1);
    if refused { Vec::new() } else { all.collect() }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use std::sync::Mutex;

    #[test]
    fn every_thread_gets_one_core() {
        // In a thread of its own, because it stays where it was tied.
        let test = || {
            // SAFETY: has no conditions.
            let before = cores_of(unsafe { pthread_self() }).len();
            let cpu = Cpu::new(3).pinned(true);
            let seen = Mutex::new(Vec::new());
            cpu.pool.run(64, |_| {
                // SAFETY: has no conditions.
                let own = unsafe { pthread_self() };
                seen.lock().unwrap().push(cores_of(own).len());
                std::thread::yield_now();
            });
            if before == 0 {
                return println!("skipped: the system does not tell where threads may run");
            }
            assert!(seen.lock().unwrap().iter().all(|cores| *cores == 1));
        };
        std::thread::spawn(test).join().unwrap();
    }
}
