//! A model to take tensors from, in any form of file: by name, in pieces, every value finite and as a checkpoint has it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kernels::format::{Format, dequantize};
use weights::{FileTensor, hf};

use crate::Error;

/// Values that are read together: whole blocks of every format.
pub const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub struct TensorSource {
    pub path: PathBuf,
    pub form: SourceForm,
    pub tensors: BTreeMap<String, FileTensor>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceForm {
    /// Folder of safetensors, or the same in an APR file.
    Checkpoint,
    Gguf,
}

impl TensorSource {
    pub fn open(path: &Path) -> Result<TensorSource, Error> {
        if !path.exists() {
            return Err(Error::file(
                path,
                "is not there: give the folder of a model in safetensors, a GGUF or an APR file",
            ));
        }
        let is_checkpoint = path.is_dir() || hf::is_apr(path);
        let form = if is_checkpoint { SourceForm::Checkpoint } else { SourceForm::Gguf };
        let tensors = weights::tensors_of(path, true)?;
        let tensors = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(TensorSource { path: path.to_path_buf(), form, tensors })
    }

    /// Checks that tensors of another model have their names and heads in this one's order.
    pub fn check_form(&self, other: &TensorSource) -> Result<(), Error> {
        if self.form == other.form {
            return Ok(());
        }
        let what =
            "and the other is no GGUF file: give models of one form; `reprise import` makes a GGUF file of a folder";
        let (gguf, other) = if self.form == SourceForm::Gguf { (self, other) } else { (other, self) };
        Err(Error::file(&gguf.path, format!("is a GGUF file, {what} ({})", other.path.display())))
    }

    /// Returns a tensor. `like`: the tensor of another model, whose shape this one has to have.
    pub fn tensor_like(&self, like: &FileTensor) -> Result<&FileTensor, Error> {
        let wrong = |what: String| Error::file(&self.path, format!("tensor '{}' {what}", like.name));
        let tensor = self.tensors.get(&like.name);
        let tensor = tensor.ok_or_else(|| wrong(format!("is missing, and {} has it", like.path.display())))?;
        if tensor.dims != like.dims {
            let other = like.path.display();
            return Err(wrong(format!("has the shape {:?}, and in {other} {:?}", tensor.dims, like.dims)));
        }
        Ok(tensor)
    }
}

pub fn format_of(tensor: &FileTensor) -> Result<Format, Error> {
    tensor.format.ok_or_else(|| {
        let known: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        let what = format!("tensor '{}' has the type {}, not {}", tensor.name, tensor.type_name, known.join(", "));
        Error::file(&tensor.path, what)
    })
}

/// Returns the type that a tensor has in safetensors, which have none for blocks.
pub fn plain_format_of(tensor: &FileTensor) -> Result<Format, Error> {
    Ok(match format_of(tensor)? {
        format if format.is_quantised() => Format::BF16,
        format => format,
    })
}

pub fn count_of(tensor: &FileTensor) -> usize {
    tensor.dims.iter().product()
}

/// Reads values of a tensor as a checkpoint has them. `range` is whole blocks. A value that is not finite is an error.
pub fn read(tensor: &FileTensor, range: Range<usize>, out: &mut Vec<f32>) -> Result<(), Error> {
    let format = format_of(tensor)?;
    let place = |value: usize| value / format.block_len() * format.block_bytes();
    let bytes = tensor
        .data
        .get(place(range.start)..place(range.end))
        .filter(|_| range.len().is_multiple_of(format.block_len()));
    let bytes = bytes.ok_or_else(|| Error::file(&tensor.path, format!("tensor '{}' is cut short", tensor.name)))?;
    out.resize(range.len(), 0.0);
    dequantize(format, bytes, out);
    let stored = StoredAs::of(&tensor.name);
    out.iter_mut().for_each(|value| *value = stored.in_checkpoint(*value));
    match out.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => {
            let what = format!("tensor '{}' has the value {} at {}", tensor.name, out[at], range.start + at);
            Err(Error::file(&tensor.path, what))
        }
    }
}

pub fn read_all(tensor: &FileTensor) -> Result<Vec<f32>, Error> {
    let mut values = Vec::new();
    read(tensor, 0..count_of(tensor), &mut values)?;
    Ok(values)
}

pub fn pieces(count: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(PIECE).map(move |begin| begin..count.min(begin + PIECE))
}

/// Tells whether a tensor belongs to a part that fine-tunes leave out: the vision encoder, multi-token prediction.
pub fn is_optional(name: &str) -> bool {
    let module = weights::module_of(name);
    ["mtp.", "visual.", "vision_tower."].iter().any(|part| module.starts_with(part)) || name.contains(".nextn.")
}

/// Way in which a GGUF file holds a checkpoint's values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StoredAs {
    Itself,
    Factor,              // norms: 1 + w
    NegativeExponential, // decay of linear attention: -exp(A_log)
}

impl StoredAs {
    pub fn of(name: &str) -> StoredAs {
        let is_norm = name.ends_with("norm.weight") && !name.ends_with(".ssm_norm.weight");
        match name {
            "output_norm.weight" => StoredAs::Factor,
            _ if !name.starts_with("blk.") => StoredAs::Itself,
            _ if is_norm => StoredAs::Factor,
            _ if name.ends_with(".ssm_a") || name.ends_with(".ssm_a.weight") => StoredAs::NegativeExponential,
            _ => StoredAs::Itself,
        }
    }

    fn in_checkpoint(self, value: f32) -> f32 {
        match self {
            StoredAs::Itself => value,
            StoredAs::Factor => value - 1.0,
            StoredAs::NegativeExponential => (-value).ln(),
        }
    }

    pub fn in_file(self, value: f32) -> f32 {
        match self {
            StoredAs::Itself => value,
            StoredAs::Factor => value + 1.0,
            StoredAs::NegativeExponential => -value.exp(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_gguf_files_are_read_as_a_checkpoint_has_them() {
        for (name, stored) in [
            ("blk.3.attn_norm.weight", StoredAs::Factor),
            ("blk.3.attn_q_norm.weight", StoredAs::Factor),
            ("blk.4.nextn.enorm.weight", StoredAs::Factor),
            ("output_norm.weight", StoredAs::Factor),
            ("blk.0.ssm_norm.weight", StoredAs::Itself),
            ("blk.0.ssm_a", StoredAs::NegativeExponential),
            ("blk.0.attn_q.weight", StoredAs::Itself),
            ("model.norm.weight", StoredAs::Itself),
            ("model.layers.0.input_layernorm.weight", StoredAs::Itself),
        ] {
            assert_eq!(StoredAs::of(name), stored, "{name}");
            let value = 0.75;
            assert!((stored.in_checkpoint(stored.in_file(value)) - value).abs() < 1e-6, "{name}");
        }
    }
}
