//! `cargo run --release -p proof -- all --minutes 10`

use clap::{Parser, Subcommand};
use proof::summary::tell;
use proof::{all, crash, deletion, explore, hostile, load, same, stall, websocket};
use std::process::ExitCode;

/// Shows that the house stands
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: ProofCommand,
}

#[derive(Subcommand)]
enum ProofCommand {
    All(all::Args),
    Hostile(hostile::Args),
    Crash(crash::Args),
    Deletion(deletion::Args),
    Explore(explore::Args),
    Websocket(websocket::Args),
    Same(same::Args),
    Load(load::Args),
    Stall(stall::Args),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        ProofCommand::All(args) => all::run(&args).await,
        ProofCommand::Hostile(args) => hostile::run(&args),
        ProofCommand::Explore(args) => tell(&[explore::prove(&args)], args.json),
        ProofCommand::Websocket(args) => tell(&[websocket::prove(&args).await?], args.json),
        ProofCommand::Same(args) => tell(&[same::prove(&args)?], args.json),
        ProofCommand::Load(args) => tell(&[load::prove(&args).await?], args.json),
        ProofCommand::Stall(args) => tell(&[stall::prove(&args).await?], args.json),
        ProofCommand::Crash(args) => tell(&[crash::prove(&args).await?], args.json),
        ProofCommand::Deletion(args) => tell(&[deletion::prove(&args).await?], args.json),
    }
}
