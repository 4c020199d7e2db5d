//! Adapters of low rank (LoRA): made of the difference of two models, and merged into a model.

mod apply;
mod extract;
mod svd;

pub use apply::{AdapterMerge, AdapterMergeReport};
pub use extract::{ExtractOptions, ExtractReport, Extraction, LowRankSize};

use sha2::{Digest, Sha256};
use weights::FileTensor;

use crate::model_folder::ModelFolder;

/// Last names of the modules that an adapter changes: attention, linear attention, feed-forward.
const TARGETS: [&str; 12] = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_a",
    "in_proj_b",
    "out_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
];

/// File of an extracted adapter that tells of its base. PEFT does not read it.
const BASE_MARK: &str = "reprise_base.json";

/// Key of the same in an extracted adapter of GGUF's form.
const BASE_KEY: &str = "reprise.lora.base";

/// Returns the path of the module whose matrix this is. None: an adapter leaves the tensor as it is.
fn target(tensor: &FileTensor) -> Option<&str> {
    let path = tensor.name.strip_suffix(".weight")?;
    let is_target = TARGETS.contains(&path.rsplit('.').next()?) && tensor.dims.len() == 2;
    (is_target && weights::module_of(path).starts_with("layers.")).then_some(path)
}

/// Makes a hash of samples of the matrices that adapters change, so that an adapter knows its base.
fn base_mark(base: &ModelFolder) -> String {
    const SAMPLE: usize = 256; // not a window: bytes
    let mut hash = Sha256::new();
    for tensor in base.tensors.values() {
        let Some(path) = target(tensor) else { continue };
        let data = &tensor.data[..];
        hash.update(weights::module_of(path).as_bytes());
        hash.update((data.len() as u64).to_le_bytes());
        let last = data.len().saturating_sub(SAMPLE);
        [0, last / 2, last].into_iter().for_each(|at| hash.update(&data[at..data.len().min(at + SAMPLE)]));
    }
    hex::encode(hash.finalize())
}
