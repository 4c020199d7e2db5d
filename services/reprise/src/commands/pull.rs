//! `reprise pull`: fetches a model from a hub to the place where its preset looks for it.

pub mod missing;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use encoder::Encoder;
use hub::{Fetched, HubClient, Listed, Listing, ModelFiles, Name};
use indicatif::HumanBytes;
use model::{hub_client, hub_files, hub_name};
use serde::Serialize;
use settings::{Preset, Settings};
use terminal::output::{print_json, progress_bar};
use terminal::{note, say};

/// Fetches a model from a hub; an interrupted download resumes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Preset, `encoder` or `multilingual` (sentence encoders of [remember]), OWNER/REPO (with /FILE and @REVISION, or without), or an address of the hub's pages
    model: String,
    /// Prints one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct PulledModel {
    repo: String,
    commit: String,
    model: PathBuf,
    files: Vec<PulledFile>,
    took_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    #[serde(skip)]
    is_encoder: bool,
    /// Reason why the complete file cannot be talked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

#[derive(Debug, Serialize)]
struct PulledFile {
    path: PathBuf,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    fetched_bytes: u64,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let name = find(&args.model, settings)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the async runtime")?;
    let report = runtime.block_on(pull(&name, settings))?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report)?;
    }
    if let Some(trouble) = &report.trouble {
        bail!("{}: {trouble}", report.model.display());
    }
    Ok(())
}

/// Returns the name on the hub: that of a preset's model, or the one that was typed.
fn find(asked: &str, settings: &Settings) -> Result<Name> {
    if let Some(preset) = settings.presets.get(asked) {
        return of_preset(preset);
    }
    let repo = settings.remember.encoders.get(asked).map_or(asked, String::as_str);
    let name = Name::parse(repo).with_context(|| {
        let known = settings.presets.values().filter(|preset| preset.source.repo.is_some());
        let known: Vec<&str> = known.map(|preset| preset.name.as_str()).collect();
        format!("{asked} is neither OWNER/REPO nor a preset with a model to fetch; those are {}", known.join(", "))
    })?;
    let own = settings.hub.url.split_once("://").map_or(settings.hub.url.as_str(), |(_, host)| host);
    match &name.hub {
        Some(hub) if Some(hub.as_str()) != own.split('/').next() => {
            bail!("{asked} is on {hub}, but models come from {own}: set hub.url to https://{hub}")
        }
        _ => Ok(name),
    }
}

fn of_preset(preset: &Preset) -> Result<Name> {
    match (&preset.source.path, hub_name(preset)) {
        (Some(path), _) => {
            bail!("preset {} has its model at {}: there is nothing to fetch", preset.name, path.display())
        }
        (None, None) => bail!("preset {} names no repository to fetch its model from", preset.name),
        (None, Some(name)) => {
            Name::parse(&name).with_context(|| format!("preset {}: {name} is no name of a hub", preset.name))
        }
    }
}

async fn pull(name: &Name, settings: &Settings) -> Result<PulledModel> {
    let begin = Instant::now();
    let hub = hub_client(settings, |why| note!("{why}"))?;
    let listing = hub.list(name).await?;
    let model_files = hub_files(name, &listing, settings)?;
    let files = fetch_all(&hub, name, &listing, &model_files).await?;
    let model = model_files.model();
    let is_encoder = settings.remember.encoders.values().any(|repo| *repo == name.repo);
    let trouble = match is_encoder {
        true => Encoder::open(&model, 1).err().map(|error| error.to_string()),
        false => weights::open(&model, true).err().map(|error| error.to_string()),
    };
    let knows = |preset: &&Preset| preset.model_path(&settings.model.models_dir).as_ref() == Some(&model);
    // The plainest name: others of the same model are other windows of it.
    let preset = settings.presets.values().filter(knows).map(|preset| preset.name.clone()).min_by_key(String::len);
    let took_s = begin.elapsed().as_secs_f64();
    let (repo, commit) = (name.repo.clone(), listing.commit.clone());
    Ok(PulledModel { repo, commit, model, files, took_s, preset, is_encoder, trouble })
}

async fn fetch_all(hub: &HubClient, name: &Name, listing: &Listing, model: &ModelFiles<'_>) -> Result<Vec<PulledFile>> {
    let bar =
        progress_bar(model.bytes(), "{msg} {bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    let (mut done, mut current): (u64, Option<Listed>) = (0, None);
    let mut progress = |file: &Listed, there: u64| {
        if current.as_ref().is_none_or(|current| current.path != file.path) {
            done += current.replace(file.clone()).map_or(0, |before| before.bytes);
            bar.set_message(file.path.clone());
        }
        bar.set_position(done + there);
    };
    let fetched = model.fetch(hub, name, listing, &mut progress).await?;
    bar.finish_and_clear();
    let report = |(file, path, fetched): (&Listed, PathBuf, Fetched)| {
        let fetched_bytes = match fetched {
            Fetched::There => 0,
            Fetched::New { bytes } => bytes,
        };
        PulledFile { path, bytes: file.bytes, sha256: file.sha256.clone(), fetched_bytes }
    };
    Ok(fetched.into_iter().map(report).collect())
}

fn print(report: &PulledModel) -> Result<()> {
    let PulledModel { repo, commit, model, files, took_s, preset, is_encoder, trouble } = report;
    for PulledFile { path, bytes, sha256, fetched_bytes } in files {
        let checked = if sha256.is_some() { "checked by its SHA-256" } else { "of the size that was told" };
        let how = match fetched_bytes {
            0 => "was there",
            _ if fetched_bytes < bytes => "gone on with",
            _ => "fetched",
        };
        say!("{}: {}, {how}, {checked}", path.display(), HumanBytes(*bytes))?;
    }
    say!("{repo} at {commit}, {took_s:.0} s")?;
    match preset {
        _ if trouble.is_some() => {}
        _ if *is_encoder => say!("a running service uses it from the next silence on (remember.encoder)")?,
        Some(preset) => say!("talk with it: ./start.sh --preset {preset}    what fits: reprise plan --model {preset}")?,
        None => say!("talk with it: ./start.sh --model {0}    what fits: reprise plan --model {0}", model.display())?,
    }
    Ok(())
}
