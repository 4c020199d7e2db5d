//! Database files that keep nothing of a row that went. SQLite overwrites a deleted row where it lies ('secure_delete'), but a row that it
//! had moved to another page before stays readable in the unused part of the old page. So each page reaches the file
//! with zeros in that part.

use libsqlite3_sys as sqlite;
use sqlite::{sqlite3_file, sqlite3_io_methods, sqlite3_vfs};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

const NAME: &CStr = c"clean-pages";

#[repr(C)]
struct CleanMethods {
    methods: sqlite3_io_methods, // the first field: a file points at it
    own: sqlite3_io_methods,
}

struct SystemFiles(*mut sqlite3_vfs);

// SAFETY: SQLite calls its own table of functions from any thread, and it stays where it is.
unsafe impl Send for SystemFiles {}
// SAFETY: as above; nothing here changes it.
unsafe impl Sync for SystemFiles {}

static SYSTEM: OnceLock<Option<SystemFiles>> = OnceLock::new();

/// Makes these files known to SQLite, once. Returns their name, or nothing where SQLite refuses: then its own are used.
pub fn name() -> Option<&'static str> {
    SYSTEM.get_or_init(register).as_ref().and_then(|_| NAME.to_str().ok())
}

fn register() -> Option<SystemFiles> {
    // SAFETY: without a name SQLite returns its default, which lives as long as the process, or null.
    let system = unsafe { sqlite::sqlite3_vfs_find(ptr::null()) };
    // SAFETY: not null here, and a plain table of functions that may be copied.
    let mut clean = unsafe { *system.as_ref()? };
    (clean.zName, clean.pNext) = (NAME.as_ptr(), ptr::null_mut());
    clean.xOpen = Some(open);
    // SAFETY: the copy is never freed, as SQLite asks for.
    let registered = unsafe { sqlite::sqlite3_vfs_register(Box::leak(Box::new(clean)), 0) };
    (registered == sqlite::SQLITE_OK).then_some(SystemFiles(system))
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: sqlite::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    let Some(Some(SystemFiles(system))) = SYSTEM.get() else { return sqlite::SQLITE_CANTOPEN };
    // SAFETY: SQLite's own table, and the arguments are those that it gave.
    let opened = unsafe { (**system).xOpen.map(|open| open(*system, name, file, flags, flags_out)) };
    if opened == Some(sqlite::SQLITE_OK) && flags & sqlite::SQLITE_OPEN_MAIN_DB != 0 {
        // SAFETY: an open file points at its methods, or at nothing.
        unsafe {
            if let Some(own) = (*file).pMethods.as_ref() {
                (*file).pMethods = clean_methods(own);
            }
        }
    }
    opened.unwrap_or(sqlite::SQLITE_CANTOPEN)
}

/// All databases of a process are on one kind of files; one of another kind keeps its own methods.
fn clean_methods(own: &'static sqlite3_io_methods) -> *const sqlite3_io_methods {
    static CLEAN: OnceLock<CleanMethods> = OnceLock::new();
    let clean =
        CLEAN.get_or_init(|| CleanMethods { methods: sqlite3_io_methods { xWrite: Some(write), ..*own }, own: *own });
    let is_alike = clean.own.xWrite.map(|write| write as usize) == own.xWrite.map(|write| write as usize)
        && clean.own.xLock.map(|lock| lock as usize) == own.xLock.map(|lock| lock as usize);
    if is_alike { &raw const clean.methods } else { ptr::from_ref(own) }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, count: c_int, offset: i64) -> c_int {
    // SAFETY: only files with `CleanMethods` come here, and point at their first field.
    let own = unsafe { &(*(*file).pMethods.cast::<CleanMethods>()).own };
    let (Some(write), Some(size_of)) = (own.xWrite, own.xFileSize) else { return sqlite::SQLITE_IOERR_WRITE };
    // SAFETY: SQLite gives `count` bytes at `from`.
    let page = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), usize::try_from(count).unwrap_or(0)) };
    let cleaned = clean(page, offset).filter(|_| {
        let mut size = i64::MAX;
        // SAFETY: the file's own method. A page of a file that cannot be measured stays as it is.
        let measured = unsafe { size_of(file, &raw mut size) };
        measured == sqlite::SQLITE_OK && size.max(offset) / i64::from(count) < UNCERTAIN_PAGES
    });
    let from = cleaned.as_ref().map_or(from, |cleaned| cleaned.as_ptr().cast());
    // SAFETY: the file's own method, and the bytes that SQLite gave.
    unsafe { write(file, from, count, offset) }
}

/// Number of pages from which on the first byte of a page no longer tells a tree's from others: those begin with a page's number.
const UNCERTAIN_PAGES: i64 = 1 << 25;
const FILE_HEADER: usize = 100;
const LARGEST_PAGE: usize = u16::MAX as usize + 1; // SQLite writes its number as 0
/// Place of the page that locks stand for, which is never written.
const LOCKS: i64 = 1 << 30;

/// Returns a page of a tree with zeros between the places of its cells and the cells. `None`: it is no such page, or is clean.
fn clean(page: &[u8], offset: i64) -> Option<Vec<u8>> {
    let size = page.len();
    if !(512..=LARGEST_PAGE).contains(&size) || !size.is_power_of_two() || offset % size as i64 != 0 {
        return None;
    }
    let number = offset / size as i64 + 1;
    if is_map(number, size as i64) {
        return None;
    }
    let header = if number == 1 { FILE_HEADER } else { 0 };
    let of = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let places = header
        + match page[header] {
            2 | 5 => 12,
            10 | 13 => 8,
            _ => return None,
        };
    let begin = places + 2 * of(header + 3);
    let end = match of(header + 5) {
        0 => LARGEST_PAGE,
        end => end,
    };
    let is_sound = begin <= end && end <= size && (places..begin).step_by(2).all(|at| (end..size).contains(&of(at)));
    if !is_sound || page[begin..end].iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut clean = page.to_vec();
    clean[begin..end].fill(0);
    Some(clean)
}

/// Tells whether a page maps others to their parents, as files have that give free pages back.
fn is_map(number: i64, size: i64) -> bool {
    let mapped = size / 5 + 1;
    let map = (number - 2).div_euclid(mapped) * mapped + 2;
    let locks = LOCKS / size + 1;
    number >= 2 && (number == map || (map == locks && number == map + 1))
}

#[cfg(test)]
mod tests;
