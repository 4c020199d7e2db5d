//! Threads that run one job after the other, without a lock for each job.
//!
//! A token of a small model is some two hundred jobs of a few microseconds. Workers therefore spin for a moment before
//! they sleep, and a job is a few stores to atomics; workers enter the sleeping path (a mutex and a condition) only
//! after an idle moment. A job waits for no worker that has not begun it: where other programs hold its core, the caller
//! does all by itself.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

/// Looks of a worker for the next job before it sleeps: about 50 microseconds.
const SPINS_BEFORE_SLEEP: usize = 10_000;

pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// True while the workers run a job. Another job that comes meanwhile (from inside a job, or from another thread)
    /// runs on its caller alone.
    taken: AtomicBool,
    is_pinned: AtomicBool,
}

struct Shared {
    /// Number of jobs; a worker that sees it change takes part in the job.
    job_number: AtomicUsize,
    job: AtomicPtr<Job<'static>>,
    entered: AtomicUsize, // times that workers entered the current job, and `CLOSED` when none may enter any more
    left: AtomicUsize,    // times that they left it
    asleep: AtomicUsize,  // workers that sleep or are about to
    /// Lock that a worker holds when it goes to sleep and the caller when it wakes it, so that no wake-up comes too
    /// early.
    door: Mutex<()>,
    wake: Condvar,
    stop: AtomicBool,
    pins: AtomicBool,
    /// Tasks of the current job that no thread has begun, by thread, the caller's first.
    shares: Box<[Share]>,
}

const CLOSED: usize = 1 << (usize::BITS - 1);

struct Job<'a> {
    run: &'a (dyn Fn(usize) + Sync),
    panic: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

impl Pool {
    pub fn new(threads: usize) -> Pool {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = if threads == 0 { cores } else { threads };
        let shared = Arc::new(Shared {
            job_number: AtomicUsize::new(0),
            job: AtomicPtr::new(std::ptr::null_mut()),
            entered: AtomicUsize::new(CLOSED),
            left: AtomicUsize::new(0),
            asleep: AtomicUsize::new(0),
            door: Mutex::new(()),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            pins: AtomicBool::new(false),
            shares: (0..threads).map(|_| Share::default()).collect(),
        });
        let workers = (1..threads)
            .filter_map(|n| {
                let shared = shared.clone();
                // A machine that refuses a thread runs with fewer.
                std::thread::Builder::new().name(format!("kernel-{n}")).spawn(move || work(&shared, n)).ok()
            })
            .collect();
        Pool { shared, workers, taken: AtomicBool::new(false), is_pinned: AtomicBool::new(false) }
    }

    /// Lets the first job tie its caller and each worker to a core, if the system can. Not earlier, because the thread
    /// that makes a pool need not be the one that works with it.
    pub fn pin_at_first_job(&mut self, yes: bool) {
        self.shared.pins.store(yes, Ordering::SeqCst);
    }

    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `run(0)` to `run(tasks - 1)`, each once, in any order and on any thread; returns when all are done.
    pub fn run(&self, tasks: usize, run: impl Fn(usize) + Sync) {
        if !self.is_pinned.load(Ordering::Relaxed) && !self.is_pinned.swap(true, Ordering::Relaxed) {
            self.shared.pin(0);
        }
        if tasks <= 1 || self.workers.is_empty() || self.taken.swap(true, Ordering::Acquire) {
            (0..tasks).for_each(run);
            return;
        }
        let job = Job { run: &run, panic: Mutex::new(None) };
        let shared = &*self.shared;
        let count = shared.shares.len();
        for (n, share) in shared.shares.iter().enumerate() {
            share.set(n * tasks / count, (n + 1) * tasks / count);
        }
        shared.job.store((&raw const job).cast_mut().cast(), Ordering::Relaxed);
        shared.left.store(0, Ordering::Relaxed);
        shared.entered.store(0, Ordering::Release);
        shared.job_number.fetch_add(1, Ordering::SeqCst);
        // One total order of these operations: a worker either sees the new number before it sleeps, or is counted here.
        if shared.asleep.load(Ordering::SeqCst) > 0 {
            drop(lock(&shared.door));
            shared.wake.notify_all();
        }
        job.take_part(&shared.shares, 0);
        // The job lives on this stack: no worker may be in it when this function returns.
        let entered = shared.entered.fetch_or(CLOSED, Ordering::Relaxed);
        let mut spins = 0;
        while shared.left.load(Ordering::Acquire) != entered {
            spins += 1;
            // More threads than free cores: the worker we wait for may need this one.
            if spins > SPINS_BEFORE_SLEEP { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.taken.store(false, Ordering::Release);
        let panic = job.panic.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.job_number.fetch_add(1, Ordering::SeqCst);
        drop(lock(&self.shared.door));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches the panics of jobs, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

impl Job<'_> {
    /// Works through the thread's own tasks from the front, and then takes other threads' from behind.
    fn take_part(&self, shares: &[Share], thread: usize) {
        let next = || shares[thread].front().or_else(|| shares.iter().find_map(Share::back));
        while let Some(task) = next() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.run)(task))) {
                lock(&self.panic).get_or_insert(panic);
            }
        }
    }
}

/// A range of tasks: its first in the high half, its end in the low half. Alone in its cache lines.
#[repr(align(128))]
#[derive(Default)]
struct Share(AtomicU64);

impl Share {
    fn set(&self, first: usize, end: usize) {
        self.0.store((first as u64) << 32 | end as u64, Ordering::Relaxed);
    }

    fn front(&self) -> Option<usize> {
        self.take(|first, end| (first, first + 1, end))
    }

    fn back(&self) -> Option<usize> {
        self.take(|first, end| (end - 1, first, end - 1))
    }

    fn take(&self, how: impl Fn(u64, u64) -> (u64, u64, u64)) -> Option<usize> {
        let mut share = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (share >> 32, share & u64::from(u32::MAX));
            if first >= end {
                return None;
            }
            let (task, first, end) = how(first, end);
            // Stores before the job's count are visible to its tasks, so nothing has to be ordered here.
            match self.0.compare_exchange_weak(share, first << 32 | end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(task as usize),
                Err(now) => share = now,
            }
        }
    }
}

impl Shared {
    fn pin(&self, thread: usize) {
        #[cfg(target_os = "linux")]
        if self.pins.load(Ordering::SeqCst) {
            super::pin::pin(thread);
        }
        let _ = thread;
    }
}

fn work(shared: &Shared, thread: usize) {
    let mut seen = 0;
    loop {
        let is_first = seen == 0;
        seen = wait_for_job(shared, seen);
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        if is_first {
            shared.pin(thread);
        }
        // It may be a job after the one that was seen.
        if shared.entered.fetch_add(1, Ordering::Acquire) & CLOSED != 0 {
            continue;
        }
        let job = shared.job.load(Ordering::Relaxed);
        // SAFETY: `run` stored this pointer before it opened the job, and does not return (so the job stays alive)
        // before `left` says that this worker, which entered while the job was open, has left it.
        unsafe { (*job).take_part(&shared.shares, thread) };
        shared.left.fetch_add(1, Ordering::Release);
    }
}

/// Returns the number of a job after `seen`, which may have ended.
fn wait_for_job(shared: &Shared, seen: usize) -> usize {
    for _ in 0..SPINS_BEFORE_SLEEP {
        let number = shared.job_number.load(Ordering::SeqCst);
        if number != seen {
            return number;
        }
        std::hint::spin_loop();
    }
    let mut door = lock(&shared.door);
    shared.asleep.fetch_add(1, Ordering::SeqCst);
    while shared.job_number.load(Ordering::SeqCst) == seen {
        door = shared.wake.wait(door).unwrap_or_else(|poisoned| poisoned.into_inner());
    }
    shared.asleep.fetch_sub(1, Ordering::SeqCst);
    shared.job_number.load(Ordering::SeqCst)
}

/// Locks; a poisoned lock still holds sound data, because no code that can panic runs under it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for tasks in [0, 1, 2, 7, 64, 1000] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn many_small_jobs_after_sleep() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        for round in 0..2000 {
            pool.run(5, |task| {
                total.fetch_add(task, Ordering::Relaxed);
            });
            if round % 500 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 2000 * 10);
    }

    #[test]
    fn a_job_inside_a_job_runs_too() {
        let pool = Pool::new(2);
        let total = AtomicUsize::new(0);
        pool.run(4, |_| {
            pool.run(4, |_| {
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 16);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let caught = catch_unwind(AssertUnwindSafe(|| pool.run(8, |task| assert!(task != 5, "five"))));
        assert!(caught.is_err());
        let total = AtomicUsize::new(0);
        pool.run(8, |_| {
            total.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(total.load(Ordering::Relaxed), 8);
    }
}
