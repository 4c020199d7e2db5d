//! A Hugging Face folder to take tensors from: by name, in pieces, every value finite.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use kernels::format::{Format, dequantize};
use weights::FileTensor;

use crate::Error;

/// Values that are read together.
pub const PIECE: usize = 1 << 20;

#[derive(Debug)]
pub struct ModelFolder {
    pub path: PathBuf,
    pub tensors: BTreeMap<String, FileTensor>,
}

impl ModelFolder {
    pub fn open(path: &Path) -> Result<ModelFolder, Error> {
        if !path.is_dir() {
            let what = match path.exists() {
                true => "is no folder: this reads folders of safetensors, as they are before import to GGUF",
                false => "is not there: give the folder of a model in safetensors",
            };
            return Err(Error::file(path, what));
        }
        let tensors = weights::tensors_of(path, true)?;
        let tensors = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(ModelFolder { path: path.to_path_buf(), tensors })
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

/// Returns the format of a tensor of plain numbers.
pub fn format_of(tensor: &FileTensor) -> Result<Format, Error> {
    tensor.format.filter(|format| !format.is_quantised()).ok_or_else(|| {
        let what = format!("tensor '{}' has the type {}, not F32, F16 or BF16", tensor.name, tensor.type_name);
        Error::file(&tensor.path, what)
    })
}

pub fn count_of(tensor: &FileTensor) -> usize {
    tensor.dims.iter().product()
}

/// Reads values of a tensor. Any that is not finite is an error.
pub fn read(tensor: &FileTensor, range: Range<usize>, out: &mut Vec<f32>) -> Result<(), Error> {
    let format = format_of(tensor)?;
    let size = format.block_bytes();
    out.resize(range.len(), 0.0);
    dequantize(format, &tensor.data[range.start * size..range.end * size], out);
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
    ["mtp.", "visual.", "vision_tower."].iter().any(|part| module.starts_with(part))
}
