//! The service that is measured: one that runs somewhere, or one that is started for this with a store of its own.

use crate::machine::{Machine, Memory};
use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use model::resolve;
use reqwest::{Client, RequestBuilder, Url};
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

#[derive(Clone, Debug, clap::Args)]
pub struct Target {
    /// A service that runs, e.g. http://127.0.0.1:8080
    #[arg(long, conflicts_with = "model")]
    pub url: Option<String>,
    /// The key, where the service demands one
    #[arg(long, env = "REPRISE_KEY", hide_env_values = true, requires = "url")]
    pub key: Option<String>,
    /// Starts a service of its own with this preset, GGUF file or folder, and an empty store [default: the configuration's]
    #[arg(long)]
    pub model: Option<String>,
}

pub struct Service {
    pub url: Url,
    pub key: Option<String>,
    /// A name for reports.
    pub name: String,
    running: Option<Running>,
}

struct Running {
    process: Child,
    /// Whoever writes must have a reader.
    screen: Lines<BufReader<ChildStdout>>,
    arguments: Vec<OsString>,
    /// Store, state and log, gone with this.
    folder: TempDir,
}

impl Service {
    /// `needs` are settings that the measurement demands of a service that is started here.
    pub async fn open(
        target: &Target,
        given: &[OsString],
        settings: &Settings,
        needs: &[(&str, String)],
    ) -> Result<Service> {
        let Some(url) = &target.url else { return Service::start(target, given, settings, needs).await };
        let parsed = Url::parse(url).with_context(|| format!("--url {url}"))?;
        if parsed.scheme() != "http" {
            bail!("--url {url}: only http:// is measured, as a proxy would be measured with it");
        }
        Ok(Service { name: parsed.to_string(), url: parsed, key: target.key.clone(), running: None })
    }

    async fn start(
        target: &Target,
        given: &[OsString],
        settings: &Settings,
        needs: &[(&str, String)],
    ) -> Result<Service> {
        let model = target.model.as_deref().unwrap_or(&settings.model.preset);
        let (file, preset) = resolve(settings, model)?;
        let folder = tempfile::tempdir().context("a folder for the store")?;
        let arguments = arguments(given, &file, &preset.name, folder.path(), needs);
        let spinner = ProgressBar::new_spinner().with_message(format!("starting the service with {}", file.display()));
        spinner.enable_steady_tick(Duration::from_millis(100));
        let (process, screen, url) = launch(&arguments, folder.path()).await?;
        spinner.finish_and_clear();
        let running = Some(Running { process, screen, arguments, folder });
        Ok(Service { url, key: None, name: file.display().to_string(), running })
    }

    /// Kills it as a power cut would, and starts it again on the same store. It may get another address.
    pub async fn restart(&mut self) -> Result<()> {
        let running = self.running.as_mut().context("only a service that was started here can be restarted")?;
        running.process.kill().await.context("cannot kill the service")?;
        let (process, screen, url) = launch(&running.arguments, running.folder.path()).await?;
        (running.process, running.screen, self.url) = (process, screen, url);
        Ok(())
    }

    /// What was computed and is on disk. None where it runs elsewhere.
    pub fn state_folder(&self) -> Option<PathBuf> {
        Some(self.running.as_ref()?.folder.path().join(STATE))
    }

    pub fn machine(&self, settings: &Settings) -> Machine {
        if self.running.is_some() { Machine::new(settings) } else { Machine::asking(settings) }
    }

    /// None where it runs elsewhere.
    pub fn memory(&self) -> Option<Memory> {
        Memory::of(self.running.as_ref()?.process.id()?)
    }

    pub fn request(&self, http: &Client, method: reqwest::Method, path: &str) -> RequestBuilder {
        let mut url = self.url.clone();
        // A base URL as clients are given it may already end in /v1.
        let base = url.path().trim_end_matches('/').trim_end_matches("/v1").to_owned();
        url.set_path(&format!("{base}{path}"));
        let request = http.request(method, url);
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    /// The name under which a server offers its model; most take any.
    pub async fn served_model(&self, http: &Client) -> Option<String> {
        let response = self.request(http, reqwest::Method::GET, "/v1/models").send().await.ok()?;
        let models: Value = response.json().await.ok()?;
        Some(models["data"][0]["id"].as_str()?.to_owned())
    }

    pub async fn stop(mut self) {
        if let Some(running) = &mut self.running {
            // Nothing of it is kept, so it need not finish anything.
            let _ = running.process.kill().await;
        }
    }
}

/// Until it says where it listens, which it says when it is ready.
async fn launch(arguments: &[OsString], folder: &Path) -> Result<(Child, Lines<BufReader<ChildStdout>>, Url)> {
    let log = folder.join("log");
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
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

/// Those of the user first: a later one wins.
fn arguments(given: &[OsString], file: &Path, preset: &str, folder: &Path, needs: &[(&str, String)]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into(), "--preset".into(), preset.into()];
    let mut flag = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    flag("--model", std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf()).into());
    flag("--host", "127.0.0.1".into());
    flag("--port", "0".into());
    arguments.extend(given.iter().cloned());
    let mut flag = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    let own = [("server.public", "false"), ("auth.required", "auto"), ("logging.level", "warn")];
    let own = own.map(|(key, value)| (key, OsString::from(value)));
    let places = [("store.path", "store.sqlite3"), ("memory.disk_path", STATE)];
    let places = places.map(|(key, name)| (key, folder.join(name).into_os_string()));
    let needs = needs.iter().map(|(key, value)| (*key, OsString::from(value)));
    for (key, value) in own.into_iter().chain(places).chain(needs) {
        let mut set = OsString::from(format!("{key}="));
        set.push(value);
        flag("--set", set);
    }
    arguments
}

/// The error that ended it, which may have several lines.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let error = text.rfind("error: ").map_or("", |at| &text[at + "error: ".len()..]);
    let words = if error.is_empty() { &text } else { error };
    if words.trim().is_empty() { "it said nothing".to_owned() } else { words.trim().to_owned() }
}

/// A script talks faster than people do.
pub fn no_rate_limits() -> [(&'static str, String); 2] {
    ["limits.requests_per_minute_per_key", "limits.requests_per_minute_per_address"]
        .map(|key| (key, REQUESTS_PER_MINUTE.to_string()))
}

/// In the folder of a service that was started here.
const STATE: &str = "state";

const REQUESTS_PER_MINUTE: u32 = 1_000_000;
