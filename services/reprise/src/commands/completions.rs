//! `reprise completions`: the command line for shells.

use anyhow::Result;
use clap::Command;
use clap_complete::Shell;
use std::io::Write;
use terminal::output::stdout;

/// Prints a script with which a shell completes commands and flags
#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn print(args: &Args, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "reprise", &mut script);
    Ok(stdout().write_all(&script)?)
}
