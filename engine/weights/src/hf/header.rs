//! The header of a safetensors file: eight bytes of length, then JSON that says where each tensor lies.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kernels::format::Format;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::bytes::ModelBytes;
use crate::error::{Error, shown};
use crate::tensors::{Stored, Tensors, check_apart};

/// Adds the tensors of one file, and returns the bytes of its header.
pub(crate) fn add_tensors(path: &Path, bytes: &ModelBytes, tensors: &mut Tensors) -> Result<ModelBytes, Error> {
    let length = bytes.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
    let Some(length) = length else {
        return Err(Error::file(path, format!("is not a safetensors file: it has {} bytes", bytes.len())));
    };
    let end = usize::try_from(length).ok().and_then(|length| length.checked_add(8));
    let header = end.and_then(|end| bytes.slice(8..end));
    let (Some(header), Some(data)) = (header, end.and_then(|end| bytes.slice(end..bytes.len()))) else {
        let what = format!("is cut short or not safetensors: a header of {length} bytes in a file of {}", bytes.len());
        return Err(Error::file(path, what));
    };
    let parsed: Header = serde_json::from_slice(&header)
        .map_err(|error| Error::file(path, format!("has a damaged header: {}", shown(&error.to_string()))))?;

    let shared_path: Arc<Path> = path.into();
    let mut ranges = Vec::new();
    for (name, entry) in &parsed.entries {
        let stored = locate(&shared_path, &data, name, entry)?;
        ranges.push((entry.data_offsets.0, entry.data_offsets.1, &name[..]));
        if !tensors.insert(name.clone(), stored) {
            return Err(Error::tensor(path, name, "the name twice", "each tensor once"));
        }
    }
    check_apart(path, ranges)?;
    Ok(header)
}

fn locate(path: &Arc<Path>, data: &ModelBytes, name: &str, entry: &Entry) -> Result<Stored, Error> {
    let wrong = |found: String, expected: String| Error::tensor(path, name, found, expected);
    let mut dims = Vec::new();
    for &dim in &entry.shape {
        match usize::try_from(dim) {
            Ok(0) => return Err(wrong(format!("shape {:?}", entry.shape), "no dimension of length 0".into())),
            Ok(dim) => dims.push(dim),
            Err(_) => return Err(wrong(format!("a dimension of {dim}"), "one that fits into memory".into())),
        }
    }
    let (begin, end) = entry.data_offsets;
    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let Some(slice) = range.and_then(|(begin, end)| data.slice(begin..end)) else {
        let expected = format!("a range inside the {} bytes of data: is the download complete?", data.len());
        return Err(wrong(format!("bytes {begin} to {end}"), expected));
    };
    let (format, element) = match &entry.dtype[..] {
        "F32" => (Some(Format::F32), 4),
        "F16" => (Some(Format::F16), 2),
        "BF16" => (Some(Format::BF16), 2),
        // Others matter only where the model needs the tensor; then the type is the error.
        _ => {
            let type_name = shown(&entry.dtype);
            return Ok(Stored { path: path.clone(), format: None, type_name, dims, data: slice });
        }
    };
    let size = dims.iter().try_fold(element, |product: usize, &dim| product.checked_mul(dim));
    if size != Some(slice.len()) {
        let expected = size.map_or("a shape whose size fits into memory".into(), |size| format!("{size} bytes"));
        return Err(wrong(format!("{} bytes for shape {dims:?} of {}", slice.len(), entry.dtype), expected));
    }
    Ok(Stored { path: path.clone(), format, type_name: entry.dtype.clone(), dims, data: slice })
}

/// A map by hand: serde's own would keep the last of two equal names without a word.
struct Header {
    entries: Vec<(String, Entry)>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a map from names to tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                    } else {
                        entries.push((name, map.next_value()?));
                    }
                }
                Ok(Header { entries })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
