//! Adapters of low rank (LoRA): made of the difference of two models, and merged into a model.

mod apply;
mod extract;
mod output;
mod svd;

pub use apply::{AdapterMerge, AdapterMergeReport};
pub use extract::{ExtractOptions, ExtractReport, Extraction, LowRankSize};

use sha2::{Digest, Sha256};

use crate::target::Target;
use crate::tensor_source::{SourceForm, TensorSource};

/// File of an extracted adapter that tells of its base. PEFT does not read it.
const BASE_MARK: &str = "reprise_base.json";

/// Key of the same in an extracted adapter of GGUF's form.
const BASE_KEY: &str = "reprise.lora.base";

/// Begin of the mark of a base that is a GGUF file.
const GGUF_MARK: &str = "gguf:";

/// Makes a hash of samples of the matrices that adapters change, so that an adapter knows its base. A model has one mark as a
/// checkpoint and another as a GGUF file.
fn base_mark(base: &TensorSource) -> String {
    const SAMPLE: usize = 256; // not a window: bytes
    let mut hash = Sha256::new();
    for tensor in base.tensors.values() {
        let Some(target) = Target::of(tensor, usize::MAX).filter(|target| target.count == 1) else { continue };
        let data = &tensor.data[..];
        hash.update(weights::module_of(&target.path).as_bytes());
        hash.update((data.len() as u64).to_le_bytes());
        let last = data.len().saturating_sub(SAMPLE);
        [0, last / 2, last].into_iter().for_each(|at| hash.update(&data[at..data.len().min(at + SAMPLE)]));
    }
    let mark = hex::encode(hash.finalize());
    if base.form == SourceForm::Gguf { format!("{GGUF_MARK}{mark}") } else { mark }
}

/// Tells whether a mark is that of another model. A base in another form than the mark's cannot be compared.
fn is_of_other_base(mark: &str, base: &TensorSource) -> bool {
    mark.starts_with(GGUF_MARK) == (base.form == SourceForm::Gguf) && mark != base_mark(base)
}
