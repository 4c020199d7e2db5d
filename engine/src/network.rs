//! The model's arithmetic on the CPU: tokens of several sequences in, logits out, states advanced.

mod attention;
mod delta;
mod ffn;
mod prediction;
mod workspace;

use std::ops::Range;
use std::path::Path;

use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::norm::rms_norm;
use kernels::product::{Activations, MatrixOrder, Precision, Rounding, Weights, product, products};
use kernels::rotation::Rotation;
use weights::{Ffn, LowRank, Matrix, Mixer, ModelBytes, ModelWeights, Shape};

use crate::recurrence_log::RecurrenceLog;
use crate::snapshot::Snapshot;
use crate::state::{SequenceState, StateShape};

pub use prediction::PredictionLane;
pub(crate) use prediction::best;
pub use workspace::Workspace;

/// Function that sees each matrix with what it is multiplied by.
pub type InputProbe = Box<dyn Fn(&Matrix, &Activations) + Send + Sync>;

pub struct Network {
    pub model: ModelWeights,
    pub state_shape: StateShape,
    pub precision: Precision,
    rounding: Rounding,
    rotation: Rotation,
    files: Vec<ModelBytes>, // files that hold the model's matrices
    /// Convolution taps of each linear layer, [kernel, channels]: the order in which a row of channels reads them.
    taps: Vec<Vec<f32>>,
    pub probe: Option<InputProbe>,
}

pub struct StepLane<'a> {
    pub state: &'a mut SequenceState,
    pub tokens: &'a [u32],
    pub wanted: WantedLogits,
    pub recurrence_log: Option<&'a mut RecurrenceLog>,
    /// Snapshots that the step takes when the state passes their positions, which are ascending, after `state.position`
    /// and up to the last token.
    pub snapshots: &'a mut [Snapshot],
    /// Number of last tokens that are drafts: the state does not pass them. The log has their effects.
    pub drafts: usize,
}

impl StepLane<'_> {
    pub(crate) fn stops(&self) -> impl Iterator<Item = &Snapshot> {
        let end = self.state.position + self.tokens.len();
        self.snapshots.iter().filter(move |snapshot| snapshot.position < end)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedLogits {
    Nothing,
    Last,
    All,
}

impl WantedLogits {
    /// Rows with wanted logits, of a lane's rows. The last token before drafts, and each of these, may be the last.
    pub(crate) fn of(self, rows: Range<usize>, drafts: usize) -> Range<usize> {
        match self {
            WantedLogits::Nothing => rows.end..rows.end,
            WantedLogits::Last => rows.end.saturating_sub(1 + drafts).max(rows.start)..rows.end,
            WantedLogits::All => rows,
        }
    }
}

impl Network {
    pub fn new(model: ModelWeights, precision: Precision) -> Network {
        let shape = &model.shape;
        let rotation = rotation_of(shape);
        let channels = shape.delta_channels();
        let taps = model.layers.iter().filter_map(|layer| match &layer.mixer {
            Mixer::Delta(delta) => Some(transpose(&delta.conv, channels, shape.conv_kernel)),
            Mixer::Attention(_) => None,
        });
        let taps = taps.collect();
        let rounding = rounding_for(&model);
        let files = model.mapped_files();
        let state_shape = StateShape::new(shape);
        Network { state_shape, precision, rounding, rotation, files, taps, model, probe: None }
    }

    pub fn shape(&self) -> &Shape {
        &self.model.shape
    }

    pub fn cut_file(&self) -> Option<&Path> {
        self.files.iter().find(|file| file.is_cut())?.mapped_file()
    }

    /// Advances each lane's state over its tokens but drafts. Returns the logits [wanted positions, vocab], lane after
    /// lane.
    pub fn forward<'w>(&self, cpu: &Cpu, lanes: &mut [StepLane], work: &'w mut Workspace) -> &'w mut [f32] {
        let shape = self.shape();
        let rows: usize = lanes.iter().map(|lane| lane.tokens.len()).sum();
        work.hidden.resize(rows * shape.hidden, 0.0);
        work.mixed.resize(rows * shape.hidden, 0.0);
        let turns = self.rotation.dims();
        work.turns.resize(rows * turns, 0.0);
        let mut row = 0;
        for lane in lanes.iter_mut() {
            lane.state.reserve(lane.tokens.len());
            if let Some(recurrence_log) = &mut lane.recurrence_log {
                recurrence_log.begin(lane.state.position, lane.tokens.len());
            }
            for (i, token) in lane.tokens.iter().enumerate() {
                self.model.embed.row(*token as usize, &mut work.hidden[row * shape.hidden..][..shape.hidden]);
                self.rotation.at(lane.state.position + i, &mut work.turns[row * turns..][..turns]);
                row += 1;
            }
        }
        let (mut attention_layer, mut delta_layer) = (0, 0);
        for layer in &self.model.layers {
            self.norm(cpu, &work.hidden, &layer.attn_norm, &mut work.normed);
            match &layer.mixer {
                Mixer::Attention(weights) => {
                    self.attention(cpu, weights, attention_layer, lanes, work);
                    attention_layer += 1;
                }
                Mixer::Delta(weights) => {
                    self.delta(cpu, weights, delta_layer, lanes, work);
                    delta_layer += 1;
                }
            }
            add(&mut work.hidden, &work.mixed);
            let mut hidden = std::mem::take(&mut work.hidden);
            self.add_ffn(cpu, &layer.ffn_norm, &layer.ffn, &mut hidden, work);
            work.hidden = hidden;
        }
        self.follow(cpu, lanes, work);
        for lane in lanes.iter_mut() {
            lane.state.position += lane.tokens.len() - lane.drafts;
        }
        self.output(cpu, lanes, work);
        &mut work.logits
    }

    pub(crate) fn add_ffn(&self, cpu: &Cpu, norm: &[f32], ffn: &Ffn, hidden: &mut [f32], work: &mut Workspace) {
        work.mixed.resize(hidden.len(), 0.0);
        self.norm(cpu, hidden, norm, &mut work.normed);
        self.ffn(cpu, ffn, work);
        add(hidden, &work.mixed);
    }

    /// Computes logits of the wanted positions only: the output matrix is the largest of a small model.
    fn output(&self, cpu: &Cpu, lanes: &[StepLane], work: &mut Workspace) {
        let hidden = self.shape().hidden;
        work.wanted.clear();
        let mut row = 0;
        for lane in lanes {
            let end = row + lane.tokens.len();
            work.wanted.extend(lane.wanted.of(row..end, lane.drafts));
            row = end;
        }
        let output = self.model.output_matrix();
        work.logits.resize(work.wanted.len() * output.rows(), 0.0);
        if work.wanted.is_empty() {
            return;
        }
        let rows = work.normed.resize(work.wanted.len(), hidden);
        for (row, out) in work.wanted.iter().zip(rows.chunks_exact_mut(hidden)) {
            rms_norm(
                cpu.level,
                &work.hidden[row * hidden..][..hidden],
                &self.model.output_norm,
                self.shape().rms_eps,
                out,
            );
        }
        self.round(cpu, &mut work.normed);
        self.product(cpu, &work.normed, output, &mut work.logits);
    }

    fn norm(&self, cpu: &Cpu, hidden: &[f32], weight: &[f32], out: &mut Activations) {
        let width = weight.len();
        rms_norm(cpu.level, hidden, weight, self.shape().rms_eps, out.resize(hidden.len() / width, width));
        self.round(cpu, out);
    }

    fn round(&self, cpu: &Cpu, activations: &mut Activations) {
        if self.precision == Precision::Integer {
            activations.quantise(cpu, self.rounding);
        }
    }

    fn product(&self, cpu: &Cpu, x: &Activations, matrix: &Matrix, out: &mut [f32]) {
        self.watch(x, &[matrix]);
        product_of(cpu, x, [(self.precision, matrix, out)]);
    }

    fn products_into<const N: usize>(&self, cpu: &Cpu, x: &Activations, matrices: [(&Matrix, &mut Vec<f32>); N]) {
        self.watch(x, &matrices.each_ref().map(|(matrix, _)| *matrix));
        products_at(cpu, x, matrices.map(|(matrix, out)| (self.precision, matrix, out)));
    }

    fn watch(&self, x: &Activations, matrices: &[&Matrix]) {
        if let Some(probe) = &self.probe {
            matrices.iter().for_each(|matrix| probe(matrix, x));
        }
    }
}

pub(crate) fn rotation_of(shape: &Shape) -> Rotation {
    Rotation::new(shape.rope.dims, shape.rope.theta, shape.rope.scaling)
}

/// Chooses the rounding of activations: 8-bit weights are so exact that coarse rounding would be most of the error.
fn rounding_for(model: &ModelWeights) -> Rounding {
    let format = model.layers.first().map(|layer| match &layer.mixer {
        Mixer::Attention(weights) => weights.q.format(),
        Mixer::Delta(weights) => weights.qkv.format(),
    });
    if format.flatten() == Some(Format::Q8_0) { Rounding::Fine } else { Rounding::Coarse }
}

fn products_at<const N: usize>(cpu: &Cpu, x: &Activations, matrices: [(Precision, &Matrix, &mut Vec<f32>); N]) {
    let matrices = matrices.map(|(precision, matrix, out)| {
        out.resize(x.rows() * matrix.rows(), 0.0);
        (precision, matrix, &mut out[..])
    });
    product_of(cpu, x, matrices);
}

/// Multiplies the same activations by matrices of any layout. Every product of a network is computed here.
fn product_of<const N: usize>(cpu: &Cpu, x: &Activations, mut matrices: [(Precision, &Matrix, &mut [f32]); N]) {
    let blocks = matrices.each_mut().map(|(precision, matrix, out)| match matrix {
        Matrix::Blocks(blocks) => (*precision, blocks.weights(), &mut **out),
        Matrix::Tiles(_) => unreachable!("{}", weights::NO_TILES),
    });
    products(cpu, x, blocks);
    for (_, matrix, out) in matrices {
        if let Some(low_rank) = matrix.low_rank() {
            add_low_rank(cpu, x, low_rank, out);
        }
    }
}

fn add_low_rank(cpu: &Cpu, x: &Activations, LowRank { rank, scale, a, b }: &LowRank, out: &mut [f32]) {
    let matrix = |values: &[f32], rows, cols, x: &Activations| {
        let bytes = bytemuck::cast_slice(values);
        let mut out = vec![0.0; x.rows() * rows];
        let weights = Weights { format: Format::F32, rows, cols, order: MatrixOrder::Rows, bytes };
        product(cpu, Precision::F32, x, weights, &mut out);
        out
    };
    let mut inner = Activations::default();
    inner.set(x.rows(), *rank, &matrix(a, *rank, x.cols(), x));
    let addition = matrix(b, out.len() / x.rows().max(1), *rank, &inner);
    out.iter_mut().zip(addition).for_each(|(out, added)| *out += scale * added);
}

fn add(to: &mut [f32], from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
}

fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    // [rows, columns] to [columns, rows]
    (0..values.len()).map(|i| values[(i % rows) * columns + i / rows]).collect()
}
