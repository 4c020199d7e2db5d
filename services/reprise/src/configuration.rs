//! Configuration of the process, with the flags and variables that add to it.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use settings::{Flag, LoadedSettings, Settings, Sources};
use terminal::flags::wrong_use;

#[derive(clap::Args, Debug)]
pub struct Args {
    /// Configuration file [default: reprise.toml here, then the one in the home folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sets one key of the configuration, e.g. --set engine.threads=2
    #[arg(long = "set", global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Threads that compute [default: engine.threads of the configuration]
    #[arg(short, long, global = true)]
    pub threads: Option<usize>,
    /// Reads model files into memory instead of mapping them
    #[arg(long, global = true)]
    pub no_mmap: bool,
}

impl Args {
    /// Returns the same flags for a service that a measurement starts in a folder of its own.
    pub fn passed_on(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        let mut flag = |name: &str, value: OsString| words.extend([name.into(), value]);
        if let Some(config) = &self.config {
            flag("--config", std::path::absolute(config).unwrap_or_else(|_| config.clone()).into());
        }
        if let Some(threads) = self.threads {
            flag("--threads", threads.to_string().into());
        }
        for set in &self.set {
            flag("--set", set.into());
        }
        if self.no_mmap {
            words.push("--no-mmap".into());
        }
        words
    }

    /// Returns the keys that these flags set, then those of the command.
    pub fn all(&self, of_command: Vec<Flag>) -> Result<Vec<Flag>> {
        let mut all = Vec::new();
        for set in &self.set {
            let (key, value) = set.split_once('=').with_context(|| format!("--set {set}: expected KEY=VALUE"))?;
            all.push(Flag::new("--set", key.trim(), value.trim()));
        }
        all.extend(self.threads.map(|threads| Flag::new("--threads", "engine.threads", threads)));
        all.extend(self.no_mmap.then(|| Flag::new("--no-mmap", "engine.mmap", false)));
        all.extend(of_command);
        Ok(all)
    }
}

/// Loads the configuration. `flags`: those of the command itself, which win.
pub fn load_with(args: &Args, flags: Vec<Flag>) -> Result<LoadedSettings> {
    let sources = Sources {
        config_file: args.config.clone(),
        directory: std::env::current_dir().ok(),
        environment: std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect(),
        flags: args.all(flags)?,
    };
    Settings::load(&sources).map_err(|error| match error.is_of_flags() {
        true => wrong_use(error),
        false => error.into(),
    })
}
