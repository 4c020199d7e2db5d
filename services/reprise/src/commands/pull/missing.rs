//! Question of a start whose model is not there: whether to fetch it.

use super::{fetch_all, of_preset};
use anyhow::{Context, Result};
use indicatif::HumanBytes;
use model::{hub_client, hub_files};
use settings::Settings;
use std::io::IsTerminal;
use std::path::Path;
use terminal::note;
use terminal::output::put_note;

/// Fetches the model of the chosen preset, if the user wants it. Else the start says what is missing.
pub fn fetch_if_wanted(settings: &Settings, yes: bool) -> Result<()> {
    let preset = settings.chosen()?;
    let is_fetchable = settings.upstream.url.is_none() && preset.source.path.is_none() && preset.source.repo.is_some();
    let is_there = preset.model_path(&settings.model.models_dir).is_none_or(|file| file.exists());
    if is_there || !is_fetchable || !(yes || std::io::stdin().is_terminal()) {
        return Ok(());
    }
    let name = of_preset(preset)?;
    let hub = hub_client(settings, |why| note!("{why}"))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    runtime.block_on(async {
        let listing = hub.list(&name).await?;
        let files = hub_files(&name, &listing, settings)?;
        let folder = &settings.model.models_dir;
        let free = free_bytes(folder).map_or(String::new(), |bytes| format!(", where {} are free", HumanBytes(bytes)));
        note!(
            "the model of preset {} is not here: {} from {} into {}{free}",
            preset.name,
            HumanBytes(files.bytes()),
            settings.hub.url,
            folder.display()
        );
        if yes || is_yes()? {
            fetch_all(&hub, &name, &listing, &files).await?;
        }
        Ok(())
    })
}

fn is_yes() -> Result<bool> {
    put_note(format_args!("fetch it now? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let nearest = folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let about = rustix::fs::statvfs(nearest).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}
