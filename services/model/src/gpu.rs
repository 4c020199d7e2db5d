//! Memory of graphics cards: of NVIDIA's from the driver's own library (NVML), which comes with the driver, of others from
//! the system's files. Both are optional for building and running.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub enum Gpu {
    Nvidia(Box<Nvml>),
    System(SystemCards),
}

impl Gpu {
    pub fn find() -> Option<Gpu> {
        let nvidia = Nvml::init().ok().filter(|library| library.device_count().is_ok_and(|count| count > 0));
        let system = || SystemCards::find(Path::new("/sys/class/drm"), Path::new("/proc/self/fdinfo"));
        nvidia.map(|library| Gpu::Nvidia(Box::new(library))).or_else(|| system().map(Gpu::System))
    }

    /// Returns bytes by kind. `gpu_used`: of all programs on all cards. `gpu_process`: of this one, if the driver
    /// tells.
    pub fn memory_bytes(&self) -> Vec<(&'static str, u64)> {
        match self {
            Gpu::Nvidia(library) => of_nvidia(library),
            Gpu::System(cards) => cards.memory_bytes(),
        }
    }
}

fn of_nvidia(library: &Nvml) -> Vec<(&'static str, u64)> {
    let sum = |name, of: fn(&Device) -> Option<u64>| {
        let cards = 0..library.device_count().unwrap_or(0);
        let bytes = cards.filter_map(|index| of(&library.device_by_index(index).ok()?));
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

/// Cards of AMD and Intel, as Linux tells of them.
pub struct SystemCards {
    used: Vec<PathBuf>, // files with the bytes in use on a card, which AMD's driver has
    open: PathBuf,      // folder of this process's open files, which say what a card holds for it
}

const DRIVERS: [&str; 3] = ["amdgpu", "i915", "xe"];

impl SystemCards {
    fn find(cards: &Path, open: &Path) -> Option<SystemCards> {
        let entries = std::fs::read_dir(cards).ok()?.flatten();
        let is_card = |name: &str| name.strip_prefix("card").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let names = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_card));
        let known: Vec<PathBuf> =
            names.map(|card| card.path().join("device")).filter(|card| has_driver(card)).collect();
        let used = known.iter().map(|card| card.join("mem_info_vram_used")).filter(|file| file.is_file()).collect();
        (!known.is_empty()).then(|| SystemCards { used, open: open.to_path_buf() })
    }

    fn memory_bytes(&self) -> Vec<(&'static str, u64)> {
        let read = |file: &PathBuf| std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
        let used = self.used.iter().filter_map(read).reduce(u64::saturating_add);
        let used = used.map(|bytes| ("gpu_used", bytes));
        used.into_iter().chain(self.own_bytes().map(|bytes| ("gpu_process", bytes))).collect()
    }

    fn own_bytes(&self) -> Option<u64> {
        // A client of a card may be open several times.
        let mut clients: BTreeMap<String, u64> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.open).ok()?.flatten() {
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            let fields: BTreeMap<&str, &str> =
                text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim())).collect();
            let Some(client) = fields.get("drm-client-id") else { continue };
            let card = fields.get("drm-pdev").copied().unwrap_or_default();
            let regions = fields.iter().filter(|(key, _)| is_own_region(key));
            let bytes = regions.filter_map(|(_, value)| bytes_of(value)).fold(0, u64::saturating_add);
            clients.insert(format!("{card} {client}"), bytes);
        }
        clients.into_values().reduce(u64::saturating_add)
    }
}

fn has_driver(card: &Path) -> bool {
    let about = std::fs::read_to_string(card.join("uevent")).unwrap_or_default();
    let driver = about.lines().find_map(|line| line.strip_prefix("DRIVER="));
    driver.is_some_and(|driver| DRIVERS.contains(&driver))
}

/// Returns whether a field tells of memory on a card: `drm-resident-` of newer kernels, `drm-memory-` of older ones.
fn is_own_region(key: &str) -> bool {
    let region = key.strip_prefix("drm-resident-").or_else(|| key.strip_prefix("drm-memory-"));
    region.is_some_and(|region| region.starts_with("vram") || region.starts_with("local"))
}

fn bytes_of(value: &str) -> Option<u64> {
    let (number, unit) = value.split_once(' ').unwrap_or((value, ""));
    let number = number.parse::<u64>().ok()?;
    match unit.trim() {
        "" => Some(number),
        "KiB" => number.checked_mul(1 << 10),
        "MiB" => number.checked_mul(1 << 20),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_of_others_tell_their_memory_in_files() {
        let folder = tempfile::tempdir().unwrap();
        let (cards, open) = (folder.path().join("drm"), folder.path().join("fdinfo"));
        let write = |path: PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(SystemCards::find(&cards, &open).is_none(), "a system without cards");
        for (name, driver, used) in
            [("card0", "amdgpu", "1000\n"), ("card1", "amdgpu", "500\n"), ("card2", "mgag200", "9\n")]
        {
            write(cards.join(name).join("device/uevent"), &format!("DRIVER={driver}\nPCI_CLASS=30000\n"));
            write(cards.join(name).join("device/mem_info_vram_used"), used);
        }
        write(cards.join("card0-HDMI-A-1/device/uevent"), "DRIVER=amdgpu\n");
        let found = SystemCards::find(&cards, &open).unwrap();
        assert_eq!(found.memory_bytes(), [("gpu_used", 1500)]);
        let client =
            |id: u32, fields: &str| format!("pos:\t0\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\t{id}\n{fields}");
        write(open.join("1"), "pos:\t0\nflags:\t02\n");
        write(open.join("5"), &client(7, "drm-memory-vram:\t4 KiB\ndrm-memory-gtt: \t100 KiB\n"));
        write(open.join("6"), &client(7, "drm-memory-vram:\t4 KiB\n"));
        write(open.join("7"), &client(8, "drm-resident-local0:\t1 MiB\ndrm-total-local0:\t9 MiB\n"));
        write(open.join("8"), &client(9, "drm-resident-vram0:\t18446744073709551615 MiB\n"));
        assert_eq!(found.memory_bytes(), [("gpu_used", 1500), ("gpu_process", (4 << 10) + (1 << 20))]);
    }

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
