//! `reprise synth`: writes a random model of a real shape.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;
use terminal::flags::wrong_use;
use terminal::output::{print_json, progress_bar};
use terminal::say;
use tools::mixture::Mixture;
use tools::synth::{self, SynthOptions, SynthShape};

/// Writes a random model of a real shape, to measure speed with and to compare engines on
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Shape of the model: 0.8B, 2B, 4B, 9B, 27B, 35B-A3B, or a .toml file like those of config/shapes
    #[arg(long)]
    shape: String,
    /// Format: f32, f16, bf16, q4_0, iq4_xs, q8_0, q4_k_m, q5_k_m or q6_k
    #[arg(long, value_parser = Mixture::parse)]
    quant: Mixture,
    /// The GGUF file to write; one of that name is replaced
    #[arg(long)]
    out: PathBuf,
    /// Seed: the same one gives the same file
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Adds a block for multi-token prediction. Its drafts are chance: it shows their cost
    #[arg(long)]
    mtp: bool,
    /// Threads that make values [default: one per core]
    #[arg(long)]
    threads: Option<usize>,
    #[arg(help = "Prints one JSON object instead of a line")]
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<()> {
    let mut shape = SynthShape::find(&args.shape).map_err(wrong_use)?;
    shape.mtp |= args.mtp;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = args.threads.unwrap_or(cores);
    let options = SynthOptions { shape, mixture: args.quant, seed: args.seed, threads };
    let bar = progress_bar(0, "{bar:40} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    let start = Instant::now();
    let report = synth::write(&options, &args.out, &mut |written, total| {
        bar.set_length(total);
        bar.set_position(written);
    });
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        let (shape, quant, took_s) = (&options.shape.name, options.mixture.name(), start.elapsed().as_secs_f64());
        return print_json(&json!({
            "file": args.out, "shape": shape, "quant": quant, "parameters": report.parameters, "tensors": report.tensors,
            "bytes": report.bytes, "took_s": took_s,
        }));
    }
    say!(
        "{}: {} {}, {} parameters in {} tensors, {} in {:.1} s",
        args.out.display(),
        options.shape.name,
        options.mixture.name(),
        HumanCount(report.parameters),
        report.tensors,
        HumanBytes(report.bytes),
        start.elapsed().as_secs_f64(),
    )?;
    Ok(())
}
