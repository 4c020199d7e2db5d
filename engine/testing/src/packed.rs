//! Files of packed weights that no packer would write.

pub const KEY: [u8; 32] = [5; 32];

const MAGIC: &[u8; 8] = b"REPRISEW";
const PIECE: usize = 4 << 20;
const FOOT: usize = 32 + 8 + 4 + 8;

pub struct HostilePacked {
    pub file: Vec<u8>,
    pub len: usize,
}

impl HostilePacked {
    /// Makes a file of any bytes. The first byte says whether the checksums are right, three bytes give the length that a
    /// reader expects without them; the rest is the file.
    pub fn of(bytes: &[u8]) -> HostilePacked {
        let (begin, file) = bytes.split_at(bytes.len().min(4));
        let mut file = file.to_vec();
        let mut len = begin.get(1..).unwrap_or_default().iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        if begin.first().is_some_and(|first| first % 2 == 1) {
            len = file.len().saturating_sub(FOOT + 4).max(1);
            mend(&mut file, len);
        }
        HostilePacked { file, len }
    }
}

fn mend(file: &mut Vec<u8>, len: usize) {
    file.resize(len, 0);
    let mut summed: Vec<u8> = file.chunks(PIECE).flat_map(|piece| crc32fast::hash(piece).to_le_bytes()).collect();
    summed.extend(KEY);
    summed.extend((len as u64).to_le_bytes());
    file.extend(&summed);
    file.extend(crc32fast::hash(&summed).to_le_bytes());
    file.extend(MAGIC);
}
