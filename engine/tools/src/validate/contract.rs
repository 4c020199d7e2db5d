//! Contract of the family: numbers, tensors with their shapes and types, the layout of the layers.

use std::collections::BTreeSet;

use weights::family::{Family, Severity};
use weights::{FileContents, FileForm, FileTensor, LayerKind, Shape};

use super::findings::Findings;
use crate::family::{ExpectedTensor, dimension, expected_tensors, number, published_size};

const CHECK: &str = "contract";

pub(super) fn check(contents: &FileContents, findings: &mut Findings) {
    let (family, architecture) = match &contents.family {
        Ok(known) => *known,
        Err(error) => return findings.problem(CHECK, None, format!("{error}; take a model of a known family")),
    };
    let shape = match &contents.shape {
        Ok(shape) => shape,
        Err(error) => {
            let says = format!("{error}; the metadata are not a model's of this family: convert it again");
            return findings.problem(CHECK, None, says);
        }
    };
    numbers(contents, family, &architecture.name, shape, findings);
    tensors(contents, family, shape, findings);
}

fn numbers(contents: &FileContents, family: &Family, arch: &str, shape: &Shape, findings: &mut Findings) {
    let key = |name: &str| match (family.numbers.get(name), contents.form) {
        (None, _) => name.to_owned(),
        (Some(keys), FileForm::Folder) => keys.folder.clone(),
        (Some(keys), FileForm::Gguf) if keys.gguf.contains(' ') => keys.gguf.clone(),
        (Some(keys), FileForm::Gguf) => format!("{arch}.{}", keys.gguf),
    };
    let mut unusual = Vec::new();
    for rule in &family.constraints {
        let Some(found) = number(shape, &rule.number).filter(|found| (found - rule.is).abs() > 1e-6 * rule.is) else {
            continue;
        };
        let (name, key) = (&rule.number, key(&rule.number));
        match rule.breaks {
            Severity::Problem => {
                let says = format!("{name} is {found} ({key}) and must be {}: {}; convert again", rule.is, rule.why);
                findings.problem(CHECK, None, says);
            }
            Severity::Warning => unusual.push(format!("{name} is {found} and not {}", rule.is)),
        }
    }
    let regular = |at: usize| (at + 1).is_multiple_of(family.attention_every);
    let kinds = shape.layers.iter().enumerate();
    if let Some((layer, kind)) = kinds.clone().find(|(at, kind)| (**kind == LayerKind::Attention) != regular(*at)) {
        let kind = if *kind == LayerKind::Attention { "attention" } else { "linear" };
        unusual.push(format!("layer {layer} is {kind}, where every {}th layer attends", family.attention_every));
    }
    match published_size(family, shape) {
        None => unusual.push("its layers and widths are those of no release".to_owned()),
        Some(size) if size.tied != shape.tied => {
            let (has, must) = if size.tied { ("a", "none") } else { ("no", "one") };
            let tensor = contents.names_of("output.weight").swap_remove(0);
            let says = format!(
                "'{tensor}': the file has {has} head of its own, and {} has {must}; take a whole file of it",
                size.names[0]
            );
            findings.problem(CHECK, Some(&tensor), says);
        }
        Some(_) => {}
    }
    if !unusual.is_empty() {
        let says = format!("not a published size: {}; right for a model of your own", unusual.join(", "));
        findings.warning(CHECK, None, says);
    }
}

fn tensors(contents: &FileContents, family: &Family, shape: &Shape, findings: &mut Findings) {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let trunk = format!("blk.{}.", shape.layers.len());
    let expected = expected_tensors(family, shape);
    let has_prediction = expected.iter().any(|tensor| tensor.prefix == trunk && find(contents, &tensor.name).is_some());
    if shape.mtp_blocks > 0 && !has_prediction {
        let says = "the file states a block for multi-token prediction and holds none: the engine drafts without it";
        findings.warning(CHECK, None, says);
    }
    for tensor in expected.iter().filter(|tensor| has_prediction || tensor.prefix != trunk) {
        for found in one(contents, family, shape, tensor, findings) {
            used.insert(&found.name);
            if found.format.is_none() {
                let says = format!(
                    "'{}' has the type {}, which the engine cannot read; quantise to one of {}",
                    found.name,
                    found.type_name,
                    family.quantisations.read.join(", ")
                );
                findings.problem(CHECK, Some(&found.name), says);
            }
        }
    }
    for tensor in contents.tensors.iter().filter(|tensor| !used.contains(&tensor.name[..])) {
        let name = &tensor.name;
        if family.forbidden.has(name) {
            let says =
                format!("'{name}' is a bias, a scale or an adapter, of which the family has none; convert again");
            findings.problem(CHECK, Some(name), says);
        } else if !family.skipped.has(name) {
            let says = format!("'{name}' is no tensor of the family: the engine leaves it out");
            findings.warning(CHECK, Some(name), says);
        }
    }
}

/// Finds the tensors that an expected one is, and checks their shapes: one, one that holds several, or one for each expert.
fn one<'c>(
    contents: &'c FileContents,
    family: &Family,
    shape: &Shape,
    tensor: &ExpectedTensor,
    findings: &mut Findings,
) -> Vec<&'c FileTensor> {
    if let Some(found) = find(contents, &tensor.name) {
        check_shape(found, &tensor.dims, &tensor.formula, findings);
        return vec![found];
    }
    let own = tensor.name.strip_prefix(&tensor.prefix).unwrap_or(&tensor.name);
    let holds = family.fused.iter().filter(|fused| fused.part == tensor.part && fused.of.iter().any(|of| of == own));
    for fused in holds {
        if let Some(found) = find(contents, &format!("{}{}", tensor.prefix, fused.name)) {
            let dims: Vec<usize> = fused.shape.iter().filter_map(|formula| dimension(shape, formula)).collect();
            if fused.of.first().is_some_and(|first| first == own) {
                check_shape(found, &dims, &format!("[{}]", fused.shape.join(", ")), findings);
            }
            return vec![found];
        }
    }
    let experts = shape.moe.as_ref().map_or(0, |moe| moe.experts);
    // The first one tells whether the layer has single experts: the number is only what the metadata state.
    let first = contents.expert_names(&tensor.name, 1).and_then(|first| contents.tensor(first.first()?));
    let names = first.and_then(|_| contents.expert_names(&tensor.name, experts)).unwrap_or_default();
    let found: Vec<&FileTensor> = names.iter().filter_map(|name| contents.tensor(name)).collect();
    if found.is_empty() && family.optional.has(&tensor.name) {
        return found;
    }
    if found.is_empty() {
        let name = contents.names_of(&tensor.name).swap_remove(0);
        let says = format!(
            "'{name}' is missing: the family has it with the shape {:?}, {}; take a whole file, or convert again",
            tensor.dims, tensor.formula
        );
        findings.problem(CHECK, Some(&name), says);
        return found;
    }
    for name in names.iter().filter(|name| contents.tensor(name).is_none()) {
        findings.problem(CHECK, Some(name), format!("'{name}' is missing: other experts of the layer are there"));
    }
    found.iter().for_each(|found| check_shape(found, &tensor.dims[1..], &tensor.formula, findings));
    found
}

fn find<'c>(contents: &'c FileContents, name: &str) -> Option<&'c FileTensor> {
    contents.names_of(name).iter().find_map(|name| contents.tensor(name))
}

fn check_shape(found: &FileTensor, dims: &[usize], formula: &str, findings: &mut Findings) {
    let squeezed = |dims: &[usize]| dims.iter().copied().filter(|&dim| dim != 1).collect::<Vec<_>>();
    if squeezed(&found.dims) != squeezed(dims) {
        let says = format!(
            "'{}' has the shape {:?} and must have {dims:?}, {formula}: metadata and tensors are of two models; convert again",
            found.name, found.dims
        );
        findings.problem(CHECK, Some(&found.name), says);
    }
}
