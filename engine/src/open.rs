//! Opens a model: from its path to an engine's parts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu::{Device, GpuApi};
use kernels::cpu::Cpu;
use kernels::product::Precision;
use text::{Template, Tokenizer};
use weights::{Adapter, PackedPart, VocabSource};

use crate::device_memory::{DeviceLimits, DeviceMemoryPlan};
use crate::error::Error;
use crate::executor::Executor;
use crate::network::Network;
use crate::vocabulary;

pub use weights::{Keeping, PackedFolder};

#[derive(Clone, Debug)]
pub struct ModelOptions {
    pub mmap: bool,
    pub precision: Precision,
    /// Cache of texts and their tokens, so that a conversation is not tokenised again at every turn; 0: no cache.
    pub token_cache_bytes: usize,
    /// Folder of packed weights for the next start. `None`: each start packs them.
    pub packed: Option<PackedFolder>,
    pub prediction: bool,
    /// Factor by which YaRN stretches the window; 1: not at all.
    pub yarn: f64,
    pub adapters: Vec<(PathBuf, f32)>,
    pub gpu: Option<GpuOptions>,
}

impl ModelOptions {
    pub const fn new(precision: Precision) -> ModelOptions {
        ModelOptions {
            mmap: true,
            precision,
            token_cache_bytes: 0,
            packed: None,
            prediction: false,
            yarn: 1.0,
            adapters: Vec::new(),
            gpu: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct GpuOptions {
    pub device: Device,
    pub limits: DeviceLimits,
    /// True if a model that does not fit is an error. Else the CPU computes, with a note.
    pub is_required: bool,
    /// CPU threads for the layers that the GPU has no room for; 0: one for each core.
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
    /// The file's own, or the model family's if the file has none.
    pub template: Template,
    pub notes: Vec<String>,
    pub keeping: Option<Keeping>,
    /// The GPU that computes, with the plan of its memory. `None`: the CPU computes.
    pub executor: Option<(Executor, DeviceMemoryPlan)>,
}

/// Opens the first GPU behind an interface. The first call compiles its kernels into the folder `kernels`, and says so to
/// `progress`.
pub fn find_gpu(api: GpuApi, kernels: Option<&Path>, progress: &mut dyn FnMut(&str)) -> Result<Device, Error> {
    Ok(gpu::open_behind(api, 0, kernels, progress)?)
}

/// Opens a model. `progress` receives the packed bytes and their total.
pub fn open(path: &Path, options: &ModelOptions, progress: &mut dyn FnMut(usize, usize)) -> Result<OpenedModel, Error> {
    // Weights on a GPU need not be in memory as well.
    let mmap = options.mmap || options.gpu.is_some();
    let mut model = weights::open(path, mmap)?;
    model.stretch(options.yarn)?;
    // Matrices are packed without what adapters add, so that all share one packed file.
    let fingerprint = model.fingerprint;
    for (path, scale) in &options.adapters {
        Adapter::open(path)?.add_to(&mut model, *scale)?;
    }
    // Behind the adapters, which may change the block.
    if !options.prediction {
        model.leave_out_prediction();
    }
    let adapted = std::mem::replace(&mut model.fingerprint, fingerprint);
    // Reading a vocabulary takes one thread as long as packing takes all of them. No other code reads the model's.
    let vocab = std::mem::replace(&mut model.vocab, VocabSource::Json(Vec::new()));
    let tokenizer = std::thread::spawn(move || vocabulary::tokenizer(vocab));
    let mut keeping = None;
    let executor = match &options.gpu {
        None => None,
        Some(gpu) => match Executor::planned(&gpu.device, &model, options.precision, &gpu.limits, || gpu.cpu()) {
            Ok((executor, memory)) => {
                model.notes.extend(memory.host_note());
                Some((executor, memory))
            }
            Err(error) if gpu.is_required => return Err(error),
            Err(error) => {
                model.notes.push(format!("the CPU computes: {error}"));
                None
            }
        },
    };
    let part =
        executor.as_ref().map_or(PackedPart::All, |(_, memory)| PackedPart::FeedForward { from: memory.ffn_layers });
    let has_part = executor.as_ref().is_none_or(|(_, memory)| memory.host_bytes > 0);
    if options.precision == Precision::Integer && has_part {
        keeping = weights::pack(&mut model, part, &Cpu::new(0), options.packed.as_ref(), options.mmap, progress)?;
    }
    model.fingerprint = adapted;
    let tokenizer = tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let tokenizer = tokenizer?.with_cache(options.token_cache_bytes);
    let template = model.chat_template.as_deref().map_or_else(Template::family, Template::new)?;
    let notes = std::mem::take(&mut model.notes);
    let network = Network::new(model, options.precision);
    Ok(OpenedModel { network, tokenizer: Arc::new(tokenizer), template, notes, keeping, executor })
}
