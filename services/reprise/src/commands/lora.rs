//! `reprise lora`: makes an adapter of the difference of two models, and merges adapters into models.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{HumanBytes, HumanCount};
use terminal::flags::count;
use terminal::output::{print_json, progress_bar};
use tools::lora::{AdapterMerge, ExtractOptions, Extraction, LowRankSize};

use super::merge::{BAR, WrittenFile};
use terminal::{note, say};

/// Makes and merges adapters of low rank (LoRA)
#[derive(Debug, clap::Subcommand)]
pub enum LoraCommand {
    Extract(ExtractArgs),
    Merge(MergeArgs),
}

/// Makes an adapter of what a fine-tuned model changed in its base
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("size").required(true).args(["rank", "energy"]))]
pub struct ExtractArgs {
    #[arg(help = "The base: a folder of safetensors, a GGUF or an APR file")]
    base: PathBuf,
    #[arg(help = "The fine-tuned model, in the base's form")]
    fine: PathBuf,
    #[arg(long, value_parser = count, help = "Rank of every module")]
    rank: Option<usize>,
    /// Share of each module's change that the adapter holds, such as 0.95: ranks follow it
    #[arg(long, value_parser = energy)]
    energy: Option<f64>,
    #[arg(long, value_parser = count, help = "Largest rank that --energy may take", default_value_t = 256)]
    max_rank: usize,
    #[arg(
        long,
        help = "Folder to write, in PEFT's form, or a .gguf file, under a name that is free; it appears when it is whole"
    )]
    out: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Merges an adapter into a model
#[derive(Debug, clap::Args)]
pub struct MergeArgs {
    #[arg(help = "The model: a folder of safetensors, a GGUF or an APR file")]
    base: PathBuf,
    #[arg(help = "Folder of the adapter in PEFT's form, or GGUF file")]
    adapter: PathBuf,
    #[arg(long, help = "Factor of the adapter", default_value_t = 1.0, allow_negative_numbers = true, value_parser = factor)]
    scale: f32,
    #[arg(long, help = "Merges also an adapter that was extracted from another base")]
    any_base: bool,
    #[arg(
        long,
        help = "Folder to write, in safetensors, or a .gguf or .apr file, under a name that is free; it appears when it is whole"
    )]
    out: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, clap::Args)]
struct OutputArgs {
    #[arg(long, help = "Threads that compute; 0: one for each core", default_value_t = 0)]
    threads: usize,
    #[arg(long, help = "Prints one JSON object instead of lines")]
    json: bool,
}

fn energy(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "give a share above 0 and up to 1, such as 0.95".to_owned())
}

fn factor(text: &str) -> Result<f32, String> {
    let factor = text.parse().ok().filter(|factor: &f32| factor.is_finite());
    factor.ok_or_else(|| "give a number such as 0.5".to_owned())
}

pub fn run(command: LoraCommand) -> Result<()> {
    match command {
        LoraCommand::Extract(args) => extract(args),
        LoraCommand::Merge(args) => merge(args),
    }
}

fn extract(args: ExtractArgs) -> Result<()> {
    let begin = Instant::now();
    let size = match (args.rank, args.energy) {
        (Some(rank), _) => LowRankSize::Rank(rank),
        (None, share) => LowRankSize::Energy { share: share.unwrap_or(1.0), largest: args.max_rank },
    };
    let ExtractArgs { base, fine, out, output: OutputArgs { threads, json }, .. } = args;
    let extraction = Extraction::new(ExtractOptions { base, fine, out: out.clone(), size, threads })?;
    note!("{} modules, at most {} to write", extraction.modules(), HumanBytes(extraction.bytes()));
    let bar = progress_bar(0, "{bar:40} {percent} % of the values, {per_sec}, {eta} left");
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = extraction.run(&mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let report = report?;
    if json {
        return print_json(&WrittenFile { file: &out, report, took_s: begin.elapsed().as_secs_f64() });
    }
    if !report.left_out.is_empty() {
        let (count, first) = (report.left_out.len(), &report.left_out[0]);
        say!("note: {count} other tensors differ, which an adapter leaves as they are; the first is {first}")?;
    }
    say!(
        "{}: {} modules of ranks {} to {}, {} parameters, {} in {:.1} s",
        out.display(),
        report.modules,
        report.smallest_rank,
        report.largest_rank,
        HumanCount(report.parameters),
        HumanBytes(report.bytes),
        begin.elapsed().as_secs_f64()
    )?;
    say!(
        "it holds {:.2} % of the change, {:.2} % in the module with the least; relative error {:.1e}",
        report.energy_share * 100.0,
        report.least_energy_share * 100.0,
        report.relative_error
    )?;
    Ok(())
}

fn merge(args: MergeArgs) -> Result<()> {
    let begin = Instant::now();
    let (out, OutputArgs { threads, json }) = (args.out, args.output);
    let merge = AdapterMerge::new(&args.base, &args.adapter, args.scale, args.any_base)?;
    note!("merging {} modules: {} to write", merge.modules(), HumanBytes(merge.bytes()));
    let bar = progress_bar(merge.bytes(), BAR);
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = merge.run(&out, threads, &mut |written, _| bar.set_position(written));
    bar.finish_and_clear();
    let report = report?;
    if json {
        return print_json(&WrittenFile { file: &out, report, took_s: begin.elapsed().as_secs_f64() });
    }
    report.notes.iter().try_for_each(|note| say!("note: {note}"))?;
    say!(
        "{}: {} modules changed, {} tensors, {} in {:.1} s",
        out.display(),
        report.modules,
        report.tensors,
        HumanBytes(report.bytes),
        begin.elapsed().as_secs_f64()
    )?;
    Ok(())
}
