//! Adapters of low rank (LoRA), in PEFT's form or in a GGUF file: read, and added to a model's matrices. A part of an adapter
//! that the product would leave out is an error.

mod config;
mod experts;
mod gguf;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernels::format::dequantize;
use sha2::{Digest, Sha256};

use crate::contents::FileTensor;
use crate::error::{Error, shown};
use crate::gguf::GgufFile;
use crate::hf;
use crate::matrix::{LowRank, Matrix};
use crate::model::{AttentionWeights, DeltaWeights, Ffn, Mixer, ModelWeights, SwigluWeights};
use crate::open::tensors_of;
use crate::shape::{HeadOrder, Shape};
use config::AdapterConfig;
pub use gguf::{gguf_name, name_in_folder};

/// Additions to matrices by the module's path from `layers.` on, as `module_of` gives it.
#[derive(Debug, Clone)]
pub struct Adapter {
    pub path: PathBuf,
    pub modules: BTreeMap<String, LowRank>,
    /// Order of value heads in the changes.
    pub order: HeadOrder,
    fingerprint: [u8; 32],
}

/// Returns the path of a module without what stands before `layers.`, which differs between kinds of checkpoints.
pub fn module_of(path: &str) -> &str {
    hf::PREFIXES.iter().find_map(|prefix| path.strip_prefix(prefix)).unwrap_or(path)
}

impl Adapter {
    pub fn open(path: &Path) -> Result<Adapter, Error> {
        let wrong = |what: String| Error::file(path, what);
        if path.is_file() {
            return Adapter::of_gguf(path);
        }
        let config = AdapterConfig::read(path)?;
        let tensors = tensors_of(&path.join("adapter_model.safetensors"), true)?;
        let mut hash = Sha256::new();
        let mut halves: BTreeMap<String, [Option<FileTensor>; 2]> = BTreeMap::new();
        for tensor in tensors {
            hash.update(tensor.name.as_bytes());
            hash.update(&tensor.data[..]);
            let (module, half) = half_of(&tensor.name).ok_or_else(|| {
                let expected = "base_model.model.MODULE.lora_A.weight or lora_B.weight; other parts are not applied";
                Error::tensor(path, &tensor.name, "another kind of change", expected)
            })?;
            let module = module.to_owned();
            halves.entry(module).or_default()[half] = Some(tensor);
        }
        if halves.is_empty() {
            return Err(wrong("adapter_model.safetensors holds no tensors".into()));
        }
        let mut modules = BTreeMap::new();
        for (module, halves) in halves {
            let [Some(a), Some(b)] = &halves else {
                return Err(Error::tensor(path, &module, "one of lora_A and lora_B", "both"));
            };
            let changes = match experts::stack_of(&config, &module) {
                Some(stack) => experts::changes(&config, stack, a, b)?,
                None => vec![(module.clone(), low_rank(&config, &module, a, b)?)],
            };
            for (module, low_rank) in changes {
                hash.update(low_rank.scale.to_le_bytes());
                if modules.insert(module_of(&module).to_owned(), low_rank).is_some() {
                    return Err(Error::tensor(path, &module, "the module twice", "each module once"));
                }
            }
        }
        let (path, order) = (path.to_path_buf(), HeadOrder::Grouped);
        Ok(Adapter { path, modules, order, fingerprint: hash.finalize().into() })
    }

    fn of_gguf(path: &Path) -> Result<Adapter, Error> {
        let file = GgufFile::open(path, true)?;
        let modules = gguf::modules(&file)?;
        if modules.is_empty() {
            return Err(Error::file(path, "holds no tensors"));
        }
        let mut hash = Sha256::new();
        for (module, change) in &modules {
            hash.update(module.as_bytes());
            hash.update(change.scale.to_le_bytes());
            change.a.iter().chain(&change.b).for_each(|value| hash.update(value.to_le_bytes()));
        }
        let (path, order) = (path.to_path_buf(), HeadOrder::Tiled);
        Ok(Adapter { path, modules, order, fingerprint: hash.finalize().into() })
    }

    pub fn reorder(&mut self, shape: &Shape) {
        for (module, change) in &mut self.modules {
            reorder(module, change, self.order, shape);
        }
        self.order = shape.value_head_order;
    }

    /// Adds the adapter, `scale` times, to the model's matrices. The model's fingerprint changes, so that nothing that was
    /// computed without the adapter is taken for its own.
    pub fn add_to(&self, model: &mut ModelWeights, scale: f32) -> Result<(), Error> {
        let mut ordered = self.clone();
        ordered.reorder(&model.shape);
        let mut left = ordered.modules;
        if model.prediction.is_some() {
            // A GGUF file counts the block for prediction as one more layer.
            let counted = format!("layers.{}.", model.layers.len());
            let own = |module: String| match module.strip_prefix(&counted) {
                Some(rest) => format!("mtp.layers.0.{rest}"),
                None => module,
            };
            left = left.into_iter().map(|(module, change)| (own(module), change)).collect();
        }
        let mut add = |name: String, matrix: &mut Matrix| -> Result<(), Error> {
            let Some(mut low_rank) = left.remove(&name) else { return Ok(()) };
            let (rows, cols) = (matrix.rows(), matrix.cols());
            let rank = low_rank.rank;
            if low_rank.a.len() != rank * cols || low_rank.b.len() != rows * rank {
                let found = format!("a change of {} × {}", low_rank.b.len() / rank, low_rank.a.len() / rank);
                let expected = format!("{rows} × {cols}, as the model has it: the adapter is for another base");
                return Err(Error::tensor(&self.path, &name, found, expected));
            }
            low_rank.scale *= scale;
            let joined = matrix.low_rank().map(|before| joined(before, &low_rank)).unwrap_or(low_rank);
            // The sizes were compared above.
            if let Some(changed) = matrix.clone().with_low_rank(joined) {
                *matrix = changed;
            }
            Ok(())
        };
        for (index, layer) in model.layers.iter_mut().enumerate() {
            let name = |module: &str| format!("layers.{index}.{module}");
            match &mut layer.mixer {
                Mixer::Attention(AttentionWeights { q, k, v, o, .. }) => {
                    for (module, matrix) in [("q", q), ("k", k), ("v", v), ("o", o)] {
                        add(name(&format!("self_attn.{module}_proj")), matrix)?;
                    }
                }
                Mixer::Delta(DeltaWeights { qkv, z, a, b, out, .. }) => {
                    for (module, matrix) in
                        [("in_proj_qkv", qkv), ("in_proj_z", z), ("in_proj_a", a), ("in_proj_b", b), ("out_proj", out)]
                    {
                        add(name(&format!("linear_attn.{module}")), matrix)?;
                    }
                }
            }
            feed_forward(&mut add, &name("mlp"), &mut layer.ffn)?;
        }
        if let Some(output) = &mut model.output {
            add("lm_head".to_owned(), output)?;
        }
        match &mut model.prediction {
            Some(block) => {
                let AttentionWeights { q, k, v, o, .. } = &mut block.attention;
                for (module, matrix) in [("q", q), ("k", k), ("v", v), ("o", o)] {
                    add(format!("mtp.layers.0.self_attn.{module}_proj"), matrix)?;
                }
                feed_forward(&mut add, "mtp.layers.0.mlp", &mut block.ffn)?;
                add("mtp.fc".to_owned(), &mut block.join)?;
            }
            // The block only drafts: a model that is opened without it says the same.
            None => left.retain(|module, _| !module.starts_with("mtp.")),
        }
        if let Some(name) = left.keys().next() {
            let expected = "modules of this model: the adapter is for another base, or changes what stays as it is";
            return Err(Error::tensor(&self.path, name, "a module that the model does not have", expected));
        }
        let mut hash = Sha256::new();
        hash.update(b"reprise adapter 1");
        hash.update(model.fingerprint);
        hash.update(self.fingerprint);
        hash.update(scale.to_le_bytes());
        model.fingerprint = hash.finalize().into();
        Ok(())
    }
}

fn feed_forward(
    add: &mut impl FnMut(String, &mut Matrix) -> Result<(), Error>,
    path: &str,
    ffn: &mut Ffn,
) -> Result<(), Error> {
    let mut swiglu = |path: &str, SwigluWeights { gate, up, down }: &mut SwigluWeights| {
        let mut parts = [("gate", gate), ("up", up), ("down", down)].into_iter();
        parts.try_for_each(|(module, matrix)| add(format!("{path}.{module}_proj"), matrix))
    };
    match ffn {
        Ffn::Dense(dense) => swiglu(path, dense),
        Ffn::Moe(moe) => {
            for (expert, weights) in moe.experts.iter_mut().enumerate() {
                swiglu(&format!("{path}.experts.{expert}"), weights)?;
            }
            moe.shared.iter_mut().try_for_each(|shared| swiglu(&format!("{path}.shared_expert"), &mut shared.expert))
        }
    }
}

fn half_of(name: &str) -> Option<(&str, usize)> {
    let path = name.strip_prefix("base_model.model.")?;
    let halves = [".lora_A.weight", ".lora_B.weight"];
    halves.iter().enumerate().find_map(|(half, end)| Some((path.strip_suffix(end)?, half)))
}

fn low_rank(config: &AdapterConfig, module: &str, a: &FileTensor, b: &FileTensor) -> Result<LowRank, Error> {
    let (&[rank, _], &[_, inner]) = (&a.dims[..], &b.dims[..]) else {
        let found = format!("shapes {:?} and {:?}", a.dims, b.dims);
        return Err(Error::tensor(&a.path, module, found, "[rank, columns] and [rows, rank]"));
    };
    if rank != inner {
        let found = format!("{rank} rows of lora_A and {inner} columns of lora_B");
        return Err(Error::tensor(&a.path, module, found, "one rank"));
    }
    let (stated, scale) = config.rank_and_scale(module);
    if stated != rank {
        let expected = format!("rank {stated}, as adapter_config.json says");
        return Err(Error::tensor(&a.path, module, format!("rank {rank}"), expected));
    }
    Ok(LowRank { rank, scale, a: finite_values(a)?, b: finite_values(b)? })
}

fn finite_values(tensor: &FileTensor) -> Result<Vec<f32>, Error> {
    let wrong = |found: String, expected: &str| Error::tensor(&tensor.path, &tensor.name, found, expected);
    let format =
        tensor.format.ok_or_else(|| wrong(format!("type {}", shown(&tensor.type_name)), "f32, f16 or bf16"))?;
    let mut values = vec![0.0; tensor.dims.iter().product()];
    dequantize(format, &tensor.data, &mut values);
    match values.iter().find(|value| !value.is_finite()) {
        None => Ok(values),
        Some(value) => Err(wrong(value.to_string(), "finite values: the adapter is damaged")),
    }
}

fn joined(one: &LowRank, other: &LowRank) -> LowRank {
    let scaled = |low_rank: &LowRank| low_rank.b.iter().map(|b| b * low_rank.scale).collect::<Vec<f32>>();
    let (of_one, of_other) = (scaled(one), scaled(other));
    let rows = of_one.chunks(one.rank).zip(of_other.chunks(other.rank));
    let b = rows.flat_map(|(one, other)| [one, other].concat()).collect();
    LowRank { rank: one.rank + other.rank, scale: 1.0, a: [&one.a[..], &other.a].concat(), b }
}

/// Brings the value heads of a change from one order into a model's. A change of other sizes than the model's stays as it is: the
/// model refuses it.
pub fn reorder(module: &str, change: &mut LowRank, from: HeadOrder, shape: &Shape) {
    let (keys, heads, rank) = (shape.key_heads, shape.value_heads, change.rank);
    let ratio = heads / keys;
    if shape.value_head_order == from || ratio == 1 || !module.contains("linear_attn.") {
        return;
    }
    let source = |head: usize| match from {
        HeadOrder::Grouped => head % keys * ratio + head / keys,
        HeadOrder::Tiled => head % ratio * keys + head / ratio,
    };
    let in_order = |values: &[f32], of_head: usize| -> Vec<f32> {
        (0..heads).flat_map(|head| values[source(head) * of_head..][..of_head].to_vec()).collect()
    };
    let mut rows = |before: usize, of_head: usize| {
        if change.b.len() == (before + heads * of_head) * rank {
            let values = in_order(&change.b[before * rank..], of_head * rank);
            change.b[before * rank..].copy_from_slice(&values);
        }
    };
    match module.rsplit('.').next() {
        Some("in_proj_qkv") => rows(2 * keys * shape.key_dim, shape.value_dim),
        Some("in_proj_z") => rows(0, shape.value_dim),
        Some("in_proj_a" | "in_proj_b") => rows(0, 1),
        Some("out_proj") if change.a.len() == rank * heads * shape.value_dim => {
            let of_rank = change.a.chunks(heads * shape.value_dim);
            change.a = of_rank.flat_map(|row| in_order(row, shape.value_dim)).collect();
        }
        _ => {}
    }
}
