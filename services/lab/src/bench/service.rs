//! The measured service: a running one, or one that is started here with a store of its own.

use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use model::resolve;
use reqwest::Url;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use terminal::client::{Patience, ServiceAddress, ServiceClient};
use terminal::hardware::{Hardware, ProcessMemory};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

#[derive(Clone, Debug, clap::Args)]
pub struct BenchTarget {
    /// Address of a running service, e.g. http://127.0.0.1:8080
    #[arg(long, conflicts_with = "model")]
    pub url: Option<String>,
    /// Key for the service, if it demands one
    #[arg(long, env = "REPRISE_KEY", hide_env_values = true, requires = "url")]
    pub key: Option<String>,
    /// Starts a service of its own with this preset, GGUF file or folder, and an empty store [default: the configuration's]
    #[arg(long)]
    pub model: Option<String>,
}

pub struct MeasuredService {
    pub address: ServiceAddress,
    pub name: String, // for reports
    running: Option<Running>,
}

struct Running {
    process: Child,
    screen: Lines<BufReader<ChildStdout>>, // kept open: a process whose output is closed fails to write
    arguments: Vec<OsString>,
    /// Store, state and log, which are deleted with this.
    folder: TempDir,
}

impl MeasuredService {
    /// Opens the service. `given` are flags for a service that is started here, `needs` settings that the measurement
    /// demands of it.
    pub async fn open(
        target: &BenchTarget,
        given: &[OsString],
        settings: &Settings,
        needs: &[(&str, String)],
    ) -> Result<MeasuredService> {
        if let Some(url) = &target.url {
            let address = ServiceAddress::parse(url, target.key.clone())?;
            return Ok(MeasuredService { name: address.url.to_string(), address, running: None });
        }
        let model = target.model.as_deref().unwrap_or(&settings.model.preset);
        let (file, preset) = resolve(settings, model)?;
        let folder = tempfile::tempdir().context("cannot make a folder for the store")?;
        let arguments = arguments(given, &file, &preset.name, folder.path(), needs);
        let spinner = ProgressBar::new_spinner().with_message(format!("starting the service with {}", file.display()));
        spinner.enable_steady_tick(Duration::from_millis(100));
        let (process, screen, url) = launch(&arguments, folder.path()).await?;
        spinner.finish_and_clear();
        let running = Some(Running { process, screen, arguments, folder });
        Ok(MeasuredService { address: ServiceAddress { url, key: None }, name: file.display().to_string(), running })
    }

    /// Opens a websocket. `query` names a session to resume; `patience` is the longest wait for an event.
    pub async fn connect(
        &self,
        settings: &Settings,
        patience: Duration,
        query: &[(&str, Option<&str>)],
    ) -> Result<ServiceClient> {
        let patience = Patience { answer: patience, silence: patience };
        ServiceClient::connect(&self.address, query, &settings.limits, patience).await
    }

    /// Kills it as a power cut would, and starts it again on the same store. It may get another address.
    pub async fn restart(&mut self) -> Result<()> {
        let running = self.running.as_mut().context("only a service that was started here can be restarted")?;
        running.process.kill().await.context("cannot kill the service")?;
        let (process, screen, url) = launch(&running.arguments, running.folder.path()).await?;
        (running.process, running.screen, self.address.url) = (process, screen, url);
        Ok(())
    }

    /// Folder of cached sequences on disk; `None` for a service that runs elsewhere.
    pub fn state_folder(&self) -> Option<PathBuf> {
        Some(self.running.as_ref()?.folder.path().join(STATE))
    }

    pub fn hardware(&self, settings: &Settings) -> Hardware {
        if self.running.is_some() { Hardware::new(settings) } else { Hardware::asking(settings) }
    }

    pub fn memory(&self) -> Option<ProcessMemory> {
        // `None` for a service that runs elsewhere
        ProcessMemory::of(self.running.as_ref()?.process.id()?)
    }

    /// Processor time of its threads; `None` for a service that runs elsewhere.
    pub fn cpu(&self) -> Option<Duration> {
        terminal::hardware::processor_time(self.running.as_ref()?.process.id()?)
    }

    pub async fn stop(mut self) {
        if let Some(running) = &mut self.running {
            // Its store is deleted, so it need not finish anything.
            let _ = running.process.kill().await;
        }
    }
}

/// Starts the service and waits for the line with its address, which it prints when it is ready.
async fn launch(arguments: &[OsString], folder: &Path) -> Result<(Child, Lines<BufReader<ChildStdout>>, Url)> {
    let log = folder.join("log");
    let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(std::fs::File::create(&log)?);
    let mut process = command.kill_on_drop(true).spawn().context("cannot start the service")?;
    let mut screen = BufReader::new(process.stdout.take().context("the service's screen")?).lines();
    while let Some(line) = screen.next_line().await? {
        if let Some(address) = line.trim().strip_prefix("address ") {
            let url = Url::parse(address.trim()).with_context(|| format!("the service's address {address}"))?;
            return Ok((process, screen, url));
        }
    }
    Err(anyhow!("the service does not start: {}", last_words(&log)))
}

/// Builds the command line, the user's flags first: a later one wins.
fn arguments(given: &[OsString], file: &Path, preset: &str, folder: &Path, needs: &[(&str, String)]) -> Vec<OsString> {
    let words = ["serve", "--host", "127.0.0.1", "--port", "0", "--preset", preset, "--model"];
    let mut arguments: Vec<OsString> = words.map(OsString::from).into();
    arguments.push(std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()).into());
    arguments.extend(given.iter().cloned());
    let file = |name: &str| folder.join(name).display().to_string();
    let own = [
        ("server.public", "false".to_owned()),
        ("auth.required", "auto".to_owned()),
        ("logging.level", "warn".to_owned()),
        ("store.path", file("store.sqlite3")),
        ("memory.disk_path", file(STATE)),
        // A script talks faster than people do.
        ("limits.requests_per_minute_per_key", REQUESTS_PER_MINUTE.to_string()),
        ("limits.requests_per_minute_per_address", REQUESTS_PER_MINUTE.to_string()),
    ];
    arguments.extend(own.iter().chain(needs).map(|(key, value)| format!("--set={key}={value}").into()));
    arguments
}

/// Returns the error that ended it, which may have several lines.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let error = text.rfind("error: ").map_or("", |at| &text[at + "error: ".len()..]);
    let words = if error.is_empty() { &text } else { error };
    if words.trim().is_empty() { "it said nothing".to_owned() } else { words.trim().to_owned() }
}

const STATE: &str = "state"; // in the folder of a service that was started here

const REQUESTS_PER_MINUTE: u32 = 1_000_000;
