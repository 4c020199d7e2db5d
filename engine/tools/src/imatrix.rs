//! Importance matrices: how much each input column of a matrix counts, measured on text. The ecosystem's GGUF form is read and
//! written, its older form (`.dat`) only read.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use kernels::format::{Format, dequantize};
use weights::gguf::GgufFile;

use crate::Error;
use crate::gguf_writer::{GgufValue, GgufWriter, TensorInfo};
use crate::streaming;

#[derive(Debug, Clone, PartialEq)]
pub struct Imatrix {
    pub path: PathBuf,
    pub datasets: Vec<String>,
    pub chunk_count: u32,
    pub chunk_size: u32,
    /// Entries by the name of the weights' tensor in a model's file.
    pub entries: BTreeMap<String, ImatrixEntry>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ImatrixEntry {
    pub sums: Vec<f32>,   // sums of the squares of the inputs: [matrices of a stack, columns]
    pub counts: Vec<f32>, // number of rows summed, for each matrix of the stack
}

const SUMS: &str = ".in_sum2";
const COUNTS: &str = ".counts";
const DATASETS: &str = "imatrix.datasets";
const CHUNK_COUNT: &str = "imatrix.chunk_count";
const CHUNK_SIZE: &str = "imatrix.chunk_size";

/// Limit of a file's bytes: the matrix of a model with 200 billion weights takes some hundred megabytes.
const LARGEST_BYTES: u64 = 1 << 31;

impl Imatrix {
    pub fn read(path: &Path) -> Result<Imatrix, Error> {
        let io = |source: io::Error| Error::io(path, source);
        let about = std::fs::metadata(path).map_err(io)?;
        if !about.is_file() || about.len() > LARGEST_BYTES {
            return Err(Error::file(path, "is no file of an importance matrix"));
        }
        let mut magic = [0; 4];
        std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).map_err(io)?;
        let found = if &magic == b"GGUF" {
            Imatrix::of_gguf(&GgufFile::open(path, false)?)?
        } else {
            Imatrix::of_older_form(path, &std::fs::read(path).map_err(io)?)?
        };
        if found.entries.is_empty() {
            return Err(Error::file(path, "is an importance matrix of no tensor"));
        }
        for (name, entry) in &found.entries {
            let mut all = entry.sums.iter().chain(&entry.counts);
            if let Some(value) = all.find(|value| !value.is_finite() || **value < 0.0) {
                return Err(Error::tensor(path, name, format!("the value {value}: expected none below zero")));
            }
        }
        Ok(found)
    }
    pub fn write(&self, out: &Path) -> Result<u64, Error> {
        let metadata = [
            ("general.type", GgufValue::Text("imatrix".to_string())),
            (DATASETS, GgufValue::Texts(self.datasets.clone())),
            (CHUNK_COUNT, GgufValue::U32(self.chunk_count)),
            (CHUNK_SIZE, GgufValue::U32(self.chunk_size)),
        ]
        .map(|(key, value)| (key.to_string(), value));
        let (mut infos, mut values) = (Vec::new(), Vec::new());
        for (name, entry) in &self.entries {
            let stack = entry.counts.len().max(1);
            let columns = entry.sums.len() / stack;
            for (end, cols, numbers) in [(SUMS, columns, &entry.sums), (COUNTS, 1, &entry.counts)] {
                let dims = vec![cols as u64, stack as u64];
                infos.push(TensorInfo { name: format!("{name}{end}"), dims, format: Format::F32 });
                values.push(numbers);
            }
        }
        let io = |source: io::Error| Error::io(out, source);
        let write = |file| {
            let mut writer = GgufWriter::new(file, &metadata, &infos).map_err(io)?;
            for numbers in values {
                let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
                writer.write(&bytes).map_err(io)?;
            }
            writer.finish().map_err(io)
        };
        streaming::atomically(out, write, |_| Ok(()))
    }

    /// Returns the importance of a tensor's columns: the mean square of each input, for each matrix of the stack. None: the file
    /// does not name the tensor.
    pub fn importance(&self, name: &str, cols: usize, stack: usize) -> Result<Option<Vec<f32>>, String> {
        let Some(entry) = self.entries.get(name) else { return Ok(None) };
        let counts_fit = entry.counts.len() == stack || entry.counts.len() == 1;
        if entry.sums.len() != cols * stack || !counts_fit {
            let (sums, counts) = (entry.sums.len(), entry.counts.len());
            return Err(format!(
                "{sums} sums and {counts} counts: expected {} and {stack}; it was made for another model",
                cols * stack
            ));
        }
        let means = entry.sums.chunks_exact(cols).enumerate().flat_map(|(i, sums)| {
            let count = entry.counts[i % entry.counts.len()];
            // A matrix that no token reached: all its columns count the same.
            sums.iter().map(move |sum| if count > 0.0 { sum / count } else { 1.0 })
        });
        Ok(Some(means.collect()))
    }

    fn of_gguf(file: &GgufFile) -> Result<Imatrix, Error> {
        let path = &file.path;
        if file.text("general.type")? != Some("imatrix") {
            return Err(Error::file(path, "is a GGUF file, but no importance matrix: general.type is not 'imatrix'"));
        }
        let number = |key: &str| -> Result<u32, Error> {
            Ok(file.unsigned(key)?.and_then(|number| u32::try_from(number).ok()).unwrap_or(0))
        };
        let values = |name: &str| {
            let tensor = file.tensors.iter().find(|tensor| tensor.name == name)?;
            let format = tensor.format.filter(|&format| format == Format::F32)?;
            let mut values = vec![0.0; tensor.data.len() / 4];
            dequantize(format, &tensor.data, &mut values);
            Some(values)
        };
        let mut entries = BTreeMap::new();
        for name in file.tensors.iter().filter_map(|tensor| tensor.name.strip_suffix(SUMS)) {
            let missing = |end: &str| Error::tensor(path, name, format!("'{name}{end}' is missing or not f32"));
            let sums = values(&format!("{name}{SUMS}")).ok_or_else(|| missing(SUMS))?;
            let counts = values(&format!("{name}{COUNTS}")).ok_or_else(|| missing(COUNTS))?;
            entries.insert(name.to_string(), ImatrixEntry { sums, counts });
        }
        Ok(Imatrix {
            path: path.clone(),
            datasets: file.texts(DATASETS)?.unwrap_or_default().to_vec(),
            chunk_count: number(CHUNK_COUNT)?,
            chunk_size: number(CHUNK_SIZE)?,
            entries,
        })
    }

    fn of_older_form(path: &Path, bytes: &[u8]) -> Result<Imatrix, Error> {
        let damaged = || Error::file(path, "is no importance matrix, or cut short");
        let mut rest = bytes;
        let count = take_i32(&mut rest).filter(|&count| count > 0).ok_or_else(damaged)?;
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let (name, entry) = older_entry(&mut rest).ok_or_else(damaged)?;
            if entries.insert(name, entry).is_some() {
                return Err(damaged());
            }
        }
        // Files of the first versions end here.
        let chunk_count = take_i32(&mut rest).and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
        let dataset = take_text(&mut rest).into_iter().filter(|name| !name.is_empty());
        Ok(Imatrix { path: path.to_path_buf(), datasets: dataset.collect(), chunk_count, chunk_size: 0, entries })
    }
}

fn older_entry(rest: &mut &[u8]) -> Option<(String, ImatrixEntry)> {
    let name = take_text(rest)?;
    let calls = take_i32(rest).filter(|&calls| calls >= 0)?;
    let len = usize::try_from(take_i32(rest)?).ok()?;
    let (values, behind) = rest.split_at_checked(len.checked_mul(4)?)?;
    *rest = behind;
    let sums = values.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    Some((name, ImatrixEntry { sums, counts: vec![calls as f32] }))
}

fn take_i32(rest: &mut &[u8]) -> Option<i32> {
    let (number, behind) = rest.split_first_chunk::<4>()?;
    *rest = behind;
    Some(i32::from_le_bytes(*number))
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(take_i32(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests;
