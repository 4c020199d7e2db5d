//! Memory of this machine, as the system tells it.

use settings::Settings;

/// Returns the memory of this machine, or the limit of its container.
pub fn machine_bytes() -> u64 {
    let limits = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let container =
        limits.iter().filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()).min();
    // A system that tells neither counts as a small one.
    let unknown = 4 << 30;
    of_system("MemTotal:").into_iter().chain(container).min().unwrap_or(unknown)
}

/// Returns `memory.total`, or three quarters of the machine's memory.
pub fn total_bytes(settings: &Settings) -> u64 {
    settings.memory.total.unwrap_or_else(|| machine_bytes() / 4 * 3)
}

/// Returns the memory that programs can have without others losing theirs, if the system tells.
pub fn free_bytes() -> Option<u64> {
    of_system("MemAvailable:")
}

fn of_system(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        assert!(machine_bytes() > 64 << 20);
        assert!(free_bytes().is_none_or(|free| free > 1 << 20 && Some(free) < of_system("MemTotal:")));
    }
}
