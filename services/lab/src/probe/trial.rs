//! One trial: all the memory that a conversation of a window takes is taken, under a limit of the system's.

use anyhow::Result;
use engine::Executor;
use engine::network::{Network, WantedLogits};
use engine::recurrence_log::RecurrenceLog;
use engine::snapshot::Snapshot;
use engine::state::{KvFormats, SequenceState};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use settings::{KvFormat, Settings};
use terminal::opening::{ModelArgs, ReadyModel, lane, lost};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    Held(Held),
    Full { why: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    /// Memory for model and conversation, with the files that are mapped; on a GPU the memory there.
    pub used_bytes: u64,
    pub kv_bytes: u64,
    pub on: ProbedDevice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbedDevice {
    Host,
    Gpu,
}

const SNAPSHOTS: usize = 2;

pub fn run(
    model: &ModelArgs,
    kv: Option<[KvFormat; 2]>,
    tokens: u32,
    memory: u64,
    settings: &Settings,
) -> Result<Trial> {
    let before = data_bytes();
    let mut settings = settings.clone();
    (settings.memory.total, settings.memory.gpu_total) = (Some(memory), settings.memory.gpu_total.or(Some(memory)));
    let ReadyModel { opened, mut executor, device, kv: preset_kv, .. } = model.open(&settings)?;
    let kv = kv.map_or(preset_kv, |[k, v]| KvFormats::new(model::kv_format(k), model::kv_format(v)));
    let network = &opened.model.network;
    let mapped: u64 =
        network.model.mapped_files().iter().filter_map(|file| Some(file.mapped_file()?.metadata().ok()?.len())).sum();
    if device.is_none() && !limit(before + memory.saturating_sub(mapped))? {
        return Ok(Trial::Full { why: "the model alone takes more".to_owned() });
    }
    let chunk = device.as_ref().map_or(settings.engine.prefill_chunk_tokens, |memory| memory.chunk_tokens);
    let (kv_bytes, own_bytes) = match take_all(network, &mut executor, kv, tokens as usize, chunk, &settings) {
        Ok(taken) => taken,
        // A GPU says that it is full.
        Err(error) if device.is_some() => return Ok(Trial::Full { why: format!("{error:#}") }),
        Err(error) => return Err(error),
    };
    let (used_bytes, on) = match executor.device_used_bytes() {
        Some(bytes) => (bytes as u64, ProbedDevice::Gpu),
        None => (own_bytes.saturating_sub(before) + mapped, ProbedDevice::Host),
    };
    Ok(Trial::Held(Held { used_bytes, kv_bytes, on }))
}

/// Allows this process so much memory of its own. False: it has more already.
fn limit(bytes: u64) -> Result<bool> {
    let hard = getrlimit(Resource::Data).maximum;
    setrlimit(Resource::Data, Rlimit { current: Some(bytes.min(hard.unwrap_or(u64::MAX))), maximum: hard })?;
    Ok(data_bytes() <= bytes)
}

/// Private memory of this process, as the limit counts it.
fn data_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Takes the state, snapshots, log and pages of a full window, and computes a chunk at its begin and a token at its end. Returns
/// the bytes of pages, and the memory of the process.
fn take_all(
    network: &Network,
    executor: &mut Executor,
    kv: KvFormats,
    tokens: usize,
    chunk: usize,
    settings: &Settings,
) -> Result<(u64, u64)> {
    let (shape, meter) = (&network.state_shape, executor.meter());
    let mut state = SequenceState::new(*shape, kv, &meter)?;
    let limits = model::limits(settings, network.precision, executor.cpu().is_none());
    let mut log = RecurrenceLog::new(shape, limits.recurrence_log_tokens, &meter);
    log.begin(0, limits.recurrence_log_tokens);
    let snapshots: Vec<Snapshot> =
        (0..SNAPSHOTS).map(|_| Snapshot::unwritten(0, shape, limits.snapshots, &meter)).collect();
    let first: Vec<u32> = (0..chunk.min(tokens)).map(|at| (at % 100) as u32).collect();
    let mut feed = |state: &mut SequenceState, tokens: &[u32]| match executor
        .forward(network, &mut [lane(state, tokens, WantedLogits::Last)])
    {
        Some(_) => Ok(()),
        None => Err(lost(executor)),
    };
    feed(&mut state, &first)?;
    state.reserve(tokens - state.position);
    if state.position < tokens {
        state.position = tokens - 1;
        feed(&mut state, &first[..1])?;
    }
    let pages = state.pages.len() * shape.page_bytes(&state.layout);
    let own_bytes = data_bytes();
    // Up to here all of it was there at the same time.
    drop((snapshots, log));
    Ok((pages as u64, own_bytes))
}
