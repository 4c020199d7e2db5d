//! A preset: one model with one window and everything that follows from it.

use std::path::{Path, PathBuf};

use crate::load::Effective;
use crate::reader::{Choice, Findings, Reader, Tokens};
use crate::tree::{Table, Value, join};
use crate::{Error, Mistake, Origin, check};

#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    pub name: String,
    /// The model's name as clients see it; empty: the model file's own.
    pub model: String,
    pub source: Source,
    /// The window the model was made for; none: the model file says it.
    pub native_ctx: Option<u32>,
    pub ctx_size: u32,
    pub kv: Kv,
    pub reply_reserve_tokens: u32,
    pub thinking: Thinking,
    /// Searches of the conversation's past that the model may make for one reply; 0: it has no tool for it.
    pub recall: u32,
    pub compaction: Compaction,
    /// Of replies without thinking; see [`Preset::sampling_for`].
    pub sampling: Sampling,
    pub sampling_thinking: Sampling,
    shares: Shares,
    ctx_size_from: (Origin, String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub repo: Option<String>,
    pub file: Option<String>,
    pub path: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kv {
    pub k: KvFormat,
    pub v: KvFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    F32,
    F16,
    Bf16,
    Q8,
    Q4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    Off,
    On,
    /// Tokens after which the thought is closed and the answer begins.
    Budget(u32),
}

/// Fills are shares of `ctx_size`, taken by the rendered prompt and the reply reserve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compaction {
    pub soft_fill: f64,
    pub hard_fill: f64,
    pub target_fill: f64,
    pub tail_tokens: u32,
    pub summary_tokens: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub min_p: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub repetition_penalty: f32,
}

impl Preset {
    /// Where the model's file or folder lies on this machine, or will after it was pulled; none where the preset names no source.
    pub fn model_path(&self, models_dir: &Path) -> Option<PathBuf> {
        let pulled = self.source.file.as_ref().or(self.source.repo.as_ref());
        self.source.path.clone().or(pulled.map(|name| models_dir.join(name)))
    }

    pub fn sampling_for(&self, thinking: bool) -> &Sampling {
        if thinking { &self.sampling_thinking } else { &self.sampling }
    }

    /// See [`crate::Settings::fit_to_model`].
    pub(crate) fn fit(&self, native_ctx: u32) -> Result<(Preset, Option<String>), Error> {
        if self.ctx_size <= native_ctx {
            return Ok((Preset { native_ctx: Some(native_ctx), ..self.clone() }, None));
        }
        let (origin, key) = self.ctx_size_from.clone();
        let nobody_asked = matches!(origin, Origin::Default { .. });
        let fitted = Preset { native_ctx: Some(native_ctx), ..self.with_ctx_size(native_ctx) };
        let why = check::unreachable_target(&fitted);
        if nobody_asked && why.is_none() {
            return Ok((fitted, Some(format!("window {native_ctx} tokens: the model file has no more than that"))));
        }
        let found = if nobody_asked { why } else { None }.unwrap_or_else(|| format!("the number {}", self.ctx_size));
        let allowed = format!("at most {native_ctx}, the window of the model file");
        Err(Error::WindowTooLarge(Box::new(Mistake { origin, key, found, allowed, hint: None })))
    }

    /// The same preset with another window: shares follow, numbers of tokens stay.
    pub fn with_ctx_size(&self, ctx_size: u32) -> Preset {
        let shares = self.shares;
        Preset {
            ctx_size,
            reply_reserve_tokens: shares.reply_reserve.of(ctx_size),
            compaction: Compaction {
                tail_tokens: shares.tail.of(ctx_size),
                summary_tokens: shares.summary.of(ctx_size),
                ..self.compaction
            },
            ..self.clone()
        }
    }
}

/// The numbers of tokens as they were written, so that they can follow another window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    reply_reserve: Tokens,
    tail: Tokens,
    summary: Tokens,
}

impl Tokens {
    fn of(self, ctx_size: u32) -> u32 {
        match self {
            Tokens::Count(count) => count,
            Tokens::Share(share) => ((f64::from(ctx_size) * share) as u32).max(1),
        }
    }
}

/// Reads and checks one preset whose layers are already one table.
pub(crate) fn read(name: &str, table: &Table, findings: &Findings) -> Preset {
    let path = join("presets", name);
    let before = findings.mistake_count();
    let preset = findings.read(table, &path, |r| read_keys(name, r));
    let preset = Preset { ctx_size_from: written(findings, &path, "ctx_size"), ..preset };
    if findings.mistake_count() == before {
        check::preset(&preset, &path, findings);
    }
    preset
}

/// In the order of `default.toml`, which is also the order in which they are printed.
fn read_keys(name: &str, r: &Reader<'_>) -> Preset {
    r.known(&["base"]);
    let model = r.text("model");
    let native_ctx: u32 = r.whole("native_ctx", 0..=u64::from(u32::MAX));
    let ctx_size = r.whole("ctx_size", 128..=u64::from(u32::MAX));
    let reply_reserve = r.tokens("reply_reserve_tokens");
    let thinking = read_thinking(r);
    let recall = r.whole("recall", 0..=100);
    let source = r.section("source", read_source);
    let kv = r.section("kv", |r| Kv { k: r.choice("k"), v: r.choice("v") });
    let (compaction, tail, summary) = r.section("compaction", read_compaction);
    let preset = Preset {
        name: name.to_string(),
        model,
        source,
        native_ctx: (native_ctx > 0).then_some(native_ctx),
        ctx_size,
        kv,
        reply_reserve_tokens: 0,
        thinking,
        recall,
        compaction,
        sampling: r.section("sampling", read_sampling),
        sampling_thinking: r.section("sampling_thinking", read_sampling),
        shares: Shares { reply_reserve, tail, summary },
        ctx_size_from: (Origin::Default { line: 1 }, String::new()),
    };
    preset.with_ctx_size(ctx_size)
}

fn read_thinking(r: &Reader<'_>) -> Thinking {
    let allowed = "\"off\", \"on\", or a number of tokens of at least 1";
    r.number_or_text("thinking", Thinking::Off, allowed, |value| match value {
        Value::Text(word) if word == "off" => Ok(Thinking::Off),
        Value::Text(word) if word == "on" => Ok(Thinking::On),
        Value::Integer(number) if *number > 0 => u32::try_from(*number).map(Thinking::Budget).map_err(|_| None),
        Value::Bool(true) => Err(Some("did you mean \"on\"".to_string())),
        Value::Bool(false) => Err(Some("did you mean \"off\"".to_string())),
        _ => Err(None),
    })
}

fn read_source(r: &Reader<'_>) -> Source {
    let text = |key| Some(r.text(key)).filter(|text| !text.is_empty());
    Source { repo: text("repo"), file: text("file"), path: text("path").map(PathBuf::from) }
}

fn read_compaction(r: &Reader<'_>) -> (Compaction, Tokens, Tokens) {
    let fill = |key| r.number(key, 0.05..=1.0);
    let compaction = Compaction {
        soft_fill: fill("soft_fill"),
        hard_fill: fill("hard_fill"),
        target_fill: fill("target_fill"),
        tail_tokens: 0,
        summary_tokens: 0,
    };
    (compaction, r.tokens("tail_tokens"), r.tokens("summary_tokens"))
}

fn read_sampling(r: &Reader<'_>) -> Sampling {
    let number = |key, range| r.number(key, range) as f32;
    Sampling {
        temperature: number("temperature", 0.0..=5.0),
        top_p: number("top_p", 0.0..=1.0),
        top_k: r.whole("top_k", 0..=1_000_000),
        min_p: number("min_p", 0.0..=1.0),
        presence_penalty: number("presence_penalty", -2.0..=2.0),
        frequency_penalty: number("frequency_penalty", -2.0..=2.0),
        repetition_penalty: number("repetition_penalty", 0.1..=10.0),
    }
}

fn written(findings: &Findings, section: &str, key: &str) -> (Origin, String) {
    let effective = findings.effective.borrow();
    let found: Option<&Effective> = effective.iter().find(|value| value.section == section && value.key == key);
    found.map_or((Origin::Default { line: 1 }, key.to_string()), |value| (value.origin.clone(), value.written.clone()))
}

impl KvFormat {
    /// As it is written in config, reports and file headers.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("f16", |(name, _)| name)
    }
}

impl Choice for KvFormat {
    const ALL: &'static [(&'static str, Self)] = &[
        ("f32", KvFormat::F32),
        ("f16", KvFormat::F16),
        ("bf16", KvFormat::Bf16),
        ("q8", KvFormat::Q8),
        ("q4", KvFormat::Q4),
    ];
}
