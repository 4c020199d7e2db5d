//! `reprise run`: one prompt, one reply, streamed.

use super::engine_flags::EngineFlags;
use anyhow::{Context, Result};
use engine::{EngineRequest, StopReason, ThinkingOptions};
use model::sampling;
use serde_json::{Value, json};
use session::{Message, MessageRole, Prompt, SamplingOverrides};
use settings::{Flag, Settings, Thinking};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use terminal::answer::{LocalModel, TokenPrompt};
use terminal::flags::{share, wrong_use};
use terminal::opening::{self, ModelArgs};
use terminal::output::{put_note, stdout};
use terminal::say;
use text::ReplyPart;

/// Runs one prompt through a model and streams the reply
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("said").required(true).multiple(true).args(["prompt", "request", "tokens"]))]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    engine: EngineFlags,
    /// Message of the user
    #[arg(long)]
    prompt: Option<String>,
    /// System prompt
    #[arg(long)]
    system: Option<String>,
    /// Chat-completions body instead of a prompt: @FILE or the JSON itself
    #[arg(long, conflicts_with_all = ["prompt", "system", "tokens"])]
    request: Option<String>,
    /// Prompt as tokens, 1,2,3 or @FILE, without a template
    #[arg(long, conflicts_with_all = ["prompt", "system"])]
    tokens: Option<String>,
    /// Gives the prompt to the model as it is, without a template
    #[arg(long)]
    raw: bool,
    /// Most tokens of the reply [default: the preset's reserve]
    #[arg(long, visible_alias = "max-new-tokens")]
    max_tokens: Option<usize>,
    /// Temperature; 0 takes the most probable token every time [default: the preset's]
    #[arg(long, value_parser = temperature)]
    temperature: Option<f32>,
    #[arg(help = "Takes one of this number of most probable tokens; 0: of all [default: the preset's]")]
    #[arg(long)]
    top_k: Option<u32>,
    #[arg(help = "Takes one of the fewest tokens that have this share of the probability [default: the preset's]")]
    #[arg(long, value_parser = share)]
    top_p: Option<f32>,
    #[arg(help = "Takes no token with less than this share of the best one's probability [default: the preset's]")]
    #[arg(long, value_parser = share)]
    min_p: Option<f32>,
    /// Seed: the same seed gives the same text
    #[arg(long)]
    seed: Option<u64>,
    /// Ends the reply before this text; may be given more than once
    #[arg(long)]
    stop: Vec<String>,
    /// Keeps the model from ending its reply
    #[arg(long)]
    ignore_eos: bool,
    /// Thinking: off, on or a number of tokens [default: the preset's]
    #[arg(long, value_parser = chosen_thinking)]
    thinking: Option<Thinking>,
    /// Prints one JSON object with text, tokens and timings instead of streaming
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the keys of the configuration that the flags set.
    pub fn flags(&self) -> Vec<Flag> {
        let mut flags = self.engine.flags();
        // A window is laid on the preset to talk with, which must then be the one of this model.
        if let Some(name) = self.model.model.as_ref().filter(|_| self.engine.ctx_size.is_some()) {
            let key = if Path::new(name).exists() { "model.path" } else { "model.preset" };
            flags.push(Flag::new("--model", key, name));
        }
        flags
    }
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let begin = Instant::now();
    let model = args.model.open(settings)?;
    let machine = match (&model.device, model.executor.cpu()) {
        (Some(memory), _) => json!({"gpu": memory.name}),
        (None, cpu) => json!({"level": cpu.map(|cpu| cpu.level.name()), "threads": cpu.map(|cpu| cpu.pool.threads())}),
    };
    // One reply and nothing else may take all memory.
    let mut model = LocalModel::new(model, settings, usize::MAX);
    let thinking = thinking(&args, model.preset.thinking)?;
    let prompt = prompt(&args, &model, thinking.open)?;
    let prompt_tokens = prompt.tokens.len();
    let overrides = SamplingOverrides {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        ..SamplingOverrides::default()
    };
    let sampling = sampling(&model.preset, thinking.open, &overrides);
    let reserve = model.preset.reply_reserve_tokens as usize;
    let options = |request: &mut EngineRequest| {
        request.max_new_tokens = args.max_tokens.unwrap_or(reserve);
        request.sampling = sampling;
        request.sampling.seed = args.seed;
        request.seed = args.seed.unwrap_or_else(|| seed_of_the_moment(begin));
        request.stop = args.stop.clone();
        request.ignore_eos = args.ignore_eos;
        request.thinking = thinking;
    };
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    let mut show = |piece: &ReplyPart| if args.json { Ok(()) } else { show(piece) };
    let answer = model.answer(prompt, options, &mut show)?;
    let calls: Vec<Value> = answer.calls.iter().map(|(name, text)| json!({"name": name, "arguments": text})).collect();
    if !args.json {
        for call in &calls {
            say!("{call}")?;
        }
        say!()?;
    }
    let total = answer.total.as_secs_f64();
    let prefill = answer.first_token.map_or(total, |first| first.as_secs_f64());
    let report = &answer.report;
    if args.json {
        let timings = json!({
            "load_ms": load_ms,
            "first_token_ms": prefill * 1e3,
            "total_ms": total * 1e3,
            "prefill_tokens_per_s": report.computed_tokens as f64 / prefill.max(1e-9),
            "decode_tokens_per_s": report.new_tokens.saturating_sub(1) as f64 / (total - prefill).max(1e-9),
        });
        let object = json!({
            "content": answer.content,
            "reasoning": answer.reasoning,
            "tool_calls": calls,
            "tokens": answer.tokens,
            "finish": finish_name(&answer.stop_reason),
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": report.new_tokens},
            "timings": timings,
            "machine": machine,
        });
        say!("{object}")?;
    }
    Ok(())
}

fn prompt(args: &Args, model: &LocalModel, thinking: bool) -> Result<TokenPrompt> {
    let plain = |tokens| TokenPrompt { tokens, ..TokenPrompt::default() };
    if let Some(tokens) = &args.tokens {
        return Ok(plain(opening::parse_tokens(tokens)?));
    }
    let said = args.prompt.clone().unwrap_or_default();
    if args.raw {
        return Ok(plain(model.tokenizer.encode(&said)));
    }
    let prompt = match &args.request {
        Some(request) => {
            let text = opening::text_or_file(request, "request")?;
            let body: Value = serde_json::from_str(&text).context("--request is not JSON").map_err(wrong_use)?;
            doors::chat_prompt(&body)?
        }
        None => {
            let system = args.system.iter().map(|text| Message::new(MessageRole::System, text));
            let messages = system.chain([Message::new(MessageRole::User, said)]).collect();
            Prompt { messages, ..Prompt::default() }
        }
    };
    model.encode(&prompt, thinking)
}

fn thinking(args: &Args, of_preset: Thinking) -> Result<ThinkingOptions> {
    if args.tokens.is_some() || args.raw {
        return Ok(ThinkingOptions::default());
    }
    let chosen = args.thinking.unwrap_or(of_preset);
    let budget_tokens = chosen.budget_tokens().filter(|tokens| *tokens > 0);
    Ok(ThinkingOptions { open: chosen != Thinking::Off, budget_tokens })
}

fn chosen_thinking(word: &str) -> Result<Thinking, String> {
    match (word, word.parse()) {
        ("off", _) => Ok(Thinking::Off),
        ("on", _) => Ok(Thinking::On),
        (_, Ok(tokens)) => Ok(Thinking::Budget(tokens)),
        _ => Err("use off, on or a number of tokens".to_owned()),
    }
}

fn temperature(text: &str) -> Result<f32, String> {
    let temperature = text.parse().ok().filter(|number| (0.0..=HOTTEST).contains(number));
    temperature.ok_or_else(|| format!("give a number from 0 to {HOTTEST}"))
}

const HOTTEST: f32 = 5.0; // as of preset.sampling.temperature

fn seed_of_the_moment(moment: Instant) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(moment)
}

fn finish_name(finish: &StopReason) -> &'static str {
    match finish {
        StopReason::End { .. } | StopReason::StopString { .. } => "stop",
        StopReason::Length { .. } | StopReason::Window { .. } => "length",
        StopReason::Cancelled { .. } => "cancelled",
        StopReason::Warm => "warm",
    }
}

/// Prints the reply to the standard output, reasoning to the standard error.
fn show(piece: &ReplyPart) -> Result<()> {
    match piece {
        ReplyPart::Reasoning(text) => put_note(format_args!("{text}")),
        ReplyPart::Content(text) => {
            let mut out = stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
        ReplyPart::Call { .. } | ReplyPart::Arguments { .. } => {}
    }
    Ok(())
}
