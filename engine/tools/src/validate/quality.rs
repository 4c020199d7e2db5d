//! Statistics by kind of tensor over all layers, and tensors that differ from their like.

use std::collections::BTreeMap;

use serde::Serialize;
use weights::{FileContents, FileForm, FileTensor};

use super::findings::Findings;
use crate::tensors::TensorStats;

/// Tensors of one kind, one of each layer that has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QualityRow {
    pub kind: String, // name with N for the layer
    pub tensors: usize,
    pub types: String,
    pub bits_per_weight: f64,
    pub std_least: f64,
    pub std_median: f64,
    pub std_most: f64,
    pub largest: f32,
    pub zero_share: f64,
}

/// Factor between the spread of a tensor and that of its like above which one of them looks wrong.
const MOST_APART: f64 = 16.0;

pub(super) fn rows(contents: &FileContents, stats: &[Option<TensorStats>], findings: &mut Findings) -> Vec<QualityRow> {
    let mut kinds: BTreeMap<String, Vec<(&FileTensor, &TensorStats)>> = BTreeMap::new();
    for (tensor, stats) in contents.tensors.iter().zip(stats) {
        if let Some(stats) = stats {
            kinds.entry(kind(&tensor.name)).or_default().push((tensor, stats));
        }
    }
    let row = |(kind, mut tensors): (String, Vec<(&FileTensor, &TensorStats)>)| {
        tensors.sort_by(|a, b| a.1.std.total_cmp(&b.1.std));
        let median = tensors[tensors.len() / 2].1.std;
        for (tensor, stats) in &tensors {
            apart(&tensor.name, stats.std, median, tensors.len(), findings);
            norms(contents.form, &tensor.name, stats, findings);
        }
        let mut types: Vec<&str> = tensors.iter().map(|(tensor, _)| &tensor.type_name[..]).collect();
        types.sort_unstable();
        types.dedup();
        let values: u64 = tensors.iter().map(|(_, stats)| stats.values).sum();
        let bytes: u64 = tensors.iter().map(|(tensor, _)| tensor.data.len() as u64).sum();
        let zeros: f64 = tensors.iter().map(|(_, stats)| stats.zero_share * stats.values as f64).sum();
        QualityRow {
            kind,
            tensors: tensors.len(),
            types: types.join(", "),
            bits_per_weight: 8.0 * bytes as f64 / values.max(1) as f64,
            std_least: tensors[0].1.std,
            std_median: median,
            std_most: tensors[tensors.len() - 1].1.std,
            largest: tensors.iter().fold(0.0, |most, (_, stats)| stats.max.max(-stats.min).max(most)),
            zero_share: zeros / values.max(1) as f64,
        }
    };
    kinds.into_iter().map(row).collect()
}

fn apart(name: &str, std: f64, median: f64, like: usize, findings: &mut Findings) {
    let factor = std / median;
    if like > 2 && median > 0.0 && std > 0.0 && !(1.0 / MOST_APART..=MOST_APART).contains(&factor) {
        let says = format!(
            "the values of '{name}' spread {factor:.2} times as far as those of its like in other layers; compare with its source"
        );
        findings.warning("quality", Some(name), says);
    }
}

/// Looks for norms of a GGUF file to which the converter did not add one.
fn norms(form: FileForm, name: &str, stats: &TensorStats, findings: &mut Findings) {
    let is_offset = name.ends_with("norm.weight") && !name.ends_with("ssm_norm.weight");
    if form == FileForm::Gguf && is_offset && stats.mean.abs() < 0.05 && stats.values > 1 {
        let says = format!("the factors of '{name}' average {:.3}: the converter may not have added one", stats.mean);
        findings.warning("quality", Some(name), says);
    }
}

fn kind(name: &str) -> String {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    name.split('.').map(|part| if is_number(part) { "N" } else { part }).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    #[test]
    fn kinds_have_no_number() {
        assert_eq!(super::kind("blk.12.attn_q.weight"), "blk.N.attn_q.weight");
        assert_eq!(
            super::kind("model.layers.0.mlp.experts.3.up_proj.weight"),
            "model.layers.N.mlp.experts.N.up_proj.weight"
        );
    }
}
