//! Where sequences are computed: on the host's processors, or on a GPU that has everything that is kept of sequences and the
//! weights, but for feed-forward parts that have no room there and that the host computes. What is kept, and when it is gone back to, knows only this.

use gpu::Device;
use gpu::device::Processors;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use weights::{Matrix, Model, Reading};

use crate::error::Error;
use crate::gpu_network::{GpuNetwork, GpuWorkspace, HostFfn, device_bytes, ffn_bytes, scratch_bytes};
use crate::limits::EngineLimits;
use crate::memory::MemoryMeter;
use crate::network::{Network, StepLane, Workspace};
use crate::open::host_bytes;
use crate::recurrence_log::RecurrenceLog;
use crate::state::{KvFormats, SequenceState, StateShape};

/// How much of a device may be used, and for steps of which size.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Of its memory, for everything. None: a tenth of what is free stays free, for other programs.
    pub total_bytes: Option<usize>,
    /// Tokens of a step, and sequences among which they are.
    pub rows: usize,
    pub lanes: usize,
    /// Layers whose feed-forward parts lie there; the host computes those of the rest. None: as many as leave room for
    /// `longest`.
    pub ffn_layers: Option<usize>,
    pub longest: Option<LongestConversation>,
}

/// A conversation for which there has to be room.
#[derive(Clone, Copy, Debug)]
pub struct LongestConversation {
    pub limits: EngineLimits,
    pub kv: KvFormats,
    /// No more than the model's window.
    pub tokens: usize,
}

/// What a plan has to know of a device, there or not.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    pub name: String,
    pub free_bytes: usize,
    pub processors: Processors,
}

impl DeviceFacts {
    pub fn of(device: &Device) -> Result<DeviceFacts, Error> {
        let properties = device.properties()?;
        Ok(DeviceFacts { name: properties.name, free_bytes: properties.free_bytes, processors: device.processors() })
    }

    /// One of which only its memory is known. With as many processors as the largest have: what steps take grows with them.
    pub fn imagined(bytes: usize) -> DeviceFacts {
        let processors = Processors { count: 192, shared_bytes: 99 << 10 };
        DeviceFacts { name: format!("a GPU with {} MiB", bytes >> 20), free_bytes: bytes, processors }
    }
}

/// Where a device's memory goes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMemoryPlan {
    pub name: String,
    pub total_bytes: usize,
    pub weight_bytes: usize,
    /// Buffers of one step.
    pub scratch_bytes: usize,
    /// For sequences.
    pub left_bytes: usize,
    /// Layers whose feed-forward parts lie there, and all.
    pub ffn_layers: usize,
    pub layers: usize,
    /// Weights that the host computes with.
    pub host_bytes: usize,
}

impl DeviceMemoryPlan {
    /// Before anything is copied. A model that leaves nothing for a sequence is refused.
    pub fn new(
        card: &DeviceFacts,
        model: &Model,
        precision: Precision,
        limits: &DeviceLimits,
    ) -> Result<DeviceMemoryPlan, Error> {
        let free_bytes = card.free_bytes;
        let total_bytes = limits.total_bytes.map_or(free_bytes / 10 * 9, |bytes| bytes.min(free_bytes));
        let (always, ffn) = device_bytes(model);
        let layers = ffn.len();
        let weight_bytes = |ffn_layers: usize| always + ffn[..ffn_layers].iter().sum::<usize>();
        let scratch_bytes = scratch_bytes(&model.shape, card.processors, limits.rows, limits.lanes);
        let shape = StateShape::new(&model.shape);
        let wanted = match &limits.longest {
            None => shape.fixed_bytes(),
            Some(longest) => {
                let tokens = longest.tokens.min(model.shape.native_ctx);
                limits.lanes * shape.fixed_bytes() + longest.limits.bytes_of(&shape, longest.kv, tokens)?
            }
        };
        let fits = |ffn_layers: &usize| weight_bytes(*ffn_layers) + scratch_bytes + wanted <= total_bytes;
        let ffn_layers = match limits.ffn_layers {
            Some(ffn_layers) => ffn_layers.min(layers),
            None => (0..=layers).rev().find(fits).unwrap_or(0),
        };
        let on_host = |matrix: &Matrix| host_bytes(matrix, Reading::Products, precision);
        let host_bytes = model.layers[ffn_layers..].iter().map(|layer| ffn_bytes(&layer.ffn, on_host)).sum();
        let weight_bytes = weight_bytes(ffn_layers);
        match total_bytes.checked_sub(weight_bytes + scratch_bytes) {
            Some(left_bytes) if left_bytes > shape.fixed_bytes() => Ok(DeviceMemoryPlan {
                name: card.name.clone(),
                total_bytes,
                weight_bytes,
                scratch_bytes,
                left_bytes,
                ffn_layers,
                layers,
                host_bytes,
            }),
            _ => Err(Error::DeviceRoom {
                name: card.name.clone(),
                weights_mib: weight_bytes >> 20,
                scratch_mib: scratch_bytes >> 20,
                total_mib: total_bytes >> 20,
                free_mib: free_bytes >> 20,
            }),
        }
    }
}

impl DeviceMemoryPlan {
    /// What the host computes of the model, for people.
    pub fn host_part(&self) -> Option<String> {
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

pub struct Executor {
    kind: ExecutorKind,
    meter: MemoryMeter,
}

#[allow(clippy::large_enum_variant)] // One of it.
enum ExecutorKind {
    Host {
        cpu: Cpu,
        work: Workspace,
    },
    /// `host`: what computes the parts that are not there.
    Device {
        network: GpuNetwork,
        work: GpuWorkspace,
        host: Option<(Cpu, Workspace)>,
    },
}

impl Executor {
    pub fn host(cpu: Cpu) -> Executor {
        Executor { kind: ExecutorKind::Host { cpu, work: Workspace::default() }, meter: MemoryMeter::default() }
    }

    /// Copies a model to a device. Its matrices must be as files hold them.
    pub fn device(device: &Device, model: &Model, precision: Precision) -> Result<Executor, Error> {
        let network = GpuNetwork::new(device, model, precision, model.layers.len())?;
        let kind = ExecutorKind::Device { network, work: GpuWorkspace::new(device)?, host: None };
        Ok(Executor { kind, meter: MemoryMeter::on(device) })
    }

    /// As `device`, by a plan: what a step may need is there when this returns, and what is left is held for sequences. What
    /// the plan leaves to the host is computed by `cpu`.
    pub fn planned(
        device: &Device,
        model: &Model,
        precision: Precision,
        limits: &DeviceLimits,
        cpu: impl FnOnce() -> Cpu,
    ) -> Result<(Executor, DeviceMemoryPlan), Error> {
        let memory = DeviceMemoryPlan::new(&DeviceFacts::of(device)?, model, precision, limits)?;
        let network = GpuNetwork::new(device, model, precision, memory.ffn_layers)?;
        let mut work = GpuWorkspace::new(device)?;
        network.reserve(&mut work, limits.rows, limits.lanes)?;
        device.hold(memory.left_bytes)?;
        let host = (memory.ffn_layers < memory.layers).then(|| (cpu(), Workspace::default()));
        Ok((Executor { kind: ExecutorKind::Device { network, work, host }, meter: MemoryMeter::on(device) }, memory))
    }

    /// What counts the memory of sequences that are computed here.
    pub fn meter(&self) -> MemoryMeter {
        self.meter.clone()
    }

    /// Where it is the host that computes.
    pub fn cpu(&self) -> Option<&Cpu> {
        match &self.kind {
            ExecutorKind::Host { cpu, .. } => Some(cpu),
            ExecutorKind::Device { .. } => None,
        }
    }

    /// Waits until a device has done all that it was asked. None: it failed.
    pub fn wait(&self) -> Option<()> {
        match &self.kind {
            ExecutorKind::Host { .. } => Some(()),
            ExecutorKind::Device { network, .. } => self.meter.kept(network.device.synchronize()),
        }
    }

    /// How fast a device's memory copies. Where the host computes, None.
    pub fn copy_gb_per_s(&self, bytes: usize, rounds: usize) -> Option<f64> {
        match &self.kind {
            ExecutorKind::Host { .. } => None,
            ExecutorKind::Device { network, .. } => gpu::buffer::copy_gb_per_s(&network.device, bytes, rounds).ok(),
        }
    }

    /// Bytes of a device that are taken by what computes there.
    pub fn device_used_bytes(&self) -> Option<usize> {
        match &self.kind {
            ExecutorKind::Host { .. } => None,
            ExecutorKind::Device { network, .. } => network.device.used_bytes().ok(),
        }
    }

    /// Why nothing that was computed here counts any more.
    pub fn failure(&self) -> Option<&str> {
        self.meter.failure()
    }

    /// Advances each lane's state over its tokens. Returns the logits [wanted positions, vocab], lane after lane. None: it
    /// failed.
    pub fn forward(&mut self, network: &Network, lanes: &mut [StepLane]) -> Option<&mut [f32]> {
        match &mut self.kind {
            ExecutorKind::Host { cpu, work } => Some(network.forward(cpu, lanes, work)),
            ExecutorKind::Device { network: on_device, work, host } => {
                let mut on_host = |number: usize, hidden: &mut [f32]| {
                    if let Some((cpu, work)) = host {
                        network.add_ffn(cpu, &network.model.layers[number], hidden, work);
                    }
                };
                self.meter.kept(on_a_device(on_device, lanes, work, &mut on_host, &self.meter))
            }
        }
    }

    /// Takes a state forward to `position` by its recurrences alone.
    pub fn replay(
        &mut self,
        network: &Network,
        state: &mut SequenceState,
        recurrence_log: &RecurrenceLog,
        position: usize,
    ) {
        match &mut self.kind {
            ExecutorKind::Host { cpu, .. } => network.replay(cpu, state, recurrence_log, position),
            ExecutorKind::Device { network, work, .. } => {
                if self.meter.kept(network.replay(state, recurrence_log, position, work)).is_none() {
                    // Nobody will read it, but whoever asks finds it where it should be.
                    state.position = position;
                }
            }
        }
    }
}

/// Snapshots on the way are the network's, those at the end are taken behind the step: the kernels of a step of a token each
/// are the same whether one is wanted or not.
fn on_a_device<'w>(
    network: &GpuNetwork,
    lanes: &mut [StepLane],
    work: &'w mut GpuWorkspace,
    on_host: HostFfn,
    meter: &MemoryMeter,
) -> Result<&'w mut [f32], gpu::Error> {
    let logits = network.forward(lanes, work, on_host)?;
    for lane in lanes.iter_mut() {
        let end = lane.state.position;
        let at_end = lane.snapshots.iter_mut().filter(|snapshot| snapshot.position == end);
        at_end.for_each(|snapshot| snapshot.take(lane.state, meter));
    }
    Ok(logits)
}
