//! The bytes of a GGUF file to its metadata and the list of its tensors. Trusts nothing: every length is checked
//! against the bytes that are left before anything is allocated for it.

use std::path::Path;

use crate::bytes::ModelBytes;
use crate::error::{Error, shown};
use crate::gguf::metadata::{Metadata, MetadataValue, ValueType};

#[derive(Debug)]
pub(crate) struct Header {
    pub metadata: Metadata,
    pub keys: Vec<(String, ModelBytes)>,
    pub tensors: Vec<TensorEntry>,
    pub end: usize,
    /// Start of the tensors' bytes: the end, rounded up to the alignment.
    pub data_start: usize,
    pub alignment: usize,
}

#[derive(Debug)]
pub(crate) struct TensorEntry {
    pub name: String,
    /// Innermost first, as GGUF writes them.
    pub dims: Vec<u64>,
    pub type_code: u32,
    pub offset: u64,
}

const MAGIC: &[u8; 4] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const MOST_DIMS: u32 = 4;

pub(crate) fn header(path: &Path, bytes: &ModelBytes) -> Result<Header, Error> {
    let mut cursor = Cursor { path, bytes, at: 0 };
    if cursor.take(4, "the magic").ok() != Some(&MAGIC[..]) {
        let found = shown(&String::from_utf8_lossy(&bytes[..bytes.len().min(4)]));
        return Err(Error::file(path, format!("is not a GGUF file: it begins with '{found}', not with 'GGUF'")));
    }
    let version = cursor.u32("the version")?;
    if !(2..=3).contains(&version) {
        let hint = match version {
            1 => "version 1 has not been written since 2023: convert the model again",
            _ if (2..=3).contains(&version.swap_bytes()) => "the file is big-endian: convert it to little-endian",
            _ => "this reads versions 2 and 3",
        };
        return Err(Error::file(path, format!("has GGUF version {version}; {hint}")));
    }
    // The least that a tensor and a key can take in the file bounds how many there can be.
    let tensor_count = cursor.count("tensors", 8 + 1 + 4 + 8 + 4 + 8)?;
    let key_count = cursor.count("keys", 8 + 1 + 4 + 1)?;

    let (mut metadata, mut keys) = (Metadata::new(path), Vec::new());
    for _ in 0..key_count {
        let key = cursor.string("the name of a key")?;
        let start = cursor.at;
        let value = cursor.typed_value(&key)?;
        keys.extend(bytes.slice(start..cursor.at).map(|value| (key.clone(), value)));
        if !metadata.insert(key.clone(), value) {
            return Err(Error::key(path, &key, "the key twice", "each key once"));
        }
    }
    let alignment = alignment(&metadata)?;

    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(cursor.tensor()?);
    }
    let end = cursor.at;
    let data_start = end.checked_next_multiple_of(alignment);
    let data_start = match data_start {
        Some(start) if start <= bytes.len() || tensors.is_empty() => start.min(bytes.len()),
        _ => {
            let what = format!("is cut short: it has {} bytes, and its tensors begin after byte {end}", bytes.len());
            return Err(Error::file(path, what));
        }
    };
    Ok(Header { metadata, keys, tensors, end, data_start, alignment })
}

fn alignment(metadata: &Metadata) -> Result<usize, Error> {
    const KEY: &str = "general.alignment";
    let found = metadata.unsigned(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    match usize::try_from(found) {
        // Below eight bytes a row of f32 might begin where it cannot be read; the format asks for the same.
        Ok(alignment) if alignment.is_power_of_two() && alignment >= 8 => Ok(alignment),
        _ => Err(Error::key(metadata.path(), KEY, found.to_string(), "a power of two, 8 or more")),
    }
}

struct Cursor<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], Error> {
        if len > self.left() {
            let what = format!("is cut short: {what} at byte {} takes {len} bytes, {} are left", self.at, self.left());
            return Err(Error::file(self.path, what));
        }
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Reads a number of things that each take at least `least` bytes.
    fn count(&mut self, what: &str, least: usize) -> Result<usize, Error> {
        let stated = self.u64(what)?;
        // The two counts stand behind each other, so the second one's own bytes may still be ahead: that is harmless.
        self.fitting(stated, least).map_err(|room| {
            let left = self.left();
            Error::file(
                self.path,
                format!("is damaged: it states {stated} {what}, and {left} bytes hold at most {room}"),
            )
        })
    }

    /// Returns the stated number if so many things of at least `least` bytes can follow, else the most that can.
    fn fitting(&self, stated: u64, least: usize) -> Result<usize, usize> {
        let room = self.left() / least;
        usize::try_from(stated).ok().filter(|count| *count <= room).ok_or(room)
    }

    fn string(&mut self, what: &str) -> Result<String, Error> {
        let stated = self.u64(what)?;
        let at = self.at;
        let len = usize::try_from(stated).unwrap_or(usize::MAX);
        let bytes = self.take(len, what)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_string()),
            Err(_) => Err(Error::file(self.path, format!("is damaged: {what} at byte {at} is not UTF-8"))),
        }
    }

    fn typed_value(&mut self, key: &str) -> Result<MetadataValue, Error> {
        let kind = self.kind(key)?;
        match kind {
            ValueType::String => Ok(MetadataValue::String(self.string(&format!("key '{}'", shown(key)))?)),
            ValueType::Array => self.list(key),
            _ => {
                let raw = self.take(kind.size(), &format!("key '{}'", shown(key)))?;
                let value = MetadataValue::number(kind, raw);
                value.ok_or_else(|| Error::key(self.path, key, format!("the byte {raw:?}"), "a bool, 0 or 1"))
            }
        }
    }

    fn list(&mut self, key: &str) -> Result<MetadataValue, Error> {
        let what = format!("key '{}'", shown(key));
        let element = self.kind(key)?;
        let stated = self.u64(&what)?;
        // A string takes at least its length.
        let least = if element == ValueType::String { 8 } else { element.size() };
        if element == ValueType::Array {
            return Err(Error::key(self.path, key, "a list of lists", "a list of numbers or strings"));
        }
        let count = self.fitting(stated, least).map_err(|room| {
            let found = format!("a list of {stated} of type {}", element.name());
            Error::key(self.path, key, found, format!("at most {room}: that is what the file can hold"))
        })?;
        if element == ValueType::String {
            let mut strings = Vec::new();
            for _ in 0..count {
                strings.push(self.string(&what)?);
            }
            return Ok(MetadataValue::Strings(strings));
        }
        let raw = self.take(count * least, &what)?;
        if element == ValueType::Bool && raw.iter().any(|&byte| byte > 1) {
            return Err(Error::key(self.path, key, "a byte that is neither 0 nor 1", "a list of bool"));
        }
        Ok(MetadataValue::Numbers { element, raw: raw.to_vec() })
    }

    fn kind(&mut self, key: &str) -> Result<ValueType, Error> {
        let code = self.u32(&format!("the type of key '{}'", shown(key)))?;
        let wrong = || Error::key(self.path, key, format!("type {code}"), "a type of GGUF, 0 to 12");
        ValueType::from_code(code).ok_or_else(wrong)
    }

    fn tensor(&mut self) -> Result<TensorEntry, Error> {
        let name = self.string("the name of a tensor")?;
        let what = format!("tensor '{}'", shown(&name));
        let count = self.u32(&what)?;
        if !(1..=MOST_DIMS).contains(&count) {
            let expected = format!("1 to {MOST_DIMS} dimensions");
            return Err(Error::tensor(self.path, &name, format!("{count} dimensions"), expected));
        }
        let mut dims = Vec::new();
        for _ in 0..count {
            dims.push(self.u64(&what)?);
        }
        if dims.contains(&0) {
            return Err(Error::tensor(self.path, &name, format!("dimensions {dims:?}"), "none of length 0"));
        }
        Ok(TensorEntry { name, dims, type_code: self.u32(&what)?, offset: self.u64(&what)? })
    }
}

#[cfg(test)]
mod tests;
