//! A model's weights on the device.

use gpu::matrix::{self, DeviceMatrix};
use gpu::{Buffer, Device, Error};
use kernels::format::Format;
use weights::{
    AttentionWeights, DeltaWeights, Ffn, Matrix, Mixer, ModelWeights, MoeWeights, SharedExpert, SwigluWeights,
};

pub struct GpuLayer {
    /// Among the layers with the same mixer.
    pub index: usize,
    pub attn_norm: Buffer<f32>,
    pub mixer: GpuMixer,
    pub ffn_norm: Buffer<f32>,
    /// None: the CPU computes it.
    pub ffn: Option<GpuFfn>,
}

pub type GpuMixer = Mixer<DeviceMatrix, Buffer<f32>>;
pub type GpuAttention = AttentionWeights<DeviceMatrix, Buffer<f32>>;
pub type GpuDelta = DeltaWeights<DeviceMatrix, Buffer<f32>>;
pub type GpuFfn = Ffn<DeviceMatrix, DeviceMatrix>;
pub type GpuMoe = MoeWeights<DeviceMatrix, DeviceMatrix>;
pub type GpuSwiglu = SwigluWeights<DeviceMatrix>;

pub fn matrix(device: &Device, matrix: &Matrix) -> Result<DeviceMatrix, Error> {
    DeviceMatrix::of(device, matrix.format, matrix.rows, matrix.cols, &matrix.data)
}

/// Copies the layer of this number; `with_ffn`: with its feed-forward part.
pub fn layer(device: &Device, model: &ModelWeights, number: usize, with_ffn: bool) -> Result<GpuLayer, Error> {
    let (shape, layer) = (&model.shape, &model.layers[number]);
    let index = shape.layers[..number].iter().filter(|kind| **kind == shape.layers[number]).count();
    let mixer = match &layer.mixer {
        Mixer::Attention(from) => Mixer::Attention(AttentionWeights {
            q: matrix(device, &from.q)?,
            k: matrix(device, &from.k)?,
            v: matrix(device, &from.v)?,
            o: matrix(device, &from.o)?,
            q_norm: Buffer::of(device, &from.q_norm)?,
            k_norm: Buffer::of(device, &from.k_norm)?,
        }),
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
    let ffn = match &layer.ffn {
        _ if !with_ffn => None,
        Ffn::Dense(weights) => Some(Ffn::Dense(swiglu(device, weights)?)),
        Ffn::Moe(moe) => Some(Ffn::Moe(experts(device, moe)?)),
    };
    let norm = |values: &[f32]| Buffer::of(device, values);
    Ok(GpuLayer { index, attn_norm: norm(&layer.attn_norm)?, mixer, ffn_norm: norm(&layer.ffn_norm)?, ffn })
}

/// Bytes that a model's matrices take on a device: all but the feed-forward parts, and the feed-forward part of each layer.
pub fn device_bytes(model: &ModelWeights) -> (usize, Vec<usize>) {
    let bytes = |m: &Matrix| matrix::device_bytes(m.format, m.rows, m.cols);
    let mixers = model.layers.iter().map(|layer| layer.mixer.matrices().into_iter().map(bytes).sum::<usize>());
    let outside: usize = [&model.embed].into_iter().chain(&model.head).map(bytes).sum();
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
        let all: Vec<&Matrix> = moe.experts.iter().map(of).collect();
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
