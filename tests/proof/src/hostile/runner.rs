//! Tries a target with input after input, on several threads.

use super::corpus::Corpus;
use super::generate::Generator;
use super::memory::{held_bytes, most_bytes_of};
use super::report::{Failure, TargetReport};
use super::targets::HostileTarget;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub enum Until {
    Inputs(u64),
    Time(Duration),
}

/// Failures that are kept of a target: one is enough to mend it.
const MOST_FAILURES: usize = 8;
/// Inputs that a thread draws at once.
const DRAWN: u64 = 64;
/// Bytes that threads may hold more at the end than at the begin: tables that are made once.
const KEPT_BYTES: i64 = 64 << 20; // not a window: bytes

pub fn try_target(target: &HostileTarget, corpus: &Corpus, seed: u64, threads: usize, until: Until) -> TargetReport {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = Mutex::new(TargetReport::new(target.name, seed));
    // What is made once is made before anything is measured.
    expect_panics();
    // A library that panics inside catches that, and writes a backtrace: the debug information that is read for the first one
    // stays, about 100 MB.
    drop(std::backtrace::Backtrace::force_capture().to_string());
    for input in &corpus.inputs {
        let _ = tried(target, input);
    }
    let began = Instant::now();
    let is_done = |number: u64| match until {
        Until::Inputs(inputs) => number >= inputs,
        Until::Time(time) => began.elapsed() >= time,
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = TargetReport::new(target.name, seed);
                let mut generator = Generator::new(corpus, seed);
                let held = held_bytes();
                while !is_over.load(Ordering::Relaxed) {
                    let first = next.fetch_add(DRAWN, Ordering::Relaxed);
                    if is_done(first) {
                        break;
                    }
                    let last =
                        if let Until::Inputs(inputs) = until { inputs.min(first + DRAWN) } else { first + DRAWN };
                    for number in first..last {
                        let input = generator.input(number);
                        one(target, number, &input, &mut own);
                    }
                    if own.failures.len() >= MOST_FAILURES {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
                own.kept_bytes = held_bytes() - held;
                report.lock().expect("no thread panics").add(own);
            });
        }
    });
    let mut report = report.into_inner().expect("no thread panics");
    report.seconds = began.elapsed().as_secs_f64();
    if report.kept_bytes > KEPT_BYTES {
        let why = format!("{} bytes are still held when all inputs were read", report.kept_bytes);
        report.failures.push(Failure { number: report.inputs, why, input: Vec::new() });
    }
    report.failures.truncate(MOST_FAILURES);
    report
}

fn one(target: &HostileTarget, number: u64, input: &[u8], report: &mut TargetReport) {
    let timed = || {
        let began = Instant::now();
        let (done, bytes) = most_bytes_of(|| tried(target, input));
        (done, bytes, began.elapsed())
    };
    let (done, bytes, mut took) = timed();
    // A machine that stood still for a moment is no mistake of the parser.
    for _ in 0..2 {
        if done.is_ok() && took > target.most_time() {
            took = took.min(timed().2);
        }
    }
    report.inputs += 1;
    let why = match done {
        Err(panic) => Some(format!("it panics: {}", words(&*panic))),
        Ok(Err(why)) => Some(why),
        Ok(Ok(is_taken)) => {
            report.taken += u64::from(is_taken);
            let slow = took > target.most_time();
            let large = bytes > target.most_bytes;
            slow.then(|| format!("it takes {} ms", took.as_millis()))
                .or(large.then(|| format!("it takes {bytes} bytes")))
        }
    };
    if took > report.slowest {
        (report.slowest, report.slowest_number) = (took, number);
    }
    if bytes > report.most_bytes {
        (report.most_bytes, report.most_bytes_number) = (bytes, number);
    }
    if let Some(why) = why
        && report.failures.len() < MOST_FAILURES
    {
        report.failures.push(Failure { number, why, input: input.to_vec() });
    }
}

type Tried = std::thread::Result<Result<bool, String>>;

fn tried(target: &HostileTarget, input: &[u8]) -> Tried {
    TRIES.with(|tries| tries.set(true));
    let done = catch_unwind(AssertUnwindSafe(|| (target.take)(input)));
    TRIES.with(|tries| tries.set(false));
    done
}

thread_local! {
    static TRIES: Cell<bool> = const { Cell::new(false) };
}

/// A target that panics is reported with its input, and says nothing by itself.
fn expect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            if !TRIES.with(Cell::get) {
                hook(panic);
            }
        }));
    });
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}
