//! `reprise doctor`: the machine, the configuration, and what would keep the service from starting.

use super::{serve, speech_servers};
use crate::configuration;
use anyhow::Result;
use engine::model_bytes::host_weight_bytes;
use engine::open::find_gpu;
use engine::{DeviceFacts, DeviceMemoryPlan, check_device};
use model::{Finder, machine_bytes, running_presets};
use runtime::{Presets, check_experiment};
use serde::Serialize;
use serde_json::json;
use settings::{LoadedSettings, Preset, Settings};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;
use terminal::hardware::Hardware;
use terminal::output::{chain, unless_closed};
use terminal::{note, say};

/// Checks this machine, its GPU and the configuration, and says what would keep the service from starting
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Prints one JSON object instead of lines
    #[arg(long)]
    json: bool,
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
    Note,
    /// Finding with which the service would not start, or compute wrongly.
    Problem,
}

use FindingState::{Good, Note, Problem};

/// Runs the checks. `loaded`: the configuration, or its mistakes.
pub fn run(args: &Args, configuration: &configuration::Args, loaded: Result<LoadedSettings>) -> ExitCode {
    let mut findings = Findings(Vec::new());
    match loaded {
        Ok(loaded) => findings.examine(&serve::as_started(configuration, loaded)),
        Err(error) => findings.add("configuration", Problem, chain(&error)),
    }
    let Findings(findings) = findings;
    let ok = findings.iter().all(|finding| finding.state != Problem);
    match unless_closed(tell(args, &findings, ok)) {
        Ok(()) => ExitCode::from(u8::from(!ok)),
        failed => crate::exit_code(failed),
    }
}

fn tell(args: &Args, findings: &[DoctorFinding], ok: bool) -> Result<()> {
    if args.json {
        say!("{:#}", json!({"ok": ok, "findings": findings}))?;
    } else {
        for DoctorFinding { what, state, says } in findings {
            let mark = match state {
                Good => "ok",
                Note => "note",
                Problem => "PROBLEM",
            };
            say!("{mark:<8}{what:<15}{}", says.replace('\n', "\n                       "))?;
        }
        say!("{}", if ok { "nothing keeps the service from starting" } else { "see the lines with PROBLEM" })?;
    }
    Ok(())
}

struct Findings(Vec<DoctorFinding>);

impl Findings {
    fn add(&mut self, what: &'static str, state: FindingState, says: impl Into<String>) {
        self.0.push(DoctorFinding { what, state, says: says.into() });
    }

    fn examine(&mut self, loaded: &LoadedSettings) {
        let settings = &loaded.settings;
        let file = loaded.file.as_ref().map(|file| file.display().to_string());
        self.add("configuration", Good, file.unwrap_or_else(|| "no file: the defaults apply".to_owned()));
        self.processor(settings);
        self.memory(settings);
        self.folders(settings);
        self.open_files(settings);
        self.address(settings.server.host, settings.server.port);
        self.speech(settings);
        if let Some(url) = &settings.upstream.url {
            return self.add("model", Good, format!("{url} computes; this machine computes nothing"));
        }
        let opened = self.model_file(settings);
        self.gpu(settings, opened.as_ref());
    }

    fn processor(&mut self, settings: &Settings) {
        let machine = Hardware::new(settings);
        let (state, but) = match (machine.debug_build, machine.level) {
            (true, _) => (Note, ": a debug build, many times slower than `cargo build --release`"),
            (false, Some("portable")) => (Note, ": without AVX2, which is several times faster"),
            (false, _) => (Good, ""),
        };
        self.add("processor", state, format!("{machine}{but}"));
    }

    fn memory(&mut self, settings: &Settings) {
        let machine = machine_bytes();
        if let Some(beyond) = settings.beyond_memory(machine) {
            return self.add("memory", Problem, beyond);
        }
        let (state, says) = match settings.memory.total {
            Some(bytes) => (Good, format!("the service may use {} of {}", mib(bytes), mib(machine))),
            None => (Good, format!("{}, of which the service may use three quarters", mib(machine))),
        };
        self.add("memory", state, says);
    }

    fn folders(&mut self, settings: &Settings) {
        let store = settings.store.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let state = settings.memory.disk_path.as_deref();
        for (what, folder) in [("store", store.or(Some(Path::new(".")))), ("computed pasts", state)] {
            let Some(folder) = folder else { continue };
            let shown = folder.display();
            match try_to_write(folder) {
                Ok(true) => self.add(what, Good, format!("{shown}")),
                Ok(false) => self.add(what, Good, format!("{shown}, which will be created")),
                Err(error) => self.add(what, Problem, format!("{shown} cannot be written to: {error}")),
            }
        }
    }

    fn open_files(&mut self, settings: &Settings) {
        let (what, connections) = ("open files", settings.limits.connections);
        let (state, says) = match sockets::open_files::allowed() {
            Err(error) => (Note, format!("the limit could not be read: {error}")),
            Ok(files) => match settings.clone().fit_to_files(files) {
                Ok(None) => (Good, format!("up to {files}: enough for limits.connections = {connections}")),
                Ok(Some(note)) => (Note, note),
                Err(error) => (Problem, error.to_string()),
            },
        };
        self.add(what, state, says);
    }

    fn speech(&mut self, settings: &Settings) {
        if settings.speech.stt.is_none() && settings.speech.tts.is_none() {
            return;
        }
        match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(speech_servers::ask(settings)).into_iter().for_each(|report| {
                let state = if report.is_up { Good } else { Note };
                self.add(report.kind, state, report.says);
            }),
            Err(error) => self.add("speech", Note, format!("the servers could not be asked: {error}")),
        }
    }

    fn address(&mut self, host: IpAddr, port: u16) {
        let address = SocketAddr::new(host, port);
        match TcpListener::bind(address) {
            Ok(_) => self.add("address", Good, address.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                let says = format!("{address} is in use: by a running service, or by another program");
                self.add("address", Note, says);
            }
            Err(error) => self.add("address", Problem, format!("{address}: {error}")),
        }
    }

    fn model_file(&mut self, settings: &Settings) -> Option<(weights::ModelWeights, Preset)> {
        let name = &settings.model.preset;
        let found = model::resolve(settings, name).map_err(|error| error.to_string());
        let found = found.and_then(|(file, preset)| {
            Ok((weights::open(&file, true).map_err(|error| error.to_string())?, file, preset))
        });
        let (opened, file, preset) = match found {
            Ok(found) => found,
            Err(error) => {
                self.add("model", Problem, error);
                return None;
            }
        };
        let (bytes, native_ctx) = (host_weight_bytes(&opened, model::precision(settings)), opened.shape.native_ctx);
        let says = format!(
            "preset {name}: {}, {} of weights, a window of {} of its {native_ctx} tokens",
            file.display(),
            mib(bytes as u64),
            (preset.ctx_size as usize).min(native_ctx)
        );
        self.add("model", Good, says);
        if let Err(error) = check_names(settings, &file, &preset, native_ctx) {
            self.add("presets", Problem, chain(&error));
        }
        Some((opened, preset))
    }

    /// Checks whether a GPU computes, computes right, and has room for the model.
    fn gpu(&mut self, settings: &Settings, model: Option<&(weights::ModelWeights, Preset)>) {
        let chosen = settings.engine.device;
        if chosen == settings::DeviceChoice::Cpu {
            return self.add("GPU", Good, "engine.device is cpu: no GPU is used");
        }
        let (state, but) = match chosen {
            settings::DeviceChoice::Cuda => (Problem, "engine.device is cuda"),
            settings::DeviceChoice::Vulkan => (Problem, "engine.device is vulkan"),
            _ => (Note, "the CPU computes"),
        };
        let found =
            find_gpu(model::gpu_api(settings.engine.device), settings.engine.kernels_path.as_deref(), &mut |line| {
                note!("{line}")
            });
        let (gpu, device) = match found.and_then(|device| Ok((device.properties()?, device))) {
            Ok(found) => found,
            Err(error) => return self.add("GPU", state, format!("{but}: {error}")),
        };
        let says = format!(
            "{}, {}, {} processors, {} of {} free",
            gpu.name,
            gpu.generation,
            device.processors().count,
            mib(gpu.free_bytes as u64),
            mib(gpu.memory_bytes as u64)
        );
        self.add("GPU", Good, says);
        let kernels = "GPU's kernels";
        match check_device(&device) {
            Ok(checked) if checked.is_right => {
                self.add(kernels, Good, format!("right, to {:.1e} of the largest value", checked.distance));
            }
            // It would be used, so it does not matter that it need not be.
            Ok(checked) => {
                let wrong = checked.distance;
                let says = format!("wrong by {wrong:.1e} of the largest value; set engine.device to cpu");
                self.add(kernels, Problem, says);
            }
            Err(error) => self.add(kernels, Problem, format!("{error}; set engine.device to cpu")),
        }
        let Some((model, preset)) = model else { return };
        let precision = model::precision(settings);
        let finder = Finder::new(settings).with_room_for(model::longest(settings, preset, precision));
        let plan =
            DeviceFacts::of(&device).and_then(|card| DeviceMemoryPlan::new(&card, model, precision, finder.limits()));
        match plan {
            Ok(plan) => {
                let [weights, scratch, left] =
                    [plan.weight_bytes, plan.scratch_bytes, plan.left_bytes].map(|bytes| mib(bytes as u64));
                let says = format!("{weights} of weights, {scratch} for a step, {left} for conversations");
                self.add("GPU's memory", Good, says);
                if let Some(says) = plan.host_note() {
                    self.add("GPU's memory", Note, says);
                }
            }
            Err(error) => self.add("GPU", state, format!("{but}: {error}")),
        }
    }
}

// Checks the names that the configuration gives to the presets of the model that would run, as a start checks them.
fn check_names(settings: &Settings, file: &Path, preset: &Preset, native_ctx: usize) -> Result<()> {
    let mut settings = settings.clone();
    let (presets, _) = running_presets(&mut settings, file, preset, u32::try_from(native_ctx)?)?;
    let presets = Presets::new(presets, settings.chosen()?.clone(), "").with_names(&settings)?;
    Ok(check_experiment(&settings, &presets)?)
}

/// Tells whether the folder exists, and leaves nothing behind.
fn try_to_write(folder: &Path) -> std::io::Result<bool> {
    let there = folder.ancestors().find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let nearest = there.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(nearest).map(|_| folder.exists())
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
