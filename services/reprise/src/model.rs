//! From what stands behind `--model` to a model that computes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use engine::network::Network;
use engine::state::KvFormats;
use kernels::cpu::Cpu;
use kernels::product::Precision;
use settings::{KvFormat, Preset, Settings};
use text::{Template, Tokenizer};

/// A model with everything that is needed to talk to it.
pub struct Opened {
    pub network: Network,
    pub tokenizer: Arc<Tokenizer>,
    /// The file's own, or the family's where it brings none.
    pub template: Template,
    pub preset: Preset,
}

/// The file or folder that a name stands for: a path, or a preset whose file is there.
pub fn resolve(settings: &Settings, model: &str) -> Result<(PathBuf, Preset)> {
    let path = Path::new(model);
    if path.exists() {
        // A bare file talks with the numbers of the chosen preset's family: those of `default`.
        return Ok((path.to_path_buf(), settings.preset("default")?.clone()));
    }
    let Ok(preset) = settings.preset(model) else {
        bail!("--model {model}: no file, folder or preset of that name; presets are {}", names(settings));
    };
    let Some(path) = preset.model_path(&settings.model.models_dir) else {
        bail!("preset {model} names no model file; set its source.path, or give --model a file");
    };
    if !path.exists() {
        let file = path.display();
        bail!("preset {model} wants {file}, which is not there; put the file there, or give --model a file");
    }
    Ok((path, preset.clone()))
}

pub fn open(settings: &Settings, model: &str, precision: Precision) -> Result<Opened> {
    let (path, preset) = resolve(settings, model)?;
    let options = weights::OpenOptions { mmap: settings.engine.mmap };
    let model = weights::open(&path, &options)?;
    for note in &model.notes {
        eprintln!("note: {note}");
    }
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(&model.vocab)?);
    let template = model.chat_template.as_deref().map_or_else(Template::family, Template::new)?;
    // A file may have a smaller window than the preset: the preset's gives way or the settings explain.
    let mut settings = settings.clone();
    let native = u32::try_from(model.shape.native_ctx).context("the model's window")?;
    if let Some(notice) = settings.fit_to_model(&preset.name, native)? {
        eprintln!("note: {notice}");
    }
    let preset = settings.preset(&preset.name)?.clone();
    Ok(Opened { network: Network::new(model, precision), tokenizer, template, preset })
}

pub fn cpu(settings: &Settings) -> Cpu {
    Cpu::new(settings.engine.threads)
}

/// The precision of the configuration, unless the command says otherwise.
pub fn precision(settings: &Settings, asked: Option<PrecisionArg>) -> Precision {
    let exact = match asked {
        Some(asked) => asked == PrecisionArg::F32,
        None => settings.engine.precision == settings::Precision::F32,
    };
    if exact { Precision::F32 } else { Precision::Integer }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PrecisionArg {
    /// Activations are rounded to 8 bits where weights are quantised
    Default,
    /// Nothing is rounded, keys and values are kept in f32
    F32,
}

pub fn kv_formats(preset: &Preset, precision: Precision) -> KvFormats {
    use kernels::format::Format;
    if precision == Precision::F32 {
        return KvFormats { key: Format::F32, value: Format::F32 };
    }
    let format = |kv| match kv {
        KvFormat::F32 => Format::F32,
        KvFormat::F16 => Format::F16,
        KvFormat::Bf16 => Format::BF16,
        KvFormat::Q8 => Format::Q8_0,
        KvFormat::Q4 => Format::Q4_0,
    };
    KvFormats { key: format(preset.kv.k), value: format(preset.kv.v) }
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

fn names(settings: &Settings) -> String {
    settings.presets.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
}
