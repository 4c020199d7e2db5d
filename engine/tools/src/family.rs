//! A family's page applied to a model: numbers of its shape, tensors that it must hold, the published size that it is.

use weights::family::{Family, SizeVariant};
use weights::{LayerKind, Shape};

/// Tensor that a model must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedTensor {
    /// Part of the model that the tensor belongs to, a table of the page.
    pub part: &'static str,
    /// Text before the page's name: `blk.N.` of a layer's.
    pub prefix: String,
    pub name: String, // in GGUF
    pub dims: Vec<usize>,
    pub formula: String, // dimensions as the page has them
}

/// Returns a number of a shape by the name that the page has for it.
pub fn number(shape: &Shape, name: &str) -> Option<f64> {
    let moe = shape.moe.as_ref();
    let whole = match name {
        "rope_theta" => return Some(shape.rope.theta),
        // The nearest short decimal of what a file keeps in 32 bits.
        "rms_eps" => return shape.rms_eps.to_string().parse().ok(),
        "layers" => shape.layers.len(),
        "hidden" => shape.hidden,
        "ffn" => shape.ffn,
        "q_heads" => shape.q_heads,
        "kv_heads" => shape.kv_heads,
        "head_dim" => shape.head_dim,
        "rope_dims" => shape.rope.dims,
        "key_heads" => shape.key_heads,
        "value_heads" => shape.value_heads,
        "key_dim" => shape.key_dim,
        "value_dim" => shape.value_dim,
        "conv_kernel" => shape.conv_kernel,
        "vocab" => shape.vocab,
        "native_ctx" => shape.native_ctx,
        "experts" => moe?.experts,
        "experts_used" => moe?.used,
        "expert_ffn" => moe?.expert_ffn,
        "shared_ffn" => moe?.shared_ffn,
        _ => return None,
    };
    Some(whole as f64)
}

/// Computes a dimension of the page: a sum of products of numbers and their names. None: it is no such formula, or too large.
pub fn dimension(shape: &Shape, formula: &str) -> Option<usize> {
    let factor = |text: &str| match text.trim().parse::<usize>() {
        Ok(number) => Some(number),
        Err(_) => number(shape, text.trim()).map(|number| number as usize),
    };
    let product = |term: &str| term.split('*').try_fold(1usize, |product, text| product.checked_mul(factor(text)?));
    formula.split('+').try_fold(0usize, |sum, term| sum.checked_add(product(term)?))
}

pub fn expected_tensors(family: &Family, shape: &Shape) -> Vec<ExpectedTensor> {
    let mut expected = Vec::new();
    let tables = &family.tensors;
    let mut add = |part: &'static str, prefix: String| {
        let shapes = match part {
            "model" => &tables.model,
            "head" => &tables.head,
            "layer" => &tables.layer,
            "attention" => &tables.attention,
            "linear" => &tables.linear,
            "dense" => &tables.dense,
            "experts" => &tables.experts,
            "shared_expert" => &tables.shared_expert,
            _ => &tables.prediction,
        };
        for (name, dims) in shapes {
            expected.push(ExpectedTensor {
                part,
                name: format!("{prefix}{name}"),
                prefix: prefix.clone(),
                dims: dims.iter().map(|formula| dimension(shape, formula).unwrap_or(0)).collect(),
                formula: format!("[{}]", dims.join(", ")),
            });
        }
    };
    add("model", String::new());
    if !shape.tied {
        add("head", String::new());
    }
    let mut blocks: Vec<Vec<&'static str>> = Vec::new();
    let ffn = match &shape.moe {
        None => vec!["dense"],
        Some(moe) if moe.shared_ffn == 0 => vec!["experts"],
        Some(_) => vec!["experts", "shared_expert"],
    };
    for kind in &shape.layers {
        let mixer = if *kind == LayerKind::Attention { "attention" } else { "linear" };
        blocks.push([&["layer", mixer], &ffn[..]].concat());
    }
    if shape.mtp_blocks > 0 {
        blocks.push([&["layer", "attention", "prediction"], &ffn[..]].concat());
    }
    for (block, parts) in blocks.into_iter().enumerate() {
        parts.into_iter().for_each(|part| add(part, format!("blk.{block}.")));
    }
    expected
}

pub fn published_size<'f>(family: &'f Family, shape: &Shape) -> Option<&'f SizeVariant> {
    let is_one = |variant: &&SizeVariant| variant.numbers.iter().all(|(name, is)| number(shape, name) == Some(*is));
    family.variants.iter().find(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixture::Mixture;
    use crate::synth::{self, NAMES, SynthShape};

    fn outline(name: &str) -> weights::FileContents {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outline.gguf");
        synth::outline(&SynthShape::find(name).unwrap(), Mixture::BF16, &path).unwrap();
        weights::contents(&path, true).unwrap()
    }

    #[test]
    fn every_size_that_can_be_made_is_a_published_one_with_exactly_the_tensors_of_the_page() {
        for name in NAMES {
            let contents = outline(name);
            let (family, _) = *contents.family.as_ref().unwrap();
            let shape = contents.shape.as_ref().unwrap();
            let size = published_size(family, shape).unwrap();
            assert_eq!((size.names[0].clone(), size.tied), (format!("Qwen3.5-{name}"), shape.tied));
            for rule in &family.constraints {
                assert_eq!(number(shape, &rule.number), Some(rule.is), "{name}: {}", rule.number);
            }
            let mut expected: Vec<(String, Vec<usize>)> =
                expected_tensors(family, shape).into_iter().map(|tensor| (tensor.name, tensor.dims)).collect();
            expected.sort();
            let found: Vec<_> =
                contents.tensors.iter().map(|tensor| (tensor.name.clone(), tensor.dims.clone())).collect();
            assert_eq!(expected, found, "{name}");
        }
    }

    #[test]
    fn every_formula_and_number_of_the_page_is_known() {
        let contents = outline("35B-A3B");
        let shape = contents.shape.as_ref().unwrap();
        for family in weights::family::all() {
            let names = family.numbers.keys().chain(family.constraints.iter().map(|rule| &rule.number));
            for name in names.chain(family.variants.iter().flat_map(|variant| variant.numbers.keys())) {
                assert!(number(shape, name).is_some(), "{name}");
                assert!(family.numbers.contains_key(name), "{name} has no metadata");
            }
            for formula in family.fused.iter().flat_map(|fused| &fused.shape) {
                assert!(dimension(shape, formula).is_some_and(|size| size > 0), "{formula}");
            }
            assert!(family.quantisations.read.iter().all(|name| kernels::format::Format::from_name(name).is_some()));
        }
        assert_eq!(dimension(shape, "2 * hidden + 3"), Some(4099));
        assert_eq!(dimension(shape, "2 * hiden"), None);
        assert_eq!(dimension(shape, "hidden * hidden * hidden * hidden * hidden * hidden"), None);
    }
}
