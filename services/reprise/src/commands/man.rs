//! `reprise man`: the command line as manual pages.

use anyhow::{Context, Result};
use clap::Command;
use std::path::PathBuf;

/// Writes a manual page of each command
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write to; made if it is not there
    folder: PathBuf,
}

pub fn write(args: &Args, command: Command) -> Result<()> {
    let folder = &args.folder;
    // The level of this processor says nothing about the machine where a page is read.
    let command = command.long_version(None::<&'static str>);
    let written = std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written.with_context(|| format!("cannot write manual pages to {}", folder.display()))
}
