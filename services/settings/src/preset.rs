//! A preset: one model with one window and everything that follows from it.

use std::path::{Path, PathBuf};

use strum::{IntoStaticStr, VariantArray};

use crate::error::{Error, Mistake};
use crate::findings::Findings;
use crate::layers::Table;
use crate::origin::{Origin, SettingsLayer, join};
use crate::reader::{self, SectionReader, TokenCount, sections};
use crate::settings::ChangedHeadChoice;
use crate::value::Value;

#[derive(Clone, Debug, PartialEq)]
pub struct Preset {
    pub name: String,
    /// Name of the model that clients see. Empty for the name in the model file.
    pub model: String,
    pub source: ModelSource,
    pub made_for: MadeFor,
    /// Window that the model was made for. `None` for the one in the model file.
    pub native_ctx: Option<u32>,
    pub ctx_size: u32,
    pub rope: RopeSettings,
    pub kv: Kv,
    pub reply_reserve_tokens: u32,
    pub thinking: Thinking,
    pub questions: Questions,
    pub speakers: ShownSpeakers,
    pub recall: Recall,
    /// Searches of the past that the model may make for one reply. 0 removes the tool.
    pub recall_calls: u32,
    pub speculation: SpeculationSettings,
    pub remember: RememberedSettings,
    pub prompt: PresetPrompt,
    pub compaction: CompactionSettings,
    pub sampling: SamplingSettings,
    pub sampling_thinking: SamplingSettings,
    shares: Shares,
    ctx_size_from: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Questions {
    Any,
    /// Ends in a mark that Home Assistant knows.
    Marked,
    /// Drops the question, unless the reply only asks.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum ShownSpeakers {
    Off,
    /// Prefix of the words: 'Anna: Good morning.'
    Prefix,
    /// Field `name` of a message, for templates that read it.
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Recall {
    Off,
    Tool,
    Auto,
}

sections! {
    pub struct ModelSource {
        pub repo: Option<String> = optional_text(),
        pub file: Option<String> = optional_text(),
        pub path: Option<PathBuf> = optional_path(),
    }

    #[derive(Copy, Eq)]
    pub struct MadeFor {
        pub gpu: u64 = bytes(0..=u64::MAX),
        pub host: u64 = bytes(0..=u64::MAX),
    }

    #[derive(Copy)]
    pub struct RopeSettings {
        pub yarn: f64 = number(1.0..=64.0),
    }

    #[derive(Copy, Eq)]
    pub struct Kv {
        pub k: KvFormat = choice(),
        pub v: KvFormat = choice(),
        pub rotation: KvRotation = choice(),
    }

    #[derive(Copy, Eq)]
    pub struct SpeculationSettings {
        pub after_ms: u64 = time(0..=60_000),
        pub tokens: u32 = whole(0..=4096),
        pub keep_s: u64 = time(1..=600),
    }

    #[derive(Copy)]
    pub struct PresetPrompt {
        pub changed_head: ChangedHeadChoice = choice(),
        pub new_head_share: f64 = number(0.0..=1.0),
        pub most_changed_share: f64 = number(0.0..=1.0),
    }

    #[derive(Copy)]
    pub struct SamplingSettings {
        pub temperature: f32 = number_f32(0.0..=5.0),
        pub top_p: f32 = number_f32(0.0..=1.0),
        pub top_k: u32 = whole(0..=1_000_000),
        pub min_p: f32 = number_f32(0.0..=1.0),
        pub presence_penalty: f32 = number_f32(-2.0..=2.0),
        pub frequency_penalty: f32 = number_f32(-2.0..=2.0),
        pub repetition_penalty: f32 = number_f32(0.1..=10.0),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum KvFormat {
    F32,
    F16,
    Bf16,
    Q8,
    Q4,
    Tq4,
    Tq3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum KvRotation {
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    Off,
    On,
    Budget(u32),
    /// Time from the request to the first word of the answer, for which the engine ends the thought; an optional limit
    /// of tokens, too.
    Within {
        first_word_ms: u64,
        tokens: Option<u32>,
    },
}

impl Thinking {
    pub fn budget_tokens(self) -> Option<u32> {
        match self {
            Thinking::Off => Some(0),
            Thinking::On => None,
            Thinking::Budget(tokens) => Some(tokens),
            Thinking::Within { tokens, .. } => tokens,
        }
    }

    pub fn first_word_ms(self) -> Option<u64> {
        if let Thinking::Within { first_word_ms, .. } = self { Some(first_word_ms) } else { None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedSettings {
    pub prompt_tokens: u32,
    pub learn: Learn,
    /// True if the prompt asks the assistant to say 'I'll remember that'.
    pub confirm: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Learn {
    Off,
    Words,
    Model,
}

/// Settings of compaction. A fill is the share of `ctx_size` that the rendered prompt and the reply reserve take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompactionSettings {
    pub soft_fill: f64,
    pub hard_fill: f64,
    pub target_fill: f64,
    pub tail_tokens: u32,
    pub summary_tokens: u32,
}

impl Preset {
    pub fn recall_tool_calls(&self) -> u32 {
        if self.recall == Recall::Off { 0 } else { self.recall_calls }
    }

    /// Returns the path of the model's file or folder on this machine, present or after a pull. A file directly in the
    /// folder of models comes first, because the operator or an earlier version put it there: a client's download never
    /// replaces it. `None` if the preset names no source.
    pub fn model_path(&self, models_dir: &Path) -> Option<PathBuf> {
        let ModelSource { repo, file, path } = &self.source;
        if path.is_some() {
            return path.clone();
        }
        let flat = file.as_ref().map(|file| models_dir.join(file));
        let Some(repo) = repo else { return flat };
        let is_there = |flat: &PathBuf| is_near(file.as_deref()) && flat.is_file();
        let folder = models_dir.join(repo);
        let pulled = || file.as_ref().map_or(folder.clone(), |file| folder.join(file));
        Some(flat.filter(is_there).unwrap_or_else(pulled))
    }

    pub fn sampling_for(&self, thinking: bool) -> &SamplingSettings {
        if thinking { &self.sampling_thinking } else { &self.sampling }
    }

    pub(crate) fn fit(&self, native_ctx: u32) -> Result<(Preset, Option<String>), Error> {
        if self.ctx_size <= native_ctx {
            return Ok((Preset { native_ctx: Some(native_ctx), ..self.clone() }, None));
        }
        let origin = self.ctx_size_from.clone();
        let is_default = origin.layer == SettingsLayer::Default;
        let fitted = Preset { native_ctx: Some(native_ctx), ..self.with_ctx_size(native_ctx) };
        let found = match fitted.unreachable_target() {
            None if is_default => {
                return Ok((fitted, Some(format!("window {native_ctx} tokens: the model file has no more than that"))));
            }
            Some(why) if is_default => why,
            _ => format!("the number {}", self.ctx_size),
        };
        let allowed = format!("at most {native_ctx}, the window of the model file");
        Err(Error::WindowTooLarge(Box::new(Mistake { origin, found, allowed, hint: None })))
    }

    /// Explains why no compaction can bring this preset down to its target fill; `None` if one can.
    pub(crate) fn unreachable_target(&self) -> Option<String> {
        let Preset { name, ctx_size, reply_reserve_tokens: reserve, compaction, .. } = self;
        let (tail, summary, target) = (compaction.tail_tokens, compaction.summary_tokens, compaction.target_fill);
        // In u64: three numbers of a hostile file must not wrap around into something that fits.
        let needed = u64::from(tail) + u64::from(summary) + u64::from(*reserve);
        let room = (target * f64::from(*ctx_size)) as u64;
        (needed > room).then(|| {
            format!(
                "preset {name:?}, where {needed} tokens stay after every compaction (tail_tokens {tail} + summary_tokens \
                 {summary} + reply_reserve_tokens {reserve}) and target_fill {target} of ctx_size {ctx_size} is only {room}"
            )
        })
    }

    /// Copies the preset with another window. Shares follow the window, numbers of tokens stay.
    pub fn with_ctx_size(&self, ctx_size: u32) -> Preset {
        let shares = self.shares;
        Preset {
            ctx_size,
            reply_reserve_tokens: shares.reply_reserve.of(ctx_size),
            remember: RememberedSettings { prompt_tokens: shares.remembered.of(ctx_size), ..self.remember },
            compaction: CompactionSettings {
                tail_tokens: shares.tail.of(ctx_size),
                summary_tokens: shares.summary.of(ctx_size),
                ..self.compaction
            },
            ..self.clone()
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Shares {
    reply_reserve: TokenCount,
    tail: TokenCount,
    summary: TokenCount,
    remembered: TokenCount,
}

impl TokenCount {
    fn of(self, ctx_size: u32) -> u32 {
        match self {
            TokenCount::Count(count) => count,
            TokenCount::Share(share) => ((f64::from(ctx_size) * share) as u32).max(1),
        }
    }
}

/// True unless a file name leads into the folder of another repository, which is two levels deep.
fn is_near(file: Option<&str>) -> bool {
    file.is_some_and(|file| file.split('/').count() <= 2)
}

pub(crate) fn read(name: &str, table: &Table, findings: &Findings) -> Preset {
    let path = join("presets", name);
    let preset = reader::read(Some(table), &path, findings, |r| read_keys(name, r));
    match findings.origin(&path, "ctx_size") {
        Some(ctx_size_from) => Preset { ctx_size_from, ..preset },
        None => preset,
    }
}

fn read_keys(name: &str, r: &SectionReader<'_>) -> Preset {
    r.known(&["base"]);
    let model = r.text("model");
    let native_ctx: u32 = r.whole("native_ctx", 0..=u64::from(u32::MAX));
    let ctx_size = r.whole("ctx_size", 128..=u64::from(u32::MAX));
    let reply_reserve = r.tokens("reply_reserve_tokens");
    let thinking = read_thinking(r);
    let questions = r.choice("questions");
    let speakers = r.choice("speakers");
    let recall = r.choice("recall");
    let recall_calls = r.whole("recall_calls", 0..=100);
    let speculation = r.section("speculation", SpeculationSettings::read);
    let (remember, remembered) = r.section("remember", read_remember);
    let prompt = r.section("prompt", PresetPrompt::read);
    let source = r.section("source", ModelSource::read);
    let made_for = r.section("made_for", MadeFor::read);
    let rope = r.section("rope", RopeSettings::read);
    let kv = r.section("kv", Kv::read);
    let (compaction, tail, summary) = r.section("compaction", read_compaction);
    let preset = Preset {
        name: name.to_string(),
        model,
        source,
        made_for,
        native_ctx: (native_ctx > 0).then_some(native_ctx),
        ctx_size,
        rope,
        kv,
        reply_reserve_tokens: 0,
        thinking,
        questions,
        speakers,
        recall,
        recall_calls,
        speculation,
        remember,
        prompt,
        compaction,
        sampling: r.section("sampling", SamplingSettings::read),
        sampling_thinking: r.section("sampling_thinking", SamplingSettings::read),
        shares: Shares { reply_reserve, tail, summary, remembered },
        ctx_size_from: Origin::default(),
    };
    preset.with_ctx_size(ctx_size)
}

fn read_thinking(r: &SectionReader<'_>) -> Thinking {
    if r.is_table("thinking") {
        return r.section("thinking", |r| Thinking::Within {
            first_word_ms: r.time("first_word_ms", 1..=600_000),
            tokens: r.has("tokens").then(|| r.whole("tokens", 1..=u64::from(u32::MAX))),
        });
    }
    let allowed = "\"off\", \"on\", a number of tokens of at least 1, or { first_word_ms = 800 }";
    r.read("thinking", Value::as_number, Thinking::Off, allowed, |value| match value {
        Value::Text(word) if word == "off" => Ok(Thinking::Off),
        Value::Text(word) if word == "on" => Ok(Thinking::On),
        Value::Integer(number) if *number > 0 => u32::try_from(*number).map(Thinking::Budget).map_err(|_| None),
        Value::Bool(true) => Err(Some("did you mean \"on\"".to_string())),
        Value::Bool(false) => Err(Some("did you mean \"off\"".to_string())),
        _ => Err(None),
    })
}

fn read_remember(r: &SectionReader<'_>) -> (RememberedSettings, TokenCount) {
    let remember = RememberedSettings { prompt_tokens: 0, learn: r.choice("learn"), confirm: r.bool("confirm") };
    (remember, r.tokens("prompt_tokens"))
}

fn read_compaction(r: &SectionReader<'_>) -> (CompactionSettings, TokenCount, TokenCount) {
    let fill = |key| r.number(key, 0.05..=1.0);
    let compaction = CompactionSettings {
        soft_fill: fill("soft_fill"),
        hard_fill: fill("hard_fill"),
        target_fill: fill("target_fill"),
        tail_tokens: 0,
        summary_tokens: 0,
    };
    (compaction, r.tokens("tail_tokens"), r.tokens("summary_tokens"))
}
