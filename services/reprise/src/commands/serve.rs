//! `reprise serve`: the service.

mod logging;
mod screen;
mod suited;

use super::engine_flags::EngineFlags;
use super::speech_servers;
use crate::configuration;
use access::{LOCAL_USER, check_access};
use anyhow::{Context, Result};
use doors::StartFacts;
use futures_util::FutureExt;
use model::Model;
use runtime::{Presets, RuntimeParts, check_experiment, wall_ms};
use settings::{ExplainedValue, Flag, LoadedSettings, Settings};
use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{KeyScope, Store};
use suited::SuitedPreset;
use terminal::hardware::Hardware;
use terminal::note;
use terminal::opening;
use terminal::output::put;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Starts the service that voice frontends connect to
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Preset to talk with
    #[arg(long)]
    preset: Option<String>,
    /// GGUF file or Hugging Face folder, instead of the preset's
    #[arg(short, long, value_name = "PATH")]
    model: Option<PathBuf>,
    #[command(flatten)]
    engine: EngineFlags,
    /// Replies that are computed together (also -np)
    #[arg(long, value_name = "REPLIES")]
    parallel: Option<usize>,
    /// Address to listen on
    #[arg(long)]
    host: Option<IpAddr>,
    /// TCP port; 0 lets the system choose
    #[arg(long)]
    port: Option<u16>,
    /// Demands keys, and lets in this one for the user local. Other users of this machine see it among the processes:
    /// `reprise keys create` makes one that they do not
    #[arg(long, value_name = "KEY", value_parser = given_key)]
    api_key: Option<String>,
    /// Adapter in PEFT's form to run the model with, PATH or PATH:FACTOR; may be given more than once
    #[arg(long, value_name = "PATH")]
    lora: Vec<String>,
    /// Fetches the preset's model without a question, if it is not there
    #[arg(long)]
    yes: bool,
    /// Prints the effective configuration, each value with its origin, and exits
    #[arg(long)]
    print_config: bool,
}

impl Args {
    /// Returns the keys of the configuration that the flags set.
    pub fn flags(&self) -> Vec<Flag> {
        let flags = [
            self.preset.as_ref().map(|preset| Flag::new("--preset", "model.preset", preset)),
            self.model.as_ref().map(|path| Flag::new("--model", "model.path", path.display())),
            self.parallel.map(|replies| Flag::new("--parallel", "engine.max_sequences", replies)),
            self.api_key.as_ref().map(|_| Flag::new("--api-key", "auth.required", "always")),
            self.host.map(|host| Flag::new("--host", "server.host", host)),
            self.port.map(|port| Flag::new("--port", "server.port", port)),
            (!self.lora.is_empty()).then(|| Flag::new("--lora", "model.lora", serde_json::json!(self.lora))),
        ];
        flags.into_iter().flatten().chain(self.engine.flags()).collect()
    }
}

/// Refuses a key that cannot be told from one of ours, or from a list of keys.
fn given_key(key: &str) -> Result<String, String> {
    let is_word = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    match is_word && !key.starts_with("rk_") && !key.starts_with("ek_") {
        true => Ok(key.to_owned()),
        false => {
            Err("use one key of printable characters without a comma, which does not begin with rk_ or ek_; `reprise \
                      keys create` makes more"
                .to_owned())
        }
    }
}

pub fn run(args: Args, configuration: &configuration::Args, loaded: LoadedSettings) -> Result<()> {
    // Before there are threads.
    model::share_pools(loaded.settings.memory.idle_s > 0);
    let (loaded, of_machine) = with_suited_preset(&args, configuration, loaded)?;
    if args.print_config {
        return Ok(put(format_args!("{}", settings::print_config(&loaded)))?);
    }
    super::pull::missing::fetch_if_wanted(&loaded.settings, args.yes)?;
    let log = logging::start(&loaded.settings.logging)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the async runtime")?;
    let mut settings = loaded.settings.clone();
    let few_files =
        settings.fit_to_files(sockets::open_files::raise().context("cannot read the limit of open files")?)?;
    let old_keys = loaded.old_keys.iter().cloned();
    let beyond_memory = settings.beyond_memory(model::machine_bytes());
    let notes: Vec<String> = of_machine.into_iter().chain(old_keys).chain(few_files).chain(beyond_memory).collect();
    for note in &notes {
        tracing::warn!("{note}");
    }
    let explained = settings::explained(&loaded);
    let done = runtime.block_on(serve(&settings, args.api_key.as_deref(), notes, explained));
    // A disk that hangs must not keep the process: what was acknowledged is on it.
    runtime.shutdown_timeout(LAST_MOMENT);
    drop(log);
    match done? {
        Then::End => Ok(()),
        Then::BeginAnew => begin_anew(),
    }
}

/// Takes the preset that suits the machine, if nothing names a model, and returns the line that tells so.
fn with_suited_preset(
    args: &Args,
    configuration: &configuration::Args,
    loaded: LoadedSettings,
) -> Result<(LoadedSettings, Option<String>)> {
    if !loaded.names_no_model {
        return Ok((loaded, None));
    }
    match suited::for_this_machine(&loaded.settings)? {
        Some(SuitedPreset::Here { flags, says }) => {
            let flags = args.flags().into_iter().chain(flags).collect();
            Ok((configuration::load_with(configuration, flags)?, Some(says)))
        }
        Some(SuitedPreset::NotHere { says }) => {
            note!("{says}");
            Ok((loaded, None))
        }
        None => Ok((loaded, None)),
    }
}

/// Returns the configuration with the preset that a start without flags would take. Where none suits, it stays as it is.
pub fn as_started(configuration: &configuration::Args, loaded: LoadedSettings) -> LoadedSettings {
    match loaded.names_no_model.then(|| suited::for_this_machine(&loaded.settings)) {
        Some(Ok(Some(SuitedPreset::Here { flags, .. }))) => {
            configuration::load_with(configuration, flags).unwrap_or(loaded)
        }
        _ => loaded,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    End,
    BeginAnew,
}

/// Variable that tells a process that it replaced one that could not continue.
const BEGUN_ANEW: &str = "REPRISE_BEGUN_ANEW";

/// Replaces this process with the same program and arguments: a supervisor sees one process that continues.
fn begin_anew() -> Result<()> {
    use std::os::unix::process::CommandExt;
    tracing::warn!("the service restarts: a new process takes the place of this one");
    let program = std::env::current_exe().context("cannot find this program's file")?;
    // One that was replaced meanwhile is still what this process runs.
    let program = if program.exists() { program } else { "/proc/self/exe".into() };
    let error = std::process::Command::new(program).args(std::env::args_os().skip(1)).env(BEGUN_ANEW, "1").exec();
    Err(error).context("cannot restart")
}

const LAST_MOMENT: Duration = Duration::from_millis(200);
const LAST_POSTS: Duration = Duration::from_secs(1);

/// Runs the service. `api_key`: a key of the command line. `notes`: wishes of the configuration that the machine cannot meet, for the screen.
async fn serve(
    settings: &Settings,
    api_key: Option<&str>,
    notes: Vec<String>,
    explained: Vec<ExplainedValue>,
) -> Result<Then> {
    let stop = stop_on_signals()?;
    // What can be wrong is found before the model is read.
    let store = Store::open(&runtime::store_options(settings), wall_ms()).await?;
    if api_key.is_some() {
        store.put_user(LOCAL_USER, LOCAL_USER, wall_ms()).await?;
    }
    store.put_given_key(LOCAL_USER, api_key, &[KeyScope::Talk, KeyScope::Sessions], wall_ms()).await?;
    let policy = check_access(settings, &store).await?;
    if !policy.keys_required {
        store.put_user(LOCAL_USER, LOCAL_USER, wall_ms()).await?;
    }
    let sending = telemetry::start(&settings.telemetry, crate::version::short())?;
    let listeners = doors::listen(settings).await?;
    let address = listeners.main.local_addr().context("cannot read the address of the listener")?;

    note!("loading the model of preset {} ...", settings.model.preset);
    let begin = Instant::now();
    let started = doors::while_starting(&listeners, start(settings));
    let started = tokio::select! {
        started = started => started?,
        () = stop.cancelled() => {
            store.close().await?;
            return Ok(Then::End);
        }
    };
    let chosen = started.settings.chosen()?.clone();
    let presets = Presets::new(started.presets, chosen.clone(), &started.name).with_names(&started.settings)?;
    check_experiment(&started.settings, &presets)?;
    let notes: Vec<String> = started.notes.into_iter().chain(notes).collect();
    let speech = speech_servers::ask(&started.settings).await;
    let screen = screen::Screen {
        address,
        in_network: screen::address_in_network(),
        wyoming: listeners.wyoming.iter().filter_map(|port| port.listener.local_addr().ok()).collect(),
        settings: &started.settings,
        chosen: &chosen,
        model: &started.name,
        notes: &notes,
        plan: started.plan.as_ref(),
        loaded_in: begin.elapsed(),
        keys_required: policy.keys_required,
        statistics: store.statistics().await?,
        speech: &speech,
    };
    // A closed output is no reason not to serve.
    let _ = std::io::stdout().write_all(screen.to_string().as_bytes());

    let planned_bytes = started.plan.as_ref().map(model::Plan::shares).unwrap_or_default();
    let device = device_name(started.plan.as_ref(), &started.settings);
    let facts = StartFacts { settings: explained, device, notes, planned_bytes };
    let drain = Duration::from_secs(settings.shutdown.drain_s);
    let parts =
        RuntimeParts { settings: Arc::new(started.settings), store: store.clone(), model: started.model, presets };
    // A request to stop stops the service, whatever else ends it.
    let (model, end) = (parts.model.clone(), stop.child_token());
    let (waiting, ends) = (model.clone(), end.clone());
    let waits = tokio::spawn(async move {
        waiting.device_lost().await;
        ends.cancel();
    });
    doors::serve(listeners, parts, policy, facts, end).await;
    waits.abort();
    if let Some(sending) = sending {
        sending.stop(LAST_POSTS.min(drain)).await;
    }
    let device_is_lost = model.device_lost().now_or_never().is_some();
    let then = if device_is_lost && !stop.is_cancelled() { Then::BeginAnew } else { Then::End };
    tokio::time::timeout(drain.max(LAST_MOMENT), store.close()).await.context("the store did not close in time")??;
    tracing::info!("stopped");
    Ok(then)
}

/// Loads the model. A process that replaced another one was serving a moment ago, so it keeps trying.
async fn start(settings: &Settings) -> Result<model::Started, model::Error> {
    loop {
        match Model::start_with(settings, opening::progress()).await {
            Err(error) if std::env::var_os(BEGUN_ANEW).is_some() => {
                tracing::error!(%error, "the model could not be opened; trying again");
                tokio::time::sleep(Duration::from_secs(settings.engine.reopen_s.max(1))).await;
            }
            done => return done,
        }
    }
}

/// Names what computes.
fn device_name(plan: Option<&model::Plan>, settings: &Settings) -> String {
    let Some(plan) = plan else { return "another server".to_owned() };
    plan.device.as_ref().map_or_else(|| Hardware::new(settings).cpu_name(), |device| device.name.clone())
}

/// Returns a token for the first signal, which asks to stop; a second one stops at once.
fn stop_on_signals() -> Result<CancellationToken> {
    let stop = CancellationToken::new();
    let asked = stop.clone();
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    tokio::spawn(async move {
        let mut asked_at: Option<Instant> = None;
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            match asked_at {
                None => {
                    tracing::info!("stopping: replies in progress may finish");
                    asked.cancel();
                    asked_at = Some(Instant::now());
                }
                Some(at) if at.elapsed() >= SECOND_THOUGHT => {
                    tracing::warn!("asked to stop again: stopping at once");
                    std::process::exit(EXIT_AT_ONCE);
                }
                Some(_) => {}
            }
        }
    });
    Ok(stop)
}

/// Time within which a second signal counts as the same: some supervisors send it twice.
const SECOND_THOUGHT: Duration = Duration::from_secs(1);
const EXIT_AT_ONCE: i32 = 130;
