//! `reprise bench speed`: prefill and decode of a model in this process, without engine thread, cache or socket.
//!
//! A round reads one prompt as long as the longest context and stops the clock at each context on the way, where
//! copies of the state decode. So the contexts cost one prefill together, and each is met as a conversation meets it.

use super::{mib, show};
use crate::machine::{Machine, Memory};
use crate::opening::{self, PrecisionArg};
use crate::output::print_json;
use crate::output::{Align, Table};
use crate::plot::{Plot, Series};
use anyhow::{Context, Result, bail};
use engine::network::{Network, StepLane, WantedLogits};
use engine::open::Keeping;
use engine::state::{KvFormats, SequenceState};
use engine::{Cpu, Executor, Precision};
use experiment::median;
use indicatif::{ProgressBar, ProgressStyle};
use model::kv_formats;
use serde::Serialize;
use settings::Settings;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weights::{Ffn, Matrix, Mixer, Model};

/// Measures how fast the model reads and writes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A preset, a GGUF file or a Hugging Face folder [default: the configuration's]
    #[arg(long)]
    model: Option<String>,
    /// Tokens of the past to measure at
    #[arg(long, value_delimiter = ',', default_values_t = [512, 4096])]
    ctx: Vec<usize>,
    /// Tokens to write at each context
    #[arg(long, default_value_t = 64)]
    decode: usize,
    /// Sequences that write at the same time, one measurement for each number
    #[arg(long, value_delimiter = ',', default_values_t = [1])]
    batch: Vec<usize>,
    /// Times everything is measured; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Memory to read for finding out how fast this machine's memory is; 0 leaves that out
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: usize,
    #[arg(long)]
    precision: Option<PrecisionArg>,
    /// Prints one object for programs
    #[arg(long)]
    json: bool,
    /// Draws the table into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Serialize)]
struct Measured {
    bench: &'static str,
    machine: Machine,
    model: About,
    rounds: usize,
    prefill_chunk_tokens: usize,
    load_ms: f64,
    /// Weights were packed and written for the next start, which will be faster.
    packed_now: bool,
    /// What this machine's memory gives when nothing but reading happens, on all threads; a GPU's when it copies.
    memory_gb_per_s: Option<f64>,
    /// What its instruction for products of bytes gives, on all threads; None where there is none.
    int8_gops: Option<f64>,
    contexts: Vec<At>,
}

#[derive(Serialize)]
struct About {
    file: PathBuf,
    name: String,
    precision: &'static str,
    kv: [&'static str; 2],
    weight_bytes: u64,
    /// Of them what one token of one sequence needs.
    weight_bytes_per_token: u64,
}

#[derive(Serialize)]
struct At {
    ctx: usize,
    /// The whole way from nothing to this context.
    prefill_ms: f64,
    prefill_tokens_per_s: f64,
    /// The last piece of it, where attention reads most.
    prefill_last_chunk_tokens_per_s: f64,
    /// What the threads together computed for it in the best round, whatever else the machine did meanwhile.
    prefill_cpu_ms: Option<f64>,
    /// Multiplications and additions with weights, of all that the processor could do with bytes.
    prefill_share_of_int8: Option<f64>,
    decode: Vec<Decoded>,
    /// The most memory that was ever taken until here in the first round.
    peak_rss_bytes: Option<u64>,
    /// What was taken of a GPU's by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Decoded {
    batch: usize,
    /// Of all sequences together.
    tokens_per_s: f64,
    ms_per_step: f64,
    /// As `prefill_cpu_ms`, for one step.
    cpu_ms_per_step: Option<f64>,
    /// Bytes of weights a second; None where the sequences of a batch need different experts.
    weight_gb_per_s: Option<f64>,
    share_of_memory_speed: Option<f64>,
}

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    let mut contexts = args.ctx.clone();
    contexts.sort_unstable();
    contexts.dedup();
    let zero = |numbers: &[usize]| numbers.is_empty() || numbers.contains(&0);
    if zero(&contexts) || zero(&args.batch) || zero(&[args.decode, args.rounds]) {
        bail!("--ctx, --decode, --batch and --rounds take numbers from 1 upwards");
    }
    let precision = opening::precision(settings, args.precision);
    let name = args.model.as_deref().unwrap_or(&settings.model.preset);
    let begin = Instant::now();
    let mut opened = opening::open_to_answer(settings, name, precision)?;
    let load_ms = begin.elapsed().as_secs_f64() * 1e3;
    let packed_now = opened.keeping.is_some();
    // What writes beside it would be measured too.
    if let Some(Err(what)) = opened.keeping.take().map(Keeping::wait) {
        eprintln!("note: {what}");
    }
    let longest = contexts.last().copied().unwrap_or_default() + args.decode;
    let native_ctx = opened.network.shape().native_ctx;
    if longest > native_ctx {
        bail!("the model was made for {native_ctx} tokens, and the longest --ctx with --decode is {longest}");
    }
    let kv = kv_formats(&opened.preset, precision);
    let about = About {
        file: opened.file,
        name: opened.network.model.name.clone(),
        precision: if precision == Precision::F32 { "f32" } else { "default" },
        kv: [kv.key.name(), kv.value.name()],
        weight_bytes: engine::model_bytes::weight_bytes(&opened.network.model) as u64,
        weight_bytes_per_token: bytes_per_token(&opened.network.model) as u64,
    };
    let (mut executor, device) = opening::executor(settings, opened.executor);
    let most = settings.engine.max_sequences;
    if device.is_some() && args.batch.iter().any(|batch| *batch > most) {
        bail!("a GPU has room for the {most} sequences of engine.max_sequences at once; raise it or lower --batch");
    }
    let chunk = settings.engine.chunk_tokens(device.is_some()).max(1);
    let bench = Bench { network: &opened.network, kv, chunk, args, contexts: &contexts };
    let mut contexts = bench.rounds(&about, &mut executor)?;
    // After the peaks were read, because this takes memory itself.
    let machine = Machine { gpu: device.as_ref().map(|device| device.name.clone()), ..Machine::new(settings) };
    let memory_bytes = args.memory_mib << 20;
    let memory_gb_per_s = match device {
        None => memory_speed(memory_bytes, machine.threads.unwrap_or(1)),
        Some(_) if memory_bytes == 0 => None,
        Some(_) => executor.copy_gb_per_s(memory_bytes, MEMORY_TRIES),
    };
    for decoded in contexts.iter_mut().flat_map(|at| &mut at.decode) {
        decoded.share_of_memory_speed =
            decoded.weight_gb_per_s.zip(memory_gb_per_s).map(|(weights, memory)| weights / memory);
    }
    // Of a GPU it is not known.
    let int8_gops = executor.cpu().and_then(|_| byte_speed(machine.threads.unwrap_or(1)));
    let operations = operations_per_token(&bench.network.model);
    for at in &mut contexts {
        at.prefill_share_of_int8 = int8_gops.map(|peak| operations * at.prefill_tokens_per_s / 1e9 / peak);
    }
    let measured = Measured {
        bench: "speed",
        machine,
        model: about,
        rounds: args.rounds,
        prefill_chunk_tokens: chunk,
        load_ms,
        packed_now,
        memory_gb_per_s,
        int8_gops,
        contexts,
    };
    show(&plots(&measured), args.plot.as_deref(), false)?;
    if args.json { print_json(&measured) } else { print(&measured) }
}

struct Bench<'a> {
    network: &'a Network,
    kv: KvFormats,
    chunk: usize,
    args: &'a Args,
    contexts: &'a [usize],
}

/// What one round saw at one context.
struct Seen {
    prefill: Took,
    last_chunk_tokens_per_s: f64,
    /// One for each batch.
    decode: Vec<Took>,
    memory: Option<Memory>,
    gpu_bytes: Option<usize>,
}

impl Bench<'_> {
    fn rounds(&self, about: &About, executor: &mut Executor) -> Result<Vec<At>> {
        let longest = self.contexts.last().copied().unwrap_or_default();
        let decoded = self.contexts.len() * self.args.batch.len() * self.args.decode;
        let bar = ProgressBar::new((self.args.rounds * (longest + decoded)) as u64);
        bar.set_style(ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} tokens, {eta} left")?);
        // Pages of the file, buffers and threads: the first touch of them is no speed.
        let mut state = self.state(executor)?;
        self.read(&mut state, self.chunk.min(longest), executor)?;
        self.write(std::slice::from_mut(&mut state), 2, executor)?;
        drop(state);
        let mut rounds = Vec::new();
        for round in 0..self.args.rounds {
            bar.set_message(format!("round {} of {}", round + 1, self.args.rounds));
            rounds.push(self.round(executor, &bar)?);
        }
        bar.finish_and_clear();
        let at =
            |(index, ctx): (usize, &usize)| self.at(about, *ctx, rounds.iter().map(|round| &round[index]).collect());
        self.contexts.iter().enumerate().map(at).collect::<Option<_>>().context("nothing was measured")
    }

    fn round(&self, executor: &mut Executor, bar: &ProgressBar) -> Result<Vec<Seen>> {
        let mut state = self.state(executor)?;
        let mut prefill = Took::default();
        let mut seen = Vec::new();
        for ctx in self.contexts {
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
            let mut decode = Vec::new();
            for batch in &self.args.batch {
                let mut lanes: Vec<SequenceState> = (0..*batch).map(|_| state.branch()).collect();
                // The first token copies the page that the branches share.
                self.write(&mut lanes, 1, executor)?;
                decode.push(self.write(&mut lanes, self.args.decode, executor)?);
                bar.inc(self.args.decode as u64);
            }
            let (memory, gpu_bytes) = (Memory::own(), executor.device_used_bytes());
            seen.push(Seen { prefill, last_chunk_tokens_per_s, decode, memory, gpu_bytes });
        }
        Ok(seen)
    }

    fn at(&self, about: &About, ctx: usize, seen: Vec<&Seen>) -> Option<At> {
        let prefill_s = median(seen.iter().map(|seen| seen.prefill.wall.as_secs_f64()))?;
        let least_cpu_ms = |took: &dyn Fn(&Seen) -> Duration| {
            let least = seen.iter().map(|seen| took(seen)).min().filter(|least| !least.is_zero());
            least.map(|least| least.as_secs_f64() * 1e3)
        };
        let decode = self.args.batch.iter().enumerate().map(|(index, &batch)| {
            let total_s = median(seen.iter().map(|seen| seen.decode[index].wall.as_secs_f64()))?;
            let step_s = total_s / self.args.decode as f64;
            let same_weights = batch == 1 || self.network.shape().moe.is_none();
            Some(Decoded {
                batch,
                tokens_per_s: batch as f64 / step_s,
                ms_per_step: step_s * 1e3,
                cpu_ms_per_step: least_cpu_ms(&|seen| seen.decode[index].cpu).map(|ms| ms / self.args.decode as f64),
                weight_gb_per_s: same_weights.then(|| about.weight_bytes_per_token as f64 / step_s / 1e9),
                share_of_memory_speed: None,
            })
        });
        Some(At {
            ctx,
            prefill_ms: prefill_s * 1e3,
            prefill_tokens_per_s: ctx as f64 / prefill_s,
            prefill_last_chunk_tokens_per_s: median(seen.iter().map(|seen| seen.last_chunk_tokens_per_s))?,
            prefill_share_of_int8: None,
            prefill_cpu_ms: least_cpu_ms(&|seen| seen.prefill.cpu),
            decode: decode.collect::<Option<_>>()?,
            peak_rss_bytes: seen.first()?.memory.map(|memory| memory.peak_rss_bytes),
            gpu_bytes: seen.first()?.gpu_bytes.map(|bytes| bytes as u64),
        })
    }

    fn state(&self, executor: &Executor) -> Result<SequenceState> {
        Ok(SequenceState::new(self.network.state_shape, self.kv, &executor.meter())?)
    }

    fn read(&self, state: &mut SequenceState, count: usize, executor: &mut Executor) -> Result<Took> {
        let tokens: Vec<u32> = (state.position..state.position + count).map(|at| self.token(at)).collect();
        let begin = Begin::now();
        let lane = StepLane {
            state,
            tokens: &tokens,
            wanted: WantedLogits::Nothing,
            recurrence_log: None,
            snapshots: &mut [],
        };
        black_box(executor.forward(self.network, &mut [lane]));
        self.took(begin, executor)
    }

    fn write(&self, states: &mut [SequenceState], count: usize, executor: &mut Executor) -> Result<Took> {
        let begin = Begin::now();
        for at in 0..count {
            let tokens: Vec<[u32; 1]> = (0..states.len()).map(|lane| [self.token(7 * at + lane)]).collect();
            let lanes = states.iter_mut().zip(&tokens);
            let lane = |(state, tokens)| StepLane {
                state,
                tokens,
                wanted: WantedLogits::Last,
                recurrence_log: None,
                snapshots: &mut [],
            };
            let mut lanes: Vec<StepLane> = lanes.map(|(state, tokens)| lane((state, tokens.as_slice()))).collect();
            black_box(executor.forward(self.network, &mut lanes));
        }
        self.took(begin, executor)
    }

    /// A device does what it is asked later than it is asked.
    fn took(&self, begin: Begin, executor: &Executor) -> Result<Took> {
        executor.wait().filter(|()| executor.failure().is_none()).ok_or_else(|| opening::lost(executor))?;
        Ok(begin.took())
    }

    /// What is read does not matter for the time, except that experts are chosen by it: so not one token again and again.
    fn token(&self, at: usize) -> u32 {
        (at.wrapping_mul(7919) % self.network.shape().vocab) as u32
    }
}

#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    /// Of all threads together; zero where the system does not tell.
    cpu: Duration,
}

struct Begin {
    at: Instant,
    cpu: Duration,
}

impl Begin {
    fn now() -> Begin {
        Begin { cpu: cpu_time(), at: Instant::now() }
    }

    fn took(&self) -> Took {
        Took { wall: self.at.elapsed(), cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

/// What this process's threads have computed, as Linux counts it.
fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_thread = |folder: PathBuf| -> Option<u64> {
        std::fs::read_to_string(folder.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(|thread| of_thread(thread.path())).sum())
}

/// Bytes of weights that one token of one sequence makes the processor read.
fn bytes_per_token(model: &Model) -> usize {
    let bytes = |matrix: &Matrix| matrix.data.len();
    let all = |matrices: &[&Matrix]| matrices.iter().map(|matrix| bytes(matrix)).sum::<usize>();
    let layers = model.layers.iter().map(|layer| {
        let mixer = match &layer.mixer {
            Mixer::Attention(w) => all(&[&w.q, &w.k, &w.v, &w.o]),
            Mixer::Delta(w) => all(&[&w.qkv, &w.z, &w.a, &w.b, &w.out]),
        };
        let ffn = match &layer.ffn {
            Ffn::Dense { gate, up, down } => all(&[gate, up, down]),
            Ffn::Moe(moe) => {
                // The experts of a layer are equally large but for formats; only those that are chosen are read.
                let experts: usize =
                    moe.experts.iter().map(|expert| all(&[&expert.gate, &expert.up, &expert.down])).sum();
                let used = model.shape.moe.as_ref().map_or(moe.experts.len(), |moe| moe.used);
                let shared =
                    moe.shared.iter().map(|shared| all(&[&shared.gate, &shared.up, &shared.down])).sum::<usize>();
                bytes(&moe.router) + experts * used / moe.experts.len().max(1) + shared
            }
        };
        mixer + ffn
    });
    // Of the embedding one row is read, of the head all; where they are one matrix it is read as the head.
    bytes(model.head.as_ref().unwrap_or(&model.embed)) + layers.sum::<usize>()
}

/// Reads memory on all threads at once, best of a few times.
fn memory_speed(bytes: usize, threads: usize) -> Option<f64> {
    let values = vec![1.0f32; bytes / size_of::<f32>()];
    if values.is_empty() {
        return None;
    }
    let level = Cpu::new(1).level;
    let parts: Vec<&[f32]> = values.chunks(values.len().div_ceil(threads)).collect();
    let once = || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for part in &parts {
                scope.spawn(|| black_box(engine::peak::read(level, black_box(part))));
            }
        });
        begin.elapsed()
    };
    let best = (0..MEMORY_TRIES).map(|_| once()).min()?;
    Some((values.len() * size_of::<f32>()) as f64 / best.as_secs_f64() / 1e9)
}

/// Billions of multiplications and additions of bytes a second, on all threads at once, best of a few times.
fn byte_speed(threads: usize) -> Option<f64> {
    const ROUNDS: usize = 2_000_000;
    let level = Cpu::new(1).level;
    let each = engine::peak::multiply_bytes(level, 1)?;
    let once = || {
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| engine::peak::multiply_bytes(level, black_box(ROUNDS)));
            }
        });
        begin.elapsed()
    };
    let best = (0..MEMORY_TRIES).map(|_| once()).min()?;
    Some((each * ROUNDS * threads) as f64 / best.as_secs_f64() / 1e9)
}

/// Multiplications and additions with the weights of all layers that a token of a prompt costs: its logits are not asked.
fn operations_per_token(model: &Model) -> f64 {
    let of = |matrices: &[&Matrix]| matrices.iter().map(|matrix| 2.0 * (matrix.rows * matrix.cols) as f64).sum::<f64>();
    let layer = |layer: &weights::Layer| {
        let mixer = match &layer.mixer {
            Mixer::Attention(w) => of(&[&w.q, &w.k, &w.v, &w.o]),
            Mixer::Delta(w) => of(&[&w.qkv, &w.z, &w.a, &w.b, &w.out]),
        };
        let ffn = match &layer.ffn {
            Ffn::Dense { gate, up, down } => of(&[gate, up, down]),
            Ffn::Moe(moe) => {
                let experts: f64 = moe.experts.iter().map(|expert| of(&[&expert.gate, &expert.up, &expert.down])).sum();
                let used = model.shape.moe.as_ref().map_or(moe.experts.len(), |moe| moe.used);
                let shared: f64 = moe.shared.iter().map(|shared| of(&[&shared.gate, &shared.up, &shared.down])).sum();
                of(&[&moe.router]) + experts * used as f64 / moe.experts.len().max(1) as f64 + shared
            }
        };
        mixer + ffn
    };
    model.layers.iter().map(layer).sum()
}

const MEMORY_TRIES: usize = 5;

fn print(measured: &Measured) -> Result<()> {
    let Measured { machine, model, .. } = measured;
    print!("{machine}");
    let [key, value] = model.kv;
    println!("  model      {} ({})", model.name, model.file.display());
    println!(
        "  weights    {} MiB, {} MiB for one token; computed as {}, keys and values as {key} and {value}",
        mib(model.weight_bytes),
        mib(model.weight_bytes_per_token),
        model.precision
    );
    println!("  loaded in  {:.0} ms", measured.load_ms);
    if let Some(speed) = measured.memory_gb_per_s {
        let how = if machine.gpu.is_some() { "copied" } else { "read" };
        println!("  memory     {speed:.1} GB/s when only {how}");
    }
    if let Some(speed) = measured.int8_gops {
        println!("  products   {speed:.0} billion operations a second when only bytes are multiplied");
    }
    println!("  rounds     {}, medians\n", measured.rounds);
    let mut table = Table::new(&[
        ("context", Align::Right),
        ("prefill tokens/s", Align::Right),
        ("its last chunk", Align::Right),
        ("CPU ms", Align::Right),
        ("of int8", Align::Right),
        ("sequences", Align::Right),
        ("decode tokens/s", Align::Right),
        ("ms a step", Align::Right),
        ("CPU ms", Align::Right),
        ("weights GB/s", Align::Right),
        ("of memory", Align::Right),
        ("peak MiB", Align::Right),
    ]);
    for at in &measured.contexts {
        for (index, decoded) in at.decode.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            table.row([
                once(at.ctx.to_string()),
                once(format!("{:.1}", at.prefill_tokens_per_s)),
                once(format!("{:.1}", at.prefill_last_chunk_tokens_per_s)),
                once(or_dash(at.prefill_cpu_ms.map(|ms| format!("{ms:.0}")))),
                once(or_dash(at.prefill_share_of_int8.map(|share| format!("{:.0} %", share * 100.0)))),
                decoded.batch.to_string(),
                format!("{:.1}", decoded.tokens_per_s),
                format!("{:.2}", decoded.ms_per_step),
                or_dash(decoded.cpu_ms_per_step.map(|ms| format!("{ms:.2}"))),
                or_dash(decoded.weight_gb_per_s.map(|speed| format!("{speed:.2}"))),
                or_dash(decoded.share_of_memory_speed.map(|share| format!("{:.0} %", share * 100.0))),
                once(or_dash(at.peak_rss_bytes.map(mib))),
            ]);
        }
    }
    table.print()?;
    show(&plots(measured), None, true)
}

fn plots(measured: &Measured) -> Vec<Plot> {
    let contexts = &measured.contexts;
    let plot = |title: &str, series| Plot {
        title: format!("{title}, {}", measured.model.name),
        x: "tokens of context",
        y: "tokens/s",
        series,
    };
    let points = |value: fn(&At) -> f64| contexts.iter().map(|at| (at.ctx as f64, value(at))).collect();
    let prefill = Series { name: "whole prompt", mark: 'o', points: points(|at| at.prefill_tokens_per_s) };
    let last = Series { name: "last chunk", mark: 'x', points: points(|at| at.prefill_last_chunk_tokens_per_s) };
    let of_first = |at: &At| at.decode.first().map_or(0.0, |decoded| decoded.tokens_per_s);
    let decode = Series { name: "decode", mark: 'o', points: points(of_first) };
    // With one context there is nothing to see in three points.
    if contexts.len() < 2 {
        return Vec::new();
    }
    vec![plot("Prefill", vec![prefill, last]), plot("Decode", vec![decode])]
}
