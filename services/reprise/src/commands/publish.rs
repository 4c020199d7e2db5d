//! `reprise publish`: puts files of a model on a hub, with a card made of what they hold and what was measured.

mod card;
mod measured;

use anyhow::{Context, Result, anyhow, bail};
use card::{Card, CardFile};
use hub::{Content, Name, Publication, Published, PublishedFile, Sent, Upload};
use indicatif::HumanBytes;
use model::hub_client;
use serde_json::{Value, json};
use settings::Settings;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terminal::flags::wrong_use;
use terminal::output::{print_json, progress_bar};
use terminal::{note, say};

/// Publishes files of a model on a hub, in one commit; a broken run resumes when it is started again
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Repository, OWNER/REPO (with @BRANCH, or without); it is created where it is not there
    repo: String,
    /// Files to publish, each under its own name
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Card to publish as README.md [default: one is made of the files and the reports]
    #[arg(long)]
    card: Option<PathBuf>,
    /// Reports for the card: what validate, qa and bench print with --json
    #[arg(long = "report")]
    reports: Vec<PathBuf>,
    /// Repository of the model that these files were made from, OWNER/REPO, with @REVISION for the card
    #[arg(long)]
    base: Option<String>,
    /// Licence of the model, as the hub names it
    #[arg(long)]
    license: Option<String>,
    /// Creates a repository that only its owner sees
    #[arg(long)]
    private: bool,
    /// Puts files in the place of others of the same names
    #[arg(long)]
    replace: bool,
    /// Message of the commit
    #[arg(long)]
    message: Option<String>,
    /// Prints the card and what would be sent, and sends nothing
    #[arg(long)]
    dry_run: bool,
    /// Prints one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

const CARD: &str = "README.md";

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let name = Name::parse(&args.repo).filter(|name| name.file.is_none() && name.hub.is_none());
    let name = name.ok_or_else(|| wrong_use(anyhow!("{} is not OWNER/REPO", args.repo)))?;
    let mut uploads = uploads(&args.files)?;
    let is_made = args.card.is_none() && !uploads.contains_key(CARD);
    if args.card.is_some() && uploads.contains_key(CARD) {
        return Err(wrong_use(anyhow!("there are two cards, --card and a {CARD} among the files: leave one out")));
    }
    if !is_made && (!args.reports.is_empty() || args.base.is_some() || args.license.is_some()) {
        return Err(wrong_use(anyhow!("--report, --base and --license are for a card that is made, and one is given")));
    }
    if let Some(card) = &args.card {
        uploads.insert(CARD.to_owned(), Content::File(card.clone()));
    } else if is_made {
        uploads.insert(CARD.to_owned(), Content::Text(made_card(&args, &name, &uploads)?));
    }
    if args.dry_run {
        return preview(&args, &name, &uploads);
    }
    let files = args.files.len();
    let message = args.message.clone().unwrap_or_else(|| format!("Publish {files} files"));
    let publication = Publication { name, is_private: args.private, replaces: args.replace, message };
    let uploads = uploads.into_iter().map(|(path, content)| Upload { path, content }).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let published =
        runtime.context("cannot start the async runtime")?.block_on(publish(&publication, uploads, settings))?;
    match args.json {
        true => print_json(&told(&publication, &published)),
        false => print(&publication, &published, settings),
    }
}

/// The files by their names on the hub; those of a folder by their names below it.
fn uploads(files: &[PathBuf]) -> Result<BTreeMap<String, Content>> {
    let mut uploads = BTreeMap::new();
    let mut add = |name: String, path: PathBuf| match uploads.insert(name.clone(), Content::File(path)) {
        None => Ok(()),
        Some(_) => Err(anyhow!("two files are called {name}: rename one of them")),
    };
    for path in files {
        let found = std::fs::metadata(path).with_context(|| path.display().to_string())?;
        if found.is_dir() {
            for entry in std::fs::read_dir(path).with_context(|| path.display().to_string())? {
                let entry = entry?.path();
                match name_of(&entry)? {
                    name if name.starts_with('.') => {}
                    name if entry.is_file() => add(name, entry)?,
                    _ => note!("note: {} is left out: only files of a folder are published", entry.display()),
                }
            }
            continue;
        }
        add(name_of(path)?, path.clone())?;
    }
    match uploads.is_empty() {
        true => bail!("there is no file to publish"),
        false => Ok(uploads),
    }
}

fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    name.with_context(|| format!("{} has no name that a hub could take", path.display()))
}

fn made_card(args: &Args, name: &Name, uploads: &BTreeMap<String, Content>) -> Result<String> {
    let mut reports = Vec::new();
    for path in &args.reports {
        let text = std::fs::read(path).with_context(|| path.display().to_string())?;
        let report: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} is no report: save what a command prints with --json", path.display()))?;
        if !measured::shows(&report) {
            bail!("{} is no report: it holds neither checks nor a measured number", path.display());
        }
        reports.push((name_of(path)?, report));
    }
    let files: Result<Vec<CardFile>> = args.files.iter().map(|path| CardFile::read(path, uploads)).collect();
    let (base, license) = (args.base.as_deref(), args.license.as_deref());
    Ok(Card { repo: &name.repo, base, license, files: &files?, reports: &reports }.to_string())
}

fn preview(args: &Args, name: &Name, uploads: &BTreeMap<String, Content>) -> Result<()> {
    let mut files = Vec::new();
    for (path, content) in uploads {
        files.push((path, bytes_of(content)?));
    }
    let card = match &uploads[CARD] {
        Content::Text(text) => text.clone(),
        Content::File(file) => std::fs::read_to_string(file).with_context(|| file.display().to_string())?,
    };
    if args.json {
        let files: Vec<Value> = files.iter().map(|(path, bytes)| json!({ "path": path, "bytes": bytes })).collect();
        return print_json(&json!({ "repo": name.repo, "files": files, "card": card }));
    }
    say!("{card}")?;
    for (path, bytes) in files {
        say!("{path}: {}, would go to {}", HumanBytes(bytes), name.repo)?;
    }
    Ok(())
}

fn bytes_of(content: &Content) -> Result<u64> {
    match content {
        Content::Text(text) => Ok(text.len() as u64),
        Content::File(file) => Ok(std::fs::metadata(file).with_context(|| file.display().to_string())?.len()),
    }
}

async fn publish(publication: &Publication, uploads: Vec<Upload>, settings: &Settings) -> Result<Published> {
    let hub = hub_client(settings, |why| note!("{why}"))?;
    let mut bytes = 0;
    for upload in &uploads {
        bytes += bytes_of(&upload.content)?;
    }
    let template = "{msg} {bar:30} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let bar = progress_bar(bytes, template);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut sent = BTreeMap::new();
    let mut progress = |path: &str, bytes: u64| {
        bar.set_message(path.to_owned());
        sent.insert(path.to_owned(), bytes);
        bar.set_position(sent.values().sum());
    };
    let published = hub.publish(publication, uploads, &mut progress).await?;
    bar.finish_and_clear();
    Ok(published)
}

fn told(publication: &Publication, published: &Published) -> Value {
    let files = published.files.iter().map(|PublishedFile { path, bytes, sha256, how }| {
        json!({ "path": path, "bytes": bytes, "sha256": sha256, "sent": *how == Sent::New })
    });
    json!({ "repo": publication.name.repo, "commit": published.commit, "files": files.collect::<Vec<_>>() })
}

fn print(publication: &Publication, published: &Published, settings: &Settings) -> Result<()> {
    for PublishedFile { path, bytes, how, .. } in &published.files {
        let how = match how {
            Sent::Same => "was there",
            Sent::There => "the hub had its bytes",
            Sent::New => "sent",
        };
        say!("{path}: {}, {how}", HumanBytes(*bytes))?;
    }
    say!("{}/{} at {}", settings.hub.url.trim_end_matches('/'), publication.name.repo, published.commit)?;
    Ok(())
}
