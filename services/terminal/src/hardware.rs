//! Hardware of a measurement: a number without it means nothing.

use engine::Cpu;
use serde::Serialize;
use settings::Settings;
use std::fmt;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
pub struct Hardware {
    pub version: &'static str,
    pub debug_build: bool,
    pub cpu: String,
    pub cores: usize,
    /// Level of the kernels on this processor. `None` if a service computes that was not started here.
    pub level: Option<&'static str>,
    pub threads: Option<usize>, // that compute
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>, // `None`: the processor computes
}

impl Hardware {
    pub fn new(settings: &Settings) -> Hardware {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Hardware {
            version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            cpu: processor(),
            cores,
            level: Some(Cpu::new(1).level.name()),
            threads: Some(if settings.engine.threads == 0 { cores } else { settings.engine.threads }),
            gpu: None,
        }
    }

    pub fn cpu_name(&self) -> String {
        let Hardware { cpu, cores, .. } = self;
        let (level, threads) = (self.level.unwrap_or("unknown"), self.threads.unwrap_or(*cores));
        format!("{cpu}, {cores} cores, {level}, {threads} threads")
    }

    /// Describes this machine for a service that runs elsewhere, or with other settings: only the client is here.
    pub fn asking(settings: &Settings) -> Hardware {
        Hardware { level: None, threads: None, ..Hardware::new(settings) }
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; Reprise {}", self.cpu_name(), self.version)
    }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    pub rss_bytes: u64,       // with pages of a mapped model file
    pub anonymous_bytes: u64, // without files
    pub peak_rss_bytes: u64,  // the peak of `rss_bytes`
}

impl ProcessMemory {
    pub fn of(pid: u32) -> Option<ProcessMemory> {
        // `None`: the system does not tell
        parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    pub fn own() -> Option<ProcessMemory> {
        ProcessMemory::of(std::process::id())
    }

    /// Lets this process's peak begin anew. Where the system does not, it stays that since the start.
    pub fn begin_peak() {
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
}

pub fn processor_time(pid: u32) -> Option<Duration> {
    let nanoseconds = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    // A thread may end meanwhile.
    Some(Duration::from_nanos(threads.flatten().filter_map(nanoseconds).sum()))
}

fn parse(status: &str) -> Option<ProcessMemory> {
    let bytes = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
    };
    Some(ProcessMemory {
        rss_bytes: bytes("VmRSS")?,
        anonymous_bytes: bytes("RssAnon")?,
        peak_rss_bytes: bytes("VmHWM")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_as_the_system_writes_it() {
        let status =
            "Name:\treprise\nVmPeak:\t  900 kB\nVmHWM:\t     300 kB\nVmRSS:\t     200 kB\nRssAnon:\t  120 kB\n";
        let expected = ProcessMemory { rss_bytes: 200 << 10, anonymous_bytes: 120 << 10, peak_rss_bytes: 300 << 10 };
        assert_eq!(parse(status), Some(expected));
        assert_eq!(parse("Name:\tkthreadd\n"), None);
        assert!(processor_time(std::process::id()).is_some_and(|time| !time.is_zero()));
        assert!(ProcessMemory::own().is_some_and(|memory| memory.rss_bytes > 0));
    }
}
