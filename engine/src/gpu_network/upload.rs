//! A model's weights on the device.

use gpu::matrix::{self, DeviceMatrix};
use gpu::rows::PADDED_TO;
use gpu::{Buffer, Device, Error};
use kernels::format::Format;
use weights::{
    AttentionWeights, BlockMatrix, DeltaWeights, Ffn, LayerKind, LowRank, Matrix, Mixer, ModelWeights, MoeWeights,
    PredictionBlock, Shape, SharedExpert, SwigluWeights,
};

use super::product::{GpuLowRank, GpuMatrix};

pub struct GpuLayer {
    pub index: usize, // number among the layers with the same mixer
    pub attn_norm: Buffer<f32>,
    pub mixer: GpuMixer,
    pub ffn_norm: Buffer<f32>,
    pub ffn: Option<GpuFfn>, // `None`: the CPU computes it
}

/// The block for multi-token prediction. The matrix that joins a token and an output is cut in two, one for each.
pub struct GpuPrediction {
    pub of_token: GpuMatrix,
    pub of_output: GpuMatrix,
    pub embed_norm: Buffer<f32>,
    pub state_norm: Buffer<f32>,
    pub output_norm: Buffer<f32>,
    pub layer: GpuLayer,
}

pub type GpuMixer = Mixer<GpuMatrix, Buffer<f32>>;
pub type GpuAttention = AttentionWeights<GpuMatrix, Buffer<f32>>;
pub type GpuDelta = DeltaWeights<GpuMatrix, Buffer<f32>>;
pub type GpuFfn = Ffn<GpuMatrix, GpuMatrix>;
pub type GpuMoe = MoeWeights<GpuMatrix, GpuMatrix>;
pub type GpuSwiglu = SwigluWeights<GpuMatrix>;

pub fn matrix(device: &Device, matrix: &Matrix) -> Result<GpuMatrix, Error> {
    let BlockMatrix { format, rows, cols, data, .. } = blocks_of(matrix)?;
    let low_rank = GpuLowRank::of(device, &[matrix.low_rank()], (*rows, *cols))?;
    Ok(GpuMatrix { blocks: DeviceMatrix::of(device, *format, *rows, *cols, data)?, low_rank })
}

/// Returns the blocks of a matrix; an error if it has a layout that kernels for GPUs do not multiply yet.
fn blocks_of(matrix: &Matrix) -> Result<&BlockMatrix, Error> {
    matrix.blocks().ok_or_else(|| Error::Shape {
        what: "a matrix has trellis tiles".to_string(),
        wanted: "blocks; the CPU computes this model",
    })
}

pub fn largest_rank(model: &ModelWeights) -> usize {
    model.matrices().filter_map(|matrix| Some(matrix.low_rank()?.rank)).max().unwrap_or(0)
}

pub fn layer(device: &Device, model: &ModelWeights, number: usize, with_ffn: bool) -> Result<GpuLayer, Error> {
    let (shape, layer) = (&model.shape, &model.layers[number]);
    let index = shape.layers[..number].iter().filter(|kind| **kind == shape.layers[number]).count();
    let mixer = match &layer.mixer {
        Mixer::Attention(from) => Mixer::Attention(attention(device, from)?),
        Mixer::Delta(from) => {
            let (channels, kernel) = (shape.delta_channels(), shape.conv_kernel);
            let taps: Vec<f32> =
                (0..from.conv.len()).map(|i| from.conv[i % channels * kernel + i / channels]).collect();
            Mixer::Delta(DeltaWeights {
                qkv: matrix(device, &from.qkv)?,
                z: matrix(device, &from.z)?,
                a: matrix(device, &from.a)?,
                b: matrix(device, &from.b)?,
                out: matrix(device, &from.out)?,
                conv: Buffer::of(device, &taps)?,
                a_log_neg: Buffer::of(device, &from.a_log_neg)?,
                dt_bias: Buffer::of(device, &from.dt_bias)?,
                norm: Buffer::of(device, &from.norm)?,
            })
        }
    };
    let ffn = if with_ffn { Some(feed_forward(device, &layer.ffn)?) } else { None };
    let norm = |values: &[f32]| Buffer::of(device, values);
    Ok(GpuLayer { index, attn_norm: norm(&layer.attn_norm)?, mixer, ffn_norm: norm(&layer.ffn_norm)?, ffn })
}

pub fn prediction(device: &Device, shape: &Shape, from: &PredictionBlock) -> Result<GpuPrediction, Error> {
    // Rows of the joining matrix are cut in their middle.
    let join = blocks_of(&from.join)?;
    if !shape.hidden.is_multiple_of(PADDED_TO) || !shape.hidden.is_multiple_of(join.format.block_len()) {
        let what = format!("a block for multi-token prediction of width {}", shape.hidden);
        return Err(Error::Shape { what, wanted: "whole multiples of 64 and of its format's blocks" });
    }
    let norm = |values: &[f32]| Buffer::of(device, values);
    let [of_token, of_output] = halves(device, join)?;
    Ok(GpuPrediction {
        of_token,
        of_output,
        embed_norm: norm(&from.embed_norm)?,
        state_norm: norm(&from.state_norm)?,
        output_norm: norm(&from.output_norm)?,
        layer: GpuLayer {
            // Behind the model's own attention layers.
            index: shape.layers.iter().filter(|kind| **kind == LayerKind::Attention).count(),
            attn_norm: norm(&from.attn_norm)?,
            mixer: Mixer::Attention(attention(device, &from.attention)?),
            ffn_norm: norm(&from.ffn_norm)?,
            ffn: Some(feed_forward(device, &from.ffn)?),
        },
    })
}

fn halves(device: &Device, matrix: &BlockMatrix) -> Result<[GpuMatrix; 2], Error> {
    let (rows, cols) = (matrix.rows, matrix.cols / 2);
    let half = |number: usize| {
        let bytes = half_of_rows(&matrix.data, matrix.data.len() / rows.max(1), number);
        let low_rank = matrix
            .low_rank
            .as_deref()
            .map(|all| LowRank { a: half_of_rows(&all.a, matrix.cols, number), ..all.clone() });
        let low_rank = GpuLowRank::of(device, &[low_rank.as_ref()], (rows, cols))?;
        Ok(GpuMatrix { blocks: DeviceMatrix::of(device, matrix.format, rows, cols, &bytes)?, low_rank })
    };
    Ok([half(0)?, half(1)?])
}

fn half_of_rows<T: Copy>(values: &[T], row: usize, number: usize) -> Vec<T> {
    let start = number * row / 2;
    values.chunks_exact(row.max(1)).flat_map(|row| &row[start..start + row.len() / 2]).copied().collect()
}

fn attention(device: &Device, from: &AttentionWeights) -> Result<GpuAttention, Error> {
    Ok(AttentionWeights {
        q: matrix(device, &from.q)?,
        k: matrix(device, &from.k)?,
        v: matrix(device, &from.v)?,
        o: matrix(device, &from.o)?,
        q_norm: Buffer::of(device, &from.q_norm)?,
        k_norm: Buffer::of(device, &from.k_norm)?,
    })
}

fn feed_forward(device: &Device, from: &Ffn) -> Result<GpuFfn, Error> {
    Ok(match from {
        Ffn::Dense(weights) => Ffn::Dense(swiglu(device, weights)?),
        Ffn::Moe(moe) => Ffn::Moe(experts(device, moe)?),
    })
}

/// Bytes of a model's matrices on a device: all but the embedding and the feed-forward parts, and the feed-forward part of each layer.
pub fn device_bytes(model: &ModelWeights) -> (usize, Vec<usize>) {
    let of = |matrices: Vec<&Matrix>| matrices.into_iter().map(|matrix| stack_bytes(&[matrix])).sum::<usize>();
    let mixers: usize = model.layers.iter().map(|layer| of(layer.mixer.matrices())).sum();
    let predicting = model.prediction.iter().map(|block| {
        // Each half of the joining matrix has all of an addition's second matrix.
        let again = block.join.low_rank().map_or(0, |it| matrix::device_bytes(Format::F32, block.join.rows(), it.rank));
        let PredictionBlock { join, attention: AttentionWeights { q, k, v, o, .. }, ffn, .. } = block;
        of(vec![join, q, k, v, o]) + again + ffn_bytes(ffn)
    });
    // An embedding that is not the output matrix stays on the host.
    let outside = of(vec![model.output_matrix()]) + predicting.sum::<usize>();
    (outside + mixers, model.layers.iter().map(|layer| ffn_bytes(&layer.ffn)).collect())
}

fn ffn_bytes(ffn: &Ffn) -> usize {
    let Ffn::Moe(moe) = ffn else { return ffn.matrices().into_iter().map(|matrix| stack_bytes(&[matrix])).sum() };
    let stacks = STACKS.map(|of| stack_bytes(&moe.experts.iter().map(of).collect::<Vec<_>>()));
    let shared = moe.shared.iter().flat_map(|shared| shared.expert.matrices());
    let alone = [&moe.router].into_iter().chain(shared).map(|matrix| stack_bytes(&[matrix]));
    stacks.into_iter().chain(alone).sum()
}

const STACKS: [fn(&SwigluWeights) -> &Matrix; 3] = [|expert| &expert.gate, |expert| &expert.up, |expert| &expert.down];

// Counts matrices that lie row behind row. Where one of them has an addition, all have room for the largest rank.
fn stack_bytes(matrices: &[&Matrix]) -> usize {
    let bytes = |m: &&Matrix| m.format().map_or(m.bytes(), |format| matrix::device_bytes(format, m.rows(), m.cols()));
    let rank = matrices.iter().filter_map(|matrix| matrix.low_rank()).map(|added| added.rank).max().unwrap_or(0);
    let added = |m: &&Matrix| {
        matrix::device_bytes(Format::F32, rank, m.cols()) + matrix::device_bytes(Format::F32, m.rows(), rank)
    };
    matrices.iter().map(bytes).sum::<usize>() + matrices.iter().map(added).sum::<usize>()
}

fn swiglu(device: &Device, from: &SwigluWeights) -> Result<GpuSwiglu, Error> {
    Ok(SwigluWeights {
        gate: matrix(device, &from.gate)?,
        up: matrix(device, &from.up)?,
        down: matrix(device, &from.down)?,
    })
}

fn experts(device: &Device, moe: &MoeWeights) -> Result<GpuMoe, Error> {
    let stacked = |of: fn(&SwigluWeights) -> &Matrix| {
        let all =
            moe.experts.iter().map(|expert| blocks_of(of(expert))).collect::<Result<Vec<&BlockMatrix>, Error>>()?;
        let parts: Vec<&[u8]> = all.iter().map(|matrix| &matrix.data[..]).collect();
        let (format, rows, cols) =
            all.first().map_or((Format::F32, 0, 0), |first| (first.format, first.rows, first.cols));
        if all.iter().any(|matrix| matrix.format != format) {
            let what = "the experts of a layer differ in their formats".to_string();
            return Err(Error::Shape { what, wanted: "one format for all experts of a layer" });
        }
        let added: Vec<Option<&LowRank>> = all.iter().map(|matrix| matrix.low_rank.as_deref()).collect();
        let low_rank = GpuLowRank::of(device, &added, (rows, cols))?;
        Ok(GpuMatrix { blocks: DeviceMatrix::of_parts(device, format, all.len() * rows, cols, &parts)?, low_rank })
    };
    let shared = moe.shared.as_ref().map(|shared| {
        let router = bytemuck::cast_slice(&shared.router);
        let blocks = DeviceMatrix::of(device, Format::F32, 1, shared.router.len(), router)?;
        Ok(SharedExpert { expert: swiglu(device, &shared.expert)?, router: GpuMatrix { blocks, low_rank: None } })
    });
    let [gate, up, down] = STACKS;
    Ok(MoeWeights {
        router: matrix(device, &moe.router)?,
        experts: vec![SwigluWeights { gate: stacked(gate)?, up: stacked(up)?, down: stacked(down)? }],
        shared: shared.transpose()?,
    })
}
