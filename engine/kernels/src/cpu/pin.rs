use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Ties the calling thread to the core of this number among those that it may use, counted round. If the system
/// refuses, the thread stays free.
pub(super) fn pin(number: usize) {
    if let Some(core) = allowed().into_iter().cycle().nth(number) {
        let mut cores = CpuSet::new();
        cores.set(core);
        let _ = sched_setaffinity(None, &cores);
    }
}

fn allowed() -> Vec<usize> {
    let cores = sched_getaffinity(None).unwrap_or_default();
    (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Cpu;
    use std::sync::Mutex;

    #[test]
    fn every_thread_gets_one_core() {
        // A thread of its own, because it stays tied.
        let test = || {
            let before = allowed().len();
            let cpu = Cpu::new(3).pinned(true);
            let seen = Mutex::new(Vec::new());
            cpu.pool.run(64, |_| {
                seen.lock().unwrap().push(allowed().len());
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
