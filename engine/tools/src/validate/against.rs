//! Two files of one model: the error of each tensor, and how far their predictions are apart on a text.

use std::path::PathBuf;

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use serde::Serialize;
use weights::{Ffn, HeadOrder, Matrix, Mixer, ModelWeights, Shape, SwigluWeights};

use super::findings::Findings;
use super::{Against, StageProgress, ValidationStage};
use crate::Error;
use crate::divergence::{divergence, surprise, top};
use crate::tensors::on_all;

#[derive(Debug, Clone, Serialize)]
pub struct Agreement {
    pub other: PathBuf,
    pub text: TextAgreement,
    pub tensors: Vec<TensorDistance>,
}

/// Distance of a tensor from the other file's, with names as in GGUF.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorDistance {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: &'static str,
    pub other_type: &'static str,
    pub error: f64, // ‖a - b‖ / ‖b‖, b being the other file's
    pub largest_difference: f32,
}

/// Predictions of the next token behind each token of a text, computed in f32.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextAgreement {
    pub tokens: usize,
    /// Kullback-Leibler divergence from the other file's distribution, in nats.
    pub kl_mean: f64,
    pub kl_p95: f64,
    pub kl_max: f64,
    /// Share of positions where both have the same likeliest token.
    pub same_top_share: f64,
    pub perplexity: f64,
    pub other_perplexity: f64,
}

/// Error above which a tensor is hardly a rounded one of the same model.
const MOST_ERROR: f64 = 0.5;

pub(super) fn compare(
    model: ModelWeights,
    against: &Against,
    mmap: bool,
    cpu: &Cpu,
    progress: StageProgress,
    findings: &mut Findings,
) -> Result<Agreement, Error> {
    let other = weights::open(against.path, mmap)?;
    let wrong = |what: String| Error::file(against.path, what);
    if let Some(what) = difference(&model.shape, &other.shape) {
        return Err(wrong(format!("is of another model: {what}")));
    }
    let tensors = distances(&model, &other, cpu).map_err(wrong)?;
    for tensor in tensors.iter().filter(|tensor| tensor.error.is_nan() || tensor.error > MOST_ERROR) {
        let says = format!(
            "'{}' is {:.0} % away from the other file's: more than rounding does; are both of one release?",
            tensor.name,
            100.0 * tensor.error
        );
        findings.warning("against", Some(&tensor.name), says);
    }
    let text = predictions(model, other, against, cpu, progress)?;
    if text.kl_mean.is_nan() {
        let says =
            "the predictions are not numbers, so the two files cannot be told apart by them: see the values above";
        findings.problem("against", None, says);
    }
    Ok(Agreement { other: against.path.to_path_buf(), text, tensors })
}

fn difference(ours: &Shape, theirs: &Shape) -> Option<String> {
    let pairs = [
        ("layers", ours.layers.len(), theirs.layers.len()),
        ("hidden", ours.hidden, theirs.hidden),
        ("ffn", ours.ffn, theirs.ffn),
        ("vocab", ours.vocab, theirs.vocab),
        ("q_heads", ours.q_heads, theirs.q_heads),
        ("kv_heads", ours.kv_heads, theirs.kv_heads),
        ("head_dim", ours.head_dim, theirs.head_dim),
        ("key_heads", ours.key_heads, theirs.key_heads),
        ("value_heads", ours.value_heads, theirs.value_heads),
    ];
    if let Some((name, ours, theirs)) = pairs.into_iter().find(|(_, ours, theirs)| ours != theirs) {
        return Some(format!("{name} is {theirs} and not {ours}"));
    }
    let same = |what: &str, is_same: bool| (!is_same).then(|| format!("the {what} differ"));
    same("kinds of layers", ours.layers == theirs.layers).or_else(|| same("experts", ours.moe == theirs.moe))
}

/// Tensor of a model: one matrix, one for each expert, or a vector.
struct NamedTensor<'m> {
    name: String,
    values: TensorValues<'m>,
    heads: ValueHeads,
}

enum TensorValues<'m> {
    Matrices(Vec<&'m Matrix>),
    Vector(&'m [f32]),
}

/// Place of value heads in a tensor, whose order is not the same in every kind of file.
#[derive(Clone, Copy, PartialEq)]
enum ValueHeads {
    Nowhere,
    /// Rows behind the first `from`, `each` for a head. Of a vector its values.
    Rows {
        from: usize,
        each: usize,
    },
    /// Columns, with this width for each head.
    Columns {
        each: usize,
    },
}

fn distances(ours: &ModelWeights, theirs: &ModelWeights, cpu: &Cpu) -> Result<Vec<TensorDistance>, String> {
    let (mine, other) = (named(ours), named(theirs));
    let names = |tensors: &[NamedTensor]| tensors.iter().map(|tensor| tensor.name.clone()).collect::<Vec<_>>();
    // A block for multi-token prediction and a head of its own may be in one of the two alone.
    let other_names = names(&other);
    let pairs: Vec<(NamedTensor, &NamedTensor)> = mine
        .into_iter()
        .filter_map(|tensor| {
            let at = other_names.iter().position(|name| *name == tensor.name)?;
            Some((tensor, &other[at]))
        })
        .collect();
    let order = HeadMap::new(&ours.shape, &theirs.shape);
    on_all(cpu, &pairs, |(ours, theirs)| distance(ours, theirs, &order)).into_iter().collect()
}

/// Map from a value head of one file to the same one of the other.
struct HeadMap {
    heads: Vec<usize>,
    is_same: bool,
}

impl HeadMap {
    fn new(ours: &Shape, theirs: &Shape) -> HeadMap {
        let (keys, values) = (ours.key_heads, ours.value_heads);
        let ratio = values / keys.max(1);
        let map = |head: usize| match (ours.value_head_order, theirs.value_head_order) {
            (HeadOrder::Tiled, HeadOrder::Grouped) => head % keys * ratio + head / keys,
            (HeadOrder::Grouped, HeadOrder::Tiled) => head % ratio * keys + head / ratio,
            _ => head,
        };
        let heads: Vec<usize> = (0..values).map(map).collect();
        HeadMap { is_same: heads.iter().enumerate().all(|(at, to)| at == *to), heads }
    }

    fn place(&self, at: usize, from: usize, each: usize) -> usize {
        match at.checked_sub(from) {
            Some(behind) => from + self.heads[behind / each] * each + behind % each,
            None => at,
        }
    }
}

#[derive(Default)]
struct Difference {
    squares: f64,
    of_other: f64,
    largest: f32,
}

impl Difference {
    fn add(&mut self, ours: f32, theirs: f32) {
        let difference = f64::from(ours) - f64::from(theirs);
        self.squares += difference * difference;
        self.of_other += f64::from(theirs) * f64::from(theirs);
        self.largest = self.largest.max(difference.abs() as f32);
    }
}

fn distance(ours: &NamedTensor, theirs: &NamedTensor, order: &HeadMap) -> Result<TensorDistance, String> {
    let mut sum = Difference::default();
    let row_of = |row: usize| match ours.heads {
        ValueHeads::Rows { from, each } if !order.is_same => order.place(row, from, each),
        _ => row,
    };
    let type_of = |values: &TensorValues| match values {
        TensorValues::Vector(_) => "f32",
        TensorValues::Matrices(all) => all.first().and_then(|matrix| matrix.format()).map_or("tiles", Format::name),
    };
    match (&ours.values, &theirs.values) {
        (TensorValues::Vector(ours), TensorValues::Vector(theirs)) if ours.len() == theirs.len() => {
            ours.iter().enumerate().for_each(|(at, value)| sum.add(*value, theirs[row_of(at)]));
        }
        (TensorValues::Matrices(mine), TensorValues::Matrices(other)) if mine.len() == other.len() => {
            for (mine, other) in mine.iter().zip(other) {
                if (mine.rows(), mine.cols()) != (other.rows(), other.cols())
                    || mine.blocks().is_none()
                    || other.blocks().is_none()
                {
                    return Err(format!("has another shape of '{}'", ours.name));
                }
                let (mut a, mut b) = (vec![0.0; mine.cols()], vec![0.0; mine.cols()]);
                for row in 0..mine.rows() {
                    mine.row(row, &mut a);
                    other.row(row_of(row), &mut b);
                    match ours.heads {
                        ValueHeads::Columns { each } if !order.is_same => {
                            a.iter().enumerate().for_each(|(at, value)| sum.add(*value, b[order.place(at, 0, each)]));
                        }
                        _ => a.iter().zip(&b).for_each(|(a, b)| sum.add(*a, *b)),
                    }
                }
            }
        }
        _ => return Err(format!("has another shape of '{}'", ours.name)),
    }
    let error = match (sum.squares, sum.of_other) {
        (0.0, _) => 0.0,
        (squares, of_other) => (squares / of_other).sqrt(),
    };
    Ok(TensorDistance {
        name: ours.name.clone(),
        type_name: type_of(&ours.values),
        other_type: type_of(&theirs.values),
        error,
        largest_difference: sum.largest,
    })
}

fn named(model: &ModelWeights) -> Vec<NamedTensor<'_>> {
    let mut tensors = TensorList { tensors: Vec::new(), shape: &model.shape };
    tensors.matrix("token_embd", &model.embed, ValueHeads::Nowhere);
    if let Some(output) = &model.output {
        tensors.matrix("output", output, ValueHeads::Nowhere);
    }
    tensors.vector("output_norm", &model.output_norm, ValueHeads::Nowhere);
    for (at, layer) in model.layers.iter().enumerate() {
        tensors.vector(&format!("blk.{at}.attn_norm"), &layer.attn_norm, ValueHeads::Nowhere);
        tensors.mixer(at, &layer.mixer);
        tensors.vector(&format!("blk.{at}.post_attention_norm"), &layer.ffn_norm, ValueHeads::Nowhere);
        tensors.ffn(at, &layer.ffn);
    }
    tensors.tensors
}

struct TensorList<'m> {
    tensors: Vec<NamedTensor<'m>>,
    shape: &'m Shape,
}

impl<'m> TensorList<'m> {
    fn matrix(&mut self, name: &str, matrix: &'m Matrix, heads: ValueHeads) {
        let values = TensorValues::Matrices(vec![matrix]);
        self.tensors.push(NamedTensor { name: name.to_owned(), values, heads });
    }

    fn vector(&mut self, name: &str, values: &'m [f32], heads: ValueHeads) {
        self.tensors.push(NamedTensor { name: name.to_owned(), values: TensorValues::Vector(values), heads });
    }

    fn mixer(&mut self, layer: usize, mixer: &'m Mixer) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        match mixer {
            Mixer::Attention(attention) => {
                self.matrix(&name("attn_q"), &attention.q, ValueHeads::Nowhere);
                self.matrix(&name("attn_k"), &attention.k, ValueHeads::Nowhere);
                self.matrix(&name("attn_v"), &attention.v, ValueHeads::Nowhere);
                self.matrix(&name("attn_output"), &attention.o, ValueHeads::Nowhere);
                self.vector(&name("attn_q_norm"), &attention.q_norm, ValueHeads::Nowhere);
                self.vector(&name("attn_k_norm"), &attention.k_norm, ValueHeads::Nowhere);
            }
            Mixer::Delta(delta) => {
                let Shape { key_heads, key_dim, value_dim, conv_kernel, .. } = *self.shape;
                let keys = 2 * key_heads * key_dim;
                let rows = |from, each| ValueHeads::Rows { from, each };
                self.matrix(&name("attn_qkv"), &delta.qkv, rows(keys, value_dim));
                self.matrix(&name("attn_gate"), &delta.z, rows(0, value_dim));
                self.matrix(&name("ssm_alpha"), &delta.a, rows(0, 1));
                self.matrix(&name("ssm_beta"), &delta.b, rows(0, 1));
                self.matrix(&name("ssm_out"), &delta.out, ValueHeads::Columns { each: value_dim });
                self.vector(&name("ssm_conv1d"), &delta.conv, rows(keys * conv_kernel, value_dim * conv_kernel));
                self.vector(&name("ssm_a"), &delta.a_log_neg, rows(0, 1));
                self.vector(&name("ssm_dt"), &delta.dt_bias, rows(0, 1));
                self.vector(&name("ssm_norm"), &delta.norm, ValueHeads::Nowhere);
            }
        }
    }

    fn ffn(&mut self, layer: usize, ffn: &'m Ffn) {
        let name = |part: &str| format!("blk.{layer}.{part}");
        let mut swiglu = |suffix: &str, of: &[&'m SwigluWeights]| {
            for (at, part) in ["ffn_gate", "ffn_up", "ffn_down"].into_iter().enumerate() {
                let values = TensorValues::Matrices(of.iter().map(|weights| weights.matrices()[at]).collect());
                let name = name(&format!("{part}{suffix}"));
                self.tensors.push(NamedTensor { name, values, heads: ValueHeads::Nowhere });
            }
        };
        match ffn {
            Ffn::Dense(weights) => swiglu("", &[weights]),
            Ffn::Moe(moe) => {
                swiglu("_exps", &moe.experts.iter().collect::<Vec<_>>());
                if let Some(shared) = &moe.shared {
                    swiglu("_shexp", &[&shared.expert]);
                    self.vector(&name("ffn_gate_inp_shexp"), &shared.router, ValueHeads::Nowhere);
                }
                self.matrix(&name("ffn_gate_inp"), &moe.router, ValueHeads::Nowhere);
            }
        }
    }
}

/// Tokens that are read at once: each costs a row of the vocabulary's width for each model.
const CHUNK: usize = 16;

fn predictions(
    mut model: ModelWeights,
    mut other: ModelWeights,
    against: &Against,
    cpu: &Cpu,
    progress: StageProgress,
) -> Result<TextAgreement, Error> {
    let tokenizer = engine::vocabulary::tokenizer(model.vocab.clone())?;
    let mut tokens = tokenizer.encode_plain(against.text);
    tokens.truncate(against.tokens);
    if tokens.len() < 2 {
        return Err(Error::file(against.path, "needs a text of two tokens or more to be compared on".to_owned()));
    }
    let vocab = model.shape.vocab;
    if let Some(beyond) = tokens.iter().find(|token| **token as usize >= vocab) {
        return Err(Error::file(
            against.path,
            format!("needs a vocabulary in which token {beyond} has a row of {vocab}"),
        ));
    }
    model.leave_out_prediction();
    other.leave_out_prediction();
    let kv = KvFormats::new(Format::F32, Format::F32);
    let networks = [model, other].map(|model| Network::new(model, Precision::F32));
    let meter = MemoryMeter::default();
    let [ours, theirs] = &networks;
    let mut states =
        [SequenceState::new(ours.state_shape, kv, &meter)?, SequenceState::new(theirs.state_shape, kv, &meter)?];
    let mut work = [Workspace::default(), Workspace::default()];
    let (mut distances, mut same_top, mut surprises) = (Vec::new(), 0, [0.0; 2]);
    for (at, read) in tokens.chunks(CHUNK).enumerate() {
        progress(ValidationStage::Predicting, (at * CHUNK) as u64, tokens.len() as u64);
        let [mine, other] = &mut work;
        let [my_state, other_state] = &mut states;
        let mine = logits(ours, cpu, my_state, read, mine);
        let other = logits(theirs, cpu, other_state, read, other);
        for (place, (mine, other)) in mine.chunks_exact(vocab).zip(other.chunks_exact(vocab)).enumerate() {
            distances.push(divergence(other, mine));
            same_top += usize::from(top(mine) == top(other));
            if let Some(next) = tokens.get(at * CHUNK + place + 1) {
                surprises[0] += surprise(mine, *next);
                surprises[1] += surprise(other, *next);
            }
        }
    }
    let count = distances.len() as f64;
    let kl_mean = distances.iter().sum::<f64>() / count;
    distances.sort_by(f64::total_cmp);
    let [perplexity, other_perplexity] = surprises.map(|sum| (sum / (count - 1.0)).exp());
    Ok(TextAgreement {
        tokens: tokens.len(),
        kl_mean,
        kl_p95: distances[(distances.len() - 1) * 95 / 100],
        kl_max: distances[distances.len() - 1],
        same_top_share: same_top as f64 / count,
        perplexity,
        other_perplexity,
    })
}

fn logits<'w>(
    network: &Network,
    cpu: &Cpu,
    state: &mut SequenceState,
    tokens: &[u32],
    work: &'w mut Workspace,
) -> &'w [f32] {
    let wanted = WantedLogits::All;
    let lane = StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 };
    network.forward(cpu, &mut [lane], work)
}
