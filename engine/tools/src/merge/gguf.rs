//! A merge of GGUF files: the reference's keys, names and types, with tensors in the order of their names.

use std::path::Path;

use kernels::format::quantize_for_file;
use weights::gguf::{self, GgufFile};

use super::{MergePlan, Written};
use crate::Error;
use crate::file_head::FileHead;
use crate::gguf_writer::TensorInfo;
use crate::mixture::Mixture;
use crate::planned::lost_by;
use crate::quantize::kept_keys;
use crate::safetensors_writer::NewTensor;
use crate::streaming;
use crate::tensor_source::StoredAs;

pub fn write(plan: &MergePlan, progress: &mut dyn FnMut(u64, u64)) -> Result<u64, Error> {
    let (source, out) = (&plan.reference().path, &plan.options.out);
    streaming::check_room(out, plan.bytes(), weights::free_bytes)?;
    let file = GgufFile::open(source, true)?;
    let model = gguf::open(source, true)?;
    let info = |NewTensor { name, dims, format }: &NewTensor| TensorInfo {
        name: name.clone(),
        dims: dims.iter().rev().map(|&dim| dim as u64).collect(),
        format: *format,
    };
    let infos: Vec<TensorInfo> = plan.tensors.iter().map(info).collect();
    let mut head = FileHead::Gguf(kept_keys(&file));
    if let Some(mixture) = plan.recipe.out_format.and_then(|format| Mixture::from_name(format.name())) {
        head.set_file_type(mixture.file_type());
    }
    let mut work = plan.work(progress);
    let write = |unfinished| {
        let io = |source| Error::io(out, source);
        let mut writer = head.write(unfinished, &infos).map_err(io)?;
        for tensor in &plan.tensors {
            work.next(tensor, &mut |written| match written {
                Written::Bytes(bytes) => writer.write(bytes).map_err(io),
                Written::Values(values) => writer.write(&in_type(tensor, values, out)?).map_err(io),
            })?;
        }
        writer.finish().map_err(io)
    };
    let check = |written: &Path| match gguf::open(written, true)?.shape == model.shape {
        true => Ok(()),
        false => Err(Error::file(written, "does not read as the same model")),
    };
    streaming::atomically(out, write, check)
}

/// Returns values of a checkpoint as bytes of a file's tensor. They are whole blocks.
fn in_type(NewTensor { name, format, .. }: &NewTensor, values: &[f32], out: &Path) -> Result<Vec<u8>, Error> {
    let stored = StoredAs::of(name);
    let values: Vec<f32> = values.iter().map(|value| stored.in_file(*value)).collect();
    let mut bytes = vec![0; values.len() / format.block_len() * format.block_bytes()];
    quantize_for_file(*format, &values, None, &mut bytes);
    let lost = values.iter().position(|value| !value.is_finite()).or_else(|| lost_by(*format, &values, &bytes));
    match lost {
        None => Ok(bytes),
        Some(at) => {
            let what = format!("gets the value {}, which {} cannot hold", values[at], format.name());
            Err(Error::tensor(out, name, what))
        }
    }
}
