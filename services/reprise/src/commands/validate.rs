//! `reprise validate`: whether a model file can be trusted.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use engine::Cpu;
use model::Bytes;
use settings::{LoadedSettings, Settings};
use tools::validate::{self, Agreement, QualityRow, ValidateOptions, ValidationReport, ValidationStage};
use weights::family::Severity;

use super::tensors::READING;
use terminal::output::{TextTable, chain, clean, print_json, progress_bar, unless_closed};
use terminal::{note, say};

/// Checks a model file: structure, the family's contract, hashes, values, vocabulary, template. Exit code: 0 clean, 1 problems,
/// 2 wrong arguments
#[derive(Debug, clap::Args)]
pub struct Args {
    /// GGUF file, folder of safetensors, or preset
    file: String,
    /// Adds statistics by kind of tensor, and looks for tensors that differ from their like
    #[arg(long)]
    quality: bool,
    /// Compares with another file of the same model: error of each tensor, and predictions on a text
    #[arg(long, value_name = "FILE")]
    against: Option<String>,
    /// Text that both models read [default: one of 2 KB in five languages]
    #[arg(long, value_name = "FILE", requires = "against")]
    text: Option<PathBuf>,
    /// Most tokens of the text
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..=1_000_000), requires = "against")]
    tokens: u32,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, loaded: Result<LoadedSettings>) -> ExitCode {
    match loaded.and_then(|loaded| report(args, &loaded.settings)) {
        Ok(report) => ExitCode::from(u8::from(!report.ok)),
        Err(error) => {
            note!("error: {}", chain(&error));
            ExitCode::from(2)
        }
    }
}

fn report(args: &Args, settings: &Settings) -> Result<ValidationReport> {
    let (file, _) = model::resolve(settings, &args.file)?;
    let other = args.against.as_ref().map(|other| model::resolve(settings, other)).transpose()?;
    let text = match &args.text {
        None => validate::TEXT.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).with_context(|| format!("cannot read the text {}", path.display()))?
        }
    };
    let against = other.as_ref().map(|(path, _)| validate::Against { path, text: &text, tokens: args.tokens as usize });
    let options = ValidateOptions { mmap: settings.engine.mmap, quality: args.quality, against };
    let both = other.as_ref().map_or_else(String::new, |(path, _)| {
        format!(" and {} of {}; then each predicts {} tokens at most", Bytes(size(path)), path.display(), args.tokens)
    });
    note!("reading {} of {}{both}", Bytes(size(&file)), file.display());
    let bar = progress_bar(0, READING);
    let texts = progress_bar(0, "predicting [{bar:40}] {pos} of {len} tokens, {eta} left");
    let progress = |stage, done, total| {
        let bar = if stage == ValidationStage::Predicting { &texts } else { &bar };
        bar.set_length(total);
        bar.set_position(done);
    };
    let report = validate::validate(&file, &options, &Cpu::new(settings.engine.threads), &progress);
    bar.finish_and_clear();
    texts.finish_and_clear();
    // The exit code tells the verdict also where the reader has seen enough.
    unless_closed(if args.json { print_json(&report) } else { print(&report) })?;
    Ok(report)
}

/// Returns the bytes of a file, or of the files of a folder. What cannot be read counts nothing: the check itself tells it.
fn size(path: &Path) -> u64 {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries.chain(path.is_file().then(|| path.to_path_buf()));
    files.filter_map(|file| std::fs::metadata(file).ok()).filter(|found| found.is_file()).map(|found| found.len()).sum()
}

fn print(report: &ValidationReport) -> Result<()> {
    say!("{}", report.file.display())?;
    if let Some(architecture) = &report.architecture {
        let size = if report.sizes.is_empty() { "no published size".to_owned() } else { report.sizes.join(" or ") };
        let (count, bytes) = (report.tensors.len(), Bytes(report.bytes));
        say!("{architecture}, {size}: {count} tensors, {} parameters, {bytes}", report.parameters)?;
        say!("SHA-256 of all tensors: {}", report.sha256)?;
    }
    for finding in &report.findings {
        let mark = match finding.severity {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
        };
        say!("{mark:<8}{:<12}{}", finding.check, clean(&finding.says))?;
    }
    if let Some(rows) = &report.quality {
        print_quality(rows)?;
    }
    if let Some(agreement) = &report.against {
        print_agreement(agreement)?;
    }
    let count = |severity| report.findings.iter().filter(|finding| finding.severity == severity).count();
    let (problems, warnings) = (count(Severity::Problem), count(Severity::Warning));
    let (plural, verdict) =
        (if problems == 1 { "" } else { "s" }, if report.ok { "clean" } else { "do not use this file" });
    say!("{verdict}: {problems} problem{plural}, {warnings} warning{}", if warnings == 1 { "" } else { "s" })?;
    Ok(())
}

fn print_quality(rows: &[QualityRow]) -> Result<()> {
    let names = ["tensors", ">", "types", ">bits", ">std, least", ">median", ">most", ">largest", ">zeros"];
    let mut table = TextTable::new(&names);
    for row in rows {
        table.row([
            clean(&row.kind),
            row.tensors.to_string(),
            clean(&row.types),
            format!("{:.2}", row.bits_per_weight),
            format!("{:.4}", row.std_least),
            format!("{:.4}", row.std_median),
            format!("{:.4}", row.std_most),
            format!("{:.3}", row.largest),
            format!("{:.1} %", 100.0 * row.zero_share),
        ]);
    }
    say!()?;
    table.print()?;
    say!()?;
    Ok(())
}

fn print_agreement(agreement: &Agreement) -> Result<()> {
    let mut table = TextTable::new(&["tensor", "type", "other", ">error", ">largest difference"]);
    for tensor in &agreement.tensors {
        let (error, largest) = (100.0 * tensor.error, tensor.largest_difference);
        let [kind, other] = [tensor.type_name, tensor.other_type].map(str::to_owned);
        table.row([clean(&tensor.name), kind, other, format!("{error:.3} %"), format!("{largest:.2e}")]);
    }
    say!("\nagainst {}", agreement.other.display())?;
    table.print()?;
    let text = &agreement.text;
    say!(
        "\n{} tokens: KL mean {:.6}, p95 {:.6}, most {:.6} nats; same likeliest token {:.1} %; perplexity {:.3} and {:.3}\n",
        text.tokens,
        text.kl_mean,
        text.kl_p95,
        text.kl_max,
        100.0 * text.same_top_share,
        text.perplexity,
        text.other_perplexity
    )?;
    Ok(())
}
