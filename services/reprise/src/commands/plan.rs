//! `reprise plan`: memory of windows, and how many conversations fit, before a model is fetched or a card is bought.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use engine::network::Network;
use engine::open::find_gpu;
use engine::state::KvFormats;
use engine::{DeviceFacts, Precision};
use model::{Bytes, Cell, Error, windows};
use serde::Serialize;
use settings::{AdapterChoice, DeviceChoice, KvFormat, Preset, Settings};
use tools::mixture::Mixture;
use tools::synth::{self, SynthShape};
use weights::{Adapter, ModelWeights};

use terminal::flags::wrong_use;
use terminal::output::{TextTable, print_json};
use terminal::{note, say};

/// Tells how much memory windows take, and how many conversations fit, without loading the model
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A preset, a GGUF file or a Hugging Face folder [default: the configuration's]
    #[arg(long, conflicts_with = "shape")]
    model: Option<String>,
    /// Plans without a file: 0.8B, 2B, 4B, 9B, 27B, 35B-A3B, or a .toml file like those of config/shapes
    #[arg(long, requires = "quant")]
    shape: Option<String>,
    /// Format of the weights of --shape: f32, f16, bf16, q4_0, iq4_xs, q8_0, q4_k_m, q5_k_m or q6_k
    #[arg(long, value_parser = Mixture::parse, requires = "shape")]
    quant: Option<Mixture>,
    /// Windows in tokens [default: those of the model's presets]
    #[arg(long, value_delimiter = ',', value_name = "TOKENS,..", value_parser = clap::value_parser!(u32).range(1..))]
    windows: Vec<u32>,
    /// Plans for a GPU with this much free memory (24GiB) [default: the GPU of this machine, if any]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    gpu_memory: Option<usize>,
    /// Prints one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct MemoryPlan {
    model: PathBuf,
    /// Shape that stood in for a file that does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    instead: Option<String>,
    /// GPU. `None`: the host computes.
    gpu: Option<String>,
    /// Reasons why it has none of the model, or only with some windows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    native_ctx: usize,
    ceiling_bytes: u64,
    windows: Vec<PlannedWindow>,
}

#[derive(Debug, Serialize)]
struct PlannedWindow {
    #[serde(flatten)]
    cell: Cell,
    presets: Vec<String>,
    kv: [&'static str; 2],
    weight_bytes: u64,
    scratch_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<OnGpu>,
}

/// Layers whose feed-forward parts the GPU computes too, and the bytes that the host holds of the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct OnGpu {
    layers: usize,
    of_layers: usize,
    host_bytes: u64,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let report = examine(&args, settings)?;
    if args.json { print_json(&report) } else { print(&report) }
}

fn examine(args: &Args, settings: &Settings) -> Result<MemoryPlan> {
    let found = find(args, settings)?;
    let precision = model::precision(settings);
    let mut opened = weights::open(&found.file, true)?;
    opened.stretch(found.preset.rope.yarn)?;
    let mut notes = add_adapters(&mut opened, settings);
    if settings.draft.mtp == 0 {
        opened.leave_out_prediction();
    }
    let network = Network::new(opened, precision);
    let (card, no_card) = card(args, settings)?;
    notes.extend(no_card);
    let native_ctx = network.shape().native_ctx;
    let presets = presets_of(settings, &found, native_ctx);
    let is_known = !found.preset.model.is_empty();
    let mut sizes: Vec<u32> = match args.windows.is_empty() {
        // As large as the model has it, like the service's own.
        true => {
            presets.iter().map(|preset| preset.ctx_size.min(u32::try_from(native_ctx).unwrap_or(u32::MAX))).collect()
        }
        false => args.windows.clone(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    if let Some(size) = sizes.iter().find(|size| **size as usize > native_ctx) {
        return Err(wrong_use(anyhow!("a window of {size} tokens is larger than the model's own of {native_ctx}")));
    }
    let mut rows = Vec::new();
    for [k, v] in formats(&presets, precision) {
        let kv = KvFormats::new(model::kv_format(k), model::kv_format(v));
        for cell in windows(settings, &network, card.as_ref(), kv, &sizes)? {
            notes.extend(cell.not_on_gpu.clone());
            let is_kept = |preset: &Preset| precision == Precision::F32 || [preset.kv.k, preset.kv.v] == [k, v];
            let same = |preset: &&Preset| is_known && preset.ctx_size == cell.ctx_size && is_kept(preset);
            let presets = presets.iter().copied().filter(same).map(|preset| preset.name.clone()).collect();
            rows.push(row(cell, [k.into_str(), v.into_str()], presets));
        }
    }
    // Without room for some windows the GPU still has that of others.
    let on_gpu = rows.iter().find_map(|row| row.cell.plan.device.as_ref());
    let of_host = rows.first().map_or(0, |row| row.cell.plan.total_bytes);
    let ceiling_bytes = on_gpu.map_or(of_host, |gpu| gpu.total_bytes as u64);
    let gpu = on_gpu.is_some().then(|| card.map(|card| card.name)).flatten();
    notes.dedup();
    Ok(MemoryPlan { model: found.asked, instead: found.instead, gpu, notes, native_ctx, ceiling_bytes, windows: rows })
}

/// Adds the configured adapters, which take memory too, and returns why some are not counted: they may be another model's.
fn add_adapters(model: &mut ModelWeights, settings: &Settings) -> Vec<String> {
    let add = |AdapterChoice { path, scale }: &AdapterChoice| {
        let mut adapted = model.clone();
        Adapter::open(path)?.add_to(&mut adapted, *scale)?;
        *model = adapted;
        Ok::<(), weights::Error>(())
    };
    let failed = settings.model.lora.iter().map(add).filter_map(Result::err);
    failed.map(|error| format!("an adapter is not counted: {error}")).collect()
}

/// Returns the GPU to plan for, described or present, and the reasons if there is none.
fn card(args: &Args, settings: &Settings) -> Result<(Option<DeviceFacts>, Vec<String>)> {
    match args.gpu_memory {
        Some(bytes) => Ok((Some(DeviceFacts::imagined(bytes)), Vec::new())),
        None => gpu_here(settings),
    }
}

/// Returns the GPU of this machine that the configuration allows, and the reasons if there is none.
pub(super) fn gpu_here(settings: &Settings) -> Result<(Option<DeviceFacts>, Vec<String>)> {
    if settings.engine.device == DeviceChoice::Cpu {
        return Ok((None, Vec::new()));
    }
    let found =
        find_gpu(model::gpu_api(settings.engine.device), settings.engine.kernels_path.as_deref(), &mut |line| {
            note!("{line}")
        });
    match found.and_then(|device| DeviceFacts::of(&device)) {
        Ok(card) => Ok((Some(card), Vec::new())),
        Err(error) if settings.engine.device == DeviceChoice::Auto => Ok((None, vec![error.to_string()])),
        Err(error) => Err(error.into()),
    }
}

/// Formats of keys and values to choose from: exact, half the size, less for values, which lose less by it than keys, and
/// a quarter.
const FORMATS: [[KvFormat; 2]; 4] = {
    use KvFormat::{F16, Q4, Q8, Tq4};
    [[F16, F16], [Q8, Q8], [Q8, Q4], [Tq4, Tq4]]
};

/// Returns the formats to plan with: those to choose from, and other ones of the presets. The reference precision has its own.
fn formats(presets: &[&Preset], precision: Precision) -> Vec<[KvFormat; 2]> {
    if precision == Precision::F32 {
        return vec![[KvFormat::F32; 2]];
    }
    let mut formats = FORMATS.to_vec();
    for kv in presets.iter().map(|preset| [preset.kv.k, preset.kv.v]) {
        if !formats.contains(&kv) {
            formats.push(kv);
        }
    }
    formats
}

fn row(cell: Cell, kv: [&'static str; 2], presets: Vec<String>) -> PlannedWindow {
    let (weight_bytes, scratch_bytes) = match &cell.plan.device {
        Some(gpu) => (gpu.weight_bytes as u64, gpu.scratch_bytes as u64),
        None => (cell.plan.weight_bytes, cell.plan.scratch_bytes),
    };
    let gpu = cell.plan.device.as_ref().map(|gpu| OnGpu {
        layers: gpu.ffn_layers,
        of_layers: gpu.layers,
        host_bytes: gpu.host_bytes as u64,
    });
    PlannedWindow { cell, presets, kv, weight_bytes, scratch_bytes, gpu }
}

struct PlannedFile {
    /// File to open, and the name that was meant.
    file: PathBuf,
    asked: PathBuf,
    instead: Option<String>,
    preset: Preset,
    _folder: Option<tempfile::TempDir>,
}

/// Finds the file, or makes one with its sizes.
fn find(args: &Args, settings: &Settings) -> Result<PlannedFile> {
    if let (Some(shape), Some(mixture)) = (&args.shape, args.quant) {
        let shape = SynthShape::find(shape).map_err(wrong_use)?;
        let preset = settings.presets.values().find(|preset| preset.model.eq_ignore_ascii_case(&shape.name));
        let preset = preset.map_or_else(|| settings.preset("default"), Ok)?.clone();
        let asked = PathBuf::from(&shape.name);
        return outline(&shape, mixture, asked, preset);
    }
    let name = args.model.as_deref().unwrap_or(&settings.model.preset);
    match model::resolve(settings, name) {
        Ok((file, preset)) => Ok(PlannedFile { asked: file.clone(), file, instead: None, preset, _folder: None }),
        Err(Error::NoModelFile { preset, file, advice }) => {
            let (known, preset) = (shape_of(&file), settings.preset(&preset)?.clone());
            let Some((shape, mixture)) = known else {
                let missing = Error::NoModelFile { preset: preset.name, file, advice };
                return Err(missing).context("cannot tell its shape either; name --shape and --quant");
            };
            outline(&shape, mixture, file, preset)
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the shape from a file's name, as the ecosystem names files.
fn shape_of(file: &Path) -> Option<(SynthShape, Mixture)> {
    let stem = file.file_stem()?.to_str()?;
    synth::NAMES.iter().filter_map(|name| SynthShape::find(name).ok()).find_map(|shape| {
        let quant = published_names(&shape.name).into_iter().find_map(|name| {
            let (begin, quant) = stem.split_at_checked(name.len())?;
            begin.eq_ignore_ascii_case(name).then_some(quant)
        })?;
        let quant = quant.strip_prefix(['-', '.'])?;
        // A mixture that one publisher changes in some matrices is about as large as the plain one.
        let mixture = Mixture::from_name(quant.strip_prefix("UD-").unwrap_or(quant))?;
        Some((shape, mixture))
    })
}

fn published_names(name: &str) -> Vec<&str> {
    let variants = weights::family::all().iter().flat_map(|family| &family.variants);
    let mut same = variants.filter(|variant| variant.names.iter().any(|known| known == name));
    same.next().map_or(vec![name], |variant| variant.names.iter().map(String::as_str).collect())
}

fn outline(shape: &SynthShape, mixture: Mixture, asked: PathBuf, preset: Preset) -> Result<PlannedFile> {
    let folder = tempfile::tempdir().context("cannot create a folder for a file of this model's sizes")?;
    let file = folder.path().join("outline.gguf");
    synth::outline(shape, mixture, &file)?;
    let instead = Some(format!("the shape {} in {}", shape.name, mixture.name()));
    Ok(PlannedFile { file, asked, instead, preset, _folder: Some(folder) })
}

/// Lists the presets of the same model. A file without presets gets the windows of models of about its size.
fn presets_of<'s>(settings: &'s Settings, found: &'s PlannedFile, native_ctx: usize) -> Vec<&'s Preset> {
    let Preset { model, .. } = &found.preset;
    let as_large = |preset: &&Preset| preset.native_ctx.is_some_and(|native| native as usize == native_ctx);
    let all = settings.presets.values();
    let same: Vec<&Preset> = match model.is_empty() {
        true => all.filter(as_large).collect(),
        false => all.filter(|preset| preset.model == *model).collect(),
    };
    let fitting: Vec<&Preset> = same.into_iter().filter(|preset| preset.ctx_size as usize <= native_ctx).collect();
    if fitting.is_empty() { vec![&found.preset] } else { fitting }
}

fn print(report: &MemoryPlan) -> Result<()> {
    let MemoryPlan { model, instead, gpu, notes, native_ctx, ceiling_bytes, windows } = report;
    let note = instead.as_ref().map(|what| format!(" is not here; planned with {what}")).unwrap_or_default();
    say!("{}{note}; its own window has {native_ctx} tokens", model.display())?;
    let (executor, key) = match gpu {
        Some(name) => (name.as_str(), "memory.gpu_total"),
        None => ("the CPU", "memory.total"),
    };
    say!("{executor} computes and may use {} ({key})", Bytes(*ceiling_bytes))?;
    notes.iter().try_for_each(|note| say!("note: {note}"))?;
    say!()?;
    let mut sizes: Vec<u32> = windows.iter().map(|row| row.cell.ctx_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut formats: Vec<[&str; 2]> = windows.iter().map(|row| row.kv).collect();
    formats.dedup();
    let names = formats.iter().map(|[k, v]| if k == v { format!(">{k}") } else { format!(">{k} and {v}") });
    let headings: Vec<String> = [">window".to_owned()].into_iter().chain(names).chain([String::new()]).collect();
    let mut table = TextTable::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for size in sizes {
        let of_size = || windows.iter().filter(|row| row.cell.ctx_size == size);
        let presets: Vec<&str> = of_size().flat_map(|row| &row.presets).map(String::as_str).collect();
        let cells = of_size().map(says).chain([presets.join(", ")]);
        table.row([size.to_string()].into_iter().chain(cells).collect::<Vec<_>>());
    }
    table.print()?;
    say!("\nMemory of the model and one conversation that fills its window, by the format of keys and values;")?;
    say!("behind it, the number of such conversations that fit at the same time.")?;
    if windows.iter().any(|row| row.gpu.is_some_and(|gpu| gpu.layers < gpu.of_layers)) {
        say!(
            "In brackets: layers that the GPU computes alone, of all; the CPU helps with the others, which is slower."
        )?;
    }
    Ok(())
}

fn says(row: &PlannedWindow) -> String {
    let needed = Bytes(row.cell.needed_bytes).to_string();
    let layers = match row.gpu {
        Some(gpu) if gpu.layers < gpu.of_layers => format!(" ({}/{})", gpu.layers, gpu.of_layers),
        _ => String::new(),
    };
    match row.cell.full_conversations {
        0 => format!("{needed}  too much"),
        fit => format!("{needed}{layers}  {fit:>4} fit"),
    }
}

fn size(text: &str) -> Result<usize, String> {
    let bytes = settings::bytes(text).map_err(|hint| hint.unwrap_or_else(|| "give a size such as 24GiB".to_owned()))?;
    usize::try_from(bytes).map_err(|error| error.to_string())
}
