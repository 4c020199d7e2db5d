//! Tensors of a safetensors file, read one after the other, so that the file is never in memory as a whole. The table of words stays in
//! the file: a sentence needs a dozen of its rows.

use crate::Error;
use half::{bf16, f16};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

pub struct Tensors {
    path: PathBuf,
    file: File,
    header: Map<String, Value>,
    start: u64, // where the data begins
    checksum: crc32fast::Hasher,
}

/// Table whose rows are read from the file when they are needed.
pub struct FileRows {
    file: File,
    start: u64,
    width: usize,
    number: Number,
}

#[derive(Clone, Copy)]
struct Number {
    bytes: usize,
    widen: fn(&[u8]) -> f32,
}

impl FileRows {
    // Adds the values of a row to `out`, which is as wide.
    pub fn add(&self, row: usize, out: &mut [f32]) -> io::Result<()> {
        let Number { bytes, widen } = self.number;
        let mut values = vec![0; self.width * bytes];
        let place = self.start + (row * self.width * bytes) as u64;
        self.file.read_exact_at(&mut values, place)?;
        out.iter_mut().zip(values.chunks_exact(bytes)).for_each(|(x, value)| *x += widen(value));
        Ok(())
    }
}

#[derive(Deserialize)]
struct TensorPlace {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

const LARGEST_HEADER: u64 = 16 << 20;

impl Tensors {
    pub fn open(path: PathBuf) -> Result<Tensors, Error> {
        let failed = |source| Error::File { path: path.clone(), source };
        let mut file = File::open(&path).map_err(failed)?;
        let mut size = [0; 8];
        file.read_exact(&mut size).map_err(failed)?;
        let size = u64::from_le_bytes(size);
        if size > LARGEST_HEADER {
            return Err(Error::form(&path, format!("a header of {size} bytes; the file is no safetensors file")));
        }
        let mut header = vec![0; size as usize];
        file.read_exact(&mut header).map_err(failed)?;
        let header = serde_json::from_slice(&header).map_err(|error| Error::form(&path, error.to_string()))?;
        Ok(Tensors { path, file, header, start: 8 + size, checksum: crc32fast::Hasher::new() })
    }

    pub fn has(&self, name: &str) -> bool {
        self.header.contains_key(name)
    }

    /// Returns a number that differs for other weights.
    pub fn checksum(&self) -> u32 {
        self.checksum.clone().finalize()
    }

    pub fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Error> {
        let mut values = Vec::new();
        self.read(name, shape, |value| values.push(value))?;
        Ok(values)
    }

    /// Reads a matrix as 16-bit numbers.
    pub fn halves(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f16>, Error> {
        let mut values = Vec::new();
        self.read(name, shape, |value| values.push(f16::from_f32(value)))?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(Error::form(&self.path, format!("{name} has values that 16 bits cannot hold")));
        }
        Ok(values)
    }

    /// Reads a table once, for its checksum, and leaves it in the file.
    pub fn rows(&mut self, name: &str, [rows, width]: [usize; 2]) -> Result<FileRows, Error> {
        let mut is_finite = true;
        let (start, number) = self.read(name, &[rows, width], |value| is_finite &= value.is_finite())?;
        if !is_finite {
            return Err(Error::form(&self.path, format!("{name} has values that are no numbers")));
        }
        let file = self.file.try_clone().map_err(|source| Error::File { path: self.path.clone(), source })?;
        Ok(FileRows { file, start, width, number })
    }

    // Calls `each` with the values of a tensor. Returns where it begins in the file, and the form of its numbers.
    fn read(&mut self, name: &str, shape: &[usize], mut each: impl FnMut(f32)) -> Result<(u64, Number), Error> {
        let wrong = |what: String| Error::form(&self.path, format!("{name}: {what}"));
        let place = self.header.get(name).ok_or_else(|| wrong("the file has no such tensor".to_owned()))?;
        let TensorPlace { dtype, shape: found, data_offsets: [begin, end] } =
            TensorPlace::deserialize(place).map_err(|error| wrong(error.to_string()))?;
        if found != shape {
            return Err(wrong(format!("its shape is {found:?}; the configuration says {shape:?}")));
        }
        let number = match dtype.as_str() {
            "F32" => Number { bytes: 4, widen: |bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) },
            "F16" => Number { bytes: 2, widen: |bytes| f16::from_le_bytes([bytes[0], bytes[1]]).to_f32() },
            "BF16" => Number { bytes: 2, widen: |bytes| bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32() },
            _ => return Err(wrong(format!("its type is {dtype}; F32, F16 and BF16 are known"))),
        };
        let Number { bytes, widen } = number;
        let count: usize = shape.iter().product();
        if end.checked_sub(begin) != Some((count * bytes) as u64) {
            return Err(wrong(format!("it lies from {begin} to {end}, which is not its size")));
        }
        let failed = |source| Error::File { path: self.path.clone(), source };
        let from = begin.checked_add(self.start).ok_or_else(|| wrong("it begins behind every file".to_owned()))?;
        self.file.seek(SeekFrom::Start(from)).map_err(failed)?;
        let mut left = count;
        let mut piece = vec![0; PIECE.min(count) * bytes];
        while left > 0 {
            let some = &mut piece[..PIECE.min(left) * bytes];
            self.file.read_exact(some).map_err(failed)?;
            self.checksum.update(some);
            some.chunks_exact(bytes).for_each(|value| each(widen(value)));
            left -= some.len() / bytes;
        }
        Ok((from, number))
    }
}

const PIECE: usize = 1 << 16; // not a window: values that are read at once
