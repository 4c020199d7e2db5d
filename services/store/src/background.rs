//! Reading and computing that every other thread of the process comes before.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Nice value that leaves all of a busy processor to others.
const LAST: i32 = 19;

/// Starts a thread that waits for all others where a processor is short. The threads that it starts wait as well.
pub fn start_last(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(move || {
        // On Linux this is the calling thread's own. A system that refuses runs it like the others.
        let _ = rustix::process::setpriority_process(None, LAST);
        work();
    })
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
}
