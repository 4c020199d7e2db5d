//! `reprise bench speed`: prefill and decode of a model in this process, without engine thread, cache or socket.
//!
//! A round reads one prompt as long as the longest context and stops the clock at each context on the way, where copies
//! of the state decode. So the contexts cost one prefill together, and each is met as a conversation meets it.

mod compare;
pub(super) mod peaks;

use super::{BenchOutput, default_pasts};
use crate::charts::{Chart, Series};
use anyhow::{Context, Result, anyhow, bail};
use engine::network::{Network, WantedLogits};
use engine::open::Keeping;
use engine::state::{KvFormats, SequenceState};
use engine::{Executor, Precision};
use experiment::median;
use indicatif::ProgressBar;
use peaks::{TRIES, byte_speed, cpu_time, memory_speed};
use serde_json::{Value, json};
use settings::Settings;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terminal::flags::{count, wrong_use};
use terminal::hardware::{Hardware, ProcessMemory};
use terminal::note;
use terminal::opening::{self, ModelArgs, ReadyModel};
use terminal::output::progress_bar;

/// Measures how fast the model reads and writes
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub(super) model: ModelArgs,
    /// Tokens of the past to measure at [default: 512,4096, or what the model has room for]
    #[arg(long, value_delimiter = ',', value_name = "TOKENS", value_parser = count)]
    pub(super) ctx: Vec<usize>,
    /// Tokens to write at each context
    #[arg(long, default_value_t = 64)]
    pub(super) decode: usize,
    /// Sequences that decode at the same time, one measurement for each number
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    pub(super) batch: Vec<usize>,
    /// Number of rounds; the median counts
    #[arg(long, visible_alias = "measure", default_value_t = 3)]
    pub(super) rounds: usize,
    /// Number of rounds before these, which do not count
    #[arg(long, default_value_t = 0)]
    pub(super) warmup: usize,
    /// Tokens to read behind a past that is there already, as a turn does
    #[arg(long, value_name = "TOKENS", default_value_t = 32)]
    pub(super) cached: usize,
    /// Compares two measurements that --json printed, and measures nothing
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"])]
    pub(super) compare: Vec<PathBuf>,
    /// Memory to read for measuring the speed of this machine's memory, in MiB; 0 leaves that out
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    pub(super) memory_mib: usize,
    #[command(flatten)]
    pub(super) output: BenchOutput,
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    if let [a, b] = &args.compare[..] {
        return compare::run(a, b, &args.output);
    }
    let measured = measure(args, settings)?;
    args.output.tell(&measured, &[&rows_of(&measured["contexts"])], &charts(&measured))
}

pub(super) fn measure(args: &Args, settings: &Settings) -> Result<Value> {
    let zero = |numbers: &[usize]| numbers.is_empty() || numbers.contains(&0);
    if args.ctx.contains(&0) || zero(&args.batch) || zero(&[args.decode, args.rounds, args.cached]) {
        return Err(wrong_use(anyhow!("--ctx, --decode, --cached, --batch and --rounds take numbers from 1 upwards")));
    }
    let begin = Instant::now();
    let ReadyModel { mut opened, mut executor, device, precision, kv } = args.model.open(settings)?;
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    // Weights were packed and written for the next start, which will be faster.
    let packed_now = opened.model.keeping.is_some();
    // The thread that writes packed weights would be measured too.
    if let Some(Err(what)) = opened.model.keeping.take().map(Keeping::wait) {
        note!("note: {what}");
    }
    let (native_ctx, behind) = (opened.model.network.shape().native_ctx, args.decode.max(args.cached));
    let mut contexts = if args.ctx.is_empty() { default_pasts(native_ctx, behind) } else { args.ctx.clone() };
    contexts.sort_unstable();
    contexts.dedup();
    let longest = contexts.last().copied().unwrap_or_default() + behind;
    if longest > native_ctx {
        bail!(
            "the model was made for {native_ctx} tokens, and the longest --ctx with --decode or --cached is {longest}"
        );
    }
    let most = settings.engine.max_sequences;
    if device.is_some() && args.batch.iter().any(|batch| *batch > most) {
        bail!("a GPU has room for the {most} sequences of engine.max_sequences at once; raise it or lower --batch");
    }
    let chunk = device.as_ref().map_or(settings.engine.prefill_chunk_tokens, |memory| memory.chunk_tokens).max(1);
    let machine = Hardware::new(settings);
    let (threads, memory_bytes) = (machine.threads.unwrap_or(1), args.memory_mib << 20);
    // The speed of this machine's memory changes by the minute, so each round is held against its own.
    let memory_speed = |executor: &mut Executor| match &device {
        None => memory_speed(memory_bytes, threads),
        Some(_) if memory_bytes == 0 => None,
        Some(_) => executor.copy_gb_per_s(memory_bytes, TRIES),
    };
    let bench = SpeedBench { network: &opened.model.network, kv, chunk, args, contexts: &contexts };
    let rounds = bench.rounds(&mut executor, memory_speed)?;
    let machine = Hardware { gpu: device.as_ref().map(|device| device.name.clone()), ..machine };
    let memory_gb_per_s = median(rounds.iter().filter_map(|round| round.memory_gb_per_s));
    // Unknown for a GPU.
    let int8_gops = executor.cpu().and_then(|_| byte_speed(threads));
    let model = &opened.model.network.model;
    let token_bytes = model.bytes_per_token() as u64;
    let context = |(index, ctx): (usize, &usize)| {
        let seen: Vec<_> = rounds.iter().map(|round| (&round.contexts[index], round.memory_gb_per_s)).collect();
        bench.context(*ctx, &seen, token_bytes, int8_gops)
    };
    let contexts =
        contexts.iter().enumerate().map(context).collect::<Option<Vec<_>>>().context("nothing was measured")?;
    Ok(json!({
        "bench": "speed",
        "machine": machine,
        "rounds": args.rounds,
        "warmup": args.warmup,
        "cached_tokens": args.cached,
        "prefill_chunk_tokens": chunk,
        "load_ms": load_ms,
        "packed_now": packed_now,
        // Speed of this machine's memory with nothing but reading, on all threads; a GPU's with copies.
        "memory_gb_per_s": memory_gb_per_s,
        // Speed of its instruction for products of bytes, on all threads; null if there is none.
        "int8_gops": int8_gops,
        "contexts": contexts,
        "model": {
            "file": opened.file,
            "name": model.name,
            "precision": if precision == Precision::F32 { "f32" } else { "default" },
            "kv": [kv.key.name(), kv.value.name()],
            "weight_bytes": engine::model_bytes::weight_bytes(model),
            // Weights that one token of one sequence needs.
            "weight_bytes_per_token": token_bytes,
        },
    }))
}

fn rows_of(contexts: &Value) -> Value {
    let rows = contexts.as_array().into_iter().flatten().flat_map(|at| {
        at["decode"].as_array().into_iter().flatten().map(|decode| {
            let mut row = at.clone();
            row["decode"] = decode.clone();
            row
        })
    });
    rows.collect()
}

struct SpeedBench<'a> {
    network: &'a Network,
    kv: KvFormats,
    chunk: usize,
    args: &'a Args,
    contexts: &'a [usize],
}

struct Round {
    contexts: Vec<SeenContext>,
    memory_gb_per_s: Option<f64>, // at its end
}

struct SeenContext {
    prefill: Took,
    last_chunk_tokens_per_s: f64,
    cached: Took,
    decode: Vec<Took>, // one for each batch
    memory: Option<ProcessMemory>,
    gpu_bytes: Option<usize>,
}

impl SpeedBench<'_> {
    fn rounds(
        &self,
        executor: &mut Executor,
        memory_speed: impl Fn(&mut Executor) -> Option<f64>,
    ) -> Result<Vec<Round>> {
        let longest = self.contexts.last().copied().unwrap_or_default();
        let decoded = self.contexts.len() * self.args.batch.len() * self.args.decode;
        let end = self.args.rounds * (longest + decoded);
        let bar = progress_bar(end as u64, "{msg} [{bar:40}] {pos}/{len} tokens, {eta} left");
        // Pages of the file, buffers and threads: the first touch of them is no speed.
        let mut state = self.state(executor)?;
        self.read(&mut state, self.chunk.min(longest), executor)?;
        self.write(std::slice::from_mut(&mut state), 2, executor)?;
        drop(state);
        let mut rounds = Vec::new();
        for _ in 0..self.args.warmup {
            self.round(executor, &ProgressBar::hidden())?;
        }
        for round in 0..self.args.rounds {
            bar.set_message(format!("round {} of {}", round + 1, self.args.rounds));
            let contexts = self.round(executor, &bar)?;
            rounds.push(Round { contexts, memory_gb_per_s: memory_speed(executor) });
        }
        bar.finish_and_clear();
        Ok(rounds)
    }

    fn round(&self, executor: &mut Executor, bar: &ProgressBar) -> Result<Vec<SeenContext>> {
        let mut state = self.state(executor)?;
        let mut prefill = Took::default();
        let mut seen = Vec::new();
        for ctx in self.contexts {
            ProcessMemory::begin_peak();
            let mut last_chunk_tokens_per_s = 0.0;
            while state.position < *ctx {
                let tokens = self.chunk.min(ctx - state.position);
                let took = self.read(&mut state, tokens, executor)?;
                prefill.wall += took.wall;
                prefill.cpu += took.cpu;
                // A context that ends shortly after a whole chunk leaves a crumb, which is no measure.
                if tokens == self.chunk || last_chunk_tokens_per_s == 0.0 {
                    last_chunk_tokens_per_s = tokens as f64 / took.wall.as_secs_f64();
                }
                bar.inc(tokens as u64);
            }
            let mut turn = state.branch();
            // The first token copies the page that the branches share.
            self.write(std::slice::from_mut(&mut turn), 1, executor)?;
            let cached = self.read(&mut turn, self.args.cached, executor)?;
            drop(turn);
            let mut decode = Vec::new();
            for batch in &self.args.batch {
                let mut lanes: Vec<SequenceState> = (0..*batch).map(|_| state.branch()).collect();
                self.write(&mut lanes, 1, executor)?;
                decode.push(self.write(&mut lanes, self.args.decode, executor)?);
                bar.inc(self.args.decode as u64);
            }
            let (memory, gpu_bytes) = (ProcessMemory::own(), executor.device_used_bytes());
            seen.push(SeenContext { prefill, last_chunk_tokens_per_s, cached, decode, memory, gpu_bytes });
        }
        Ok(seen)
    }

    /// Sums up all rounds at this context. `token_bytes`: weights that one token needs.
    fn context(
        &self,
        ctx: usize,
        rounds: &[(&SeenContext, Option<f64>)],
        token_bytes: u64,
        int8_gops: Option<f64>,
    ) -> Option<Value> {
        let seen: Vec<&SeenContext> = rounds.iter().map(|(seen, _)| *seen).collect();
        // Computing time of all threads in the best round, whatever else the machine did meanwhile.
        let least_cpu_ms = |took: &dyn Fn(&SeenContext) -> Duration| {
            let least = seen.iter().map(|seen| took(seen)).min().filter(|least| !least.is_zero());
            least.map(|least| least.as_secs_f64() * 1e3)
        };
        let decode = self.args.batch.iter().enumerate().map(|(index, &batch)| {
            let total_s = median(seen.iter().map(|seen| seen.decode[index].wall.as_secs_f64()))?;
            let step_s = total_s / self.args.decode as f64;
            let same_weights = batch == 1 || self.network.shape().moe.is_none();
            // Unknown if the sequences of a batch need different experts.
            let weight_gb_per_s = same_weights.then(|| token_bytes as f64 / step_s / 1e9);
            let share = |(seen, memory): &(&SeenContext, Option<f64>)| {
                let step_s = seen.decode[index].wall.as_secs_f64() / self.args.decode as f64;
                memory.filter(|_| same_weights).map(|memory| token_bytes as f64 / step_s / 1e9 / memory)
            };
            Some(json!({
                "batch": batch,
                // Of all sequences together.
                "tokens_per_s": batch as f64 / step_s,
                "ms_per_step": step_s * 1e3,
                "cpu_ms_per_step": least_cpu_ms(&|seen| seen.decode[index].cpu).map(|ms| ms / self.args.decode as f64),
                "weight_gb_per_s": weight_gb_per_s,
                "share_of_memory_speed": median(rounds.iter().filter_map(share)),
            }))
        });
        let prefill_s = median(seen.iter().map(|seen| seen.prefill.wall.as_secs_f64()))?;
        let prefill_tokens_per_s = ctx as f64 / prefill_s;
        let gops = self.network.model.sum_per_token(|matrix| 2 * matrix.rows() * matrix.cols()) as f64
            * prefill_tokens_per_s
            / 1e9;
        let mut context = json!({
            "ctx": ctx,
            // The whole way from nothing to this context.
            "prefill_ms": prefill_s * 1e3,
            "prefill_tokens_per_s": prefill_tokens_per_s,
            // The last piece of it, where attention reads most.
            "prefill_last_chunk_tokens_per_s": median(seen.iter().map(|seen| seen.last_chunk_tokens_per_s))?,
            // Some tokens behind all of it, as a turn of a conversation has them.
            "cached_prefill_ms": median(seen.iter().map(|seen| seen.cached.wall.as_secs_f64() * 1e3))?,
            "prefill_cpu_ms": least_cpu_ms(&|seen| seen.prefill.cpu),
            // Multiplications and additions with weights, as a share of the processor's peak with bytes.
            "prefill_share_of_int8": int8_gops.map(|peak| gops / peak),
            "decode": decode.collect::<Option<Vec<_>>>()?,
            "peak_rss_bytes": seen.iter().filter_map(|seen| Some(seen.memory?.peak_rss_bytes)).max(),
        });
        if let Some(bytes) = seen.first()?.gpu_bytes {
            context["gpu_bytes"] = bytes.into();
        }
        Some(context)
    }

    fn state(&self, executor: &Executor) -> Result<SequenceState> {
        Ok(SequenceState::new(self.network.state_shape, self.kv, &executor.meter())?)
    }

    fn read(&self, state: &mut SequenceState, count: usize, executor: &mut Executor) -> Result<Took> {
        let tokens: Vec<u32> = (state.position..state.position + count).map(|at| self.token(at)).collect();
        self.took(executor, |executor| {
            black_box(executor.forward(self.network, &mut [opening::lane(state, &tokens, WantedLogits::Nothing)]));
        })
    }

    fn write(&self, states: &mut [SequenceState], count: usize, executor: &mut Executor) -> Result<Took> {
        self.took(executor, |executor| {
            for at in 0..count {
                let tokens: Vec<[u32; 1]> = (0..states.len()).map(|lane| [self.token(7 * at + lane)]).collect();
                let lanes = states.iter_mut().zip(&tokens);
                let mut lanes: Vec<_> =
                    lanes.map(|(state, token)| opening::lane(state, token, WantedLogits::Last)).collect();
                black_box(executor.forward(self.network, &mut lanes));
            }
        })
    }

    /// Times some work. A device finishes later than its calls return.
    fn took(&self, executor: &mut Executor, work: impl FnOnce(&mut Executor)) -> Result<Took> {
        let (begin, begin_cpu) = (Instant::now(), cpu_time());
        work(executor);
        executor.wait().filter(|()| executor.failure().is_none()).ok_or_else(|| opening::lost(executor))?;
        Ok(Took { wall: begin.elapsed(), cpu: cpu_time().saturating_sub(begin_cpu) })
    }

    /// Chooses a token: its value does not matter for the time, but experts depend on it, so the tokens vary.
    fn token(&self, at: usize) -> u32 {
        (at.wrapping_mul(7919) % self.network.shape().vocab) as u32
    }
}

#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    cpu: Duration, // of all threads together; zero if the system does not tell
}

fn charts(measured: &Value) -> Vec<Chart> {
    let contexts = measured["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
    // With one context there is nothing to see in three points.
    if contexts.len() < 2 {
        return Vec::new();
    }
    let chart = |title: &str, series| {
        let title = format!("{title}, {}", measured["model"]["name"].as_str().unwrap_or_default());
        Chart { title, x: "tokens of context", y: "tokens/s", series }
    };
    let series = |name, mark, path: &str| {
        let point = |at: &Value| Some((at["ctx"].as_f64()?, at.pointer(path)?.as_f64()?));
        Series::dots(name, mark, contexts.iter().filter_map(point).collect())
    };
    let prefill = series("whole prompt", 'o', "/prefill_tokens_per_s");
    let last = series("last chunk", 'x', "/prefill_last_chunk_tokens_per_s");
    let decode = series("decode", 'o', "/decode/0/tokens_per_s");
    vec![chart("Prefill", vec![prefill, last]), chart("Decode", vec![decode])]
}
