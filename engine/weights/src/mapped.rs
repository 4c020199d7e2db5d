//! A mapped file that another program may cut.
//!
//! A read behind the new end raises SIGBUS, which would end the process. The handler here puts zeros in the place of what
//! is gone, so that the read ends, and marks the file as cut: nothing that was computed with it since then counts.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) struct MappedFile {
    pub map: memmap2::Mmap,
    file: File,
    guard: &'static Guard,
}

/// Addresses of a mapped file. The signal handler reads them and may take no lock.
struct Guard {
    /// 0: free. 1: being filled.
    start: AtomicUsize,
    end: AtomicUsize,
    is_cut: AtomicBool,
}

/// Guards of all mapped files: more than any process maps.
static GUARDS: [Guard; 1024] =
    [const { Guard { start: AtomicUsize::new(0), end: AtomicUsize::new(0), is_cut: AtomicBool::new(false) } }; 1024]; // not a window: files

impl MappedFile {
    /// Maps a file. None: no guard is left, and the caller has to read the file.
    pub fn new(file: &File) -> std::io::Result<Option<MappedFile>> {
        let own = file.try_clone()?;
        handle_bus_errors();
        let is_ours = |guard: &&Guard| guard.start.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let Some(guard) = GUARDS.iter().find(is_ours) else { return Ok(None) };
        // SAFETY: the map is read-only. A file that is cut reads as zeros behind its end; one that is written to reads as the
        // program wrote it, which is another file and no memory fault.
        let map = unsafe { memmap2::Mmap::map(file) }.inspect_err(|_| guard.start.store(0, Ordering::Release))?;
        let start = map.as_ptr() as usize;
        guard.is_cut.store(false, Ordering::Relaxed);
        guard.end.store(start + map.len(), Ordering::Relaxed);
        guard.start.store(start, Ordering::Release);
        Ok(Some(MappedFile { map, file: own, guard }))
    }

    /// Returns whether a part of the file is gone. On the page of the new end it reads as zeros without a signal.
    pub fn is_cut(&self) -> bool {
        let is_shorter = || self.file.metadata().is_ok_and(|about| about.len() < self.map.len() as u64);
        self.guard.is_cut.load(Ordering::Relaxed) || is_shorter()
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        self.guard.end.store(0, Ordering::Relaxed);
        self.guard.start.store(0, Ordering::Release);
    }
}

#[cfg(not(unix))]
fn handle_bus_errors() {}

#[cfg(unix)]
fn handle_bus_errors() {
    BEFORE.get_or_init(|| {
        // SAFETY: zeros are a valid `sigaction`; the handler only does what a handler may.
        unsafe {
            let (mut ours, mut before): (libc::sigaction, libc::sigaction) = (std::mem::zeroed(), std::mem::zeroed());
            ours.sa_sigaction = on_bus_error as *const () as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            PAGE_BYTES.store(libc::sysconf(libc::_SC_PAGESIZE) as usize, Ordering::SeqCst);
            libc::sigaction(libc::SIGBUS, &ours, &mut before);
            before
        }
    });
}

#[cfg(unix)]
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
#[cfg(unix)]
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

#[cfg(unix)]
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the system gives the signal's information to a handler that asked for it.
    let address = unsafe { (*info).si_addr() } as usize;
    for guard in &GUARDS {
        let (start, end) = (guard.start.load(Ordering::Acquire), guard.end.load(Ordering::Relaxed));
        if start > 1 && (start..end).contains(&address) {
            // All of the file from the page on is behind its end, or the page would be there.
            let page = address - address % PAGE_BYTES.load(Ordering::Relaxed);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            // SAFETY: these addresses are the mapped file's own, which is only read.
            let zeros = unsafe { libc::mmap(page as *mut libc::c_void, end - page, libc::PROT_READ, flags, -1, 0) };
            if zeros != libc::MAP_FAILED {
                guard.is_cut.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
    // Not ours: the read fails again, and what handled the signal before sees it.
    // SAFETY: both are actions that the system gave, or zeros, which stand for the default.
    unsafe {
        let before = BEFORE.get().copied().unwrap_or(std::mem::zeroed());
        libc::sigaction(libc::SIGBUS, &before, std::ptr::null_mut());
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_reads_as_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![7u8; 1 << 20]).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let (cut, whole) = (open("cut"), open("whole"));
        let [of_cut, of_whole] = [&cut, &whole].map(|file| MappedFile::new(file).unwrap().unwrap());
        assert!(!of_cut.is_cut() && !of_whole.is_cut());
        cut.set_len((1 << 20) - 10).unwrap();
        assert!(of_cut.is_cut(), "also where no read raises a signal");
        cut.set_len(100_000).unwrap();
        let sum = |file: &MappedFile| file.map.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        let sums: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| sum(&of_cut))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(sums, [700_000; 4]);
        cut.set_len(1 << 20).unwrap();
        assert!(of_cut.is_cut(), "a file that has its length again has other bytes");
        assert_eq!((sum(&of_whole), of_whole.is_cut()), (7 << 20, false));
    }
}
