//! Plan of a model in a GPU's memory, made before anything is copied.

use gpu::Device;
use gpu::device::{GpuMemory, Processors};
use kernels::product::Precision;
use weights::{Matrix, MatrixUse, ModelWeights};

use crate::error::Error;
use crate::gpu_network::{device_bytes, scratch_bytes};
use crate::limits::EngineLimits;
use crate::model_bytes::host_bytes;
use crate::state::{KvFormats, StateShape};

#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Memory for everything. `None`: the free memory but a twentieth, which is left to other programs.
    pub total_bytes: Option<usize>,
    /// Memory that the system has free, which a GPU without memory of its own shares with all programs.
    pub host_free_bytes: Option<usize>,
    /// Most tokens of a prompt in a step. The plan may choose fewer, so that more layers have room.
    pub chunk_tokens: usize,
    pub lanes: usize, // sequences of a step
    /// Layers whose feed-forward parts the GPU computes; the CPU computes the others. `None`: as many as leave room for
    /// `longest`.
    pub ffn_layers: Option<usize>,
    pub longest: Option<LongestConversation>,
}

#[derive(Clone, Copy, Debug)]
pub struct LongestConversation {
    pub limits: EngineLimits,
    pub kv: KvFormats,
    pub tokens: usize, // capped at the model's own window
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    pub name: String,
    pub free_bytes: usize,
    pub processors: Processors,
    pub memory: GpuMemory,
}

impl DeviceFacts {
    pub fn of(device: &Device) -> Result<DeviceFacts, Error> {
        let properties = device.properties()?;
        let (processors, memory) = (device.processors(), device.capabilities().memory);
        Ok(DeviceFacts { name: properties.name, free_bytes: properties.free_bytes, processors, memory })
    }

    /// Imagines a GPU of which only the memory is known. It gets as many processors as the largest GPUs have, because
    /// the buffers of a step grow with them.
    pub fn imagined(bytes: usize) -> DeviceFacts {
        let processors = Processors { count: 192, shared_bytes: 99 << 10 };
        let (name, memory) = (format!("a GPU with {} MiB", bytes >> 20), GpuMemory::Separate);
        DeviceFacts { name, free_bytes: bytes, processors, memory }
    }
}

// Split of a model between device and host, with the buffers of a step.
#[derive(Default)]
struct Split {
    chunk_tokens: usize,
    scratch_bytes: usize,
    ffn_layers: usize,
}

// Chunk from which on smaller ones would only be slower: a product reads all weights for so many rows.
const LEAST_CHUNK_TOKENS: usize = 128;

fn chunks(most: usize) -> impl Iterator<Item = usize> {
    let halved = |chunk: &usize| Some(chunk / 2).filter(|half| *half >= LEAST_CHUNK_TOKENS);
    std::iter::successors(Some(most), halved)
}

#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMemoryPlan {
    pub name: String,
    pub memory: GpuMemory,
    pub total_bytes: usize,
    pub weight_bytes: usize,
    pub scratch_bytes: usize, // buffers of one step
    pub chunk_tokens: usize,  // most tokens of a prompt in a step
    pub left_bytes: usize,    // room for sequences
    pub ffn_layers: usize,    // layers whose feed-forward parts the GPU computes
    pub layers: usize,
    pub host_bytes: usize, // weights that the CPU computes with
}

impl DeviceMemoryPlan {
    pub fn new(
        facts: &DeviceFacts,
        model: &ModelWeights,
        precision: Precision,
        limits: &DeviceLimits,
    ) -> Result<DeviceMemoryPlan, Error> {
        // Of shared memory a driver tells all, also what other programs hold.
        let free_bytes = match limits.host_free_bytes {
            Some(host) if facts.memory == GpuMemory::Shared => host.min(facts.free_bytes),
            _ => facts.free_bytes,
        };
        let total_bytes = limits.total_bytes.map_or(free_bytes - free_bytes / 20, |bytes| bytes.min(free_bytes));
        let (always, ffn) = device_bytes(model);
        let layers = ffn.len();
        let weight_bytes = |ffn_layers: usize| always + ffn[..ffn_layers].iter().sum::<usize>();
        let shape = StateShape::new(&model.shape);
        let wanted = match &limits.longest {
            None => shape.fixed_bytes(),
            Some(longest) => {
                let LongestConversation { limits, kv, tokens } = longest;
                // A snapshot that moves within one memory makes no room.
                let moved = if facts.memory == GpuMemory::Separate { limits.moved_snapshot_bytes } else { 0 };
                let limits = EngineLimits { moved_snapshot_bytes: moved, ..*limits };
                limits.bytes_of(&shape, *kv, (*tokens).min(model.shape.native_ctx))?
            }
        };
        // Smaller chunks come before layers leave the device: a prompt is read a little slower then, not every token.
        let mut best: Option<Split> = None;
        for chunk_tokens in chunks(limits.chunk_tokens) {
            let rows = chunk_tokens + limits.lanes;
            let scratch_bytes = scratch_bytes(model, facts.processors, precision, rows, limits.lanes);
            let others = scratch_bytes + wanted;
            let fits = |ffn_layers: &usize| weight_bytes(*ffn_layers) + others <= total_bytes;
            let ffn_layers = match limits.ffn_layers {
                Some(ffn_layers) => ffn_layers.min(layers),
                None => (0..=layers).rev().find(fits).unwrap_or(0),
            };
            if best.as_ref().is_none_or(|best| ffn_layers > best.ffn_layers) {
                best = Some(Split { chunk_tokens, scratch_bytes, ffn_layers });
            }
            if ffn_layers == layers && fits(&layers) || limits.ffn_layers.is_some() {
                break;
            }
        }
        let Split { chunk_tokens, scratch_bytes, ffn_layers } = best.unwrap_or_default();
        let on_host = |matrix: &Matrix| host_bytes(matrix, MatrixUse::Products, precision);
        let host_bytes = model.layers[ffn_layers..].iter().flat_map(|layer| layer.ffn.matrices()).map(on_host).sum();
        let weight_bytes = weight_bytes(ffn_layers);
        match total_bytes.checked_sub(weight_bytes + scratch_bytes) {
            Some(left_bytes) if left_bytes > shape.fixed_bytes() => Ok(DeviceMemoryPlan {
                name: facts.name.clone(),
                memory: facts.memory,
                total_bytes,
                weight_bytes,
                scratch_bytes,
                chunk_tokens,
                left_bytes,
                ffn_layers,
                layers,
                host_bytes,
            }),
            _ => Err(Error::DeviceRoom {
                name: facts.name.clone(),
                weights_mib: weight_bytes >> 20,
                scratch_mib: scratch_bytes >> 20,
                total_mib: total_bytes >> 20,
                free_mib: free_bytes >> 20,
            }),
        }
    }

    pub fn host_note(&self) -> Option<String> {
        let (name, of_host) = (&self.name, self.layers - self.ffn_layers);
        let says = format!(
            "the CPU computes the feed-forward parts of {of_host} of {} layers, {} MiB, which are not on {name} \
             (engine.gpu_layers); a smaller window or fewer bits leave room for more of them there",
            self.layers,
            self.host_bytes >> 20
        );
        (of_host > 0).then_some(says)
    }
}
