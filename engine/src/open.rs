//! From a model's path to everything that is needed to talk to it, and what that takes of memory.

use std::path::Path;
use std::sync::Arc;

use gpu::Device;
use kernels::cpu::{Cpu, Level};
use kernels::product::Precision;
use text::{Template, Tokenizer};
use weights::{Matrix, Mixer, Model, Part, Reading, VocabSource};

use crate::error::Error;
use crate::executor::{DeviceLimits, DeviceMemoryPlan, Executor};
use crate::gpu_network::ffn_bytes;
use crate::network::Network;
use crate::vocabulary;

pub use weights::{Keeping, PackedFolder};

#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// Map the files instead of reading them into memory.
    pub mmap: bool,
    pub precision: Precision,
    /// Texts whose tokens are remembered, so that a conversation is not tokenised again at every turn; 0: none.
    pub token_cache_bytes: usize,
    /// Where packed weights outlive the process; None: each start packs.
    pub packed: Option<PackedFolder>,
    /// None: the host computes.
    pub gpu: Option<GpuOptions>,
}

#[derive(Clone, Debug)]
pub struct GpuOptions {
    pub device: Device,
    pub limits: DeviceLimits,
    /// A model that does not fit there is an error. Otherwise the host computes, with a note.
    pub is_required: bool,
    /// For what the host computes beside it; 0: all of the machine.
    pub threads: usize,
    pub pin_threads: bool,
}

impl GpuOptions {
    fn cpu(&self) -> Cpu {
        Cpu::new(self.threads).pinned(self.pin_threads)
    }
}

pub struct OpenedModel {
    pub network: Network,
    pub tokenizer: Arc<Tokenizer>,
    /// The file's own, or the family's where it brings none.
    pub template: Template,
    /// What was left out or looks odd, one line each.
    pub notes: Vec<String>,
    /// Packed weights that are being written for the next start.
    pub keeping: Option<Keeping>,
    /// Where the model lies and computes, if that is not the host.
    pub executor: Option<(Executor, DeviceMemoryPlan)>,
}

/// The GPU of this machine. Its kernels are compiled the first time, into `kernels`; `progress` hears of it.
pub fn find_gpu(kernels: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    Ok(gpu::open(0, kernels, progress)?)
}

/// What stands in for a GPU in tests: slow and exact. `folder` keeps what the C++ compiler made.
pub fn emulated(folder: &Path) -> Result<Device, Error> {
    Ok(Device::emulated(folder)?)
}

pub fn open(path: &Path, options: &ModelOptions) -> Result<OpenedModel, Error> {
    open_with(path, options, &mut |_, _| ())
}

/// As `open`; `progress` is told how many bytes of how many are ready.
pub fn open_with(
    path: &Path,
    options: &ModelOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<OpenedModel, Error> {
    // What lies on a GPU need not lie in memory as well.
    let mmap = options.mmap || options.gpu.is_some();
    let mut model = weights::open(path, &weights::OpenOptions { mmap })?;
    // A vocabulary takes one thread as long as the weights take all of them.
    let vocab =
        std::mem::replace(&mut model.vocab, VocabSource::Json { tokenizer: Vec::new(), tokenizer_config: None });
    let tokenizer = std::thread::spawn(move || (vocabulary::tokenizer(&vocab), vocab));
    let mut keeping = None;
    let executor = match &options.gpu {
        None => None,
        Some(gpu) => match Executor::planned(&gpu.device, &model, options.precision, &gpu.limits, || gpu.cpu()) {
            Ok((executor, memory)) => {
                model.notes.extend(memory.host_part());
                Some((executor, memory))
            }
            Err(error) if gpu.is_required => return Err(error),
            Err(error) => {
                model.notes.push(format!("the CPU computes: {error}"));
                None
            }
        },
    };
    let part = executor.as_ref().map_or(Part::All, |(_, memory)| Part::FeedForward { from: memory.ffn_layers });
    let has_part = executor.as_ref().is_none_or(|(_, memory)| memory.host_bytes > 0);
    if options.precision == Precision::Integer && has_part {
        keeping = weights::pack(&mut model, part, &Cpu::new(0), options.packed.as_ref(), options.mmap, progress)?;
    }
    let (tokenizer, vocab) = tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    model.vocab = vocab;
    let tokenizer = tokenizer?.with_cache(options.token_cache_bytes);
    let template = model.chat_template.as_deref().map_or_else(Template::family, Template::new)?;
    let notes = std::mem::take(&mut model.notes);
    let network = Network::new(model, options.precision);
    Ok(OpenedModel { network, tokenizer: Arc::new(tokenizer), template, notes, keeping, executor })
}

/// Bytes of a model that its computation reads.
pub fn weight_bytes(model: &Model) -> usize {
    all_bytes(model, |matrix, _| bytes(matrix))
}

/// The same as the host keeps them once they are in the order that it reads fastest, whether they are by now or not.
pub fn host_weight_bytes(model: &Model, precision: Precision) -> usize {
    all_bytes(model, |matrix, reading| host_bytes(matrix, reading, precision))
}

/// What a matrix takes on the host.
pub fn host_bytes(matrix: &Matrix, reading: Reading, precision: Precision) -> usize {
    match precision {
        Precision::Integer => weights::packed_bytes(matrix, reading, Level::detect()),
        Precision::F32 => bytes(matrix),
    }
}

fn all_bytes(model: &Model, of: impl Fn(&Matrix, Reading) -> usize) -> usize {
    let product = |matrix: &Matrix| of(matrix, Reading::Products);
    let outside = match &model.head {
        Some(head) => of(&model.embed, Reading::Rows) + product(head),
        None => product(&model.embed),
    };
    let layers = model.layers.iter().map(|layer| {
        let mixer = match &layer.mixer {
            Mixer::Attention(w) => [&w.q, &w.k, &w.v, &w.o].map(product).iter().sum::<usize>(),
            Mixer::Delta(w) => {
                let exact: usize = [&w.a, &w.b].map(|matrix| of(matrix, Reading::ExactProducts)).iter().sum();
                [&w.qkv, &w.z, &w.out].map(product).iter().sum::<usize>() + exact
            }
        };
        mixer + ffn_bytes(&layer.ffn, product)
    });
    outside + layers.sum::<usize>()
}

/// The most that the buffers of one step take: `rows` tokens at once, of which `wanted` get logits.
pub fn scratch_bytes(network: &Network, rows: usize, wanted: usize) -> usize {
    let shape = network.shape();
    let queries = 2 * shape.q_heads * shape.head_dim;
    let values = shape.value_heads * shape.value_dim;
    let ffn = match &shape.moe {
        None => shape.ffn,
        Some(moe) => (moe.used * moe.expert_ffn).max(moe.shared_ffn) + shape.hidden,
    };
    let inner = ffn.max(values).max(shape.q_heads * shape.head_dim);
    // A value as f32, and rounded to 8 bits with the scale and the sum of its group of 16.
    let (plain, rounded) = (size_of::<f32>(), size_of::<f32>() + 1 + 2 * size_of::<f32>() / 16);
    let row = plain * (2 * shape.hidden + queries.max(shape.delta_channels()) + 2 * values.max(shape.hidden) + 2 * ffn)
        + rounded * (shape.hidden + inner);
    rows * row + wanted * plain * shape.vocab
}

fn bytes(matrix: &Matrix) -> usize {
    matrix.data.len()
}
