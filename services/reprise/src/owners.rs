//! User of a command, the question before it deletes, what goes with deleted words, and the files that words are written to.

use anyhow::{Context, Result, bail};
use engine::OwnerId;
use settings::Settings;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use store::{Error, SessionRef, Store};
use terminal::output::put_note;

pub async fn users(store: &Store, user: Option<&str>) -> Result<Vec<String>> {
    let all: Vec<String> = store.users().await?.into_iter().map(|user| user.id).collect();
    match user {
        None => Ok(all),
        Some(user) if all.iter().any(|known| known == user) => Ok(vec![user.to_owned()]),
        Some(user) => Err(Error::NoUser { user: user.to_owned() }.into()),
    }
}

/// Asks for confirmation; a script has to pass --yes.
pub fn confirm(what: &str, yes: bool) -> Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("to {what} without a question, add --yes");
    }
    put_note(format_args!("{what}? type yes: "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if answer.trim() == "yes" { Ok(()) } else { bail!("nothing was deleted") }
}

/// Deletes what was computed of deleted words from the disk, and returns the number of files. A running service drops its
/// own memory.
pub async fn forget_computed(settings: &Settings, store: &Store) -> Result<usize> {
    let Some(folder) = &settings.memory.disk_path else { return Ok(0) };
    let pasts = store.pasts_to_forget().await?;
    let owners: Vec<OwnerId> = pasts.into_iter().map(|past| OwnerId(past.owner)).collect();
    engine::forget_files(folder, &owners)
        .with_context(|| format!("files that were computed of deleted conversations are still in {}", folder.display()))
}

/// Copies what was computed of sessions from one folder to another, and returns the number of files. What is to be forgotten stays.
pub async fn copy_computed(store: &Store, sessions: &[SessionRef], from: &Path, to: &Path) -> Result<usize> {
    let forgotten = store.pasts_to_forget().await?;
    let stays = |owner: &u64| forgotten.iter().any(|past| past.owner == *owner);
    let owners: Vec<OwnerId> =
        sessions.iter().map(SessionRef::past_owner).filter(|owner| !stays(owner)).map(OwnerId).collect();
    engine::copy_files(from, &owners, to).with_context(|| {
        format!("what was computed of the sessions was not copied from {} to {}", from.display(), to.display())
    })
}

/// Creates a file that only its owner reads.
pub fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Writes a file that only its owner reads: a full disk leaves none, or the one from before.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let part = path.with_added_extension("part");
    let written = private_file(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    });
    written
        .inspect_err(|_| drop(std::fs::remove_file(&part)))
        .with_context(|| format!("cannot write {}", path.display()))
}
