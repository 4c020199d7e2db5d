//! What commands that work on a model have in common: how it is named, and how exact it computes.

use crate::output::progress_bar;
use anyhow::{Context, Result};
use engine::network::{StepLane, WantedLogits};
use engine::state::SequenceState;
use engine::{Cpu, DeviceMemoryPlan, Executor, Precision};
use indicatif::ProgressBar;
use model::{Finder, OpenedPreset};
use settings::Settings;
use std::time::{Duration, Instant};

/// The model of a preset or a path, with what it has to say on standard error. The host computes.
pub fn open(settings: &Settings, name: &str, precision: Precision) -> Result<OpenedPreset> {
    open_on(&Finder::host(settings), settings, name, precision)
}

/// As `open`, on what the configuration names.
pub fn open_to_answer(settings: &Settings, name: &str, precision: Precision) -> Result<OpenedPreset> {
    open_on(&Finder::new(settings), settings, name, precision)
}

fn open_on(finder: &Finder, settings: &Settings, name: &str, precision: Precision) -> Result<OpenedPreset> {
    let model = model::open_on(finder, settings, name, precision, &mut progress())?;
    for note in &model.notes {
        eprintln!("note: {note}");
    }
    Ok(model)
}

/// Shows how far a model is, once it takes longer than a moment.
pub fn progress() -> impl FnMut(usize, usize) + Send + 'static {
    let begin = Instant::now();
    let mut bar = None;
    move |done, total| {
        if done >= total {
            return bar.take().into_iter().for_each(|bar: ProgressBar| bar.finish_and_clear());
        }
        if begin.elapsed() >= PATIENCE {
            let template = "loading the model [{bar:40}] {bytes} of {total_bytes}, {eta} left";
            bar.get_or_insert_with(|| progress_bar(total as u64, template)).set_position(done as u64);
        }
    }
}

const PATIENCE: Duration = Duration::from_millis(500);

/// Where an opened model computes, and the device where that is not the host.
pub fn executor(
    settings: &Settings,
    executor: Option<(Executor, DeviceMemoryPlan)>,
) -> (Executor, Option<DeviceMemoryPlan>) {
    match executor {
        None => (Executor::on_cpu(cpu(settings)), None),
        Some((executor, memory)) => (executor, Some(memory)),
    }
}

/// A lane of a step that keeps nothing on the way.
pub fn lane<'a>(state: &'a mut SequenceState, tokens: &'a [u32], wanted: WantedLogits) -> StepLane<'a> {
    StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [] }
}

/// Why an executor answered with nothing.
pub fn lost(executor: &Executor) -> anyhow::Error {
    anyhow::anyhow!("the GPU failed: {}", executor.failure().unwrap_or("it does not say why"))
}

pub fn cpu(settings: &Settings) -> Cpu {
    Cpu::new(settings.engine.threads).pinned(settings.engine.pin_threads)
}

/// The precision of the configuration, unless the command says otherwise.
pub fn precision(settings: &Settings, asked: Option<PrecisionArg>) -> Precision {
    match asked {
        None => model::precision(settings),
        Some(PrecisionArg::Default) => Precision::Integer,
        Some(PrecisionArg::F32) => Precision::F32,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PrecisionArg {
    /// Activations are rounded to 8 bits where weights are quantised
    Default,
    /// Nothing is rounded, keys and values are kept in f32
    F32,
}

/// `1,2,3`, or `@FILE` with numbers separated by commas or white space.
pub fn parse_tokens(text: &str) -> Result<Vec<u32>> {
    let text = text_or_file(text, "tokens")?;
    let numbers =
        text.split(|c: char| c == ',' || c == '[' || c == ']' || c.is_whitespace()).filter(|part| !part.is_empty());
    numbers.map(|part| part.parse().with_context(|| format!("token {part:?} is not a number"))).collect()
}

/// The text itself, or of `@FILE` what the file holds.
pub fn text_or_file(text: &str, what: &str) -> Result<String> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    std::fs::read_to_string(file).with_context(|| format!("cannot read the {what} {file}"))
}
