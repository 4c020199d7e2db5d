//! What computes, and the memory it may take.

use std::path::PathBuf;

use super::{ANY, unless_empty};
use crate::reader::{SectionReader, WordSet};
use crate::units::TimeUnit;

#[derive(Clone, Debug, PartialEq)]
pub struct EngineSettings {
    pub device: DeviceChoice,
    /// None: kernels are compiled at each start.
    pub kernels_path: Option<PathBuf>,
    pub gpu_prefill_chunk_tokens: usize,
    /// None: as many as fit.
    pub gpu_layers: Option<usize>,
    pub reopen_s: u64,
    pub reopen_tries: u32,
    /// 0: all cores.
    pub threads: usize,
    pub pin_threads: bool,
    pub prefill_chunk_tokens: usize,
    pub mmap: bool,
    /// None: each start packs.
    pub packed_path: Option<PathBuf>,
    pub packed_bytes: u64,
    pub packed_min_bytes: u64,
    pub precision: PrecisionChoice,
    pub max_sequences: usize,
    pub max_waiting: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    Auto,
    Cpu,
    Cuda,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrecisionChoice {
    Default,
    F32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct MemorySettings {
    pub total: MemoryTotal,
    /// None: nine tenths of what is free when the service starts.
    pub gpu_total: Option<u64>,
    pub snapshots: SnapshotFormat,
    /// None: the memory plan chooses.
    pub snapshot_spacing_tokens: Option<usize>,
    pub trail_tokens: usize,
    pub token_cache_bytes: usize,
    /// None: nothing is kept on disk.
    pub disk_path: Option<PathBuf>,
    pub disk_bytes: u64,
    pub disk_min_tokens: usize,
    pub disk_idle_s: u64,
    pub disk_busy_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotFormat {
    F32,
    Bf16,
    Q8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryTotal {
    /// Three quarters of the machine's memory.
    Auto,
    Bytes(u64),
}

impl EngineSettings {
    /// Tokens of a prompt that are computed together, on a GPU or on the host.
    pub fn chunk_tokens(&self, on_device: bool) -> usize {
        if on_device { self.gpu_prefill_chunk_tokens } else { self.prefill_chunk_tokens }
    }

    pub(super) fn read(r: &SectionReader<'_>) -> EngineSettings {
        EngineSettings {
            device: r.choice("device"),
            kernels_path: unless_empty(r.text("kernels_path")).map(PathBuf::from),
            gpu_prefill_chunk_tokens: r.whole("gpu_prefill_chunk_tokens", 64..=8192),
            gpu_layers: r.whole_or_auto("gpu_layers", 0..=1000),
            reopen_s: r.time("reopen_s", TimeUnit::Seconds, 0..=86_400),
            reopen_tries: r.whole("reopen_tries", 0..=1000),
            threads: r.whole("threads", 0..=1024),
            pin_threads: r.bool("pin_threads"),
            prefill_chunk_tokens: r.whole("prefill_chunk_tokens", 64..=8192),
            mmap: r.bool("mmap"),
            packed_path: unless_empty(r.text("packed_path")).map(PathBuf::from),
            packed_bytes: r.bytes("packed_bytes", 0..=ANY),
            packed_min_bytes: r.bytes("packed_min_bytes", 0..=ANY),
            precision: r.choice("precision"),
            max_sequences: r.whole("max_sequences", 1..=1024),
            max_waiting: r.whole("max_waiting", 1..=1 << 20),
        }
    }
}

impl MemorySettings {
    pub(super) fn read(r: &SectionReader<'_>) -> MemorySettings {
        let total = r.bytes_or_auto("total", 64 << 20..=ANY);
        MemorySettings {
            total: total.map_or(MemoryTotal::Auto, MemoryTotal::Bytes),
            gpu_total: r.bytes_or_auto("gpu_total", 64 << 20..=ANY),
            snapshots: r.choice("snapshots"),
            snapshot_spacing_tokens: r.whole_or_auto("snapshot_spacing_tokens", 16..=1 << 20),
            trail_tokens: r.whole("trail_tokens", 0..=1 << 20),
            token_cache_bytes: r.bytes("token_cache_bytes", 0..=1 << 40),
            disk_path: unless_empty(r.text("disk_path")).map(PathBuf::from),
            disk_bytes: r.bytes("disk_bytes", 1 << 20..=ANY),
            disk_min_tokens: r.whole("disk_min_tokens", 1..=1 << 20),
            disk_idle_s: r.time("disk_idle_s", TimeUnit::Seconds, 0..=86_400),
            disk_busy_s: r.time("disk_busy_s", TimeUnit::Seconds, 0..=86_400),
        }
    }
}

impl SnapshotFormat {
    pub fn name(self) -> &'static str {
        <Self as WordSet>::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

impl WordSet for SnapshotFormat {
    const ALL: &'static [(&'static str, Self)] =
        &[("f32", SnapshotFormat::F32), ("bf16", SnapshotFormat::Bf16), ("q8", SnapshotFormat::Q8)];
}

impl WordSet for DeviceChoice {
    const ALL: &'static [(&'static str, DeviceChoice)] =
        &[("auto", DeviceChoice::Auto), ("cpu", DeviceChoice::Cpu), ("cuda", DeviceChoice::Cuda)];
}

impl WordSet for PrecisionChoice {
    const ALL: &'static [(&'static str, Self)] =
        &[("default", PrecisionChoice::Default), ("f32", PrecisionChoice::F32)];
}
