//! `reprise doctor`: what is here, and what would keep the service from starting.

use anyhow::Result;
use engine::model_bytes::host_weight_bytes;
use engine::open::find_gpu;
use engine::{DeviceFacts, DeviceMemoryPlan, check_device};
use lab::hardware::Hardware;
use model::{Finder, machine_bytes};
use serde::Serialize;
use settings::{LoadedSettings, Preset, Settings};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

/// Tells what machine this is, what computes, and what is wrong with the configuration
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print one object instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    /// Nothing of it is a problem.
    ok: bool,
    findings: Vec<DoctorFinding>,
}

#[derive(Debug, Serialize)]
struct DoctorFinding {
    what: &'static str,
    state: FindingState,
    says: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum FindingState {
    Good,
    /// Works, and could be better.
    Note,
    /// The service would not start, or not compute right.
    Problem,
}

/// `loaded`: the configuration, or what is wrong with it.
pub fn run(args: &Args, loaded: Result<LoadedSettings>) -> ExitCode {
    let findings = examine(loaded);
    let report = Diagnosis { ok: findings.iter().all(|finding| finding.state != FindingState::Problem), findings };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
    } else {
        for DoctorFinding { what, state, says } in &report.findings {
            let mark = match state {
                FindingState::Good => "ok",
                FindingState::Note => "note",
                FindingState::Problem => "PROBLEM",
            };
            println!("{mark:<8}{what:<15}{}", says.replace('\n', "\n                       "));
        }
        println!(
            "{}",
            if report.ok { "nothing keeps the service from starting" } else { "see the lines with PROBLEM" }
        );
    }
    ExitCode::from(u8::from(!report.ok))
}

fn examine(loaded: Result<LoadedSettings>) -> Vec<DoctorFinding> {
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return vec![problem("configuration", format!("{error:#}"))],
    };
    let settings = &loaded.settings;
    let file = loaded.file.as_ref().map_or("no file, the defaults hold".to_owned(), |file| file.display().to_string());
    let mut findings = vec![good("configuration", file), processor(settings), memory(settings)];
    findings.extend(folders(settings));
    findings.push(address(settings.server.host, settings.server.port));
    if let Some(url) = &settings.upstream.url {
        findings.push(good("model", format!("{url} computes; nothing does here")));
        return findings;
    }
    let (finding, opened) = model_file(settings);
    findings.push(finding);
    findings.extend(gpu(settings, opened.as_ref()));
    findings
}

fn processor(settings: &Settings) -> DoctorFinding {
    let Hardware { version, debug_build, cpu, cores, level, threads, gpu: _ } = Hardware::new(settings);
    let (level, threads) = (level.unwrap_or("unknown"), threads.unwrap_or(cores));
    let says = format!("{cpu}, {cores} cores, {level}, {threads} threads; Reprise {version}");
    match (debug_build, level) {
        (true, _) => {
            note("processor", format!("{says}: a debug build, many times slower than `cargo build --release`"))
        }
        (false, "portable") => note("processor", format!("{says}: without AVX2, which is several times faster")),
        (false, _) => good("processor", says),
    }
}

fn memory(settings: &Settings) -> DoctorFinding {
    let machine = machine_bytes();
    match settings.memory.total {
        Some(bytes) if bytes > machine => {
            problem("memory", format!("memory.total is {} and the machine has {}", mib(bytes), mib(machine)))
        }
        Some(bytes) => good("memory", format!("{} of {} may be used", mib(bytes), mib(machine))),
        None => good("memory", format!("{}, of which three quarters may be used", mib(machine))),
    }
}

/// Those that are written to.
fn folders(settings: &Settings) -> Vec<DoctorFinding> {
    let store = settings.store.path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let state = settings.memory.disk_path.as_deref();
    let folders = [("store", store.or(Some(Path::new(".")))), ("computed pasts", state)];
    let findings = folders.into_iter().filter_map(|(what, folder)| {
        let folder = folder?;
        let shown = folder.display();
        Some(match try_to_write(folder) {
            Ok(true) => good(what, format!("{shown}")),
            Ok(false) => good(what, format!("{shown}, which will be made")),
            Err(error) => problem(what, format!("{shown} cannot be written to: {error}")),
        })
    });
    findings.collect()
}

/// Whether the folder is there. Leaves nothing behind.
fn try_to_write(folder: &Path) -> std::io::Result<bool> {
    let there = folder.ancestors().find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let nearest = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(nearest).map(|_| folder.exists())
}

fn address(host: IpAddr, port: u16) -> DoctorFinding {
    let address = SocketAddr::new(host, port);
    match TcpListener::bind(address) {
        Ok(_) => good("address", address.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            note("address", format!("{address} is taken: the service runs already, or another program is there"))
        }
        Err(error) => problem("address", format!("{address}: {error}")),
    }
}

fn model_file(settings: &Settings) -> (DoctorFinding, Option<(weights::Model, Preset)>) {
    let name = &settings.model.preset;
    let (file, preset) = match model::resolve(settings, name) {
        Ok(found) => found,
        Err(error) => return (problem("model", error.to_string()), None),
    };
    let opened = match weights::open(&file, true) {
        Ok(opened) => opened,
        Err(error) => return (problem("model", error.to_string()), None),
    };
    let (bytes, native_ctx) = (host_weight_bytes(&opened, model::precision(settings)), opened.shape.native_ctx);
    let says = format!(
        "preset {name}: {}, {} of weights, a window of {} of its {native_ctx} tokens",
        file.display(),
        mib(bytes as u64),
        (preset.ctx_size as usize).min(native_ctx)
    );
    (good("model", says), Some((opened, preset)))
}

/// The GPU, or why none computes; then whether it computes right, and whether the model fits.
fn gpu(settings: &Settings, model: Option<&(weights::Model, Preset)>) -> Vec<DoctorFinding> {
    let chosen = settings.engine.device;
    if chosen == settings::DeviceChoice::Cpu {
        return vec![good("GPU", "engine.device is cpu: none is looked for".to_owned())];
    }
    let trouble = |says: String| match chosen {
        settings::DeviceChoice::Cuda => problem("GPU", format!("engine.device is cuda: {says}")),
        _ => note("GPU", format!("the CPU computes: {says}")),
    };
    let found = find_gpu(settings.engine.kernels_path.as_deref(), &mut |line| eprintln!("{line}"));
    let device = match found {
        Ok(device) => device,
        Err(error) => return vec![trouble(error.to_string())],
    };
    let mut findings = Vec::new();
    match device.properties() {
        Ok(gpu) => findings.push(good(
            "GPU",
            format!(
                "{}, compute capability {}.{}, {} processors, {} of {} free",
                gpu.name,
                gpu.target / 10,
                gpu.target % 10,
                gpu.processors,
                mib(gpu.free_bytes as u64),
                mib(gpu.memory_bytes as u64)
            ),
        )),
        Err(error) => return vec![trouble(error.to_string())],
    }
    findings.push(match check_device(&device) {
        Ok(checked) if checked.is_right => {
            good("GPU's kernels", format!("right, to {:.1e} of the largest value", checked.distance))
        }
        // It would be used, so it does not matter that it need not be.
        Ok(checked) => problem(
            "GPU's kernels",
            format!("wrong by {:.1e} of the largest value; set engine.device to cpu", checked.distance),
        ),
        Err(error) => problem("GPU's kernels", format!("{error}; set engine.device to cpu")),
    });
    if let Some((model, preset)) = model {
        let precision = model::precision(settings);
        let finder = Finder::new(settings).with_room_for(model::longest(settings, preset, precision));
        let plan =
            DeviceFacts::of(&device).and_then(|card| DeviceMemoryPlan::new(&card, model, precision, finder.limits()));
        match plan {
            Ok(plan) => {
                let says = format!(
                    "{} of weights, {} for a step, {} for conversations",
                    mib(plan.weight_bytes as u64),
                    mib(plan.scratch_bytes as u64),
                    mib(plan.left_bytes as u64)
                );
                findings.push(good("GPU's memory", says));
                findings.extend(plan.host_note().map(|says| note("GPU's memory", says)));
            }
            Err(error) => findings.push(trouble(error.to_string())),
        }
    }
    findings
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn good(what: &'static str, says: String) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Good, says }
}

fn note(what: &'static str, says: String) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Note, says }
}

fn problem(what: &'static str, says: String) -> DoctorFinding {
    DoctorFinding { what, state: FindingState::Problem, says }
}
