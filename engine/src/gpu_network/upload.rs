//! A model's weights on the device.

use gpu::matrix::{self, DeviceMatrix};
use gpu::rows::PADDED_TO;
use gpu::{Buffer, Device, Error};
use kernels::format::Format;
use weights::{
    AttentionWeights, BlockMatrix, DeltaWeights, Ffn, LayerKind, Matrix, Mixer, ModelWeights, MoeWeights,
    PredictionBlock, Shape, SharedExpert, SwigluWeights,
};

pub struct GpuLayer {
    pub index: usize, // number among the layers with the same mixer
    pub attn_norm: Buffer<f32>,
    pub mixer: GpuMixer,
    pub ffn_norm: Buffer<f32>,
    pub ffn: Option<GpuFfn>, // `None`: the CPU computes it
}

/// The block for multi-token prediction. The matrix that joins a token and an output is cut in two, one for each.
pub struct GpuPrediction {
    pub of_token: DeviceMatrix,
    pub of_output: DeviceMatrix,
    pub embed_norm: Buffer<f32>,
    pub state_norm: Buffer<f32>,
    pub output_norm: Buffer<f32>,
    pub layer: GpuLayer,
}

pub type GpuMixer = Mixer<DeviceMatrix, Buffer<f32>>;
pub type GpuAttention = AttentionWeights<DeviceMatrix, Buffer<f32>>;
pub type GpuDelta = DeltaWeights<DeviceMatrix, Buffer<f32>>;
pub type GpuFfn = Ffn<DeviceMatrix, DeviceMatrix>;
pub type GpuMoe = MoeWeights<DeviceMatrix, DeviceMatrix>;
pub type GpuSwiglu = SwigluWeights<DeviceMatrix>;

pub fn matrix(device: &Device, matrix: &Matrix) -> Result<DeviceMatrix, Error> {
    let BlockMatrix { format, rows, cols, data, .. } = blocks_of(matrix)?;
    DeviceMatrix::of(device, *format, *rows, *cols, data)
}

/// Returns the blocks of a matrix; an error if it has parts that kernels for GPUs do not multiply yet.
fn blocks_of(matrix: &Matrix) -> Result<&BlockMatrix, Error> {
    let refused =
        |what: &str| Error::Shape { what: what.to_string(), wanted: "blocks alone; the CPU computes this model" };
    match matrix {
        Matrix::Blocks(blocks) if blocks.low_rank.is_none() => Ok(blocks),
        Matrix::Blocks(_) => Err(refused("a matrix has a low-rank addition")),
        Matrix::Tiles(_) => Err(refused("a matrix has trellis tiles")),
    }
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
    let [of_token, of_output] = halves(join);
    let half = |bytes: &[u8]| DeviceMatrix::of(device, join.format, join.rows, join.cols / 2, bytes);
    Ok(GpuPrediction {
        of_token: half(&of_token)?,
        of_output: half(&of_output)?,
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

fn halves(matrix: &BlockMatrix) -> [Vec<u8>; 2] {
    let row = matrix.data.len() / matrix.rows.max(1);
    let of =
        |from: usize| matrix.data.chunks_exact(row).flat_map(|row| &row[from..from + row.len() / 2]).copied().collect();
    [of(0), of(row / 2)]
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
    let bytes = |m: &Matrix| m.format().map_or(m.bytes(), |format| matrix::device_bytes(format, m.rows(), m.cols()));
    let mixers = model.layers.iter().map(|layer| layer.mixer.matrices().into_iter().map(bytes).sum::<usize>());
    let predicting = model.prediction.iter().flat_map(PredictionBlock::matrices);
    // An embedding that is not the output matrix stays on the host.
    let output = model.output_matrix();
    let outside: usize = [output].into_iter().chain(predicting).map(bytes).sum();
    (
        outside + mixers.sum::<usize>(),
        model.layers.iter().map(|layer| layer.ffn.matrices().into_iter().map(bytes).sum()).collect(),
    )
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
        let (rows, first) = (all.iter().map(|matrix| matrix.rows).sum(), all.first());
        let (format, cols) = first.map_or((Format::F32, 0), |first| (first.format, first.cols));
        if all.iter().any(|matrix| matrix.format != format) {
            let what = "the experts of a layer differ in their formats".to_string();
            return Err(Error::Shape { what, wanted: "one format for all experts of a layer" });
        }
        DeviceMatrix::of_parts(device, format, rows, cols, &parts)
    };
    let shared = moe.shared.as_ref().map(|shared| {
        let router = bytemuck::cast_slice(&shared.router);
        Ok(SharedExpert {
            expert: swiglu(device, &shared.expert)?,
            router: DeviceMatrix::of(device, Format::F32, 1, shared.router.len(), router)?,
        })
    });
    Ok(MoeWeights {
        router: matrix(device, &moe.router)?,
        experts: vec![SwigluWeights {
            gate: stacked(|expert| &expert.gate)?,
            up: stacked(|expert| &expert.up)?,
            down: stacked(|expert| &expert.down)?,
        }],
        shared: shared.transpose()?,
    })
}
