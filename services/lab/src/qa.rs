//! `reprise qa`: all checks of a model file in one report, in the terminal and as a page.

mod page;

use anyhow::{Context, Result, bail};
use engine::network::{Network, WantedLogits};
use engine::state::{KvFormats, SequenceState};
use engine::{Executor, Format};
use experiment::median;
use serde::Serialize;
use serde_json::Value;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use terminal::flags::{at_least, counted};
use terminal::note;
use terminal::opening::{self, ModelArgs, PrecisionArg, ReadyModel};
use terminal::output::{TextTable, chain, print_json, unless_closed, write_file};
use tools::divergence::{divergence, top};

/// Checks a model file in every way that this program knows, and writes one report
#[derive(Debug, clap::Args)]
pub struct Args {
    /// GGUF or APR file, Hugging Face folder, or preset
    model: String,
    /// Text to compare precisions over [default: one of this program's own]
    #[arg(long)]
    text: Option<PathBuf>,
    /// Tokens of the text that are read
    #[arg(long, default_value_t = 256, value_parser = at_least::<LEAST_TOKENS>)]
    tokens: u64,
    /// Page to write the report to
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Prints one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    model: String,
    /// True if every check holds.
    holds: bool,
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    outcome: Outcome,
    /// Figures, or the reason of a failure.
    detail: String,
    took_ms: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Holds,
    Fails,
    Measured,
}

const TEXT: &str = include_str!("qa/text.txt");
/// Largest difference of logits between two ways to compute them, as a share of their largest value.
const SAME: f64 = 1e-3;
/// Largest mean divergence of the fast path from the exact one, in nats.
const ROUNDING: f64 = 0.1;
const PROMPT: &str = "What is 2 + 2?";
const LEAST_TOKENS: u64 = 8;
const REPLY_TOKENS: &str = "32";
const SMALL_CHUNK: usize = 7;
const SHOWN_CHARS: usize = 90; // of a line on a terminal
const DECODED: usize = 16;

pub fn run(args: &Args, given: &[OsString], settings: &Settings) -> Result<()> {
    // Before minutes of checks whose page could not be written.
    let folder = args.html.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("there is no folder {} to write the page to", folder.display());
    }
    let mut checks = Vec::new();
    let mut check = |name: &'static str, work: &mut dyn FnMut() -> Result<(Outcome, String)>| {
        note!("{name} ...");
        let begin = Instant::now();
        let (outcome, detail) = work().unwrap_or_else(|error| (Outcome::Fails, chain(&error)));
        checks.push(Check { name, outcome, detail, took_ms: begin.elapsed().as_secs_f64() * 1e3 });
        outcome != Outcome::Fails
    };
    let opens = check("opens", &mut || opens(args, settings));
    if opens {
        check("file", &mut || file(args, given));
        check("one answer in every way", &mut || one_answer(args, settings));
        check("rounding", &mut || rounding(args, settings));
        check("replies", &mut || replies(args, given));
        check("speed", &mut || speed(args, settings));
    }
    let holds = checks.iter().all(|check| check.outcome != Outcome::Fails);
    let report = Report { model: args.model.clone(), holds, checks };
    unless_closed(if args.json { print_json(&report) } else { print(&report) })?;
    if let Some(file) = &args.html {
        write_file(file, &page::page(&report))?;
    }
    match holds {
        true => Ok(()),
        false => bail!("{} does not hold all checks", args.model),
    }
}

fn open(args: &Args, precision: PrecisionArg, settings: &Settings) -> Result<ReadyModel> {
    ModelArgs { model: Some(args.model.clone()), precision: Some(precision), lora: Vec::new() }.open_on_host(settings)
}

fn opens(args: &Args, settings: &Settings) -> Result<(Outcome, String)> {
    let ready = open(args, PrecisionArg::Default, settings)?;
    let shape = ready.opened.model.network.shape();
    let layers = shape.layers.len();
    Ok((Outcome::Holds, format!("{}, {layers} layers of {}, window {}", shape.arch, shape.hidden, shape.native_ctx)))
}

/// Runs a command of this program.
fn command(given: &[OsString], arguments: &[&str]) -> Result<(bool, Value, String)> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let output = Command::new(program).args(given).args(arguments).stdin(Stdio::null()).output();
    let output = output.context("cannot start a command of this program")?;
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    Ok((output.status.success(), told, words.lines().last().unwrap_or_default().to_owned()))
}

fn file(args: &Args, given: &[OsString]) -> Result<(Outcome, String)> {
    let (holds, told, words) = command(given, &["validate", &args.model, "--quality", "--json"])?;
    let findings = told["findings"].as_array().map_or(0, Vec::len);
    match holds {
        true => Ok((Outcome::Holds, format!("validate --quality: {}", counted(findings, "warning")))),
        false => Ok((Outcome::Fails, format!("validate --quality: {words}"))),
    }
}

fn text_tokens(args: &Args, ready: &ReadyModel) -> Result<Vec<u32>> {
    let text = match &args.text {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => TEXT.to_owned(),
    };
    let mut tokens = ready.opened.model.tokenizer.encode(&text);
    tokens.truncate(usize::try_from(args.tokens).unwrap_or(usize::MAX));
    match tokens.len() as u64 {
        ..LEAST_TOKENS => {
            bail!("the text has {} tokens, and {LEAST_TOKENS} are the least to compare over", tokens.len())
        }
        _ => Ok(tokens),
    }
}

struct Reader<'r> {
    network: &'r Network,
    executor: &'r mut Executor,
    kv: KvFormats,
}

impl Reader<'_> {
    fn state(&self) -> Result<SequenceState> {
        Ok(SequenceState::new(self.network.state_shape, self.kv, &self.executor.meter())?)
    }

    fn read(&mut self, state: &mut SequenceState, tokens: &[u32], chunk: usize) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for tokens in tokens.chunks(chunk) {
            let lane = opening::lane(state, tokens, WantedLogits::All);
            let computed = self.executor.forward(self.network, &mut [lane]).map(|logits| logits.to_vec());
            logits.extend(computed.ok_or_else(|| opening::lost(self.executor))?);
        }
        match logits.iter().all(|logit| logit.is_finite()) {
            true => Ok(logits),
            false => bail!("logits that are no numbers: the file is damaged"),
        }
    }
}

const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);

fn one_answer(args: &Args, settings: &Settings) -> Result<(Outcome, String)> {
    let mut ready = open(args, PrecisionArg::F32, settings)?;
    let tokens = text_tokens(args, &ready)?;
    let network = &ready.opened.model.network;
    let mut reader = Reader { network, executor: &mut ready.executor, kv: F32 };
    let (mut whole, mut pieces) = (reader.state()?, reader.state()?);
    let at_once = reader.read(&mut whole, &tokens, tokens.len())?;
    let in_pieces = reader.read(&mut pieces, &tokens, SMALL_CHUNK)?;
    let cut = tokens.len() / 2;
    let mut first = reader.state()?;
    reader.read(&mut first, &tokens[..cut], tokens.len())?;
    let gone_on = reader.read(&mut first.branch(), &tokens[cut..], tokens.len())?;
    let vocab = network.shape().vocab;
    let largest = at_once.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
    let apart = |a: &[f32], b: &[f32]| {
        let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        f64::from(most / largest)
    };
    let [pieces, branch] = [apart(&at_once, &in_pieces), apart(&at_once[cut * vocab..], &gone_on)];
    let outcome = if pieces.max(branch) <= SAME { Outcome::Holds } else { Outcome::Fails };
    Ok((
        outcome,
        format!(
            "{} tokens at once and in pieces of {SMALL_CHUNK}: {pieces:.1e}; from a branch: {branch:.1e}",
            tokens.len()
        ),
    ))
}

fn rounding(args: &Args, settings: &Settings) -> Result<(Outcome, String)> {
    let read = |precision: PrecisionArg| -> Result<(Vec<f32>, usize)> {
        let mut ready = open(args, precision, settings)?;
        let tokens = text_tokens(args, &ready)?;
        let kv = if precision == PrecisionArg::F32 { F32 } else { ready.kv };
        let network = &ready.opened.model.network;
        let mut reader = Reader { network, executor: &mut ready.executor, kv };
        let mut state = reader.state()?;
        Ok((reader.read(&mut state, &tokens, settings.engine.chunk_tokens(false).max(1))?, network.shape().vocab))
    };
    let ((exact, vocab), (fast, _)) = (read(PrecisionArg::F32)?, read(PrecisionArg::Default)?);
    let positions: Vec<(&[f32], &[f32])> = exact.chunks_exact(vocab).zip(fast.chunks_exact(vocab)).collect();
    let mean = positions.iter().map(|(exact, fast)| divergence(exact, fast)).sum::<f64>() / positions.len() as f64;
    let same = positions.iter().filter(|(exact, fast)| top(exact) == top(fast)).count();
    let share = 100.0 * same as f64 / positions.len() as f64;
    let outcome = if mean <= ROUNDING { Outcome::Holds } else { Outcome::Fails };
    Ok((
        outcome,
        format!("fast path beside f32: mean divergence {mean:.2e}, the same best token at {share:.1} % of positions"),
    ))
}

fn replies(args: &Args, given: &[OsString]) -> Result<(Outcome, String)> {
    let arguments = [
        "run",
        "--model",
        &args.model,
        "--prompt",
        PROMPT,
        "--max-tokens",
        REPLY_TOKENS,
        "--temperature",
        "0",
        "--json",
    ];
    let (holds, told, words) = command(given, &arguments)?;
    let (text, tokens) = (told["content"].as_str().unwrap_or_default(), told["usage"]["completion_tokens"].as_u64());
    match holds && tokens.is_some_and(|tokens| tokens > 0) {
        true => Ok((Outcome::Holds, format!("{PROMPT} {}", shortened(text)))),
        false => Ok((Outcome::Fails, format!("no reply to {PROMPT:?}: {words}"))),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{} …", &text[..at]),
    }
}

fn speed(args: &Args, settings: &Settings) -> Result<(Outcome, String)> {
    let mut ready = open(args, PrecisionArg::Default, settings)?;
    let tokens = text_tokens(args, &ready)?;
    let kv = ready.kv;
    let network = &ready.opened.model.network;
    let mut reader = Reader { network, executor: &mut ready.executor, kv };
    let mut state = reader.state()?;
    let begin = Instant::now();
    reader.read(&mut state, &tokens, settings.engine.chunk_tokens(false).max(1))?;
    let read = tokens.len() as f64 / begin.elapsed().as_secs_f64();
    let mut steps = Vec::new();
    for at in 0..DECODED {
        let begin = Instant::now();
        reader.read(&mut state, &tokens[at % tokens.len()..][..1], 1)?;
        steps.push(begin.elapsed().as_secs_f64());
    }
    let written = median(steps).map_or(0.0, |step| 1.0 / step);
    Ok((
        Outcome::Measured,
        format!("{read:.0} tokens/s read with all logits, {written:.1} written, on this machine's processor"),
    ))
}

fn print(report: &Report) -> Result<()> {
    let mut table = TextTable::new(&["check", "", "", "ms"]);
    for check in &report.checks {
        let outcome = match check.outcome {
            Outcome::Holds => "holds",
            Outcome::Fails => "FAILS",
            Outcome::Measured => "",
        };
        table.row([
            check.name.to_owned(),
            outcome.to_owned(),
            shortened(&check.detail),
            format!("{:.0}", check.took_ms),
        ]);
    }
    table.print()
}
