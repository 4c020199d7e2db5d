//! The measured service or its peer, and its restart.

use crate::bench::service::{BenchTarget, MeasuredService};
use anyhow::{Context, Result, bail};
use reqwest::Client;
use settings::Settings;
use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

pub struct Side {
    pub service: MeasuredService,
    starts_itself: bool,
    peer: Option<StartedPeer>,
}

struct StartedPeer {
    // started by a command of the user
    command: String,
    process: Child,
    patience: Duration,
}

impl Side {
    pub async fn of_target(
        target: &BenchTarget,
        given: &[OsString],
        settings: &Settings,
        needs: &[(&str, String)],
    ) -> Result<Side> {
        let service = MeasuredService::open(target, given, settings, needs).await?;
        Ok(Side { service, starts_itself: target.url.is_none(), peer: None })
    }

    pub async fn of_peer(url: &str, command: Option<&str>, settings: &Settings, patience: Duration) -> Result<Side> {
        let target = BenchTarget { url: Some(url.to_owned()), key: None, model: None };
        let service = MeasuredService::open(&target, &[], settings, &[]).await?;
        let mut side = Side { service, starts_itself: false, peer: None };
        if let Some(command) = command {
            let process = start(command)?;
            side.peer = Some(StartedPeer { command: command.to_owned(), process, patience });
            side.wait().await?;
        }
        Ok(side)
    }

    pub fn can_restart(&self) -> bool {
        self.starts_itself || self.peer.is_some()
    }

    pub async fn restart(&mut self) -> Result<()> {
        match &mut self.peer {
            None => self.service.restart().await,
            Some(peer) => {
                peer.process.kill().await.context("cannot kill the peer")?;
                peer.process = start(&peer.command)?;
                self.wait().await
            }
        }
    }

    async fn wait(&mut self) -> Result<()> {
        let Some(peer) = &mut self.peer else { return Ok(()) };
        let (http, begin) = (Client::new(), Instant::now());
        while self.service.address.get(&http, "/v1/models").await.is_err() {
            if let Some(status) = peer.process.try_wait()? {
                bail!("--peer-command ended at once: {status}");
            }
            if begin.elapsed() > peer.patience {
                bail!("--peer-command runs, but nothing answers at {}", self.service.name);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    pub async fn stop(mut self) {
        if let Some(peer) = &mut self.peer {
            let _ = peer.process.kill().await;
        }
        self.service.stop().await;
    }
}

const POLL: Duration = Duration::from_millis(100);

/// Starts a command. The shell becomes the command, so that killing it kills the server.
fn start(command: &str) -> Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec {command}")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.kill_on_drop(true).spawn().context("cannot start --peer-command")
}
