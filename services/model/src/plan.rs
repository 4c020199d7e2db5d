//! Memory plan, made before any computation and printed at start.

mod screen;
mod windows;

pub use screen::Bytes;
pub use windows::{Cell, windows};

use crate::engine_options::{kv_formats, limits, native_ctx};
use crate::error::{Error, NoRoom};
use crate::machine::total_bytes;
use engine::model_bytes::{host_weight_bytes, scratch_bytes};
use engine::network::Network;
use engine::state::{KvFormats, PAGE_TOKENS, StateShape};
use engine::{DeviceMemoryPlan, EngineLimits, MOST_SCORED_TOKENS, Precision};
use settings::{Preset, Settings};
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub total_bytes: u64,
    /// Memory of the program, with its threads, its store and some connections.
    pub process_bytes: u64,
    /// Memory that allocators hold and do not use.
    pub unused_bytes: u64,
    pub weight_bytes: u64,
    pub scratch_bytes: u64,
    pub vocabulary_bytes: u64,
    pub token_cache_bytes: u64,
    pub prepare_bytes: u64,
    pub text_bytes: u64,
    /// Limit of simultaneous sequences; a state of `sequence_bytes` is in each, and in the bytes of a window.
    pub sequences: usize,
    pub sequence_bytes: u64,
    pub left_bytes: u64,
    pub snapshot_spacing_tokens: usize,
    pub snapshots: &'static str,
    pub snapshot_bytes: u64,
    pub windows: Vec<Window>,
    pub device: Option<DeviceMemoryPlan>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    pub preset: String,
    pub ctx_size: u32,
    pub bytes: u64,
    pub fit: u64,
    pub chosen: bool,
}

/// Plans the memory. `presets` are those that clients may choose; the chosen one must fit. `device`: the device with
/// the model, if it is not the host.
pub fn plan<'p>(
    settings: &Settings,
    network: &Network,
    device: Option<&DeviceMemoryPlan>,
    file: &Path,
    chosen: &Preset,
    presets: impl IntoIterator<Item = &'p Preset>,
) -> Result<Plan, Error> {
    let mut plan = Plan::without_windows(settings, network, device, chosen.ctx_size);
    let state = &network.state_shape;
    let limits = plan.limits_there(settings, network.precision);
    let native_ctx = native_ctx(network, file)?;
    let of = |preset: &Preset| -> Result<Window, Error> {
        let kv = kv_formats(preset, network.precision);
        let bytes = limits.bytes_of(state, kv, preset.ctx_size as usize)? as u64;
        let fit = plan.left_bytes / bytes.max(1);
        let (name, ctx_size) = (preset.name.clone(), preset.ctx_size);
        Ok(Window { preset: name, ctx_size, bytes, fit, chosen: preset.name == chosen.name })
    };
    let mut windows: Vec<Window> =
        presets.into_iter().filter(|preset| preset.ctx_size <= native_ctx).map(of).collect::<Result<_, _>>()?;
    windows.sort_by(|a, b| (a.ctx_size, &a.preset).cmp(&(b.ctx_size, &b.preset)));
    let own = of(chosen)?;
    if own.fit == 0 {
        let key = if device.is_none() { "memory.total" } else { "memory.gpu_total" };
        let pages = pages_that_fit(state, &limits, kv_formats(chosen, network.precision), plan.left_bytes)?;
        let fits_tokens = u32::try_from(pages * PAGE_TOKENS).unwrap_or(u32::MAX);
        let smaller = windows.iter().rev().find(|window| window.fit > 0);
        let advice = match smaller {
            Some(window) => {
                format!("choose preset {} ({} tokens), or give more memory", window.preset, window.ctx_size)
            }
            None if fits_tokens > 0 => format!("choose a window of at most {fits_tokens} tokens, or give more memory"),
            None => "choose a smaller model, fewer engine.max_sequences, or give more memory".to_owned(),
        };
        return Err(Box::new(NoRoom {
            preset: chosen.name.clone(),
            ctx_size: chosen.ctx_size,
            needed: Bytes(own.bytes).to_string(),
            key,
            fixed: Bytes(plan.fixed_there_bytes()).to_string(),
            left: Bytes(plan.left_bytes).to_string(),
            advice,
            fits_tokens,
        })
        .into());
    }
    plan.windows = windows;
    Ok(plan)
}

/// Returns the spacing of snapshots: a page, or so far apart that those of a full window take a quarter of the rest.
/// The cache thins out further ones by their use.
fn spacing(shape: &StateShape, limits: &EngineLimits, ctx_size: usize, left_bytes: u64) -> usize {
    let room = (left_bytes / 4 / shape.snapshot_bytes(limits.snapshots).max(1) as u64).max(1);
    let tokens = (ctx_size as u64).div_ceil(room);
    usize::try_from(tokens).unwrap_or(ctx_size).next_multiple_of(PAGE_TOKENS)
}

fn pages_that_fit(
    shape: &StateShape,
    limits: &EngineLimits,
    kv: KvFormats,
    bytes: u64,
) -> Result<usize, engine::Error> {
    let page = shape.page_bytes(&shape.layout(kv)?) as u64;
    let without = limits.bytes_of(shape, kv, 0)? as u64;
    Ok(usize::try_from(bytes.saturating_sub(without) / page.max(1)).unwrap_or(usize::MAX))
}

/// Memory of the program: of a service with the built-in model and an empty cache, 34 MiB of the program's file, which the
/// system may take back, 4 MiB of libraries' and 10 MiB of heaps, stacks and the store's pages.
const PROCESS_BYTES: u64 = 48 << 20;

/// Divisor of the ceiling for pieces that allocators leave unused, and the most that they leave: large pieces are mappings of
/// their own, and the small ones do not grow with the machine. Under 1 GiB the heaviest requests, four at a time, left 30 MiB.
const ALLOCATOR_SHARE: u64 = 20;
const MOST_UNUSED_BYTES: u64 = 64 << 20; // not a window: bytes

/// Bytes for a token of the vocabulary: resident memory after the start of a model with 248,320 tokens, divided by
/// them.
const BYTES_OF_A_TOKEN: usize = 450;

impl Plan {
    /// Lists the shares of the memory by their name, and their `total`.
    pub fn shares(&self) -> Vec<(&'static str, u64)> {
        let program = self.process_bytes + self.scratch_bytes + self.vocabulary_bytes + self.token_cache_bytes;
        let requests = self.prepare_bytes + self.text_bytes;
        let live = self.sequences as u64 * self.sequence_bytes;
        let shares = [("program", program), ("weights", self.weight_bytes), ("requests", requests), ("live", live)];
        shares.into_iter().chain([("kept", self.left_bytes), ("total", self.total_bytes)]).collect()
    }

    fn without_windows(
        settings: &Settings,
        network: &Network,
        device: Option<&DeviceMemoryPlan>,
        ctx_size: u32,
    ) -> Plan {
        let total_bytes = total_bytes(settings);
        let sequences = settings.engine.max_sequences;
        let state = &network.state_shape;
        // Every sequence that decodes beside the others adds a row to a step.
        let rows = settings.engine.prefill_chunk_tokens + sequences;
        let limits = limits(settings, network.precision, device.map(|device| device.memory));
        let wanted = sequences + MOST_SCORED_TOKENS;
        // Weights on a device take no memory here: a mapped file's pages are the system's.
        let (weights, scratch) = match device {
            None => (host_weight_bytes(&network.model, network.precision), scratch_bytes(network, rows, wanted)),
            Some(device) if device.host_bytes == 0 => (0, 0),
            Some(device) => (device.host_bytes, scratch_bytes(network, device.chunk_tokens + sequences, 0)),
        };
        let mut plan = Plan {
            total_bytes,
            process_bytes: PROCESS_BYTES,
            unused_bytes: (total_bytes / ALLOCATOR_SHARE).min(MOST_UNUSED_BYTES),
            weight_bytes: weights as u64,
            scratch_bytes: scratch as u64,
            vocabulary_bytes: (network.shape().vocab * BYTES_OF_A_TOKEN) as u64,
            token_cache_bytes: settings.memory.token_cache_bytes as u64,
            prepare_bytes: prepare_bytes(settings),
            text_bytes: text_bytes(settings),
            sequences,
            sequence_bytes: state.fixed_bytes() as u64,
            left_bytes: 0,
            snapshot_spacing_tokens: 0,
            snapshots: limits.snapshots.name(),
            snapshot_bytes: state.snapshot_bytes(limits.snapshots) as u64,
            windows: Vec::new(),
            device: device.cloned(),
        };
        let kept_bytes = match device {
            None => total_bytes.saturating_sub(plan.fixed_bytes()),
            Some(device) => device.left_bytes as u64,
        };
        plan.left_bytes = kept_bytes;
        plan.snapshot_spacing_tokens = match settings.memory.snapshot_spacing_tokens {
            Some(tokens) => tokens,
            None => spacing(state, &limits, ctx_size as usize, plan.left_bytes),
        };
        plan
    }

    fn fixed_bytes(&self) -> u64 {
        let texts = self.vocabulary_bytes + self.token_cache_bytes + self.prepare_bytes + self.text_bytes;
        self.process_bytes + self.unused_bytes + self.weight_bytes + self.scratch_bytes + texts
    }

    fn fixed_there_bytes(&self) -> u64 {
        match &self.device {
            None => self.fixed_bytes(),
            Some(device) => (device.weight_bytes + device.scratch_bytes) as u64,
        }
    }

    pub fn limits(&self, settings: &Settings, precision: Precision) -> EngineLimits {
        EngineLimits {
            memory_bytes: usize::try_from(self.engine_bytes()).unwrap_or(usize::MAX),
            snapshot_spacing_tokens: self.snapshot_spacing_tokens,
            ..self.limits_there(settings, precision)
        }
    }

    fn limits_there(&self, settings: &Settings, precision: Precision) -> EngineLimits {
        let limits = limits(settings, precision, self.device.as_ref().map(|device| device.memory));
        let host_bytes = usize::try_from(self.total_bytes.saturating_sub(self.fixed_bytes())).unwrap_or(usize::MAX);
        let moved_snapshot_bytes = limits.moved_snapshot_bytes.min(host_bytes);
        let chunk_tokens = self.device.as_ref().map_or(limits.prefill_chunk_tokens, |device| device.chunk_tokens);
        EngineLimits { prefill_chunk_tokens: chunk_tokens, moved_snapshot_bytes, ..limits }
    }

    pub fn engine_bytes(&self) -> u64 {
        self.left_bytes
    }
}

pub(crate) fn prepare_bytes(settings: &Settings) -> u64 {
    settings.memory.prepare_bytes.unwrap_or_else(|| total_bytes(settings) / 16)
}

pub fn text_bytes(settings: &Settings) -> u64 {
    settings.memory.text_bytes.unwrap_or_else(|| total_bytes(settings) / 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Finder;
    use crate::opened;
    use settings::{Flag, Sources};

    const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/reference/dense-tied");

    fn settings(flags: &[(&str, &str)]) -> Settings {
        let mut all = vec![Flag::new("--model", "model.path", MODEL)];
        all.extend(flags.iter().map(|(key, value)| Flag::new("--set", key, value)));
        Settings::load(&Sources { flags: all, ..Sources::default() }).unwrap().settings
    }

    fn planned(flags: &[(&str, &str)]) -> Result<Plan, Error> {
        let settings = settings(flags);
        let model = opened::open_on(&Finder::host(&settings), &settings, "default", Precision::Integer, &mut |_, _| ())
            .unwrap();
        plan(&settings, &model.model.network, None, &model.file, &model.preset, [&model.preset])
    }

    #[test]
    fn the_parts_are_the_whole() {
        let plan = planned(&[("memory.total", "1GiB"), ("engine.max_sequences", "3")]).unwrap();
        assert_eq!(plan.fixed_bytes() + plan.engine_bytes(), 1 << 30);
        assert!(plan.weight_bytes > 0 && plan.scratch_bytes > 0 && plan.sequence_bytes > 0);
        let window = &plan.windows[0];
        assert!(window.chosen && window.fit == plan.left_bytes / window.bytes);
        let table = plan.to_string();
        assert!(table.contains("1.0 GiB  memory.total") && table.contains("full conversations fit"), "{table}");
    }

    #[test]
    fn a_window_that_cannot_fit_is_refused_with_advice() {
        let error =
            planned(&[("memory.total", "64MiB"), ("memory.token_cache_bytes", "63MiB")]).unwrap_err().to_string();
        assert!(
            error.contains("the window of preset default does not fit") && error.contains("more memory"),
            "{error}"
        );
    }

    #[test]
    fn states_to_come_back_to_lie_further_apart_where_memory_is_short() {
        let of = |total, cache| {
            let more = [("memory.snapshots", "f32"), ("memory.recurrence_log_tokens", "0")];
            planned(&[("memory.total", total), ("memory.token_cache_bytes", cache), more[0], more[1]]).unwrap()
        };
        assert_eq!(of("1GiB", "0").snapshot_spacing_tokens, PAGE_TOKENS);
        // Less than two MiB are left, of which a window takes more than one.
        let short = of("79MiB", "14177000");
        assert!(short.snapshot_spacing_tokens > PAGE_TOKENS, "{short}");
        let snapshots = u64::from(short.windows[0].ctx_size) / short.snapshot_spacing_tokens as u64;
        assert!(snapshots * short.snapshot_bytes <= short.left_bytes / 4, "{short}");
        let asked = planned(&[("memory.total", "1GiB"), ("memory.snapshot_spacing_tokens", "100")]).unwrap();
        assert_eq!(asked.snapshot_spacing_tokens, 100);
    }

    #[test]
    fn a_device_has_its_own_ceiling() {
        let settings = settings(&[("memory.total", "256MiB")]);
        let model = opened::open_on(&Finder::host(&settings), &settings, "default", Precision::Integer, &mut |_, _| ())
            .unwrap();
        let mut device = DeviceMemoryPlan {
            name: "a card".to_owned(),
            total_bytes: 100 << 20,
            weight_bytes: 30 << 20,
            scratch_bytes: 20 << 20,
            chunk_tokens: 512,
            left_bytes: 50 << 20,
            ffn_layers: 4,
            layers: 4,
            memory: engine::GpuMemory::Separate,
            host_bytes: 0,
        };
        let of = |device: &DeviceMemoryPlan| {
            plan(&settings, &model.model.network, Some(device), &model.file, &model.preset, [&model.preset])
        };
        let planned = of(&device).unwrap();
        assert_eq!((planned.engine_bytes(), planned.weight_bytes), (50 << 20, 0));
        let limits = planned.limits(&settings, Precision::Integer);
        assert_eq!(limits.prefill_chunk_tokens, 512, "the plan's choice");
        let table = planned.to_string();
        assert!(table.contains("on a card") && table.contains("100.0 MiB  memory.gpu_total"), "{table}");
        device.left_bytes = 1 << 20;
        let error = of(&device).unwrap_err().to_string();
        assert!(error.contains("memory.gpu_total leaves") && error.contains("does not fit"), "{error}");
    }
}
