//! `reprise probe`: the largest window that a machine really holds, found by trials, each in a process of its own.

mod trial;

use anyhow::{Context, Result, anyhow, bail};
use engine::DeviceFacts;
use engine::network::Network;
use engine::state::{KvFormats, PAGE_TOKENS};
use model::{Bytes, Cell};
use serde::Serialize;
use settings::{AdapterChoice, KvFormat, Preset, Settings};
use std::ffi::OsString;
use std::process::{Command, Stdio};
use strum::VariantArray;
use terminal::flags::wrong_use;
use terminal::opening::{ModelArgs, PrecisionArg};
use terminal::output::{TextTable, print_json};
use terminal::{note, say};
use trial::{Held, ProbedDevice, Rooms, Trial};

/// Finds the largest window that fits into memory, by trials, and puts it beside the plan
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Formats of keys and values, such as q8,q4 [default: the preset's]
    #[arg(long, value_parser = formats)]
    kv: Option<[KvFormat; 2]>,
    /// Memory that the whole program may take, such as 8GiB [default: the configuration's memory.total]
    #[arg(long, value_parser = size)]
    memory: Option<u64>,
    /// Least window to try, in tokens [default: a page]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    lo: Option<u32>,
    /// Largest window to try, in tokens [default: the model's own]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    hi: Option<u32>,
    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
    /// Runs one trial in this process, with a window of this size
    #[arg(long, hide = true)]
    trial: Option<u32>,
    /// Memory of a GPU in that trial
    #[arg(long, hide = true, default_value_t = u64::MAX)]
    gpu_room: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    kv: [&'static str; 2],
    memory_bytes: u64,
    /// Part of it that the service takes beside model and conversation, by the plan.
    service_bytes: u64,
    /// Largest window that fits; `None`: not even the least one.
    window: Option<u32>,
    /// Largest window by the plan.
    planned_window: Option<u32>,
    /// Share of the memory in use that the plan does not count, at the largest window.
    missed_share: Option<f64>,
    trials: Vec<Tried>,
}

#[derive(Debug, Serialize)]
struct Tried {
    tokens: u32,
    #[serde(flatten)]
    held: Option<Held>,
    free_bytes: Option<u64>,
    planned_bytes: u64,
    failed: Option<String>,
}

/// Bytes of model and conversation by the plan, those of the service beside them, and whether all layers are where it computes.
struct Planned {
    bytes: u64,
    service_bytes: u64,
    is_whole: bool,
}

impl Planned {
    fn of(cell: &Cell) -> Planned {
        let plan = &cell.plan;
        match &plan.device {
            Some(gpu) => Planned {
                bytes: (gpu.weight_bytes + gpu.scratch_bytes) as u64 + cell.conversation_bytes,
                service_bytes: 0,
                is_whole: gpu.ffn_layers == gpu.layers,
            },
            None => {
                let of_model = plan.weight_bytes + plan.scratch_bytes + plan.vocabulary_bytes;
                let bytes = of_model + cell.conversation_bytes;
                Planned { bytes, service_bytes: cell.needed_bytes.saturating_sub(bytes), is_whole: true }
            }
        }
    }
}

fn formats_of(args: &Args, preset: &Preset) -> [KvFormat; 2] {
    args.kv.unwrap_or([preset.kv.k, preset.kv.v])
}

fn formats(text: &str) -> Result<[KvFormat; 2], String> {
    let one = |name: &str| {
        let known = KvFormat::VARIANTS.iter().find(|format| format.into_str() == name.trim());
        known.copied().ok_or_else(|| {
            format!(
                "{name:?} is no format of keys and values: use {}",
                KvFormat::VARIANTS.iter().map(|format| format.into_str()).collect::<Vec<_>>().join(", ")
            )
        })
    };
    let (key, value) = text.split_once(',').unwrap_or((text, text));
    Ok([one(key)?, one(value)?])
}

fn size(text: &str) -> Result<u64, String> {
    settings::bytes(text).map_err(|hint| hint.unwrap_or_else(|| "give a size such as 8GiB".to_owned()))
}

pub fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    let memory = args.memory.or(settings.memory.total).unwrap_or_else(|| model::machine_bytes() / 4 * 3);
    if let Some(tokens) = args.trial {
        let (_, preset) = model::resolve(settings, args.model.model.as_deref().unwrap_or(&settings.model.preset))?;
        let rooms = Rooms { host_bytes: memory, gpu_bytes: args.gpu_room };
        return print_json(&trial::run(&args.model, formats_of(args, &preset), tokens, rooms, settings)?);
    }
    let report = find(args, given, memory, settings)?;
    if args.json { print_json(&report) } else { print(&report) }
}

fn find(args: &Args, given: &[OsString], memory: u64, settings: &Settings) -> Result<Report> {
    let name = args.model.model.as_deref().unwrap_or(&settings.model.preset);
    let (file, preset) = model::resolve(settings, name)?;
    let precision = args.model.chosen_precision(settings);
    let mut opened = weights::open(&file, true)?;
    opened.stretch(preset.rope.yarn)?;
    for AdapterChoice { path, scale } in settings.model.lora.iter().chain(&args.model.lora) {
        weights::Adapter::open(path)?.add_to(&mut opened, *scale)?;
    }
    if settings.draft.mtp == 0 {
        opened.leave_out_prediction();
    }
    let network = Network::new(opened, precision);
    let kv = formats_of(args, &preset);
    let formats = KvFormats::new(model::kv_format(kv[0]), model::kv_format(kv[1]));
    let native = u32::try_from(network.shape().native_ctx).unwrap_or(u32::MAX);
    let (lo, hi) = (args.lo.unwrap_or(PAGE_TOKENS as u32), args.hi.unwrap_or(native).min(native));
    if lo > hi {
        return Err(wrong_use(anyhow!("--lo {lo} is larger than the largest window to try, {hi}")));
    }
    let mut planning = settings.clone();
    planning.memory.total = Some(memory);
    // The twentieth that a plan leaves to the driver.
    let card = DeviceFacts::imagined(usize::try_from(memory).unwrap_or(usize::MAX));
    planning.memory.gpu_total = Some(memory - memory / 20);
    let planned = |tokens: u32, on: ProbedDevice| -> Result<Planned> {
        let card = (on == ProbedDevice::Gpu).then_some(&card);
        let cells = model::windows(&planning, &network, card, formats, &[tokens])?;
        Ok(Planned::of(cells.first().context("a window has a plan")?))
    };
    let service_bytes = planned(lo, ProbedDevice::Host)?.service_bytes;
    let rooms = Rooms { host_bytes: memory.saturating_sub(service_bytes), gpu_bytes: memory - memory / 20 };
    let mut trials = Vec::new();
    let mut on = ProbedDevice::Host;
    let mut fits = |tokens: u32| -> Result<bool> {
        let (held, failed) = match child(args, given, kv, tokens, rooms)? {
            Trial::Held(held) => {
                on = held.on;
                (Some(held), None)
            }
            Trial::Full { on: full, why } => {
                on = full;
                (None, Some(why))
            }
        };
        let planned_bytes = planned(tokens, on)?.bytes;
        let free_bytes = held.as_ref().map(|held| rooms.of(on).saturating_sub(held.used_bytes));
        let fits = held.is_some();
        note!("{tokens} tokens: {}", failed.as_deref().unwrap_or("fits"));
        trials.push(Tried { tokens, held, free_bytes, planned_bytes, failed });
        Ok(fits)
    };
    let window = bisect(lo, hi, &mut fits)?;
    let planned_window = bisect(lo, hi, &mut |tokens| {
        let planned = planned(tokens, on)?;
        Ok(planned.is_whole && planned.bytes <= rooms.of(on))
    })?;
    let service_bytes = if on == ProbedDevice::Gpu { 0 } else { service_bytes };
    let at_window = trials.iter().find(|tried| Some(tried.tokens) == window);
    let missed_share = at_window.and_then(|tried| {
        let used = tried.held.as_ref()?.used_bytes as f64;
        Some((used - tried.planned_bytes as f64) / used)
    });
    trials.sort_by_key(|tried| tried.tokens);
    Ok(Report {
        model: file.display().to_string(),
        kv: kv.map(|format| format.into_str()),
        memory_bytes: memory,
        service_bytes,
        window,
        planned_window,
        missed_share,
        trials,
    })
}

/// Returns the largest number of whole pages from `lo` to `hi` that fits, or `hi` itself. `None`: `lo` does not fit.
fn bisect(lo: u32, hi: u32, fits: &mut dyn FnMut(u32) -> Result<bool>) -> Result<Option<u32>> {
    if fits(hi)? {
        return Ok(Some(hi));
    }
    if lo == hi || !fits(lo)? {
        return Ok(None);
    }
    let page = PAGE_TOKENS as u32;
    let (mut good, mut bad) = (lo, hi);
    loop {
        let middle = (good + (bad - good) / 2) / page * page;
        if middle <= good || middle >= bad {
            return Ok(Some(good));
        }
        match fits(middle)? {
            true => good = middle,
            false => bad = middle,
        }
    }
}

fn child(args: &Args, given: &[OsString], kv: [KvFormat; 2], tokens: u32, rooms: Rooms) -> Result<Trial> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the path of this program")?);
    let Rooms { host_bytes, gpu_bytes } = rooms;
    command.args(given).args(["probe", "--trial", &tokens.to_string(), "--memory", &host_bytes.to_string()]);
    command.args(["--gpu-room", &gpu_bytes.to_string()]);
    command.arg("--kv").arg(kv.map(|format| format.into_str()).join(","));
    if let Some(model) = &args.model.model {
        command.args(["--model", model]);
    }
    for AdapterChoice { path, scale } in &args.model.lora {
        command.arg("--lora").arg(format!("{}:{scale}", path.display()));
    }
    if args.model.precision == Some(PrecisionArg::F32) {
        command.args(["--precision", "f32"]);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot start a trial")?;
    let words = String::from_utf8_lossy(&output.stderr);
    let mut lines = words.lines().rev().filter(|line| !line.trim().is_empty());
    let failed = words.lines().find(|line| line.contains("memory allocation"));
    let last = failed.or_else(|| lines.next()).unwrap_or_default().trim();
    if output.status.success() {
        return serde_json::from_slice(&output.stdout).context("a trial prints no result");
    }
    match output.status.code() {
        // Wrong arguments and unreadable models are no results.
        Some(_) => bail!("a trial failed: {}", last.trim_start_matches("error: ")),
        None => Ok(Trial::Full { on: ProbedDevice::Host, why: format!("out of memory: {last}") }),
    }
}

fn print(report: &Report) -> Result<()> {
    let mut table = TextTable::new(&["tokens", "used", "free", "planned", ""]);
    let bytes = |bytes: Option<u64>| bytes.map_or_else(String::new, |bytes| Bytes(bytes).to_string());
    for tried in &report.trials {
        table.row([
            tried.tokens.to_string(),
            bytes(tried.held.as_ref().map(|held| held.used_bytes)),
            bytes(tried.free_bytes),
            bytes(Some(tried.planned_bytes)),
            tried.failed.clone().unwrap_or_else(|| "fits".to_owned()),
        ]);
    }
    table.print()?;
    let tokens = |window: Option<u32>| window.map_or_else(|| "none".to_owned(), |tokens| format!("{tokens} tokens"));
    say!(
        "largest window in {}, of which the service takes {}: {}; planned: {}",
        Bytes(report.memory_bytes),
        Bytes(report.service_bytes),
        tokens(report.window),
        tokens(report.planned_window)
    )?;
    if let Some(missed) = report.missed_share {
        say!(
            "the plan is {:.1} % of the memory in use {}",
            missed.abs() * 100.0,
            if missed < 0.0 { "above it" } else { "below it" }
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_whole_page_is_found() {
        for (lo, hi, limit, expected) in [
            (256, 4096, 10_000, Some(4096)),
            (256, 4096, 1000, Some(768)),
            (256, 4096, 256, Some(256)),
            (256, 4096, 255, None),
            (300, 4000, 999, Some(768)),
            (512, 512, 100, None),
        ] {
            let mut tried = Vec::new();
            let mut fits = |tokens| {
                tried.push(tokens);
                Ok(tokens <= limit)
            };
            assert_eq!(bisect(lo, hi, &mut fits).unwrap(), expected, "{lo} to {hi}, {limit} fit");
            assert!(tried.len() < 12 && tried.iter().all(|tokens| (lo..=hi).contains(tokens)), "{tried:?}");
        }
    }
}
