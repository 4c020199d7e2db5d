//! Contents of a model's files as they stand: each tensor with its bytes.

use std::path::Path;
use std::sync::Arc;

use kernels::format::Format;

use crate::bytes::ModelBytes;
use crate::tensors::Tensors;

/// Tensor of a file, readable or not.
#[derive(Debug, Clone)]
pub struct FileTensor {
    pub name: String,
    pub path: Arc<Path>,
    /// Format of the values. None: the kernels cannot read the type.
    pub format: Option<Format>,
    pub type_name: String,
    /// Outermost first.
    pub dims: Vec<usize>,
    /// Empty where the format is unknown.
    pub data: ModelBytes,
}

/// Lists the tensors of files that were read, in the order of their names.
pub(crate) fn listed(tensors: &Tensors) -> Vec<FileTensor> {
    let listed = tensors.iter().map(|(name, tensor)| FileTensor {
        name: name.to_owned(),
        path: tensor.path.clone(),
        format: tensor.format,
        type_name: tensor.type_name.clone(),
        dims: tensor.dims.clone(),
        data: tensor.data.clone(),
    });
    listed.collect()
}
