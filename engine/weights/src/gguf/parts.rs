//! The file or files of a GGUF model, their headers read and their tensors found in the bytes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::format::Format;

use crate::bytes::ModelBytes;
use crate::error::Error;
use crate::gguf::metadata::Metadata;
use crate::gguf::read::{self, Header, TensorEntry};
use crate::tensors::{Stored, Tensors, check_apart};

pub(crate) struct GgufParts {
    pub metadata: Metadata,
    pub keys: Vec<(String, ModelBytes)>,
    /// Names of the tensors of all parts, in the files' order.
    pub order: Vec<String>,
    pub tensors: Tensors,
    /// The bytes before the tensors, of each part: what the fingerprint covers whole.
    pub headers: Vec<ModelBytes>,
    /// Its block for prediction is in a file of its own, so that the metadata know of none.
    pub has_own_prediction_file: bool,
}

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

pub(crate) fn open(path: &Path, mmap: bool) -> Result<GgufParts, Error> {
    let bytes = ModelBytes::open(path, mmap)?;
    let header = read::header(path, &bytes)?;
    let count = split_count(&header.metadata)?;
    if count <= 1 {
        return collect(vec![(path.to_path_buf(), bytes, header)]);
    }
    let paths = siblings(path, count)?;
    let mut parts = Vec::new();
    let mut given = Some((bytes, header));
    for (i, part) in paths.into_iter().enumerate() {
        let (bytes, header) = match given.take_if(|_| part == path) {
            Some(given) => given,
            None => {
                let bytes = ModelBytes::open(&part, mmap).map_err(|error| missing_part(error, i + 1, count))?;
                let header = read::header(&part, &bytes)?;
                (bytes, header)
            }
        };
        check_part(&header.metadata, i, count)?;
        parts.push((part, bytes, header));
    }
    collect(parts)
}

pub(crate) fn from_bytes(path: &Path, bytes: ModelBytes) -> Result<GgufParts, Error> {
    let header = read::header(path, &bytes)?;
    let count = split_count(&header.metadata)?;
    if count > 1 {
        return Err(Error::file(path, format!("is one of {count} parts; give the path of the file")));
    }
    collect(vec![(path.to_path_buf(), bytes, header)])
}

fn split_count(metadata: &Metadata) -> Result<usize, Error> {
    let count = metadata.unsigned(SPLIT_COUNT)?.unwrap_or(1);
    // The file names have five digits for it.
    match usize::try_from(count) {
        Ok(count) if count <= 99_999 => Ok(count),
        _ => Err(Error::key(metadata.path(), SPLIT_COUNT, count.to_string(), "at most 99999 parts")),
    }
}

/// Returns the paths PREFIX-00001-of-0000N.gguf and so on, beside the given part.
fn siblings(path: &Path, count: usize) -> Result<Vec<PathBuf>, Error> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let prefix = split_prefix(name).filter(|(_, _, of)| *of == count).map(|(prefix, _, _)| prefix.to_string());
    let Some(prefix) = prefix else {
        let what =
            format!("is one of {count} parts; its name must end in -0000X-of-{count:05}.gguf, as the others' do");
        return Err(Error::file(path, what));
    };
    Ok((1..=count).map(|part| path.with_file_name(format!("{prefix}-{part:05}-of-{count:05}.gguf"))).collect())
}

fn split_prefix(name: &str) -> Option<(&str, usize, usize)> {
    let stem = name.strip_suffix(".gguf")?;
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let digits =
        |text: &str| (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?;
    Some((prefix, digits(number)?, digits(of)?))
}

fn missing_part(error: Error, part: usize, count: usize) -> Error {
    match error {
        Error::Io { path, source } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::file(&path, format!("is missing: it is part {part} of {count}, and all must be in one folder"))
        }
        other => other,
    }
}

fn check_part(metadata: &Metadata, index: usize, count: usize) -> Result<(), Error> {
    for (key, expected) in [(SPLIT_NO, index), (SPLIT_COUNT, count)] {
        let found = metadata.unsigned(key)?;
        if found != u64::try_from(expected).ok() {
            let found = found.map_or("no such key".to_string(), |found| found.to_string());
            return Err(Error::key(metadata.path(), key, found, format!("{expected}, as the file's name says")));
        }
    }
    Ok(())
}

fn collect(parts: Vec<(PathBuf, ModelBytes, Header)>) -> Result<GgufParts, Error> {
    let mut first: Option<(Metadata, Vec<(String, ModelBytes)>)> = None;
    let (mut headers, mut order) = (Vec::new(), Vec::new());
    let mut tensors = Tensors::new(parts.first().map_or(Path::new(""), |(path, ..)| path));
    for (path, bytes, header) in parts {
        headers.push(bytes.slice(0..header.end).unwrap_or_else(|| bytes.clone()));
        add_tensors(&mut tensors, &path, &bytes, &header, |_| true)?;
        order.extend(header.tensors.into_iter().map(|tensor| tensor.name));
        first.get_or_insert((header.metadata, header.keys));
    }
    let (metadata, keys) = first.unwrap_or_else(|| (Metadata::new(Path::new("")), Vec::new()));
    if let Some(stated) =
        metadata.unsigned(SPLIT_TENSORS)?.filter(|&stated| usize::try_from(stated) != Ok(tensors.len()))
    {
        let found = format!("{stated}, and {} tensors in the parts", tensors.len());
        return Err(Error::key(metadata.path(), SPLIT_TENSORS, found, "the number of all parts' tensors"));
    }
    Ok(GgufParts { metadata, keys, order, tensors, headers, has_own_prediction_file: false })
}

/// Returns how many of the file's tensors were wanted.
pub(crate) fn add_tensors(
    tensors: &mut Tensors,
    path: &Path,
    bytes: &ModelBytes,
    header: &Header,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<usize, Error> {
    let shared_path: Arc<Path> = path.into();
    let (mut ranges, mut wanted) = (Vec::new(), 0);
    for info in header.tensors.iter().filter(|info| is_wanted(&info.name)) {
        wanted += 1;
        let stored = locate(&shared_path, bytes, header, info)?;
        if !stored.data.is_empty() {
            ranges.push((info.offset, info.offset + stored.data.len() as u64, &info.name[..]));
        }
        if !tensors.insert(info.name.clone(), stored) {
            return Err(Error::tensor(path, &info.name, "the name twice", "each tensor once"));
        }
    }
    check_apart(path, ranges)?;
    Ok(wanted)
}

fn locate(path: &Arc<Path>, bytes: &ModelBytes, header: &Header, info: &TensorEntry) -> Result<Stored, Error> {
    let wrong = |found: String, expected: String| Error::tensor(path, &info.name, found, expected);
    let mut dims = Vec::new();
    for &dim in info.dims.iter().rev() {
        let dim = usize::try_from(dim).map_err(|_| wrong(format!("a dimension of {dim}"), "one that fits".into()))?;
        dims.push(dim);
    }
    let start = usize::try_from(info.offset).ok().and_then(|offset| header.data_start.checked_add(offset));
    let available = bytes.len() - header.data_start;
    let start = match start {
        Some(start) if start <= bytes.len() => start,
        _ => return Err(wrong(format!("offset {}", info.offset), format!("less than {available}: the data's length"))),
    };
    if !(start - header.data_start).is_multiple_of(header.alignment) {
        return Err(wrong(format!("offset {}", info.offset), format!("a multiple of {}", header.alignment)));
    }
    let (cols, rest) = (dims.last().copied().unwrap_or(0), &dims[..dims.len() - 1]);
    let rows = rest.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim));
    let format = Format::from_gguf(info.type_code);
    let (type_name, row_bytes) = match format {
        Some(format) => (format.name().to_string(), format.row_bytes(cols)),
        None => unknown_type(info.type_code, cols),
    };
    if let Some(format) = format.filter(|format| cols % format.block_len() != 0) {
        let expected = format!("rows of whole blocks: {} has {} values in one", format.name(), format.block_len());
        return Err(wrong(format!("rows of {cols} values"), expected));
    }
    let size = rows.and_then(|rows| row_bytes?.checked_mul(rows));
    let Some(size) = size else {
        if format.is_some() {
            return Err(wrong(format!("shape {dims:?}"), "one whose size fits into memory".into()));
        }
        let data = ModelBytes::copy_of(&[]);
        return Ok(Stored { path: path.clone(), format, type_name, dims, data });
    };
    let Some(data) = start.checked_add(size).and_then(|end| bytes.slice(start..end)) else {
        let found = format!("{size} bytes from {start} on, in a file of {}", bytes.len());
        return Err(wrong(found, "all of its bytes inside the file: is the download complete?".into()));
    };
    Ok(Stored { path: path.clone(), format, type_name, dims, data })
}

// Types that the kernels cannot read: (number, name, values in a block, bytes of a block).
const UNKNOWN: [(u32, &str, usize, usize); 16] = [
    (9, "q8_1", 32, 36),
    (15, "q8_k", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
];

// Returns the name of a type, and the bytes of a row where they are known.
fn unknown_type(code: u32, cols: usize) -> (String, Option<usize>) {
    match UNKNOWN.iter().find(|row| row.0 == code) {
        None if code == 40 => (format!("nvfp4 ({code})"), None),
        None => (code.to_string(), None),
        Some(&(_, name, values, bytes)) => {
            let row_bytes = if cols.is_multiple_of(values) { (cols / values).checked_mul(bytes) } else { None };
            (format!("{name} ({code})"), row_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        assert_eq!(split_prefix("a-b-00002-of-00003.gguf"), Some(("a-b", 2, 3)));
        for other in ["a.gguf", "a-2-of-3.gguf", "a-00002-of-00003.bin", "00002-of-00003.gguf", "a-0000+-of-00003.gguf"]
        {
            assert_eq!(split_prefix(other), None, "{other}");
        }
        let paths = siblings(Path::new("/m/x-00001-of-00002.gguf"), 2).unwrap();
        assert_eq!(paths[1], Path::new("/m/x-00002-of-00002.gguf"));
        assert!(siblings(Path::new("/m/x-00001-of-00002.gguf"), 3).is_err());
    }
}
