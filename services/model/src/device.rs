//! Search for the device: a GPU, or the host.

use crate::engine_options::gpu_api;
use crate::error::Error;
use crate::machine::free_bytes;
use engine::open::{GpuOptions, find_gpu};
use engine::{DeviceLimits, DeviceMemoryPlan, GpuApi, LongestConversation};
use settings::Settings;
use std::path::PathBuf;

#[derive(Clone)]
pub struct Finder {
    pub(crate) source: Source,
    api: GpuApi,
    kernels: Option<PathBuf>,
    limits: DeviceLimits,
    threads: usize,
    pin_threads: bool,
}

#[derive(Clone)]
pub(crate) enum Source {
    Host,
    Any,
    Gpu,
    #[cfg(test)]
    Given(std::sync::Arc<dyn Fn() -> Result<engine::Device, engine::Error> + Send + Sync>),
}

impl Finder {
    pub fn new(settings: &Settings) -> Finder {
        let engine = &settings.engine;
        let source = match engine.device {
            settings::DeviceChoice::Cpu => Source::Host,
            settings::DeviceChoice::Auto => Source::Any,
            settings::DeviceChoice::Cuda | settings::DeviceChoice::Vulkan => Source::Gpu,
        };
        let limits = DeviceLimits {
            total_bytes: settings.memory.gpu_total.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            host_free_bytes: free_bytes().map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            chunk_tokens: engine.gpu_prefill_chunk_tokens,
            lanes: engine.max_sequences,
            ffn_layers: engine.gpu_layers,
            longest: None,
        };
        Finder {
            source,
            api: gpu_api(engine.device),
            kernels: engine.kernels_path.clone(),
            limits,
            threads: engine.threads,
            pin_threads: engine.pin_threads,
        }
    }

    /// Returns a finder that skips a GPU without room for such a conversation: the host computes.
    pub fn with_room_for(&self, longest: LongestConversation) -> Finder {
        Finder { limits: DeviceLimits { longest: Some(longest), ..self.limits }, ..self.clone() }
    }

    pub fn host(settings: &Settings) -> Finder {
        Finder { source: Source::Host, ..Finder::new(settings) }
    }

    /// Returns a finder for the second time: conversations planned for a device need one, with as much of the model on
    /// it as before.
    pub fn again(&self, memory: &DeviceMemoryPlan) -> Finder {
        let source = match self.source {
            Source::Any => Source::Gpu,
            _ => self.source.clone(),
        };
        let (ffn_layers, chunk_tokens) = (Some(memory.ffn_layers), memory.chunk_tokens);
        let limits = DeviceLimits { ffn_layers, chunk_tokens, ..self.limits };
        Finder { source, limits, ..self.clone() }
    }

    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// Finds a GPU. `None`: the host computes; if the search failed, a line in the log has the reason.
    pub fn find(&self) -> Result<Option<GpuOptions>, Error> {
        let device = match &self.source {
            Source::Host => return Ok(None),
            #[cfg(test)]
            Source::Given(find) => find()?,
            Source::Any | Source::Gpu => {
                match find_gpu(self.api, self.kernels.as_deref(), &mut |line| tracing::info!("{line}")) {
                    Ok(device) => device,
                    Err(error) if matches!(self.source, Source::Any) => {
                        tracing::info!("the CPU computes: {error}");
                        return Ok(None);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        Ok(Some(GpuOptions {
            device,
            limits: self.limits,
            is_required: !matches!(self.source, Source::Any),
            threads: self.threads,
            pin_threads: self.pin_threads,
        }))
    }
}
