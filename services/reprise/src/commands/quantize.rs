//! `reprise quantize`: a model file to another with other types.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{HumanBytes, HumanCount};
use serde::Serialize;
use terminal::output::{TextTable, print_json, progress_bar};
use tools::mixture::Mixture;
use tools::quantize::{FormatChoice, QuantizeOptions, TypeRule, WriteReport, WriteStep, quantize};

use super::merge::BAR;
use terminal::{note, say};

/// Writes a model with other types to a GGUF file
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(help = "GGUF file, any part of a set, APR file, or a folder with safetensors")]
    source: PathBuf,
    #[arg(help = "The GGUF file to write; one of that name is replaced")]
    out: PathBuf,
    #[arg(
        value_name = "TYPE",
        required_unless_present = "bytes",
        conflicts_with = "bytes",
        value_parser = Mixture::parse,
        help = "Type: f32, f16, bf16, q4_0, iq4_xs, q8_0, q4_k_m, q5_k_m or q6_k"
    )]
    mixture: Option<Mixture>,
    #[command(flatten)]
    file: ModelFileArgs,
}

/// Flags of the commands that write a model's file.
#[derive(Debug, clap::Args)]
pub struct ModelFileArgs {
    #[arg(
        long = "type",
        value_name = "PATTERN=TYPE",
        value_parser = TypeRule::parse,
        help = "Type of the matrices with these names, PATTERN=TYPE: a part of a name, or with * a whole one"
    )]
    pub rules: Vec<TypeRule>,
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = size,
        help = "Chooses the type of each tensor by measured error, so that the file has no more than SIZE, such as 4.6GiB"
    )]
    pub bytes: Option<u64>,
    #[arg(long, value_name = "FILE", help = "Importance matrix, which weights the errors of quantised values")]
    pub imatrix: Option<PathBuf>,
    #[arg(long, help = "Prints each tensor's type and size, and writes nothing")]
    pub dry_run: bool,
    #[arg(long, help = "Threads that quantise [default: one per core]")]
    threads: Option<usize>,
    #[arg(long, help = "Prints one JSON object instead of lines")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct WrittenModel<'a> {
    /// File that was written. None: a dry run.
    file: Option<&'a Path>,
    #[serde(flatten)]
    report: WriteReport,
    took_s: f64,
}

pub fn run(args: Args) -> Result<()> {
    let Args { source, out, mixture, file } = &args;
    say(out, file, |threads, progress| {
        let ModelFileArgs { rules, imatrix, dry_run, bytes, .. } = file;
        // The command line has one of the two.
        let mixture = FormatChoice::Mixture(mixture.unwrap_or(Mixture::Q4_K_M));
        let choice = bytes.map_or(mixture, FormatChoice::Bytes);
        let (imatrix, dry_run) = (imatrix.as_deref(), *dry_run);
        quantize(&QuantizeOptions { source, out, choice, rules, imatrix, threads, dry_run }, progress)
    })
}

fn size(text: &str) -> Result<u64, String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (number, one) = (text.strip_suffix(unit).unwrap_or_default(), settings::bytes(&format!("1{unit}")));
    let bytes = number.parse::<f64>().ok().zip(one.ok()).map(|(number, one)| number * one as f64);
    let bytes = bytes.filter(|bytes| *bytes >= 1.0).ok_or("give a size such as 4.6GiB or 300MiB")?;
    Ok(bytes as u64)
}

/// Lets `write` write a file, with a bar for its progress, and says what came of it.
pub fn say(
    out: &Path,
    args: &ModelFileArgs,
    write: impl FnOnce(usize, &mut dyn FnMut(WriteStep)) -> Result<WriteReport, tools::Error>,
) -> Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let measured = progress_bar(0, "measuring {bar:30} {pos} of {len} matrices, {per_sec}, {eta} left");
    let bar = progress_bar(0, BAR);
    let start = Instant::now();
    let report = write(args.threads.unwrap_or(cores), &mut |step| match step {
        WriteStep::Measured(done, all) => {
            measured.enable_steady_tick(Duration::from_millis(200));
            measured.set_length(all);
            measured.set_position(done);
        }
        WriteStep::Written(done, all) => {
            if bar.length() != Some(all) {
                measured.finish_and_clear();
                bar.suspend(|| note!("{} to write to {}", HumanBytes(all), out.display()));
                bar.enable_steady_tick(Duration::from_millis(200));
                bar.set_length(all);
            }
            bar.set_position(done);
        }
    });
    measured.finish_and_clear();
    bar.finish_and_clear();
    let (report, took_s) = (report?, start.elapsed().as_secs_f64());
    if args.json {
        return print_json(&WrittenModel { file: (!args.dry_run).then_some(out), report, took_s });
    }
    if args.dry_run {
        let mut table = TextTable::new(&["tensor", ">values", "from", "to", ">size"]);
        for tensor in &report.tensors {
            let values: u64 = tensor.dims.iter().product();
            let size = HumanBytes(tensor.bytes).to_string();
            table.row([&tensor.name, &values.to_string(), tensor.from, tensor.to, &size].map(str::to_string));
        }
        table.print()?;
    }
    report.notes.iter().try_for_each(|note| say!("note: {note}"))?;
    let formats: Vec<String> = report.formats.iter().map(|(format, count)| format!("{count} {format}")).collect();
    let (size, parameters) = (HumanBytes(report.bytes), HumanCount(report.parameters));
    let what = format!("{parameters} parameters in {} tensors ({})", report.tensors.len(), formats.join(", "));
    match args.dry_run {
        true => say!("{}: would take {size}: {what}", out.display())?,
        false => say!("{}: {size}, {what}, in {took_s:.1} s", out.display())?,
    }
    Ok(())
}
