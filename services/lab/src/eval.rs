//! `reprise eval`: abilities of a model, measured on sets of conversations that it was never trained on.

mod said;
mod talker;
mod task;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use settings::Settings;

use serde_json::json;
use talker::Talker;
use task::{CompactedCase, EvalQuestion, Judged};
use terminal::answer::LocalModel;
use terminal::flags::wrong_use;
use terminal::note;
use terminal::opening::{ModelArgs, PrecisionArg};
use terminal::output::{print_json, print_rows};

/// Measures the abilities of a model
#[derive(Debug, clap::Subcommand)]
pub enum EvalCommand {
    Builtin(Builtin),
}

/// Recall, tool calls and summaries, on the sets of models/builtin/eval
#[derive(Debug, clap::Args)]
pub struct Builtin {
    /// A preset, a GGUF file or a Hugging Face folder
    #[arg(long, default_value = "builtin")]
    model: String,
    /// The folder with the sets
    #[arg(long, default_value = "models/builtin/eval")]
    data: PathBuf,
    /// Text in the names of the sets to ask
    #[arg(long)]
    only: Option<String>,
    /// Most cases of each set
    #[arg(long)]
    cases: Option<usize>,
    /// Print one object instead of a table
    #[arg(long)]
    json: bool,
    /// Print each answer that is wrong, on standard error
    #[arg(long)]
    wrong: bool,
    #[arg(long)]
    precision: Option<PrecisionArg>,
}

pub fn run(EvalCommand::Builtin(args): EvalCommand, settings: &Settings) -> Result<()> {
    builtin(&args, settings)
}

const QUESTIONS: [(&str, &str, f64); 5] = [
    // name, ability, and aim
    ("recall", "facts, asked in the same window", 0.95),
    ("recall_2000", "a fact, asked 2,000 tokens later", 0.90),
    ("not_told", "says that it was not told", 0.90),
    ("tool_calls", "tool calls that are exactly right", 0.95),
    ("pinned", "facts that only a pin holds", 1.0),
];
/// Names of the abilities with the model's own summaries, and with those that the service accepts.
const COMPACTED: [(&str, [&str; 2], f64); 3] = [
    ("after_summary", ["facts, asked after a summary", "the same, as the service compacts"], 0.85),
    ("after_five_summaries", ["facts, asked after five summaries", "the same, as the service compacts"], 0.75),
    (
        "instruction_after_summary",
        ["a standing instruction, after a summary", "the same, as the service compacts"],
        0.90,
    ),
];
const KEPT: (&str, &str, f64) = ("summary_20", "facts that a summary of 20 keeps", 0.90);

fn builtin(args: &Builtin, settings: &Settings) -> Result<()> {
    let is_wanted = |name: &str| args.only.as_deref().is_none_or(|only| name.contains(only));
    let names: Vec<&str> =
        QUESTIONS.iter().map(|set| set.0).chain([KEPT.0]).chain(COMPACTED.iter().map(|set| set.0)).collect();
    if let Some(only) = args.only.as_deref().filter(|_| !names.iter().any(|name| is_wanted(name))) {
        return Err(wrong_use(anyhow!("no set is named like {only:?}; there are {}", names.join(", "))));
    }
    let model =
        ModelArgs { model: Some(args.model.clone()), precision: args.precision, lora: Vec::new() }.open(settings)?;
    let mut talker = Talker(LocalModel::new(model, settings, KEPT_BYTES));
    let mut sets = Vec::new();
    let mut add = |name: &str, what: &str, aim: f64, judged: &[Judged]| {
        for Judged { said, expected, .. } in judged.iter().filter(|judged| args.wrong && !judged.right) {
            note!("{name}, {what}: {said:?}, expected {expected}");
        }
        let (right, of) = (judged.iter().filter(|judged| judged.right).count(), judged.len());
        let Some(interval) = experiment::wilson(right, of) else { return };
        let share = interval.estimate;
        // Some sets take minutes.
        note!("measured: {name}, {what}: {right} of {of}");
        sets.push(json!({
            "set": name, "what": what, "n": of, "right": right, "share": share, "low": interval.low,
            "high": interval.high, "aim": aim,
        }));
    };
    for (name, what, aim) in QUESTIONS.into_iter().filter(|(name, ..)| is_wanted(name)) {
        let questions = cases::<EvalQuestion>(args, name)?;
        let judged: Result<Vec<_>> = questions.iter().map(|question| question.ask(&mut talker)).collect();
        add(name, what, aim, &judged?);
    }
    let (name, what, aim) = KEPT;
    if is_wanted(name) {
        let cases = cases::<CompactedCase>(args, name)?;
        let judged: Result<Vec<_>> = cases.iter().map(|case| case.keeps(&mut talker)).collect();
        add(name, what, aim, &judged?.concat());
    }
    for (name, whats, aim) in COMPACTED.into_iter().filter(|(name, ..)| is_wanted(name)) {
        for (what, way) in whats.into_iter().zip([CompactedCase::summarise, CompactedCase::compact]) {
            let cases = cases::<CompactedCase>(args, name)?;
            let judged: Result<Vec<_>> = cases.iter().map(|case| case.ask_after(way, &mut talker)).collect();
            add(name, what, aim, &judged?.concat());
        }
    }
    if args.json {
        return print_json(&json!({"sets": sets}));
    }
    let columns = ["set", "what", "n", "right", "share", "low", "high", "aim"].map(|name| (name, name));
    print_rows(&sets, &columns)
}

const KEPT_BYTES: usize = 1 << 30; // enough for one conversation of a small model

fn cases<T: DeserializeOwned>(args: &Builtin, name: &str) -> Result<Vec<T>> {
    let file = args.data.join(format!("{name}.jsonl"));
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read the set {}: name its folder with --data", file.display()))?;
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}:{}", file.display(), number + 1))
    };
    let cases =
        text.lines().enumerate().map(read).take(args.cases.unwrap_or(usize::MAX)).collect::<Result<Vec<T>>>()?;
    if cases.is_empty() {
        bail!("{} holds no case", file.display());
    }
    Ok(cases)
}
