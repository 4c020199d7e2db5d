//! `reprise merge`: merges models by a recipe of mergekit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::HumanBytes;
use serde::Serialize;
use settings::Settings;
use terminal::output::{print_json, progress_bar};
use terminal::{note, say};
use tools::merge::{MergeMethod, MergeOptions, MergePlan};

/// Merges models of one shape by a recipe of mergekit
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Recipe in mergekit's YAML: models with weights, base_model, dtype
    recipe: PathBuf,
    /// Method: linear, task, ties, dare, dare_ties or slerp [default: the recipe's merge_method]
    #[arg(long, value_parser = method)]
    method: Option<MergeMethod>,
    #[arg(
        long,
        help = "Folder to write, in safetensors, or a .gguf or .apr file, under a name that is free; it appears when it is whole"
    )]
    out: PathBuf,
    /// Seed of the values that DARE drops, as mergekit's --random-seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long, help = "Prints one JSON object instead of lines")]
    json: bool,
}

// Report of a file or folder for programs, with what its line for people says.
#[derive(Serialize)]
pub struct WrittenFile<'a, T> {
    pub file: &'a Path,
    #[serde(flatten)]
    pub report: T,
    pub took_s: f64,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let begin = Instant::now();
    let options = MergeOptions {
        recipe: args.recipe,
        method: args.method,
        out: args.out.clone(),
        seed: args.seed,
        search: vec![settings.model.models_dir.clone()],
    };
    let plan = MergePlan::new(options)?;
    note!(
        "merging {} models by {}: {} tensors, {} to write",
        plan.models().count(),
        plan.method().name(),
        plan.tensors(),
        HumanBytes(plan.bytes())
    );
    let bar = progress_bar(plan.bytes(), BAR);
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = plan.run(&mut |written, _| bar.set_position(written));
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        return print_json(&WrittenFile { file: &args.out, report, took_s: begin.elapsed().as_secs_f64() });
    }
    for note in &report.notes {
        say!("note: {note}")?;
    }
    say!(
        "{}: {} tensors, {} in {:.1} s",
        args.out.display(),
        report.tensors,
        HumanBytes(report.bytes),
        begin.elapsed().as_secs_f64()
    )?;
    Ok(())
}

pub const BAR: &str = "{bar:40} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

fn method(name: &str) -> Result<MergeMethod, String> {
    MergeMethod::from_name(name).ok_or_else(|| format!("give one of {}", MergeMethod::names()))
}
