//! Threads that every other thread of the process comes before.

use std::io;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle};

// Nice value that leaves nine tenths of a busy processor to others. With 19 such a thread was seen to wait for a third of a second,
// whatever lock it held.
const LAST: i32 = 10;

/// Starts a thread that waits for all others where a processor is short. The threads that it starts wait as well.
pub fn start_last(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        come_last();
        work();
    })
}

pub fn run_last<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mut work = Some(work);
    let done = std::thread::scope(|scope| {
        let run = || {
            come_last();
            work.take().map(|work| work())
        };
        let thread = Builder::new().name("heavy".to_owned()).spawn_scoped(scope, run).ok()?;
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    // The system has no thread left.
    done.unwrap_or_else(|| work.take().expect("the thread did not begin")())
}

fn come_last() {
    // On Linux this is the calling thread's own. A system that refuses runs it like the others.
    let _ = rustix::process::setpriority_process(None, LAST);
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn the_thread_and_those_that_it_starts_come_last_and_no_other_does() {
        let before = getpriority_process(None).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = start_last("last", move || {
            let inner = std::thread::spawn(|| getpriority_process(None).unwrap());
            tell.send([getpriority_process(None).unwrap(), inner.join().unwrap()]).unwrap();
        });
        thread.unwrap().join().unwrap();
        assert_eq!(told.recv().unwrap(), [LAST; 2]);
        assert_eq!(getpriority_process(None).unwrap(), before);
    }

    #[test]
    fn work_on_a_borrow_comes_last_and_its_result_and_panic_come_back() {
        let before = getpriority_process(None).unwrap();
        let text = "borrowed".to_owned();
        let (length, nice) = run_last(|| (text.len(), getpriority_process(None).unwrap()));
        assert_eq!((length, nice, getpriority_process(None).unwrap()), (8, LAST, before));
        let panic = std::panic::catch_unwind(|| run_last(|| -> () { panic!("as told") })).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as told"));
    }
}
