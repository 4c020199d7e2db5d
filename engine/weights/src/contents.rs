//! Contents of a model's files as they stand: each tensor with its bytes, and metadata that are read one by one, so that a
//! mistake in one of them hides no other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernels::format::Format;

use crate::bytes::ModelBytes;
use crate::error::Error;
use crate::family::{Architecture, Family};
use crate::model::VocabSource;
use crate::shape::Shape;
use crate::tensors::Tensors;

#[derive(Debug, Clone)]
pub struct FileTensor {
    pub name: String,
    pub path: Arc<Path>,
    /// Format of the values. None: the kernels cannot read the type.
    pub format: Option<Format>,
    pub type_name: String,
    pub dims: Vec<usize>,
    // Empty where the type's size is unknown.
    pub data: ModelBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileForm {
    Gguf,
    Folder,
}

#[derive(Debug)]
pub struct FileContents {
    pub form: FileForm,
    pub files: Vec<PathBuf>,      // those of the tensors
    pub tensors: Vec<FileTensor>, // in the order of their names
    pub family: Result<(&'static Family, &'static Architecture), Error>,
    pub shape: Result<Shape, Error>,
    pub vocab: Result<VocabSource, Error>,
    pub stop_tokens: Result<Vec<u32>, Error>,
    pub chat_template: Result<Option<String>, Error>,
    pub(crate) names: FileNames,
}

#[derive(Debug, Clone)]
pub(crate) enum FileNames {
    Gguf,
    Folder {
        family: &'static Family,
        prefix: String,     // before `embed_tokens` and `layers`
        prediction: String, // before the block for multi-token prediction
        trunk: usize,
        heads: &'static [&'static str],
    },
}

impl FileContents {
    pub fn tensor(&self, name: &str) -> Option<&FileTensor> {
        let at = self.tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(name)).ok()?;
        self.tensors.get(at)
    }

    /// Returns the names that a tensor may have in these files, the usual one first. `name` is GGUF's.
    pub fn names_of(&self, name: &str) -> Vec<String> {
        self.names.of(name)
    }

    /// Returns the names of the matrices of single experts, where a folder may have them instead of one tensor for all.
    pub fn expert_names(&self, name: &str, experts: usize) -> Option<Vec<String>> {
        let FileNames::Folder { prefix, .. } = &self.names else { return None };
        let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
        let part = part.strip_prefix("ffn_")?.strip_suffix("_exps.weight")?;
        let name = |expert| format!("{prefix}layers.{layer}.mlp.experts.{expert}.{part}_proj.weight");
        Some((0..experts).map(name).collect())
    }
}

impl FileNames {
    fn of(&self, name: &str) -> Vec<String> {
        let FileNames::Folder { family, prefix, prediction, trunk, heads } = self else {
            // Converters do not agree whether these two end in a suffix.
            let other = match name.rsplit_once('.') {
                _ if name.ends_with(".ssm_a") => Some(format!("{name}.weight")),
                Some((begin, "bias")) if begin.ends_with(".ssm_dt") => Some(begin.to_owned()),
                _ => None,
            };
            return std::iter::once(name.to_owned()).chain(other).collect();
        };
        match name {
            "token_embd.weight" => return vec![format!("{prefix}embed_tokens.weight")],
            "output_norm.weight" => return vec![format!("{prefix}norm.weight")],
            "output.weight" => return heads.iter().map(|head| (*head).to_owned()).collect(),
            _ => {}
        }
        let of_layer = || {
            let (block, rest) = name.strip_prefix("blk.")?.split_once('.')?;
            let block: usize = block.parse().ok()?;
            Some(match rest.strip_prefix("nextn.") {
                Some(own) => format!("{prediction}{}", family.prediction_tensor(own)),
                None if block >= *trunk => {
                    format!("{prediction}layers.{}.{}", block - trunk, family.layer_tensor(rest))
                }
                None => format!("{prefix}layers.{block}.{}", family.layer_tensor(rest)),
            })
        };
        vec![of_layer().unwrap_or_else(|| name.to_owned())]
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family;

    #[test]
    fn names_of_both_forms() {
        let folder = FileNames::Folder {
            family: &family::all()[0],
            prefix: "model.".into(),
            prediction: "mtp.".into(),
            trunk: 4,
            heads: &["lm_head.weight"],
        };
        for (name, gguf, in_folder) in [
            ("output.weight", &["output.weight"][..], "lm_head.weight"),
            ("blk.3.ssm_a", &["blk.3.ssm_a", "blk.3.ssm_a.weight"], "model.layers.3.linear_attn.A_log"),
            ("blk.0.ssm_dt.bias", &["blk.0.ssm_dt.bias", "blk.0.ssm_dt"], "model.layers.0.linear_attn.dt_bias"),
            ("blk.4.attn_q.weight", &["blk.4.attn_q.weight"], "mtp.layers.0.self_attn.q_proj.weight"),
            ("blk.4.nextn.enorm.weight", &["blk.4.nextn.enorm.weight"], "mtp.pre_fc_norm_embedding.weight"),
        ] {
            assert_eq!(FileNames::Gguf.of(name), gguf);
            assert_eq!(folder.of(name), [in_folder]);
        }
    }
}
