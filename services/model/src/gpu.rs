//! Memory of NVIDIA cards, from the driver's own library (NVML), which comes with the driver. Optional for building and
//! running.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};

pub struct Gpu {
    library: Nvml,
}

impl Gpu {
    pub fn find() -> Option<Gpu> {
        let library = Nvml::init().ok()?;
        (library.device_count().ok()? > 0).then_some(Gpu { library })
    }

    /// Returns bytes by kind. `gpu_used`: of all programs on all cards. `gpu_process`: of this one, if the driver
    /// tells.
    pub fn memory_bytes(&self) -> Vec<(&'static str, u64)> {
        let sum = |name, of: fn(&Device) -> Option<u64>| {
            let cards = 0..self.library.device_count().unwrap_or(0);
            let bytes = cards.filter_map(|index| of(&self.library.device_by_index(index).ok()?));
            bytes.reduce(|sum, bytes| sum + bytes).map(|bytes| (name, bytes))
        };
        let used = |card: &Device| Some(card.memory_info().ok()?.used);
        let own = |card: &Device| {
            let found = card.running_compute_processes().ok()?;
            match found.into_iter().find(|process| process.pid == std::process::id())?.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            }
        };
        [sum("gpu_used", used), sum("gpu_process", own)].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails on a machine without a card if `REQUIRE_CUDA=1`.
    #[test]
    fn a_card_tells_its_memory() {
        match Gpu::find() {
            Some(gpu) => {
                let bytes = gpu.memory_bytes();
                assert!(bytes.iter().any(|(kind, bytes)| *kind == "gpu_used" && *bytes > 0), "{bytes:?}");
            }
            None => {
                assert!(std::env::var_os("REQUIRE_CUDA").is_none(), "no NVIDIA driver here");
                eprintln!("skipped: no NVIDIA driver here");
            }
        }
    }
}
