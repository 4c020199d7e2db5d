//! What commands that work on a model have in common: how it is named, and how exact it computes.

use anyhow::{Context, Result};
use conversation::backend::model::{self, Model};
use engine::{Cpu, Precision};
use settings::Settings;

/// The model of a preset or a path, with what it has to say on standard error.
pub fn open(settings: &Settings, name: &str, precision: Precision) -> Result<Model> {
    let model = model::open(settings, name, precision)?;
    for note in &model.notes {
        eprintln!("note: {note}");
    }
    Ok(model)
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
    let text = match text.strip_prefix('@') {
        None => text.to_string(),
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read the tokens of {file}"))?,
    };
    let numbers =
        text.split(|c: char| c == ',' || c == '[' || c == ']' || c.is_whitespace()).filter(|part| !part.is_empty());
    numbers.map(|part| part.parse().with_context(|| format!("token {part:?} is not a number"))).collect()
}
