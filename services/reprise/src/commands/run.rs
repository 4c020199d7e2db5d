//! `reprise run`: one prompt, one reply, streamed.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, RequestReport, StopReason, ThinkingOptions};
use model::{OpenedPreset, kv_formats, sampling};
use serde_json::{Value, json};
use session::SamplingOverrides;
use settings::Settings;
use text::{ReplyParser, ReplyPart};

use lab::opening::{self, PrecisionArg};

/// Run one prompt through a model and stream the reply
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A preset, a GGUF file or a Hugging Face folder [default: the configuration's]
    #[arg(long)]
    model: Option<String>,
    /// What the user says
    #[arg(long, required_unless_present_any = ["tokens", "request"])]
    prompt: Option<String>,
    /// What the system prompt says
    #[arg(long)]
    system: Option<String>,
    /// A chat-completions body instead of a prompt: @FILE or the JSON itself
    #[arg(long, conflicts_with_all = ["prompt", "system", "tokens"])]
    request: Option<String>,
    /// The prompt as tokens, 1,2,3 or @FILE, without a template
    #[arg(long, conflicts_with_all = ["prompt", "system"])]
    tokens: Option<String>,
    /// The prompt goes to the model as it is, without a template
    #[arg(long)]
    raw: bool,
    /// Tokens of the reply at most [default: the preset's reserve]
    #[arg(long, visible_alias = "max-new-tokens")]
    max_tokens: Option<usize>,
    /// 0: the most probable token every time [default: the preset's]
    #[arg(long)]
    temperature: Option<f32>,
    #[arg(long)]
    top_k: Option<u32>,
    #[arg(long)]
    top_p: Option<f32>,
    #[arg(long)]
    min_p: Option<f32>,
    /// The same seed gives the same text
    #[arg(long)]
    seed: Option<u64>,
    /// The reply ends before this text; may be given more than once
    #[arg(long)]
    stop: Vec<String>,
    /// The model cannot end its reply
    #[arg(long)]
    ignore_eos: bool,
    /// off, on or a number of tokens [default: the preset's]
    #[arg(long)]
    thinking: Option<String>,
    #[arg(long)]
    precision: Option<PrecisionArg>,
    /// Print one object with text, tokens and timings instead of streaming
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, settings: &Settings) -> Result<()> {
    let begin = Instant::now();
    let precision = opening::precision(settings, args.precision);
    let name = args.model.as_deref().unwrap_or(&settings.model.preset);
    let opened = opening::open_to_answer(settings, name, precision)?;
    let thinking = thinking(&args, &opened)?;
    let prompt = prompt(&args, &opened, thinking.open)?;
    let OpenedPreset { network, tokenizer, preset, executor, .. } = opened;
    let reserve = preset.reply_reserve_tokens as usize;
    let mut request = EngineRequest::new(prompt.tokens, preset.ctx_size as usize, kv_formats(&preset, precision));
    request.marks = prompt.marks;
    request.max_new_tokens = args.max_tokens.unwrap_or(reserve);
    request.sampling = sampling(&preset, thinking.open, &overrides(&args));
    request.sampling.seed = args.seed;
    request.seed = args.seed.unwrap_or_else(|| seed_of_the_moment(begin));
    request.stop = args.stop.clone();
    request.ignore_eos = args.ignore_eos;
    request.thinking = thinking;
    let prompt_tokens = request.tokens.len();
    let mut limits = EngineLimits {
        prefill_chunk_tokens: settings.engine.prefill_chunk_tokens,
        max_sequences: 1,
        max_waiting: 1,
        // One reply and nothing else.
        memory_bytes: usize::MAX,
        snapshots: engine::snapshot::FORMATS[0],
        snapshot_spacing_tokens: usize::MAX,
        recurrence_log_tokens: 0,
    };
    let (executor, device) = opening::executor(settings, executor);
    limits.prefill_chunk_tokens = settings.engine.chunk_tokens(device.is_some());
    let machine = match (&device, executor.cpu()) {
        (Some(memory), _) => {
            limits.memory_bytes = memory.left_bytes;
            json!({"gpu": memory.name})
        }
        (None, cpu) => json!({"level": cpu.map(|cpu| cpu.level.name()), "threads": cpu.map(|cpu| cpu.pool.threads())}),
    };
    let mut engine = Engine::new(executor, network, tokenizer, limits);
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;

    let start = Instant::now();
    engine.submit(request)?;
    let mut told = Told::new(args.json, thinking.open, prompt.tools);
    let mut first = None;
    let mut events = Vec::new();
    let mut ended: Option<(StopReason, RequestReport)> = None;
    while ended.is_none() {
        engine.step(&mut events);
        for event in events.drain(..) {
            match event {
                EngineEvent::Started { .. } => {}
                EngineEvent::Token(token) => {
                    first.get_or_insert_with(|| start.elapsed());
                    told.tokens.push(token.token);
                    told.text(&token.text)?;
                }
                EngineEvent::Done { stop_reason, report, .. } => ended = Some((stop_reason, report)),
                EngineEvent::Failed { error, .. } => return Err(error.into()),
            }
        }
    }
    let total = start.elapsed().as_secs_f64();
    let Some((stop_reason, report)) = ended else { bail!("the engine stopped without an answer") };
    told.end(&stop_reason)?;
    let prefill = first.map_or(total, |first| first.as_secs_f64());
    let decode_tokens_per_s = report.new_tokens.saturating_sub(1) as f64 / (total - prefill).max(1e-9);
    if args.json {
        let timings = json!({
            "load_ms": load_ms,
            "first_token_ms": prefill * 1e3,
            "total_ms": total * 1e3,
            "prefill_tokens_per_s": report.computed_tokens as f64 / prefill.max(1e-9),
            "decode_tokens_per_s": decode_tokens_per_s,
        });
        let object = json!({
            "content": told.content,
            "reasoning": told.reasoning,
            "tool_calls": told.calls,
            "tokens": told.tokens,
            "finish": finish_name(&stop_reason),
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": report.new_tokens},
            "timings": timings,
            "machine": machine,
        });
        println!("{object}");
    }
    Ok(())
}

/// The prompt as tokens, and the tools whose schemas give arguments their types.
struct TokenPrompt {
    tokens: Vec<u32>,
    marks: Vec<usize>,
    tools: Vec<Value>,
}

fn prompt(args: &Args, opened: &OpenedPreset, thinking: bool) -> Result<TokenPrompt> {
    let plain = |tokens| TokenPrompt { tokens, marks: Vec::new(), tools: Vec::new() };
    if let Some(tokens) = &args.tokens {
        return Ok(plain(opening::parse_tokens(tokens)?));
    }
    let said = args.prompt.clone().unwrap_or_default();
    if args.raw {
        return Ok(plain(opened.tokenizer.encode(&said)));
    }
    let body = match &args.request {
        Some(request) => body(request)?,
        None => {
            let system = args.system.iter().map(|text| json!({"role": "system", "content": text}));
            let messages: Vec<Value> = system.chain([json!({"role": "user", "content": said})]).collect();
            json!({"messages": messages})
        }
    };
    let mut chat = text::chat::normalise(&body)?;
    chat.options.entry("enable_thinking").or_insert(json!(thinking));
    let rendered = opened.template.render(&chat.prompt(None))?;
    let encoded = text::encode_prompt(&opened.tokenizer, &rendered);
    Ok(TokenPrompt { tokens: encoded.tokens, marks: encoded.marks, tools: chat.tools })
}

fn body(request: &str) -> Result<Value> {
    let text = match request.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file).with_context(|| format!("cannot read the request {file}"))?,
        None => request.to_string(),
    };
    serde_json::from_str(&text).context("--request is no JSON")
}

fn thinking(args: &Args, opened: &OpenedPreset) -> Result<ThinkingOptions> {
    let templated = args.tokens.is_none() && !args.raw;
    let thinking = match args.thinking.as_deref() {
        None => match opened.preset.thinking {
            settings::Thinking::Off => ThinkingOptions { open: false, budget_tokens: None },
            settings::Thinking::On => ThinkingOptions { open: true, budget_tokens: None },
            settings::Thinking::Budget(tokens) => ThinkingOptions { open: true, budget_tokens: Some(tokens) },
        },
        Some("off") => ThinkingOptions { open: false, budget_tokens: None },
        Some("on") => ThinkingOptions { open: true, budget_tokens: None },
        Some(number) => {
            let tokens =
                number.parse().ok().with_context(|| format!("--thinking {number}: use off, on or a number"))?;
            ThinkingOptions { open: true, budget_tokens: Some(tokens) }
        }
    };
    Ok(if templated { thinking } else { ThinkingOptions::default() })
}

fn overrides(args: &Args) -> SamplingOverrides {
    SamplingOverrides {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        ..SamplingOverrides::default()
    }
}

fn seed_of_the_moment(moment: Instant) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(moment)
}

fn finish_name(stop_reason: &StopReason) -> &'static str {
    match stop_reason {
        StopReason::End { .. } | StopReason::StopString { .. } => "stop",
        StopReason::Length { .. } | StopReason::Window { .. } => "length",
        StopReason::Cancelled { .. } => "cancelled",
        StopReason::Warm => "warm",
    }
}

/// What the reply is made of, and what of it was printed.
struct Told {
    quiet: bool,
    parser: ReplyParser,
    pieces: Vec<ReplyPart>,
    content: String,
    reasoning: String,
    calls: Vec<Value>,
    tokens: Vec<u32>,
}

impl Told {
    fn new(quiet: bool, in_reasoning: bool, tools: Vec<Value>) -> Told {
        Told {
            quiet,
            parser: ReplyParser::new(in_reasoning, &tools),
            pieces: Vec::new(),
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
        }
    }

    fn text(&mut self, text: &str) -> Result<()> {
        self.parser.push(text, &mut self.pieces);
        self.print()
    }

    fn end(&mut self, stop_reason: &StopReason) -> Result<()> {
        if let StopReason::End { rest }
        | StopReason::Length { rest }
        | StopReason::Window { rest }
        | StopReason::Cancelled { rest } = stop_reason
        {
            self.parser.push(rest, &mut self.pieces);
        }
        self.parser.finish(&mut self.pieces);
        self.print()?;
        if !self.quiet {
            for call in &self.calls {
                println!("{call}");
            }
            println!();
        }
        Ok(())
    }

    fn print(&mut self) -> Result<()> {
        for piece in self.pieces.drain(..) {
            match piece {
                ReplyPart::Reasoning(text) => {
                    if !self.quiet {
                        eprint!("{text}");
                    }
                    self.reasoning += &text;
                }
                ReplyPart::Content(text) => {
                    if !self.quiet {
                        print!("{text}");
                        std::io::stdout().flush()?;
                    }
                    self.content += &text;
                }
                ReplyPart::Call { name, .. } => self.calls.push(json!({"name": name, "arguments": ""})),
                ReplyPart::Arguments { json: text, .. } => {
                    if let Some(Value::String(arguments)) =
                        self.calls.last_mut().and_then(|call| call.get_mut("arguments"))
                    {
                        arguments.push_str(&text);
                    }
                }
            }
        }
        Ok(())
    }
}
