//! A file of packed weights that something else wrote: for proofs that send bytes that no packer would.

use std::path::Path;

use kernels::cpu::Cpu;

use super::{FOOT, MAGIC, PIECE, PackedFolder, find, path_of};

const KEY: super::Key = [5; 32];

/// Looks for weights of so many bytes in a folder whose only file is this one. None: they are packed anew.
///
/// The first byte says whether checksums are made right, three bytes how many bytes of weights are looked for, where they are
/// not made right; the rest is the file.
pub fn read_file(folder: &Path, bytes: &[u8], cpu: &Cpu) -> Result<Option<usize>, String> {
    let (begin, file) = bytes.split_at(bytes.len().min(4));
    let mut file = file.to_vec();
    let mut len = begin.get(1..).unwrap_or_default().iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
    if begin.first().is_some_and(|first| first % 2 == 1) {
        len = file.len().saturating_sub(FOOT + 4).max(1);
        mend(&mut file, len);
    }
    let folder = PackedFolder { path: folder.to_path_buf(), max_bytes: 1 << 30, min_bytes: 0 };
    std::fs::write(path_of(&folder, &KEY), &file).map_err(|error| error.to_string())?;
    let of_file = |mmap| find(&folder, &KEY, len, mmap, cpu, &mut |_, _| ()).map(|weights| weights.to_vec());
    let (mapped, read) = (of_file(true), of_file(false));
    match mapped {
        mapped if mapped != read => Err("a mapped file is read otherwise".to_owned()),
        Some(weights) if file.get(..len) != Some(&weights[..]) => Err("they are not what the file has".to_owned()),
        weights => Ok(weights.map(|weights| weights.len())),
    }
}

/// Puts a right end behind the weights.
fn mend(file: &mut Vec<u8>, len: usize) {
    file.resize(len, 0);
    let mut summed: Vec<u8> = file.chunks(PIECE).flat_map(|piece| crc32fast::hash(piece).to_le_bytes()).collect();
    summed.extend(KEY);
    summed.extend((len as u64).to_le_bytes());
    file.extend(&summed);
    file.extend(crc32fast::hash(&summed).to_le_bytes());
    file.extend(MAGIC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_end_is_found_and_a_wrong_one_is_none() {
        let (folder, cpu) = (tempfile::tempdir().unwrap(), Cpu::new(1));
        let input = [&[1, 0, 0, 0][..], &[7; 500]].concat();
        assert_eq!(read_file(folder.path(), &input, &cpu), Ok(Some(500 - FOOT - 4)));
        assert_eq!(read_file(folder.path(), &[&[0], &input[1..]].concat(), &cpu), Ok(None));
        assert_eq!(read_file(folder.path(), b"", &cpu), Ok(None));
    }
}
