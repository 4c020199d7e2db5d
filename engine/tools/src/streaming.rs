//! A file that is made piece by piece on several threads, and has its name only when it is whole.

use std::fs::{File, TryLockError};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use weights::free_bytes;

use crate::Error;
use crate::file_head::FileHead;
use crate::gguf_writer::TensorInfo;

pub struct NewFile<'a> {
    pub out: &'a Path,
    pub head: &'a FileHead,
    /// Tensors in the order of the file; those of an APR file by their names.
    pub tensors: &'a [TensorInfo],
    /// Threads that make pieces; one more writes them. The file is the same for any number.
    pub threads: usize,
}

/// Rows of a tensor, few enough for each thread to hold some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    pub tensor: usize,
    pub first_row: u64,
    pub rows: u64,
}

/// Function that makes a piece's bytes, with room for its values.
pub type MakePiece<'m> = dyn Fn(Piece, &mut Vec<f32>) -> Result<Vec<u8>, Error> + Sync + 'm;

const VALUES_OF_A_PIECE: u64 = 1 << 20;

/// Writes the file that `make` makes the pieces of, and returns its bytes. `written` hears of each tensor that is on its way to
/// the disk whole, `check` looks at the file before it gets its name, `progress` hears (bytes written, bytes in all).
pub fn write(
    file: &NewFile,
    make: &MakePiece<'_>,
    written: &mut dyn FnMut(usize),
    check: impl FnOnce(&Path) -> Result<(), Error>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, Error> {
    check_room(file.out, file.tensors.iter().filter_map(TensorInfo::size).sum(), free_bytes)?;
    let pieces = |out| write_pieces(out, file, make, written, progress);
    atomically(file.out, pieces, check)
}

/// Writes a file under another name, and gives it its own when it is whole and on the disk. Returns its bytes.
pub fn atomically(
    out: &Path,
    write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>, Error>,
    check: impl FnOnce(&Path) -> Result<(), Error>,
) -> Result<u64, Error> {
    let io = |source: io::Error| Error::io(out, source);
    let unfinished = part_of(out);
    let file = begin(out, &unfinished)?;
    let done = write(BufWriter::with_capacity(1 << 20, file)).and_then(|file| {
        let file = file.into_inner().map_err(|error| io(error.into_error()))?;
        file.sync_all().map_err(io)?;
        check(&unfinished)?;
        let bytes = file.metadata().map_err(io)?.len();
        std::fs::rename(&unfinished, out).map_err(io)?;
        Ok(bytes)
    });
    if done.is_err() {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = std::fs::remove_file(&unfinished);
    }
    done
}

/// Opens an unfinished file for this program alone, and empties it.
pub fn begin(out: &Path, unfinished: &Path) -> Result<File, Error> {
    let io = |source: io::Error| Error::io(out, source);
    // Cut only when it is ours: another program may be writing it.
    let file = File::options().write(true).create(true).truncate(false).open(unfinished).map_err(io)?;
    if is_taken(unfinished, &file) {
        return Err(Error::file(unfinished, TAKEN));
    }
    if file.metadata().map_err(io)?.len() > 0 {
        file.set_len(0).map_err(io)?;
    }
    Ok(file)
}

pub const TAKEN: &str = "another program writes it now; wait for it, or give another name";

/// Locks what was opened under an unfinished name. True: another program has it, or gave it its final name just now.
pub fn is_taken(unfinished: &Path, opened: &File) -> bool {
    matches!(opened.try_lock(), Err(TryLockError::WouldBlock)) || !is_at(unfinished, opened)
}

#[cfg(unix)]
fn is_at(path: &Path, opened: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |about: std::fs::Metadata| (about.dev(), about.ino());
    std::fs::metadata(path).ok().map(place) == opened.metadata().ok().map(place)
}

#[cfg(not(unix))]
fn is_at(_: &Path, _: &File) -> bool {
    true
}

fn part_of(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

pub fn check_room(out: &Path, needed: u64, free_bytes: impl Fn(&Path) -> Option<u64>) -> Result<(), Error> {
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match free_bytes(folder) {
        Some(free) if free < needed => {
            let folder = folder.to_path_buf();
            Err(Error::DiskRoom { folder, free_mib: free >> 20, needed_mib: needed.div_ceil(1 << 20) })
        }
        _ => Ok(()),
    }
}

fn write_pieces(
    out: BufWriter<File>,
    file: &NewFile,
    make: &MakePiece<'_>,
    written: &mut dyn FnMut(usize),
    progress: &mut dyn FnMut(u64, u64),
) -> Result<BufWriter<File>, Error> {
    let io = |source: io::Error| Error::io(file.out, source);
    let mut writer = file.head.write(out, file.tensors).map_err(io)?;
    let total = file.tensors.iter().filter_map(TensorInfo::size).sum();
    let pieces: Vec<Piece> = file.tensors.iter().enumerate().flat_map(|(i, tensor)| pieces_of(i, tensor)).collect();
    let threads = file.threads.max(1);
    let mut bytes_written = 0;
    std::thread::scope(|scope| {
        // Thread t makes the pieces t, t + threads, ..: so the writer knows whom to ask next, and a thread that is
        // ahead waits with one piece in its hands.
        let receivers: Vec<mpsc::Receiver<Result<Vec<u8>, Error>>> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = mpsc::sync_channel(1);
                let mine = pieces.iter().copied().skip(thread).step_by(threads);
                scope.spawn(move || {
                    let mut values = Vec::new();
                    for piece in mine {
                        if sender.send(make(piece, &mut values)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for (i, piece) in pieces.iter().enumerate() {
            let bytes = receivers[i % threads].recv().map_err(|error| io(io::Error::other(error)))??;
            writer.write(&bytes).map_err(io)?;
            bytes_written += bytes.len() as u64;
            if pieces.get(i + 1).is_none_or(|next| next.tensor != piece.tensor) {
                written(piece.tensor);
            }
            progress(bytes_written, total);
        }
        Ok(())
    })
    .and_then(|()| writer.finish().map_err(io))
}

fn pieces_of(tensor: usize, info: &TensorInfo) -> impl Iterator<Item = Piece> + use<> {
    let (cols, rows) = (info.dims[0], info.dims[1..].iter().product::<u64>());
    let step = (VALUES_OF_A_PIECE / cols.max(1)).max(1);
    (0..rows.div_ceil(step)).map(move |i| Piece { tensor, first_row: i * step, rows: step.min(rows - i * step) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::format::Format;

    #[test]
    fn a_disk_without_room_is_told_before_a_byte_is_written() {
        let error = check_room(Path::new("folder/x.gguf"), 3 << 20, |_| Some(2 << 20)).unwrap_err().to_string();
        let expected = "folder has room for 2 MiB, and the file takes 3 MiB: make room, or name another folder";
        assert_eq!(error, expected);
        assert!(check_room(Path::new("x.gguf"), 3 << 20, |_| Some(3 << 20)).is_ok());
    }

    #[test]
    fn a_failed_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("x.gguf");
        let tensors = [TensorInfo { name: "t".into(), dims: vec![8, 2], format: Format::F32 }];
        let head = FileHead::Gguf(Vec::new());
        let file = NewFile { out: &out, head: &head, tensors: &tensors, threads: 2 };
        let fails = |_: Piece, _: &mut Vec<f32>| Err(Error::file(Path::new("in"), "is damaged"));
        let whole = |_: Piece, _: &mut Vec<f32>| Ok(vec![0; 64]);
        let bad = |_: &Path| Err(Error::file(Path::new("out"), "is wrong"));
        let error = write(&file, &fails, &mut |_| (), |_| Ok(()), &mut |_, _| ()).unwrap_err().to_string();
        assert_eq!(error, "in: is damaged");
        let error = write(&file, &whole, &mut |_| (), bad, &mut |_, _| ()).unwrap_err().to_string();
        assert_eq!(error, "out: is wrong");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        write(&file, &whole, &mut |_| (), |_| Ok(()), &mut |_, _| ()).unwrap();
        assert!(out.is_file());
    }

    #[test]
    fn a_file_that_another_program_writes_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("x.gguf");
        std::fs::write(part_of(&out), b"theirs").unwrap();
        let theirs = File::open(part_of(&out)).unwrap();
        theirs.lock().unwrap();
        let error = atomically(&out, Ok, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("another program writes it now"), "{error}");
        assert_eq!(std::fs::read(part_of(&out)).unwrap(), b"theirs");
        theirs.unlock().unwrap();
        assert_eq!(atomically(&out, Ok, |_| Ok(())).unwrap(), 0, "what a killed program left is cut");
    }

    /// A device that is always full stands in for a disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_disk_that_fills_up_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("x.gguf");
        std::os::unix::fs::symlink("/dev/full", part_of(&out)).unwrap();
        let full = |mut file: BufWriter<File>| {
            io::Write::write_all(&mut file, &[0; 64]).map_err(|source| Error::io(&out, source))?;
            Ok(file)
        };
        let error = atomically(&out, full, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
    }
}
