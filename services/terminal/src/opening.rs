//! Flags that all commands with a model share: its name, and the precision.

use crate::flags::wrong_use;
use crate::note;
use crate::output::progress_bar;
use anyhow::{Context, Result, anyhow};
use engine::network::{StepLane, WantedLogits};
use engine::state::{KvFormats, SequenceState};
use engine::{Cpu, DeviceMemoryPlan, Executor, Precision};
use indicatif::ProgressBar;
use model::{Finder, OpenedPreset, kv_formats};
use settings::{AdapterChoice, Settings};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    /// A preset, a GGUF file or a Hugging Face folder [default: the configuration's]
    #[arg(short, long)]
    pub model: Option<String>,
    #[arg(long)]
    pub precision: Option<PrecisionArg>,
    /// Adapter to run the model with, a folder in PEFT's form or a GGUF file, PATH or PATH:FACTOR; may be given more than once
    #[arg(long, value_parser = adapter)]
    pub lora: Vec<AdapterChoice>,
}

pub struct ReadyModel {
    pub opened: OpenedPreset,
    pub executor: Executor,
    pub device: Option<DeviceMemoryPlan>, // plan of the GPU, if one computes
    pub precision: Precision,
    pub kv: KvFormats,
}

impl ModelArgs {
    pub fn open(&self, settings: &Settings) -> Result<ReadyModel> {
        self.open_on(&Finder::new(settings), settings)
    }

    pub fn open_on_host(&self, settings: &Settings) -> Result<ReadyModel> {
        self.open_on(&Finder::host(settings), settings)
    }

    pub fn chosen_precision(&self, settings: &Settings) -> Precision {
        match self.precision {
            None => model::precision(settings),
            Some(PrecisionArg::Default) => Precision::Integer,
            Some(PrecisionArg::F32) => Precision::F32,
        }
    }

    fn open_on(&self, finder: &Finder, settings: &Settings) -> Result<ReadyModel> {
        let precision = self.chosen_precision(settings);
        let name = self.model.as_deref().unwrap_or(&settings.model.preset);
        let mut with_adapters = settings.clone();
        with_adapters.model.lora.extend(self.lora.iter().cloned());
        let mut opened = model::open_on(finder, &with_adapters, name, precision, &mut progress())?;
        for note in &opened.model.notes {
            // Some commands open a model several times.
            let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
            if !told.contains(note) {
                told.push(note.clone());
                note!("note: {note}");
            }
        }
        let cpu = || Executor::on_cpu(Cpu::new(settings.engine.threads).pinned(settings.engine.pin_threads));
        let (executor, device) = match opened.model.executor.take() {
            None => (cpu(), None),
            Some((executor, memory)) => (executor, Some(memory)),
        };
        let kv = kv_formats(&opened.preset, precision);
        Ok(ReadyModel { opened, executor, device, precision, kv })
    }
}

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new()); // notes of this process

fn adapter(text: &str) -> Result<AdapterChoice, String> {
    AdapterChoice::parse(text).ok_or_else(|| "give a folder, or a folder and a factor such as adapter:0.5".to_owned())
}

/// Shows the progress of opening, once it takes longer than a moment.
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

pub fn lane<'a>(state: &'a mut SequenceState, tokens: &'a [u32], wanted: WantedLogits) -> StepLane<'a> {
    StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }
}

pub fn lost(executor: &Executor) -> anyhow::Error {
    anyhow::anyhow!("the GPU failed: {}", executor.failure().unwrap_or("without a reason"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PrecisionArg {
    /// Rounds activations to 8 bits where weights are quantised
    Default,
    /// Rounds nothing, and keeps keys and values in f32
    F32,
}

/// Parses `1,2,3`, or `@FILE` with numbers separated by commas or white space.
pub fn parse_tokens(text: &str) -> Result<Vec<u32>> {
    let text = text_or_file(text, "tokens")?;
    let numbers =
        text.split(|c: char| c == ',' || c == '[' || c == ']' || c.is_whitespace()).filter(|part| !part.is_empty());
    numbers.map(|part| part.parse().map_err(|_| wrong_use(anyhow!("token {part:?} is not a number")))).collect()
}

pub fn text_or_file(text: &str, what: &str) -> Result<String> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text.to_owned()) };
    std::fs::read_to_string(file).with_context(|| format!("cannot read the {what} {file}"))
}
