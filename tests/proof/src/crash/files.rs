//! Damage to a store that no service has open: torn logs, imports and migrations that are killed.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tests::random::Random;
use tests::service::{command, run_ok};

/// Cuts the end of the store's log off, or makes it zeros, as a disk leaves it whose power went. False: there is none.
pub fn tear_log(folder: &Path, random: &mut Random) -> Result<bool> {
    let path = folder.join("data/reprise.sqlite3-wal");
    let Ok(log) = File::options().read(true).write(true).open(path) else { return Ok(false) };
    let bytes = log.metadata()?.len();
    if bytes < 64 {
        return Ok(false);
    }
    // The newest commits take some kilobytes.
    let torn = 1 + random.below(bytes.min(40_000));
    match random.below(2) {
        0 => log.set_len(bytes - torn)?,
        _ => log.write_all_at(&vec![0; torn as usize], bytes - torn)?,
    }
    Ok(true)
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../services/store/tests/data").join(name)
}

/// Runs the binary and kills it after so long, if it is not done before. Whether it was killed.
pub async fn run_until(folder: &Path, arguments: &[&str], time: Duration) -> Result<bool> {
    let mut command = command(folder, arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    if let Ok(status) = tokio::time::timeout(time, child.wait()).await {
        ensure!(status?.success(), "{arguments:?} fails");
        return Ok(false);
    }
    child.kill().await?;
    Ok(true)
}

/// Problems that are found in the store, and the export of each of its sessions, without the times that a start writes: it ends the
/// replies that a kill cut off.
pub async fn exported(folder: &Path) -> Result<(String, BTreeMap<String, String>)> {
    if !folder.join("data/reprise.sqlite3").exists() {
        return Ok((String::new(), BTreeMap::new()));
    }
    let checked: Value = serde_json::from_str(&run_ok(folder, &["sessions", "check", "--json"]).await)?;
    let list: Value = serde_json::from_str(&run_ok(folder, &["sessions", "list", "--json"]).await)?;
    let mut sessions = BTreeMap::new();
    for session in list.as_array().context("a list of sessions")? {
        let id = session["id"].as_str().context("a session's id")?;
        let lines = run_ok(folder, &["sessions", "export", id]).await;
        sessions.insert(id.to_owned(), lines.lines().map(untimed).collect::<Result<_>>()?);
    }
    let problems = checked["problems"].as_array().context("a list of problems")?;
    Ok((problems.iter().map(Value::to_string).collect(), sessions))
}

fn untimed(line: &str) -> Result<String> {
    let mut line: Value = serde_json::from_str(line)?;
    if let Some(fields) = line.as_object_mut() {
        fields.retain(|name, _| name != "created_at_ms" && name != "finished_at_ms");
    }
    Ok(line.to_string())
}
