//! Inputs of matrices: sums of the squares of each column's inputs over a text. Quantisers keep columns exact whose
//! inputs are large.

use crate::memory::MemoryMeter;
use crate::network::{Network, StepLane, WantedLogits, Workspace};
use crate::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use weights::{AttentionWeights, DeltaWeights, Ffn, HeadOrder, Layer, Matrix, Mixer, ModelWeights, SwigluWeights};

#[derive(Clone, Debug, PartialEq)]
pub struct TensorInputs {
    pub name: String,
    pub columns: usize,
    /// [experts, columns]; one expert where a layer has none.
    pub sums: Vec<f32>,
    pub counts: Vec<u64>,
}

#[derive(Default)]
struct Seen {
    sums: Vec<f64>,
    count: u64,
}

/// Runs the text through the model, `context` tokens at a time, each from an empty state. `progress` gets the tokens done.
pub fn inputs_of(
    network: &mut Network,
    cpu: &Cpu,
    tokens: &[u32],
    context: usize,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<TensorInputs>, crate::Error> {
    let seen: Arc<Mutex<HashMap<usize, Seen>>> = Arc::default();
    let of_probe = seen.clone();
    network.probe = Some(Box::new(move |matrix, x| {
        let mut seen = of_probe.lock();
        let Seen { sums, count } = seen.entry(place(matrix)).or_default();
        sums.resize(x.cols(), 0.0);
        for row in x.values().chunks_exact(x.cols()) {
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += f64::from(value * value));
        }
        *count += x.rows() as u64;
    }));
    let kv = KvFormats::new(Format::F32, Format::F32);
    let (mut work, mut done) = (Workspace::default(), 0);
    for tokens in tokens.chunks(context.max(1)) {
        let mut state = SequenceState::new(network.state_shape, kv, &MemoryMeter::default())?;
        let lane = StepLane {
            state: &mut state,
            tokens,
            wanted: WantedLogits::All,
            recurrence_log: None,
            snapshots: &mut [],
            drafts: 0,
        };
        network.forward(cpu, &mut [lane], &mut work);
        done += tokens.len();
        progress(done);
    }
    network.probe = None;
    let seen = std::mem::take(&mut *seen.lock());
    Ok(told(&network.model, &seen))
}

fn place(matrix: &Matrix) -> usize {
    matrix.data().as_ptr() as usize
}

fn told(model: &ModelWeights, seen: &HashMap<usize, Seen>) -> Vec<TensorInputs> {
    let mut all = Vec::new();
    let mut tell = |name: String, matrices: &[&Matrix]| {
        let columns = matrices.first().map_or(0, |matrix| matrix.cols());
        let (mut sums, mut counts) = (Vec::new(), Vec::new());
        for matrix in matrices {
            let found = seen.get(&place(matrix));
            match found {
                Some(found) => sums.extend(found.sums.iter().map(|sum| *sum as f32)),
                None => sums.resize(sums.len() + columns, 0.0),
            }
            counts.push(found.map_or(0, |found| found.count));
        }
        if counts.iter().any(|count| *count > 0) {
            all.push(TensorInputs { name, columns, sums, counts });
        }
    };
    for (index, layer) in model.layers.iter().enumerate() {
        each_tensor(layer, &mut |part, matrices| tell(format!("blk.{index}.{part}.weight"), matrices));
    }
    match &model.output {
        Some(output) => tell("output.weight".to_owned(), &[output]),
        None => tell("token_embd.weight".to_owned(), &[&model.embed]),
    }
    if model.shape.value_head_order == HeadOrder::Grouped {
        all.iter_mut().filter(|inputs| inputs.name.ends_with("ssm_out.weight")).for_each(|inputs| tile(model, inputs));
    }
    all
}

fn each_tensor(layer: &Layer, tell: &mut dyn FnMut(&str, &[&Matrix])) {
    match &layer.mixer {
        Mixer::Attention(AttentionWeights { q, k, v, o, .. }) => {
            for (name, matrix) in [("attn_q", q), ("attn_k", k), ("attn_v", v), ("attn_output", o)] {
                tell(name, &[matrix]);
            }
        }
        Mixer::Delta(DeltaWeights { qkv, z, a, b, out, .. }) => {
            let named = [("attn_qkv", qkv), ("attn_gate", z), ("ssm_alpha", a), ("ssm_beta", b), ("ssm_out", out)];
            for (name, matrix) in named {
                tell(name, &[matrix]);
            }
        }
    }
    let parts = |swiglu: &SwigluWeights, suffix: &str, tell: &mut dyn FnMut(&str, &[&Matrix])| {
        for (part, matrix) in ["gate", "up", "down"].into_iter().zip(swiglu.matrices()) {
            tell(&format!("ffn_{part}{suffix}"), &[matrix]);
        }
    };
    match &layer.ffn {
        Ffn::Dense(swiglu) => parts(swiglu, "", tell),
        Ffn::Moe(moe) => {
            tell("ffn_gate_inp", &[&moe.router]);
            for (at, part) in ["gate", "up", "down"].into_iter().enumerate() {
                let experts: Vec<&Matrix> = moe.experts.iter().map(|expert| expert.matrices()[at]).collect();
                tell(&format!("ffn_{part}_exps"), &experts);
            }
            if let Some(shared) = &moe.shared {
                parts(&shared.expert, "_shexp", tell);
            }
        }
    }
}

fn tile(model: &ModelWeights, inputs: &mut TensorInputs) {
    let shape = &model.shape;
    let (heads, keys, width) = (shape.value_heads, shape.key_heads, shape.value_dim);
    let grouped = std::mem::take(&mut inputs.sums);
    let column = |head: usize| (head % keys) * (heads / keys) + head / keys;
    inputs.sums = (0..heads).flat_map(|head| &grouped[column(head) * width..][..width]).copied().collect();
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::product::Precision;
    use testing::golden::reference_models;

    fn inputs(model: &str) -> Vec<TensorInputs> {
        let model = weights::open(&reference_models().join(model), true).unwrap();
        let mut network = Network::new(model, Precision::F32);
        let tokens: Vec<u32> = (0..96).map(|i| i * 7 % 90).collect();
        let mut done = Vec::new();
        let inputs = inputs_of(&mut network, &Cpu::new(2), &tokens, 64, &mut |tokens| done.push(tokens)).unwrap();
        assert!(network.probe.is_none() && done == [64, 96]);
        inputs
    }

    #[test]
    fn every_matrix_of_a_model_was_seen_once_for_each_token() {
        for model in ["dense-wide", "dense-tied", "dense-gva2"] {
            for inputs in inputs(model) {
                assert_eq!((inputs.counts, inputs.sums.len()), (vec![96], inputs.columns), "{model} {}", inputs.name);
                assert!(inputs.sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0));
            }
        }
        let moe = inputs("moe");
        let experts = moe.iter().find(|inputs| inputs.name == "blk.0.ffn_down_exps.weight").unwrap();
        let router = moe.iter().find(|inputs| inputs.name == "blk.0.ffn_gate_inp.weight").unwrap();
        assert_eq!((router.counts[0], experts.sums.len()), (96, experts.counts.len() * experts.columns));
        assert_eq!(experts.counts.iter().sum::<u64>() % 96, 0, "each token visits as many experts");
    }

    #[test]
    fn a_folder_and_its_gguf_file_tell_the_same() {
        let (folder, file) = (inputs("dense-gva2"), inputs("gguf/dense-gva2.bf16.gguf"));
        assert_eq!(folder.len(), file.len());
        for (one, other) in folder.iter().zip(&file) {
            assert_eq!(one.name, other.name);
            let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-2 * (a.abs() + b.abs()) + 1e-3;
            assert!(one.sums.iter().zip(&other.sums).all(near), "{}", one.name);
        }
    }
}
