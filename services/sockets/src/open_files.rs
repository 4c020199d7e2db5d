//! Files that the process may open. Connections are files too, and leave some free for the store, the model and the log.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files that connections leave free (`limits.spare_files`), once the service serves.
static SPARE: AtomicU64 = AtomicU64::new(0);

/// Raises the files that this process may open to as many as the system lets it, and returns their number.
pub fn raise() -> std::io::Result<u64> {
    let mut limit = limit()?;
    if limit.rlim_cur < limit.rlim_max {
        let before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a whole `rlimit` on this stack, which the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            // Some systems allow less than they tell: what held before still holds.
            return Ok(before);
        }
    }
    Ok(limit.rlim_cur)
}

pub fn allowed() -> std::io::Result<u64> {
    limit().map(|limit| limit.rlim_max)
}

pub fn keep_spare(files: usize) {
    SPARE.store(files as u64, Ordering::Relaxed);
}

/// Returns true if a connection took one of the files that are to stay free. The system gives the lowest free number,
/// so a file's number says how many are open at least.
pub fn is_spare(connection: &impl AsRawFd) -> bool {
    limit().is_ok_and(|limit| is_above(connection.as_raw_fd(), limit.rlim_cur, SPARE.load(Ordering::Relaxed)))
}

/// Compares with half of the spare files: the other half is in use from the start.
fn is_above(file: RawFd, allowed: u64, spare: u64) -> bool {
    u64::try_from(file).is_ok_and(|file| file >= allowed.saturating_sub(spare / 2))
}

fn limit() -> std::io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole `rlimit` on this stack, which the call fills.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => Ok(limit),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_files_are_for_no_connection() {
        assert!(!is_above(207, 256, 96) && is_above(208, 256, 96) && is_above(255, 256, 96));
        assert!(!is_above(900, u64::MAX, 96));
        assert!(is_above(0, 10, 96));
    }
}
