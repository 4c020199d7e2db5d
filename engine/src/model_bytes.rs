//! Host memory of a model's weights and of the buffers to compute with them.

use kernels::cpu::CpuLevel;
use kernels::product::Precision;
use weights::{Matrix, MatrixUse, Mixer, ModelWeights, PredictionBlock};

use crate::network::Network;

pub fn weight_bytes(model: &ModelWeights) -> usize {
    all_bytes(model, |matrix, _| bytes(matrix))
}

/// Bytes of a model's weights once the CPU has packed them. They need not be packed yet.
pub fn host_weight_bytes(model: &ModelWeights, precision: Precision) -> usize {
    all_bytes(model, |matrix, used_for| host_bytes(matrix, used_for, precision))
}

pub fn host_bytes(matrix: &Matrix, used_for: MatrixUse, precision: Precision) -> usize {
    match precision {
        Precision::Integer => weights::packed_bytes(matrix, used_for, CpuLevel::detect()),
        Precision::F32 => bytes(matrix),
    }
}

fn all_bytes(model: &ModelWeights, of: impl Fn(&Matrix, MatrixUse) -> usize) -> usize {
    let product = |matrix: &Matrix| of(matrix, MatrixUse::Products);
    let outside = match &model.output {
        Some(output) => of(&model.embed, MatrixUse::Rows) + product(output),
        None => product(&model.embed),
    };
    let layers = model.layers.iter().map(|layer| {
        let mixer = match &layer.mixer {
            Mixer::Attention(w) => [&w.q, &w.k, &w.v, &w.o].map(product).iter().sum::<usize>(),
            Mixer::Delta(w) => {
                let exact: usize = [&w.a, &w.b].map(|matrix| of(matrix, MatrixUse::ExactProducts)).iter().sum();
                [&w.qkv, &w.z, &w.out].map(product).iter().sum::<usize>() + exact
            }
        };
        mixer + layer.ffn.matrices().into_iter().map(product).sum::<usize>()
    });
    let prediction = model.prediction.iter().flat_map(PredictionBlock::matrices).map(product);
    outside + layers.sum::<usize>() + prediction.sum::<usize>()
}

/// Most bytes of the CPU's buffers for one step: `rows` tokens, of which `wanted` get logits.
pub fn scratch_bytes(network: &Network, rows: usize, wanted: usize) -> usize {
    let shape = network.shape();
    let queries = 2 * shape.q_heads * shape.head_dim;
    let values = shape.value_heads * shape.value_dim;
    let ffn = match &shape.moe {
        None => shape.ffn,
        Some(moe) => (moe.used * moe.expert_ffn).max(moe.shared_ffn) + shape.hidden,
    };
    // Input of the block for multi-token prediction, and the outputs that make it.
    let (joined, outputs) = if shape.mtp_blocks > 0 { (2 * shape.hidden, shape.hidden) } else { (0, 0) };
    let inner = ffn.max(values).max(shape.q_heads * shape.head_dim).max(joined);
    // Bytes of a value as f32, and of one that is also rounded to 8 bits, with the scale and the sum of its group of
    // 16.
    let (plain, rounded) = (size_of::<f32>(), size_of::<f32>() + 1 + 2 * size_of::<f32>() / 16);
    let row = plain
        * (2 * shape.hidden + outputs + queries.max(shape.delta_channels()) + 2 * values.max(shape.hidden) + 2 * ffn)
        + rounded * (shape.hidden + inner);
    rows * row + wanted * plain * shape.vocab
}

fn bytes(matrix: &Matrix) -> usize {
    matrix.bytes()
}
