//! The engine's device, and its memory.

use std::path::PathBuf;

use strum::{IntoStaticStr, VariantArray};

use crate::reader::{ANY, sections};

sections! {
    pub struct EngineSettings {
        pub device: DeviceChoice = choice(),
        pub kernels_path: Option<PathBuf> = optional_path(),
        pub gpu_prefill_chunk_tokens: usize = whole(64..=8192),
        pub gpu_layers: Option<usize> = whole_or_auto(0..=1000),
        pub reopen_s: u64 = time(0..=86_400),
        pub reopen_tries: u32 = whole(0..=1000),
        pub threads: usize = whole(0..=1024),
        pub pin_threads: bool = bool(),
        pub prefill_chunk_tokens: usize = whole(64..=8192),
        pub step_ms: u64 = time(0..=600_000),
        pub mmap: bool = bool(),
        pub packed_path: Option<PathBuf> = optional_path(),
        pub packed_bytes: u64 = bytes(0..=ANY),
        pub packed_min_bytes: u64 = bytes(0..=ANY),
        pub precision: PrecisionChoice = choice(),
        pub max_sequences: usize = whole(1..=1024),
        pub early_replies: usize = whole(1..=4096),
        pub early_busy: f64 = number(0.0..=1.0),
        pub max_waiting: usize = whole(1..=1 << 20),
        pub max_logit_bias: usize = whole(0..=1 << 20),
    }

    pub struct MemorySettings {
        pub total: Option<u64> = bytes_or_auto(64 << 20..=ANY),
        pub gpu_total: Option<u64> = bytes_or_auto(64 << 20..=ANY),
        pub snapshots: SnapshotFormat = choice(),
        pub snapshot_spacing_tokens: Option<usize> = whole_or_auto(16..=1 << 20),
        pub recurrence_log_tokens: usize = whole(0..=1 << 20),
        pub gpu_recurrence_log_tokens: usize = whole(0..=1 << 20),
        pub token_cache_bytes: usize = bytes(0..=1 << 40),
        pub prepare_bytes: Option<u64> = bytes_or_auto(1 << 20..=ANY),
        pub text_bytes: Option<u64> = bytes_or_auto(1 << 20..=ANY),
        pub shared_between_users: bool = bool(),
        pub heads: usize = whole(0..=1024),
        pub disk_path: Option<PathBuf> = optional_path(),
        pub disk_bytes: u64 = bytes(1 << 20..=ANY),
        pub disk_min_tokens: usize = whole(1..=1 << 20),
        pub disk_idle_s: u64 = time(0..=86_400),
        pub disk_busy_s: u64 = time(0..=86_400),
        pub idle_s: u64 = time(0..=31_536_000),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum DeviceChoice {
    Auto,
    Cpu,
    Cuda,
    Vulkan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum PrecisionChoice {
    Default,
    F32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum SnapshotFormat {
    F32,
    Bf16,
    Q8,
}

impl EngineSettings {
    pub fn chunk_tokens(&self, on_device: bool) -> usize {
        if on_device { self.gpu_prefill_chunk_tokens } else { self.prefill_chunk_tokens }
    }
}
