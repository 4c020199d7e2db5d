//! `reprise bench windows`: speed behind pasts of any length, by the formats of keys and values, without reading the pasts.
//!
//! Each format has a state whose pages are filled with random rows. In a round all formats take their turns, so that what
//! else the machine does meets all of them: the ratios count.

use super::speed::peaks::{byte_speed, memory_speed};
use super::{BenchOutput, default_pasts};
use crate::charts::{Chart, Series};
use crate::dice::Dice;
use anyhow::{Context, Result, anyhow, bail};
use engine::Executor;
use engine::network::{Network, WantedLogits};
use engine::state::{KvFormats, PAGE_TOKENS, SequenceState};
use experiment::median;
use serde_json::{Value, json};
use settings::{KvFormat, Settings};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;
use terminal::flags::{count, wrong_use};
use terminal::hardware::Hardware;
use terminal::note;
use terminal::opening::{self, ModelArgs, ReadyModel};
use terminal::output::progress_bar;

/// Measures how fast the model reads and writes behind long pasts, by the formats of keys and values
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the past to measure at [default: 512,4096, or what the model has room for]
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", value_parser = count)]
    ctx: Vec<usize>,
    /// Formats of keys and values: f16, q8, q8/q4, q4, tq4 or tq3
    #[arg(long, value_delimiter = ',', default_value = "q8,q8/q4,q4,tq4,tq3", value_parser = pair)]
    kv: Vec<KvPair>,
    /// Tokens to write at each past
    #[arg(long, default_value_t = 16)]
    decode: usize,
    /// Number of rounds; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Memory to read for measuring the speed of this machine's memory, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: usize,
    #[command(flatten)]
    output: BenchOutput,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct KvPair {
    name: &'static str,
    mark: char, // the letter of its points on a terminal
    key: KvFormat,
    value: KvFormat,
}

const PAIRS: [KvPair; 6] = [
    KvPair { name: "f16", mark: 'f', key: KvFormat::F16, value: KvFormat::F16 },
    KvPair { name: "q8", mark: '8', key: KvFormat::Q8, value: KvFormat::Q8 },
    KvPair { name: "q8/q4", mark: '6', key: KvFormat::Q8, value: KvFormat::Q4 },
    KvPair { name: "q4", mark: '4', key: KvFormat::Q4, value: KvFormat::Q4 },
    KvPair { name: "tq4", mark: 't', key: KvFormat::Tq4, value: KvFormat::Tq4 },
    KvPair { name: "tq3", mark: '3', key: KvFormat::Tq3, value: KvFormat::Tq3 },
];

fn pair(name: &str) -> Result<KvPair, String> {
    let names = PAIRS.map(|pair| pair.name).join(", ");
    PAIRS.into_iter().find(|pair| pair.name == name).ok_or_else(|| format!("give some of {names}"))
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    let measured = measure(args, settings)?;
    args.output.tell(&measured, &[&measured["windows"]], &charts(&args.kv, &measured))
}

fn measure(args: &Args, settings: &Settings) -> Result<Value> {
    if args.ctx.contains(&0) || [args.decode, args.rounds, args.memory_mib].contains(&0) {
        return Err(wrong_use(anyhow!("--ctx, --decode, --rounds and --memory-mib take numbers from 1 upwards")));
    }
    let ReadyModel { mut opened, mut executor, .. } = args.model.open_on_host(settings)?;
    if let Some(Err(what)) = opened.model.keeping.take().map(|keeping| keeping.wait()) {
        note!("note: {what}");
    }
    let network = &opened.model.network;
    let native_ctx = network.shape().native_ctx;
    let mut pasts = if args.ctx.is_empty() { default_pasts(native_ctx, args.decode) } else { args.ctx.clone() };
    pasts.dedup();
    if let Some(ctx) = pasts.iter().find(|ctx| **ctx + args.decode > native_ctx) {
        bail!("the model was made for {native_ctx} tokens, and {ctx} with --decode are more");
    }
    let machine = Hardware::new(settings);
    let threads = machine.threads.unwrap_or(1);
    let int8_gops = byte_speed(threads);
    let bench = WindowsBench { network, args, chunk: settings.engine.prefill_chunk_tokens.max(1), threads, int8_gops };
    let bar = progress_bar((pasts.len() * args.rounds) as u64, "[{bar:40}] {pos}/{len} rounds, {eta} left");
    let mut windows = Vec::new();
    for ctx in &pasts {
        windows.extend(bench.window(*ctx, &mut executor, || bar.inc(1))?);
    }
    bar.finish_and_clear();
    Ok(json!({
        "bench": "windows",
        "machine": machine,
        "rounds": args.rounds,
        "prefill_chunk_tokens": bench.chunk,
        "int8_gops": int8_gops,
        "windows": windows,
        "model": {
            "file": opened.file,
            "name": network.model.name,
            "weight_bytes_per_token": network.model.bytes_per_token(),
        },
    }))
}

fn charts(pairs: &[KvPair], measured: &Value) -> Vec<Chart> {
    let rows = || measured["windows"].as_array().into_iter().flatten();
    let series = |pair: &KvPair, path: &str| {
        let own = rows().filter(|row| row["kv"] == pair.name);
        let points = own.filter_map(|row| Some((row["ctx"].as_f64()?, row[path].as_f64()?)));
        Series::dots(pair.name, pair.mark, points.collect())
    };
    let chart = |title: &str, path: &str| {
        let title = format!("{title}, {}", measured["model"]["name"].as_str().unwrap_or_default());
        let series = pairs.iter().map(|pair| series(pair, path)).collect();
        Chart { title, x: "tokens of the past", y: "tokens/s", series }
    };
    vec![chart("Writing", "decode_tokens_per_s"), chart("Reading the last chunk", "last_chunk_tokens_per_s")]
}

struct WindowsBench<'a> {
    network: &'a Network,
    args: &'a Args,
    chunk: usize,
    threads: usize,
    int8_gops: Option<f64>,
}

// One round of one format: seconds of a written token and of the last chunk, and the memory's speed at that time.
#[derive(Clone, Copy)]
struct WindowRound {
    token_s: f64,
    chunk_s: f64,
    memory_gb_per_s: f64,
}

impl WindowsBench<'_> {
    fn window(&self, ctx: usize, executor: &mut Executor, done: impl Fn()) -> Result<Vec<Value>> {
        let state = |pair: &KvPair| {
            let kv = KvFormats::new(model::kv_format(pair.key), model::kv_format(pair.value));
            self.filled(kv, ctx, executor)
        };
        let mut states = self.args.kv.iter().map(state).collect::<Result<Vec<SequenceState>>>()?;
        let mut rounds: Vec<Vec<WindowRound>> = vec![Vec::new(); states.len()];
        let chunk = self.chunk.min(ctx);
        // The first round touches buffers and pages, and does not count.
        for round in 0..=self.args.rounds {
            let memory = memory_speed(self.args.memory_mib << 20, self.threads).context("nothing was measured")?;
            for (state, rounds) in states.iter_mut().zip(&mut rounds) {
                state.position = ctx - chunk;
                let chunk_s = self.took(state, chunk, WantedLogits::Nothing, executor)?;
                state.position = ctx;
                let begin = Instant::now();
                for _ in 0..self.args.decode {
                    self.took(state, 1, WantedLogits::Last, executor)?;
                }
                let token_s = begin.elapsed().as_secs_f64() / self.args.decode as f64;
                if round > 0 {
                    rounds.push(WindowRound { token_s, chunk_s, memory_gb_per_s: memory });
                }
            }
            if round > 0 {
                done();
            }
        }
        let rows = self.args.kv.iter().zip(&states).zip(&rounds);
        rows.map(|((pair, state), own)| self.row(ctx, chunk, pair, state, own, &rounds)).collect()
    }

    fn row(
        &self,
        ctx: usize,
        chunk: usize,
        pair: &KvPair,
        state: &SequenceState,
        own: &[WindowRound],
        all: &[Vec<WindowRound>],
    ) -> Result<Value> {
        let (model, shape) = (&self.network.model, self.network.shape());
        let kv_bytes = ctx * state.shape.page_bytes(&state.layout) / PAGE_TOKENS;
        let bytes = (model.bytes_per_token() + kv_bytes) as f64;
        let layers = state.shape.attention_layers - shape.mtp_blocks;
        // Multiplications and additions with weights, and with a mean token's keys and values.
        let of_weights = 2 * model.sum_per_token(|matrix| matrix.rows() * matrix.cols());
        let of_past = 4 * layers * shape.q_heads * shape.head_dim * (ctx - chunk / 2);
        let gops = |chunk_s: f64| (of_weights + of_past) as f64 * chunk as f64 / chunk_s / 1e9;
        let mid = |of: &dyn Fn(&WindowRound) -> f64| median(own.iter().map(of)).context("nothing was measured");
        let chunk_s = mid(&|round| round.chunk_s)?;
        let rivals: Vec<&Vec<WindowRound>> = self
            .args
            .kv
            .iter()
            .zip(all)
            .filter(|(kv, _)| ["q8", "q4"].contains(&kv.name))
            .map(|(_, rounds)| rounds)
            .collect();
        let beside = own.iter().enumerate().filter_map(|(at, round)| {
            let fastest = rivals.iter().map(|rounds| rounds[at].token_s).fold(f64::INFINITY, f64::min);
            fastest.is_finite().then(|| fastest / round.token_s)
        });
        Ok(json!({
            "ctx": ctx,
            "kv": pair.name,
            "kv_bytes": kv_bytes,
            "decode_tokens_per_s": 1.0 / mid(&|round| round.token_s)?,
            // Of the machine's memory, counting weights, keys and values.
            "decode_share_of_memory_speed": mid(&|round| bytes / round.token_s / 1e9 / round.memory_gb_per_s)?,
            "last_chunk_tokens_per_s": chunk as f64 / chunk_s,
            // Of the processor's peak with bytes, counting attention.
            "last_chunk_share_of_int8": self.int8_gops.map(|peak| gops(chunk_s) / peak),
            "decode_beside_faster_of_q8_and_q4": median(beside),
        }))
    }

    fn filled(&self, kv: KvFormats, ctx: usize, executor: &Executor) -> Result<SequenceState> {
        let mut state = SequenceState::new(self.network.state_shape, kv, &executor.meter())?;
        let width = state.shape.kv_heads * state.shape.head_dim;
        let level = executor.cpu().context("nothing was measured")?.level;
        state.reserve(ctx + self.args.decode);
        for position in 0..PAGE_TOKENS {
            for layer in 0..state.shape.attention_layers {
                let of = |part: usize| random(width, (position * 64 + layer) * 2 + part);
                state.write(level, layer, position, &of(0), &of(1));
            }
        }
        let Some((first, others)) = state.pages.split_first_mut() else { bail!("nothing was measured") };
        for page in others.iter_mut().filter_map(Arc::get_mut) {
            page.host_mut().copy_from_slice(first.host());
        }
        Ok(state)
    }

    fn took(
        &self,
        state: &mut SequenceState,
        count: usize,
        wanted: WantedLogits,
        executor: &mut Executor,
    ) -> Result<f64> {
        let vocab = self.network.shape().vocab;
        let tokens: Vec<u32> = (0..count).map(|at| ((state.position + at).wrapping_mul(7919) % vocab) as u32).collect();
        let begin = Instant::now();
        black_box(executor.forward(self.network, &mut [opening::lane(state, &tokens, wanted)]));
        Ok(begin.elapsed().as_secs_f64())
    }
}

fn random(len: usize, seed: usize) -> Vec<f32> {
    let mut dice = Dice((seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (0..len).map(|_| (dice.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
}
