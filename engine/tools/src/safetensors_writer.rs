//! Writes safetensors: one file, or shards with an index. Tensors' values come one piece after the other, so that a model
//! may be larger than memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use kernels::format::{Format, quantize};
use serde_json::{Map, Value, json};

use crate::Error;

/// Tensor to write; in safetensors of plain numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTensor {
    pub name: String,
    pub format: Format,
    pub dims: Vec<usize>,
}

impl NewTensor {
    pub fn values(&self) -> u64 {
        self.dims.iter().product::<usize>() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.values() / self.format.block_len() as u64 * self.format.block_bytes() as u64
    }
}

/// Largest shard of a model, as the ecosystem has it; a larger tensor has a shard of its own.
const SHARD_BYTES: u64 = 5_000_000_000;

/// Writes `STEM.safetensors` into the folder, or shards and their index. `fill` gives a tensor's values to its sink.
pub fn write_safetensors(
    folder: &Path,
    stem: &str,
    tensors: &[NewTensor],
    fill: &mut dyn FnMut(&NewTensor, &mut TensorSink) -> Result<(), Error>,
) -> Result<u64, Error> {
    write_shards(folder, stem, tensors, SHARD_BYTES, fill)
}

fn write_shards(
    folder: &Path,
    stem: &str,
    tensors: &[NewTensor],
    shard_bytes: u64,
    fill: &mut dyn FnMut(&NewTensor, &mut TensorSink) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut shards: Vec<Vec<&NewTensor>> = vec![Vec::new()];
    let mut size = 0;
    for tensor in tensors {
        if size > 0 && size + tensor.bytes() > shard_bytes {
            (size, _) = (0, shards.push(Vec::new()));
        }
        size += tensor.bytes();
        shards.last_mut().into_iter().for_each(|shard| shard.push(tensor));
    }
    let count = shards.len();
    let mut places = BTreeMap::new();
    let mut written = 0;
    for (index, shard) in shards.iter().enumerate() {
        let name = match count {
            1 => format!("{stem}.safetensors"),
            _ => format!("{stem}-{:05}-of-{count:05}.safetensors", index + 1),
        };
        written += write_shard(&folder.join(&name), shard, fill)?;
        places.extend(shard.iter().map(|tensor| (tensor.name.clone(), name.clone())));
    }
    if count > 1 {
        let total: u64 = tensors.iter().map(NewTensor::bytes).sum();
        let index = json!({"metadata": {"total_size": total}, "weight_map": places});
        let path = folder.join(format!("{stem}.safetensors.index.json"));
        std::fs::write(&path, format!("{index:#}\n")).map_err(|source| Error::Io { path, source })?;
    }
    Ok(written)
}

fn write_shard(
    path: &Path,
    tensors: &[&NewTensor],
    fill: &mut dyn FnMut(&NewTensor, &mut TensorSink) -> Result<(), Error>,
) -> Result<u64, Error> {
    let io = |source| Error::Io { path: path.to_path_buf(), source };
    let mut header = Map::new();
    header.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut end = 0;
    for tensor in tensors {
        let dtype = match tensor.format {
            Format::F32 => "F32",
            Format::F16 => "F16",
            Format::BF16 => "BF16",
            other => return Err(Error::file(path, format!("{} is no type of safetensors", other.name()))),
        };
        let begin = end;
        end += tensor.bytes();
        let entry = json!({"dtype": dtype, "shape": tensor.dims, "data_offsets": [begin, end]});
        header.insert(tensor.name.clone(), entry);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?);
    let mut sink =
        TensorSink { out: file, path: path.to_path_buf(), format: Format::F32, name: String::new(), left: 0 };
    sink.out.write_all(&(header.len() as u64).to_le_bytes()).map_err(io)?;
    sink.out.write_all(&header).map_err(io)?;
    for tensor in tensors {
        (sink.format, sink.left) = (tensor.format, tensor.bytes());
        sink.name.clone_from(&tensor.name);
        fill(tensor, &mut sink)?;
        if sink.left > 0 {
            return Err(Error::file(path, format!("tensor '{}' lacks {} bytes", tensor.name, sink.left)));
        }
    }
    sink.out.into_inner().map_err(|error| io(error.into_error()))?.sync_all().map_err(io)?;
    Ok(8 + header.len() as u64 + end)
}

/// Receiver of one tensor's values.
pub struct TensorSink {
    out: BufWriter<File>,
    path: PathBuf,
    format: Format,
    name: String,
    left: u64, // bytes of the tensor that are still to come
}

impl TensorSink {
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.left = self
            .left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| Error::file(&self.path, format!("tensor '{}' has more values than its shape", self.name)))?;
        self.out.write_all(bytes).map_err(|source| Error::Io { path: self.path.clone(), source })
    }

    /// Takes values and rounds them to the tensor's format. Values that are not finite, also after rounding, are an error.
    pub fn values(&mut self, values: &[f32]) -> Result<(), Error> {
        const LARGEST_F16: f32 = 65504.0; // not a window: the largest finite f16
        let largest = if self.format == Format::F16 { LARGEST_F16 } else { f32::MAX };
        if let Some(value) = values.iter().find(|value| value.is_nan() || value.abs() > largest) {
            let what =
                format!("tensor '{}' gets the value {value}, which {} cannot hold", self.name, self.format.name());
            return Err(Error::file(&self.path, what));
        }
        let mut bytes = vec![0; values.len() * self.format.block_bytes()];
        quantize(self.format, values, &mut bytes);
        self.bytes(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, format: Format, dims: &[usize]) -> NewTensor {
        NewTensor { name: name.into(), format, dims: dims.into() }
    }

    #[test]
    fn shards_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let tensors =
            [tensor("a", Format::F32, &[2, 2]), tensor("b", Format::BF16, &[3]), tensor("c", Format::F16, &[2])];
        let mut fill = |tensor: &NewTensor, sink: &mut TensorSink| {
            let count = tensor.dims.iter().product();
            sink.values(&vec![1.5; count])
        };
        for (shard_bytes, files) in [(100, 1), (20, 2), (1, 3)] {
            let folder = folder.path().join(shard_bytes.to_string());
            std::fs::create_dir(&folder).unwrap();
            write_shards(&folder, "model", &tensors, shard_bytes, &mut fill).unwrap();
            let count = std::fs::read_dir(&folder).unwrap().count();
            assert_eq!(count, files + usize::from(files > 1), "{shard_bytes}");
            let read = weights::tensors_of(&folder, true).unwrap();
            let names: Vec<_> = read.iter().map(|t| (&t.name[..], t.format.unwrap(), t.dims.clone())).collect();
            let expected: Vec<_> = tensors.iter().map(|t| (&t.name[..], t.format, t.dims.clone())).collect();
            assert_eq!(names, expected);
            assert_eq!(&read[1].data[..], [0xc0, 0x3f].repeat(3));
        }
    }

    #[test]
    fn values_that_the_format_cannot_hold_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let write = |format, value: f32, count: usize| {
            let tensors = [tensor("a", format, &[2])];
            let mut fill = |_: &NewTensor, sink: &mut TensorSink| sink.values(&vec![value; count]);
            write_safetensors(folder.path(), "model", &tensors, &mut fill).map_err(|error| error.to_string())
        };
        assert!(write(Format::F16, 65504.0, 2).is_ok()); // not a window: the largest finite f16
        for (format, value, count, what) in [
            (Format::F16, 70000.0, 2, "gets the value 70000, which f16 cannot hold"),
            (Format::F32, f32::NAN, 2, "gets the value NaN, which f32 cannot hold"),
            (Format::F32, 1.0, 1, "lacks 4 bytes"),
            (Format::F32, 1.0, 3, "more values than its shape"),
        ] {
            let error = write(format, value, count).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
