//! `reprise tensors`: what is in a model file.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use engine::Cpu;
use model::Bytes;
use serde::Serialize;
use settings::Settings;
use tools::tensors::{TensorStats, bars, statistics};

use terminal::flags::wrong_use;
use terminal::output::{TextTable, clean, print_json, progress_bar};
use terminal::say;

/// Lists the tensors of a model file: name, type, shape, bytes; with --stats also their values
#[derive(Debug, clap::Args)]
pub struct Args {
    /// GGUF file, folder of safetensors, one such file, or preset
    file: String,
    /// Adds min, max, mean, standard deviation, the share of zeros and a histogram, for which it reads the whole file
    #[arg(long)]
    stats: bool,
    /// Lists only tensors whose names contain this text
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct TensorList {
    file: PathBuf,
    parameters: u64,
    bytes: u64,
    tensors: Vec<ListedTensor>,
}

#[derive(Debug, Serialize)]
struct ListedTensor {
    name: String,
    #[serde(rename = "type")]
    type_name: String,
    shape: Vec<usize>,
    bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    stats: Option<TensorStats>,
}

/// Steps of a histogram in a table.
const BARS: usize = 24;

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let (file, _) = model::resolve(settings, &args.file)?;
    let mut tensors = weights::tensors_of(&file, settings.engine.mmap)?;
    if let Some(text) = &args.only {
        tensors.retain(|tensor| tensor.name.contains(text.as_str()));
        if tensors.is_empty() {
            return Err(wrong_use(anyhow!("no tensor of {} is named like {text:?}", file.display())));
        }
    }
    let stats = match args.stats {
        false => vec![None; tensors.len()],
        true => {
            let bar = progress_bar(0, READING);
            let progress = |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            };
            let stats = statistics(&tensors, BARS, &Cpu::new(settings.engine.threads), &progress);
            bar.finish_and_clear();
            stats
        }
    };
    let listed = tensors.into_iter().zip(stats).map(|(tensor, stats)| ListedTensor {
        bytes: tensor.data.len(),
        name: tensor.name,
        type_name: tensor.type_name,
        shape: tensor.dims,
        stats,
    });
    let tensors: Vec<ListedTensor> = listed.collect();
    let parameters = tensors.iter().map(|tensor| tensor.shape.iter().map(|&dim| dim as u64).product::<u64>()).sum();
    let bytes = tensors.iter().map(|tensor| tensor.bytes as u64).sum();
    let list = TensorList { file, parameters, bytes, tensors };
    if args.json { print_json(&list) } else { print(&list, args.stats) }
}

pub const READING: &str = "reading [{bar:40}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

fn print(list: &TensorList, with_stats: bool) -> Result<()> {
    let shape = |shape: &[usize]| shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ");
    let own = |tensor: &ListedTensor| {
        [clean(&tensor.name), clean(&tensor.type_name), shape(&tensor.shape), Bytes(tensor.bytes as u64).to_string()]
    };
    if with_stats {
        let mut table =
            TextTable::new(&["name", "type", "shape", ">bytes", ">min", ">max", ">mean", ">std", ">zeros", "values"]);
        for tensor in &list.tensors {
            let [name, kind, shape, bytes] = own(tensor);
            let cells = tensor.stats.as_ref().map_or_else(Default::default, stats_cells);
            let [min, max, mean, std, zeros, values] = cells;
            table.row([name, kind, shape, bytes, min, max, mean, std, zeros, values]);
        }
        table.print()?;
    } else {
        let mut table = TextTable::new(&["name", "type", "shape", ">bytes"]);
        list.tensors.iter().for_each(|tensor| table.row(own(tensor)));
        table.print()?;
    }
    let count = list.tensors.len();
    say!("\n{}: {count} tensors, {} parameters, {}", list.file.display(), list.parameters, Bytes(list.bytes))?;
    Ok(())
}

fn stats_cells(stats: &TensorStats) -> [String; 6] {
    let short = |number: f64| match number.abs() {
        0.0 => "0".to_owned(),
        size if (1e-3..1e5).contains(&size) => format!("{number:.4}"),
        _ => format!("{number:.2e}"),
    };
    let broken = if stats.nan + stats.infinite > 0 { " NaN or infinite values" } else { "" };
    [
        short(stats.min.into()),
        short(stats.max.into()),
        short(stats.mean),
        short(stats.std),
        format!("{:.1} %", 100.0 * stats.zero_share),
        format!("▕{}▏{broken}", bars(&stats.histogram)),
    ]
}
