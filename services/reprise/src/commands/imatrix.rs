//! `reprise imatrix`: measures on a text how much each input of a model's matrices counts, for quantisers.

use anyhow::{Context, Result, bail};
use engine::importance::{TensorInputs, inputs_of};
use engine::network::Network;
use engine::{Cpu, Precision};
use indicatif::HumanBytes;
use serde_json::json;
use settings::Settings;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terminal::flags::{count, counted};
use terminal::output::{print_json, progress_bar};
use terminal::{note, say};
use tools::imatrix::{Imatrix, ImatrixEntry};

/// Measures on a text how much each input of a model's matrices counts: quantise with the file that it writes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A preset, a GGUF or APR file, or a Hugging Face folder
    #[arg(long)]
    model: String,
    /// Text to read: some hundred thousand characters of what the model will be used for
    #[arg(long)]
    text: PathBuf,
    /// File to write, in the ecosystem's GGUF form
    #[arg(long)]
    out: PathBuf,
    /// Tokens that are read at a time, each time from the beginning
    #[arg(long, default_value_t = 512, value_parser = count)]
    chunk: usize,
    /// Most chunks to read [default: the whole text]
    #[arg(long, value_parser = count)]
    chunks: Option<usize>,
    /// Prints one JSON object instead of a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    let begin = Instant::now();
    let (file, _) = model::resolve(settings, &args.model)?;
    tools::check_out(&[&file, &args.text], &args.out)?;
    let text = std::fs::read_to_string(&args.text).with_context(|| format!("cannot read {}", args.text.display()))?;
    let weights = weights::open(&file, true)?;
    let tokenizer = engine::vocabulary::tokenizer(weights.vocab.clone())?;
    let mut tokens = tokenizer.encode(&text);
    tokens.truncate(args.chunks.map_or(usize::MAX, |chunks| chunks.saturating_mul(args.chunk)));
    // A last piece that is shorter would count its begin twice.
    tokens.truncate(tokens.len() / args.chunk * args.chunk);
    let chunks = tokens.len() / args.chunk;
    if chunks == 0 {
        bail!("{} has fewer tokens than --chunk {}: give a longer text", args.text.display(), args.chunk);
    }
    note!(
        "reading {} tokens in {} with {} of weights, to write {}",
        tokens.len(),
        counted(chunks, "chunk"),
        HumanBytes(engine::model_bytes::weight_bytes(&weights) as u64),
        args.out.display()
    );
    let bar = progress_bar(tokens.len() as u64, "{bar:30} {pos} of {len} tokens, {per_sec}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut network = Network::new(weights, Precision::F32);
    let cpu = Cpu::new(settings.engine.threads);
    let inputs = inputs_of(&mut network, &cpu, &tokens, args.chunk, &mut |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let entries = inputs.into_iter().map(|TensorInputs { name, sums, counts, .. }| {
        let counts = counts.into_iter().map(|count| count as f32).collect();
        (name, ImatrixEntry { sums, counts })
    });
    let imatrix = Imatrix {
        path: args.out.clone(),
        datasets: vec![args.text.display().to_string()],
        chunk_count: u32::try_from(chunks).unwrap_or(u32::MAX),
        chunk_size: u32::try_from(args.chunk).unwrap_or(u32::MAX),
        entries: entries.collect(),
    };
    let bytes = imatrix.write(&args.out)?;
    let (tensors, took_s) = (imatrix.entries.len(), begin.elapsed().as_secs_f64());
    if args.json {
        return print_json(
            &json!({ "out": args.out, "tensors": tensors, "chunks": chunks, "tokens": tokens.len(), "bytes": bytes, "took_s": took_s }),
        );
    }
    say!(
        "{}: {tensors} tensors, {} of {} tokens, {took_s:.1} s",
        args.out.display(),
        counted(chunks, "chunk"),
        args.chunk
    )?;
    Ok(())
}
