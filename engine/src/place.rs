//! Where sequences are computed: on the host's processors, or on a GPU that has the weights and everything that is kept of
//! sequences. What is kept, and when it is gone back to, knows only this.

use gpu::Device;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use weights::Model;

use crate::error::Error;
use crate::gpu_network::{GpuNetwork, GpuWorkspace};
use crate::memory::Meter;
use crate::network::{Lane, Network, Workspace};
use crate::state::State;
use crate::trail::Trail;

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

    /// What counts the memory of sequences that are computed here.
    pub fn meter(&self) -> Meter {
        self.meter.clone()
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
            Kind::Device { network, work } => self.meter.kept(network.forward(lanes, work)),
        }
    }

    /// Takes a state forward to `position` by its recurrences alone.
    pub fn replay(&mut self, network: &Network, state: &mut State, trail: &Trail, position: usize) {
        match &mut self.kind {
            Kind::Host { cpu, work } => network.replay(cpu, state, trail, position, work),
            Kind::Device { network, work } => {
                if self.meter.kept(network.replay(state, trail, position, work)).is_none() {
                    // Nobody will read it, but whoever asks finds it where it should be.
                    state.position = position;
                }
            }
        }
    }
}
