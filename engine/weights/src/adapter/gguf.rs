//! An adapter in a GGUF file: pairs of tensors under the names of the base's, value heads in tiled order.

use std::collections::BTreeMap;
use std::path::Path;

use kernels::format::dequantize;

use crate::error::{Error, shown};
use crate::family::{self, Family, Known};
use crate::gguf::{GgufFile, GgufTensor};
use crate::matrix::LowRank;

const A: &str = ".lora_a";
const B: &str = ".lora_b";
const TYPE: &str = "general.type";
const KIND: &str = "adapter.type";
const ALPHA: &str = "adapter.lora.alpha";
const INVOCATION: &str = "adapter.alora.invocation_tokens";

pub(super) fn modules(file: &GgufFile) -> Result<BTreeMap<String, LowRank>, Error> {
    let path = &file.path;
    for (key, expected) in [(TYPE, "adapter"), (KIND, "lora")] {
        let found = file.text(key)?.unwrap_or("no such key");
        if found != expected {
            let expected = format!("{expected}: an adapter of low rank");
            return Err(Error::key(path, key, shown(found), expected));
        }
    }
    if file.keys.iter().any(|(key, _)| key == INVOCATION) {
        return Err(Error::key(path, INVOCATION, "tokens that begin the change", "none: they are not applied"));
    }
    let arch = file.text("general.architecture")?.unwrap_or_default();
    let Known::Family(family, _) = family::of_gguf(arch) else { return Err(Error::other_family(path, arch)) };
    let alpha = file.float(ALPHA)?.unwrap_or(0.0);
    let mut pairs: BTreeMap<&str, [Option<&GgufTensor>; 2]> = BTreeMap::new();
    for tensor in &file.tensors {
        let halves = [A, B].iter().enumerate();
        let half = halves.filter_map(|(half, end)| Some((tensor.name.strip_suffix(end)?, half))).next();
        let (base, half) = half.ok_or_else(|| {
            let expected = "names that end in .lora_a or .lora_b: other parts are not applied";
            Error::tensor(path, &tensor.name, "another kind of change", expected)
        })?;
        pairs.entry(base).or_default()[half] = Some(tensor);
    }
    let mut modules = BTreeMap::new();
    for (base, pair) in pairs {
        let [Some(a), Some(b)] = pair else {
            return Err(Error::tensor(path, base, "one of lora_a and lora_b", "both"));
        };
        for (module, change) in changes(path, family, base, (a, b), alpha)? {
            modules.insert(module, change);
        }
    }
    Ok(modules)
}

/// Returns the name of a module's tensor in GGUF. `module` is its path from `layers.` on.
pub fn gguf_name(module: &str) -> Option<String> {
    let (layer, part) = module.strip_prefix("layers.")?.split_once('.')?;
    let part = format!("{part}.weight");
    Some(format!("blk.{layer}.{}", family::all().iter().find_map(|family| family.gguf_layer_tensor(&part))?))
}

/// Returns the name that a tensor of a GGUF file has in a folder of a text model. The parts of stacked experts that a folder has in one
/// tensor keep names of their own.
pub fn name_in_folder(name: &str) -> Option<String> {
    match name {
        "token_embd.weight" => return Some("model.embed_tokens.weight".to_owned()),
        "output_norm.weight" => return Some("model.norm.weight".to_owned()),
        "output.weight" => return Some("lm_head.weight".to_owned()),
        _ => {}
    }
    let (layer, part) = name.strip_prefix("blk.")?.split_once('.')?;
    let mut families = family::all().iter();
    if let Some(own) = part.strip_prefix("nextn.") {
        let known = families.map(|family| family.prediction_tensor(own)).find(|known| *known != own);
        return Some(format!("mtp.{}", known.unwrap_or(own)));
    }
    let of_stack = STACKS.iter().find(|(stack, parts)| *stack == part && parts.len() == 1);
    let part = match of_stack {
        Some((_, parts)) => format!("mlp.experts.{}", parts[0]),
        None => families.find_map(|family| Some(family.layer_tensor(part)).filter(|own| *own != part))?.to_owned(),
    };
    Some(format!("model.layers.{layer}.{part}"))
}

/// Parts of a stack of experts: their names, and in how many the rows are split.
const STACKS: [(&str, &[&str]); 4] = [
    ("ffn_gate_exps.weight", &["gate_proj"]),
    ("ffn_up_exps.weight", &["up_proj"]),
    ("ffn_down_exps.weight", &["down_proj"]),
    ("ffn_gate_up_exps.weight", &["gate_proj", "up_proj"]),
];

fn changes(
    path: &Path,
    family: &Family,
    base: &str,
    (a, b): (&GgufTensor, &GgufTensor),
    alpha: f64,
) -> Result<Vec<(String, LowRank)>, Error> {
    let wrong = |found: String, expected: &str| Error::tensor(path, base, found, expected);
    let shapes = || format!("shapes {:?} and {:?}, innermost first", a.dims, b.dims);
    let (sizes_of_a, sizes_of_b) = (sizes(a), sizes(b));
    let Some(([cols, rank, stack], [inner, rows, other])) = sizes_of_a.zip(sizes_of_b) else {
        return Err(wrong(shapes(), "[columns, rank] and [rank, rows], for experts with their number"));
    };
    if rank != inner || stack != other || rank == 0 {
        return Err(wrong(shapes(), "one rank, and of experts one number"));
    }
    let scale = if alpha == 0.0 { 1.0 } else { (alpha / rank as f64) as f32 };
    let (a, b) = (values(path, a)?, values(path, b)?);
    let change = |a: &[f32], b: &[f32]| LowRank { rank, scale, a: a.to_vec(), b: b.to_vec() };
    if base == "output.weight" {
        return Ok(vec![("lm_head".to_owned(), change(&a, &b))]);
    }
    let layer = base.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    let Some((layer, part)) = layer else {
        return Err(wrong("a change of it".to_owned(), "matrices of layers and the head"));
    };
    let Some((_, parts)) = STACKS.iter().find(|(name, _)| *name == part) else {
        let module = match part.strip_prefix("nextn.") {
            Some(own) => format!("mtp.{}", family.prediction_tensor(own)),
            None => format!("layers.{layer}.{}", family.layer_tensor(part)),
        };
        return match stack {
            1 => Ok(vec![(module.trim_end_matches(".weight").to_owned(), change(&a, &b))]),
            _ => Err(wrong(shapes(), "one matrix")),
        };
    };
    let rows_of_part = rows / parts.len();
    let mut all = Vec::new();
    for expert in 0..stack {
        let (a, b) = (&a[expert * rank * cols..][..rank * cols], &b[expert * rows * rank..][..rows * rank]);
        for (at, part) in parts.iter().enumerate() {
            let b = &b[at * rows_of_part * rank..][..rows_of_part * rank];
            all.push((format!("layers.{layer}.mlp.experts.{expert}.{part}"), change(a, b)));
        }
    }
    Ok(all)
}

/// Returns the two dimensions of a matrix and the number of matrices. None: it has another form.
fn sizes(tensor: &GgufTensor) -> Option<[usize; 3]> {
    let size = |at: usize| tensor.dims.get(at).map_or(Some(1), |&dim| usize::try_from(dim).ok());
    if tensor.dims.len() < 2 || tensor.dims.iter().skip(3).any(|&dim| dim != 1) {
        return None;
    }
    Some([size(0)?, size(1)?, size(2)?])
}

fn values(path: &Path, tensor: &GgufTensor) -> Result<Vec<f32>, Error> {
    let wrong = |found: String, expected: &str| Error::tensor(path, &tensor.name, found, expected);
    let format =
        tensor.format.ok_or_else(|| wrong(format!("type {}", shown(&tensor.type_name)), "f32, f16 or bf16"))?;
    let mut values = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
    dequantize(format, &tensor.data, &mut values);
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => Err(wrong(value.to_string(), "finite values: the adapter is damaged")),
    }
}
