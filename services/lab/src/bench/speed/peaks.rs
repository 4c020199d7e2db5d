//! Peaks of this machine, and the computing time of this process.

use engine::Cpu;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub const TRIES: usize = 5; // tries, of which the best counts

pub fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_thread = |folder: PathBuf| -> Option<u64> {
        std::fs::read_to_string(folder.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(|thread| of_thread(thread.path())).sum())
}

pub fn memory_speed(bytes: usize, threads: usize) -> Option<f64> {
    let values = vec![1.0f32; bytes / size_of::<f32>()];
    if values.is_empty() {
        return None;
    }
    let level = Cpu::new(1).level;
    let parts: Vec<&[f32]> = values.chunks(values.len().div_ceil(threads)).collect();
    let seconds = best_seconds(parts.len(), |part| {
        black_box(engine::peak::read(level, black_box(parts[part])));
    });
    Some(size_of_val(values.as_slice()) as f64 / seconds / 1e9)
}

pub fn byte_speed(threads: usize) -> Option<f64> {
    const ROUNDS: usize = 2_000_000;
    let level = Cpu::new(1).level;
    let each = engine::peak::multiply_bytes(level, 1)?;
    let seconds = best_seconds(threads, |_| {
        black_box(engine::peak::multiply_bytes(level, black_box(ROUNDS)));
    });
    Some((each * ROUNDS * threads) as f64 / seconds / 1e9)
}

fn best_seconds(threads: usize, work: impl Fn(usize) + Sync) -> f64 {
    let once = || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let work = &work;
                scope.spawn(move || work(thread));
            }
        });
        begin.elapsed().as_secs_f64()
    };
    (0..TRIES).map(|_| once()).fold(f64::INFINITY, f64::min)
}
