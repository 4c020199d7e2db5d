//! Conversions from settings, presets and requests to the engine's options.

use crate::error::Error;
use crate::machine::total_bytes;
use engine::network::Network;
use engine::open::{ModelOptions, PackedFolder};
use engine::sampling::SamplingOptions;
use engine::state::{KvFormats, PAGE_TOKENS};
use engine::{DraftLimits, EngineLimits, Format, GpuApi, GpuMemory, LongestConversation, Precision};
use session::SamplingOverrides;
use session::sentences::SentenceLimits;
use settings::{DeviceChoice, KvFormat, KvRotation, Preset, Settings, SnapshotFormat, Thinking};
use std::path::Path;

pub fn open_options(settings: &Settings, precision: Precision) -> ModelOptions {
    let engine = &settings.engine;
    let packed = engine.packed_path.as_ref().map(|path| PackedFolder {
        path: path.clone(),
        max_bytes: engine.packed_bytes,
        min_bytes: engine.packed_min_bytes,
    });
    let token_cache_bytes = settings.memory.token_cache_bytes;
    let prediction = settings.draft.mtp > 0;
    let adapters = settings.model.lora.iter().map(|adapter| (adapter.path.clone(), adapter.scale)).collect();
    ModelOptions { mmap: engine.mmap, precision, token_cache_bytes, packed, prediction, yarn: 1.0, adapters, gpu: None }
}

pub fn drafts(settings: &Settings) -> DraftLimits {
    let draft = &settings.draft;
    DraftLimits { ngram: draft.ngram, tokens: draft.tokens, mtp: draft.mtp, mtp_vocab: draft.mtp_vocab }
}

// Divisor of `memory.total` for snapshots that a GPU has no room for.
const MOVED_SNAPSHOTS_PART: u64 = 8;

/// Returns the engine's limits from the settings. The memory plan adds bytes and spacing.
pub fn limits(settings: &Settings, precision: Precision, gpu: Option<GpuMemory>) -> EngineLimits {
    let (engine, memory) = (&settings.engine, &settings.memory);
    EngineLimits {
        prefill_chunk_tokens: engine.chunk_tokens(gpu.is_some()),
        max_sequences: settings.engine.max_sequences,
        max_waiting: settings.engine.max_waiting,
        max_logit_bias: settings.engine.max_logit_bias,
        memory_bytes: usize::MAX,
        moved_snapshot_bytes: match gpu {
            Some(GpuMemory::Separate) => {
                usize::try_from(total_bytes(settings) / MOVED_SNAPSHOTS_PART).unwrap_or(usize::MAX)
            }
            _ => 0,
        },
        snapshots: match precision {
            Precision::F32 => Format::F32,
            Precision::Integer => snapshot_format(memory.snapshots),
        },
        snapshot_spacing_tokens: PAGE_TOKENS,
        recurrence_log_tokens: match gpu {
            Some(_) => memory.gpu_recurrence_log_tokens,
            None => memory.recurrence_log_tokens,
        },
        heads: memory.heads,
    }
}

pub fn longest(settings: &Settings, preset: &Preset, precision: Precision) -> LongestConversation {
    let (kv, tokens) = (kv_formats(preset, precision), preset.ctx_size as usize);
    LongestConversation { limits: limits(settings, precision, Some(GpuMemory::Separate)), kv, tokens }
}

pub fn precision(settings: &Settings) -> Precision {
    match settings.engine.precision {
        settings::PrecisionChoice::Default => Precision::Integer,
        settings::PrecisionChoice::F32 => Precision::F32,
    }
}

/// Returns the formats of keys and values. The reference precision rounds nothing, so its cache does not either.
pub fn kv_formats(preset: &Preset, precision: Precision) -> KvFormats {
    match precision {
        Precision::F32 => KvFormats::new(Format::F32, Format::F32),
        Precision::Integer => {
            let formats = KvFormats::new(kv_format(preset.kv.k), kv_format(preset.kv.v));
            match preset.kv.rotation {
                KvRotation::Auto => formats,
                KvRotation::On => formats.with_rotation(true),
                KvRotation::Off => formats.with_rotation(false),
            }
        }
    }
}

/// Returns the interface of the GPU that the configuration asks for; that of "auto" is CUDA.
pub fn gpu_api(device: DeviceChoice) -> GpuApi {
    match device {
        DeviceChoice::Auto | DeviceChoice::Cpu | DeviceChoice::Cuda => GpuApi::Cuda,
        DeviceChoice::Vulkan => GpuApi::Vulkan,
    }
}

pub fn kv_format(format: KvFormat) -> Format {
    match format {
        KvFormat::F32 => Format::F32,
        KvFormat::F16 => Format::F16,
        KvFormat::Bf16 => Format::BF16,
        KvFormat::Q8 => Format::Q8_0,
        KvFormat::Q4 => Format::Q4_0,
        KvFormat::Tq4 => Format::TQ4,
        KvFormat::Tq3 => Format::TQ3,
    }
}

fn snapshot_format(format: SnapshotFormat) -> Format {
    match format {
        SnapshotFormat::F32 => Format::F32,
        SnapshotFormat::Bf16 => Format::BF16,
        SnapshotFormat::Q8 => Format::Q8_0,
    }
}

pub fn sampling(preset: &Preset, thinking: bool, overrides: &SamplingOverrides) -> SamplingOptions {
    let preset = preset.sampling_for(thinking);
    SamplingOptions {
        temperature: overrides.temperature.unwrap_or(preset.temperature),
        top_p: overrides.top_p.unwrap_or(preset.top_p),
        top_k: overrides.top_k.unwrap_or(preset.top_k) as usize,
        min_p: overrides.min_p.unwrap_or(preset.min_p),
        presence_penalty: overrides.presence_penalty.unwrap_or(preset.presence_penalty),
        frequency_penalty: overrides.frequency_penalty.unwrap_or(preset.frequency_penalty),
        repetition_penalty: overrides.repetition_penalty.unwrap_or(preset.repetition_penalty),
        logit_bias: overrides.logit_bias.clone(),
        ..SamplingOptions::default()
    }
}

/// Returns the options of thinking. `open`: the prompt ends inside a think block. Without thinking its end is forced at
/// once, also if a template knows no such switch or the model begins to think by itself.
pub fn thinking(thinking: Thinking, open: bool) -> engine::ThinkingOptions {
    engine::ThinkingOptions { open, budget_tokens: thinking.budget_tokens() }
}

pub(crate) fn native_ctx(network: &Network, file: &Path) -> Result<u32, Error> {
    let native_ctx = network.shape().native_ctx;
    u32::try_from(native_ctx).map_err(|_| Error::Window { file: file.to_path_buf(), native_ctx })
}

pub(crate) fn sentence_limits(settings: &Settings) -> SentenceLimits {
    SentenceLimits {
        first_clause_chars: settings.speech.first_clause_chars,
        max_sentence_chars: settings.speech.max_sentence_chars,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strum::VariantArray;

    #[test]
    fn every_format_of_the_configuration_is_one_that_the_engine_keeps() {
        let kv: Vec<Format> = KvFormat::VARIANTS.iter().map(|format| kv_format(*format)).collect();
        assert_eq!(kv, KvFormats::ALLOWED);
        let snapshots: Vec<Format> = SnapshotFormat::VARIANTS.iter().map(|format| snapshot_format(*format)).collect();
        assert_eq!(snapshots, engine::snapshot::FORMATS);
    }
}
