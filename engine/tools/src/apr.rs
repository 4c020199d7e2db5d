//! Writing of APR v2 files: what a checkpoint's folder holds, in one file.

use crc32fast::Hasher;
use kernels::format::Format;
use serde_json::Value;
use std::io::{self, Write};

const MAGIC: &[u8; 4] = b"APR\0";
const VERSION: u8 = 2;
const HEADER: usize = 64;
pub const ALIGNMENT: u64 = 64;
/// Bytes behind the tensors: a checksum.
pub const TAIL: u64 = 4;
pub const TYPES: &str = "give f32, f16, bf16, q4k or q6k";
const ROW_MAJOR: u16 = 1024;
const QUANTISED: u16 = 32;
const LARGEST_METADATA: usize = 16 << 20;

/// Tensor of a file: its rows are those of the checkpoint.
#[derive(Clone, Debug)]
pub struct AprTensor {
    pub name: String,
    pub dims: Vec<u64>,
    pub format: Format,
}

impl AprTensor {
    /// Returns the bytes of its values. `None`: its rows are no whole blocks, or it fits into no file.
    pub fn bytes(&self) -> Option<u64> {
        let (columns, rows) = self.dims.split_last()?;
        let row_bytes = self.format.row_bytes(usize::try_from(*columns).ok()?)? as u64;
        rows.iter().try_fold(row_bytes, |bytes, dim| bytes.checked_mul(*dim))
    }
}

/// Returns the number of a format in these files. `None`: they have no such type.
pub fn number_of(format: Format) -> Option<u8> {
    match format {
        Format::F32 => Some(0),
        Format::F16 => Some(1),
        Format::BF16 => Some(30),
        Format::Q4_K => Some(12),
        Format::Q6_K => Some(14),
        _ => None,
    }
}

/// Writer of one file: the tensors' bytes follow in the order of their names.
pub struct AprWriter<W> {
    out: W,
    sum: Hasher,
    left: Vec<u64>, // bytes of the tensors that are still to come, the next one last
    written: u64,   // of the tensor that is written now
}

impl<W: Write> AprWriter<W> {
    /// Writes everything before the data. `tensors` are put into the order of their names.
    pub fn new(out: W, metadata: &Value, tensors: &mut [AprTensor]) -> io::Result<AprWriter<W>> {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        let metadata = serde_json::to_vec(metadata)?;
        if metadata.len() > LARGEST_METADATA {
            return Err(invalid(format!(
                "the metadata have {} bytes, and an APR file takes {LARGEST_METADATA}",
                metadata.len()
            )));
        }
        let (mut index, mut offset, mut left) = (Vec::new(), 0_u64, Vec::new());
        for tensor in tensors.iter() {
            let bytes = tensor.bytes().zip(number_of(tensor.format));
            let (bytes, number) = bytes.ok_or_else(|| {
                invalid(format!("{} of {} has no place in an APR file", tensor.name, tensor.format.name()))
            })?;
            index.extend((tensor.name.len() as u16).to_le_bytes());
            index.extend(tensor.name.as_bytes());
            index.extend([number, tensor.dims.len() as u8]);
            index.extend(tensor.dims.iter().flat_map(|dim| dim.to_le_bytes()));
            index.extend(offset.to_le_bytes());
            index.extend(bytes.to_le_bytes());
            offset = (offset + bytes).next_multiple_of(ALIGNMENT);
            left.push(bytes);
        }
        left.reverse();
        let is_quantised = tensors.iter().any(|tensor| tensor.format.is_quantised());
        let index_at = (HEADER as u64 + metadata.len() as u64).next_multiple_of(ALIGNMENT);
        let data_at = (index_at + index.len() as u64).next_multiple_of(ALIGNMENT);
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(MAGIC);
        header[4] = VERSION;
        header[6..8].copy_from_slice(&(ROW_MAJOR | if is_quantised { QUANTISED } else { 0 }).to_le_bytes());
        header[8..12].copy_from_slice(&(tensors.len() as u32).to_le_bytes());
        header[12..20].copy_from_slice(&(HEADER as u64).to_le_bytes());
        header[20..24].copy_from_slice(&(metadata.len() as u32).to_le_bytes());
        header[24..32].copy_from_slice(&index_at.to_le_bytes());
        header[32..40].copy_from_slice(&data_at.to_le_bytes());
        let mut sum = Hasher::new();
        sum.update(&header[..40]);
        sum.update(&header[44..]);
        header[40..44].copy_from_slice(&sum.finalize().to_le_bytes());
        let mut writer = AprWriter { out, sum: Hasher::new(), left, written: 0 };
        writer.put(&header)?;
        writer.put(&metadata)?;
        writer.pad(HEADER as u64 + metadata.len() as u64)?;
        writer.put(&index)?;
        writer.pad(index.len() as u64)?;
        Ok(writer)
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(&wanted) = self.left.last() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "all tensors are written"));
        };
        self.written += bytes.len() as u64;
        if self.written > wanted {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a tensor has more bytes than its shape"));
        }
        self.put(bytes)?;
        if self.written == wanted {
            self.pad(wanted)?;
            self.left.pop();
            self.written = 0;
        }
        Ok(())
    }

    /// Writes the sum of everything before. An error if bytes of a tensor are missing.
    pub fn finish(mut self) -> io::Result<W> {
        if !self.left.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "bytes of a tensor are missing"));
        }
        let sum = self.sum.finalize();
        self.out.write_all(&sum.to_le_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.out.write_all(bytes)
    }

    fn pad(&mut self, written: u64) -> io::Result<()> {
        let padding = written.next_multiple_of(ALIGNMENT) - written;
        self.put(&[0; ALIGNMENT as usize][..padding as usize])
    }
}
