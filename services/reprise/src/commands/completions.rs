//! `reprise completions`: the command line for shells.

use clap::Command;
use clap_complete::Shell;
use std::io::Write;

/// Prints a script with which a shell completes commands and flags
#[derive(Debug, clap::Args)]
pub struct Args {
    shell: Shell,
}

pub fn print(args: &Args, mut command: Command) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "reprise", &mut script);
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().lock().write_all(&script);
}
