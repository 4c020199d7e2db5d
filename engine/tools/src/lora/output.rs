//! An extracted adapter's file: PEFT's folder or GGUF.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use kernels::format::Format;
use serde_json::{Value, json};
use weights::{Adapter, HeadOrder, LowRank, Shape};

use super::{BASE_KEY, BASE_MARK, base_mark};
use crate::Error;
use crate::gguf_writer::{GgufValue, GgufWriter, TensorInfo};
use crate::new_folder::NewFolder;
use crate::safetensors_writer::{NewTensor, write_safetensors};
use crate::streaming;
use crate::target::{DOWN, TARGETS, TWO_PARTS, Target};
use crate::tensor_source::TensorSource;

/// Factors of one tensor in the spilled file: A [matrices, rank, cols], then B [matrices, rows, rank].
pub struct Factors {
    pub target: Target,
    pub rank: usize,
}

pub struct AdapterOut<'a> {
    pub base: &'a TensorSource,
    pub factors: &'a [Factors],
    pub spill: &'a Path,
    /// Shape of the base, where value heads may have to change their order.
    pub shape: Option<Shape>,
    pub order: HeadOrder, // of value heads in the factors
}

struct AdapterTensor {
    name: String,
    dims: Vec<usize>, // the outermost first
    values: FactorValues,
}

/// Values of a target's factors that make one tensor.
#[derive(Debug, Clone, Copy)]
enum FactorValues {
    A(usize),
    B(usize),
    AllA,
    AllB,
    HalfOfB(usize), // of the rows: the first half, or the second
    Interleaved,    // as PEFT has it for a stack: [rows, rank, matrices]
}

/// Writes a GGUF file, value heads in tiled order, and returns its bytes.
pub fn write_gguf(adapter: AdapterOut, out: &Path) -> Result<u64, Error> {
    let text = |text: &str| GgufValue::Text(text.to_owned());
    let arch = adapter.shape.as_ref().map_or("", |shape| &shape.arch);
    let keys = [
        ("general.architecture", text(arch)),
        ("general.type", text("adapter")),
        ("adapter.type", text("lora")),
        // No alpha: the product of the factors is the difference itself, whatever a module's rank.
        ("adapter.lora.alpha", GgufValue::F32(0.0)),
        (BASE_KEY, GgufValue::Text(base_mark(adapter.base))),
    ]
    .map(|(key, value)| (key.to_owned(), value));
    let mut planned = Vec::new();
    for factors in adapter.factors {
        let tensors = gguf_tensors(factors);
        let what = || Error::file(out, format!("cannot name '{}' as GGUF files do", factors.target.path));
        planned.push(tensors.ok_or_else(what)?);
    }
    let info = |AdapterTensor { name, dims, .. }: &AdapterTensor| TensorInfo {
        name: name.clone(),
        dims: dims.iter().rev().map(|&dim| dim as u64).collect(),
        format: Format::F32,
    };
    let infos: Vec<TensorInfo> = planned.iter().flatten().map(info).collect();
    let mut spilled = adapter.open(HeadOrder::Tiled)?;
    let write = |file| {
        let io = |source| Error::io(out, source);
        let mut writer = GgufWriter::new(file, &keys, &infos).map_err(io)?;
        for (factors, tensors) in adapter.factors.iter().zip(&planned) {
            let matrices = spilled.next(factors)?;
            for tensor in tensors {
                writer.write(&bytes_of(&tensor.values.of(&matrices))).map_err(io)?;
            }
        }
        writer.finish().map_err(io)
    };
    streaming::atomically(out, write, |written| Ok(Adapter::open(written).map(drop)?))
}

/// Writes PEFT's two files into a folder, value heads as a checkpoint has them, and returns the bytes of the larger one. Experts in
/// one tensor become `target_parameters`; of gate and up in two tensors, as GGUF files have them, each expert is a module.
pub fn write_folder(adapter: AdapterOut, new: &NewFolder, rank: usize) -> Result<u64, Error> {
    let parameters: BTreeSet<&str> = adapter.factors.iter().filter_map(|factors| factors.target.parameter()).collect();
    let planned: Vec<Vec<AdapterTensor>> =
        adapter.factors.iter().map(|factors| folder_tensors(factors, parameters.contains(DOWN))).collect();
    let tensor = |AdapterTensor { name, dims, .. }: &AdapterTensor| NewTensor {
        name: name.clone(),
        format: Format::F32,
        dims: dims.clone(),
    };
    let tensors: Vec<NewTensor> = planned.iter().flatten().map(tensor).collect();
    let mut spilled = adapter.open(HeadOrder::Grouped)?;
    let mut left = adapter.factors.iter().zip(&planned);
    let (mut matrices, mut waiting) = (Vec::new(), [].iter());
    let bytes = write_safetensors(new.path(), "adapter_model", &tensors, &mut |_, sink| {
        if waiting.len() == 0
            && let Some((factors, tensors)) = left.next()
        {
            (matrices, waiting) = (spilled.next(factors)?, tensors.iter());
        }
        let values = waiting.next().map(|tensor| tensor.values.of(&matrices));
        sink.bytes(&bytes_of(&values.unwrap_or_default()))
    })?;
    drop(spilled);
    // Nothing but the adapter may be in the folder when it gets its name.
    std::fs::remove_file(adapter.spill).map_err(|source| Error::io(adapter.spill, source))?;
    let config = config(&adapter, rank, &parameters);
    new.write("adapter_config.json", &format!("{config:#}\n"))?;
    new.write(BASE_MARK, &format!("{:#}\n", json!({"base": base_mark(adapter.base)})))?;
    Ok(bytes)
}

fn config(adapter: &AdapterOut, rank: usize, parameters: &BTreeSet<&str>) -> Value {
    let others = adapter.factors.iter().filter(|factors| factors.rank != rank);
    let others: BTreeMap<String, usize> = others
        .flat_map(|Factors { target, rank }| {
            let paths = if target.parameter().is_some() { vec![target.path.clone()] } else { target.module_paths() };
            paths.into_iter().map(|path| (path, *rank))
        })
        .collect();
    let is_used = |name: &&&str| {
        let mut modules = adapter.factors.iter().filter(|factors| factors.target.parameter().is_none());
        modules.any(|factors| factors.target.last() == **name)
    };
    let parameters: Vec<String> = parameters.iter().map(|parameter| format!("experts.{parameter}")).collect();
    json!({
        "peft_type": "LORA",
        "base_model_name_or_path": adapter.base.path,
        "task_type": "CAUSAL_LM",
        "r": rank,
        // B A is the difference itself, in every module.
        "lora_alpha": rank,
        "rank_pattern": others,
        "alpha_pattern": others,
        "target_modules": TARGETS.iter().filter(is_used).collect::<Vec<_>>(),
        "target_parameters": parameters,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": false,
        "use_rslora": false,
        "use_dora": false,
        "inference_mode": true,
        "modules_to_save": null,
    })
}

/// Returns the tensors of a target in a GGUF file. None: such files have no name for it.
fn gguf_tensors(Factors { target, rank }: &Factors) -> Option<Vec<AdapterTensor>> {
    let Target { count, rows, cols, .. } = *target;
    let path = weights::module_of(&target.path);
    let dims = |sizes: [usize; 2]| if target.is_stack() { vec![count, sizes[0], sizes[1]] } else { sizes.to_vec() };
    let pair = |name: String, rows: usize, of_b: FactorValues| {
        let tensor = |half, dims, values| AdapterTensor { name: format!("{name}.lora_{half}"), dims, values };
        [tensor("a", dims([*rank, cols]), FactorValues::AllA), tensor("b", dims([rows, *rank]), of_b)]
    };
    if !target.is_stack() {
        return Some(pair(weights::gguf_name(path)?, rows, FactorValues::AllB).into());
    }
    let layer = path.strip_prefix("layers.")?.split('.').next()?;
    let name = |part: &str| format!("blk.{layer}.ffn_{part}_exps.weight");
    Some(match target.last() {
        TWO_PARTS => {
            let half = |(at, part)| pair(name(part), rows / 2, FactorValues::HalfOfB(at));
            ["gate", "up"].into_iter().enumerate().flat_map(half).collect()
        }
        last => pair(name(last.strip_suffix("_proj")?), rows, FactorValues::AllB).into(),
    })
}

/// Returns the tensors of a target in PEFT's form. `has_down`: stacks of `down_proj` are targeted too, inside of which PEFT puts those
/// of `gate_up_proj`.
fn folder_tensors(Factors { target, rank }: &Factors, has_down: bool) -> Vec<AdapterTensor> {
    let Target { count, rows, cols, .. } = *target;
    let pair = |path: &str, [of_a, of_b]: [FactorValues; 2], count: usize| {
        let name = |half| format!("base_model.model.{path}.lora_{half}.weight");
        [
            AdapterTensor { name: name("A"), dims: vec![count * rank, cols], values: of_a },
            AdapterTensor { name: name("B"), dims: vec![rows, rank * count], values: of_b },
        ]
    };
    match target.parameter() {
        Some(parameter) => {
            let experts = target.path.trim_end_matches(parameter).trim_end_matches('.');
            let wrapped = if parameter == DOWN || !has_down { "" } else { ".base_layer" };
            pair(&format!("{experts}{wrapped}"), [FactorValues::AllA, FactorValues::Interleaved], count).into()
        }
        None => {
            let paths = target.module_paths().into_iter().enumerate();
            paths.flat_map(|(at, path)| pair(&path, [FactorValues::A(at), FactorValues::B(at)], 1)).collect()
        }
    }
}

impl FactorValues {
    fn of(self, matrices: &[LowRank]) -> Vec<f32> {
        let rows = |LowRank { rank, b, .. }: &LowRank| b.len() / rank;
        match self {
            FactorValues::A(at) => matrices[at].a.clone(),
            FactorValues::B(at) => matrices[at].b.clone(),
            FactorValues::AllA => matrices.iter().flat_map(|matrix| matrix.a.iter().copied()).collect(),
            FactorValues::AllB => matrices.iter().flat_map(|matrix| matrix.b.iter().copied()).collect(),
            FactorValues::HalfOfB(at) => {
                let half = |matrix: &LowRank| matrix.b.chunks(matrix.b.len() / 2).nth(at).unwrap_or_default().to_vec();
                matrices.iter().flat_map(half).collect()
            }
            FactorValues::Interleaved => {
                let Some(first) = matrices.first() else { return Vec::new() };
                let places = (0..rows(first)).flat_map(|row| (0..first.rank).map(move |k| row * first.rank + k));
                places.flat_map(|place| matrices.iter().map(move |matrix| matrix.b[place])).collect()
            }
        }
    }
}

/// Reader of the spilled factors, in the order of the targets.
struct Spilled<'a> {
    adapter: &'a AdapterOut<'a>,
    file: BufReader<File>,
    order: HeadOrder,
}

impl AdapterOut<'_> {
    /// Opens the spilled factors, to give value heads in this order.
    fn open(&self, order: HeadOrder) -> Result<Spilled<'_>, Error> {
        let file = File::open(self.spill).map_err(|source| Error::io(self.spill, source))?;
        Ok(Spilled { adapter: self, file: BufReader::new(file), order })
    }
}

impl Spilled<'_> {
    fn next(&mut self, Factors { target, rank }: &Factors) -> Result<Vec<LowRank>, Error> {
        let (rank, Target { count, rows, cols, .. }) = (*rank, target);
        let a = self.values(count * rank * cols)?;
        let b = self.values(count * rows * rank)?;
        let matrices = a.chunks(rank * cols).zip(b.chunks(rows * rank));
        let mut matrices: Vec<LowRank> =
            matrices.map(|(a, b)| LowRank { rank, scale: 1.0, a: a.to_vec(), b: b.to_vec() }).collect();
        if let Some(shape) = &self.adapter.shape {
            let shape = Shape { value_head_order: self.order, ..shape.clone() };
            for matrix in &mut matrices {
                weights::reorder(weights::module_of(&target.path), matrix, self.adapter.order, &shape);
            }
        }
        Ok(matrices)
    }

    fn values(&mut self, count: usize) -> Result<Vec<f32>, Error> {
        let mut bytes = vec![0; size_of::<f32>() * count];
        self.file.read_exact(&mut bytes).map_err(|source| Error::io(self.adapter.spill, source))?;
        Ok(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
