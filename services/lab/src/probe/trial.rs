//! One trial: all the memory that a conversation of a window takes is taken, under a limit of the system's.

use anyhow::Result;
use engine::Executor;
use engine::network::{Network, WantedLogits};
use engine::recurrence_log::RecurrenceLog;
use engine::snapshot::Snapshot;
use engine::state::{KvFormats, SequenceState};
use model::{Bytes, Finder};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use settings::{KvFormat, Settings};
use std::sync::Barrier;
use terminal::opening::{ModelArgs, ReadyModel, lane, lost};

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    Held(Held),
    Full { on: ProbedDevice, why: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    /// Memory for model and conversation, with the files that are mapped; on a GPU the memory there.
    pub used_bytes: u64,
    pub kv_bytes: u64,
    pub on: ProbedDevice,
    /// Layers that the GPU computes alone, and all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<[usize; 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbedDevice {
    Host,
    Gpu,
}

/// Threads that run beside those of the kernels while a model is opened.
const BESIDE_KERNELS: usize = 2;

/// Rooms of a trial: what the host has for model and conversation, and what a GPU has.
#[derive(Clone, Copy, Debug)]
pub struct Rooms {
    pub host_bytes: u64,
    pub gpu_bytes: u64,
}

impl Rooms {
    pub fn of(self, on: ProbedDevice) -> u64 {
        match on {
            ProbedDevice::Host => self.host_bytes,
            ProbedDevice::Gpu => self.gpu_bytes,
        }
    }
}

pub fn run(args: &ModelArgs, kv: [KvFormat; 2], tokens: u32, rooms: Rooms, settings: &Settings) -> Result<Trial> {
    take_stacks();
    let before = data_bytes();
    let memory = rooms.host_bytes;
    let mut settings = settings.clone();
    settings.memory.total = Some(memory);
    settings.memory.gpu_total = Some(settings.memory.gpu_total.unwrap_or(u64::MAX).min(rooms.gpu_bytes));
    // A GPU's share is planned for the preset's window.
    let name = args.model.as_deref().unwrap_or(&settings.model.preset);
    let (_, mut preset) = model::resolve(&settings, name)?;
    (preset.ctx_size, [preset.kv.k, preset.kv.v]) = (tokens, kv);
    settings.presets.insert(preset.name.clone(), preset);
    let ReadyModel { opened, mut executor, device, .. } = args.open(&settings)?;
    let kv = KvFormats::new(model::kv_format(kv[0]), model::kv_format(kv[1]));
    // A model without room there would be computed by the host, as in a service.
    if device.is_none() && Finder::new(&settings).find()?.is_some() {
        return Ok(Trial::Full { on: ProbedDevice::Gpu, why: "the GPU has no room for it".to_owned() });
    }
    let network = &opened.model.network;
    let mapped: u64 =
        network.model.mapped_files().iter().filter_map(|file| Some(file.mapped_file()?.metadata().ok()?.len())).sum();
    if device.is_none() && !limit(before + memory.saturating_sub(mapped))? {
        return Ok(Trial::Full { on: ProbedDevice::Host, why: "the model alone takes more".to_owned() });
    }
    let layers = device.as_ref().map(|memory| [memory.ffn_layers, memory.layers]);
    if let (Some([there, all]), None) = (layers, settings.engine.gpu_layers)
        && there < all
    {
        let why = format!("only {there} of {all} layers fit beside it");
        return Ok(Trial::Full { on: ProbedDevice::Gpu, why });
    }
    let chunk = device.as_ref().map_or(settings.engine.prefill_chunk_tokens, |memory| memory.chunk_tokens);
    let Taken { kv_bytes, own_bytes, device_bytes } =
        match take_all(network, &mut executor, kv, tokens as usize, chunk, &settings) {
            Ok(taken) => taken,
            // A GPU says that it is full.
            Err(error) if device.is_some() => {
                return Ok(Trial::Full { on: ProbedDevice::Gpu, why: format!("{error:#}") });
            }
            Err(error) => return Err(error),
        };
    let (used_bytes, on) = match device_bytes {
        Some(bytes) => (bytes as u64, ProbedDevice::Gpu),
        None => (own_bytes.saturating_sub(before) + mapped, ProbedDevice::Host),
    };
    if on == ProbedDevice::Gpu && used_bytes > rooms.gpu_bytes {
        let why = format!("takes {} of {}", Bytes(used_bytes), Bytes(rooms.gpu_bytes));
        return Ok(Trial::Full { on, why });
    }
    Ok(Trial::Held(Held { used_bytes, kv_bytes, on, layers }))
}

/// Takes the stacks of all threads that a trial starts: a plan counts them with the program. The system's library keeps the
/// stacks of threads that ended for later ones.
fn take_stacks() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) + BESIDE_KERNELS;
    let all_run = Barrier::new(threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| all_run.wait());
        }
    });
}

/// Room below which nothing is tried: a thread that finds none at its start may wait for itself in the runtime's own message.
const LEAST_ROOM: u64 = 256 << 10; // not a window: bytes

/// Allows this process so much memory of its own. False: it has more already, or nearly.
fn limit(bytes: u64) -> Result<bool> {
    if data_bytes() + LEAST_ROOM > bytes {
        return Ok(false);
    }
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

struct Taken {
    kv_bytes: u64,
    own_bytes: u64, // of the process
    device_bytes: Option<usize>,
}

/// Takes the state, snapshots, log and pages of a full window, and computes a chunk at its begin and a token at its end.
fn take_all(
    network: &Network,
    executor: &mut Executor,
    kv: KvFormats,
    tokens: usize,
    chunk: usize,
    settings: &Settings,
) -> Result<Taken> {
    let (shape, meter) = (&network.state_shape, executor.meter());
    let mut state = SequenceState::new(*shape, kv, &meter)?;
    let gpu = meter.device().map(|device| device.capabilities().memory);
    let limits = model::limits(settings, network.precision, gpu);
    let mut log = RecurrenceLog::new(shape, limits.recurrence_log_tokens, &meter);
    log.begin(0, limits.recurrence_log_tokens);
    let snapshots: Vec<Snapshot> =
        (0..limits.snapshots_at_once(shape)).map(|_| Snapshot::unwritten(0, shape, limits.snapshots, &meter)).collect();
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
    let taken = Taken { kv_bytes: pages as u64, own_bytes: data_bytes(), device_bytes: executor.device_used_bytes() };
    // Up to here all of it was there at the same time.
    drop((snapshots, log));
    Ok(taken)
}
