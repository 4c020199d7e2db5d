//! Where sequences are computed: on the host's processors, or on a GPU that has the weights and everything that is kept of
//! sequences. What is kept, and when it is gone back to, knows only this.

use gpu::Device;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use weights::Model;

use crate::error::Error;
use crate::gpu_network::{GpuNetwork, GpuWorkspace, device_bytes, scratch_bytes};
use crate::memory::Meter;
use crate::network::{Lane, Network, Wanted, Workspace};
use crate::snapshot::Snapshot;
use crate::state::{State, StateShape};
use crate::trail::Trail;

/// How much of a device may be used, and for steps of which size.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Of its memory, for everything. None: a tenth of what is free stays free, for other programs.
    pub total_bytes: Option<usize>,
    /// Tokens of a step, and sequences among which they are.
    pub rows: usize,
    pub lanes: usize,
}

/// Where a device's memory goes.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceMemory {
    pub name: String,
    pub total_bytes: usize,
    pub weight_bytes: usize,
    /// Buffers of one step.
    pub scratch_bytes: usize,
    /// For sequences.
    pub left_bytes: usize,
}

impl DeviceMemory {
    /// Before anything is copied. A model that leaves nothing for a sequence is refused.
    pub fn plan(device: &Device, model: &Model, limits: &DeviceLimits) -> Result<DeviceMemory, Error> {
        let properties = device.properties()?;
        let free_bytes = properties.free_bytes;
        let total_bytes = limits.total_bytes.map_or(free_bytes / 10 * 9, |bytes| bytes.min(free_bytes));
        let weight_bytes = device_bytes(model);
        let scratch_bytes = scratch_bytes(&model.shape, device.processors(), limits.rows, limits.lanes);
        let least = StateShape::new(&model.shape).fixed_bytes();
        match total_bytes.checked_sub(weight_bytes + scratch_bytes) {
            Some(left_bytes) if left_bytes > least => {
                Ok(DeviceMemory { name: properties.name, total_bytes, weight_bytes, scratch_bytes, left_bytes })
            }
            _ => Err(Error::DeviceRoom {
                name: properties.name,
                weights_mib: weight_bytes >> 20,
                scratch_mib: scratch_bytes >> 20,
                total_mib: total_bytes >> 20,
                free_mib: free_bytes >> 20,
            }),
        }
    }
}

pub struct Place {
    kind: Kind,
    meter: Meter,
}

#[allow(clippy::large_enum_variant)] // One of it.
enum Kind {
    Host { cpu: Cpu, work: Workspace },
    Device { network: GpuNetwork, work: GpuWorkspace },
}

impl Place {
    pub fn host(cpu: Cpu) -> Place {
        Place { kind: Kind::Host { cpu, work: Workspace::default() }, meter: Meter::default() }
    }

    /// Copies a model to a device. Its matrices must be as files hold them.
    pub fn device(device: &Device, model: &Model, precision: Precision) -> Result<Place, Error> {
        let (network, work) = (GpuNetwork::new(device, model, precision)?, GpuWorkspace::new(device)?);
        Ok(Place { kind: Kind::Device { network, work }, meter: Meter::on(device) })
    }

    /// As `device`, by a plan: what a step may need is there when this returns, and what is left is held for sequences.
    pub fn planned(
        device: &Device,
        model: &Model,
        precision: Precision,
        limits: &DeviceLimits,
    ) -> Result<(Place, DeviceMemory), Error> {
        let memory = DeviceMemory::plan(device, model, limits)?;
        let (network, mut work) = (GpuNetwork::new(device, model, precision)?, GpuWorkspace::new(device)?);
        network.reserve(&mut work, limits.rows, limits.lanes)?;
        device.hold(memory.left_bytes)?;
        Ok((Place { kind: Kind::Device { network, work }, meter: Meter::on(device) }, memory))
    }

    /// What counts the memory of sequences that are computed here.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Where it is the host that computes.
    pub fn cpu(&self) -> Option<&Cpu> {
        match &self.kind {
            Kind::Host { cpu, .. } => Some(cpu),
            Kind::Device { .. } => None,
        }
    }

    /// Why nothing that was computed here counts any more.
    pub fn failure(&self) -> Option<&str> {
        self.meter.failure()
    }

    /// Advances each lane's state over its tokens. Returns the logits [wanted positions, vocab], lane after lane. None: it
    /// failed.
    pub fn forward(&mut self, network: &Network, lanes: &mut [Lane]) -> Option<&mut [f32]> {
        match &mut self.kind {
            Kind::Host { cpu, work } => Some(network.forward(cpu, lanes, work)),
            Kind::Device { network, work } => self.meter.kept(on_device(network, lanes, work, &self.meter)),
        }
    }

    /// Takes a state forward to `position` by its recurrences alone.
    pub fn replay(&mut self, network: &Network, state: &mut State, trail: &Trail, position: usize) {
        match &mut self.kind {
            Kind::Host { cpu, .. } => network.replay(cpu, state, trail, position),
            Kind::Device { network, work } => {
                if self.meter.kept(network.replay(state, trail, position, work)).is_none() {
                    // Nobody will read it, but whoever asks finds it where it should be.
                    state.position = position;
                }
            }
        }
    }
}

/// Kernels run over whole lanes, so that a device is taken from one position that is to be remembered to the next.
fn on_device<'w>(
    network: &GpuNetwork,
    lanes: &mut [Lane],
    work: &'w mut GpuWorkspace,
    meter: &Meter,
) -> Result<&'w mut [f32], gpu::Error> {
    for lane in lanes.iter_mut() {
        let begin = lane.state.position;
        for snapshot in lane.snapshots.iter_mut().filter(|snapshot| snapshot.position < begin + lane.tokens.len()) {
            let tokens = &lane.tokens[lane.state.position - begin..snapshot.position - begin];
            let trail = lane.trail.as_deref_mut();
            let part = Lane { state: lane.state, tokens, wanted: Wanted::Nothing, trail, snapshots: &mut [] };
            network.forward(&mut [part], work)?;
            *snapshot = Snapshot::of(lane.state, snapshot.format, meter);
        }
        lane.tokens = &lane.tokens[lane.state.position - begin..];
    }
    let logits = network.forward(lanes, work)?;
    for lane in lanes.iter_mut() {
        for snapshot in lane.snapshots.iter_mut().filter(|snapshot| snapshot.position == lane.state.position) {
            *snapshot = Snapshot::of(lane.state, snapshot.format, meter);
        }
    }
    Ok(logits)
}
