//! Executors of steps: the CPU, or a GPU that holds the weights and all memory of sequences. The CPU computes
//! feed-forward parts that do not fit on the GPU. The cache does not know the executor.

use gpu::Device;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use weights::ModelWeights;

use crate::device_memory::{DeviceFacts, DeviceLimits, DeviceMemoryPlan};
use crate::error::Error;
use crate::gpu_network::{GpuNetwork, GpuWorkspace, HostFfn};
use crate::memory::MemoryMeter;
use crate::network::{Network, PredictionLane, StepLane, Workspace};
use crate::recurrence_log::RecurrenceLog;
use crate::state::SequenceState;

pub struct Executor {
    kind: ExecutorKind,
    meter: MemoryMeter,
}

#[allow(clippy::large_enum_variant)] // An engine has one.
enum ExecutorKind {
    Cpu {
        cpu: Cpu,
        work: Workspace,
    },
    Gpu {
        // `host` computes the feed-forward parts that are not on the GPU
        network: GpuNetwork,
        work: GpuWorkspace,
        host: Option<(Cpu, Workspace)>,
    },
}

impl Executor {
    pub fn on_cpu(cpu: Cpu) -> Executor {
        Executor { kind: ExecutorKind::Cpu { cpu, work: Workspace::default() }, meter: MemoryMeter::default() }
    }

    pub fn on_gpu(device: &Device, model: &ModelWeights, precision: Precision) -> Result<Executor, Error> {
        let network = GpuNetwork::new(device, model, precision, model.layers.len())?;
        let kind = ExecutorKind::Gpu { network, work: GpuWorkspace::new(device)?, host: None };
        Ok(Executor { kind, meter: MemoryMeter::on(device) })
    }

    /// Copies a model to a GPU by a plan: allocates the buffers of the largest step and reserves the rest of the
    /// planned memory for sequences. `cpu` makes the threads for feed-forward parts that the plan leaves to the CPU.
    pub fn planned(
        device: &Device,
        model: &ModelWeights,
        precision: Precision,
        limits: &DeviceLimits,
        cpu: impl FnOnce() -> Cpu,
    ) -> Result<(Executor, DeviceMemoryPlan), Error> {
        let memory = DeviceMemoryPlan::new(&DeviceFacts::of(device)?, model, precision, limits)?;
        let network = GpuNetwork::new(device, model, precision, memory.ffn_layers)?;
        let mut work = GpuWorkspace::new(device)?;
        network.reserve(&mut work, memory.chunk_tokens + limits.lanes, limits.lanes)?;
        device.hold(memory.left_bytes)?;
        let host = (memory.ffn_layers < memory.layers).then(|| (cpu(), Workspace::default()));
        Ok((Executor { kind: ExecutorKind::Gpu { network, work, host }, meter: MemoryMeter::on(device) }, memory))
    }

    pub fn meter(&self) -> MemoryMeter {
        self.meter.clone()
    }

    pub fn cpu(&self) -> Option<&Cpu> {
        match &self.kind {
            ExecutorKind::Cpu { cpu, .. } => Some(cpu),
            ExecutorKind::Gpu { .. } => None,
        }
    }

    pub fn take_least_lead(&mut self) -> Option<f32> {
        match &mut self.kind {
            ExecutorKind::Cpu { work, .. } => work.take_least_lead(),
            ExecutorKind::Gpu { .. } => None,
        }
    }

    pub fn most_drafts(&self) -> usize {
        match self.kind {
            ExecutorKind::Cpu { .. } => kernels::product::FEW_ROWS - 1,
            ExecutorKind::Gpu { .. } => gpu::product::FEW_ROWS - 1,
        }
    }

    pub fn wait(&self) -> Option<()> {
        self.meter.device().map_or(Some(()), |device| self.meter.keep_failure(device.synchronize()))
    }

    pub fn copy_gb_per_s(&self, bytes: usize, rounds: usize) -> Option<f64> {
        gpu::buffer::copy_gb_per_s(self.meter.device()?, bytes, rounds).ok()
    }

    pub fn device_used_bytes(&self) -> Option<usize> {
        self.meter.device()?.used_bytes().ok()
    }

    /// Reason of the GPU's failure. Everything on it is lost then, and all results since the failure are invalid.
    pub fn failure(&self) -> Option<&str> {
        self.meter.failure()
    }

    /// Advances each lane's state over its tokens. Returns the logits [wanted positions, vocab], lane after lane.
    /// `None`: the GPU failed.
    pub fn forward(&mut self, network: &Network, lanes: &mut [StepLane]) -> Option<&mut [f32]> {
        match &mut self.kind {
            ExecutorKind::Cpu { cpu, work } => Some(network.forward(cpu, lanes, work)),
            ExecutorKind::Gpu { network: on_device, work, host } => {
                let mut on_host = |number: usize, hidden: &mut [f32]| {
                    if let Some((cpu, work)) = host {
                        let layer = &network.model.layers[number];
                        network.add_ffn(cpu, &layer.ffn_norm, &layer.ffn, hidden, work);
                    }
                };
                self.meter.keep_failure(forward_on_gpu(on_device, lanes, work, &mut on_host))
            }
        }
    }

    pub fn predict(&mut self, network: &Network, lanes: &mut [PredictionLane], vocab: usize) {
        match &mut self.kind {
            ExecutorKind::Cpu { cpu, work } => {
                network.predict(cpu, lanes, vocab, work);
            }
            ExecutorKind::Gpu { network, work, .. } => {
                self.meter.keep_failure(network.predict(lanes, vocab, work));
            }
        }
    }

    pub fn replay(
        &mut self,
        network: &Network,
        state: &mut SequenceState,
        recurrence_log: &RecurrenceLog,
        position: usize,
    ) {
        match &mut self.kind {
            ExecutorKind::Cpu { cpu, .. } => network.replay(cpu, state, recurrence_log, position),
            ExecutorKind::Gpu { network, work, .. } => {
                if self.meter.keep_failure(network.replay(state, recurrence_log, position, work)).is_none() {
                    // A lost state is never read, but callers rely on its position.
                    state.position = position;
                }
            }
        }
    }
}

/// Computes a step on the GPU. The network takes the snapshots that lie inside a lane. Those at a lane's end follow
/// here, after the step, so that the recorded kernels of a step do not depend on them.
fn forward_on_gpu<'w>(
    network: &GpuNetwork,
    lanes: &mut [StepLane],
    work: &'w mut GpuWorkspace,
    on_host: HostFfn,
) -> Result<&'w mut [f32], gpu::Error> {
    let logits = network.forward(lanes, work, on_host)?;
    for lane in lanes.iter_mut() {
        let end = lane.state.position;
        let at_end = lane.snapshots.iter_mut().filter(|snapshot| snapshot.position == end);
        at_end.for_each(|snapshot| snapshot.take(lane.state, None));
    }
    Ok(logits)
}
