//! `cargo run -p proof -- hostile --minutes 10`

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Shows that the house stands
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: ProofCommand,
}

#[derive(Subcommand)]
enum ProofCommand {
    Hostile(proof::hostile::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        ProofCommand::Hostile(args) => proof::hostile::run(&args),
    }
}
