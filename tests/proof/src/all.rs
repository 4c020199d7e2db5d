//! Every proof, one after the other.

use crate::summary::{Summary, tell};
use crate::{crash, deletion, explore, hostile, load, same, stall, websocket};
use anyhow::Result;
use std::process::ExitCode;

/// Runs every proof
#[derive(clap::Args, Clone)]
pub struct Args {
    /// Time for all together, without the websockets' table and the heaviest inputs, which take what they take
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long)]
    json: bool,
}

pub async fn run(args: &Args) -> Result<ExitCode> {
    let Args { minutes, seed, json } = *args;
    let mut summaries: Vec<Summary> = Vec::new();
    summaries.push(websocket::prove(&websocket::Args { case: None, json }).await?);
    let crash = crash::Args { minutes: minutes * 0.25, kills: None, seed, json };
    summaries.push(crash::prove(&crash).await?);
    let deletion = deletion::Args { minutes: minutes * 0.1, deletions: None, seed, json };
    summaries.push(deletion::prove(&deletion).await?);
    summaries.push(explore::prove(&explore::Args { minutes: minutes * 0.15, depth: None, scene: None, json }));
    summaries.push(same::prove(&same::Args { minutes: minutes * 0.15, conversations: None, first: 0, seed, json })?);
    let sizes = load::HouseSizes { idle: 2000, talking: 40, at_once: 4, crowd: 12, seed };
    let load = load::Args { minutes: minutes * 0.1, sizes, json };
    summaries.push(load::prove(&load).await?);
    let stall = stall::Args { only: None, at_once: 4, most_ms: Some(stall::MOST_MS), json, sizes: None };
    summaries.push(stall::prove(&stall).await?);
    // It may ask for a runtime of its own, which must not lie in this one.
    summaries.push(std::thread::scope(|scope| {
        let hostile = scope.spawn(|| hostile::prove(minutes * 0.25, seed));
        hostile.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?);
    tell(&summaries, json)
}
