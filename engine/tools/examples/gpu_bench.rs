//! Measures a GPU: decode at several contexts against its memory's speed, prefill, a voice turn, snapshots, windows and
//! batches. One object a line on standard output. `tests/gpu/run.sh bench` runs it on a machine without Rust.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::network::{Network, PredictionLane, StepLane, WantedLogits};
use engine::recurrence_log::RecurrenceLog;
use engine::sampling::SamplingOptions;
use engine::snapshot::Snapshot;
use engine::state::{KvFormats, SequenceState};
use engine::{
    Cpu, Device, DeviceLimits, DeviceMemoryPlan, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, Precision,
};
use gpu::GpuFeature;
use kernels::format::Format;
use serde_json::{Value, json};
use tools::mixture::Mixture;
use tools::synth::{self, SynthShape};
use weights::PackedPart;

type Failure = Box<dyn std::error::Error>;

struct Args {
    model: PathBuf,
    contexts: Vec<usize>,
    windows: Vec<usize>,
    history_tokens: usize,
    chunk_tokens: usize,
    gpu_layers: Option<usize>, // `None`: as many as fit
    decode_tokens: usize,
    batch: usize,
    rounds: usize,
    copy_mib: usize,
    emulated: Option<PathBuf>,
    kernels: Option<PathBuf>,
    memory_gib: Option<usize>, // `None`: all of the GPU's
    formats: Vec<KvFormats>,
}

fn main() -> Result<(), Failure> {
    let args = args()?;
    let device = match &args.emulated {
        Some(folder) => testing::open_emulator(folder)?.device(),
        None => gpu::open(0, args.kernels.as_deref(), &mut |line| eprintln!("{line}"))?,
    };
    let gpu = device.properties()?;
    let copy_gb_per_s = gpu::buffer::copy_gb_per_s(&device, args.copy_mib << 20, args.rounds)?;
    tell(json!({
        "what": "device", "name": gpu.name, "generation": gpu.generation, "memory_mib": gpu.memory_bytes >> 20,
        "copy_gb_per_s": copy_gb_per_s, "model": args.model.file_name().map(|name| name.to_string_lossy()),
    }));
    let mut model = weights::open(&args.model, true)?;
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(model.vocab.clone())?);
    let limits = DeviceLimits {
        total_bytes: args.memory_gib.map(|gib| gib << 30),
        host_free_bytes: None,
        chunk_tokens: args.chunk_tokens,
        lanes: args.batch,
        ffn_layers: args.gpu_layers,
        longest: None,
    };
    let begin = Instant::now();
    let (executor, memory) = Executor::planned(&device, &model, Precision::Integer, &limits, || Cpu::new(0))?;
    device.synchronize()?;
    let on_host = PackedPart::FeedForward { from: memory.ffn_layers };
    weights::pack(&mut model, on_host, &Cpu::new(0), None, true, &mut |_, _| ())?;
    let network = Network::new(model, Precision::Integer);
    tell(json!({
        "what": "plan", "gpu_layers": memory.ffn_layers, "host_mib": memory.host_bytes >> 20,
        "load_s": begin.elapsed().as_secs_f64(), "weights_mib": memory.weight_bytes >> 20,
        "scratch_mib": memory.scratch_bytes >> 20, "left_mib": memory.left_bytes >> 20,
        "used_mib": device.used_bytes()? >> 20,
    }));
    let mut bench = Bench { device, network, executor, args, copy_gb_per_s };
    bench.windows()?;
    bench.contexts()?;
    bench.batches()?;
    bench.predictions()?;
    bench.kernels()?;
    bench.compared()?;
    bench.turn(tokenizer, &memory)?;
    Ok(())
}

struct Bench {
    device: Device,
    network: Network,
    executor: Executor,
    args: Args,
    copy_gb_per_s: f64,
}

const Q8: KvFormats = KvFormats::new(Format::Q8_0, Format::Q8_0);

impl Bench {
    fn windows(&mut self) -> Result<(), Failure> {
        for tokens in self.args.windows.clone() {
            for kv in self.args.formats.clone() {
                let (shape, name) = (self.network.state_shape, name_of(kv));
                let layout = shape.layout(kv)?;
                let planned =
                    tokens.div_ceil(engine::state::PAGE_TOKENS) * shape.page_bytes(&layout) + shape.fixed_bytes();
                let before = self.device.used_bytes()?;
                let mut state = self.state(kv)?;
                state.reserve(tokens);
                if let Some(why) = self.executor.failure() {
                    tell(json!({"what": "window", "kv": name, "tokens": tokens, "failed": why}));
                    return Ok(());
                }
                let taken = self.device.used_bytes()? - before;
                tell(json!({
                    "what": "window", "kv": name, "tokens": tokens, "planned_mib": planned as f64 / MIB,
                    "taken_mib": taken as f64 / MIB, "share": taken as f64 / planned as f64,
                    "used_mib": self.device.used_bytes()? as f64 / MIB,
                }));
            }
        }
        Ok(())
    }

    fn contexts(&mut self) -> Result<(), Failure> {
        for kv in self.args.formats.clone() {
            self.contexts_of(kv)?;
        }
        Ok(())
    }

    fn contexts_of(&mut self, kv: KvFormats) -> Result<(), Failure> {
        let (mut state, name) = (self.state(kv)?, name_of(kv));
        let mut prefill = Duration::ZERO;
        for ctx in self.args.contexts.clone() {
            let begin = Instant::now();
            self.fill(&mut state, ctx)?;
            prefill += begin.elapsed();
            tell(
                json!({"what": "prefill", "kv": name, "tokens": ctx, "tokens_per_s": ctx as f64 / prefill.as_secs_f64()}),
            );
            let mut branch = state.branch();
            let step = self.decode(&mut [&mut branch])?;
            let shape = self.network.state_shape;
            let past = ctx * shape.page_bytes(&state.layout) / engine::state::PAGE_TOKENS;
            let touched = self.network.model.bytes_per_token() + past + 2 * shape.fixed_bytes();
            let gb_per_s = touched as f64 / step.as_secs_f64() / 1e9;
            tell(json!({
                "what": "decode", "kv": name, "ctx": ctx, "batch": 1, "ms": ms(step), "tokens_per_s": 1.0 / step.as_secs_f64(),
                "touched_mib": touched as f64 / MIB, "gb_per_s": gb_per_s, "share_of_copy": gb_per_s / self.copy_gb_per_s,
            }));
        }
        let (mut there, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..self.args.rounds.max(3) {
            let mut snapshot = None;
            there.push(f64::from(self.device.time(|| {
                snapshot = Some(Snapshot::of(&state, Format::BF16, None));
                Ok(())
            })?));
            let Some(snapshot) = snapshot else { continue };
            let begin = Instant::now();
            snapshot.recurrent.on_host()?;
            beside.push(ms(begin.elapsed()));
        }
        tell(json!({"what": "snapshot", "mib": self.network.state_shape.snapshot_bytes(Format::BF16) as f64 / MIB,
            "on_device_ms": median(there), "to_host_beside_ms": median(beside)}));
        Ok(())
    }

    fn batches(&mut self) -> Result<(), Failure> {
        let Some(&ctx) = self.args.contexts.first() else { return Ok(()) };
        let mut first = self.state(Q8)?;
        self.fill(&mut first, ctx)?;
        let mut alone = 0.0;
        let most = self.args.batch;
        for batch in [1, 2, 4, 8].into_iter().filter(|batch| *batch <= most) {
            let mut states: Vec<SequenceState> = (0..batch).map(|_| first.branch()).collect();
            let step = self.decode(&mut states.iter_mut().collect::<Vec<_>>())?;
            let tokens_per_s = batch as f64 / step.as_secs_f64();
            alone = if batch == 1 { tokens_per_s } else { alone };
            tell(json!({"what": "batch", "ctx": ctx, "batch": batch, "ms": ms(step), "tokens_per_s": tokens_per_s,
                "times_one": tokens_per_s / alone}));
        }
        Ok(())
    }

    /// Measures steps whose drafts are the guesses of the model's block, all of them taken. The guesses of a random model are wrong, so
    /// how many tokens a second that makes is computed for shares of right ones.
    fn predictions(&mut self) -> Result<(), Failure> {
        let Some(&ctx) = self.args.contexts.first() else { return Ok(()) };
        if self.network.prediction_cost(MTP_VOCAB).is_none() {
            return Ok(());
        }
        let mut state = self.state(Q8)?;
        self.fill(&mut state, ctx)?;
        let plain = ms(self.decode(&mut [&mut state.branch()])?);
        for count in 1..=3 {
            let mut branch = state.branch();
            let mut log = RecurrenceLog::new(&self.network.state_shape, MTP_LOG, &self.executor.meter());
            let (mut guess_ms, mut step_ms) = (Vec::new(), Vec::new());
            for at in 0..self.args.decode_tokens {
                let token = self.tokens(at * 13, 1)[0];
                let (begin, mut drafts) = (Instant::now(), Vec::new());
                branch.reserve(1 + count);
                let mut lanes = [PredictionLane { state: &mut branch, token, count, drafts: &mut drafts }];
                self.executor.predict(&self.network, &mut lanes, MTP_VOCAB);
                guess_ms.push(ms(begin.elapsed()));
                let tokens: Vec<u32> = std::iter::once(token).chain(drafts).collect();
                let mut lanes = [StepLane {
                    state: &mut branch,
                    tokens: &tokens,
                    wanted: WantedLogits::Last,
                    recurrence_log: Some(&mut log),
                    snapshots: &mut [],
                    drafts: count,
                }];
                if self.executor.forward(&self.network, &mut lanes).is_none() {
                    return Err(self.executor.failure().unwrap_or("nothing was computed").into());
                }
                let outputs = std::mem::take(&mut branch.outputs);
                let position = branch.position + count;
                self.executor.replay(&self.network, &mut branch, &log, position);
                branch.outputs = outputs;
                branch.keep_output(count, self.network.shape().hidden);
                step_ms.push(ms(begin.elapsed()));
            }
            let step = median(step_ms);
            let times_plain = |right: f64| (0..=count as i32).map(|at| right.powi(at)).sum::<f64>() * plain / step;
            let gains = [0.6, 0.7, 0.8, 0.9].map(|right| [right, times_plain(right)]);
            tell(
                json!({"what": "prediction", "ctx": ctx, "drafts": count, "plain_ms": plain, "guess_ms": median(guess_ms),
                "step_ms": step, "right_and_times_plain": gains}),
            );
        }
        Ok(())
    }

    /// Measures each kernel of a token, of a few, of a short and of a longer spoken turn, and of a chunk of a prompt. Kernels do not overlap here. Beside
    /// it, the same step as it is: until the host has asked for all of it, and until it is done.
    fn kernels(&mut self) -> Result<(), Failure> {
        let Some(&ctx) = self.args.contexts.first() else { return Ok(()) };
        let mut state = self.state(Q8)?;
        self.fill(&mut state, ctx)?;
        for (what, count) in [("token", 1), ("few", 8), ("words", 12), ("turn", 32), ("chunk", self.args.chunk_tokens)]
        {
            let tokens = self.tokens(7, count);
            let (mut asked_ms, mut done_ms) = (Vec::new(), Vec::new());
            for _ in 0..self.args.rounds.max(3) {
                let begin = Instant::now();
                self.feed(&mut [&mut state], std::slice::from_ref(&tokens), WantedLogits::Nothing)?;
                asked_ms.push(ms(begin.elapsed()));
                self.device.synchronize()?;
                done_ms.push(ms(begin.elapsed()));
            }
            let device = self.device.clone();
            let mut failure = None;
            let started = device.profile(|| {
                failure = self.feed(&mut [&mut state], &[tokens], WantedLogits::Last).err();
                Ok(())
            })?;
            if let Some(failure) = failure {
                return Err(failure);
            }
            let mut sums: HashMap<String, (usize, f32)> = HashMap::new();
            for (kernel, ms) in &started {
                let sum = sums.entry(kernel.clone()).or_default();
                *sum = (sum.0 + 1, sum.1 + ms);
            }
            let mut sums: Vec<(String, (usize, f32))> = sums.into_iter().collect();
            sums.sort_by(|a, b| b.1.1.total_cmp(&a.1.1).then_with(|| a.0.cmp(&b.0)));
            let all_ms: f32 = started.iter().map(|(_, ms)| ms).sum();
            let kernels: Vec<Value> = sums.into_iter().map(|(name, (calls, ms))| json!([name, calls, ms])).collect();
            tell(json!({"what": "kernels", "of": what, "rows": count, "behind": ctx, "started": started.len(),
                "all_ms": all_ms, "asked_ms": median(asked_ms), "done_ms": median(done_ms), "name_calls_ms": kernels}));
        }
        Ok(())
    }

    /// Compares the paths that only some GPUs have with the common ones, taking turns.
    fn compared(&mut self) -> Result<(), Failure> {
        let Some(&ctx) = self.args.contexts.first() else { return Ok(()) };
        let chunk = self.args.chunk_tokens;
        let (mut prompt, mut token) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
        let could = (self.device.uses(GpuFeature::GroupProducts), self.device.uses(GpuFeature::OverlappingLaunches));
        for round in 0..2 * self.args.rounds.max(3) {
            let with = round % 2 == 1;
            let mut state = self.state(Q8)?;
            self.device.set_feature(GpuFeature::GroupProducts, with && could.0);
            self.device.set_feature(GpuFeature::OverlappingLaunches, could.1);
            // The first chunk allocates.
            self.fill(&mut state, chunk)?;
            let begin = Instant::now();
            self.fill(&mut state, 3 * chunk)?;
            prompt[usize::from(with)].push(ms(begin.elapsed()) / 2.0);
            self.device.set_feature(GpuFeature::OverlappingLaunches, with && could.1);
            let mut branch = self.state(Q8)?;
            self.fill(&mut branch, ctx)?;
            token[usize::from(with)].push(ms(self.decode(&mut [&mut branch])?));
        }
        self.device.set_feature(GpuFeature::GroupProducts, could.0);
        self.device.set_feature(GpuFeature::OverlappingLaunches, could.1);
        for (what, can, [without, with]) in [("groups, a chunk", could.0, prompt), ("overlap, a token", could.1, token)]
        {
            tell(
                json!({"what": "compared", "of": what, "can": can, "without_ms": median(without), "with_ms": median(with)}),
            );
        }
        Ok(())
    }

    fn fill(&mut self, state: &mut SequenceState, position: usize) -> Result<(), Failure> {
        while state.position < position {
            let count = (position - state.position).min(self.args.chunk_tokens);
            let tokens = self.tokens(state.position, count);
            self.feed(&mut [&mut *state], &[tokens], WantedLogits::Nothing)?;
        }
        Ok(self.device.synchronize()?)
    }

    /// Measures an ordinary turn after a long history, through the engine, until its first token.
    fn turn(self, tokenizer: Arc<text::Tokenizer>, memory: &DeviceMemoryPlan) -> Result<(), Failure> {
        let history = self.tokens(0, self.args.history_tokens);
        let Bench { network, executor, args, .. } = self;
        let limits = EngineLimits {
            prefill_chunk_tokens: args.chunk_tokens,
            max_sequences: args.batch,
            max_waiting: 4,
            max_logit_bias: 8,
            memory_bytes: memory.left_bytes,
            moved_snapshot_bytes: 0,
            snapshots: Format::BF16,
            snapshot_spacing_tokens: engine::state::PAGE_TOKENS,
            recurrence_log_tokens: 256,
            heads: 0,
        };
        let mut engine = Engine::new(executor, network, tokenizer, limits);
        let mut tokens = history;
        let ask = |engine: &mut Engine, tokens: &[u32], new: usize| -> Result<(f64, Vec<u32>), Failure> {
            let mut request = EngineRequest::new(tokens.to_vec(), usize::MAX, Q8);
            (request.max_new_tokens, request.ignore_eos) = (new, true);
            request.sampling = SamplingOptions::default();
            request.marks = vec![tokens.len()];
            let begin = Instant::now();
            engine.submit(request)?;
            let (mut events, mut first, mut reply) = (Vec::new(), None, Vec::new());
            let mut more = true;
            while more {
                more = engine.step(&mut events);
                for event in events.drain(..) {
                    match event {
                        EngineEvent::Token(token) => {
                            first.get_or_insert_with(|| ms(begin.elapsed()));
                            reply.push(token.token);
                        }
                        EngineEvent::Failed { error, .. } => return Err(error.into()),
                        _ => {}
                    }
                }
            }
            Ok((first.unwrap_or(f64::NAN), reply))
        };
        let (cold_ms, reply) = ask(&mut engine, &tokens, args.decode_tokens)?;
        tokens.extend(reply);
        let mut first_token_ms = Vec::new();
        for round in 0..args.rounds.max(3) {
            tokens.extend((0..30).map(|i| (i * 131 + round as u32 * 17) % 500));
            let (first, reply) = ask(&mut engine, &tokens, args.decode_tokens)?;
            first_token_ms.push(first);
            tokens.extend(reply);
        }
        tell(json!({"what": "turn", "history_tokens": args.history_tokens, "new_tokens": 30, "cold_ms": cold_ms,
            "first_token_ms": median(first_token_ms)}));
        Ok(())
    }

    fn decode(&mut self, states: &mut [&mut SequenceState]) -> Result<Duration, Failure> {
        let mut steps = Vec::new();
        for at in 0..self.args.decode_tokens {
            let tokens: Vec<Vec<u32>> = (0..states.len()).map(|lane| self.tokens(at * 13 + lane * 7, 1)).collect();
            let begin = Instant::now();
            self.feed(states, &tokens, WantedLogits::Last)?;
            steps.push(begin.elapsed());
        }
        // The first ones allocate and record.
        steps.drain(..steps.len().min(4) / 2);
        steps.sort_unstable();
        Ok(steps[steps.len() / 2])
    }

    fn feed(
        &mut self,
        states: &mut [&mut SequenceState],
        tokens: &[Vec<u32>],
        wanted: WantedLogits,
    ) -> Result<(), Failure> {
        let lanes = states.iter_mut().zip(tokens);
        let mut lanes: Vec<StepLane> = lanes
            .map(|(state, tokens)| StepLane {
                state,
                tokens,
                wanted,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            })
            .collect();
        if self.executor.forward(&self.network, &mut lanes).is_some() {
            return Ok(());
        }
        Err(self.executor.failure().unwrap_or("nothing was computed").into())
    }

    fn state(&self, kv: KvFormats) -> Result<SequenceState, Failure> {
        Ok(SequenceState::new(self.network.state_shape, kv, &self.executor.meter())?)
    }

    /// Generates different tokens, because they decide which experts run.
    fn tokens(&self, start: usize, count: usize) -> Vec<u32> {
        let vocab = self.network.shape().vocab;
        (start..start + count).map(|at| (at.wrapping_mul(7919) % vocab) as u32).collect()
    }
}

fn args() -> Result<Args, Failure> {
    let mut given: HashMap<String, String> = HashMap::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let key = word.strip_prefix("--").ok_or_else(|| format!("{word}: expected --KEY VALUE"))?.to_string();
        given.insert(key, words.next().ok_or_else(|| format!("{word}: expected a value"))?);
    }
    let mut take = |key: &str, otherwise: &str| given.remove(key).unwrap_or_else(|| otherwise.to_string());
    let list = |text: String| {
        text.split(',').filter(|part| !part.is_empty()).map(str::parse).collect::<Result<Vec<usize>, _>>()
    };
    let path = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
    let (shape, quant, mtp) = (take("shape", ""), take("quant", "q4_k_m"), take("mtp", "0") == "1");
    let model = PathBuf::from(take("model", ""));
    if !shape.is_empty() && !model.exists() {
        make(SynthShape { mtp, ..SynthShape::find(&shape)? }, &quant, &model)?;
    }
    let args = Args {
        model,
        contexts: list(take("ctx", "512,4096"))?,
        windows: list(take("windows", ""))?,
        history_tokens: take("history", "2048").parse()?,
        chunk_tokens: take("chunk", "1024").parse()?,
        gpu_layers: list(take("gpu-layers", ""))?.first().copied(),
        decode_tokens: take("decode", "64").parse()?,
        batch: take("batch", "8").parse()?,
        rounds: take("rounds", "5").parse()?,
        copy_mib: take("copy-mib", "2048").parse()?,
        emulated: path(take("emulated", "")),
        kernels: path(take("kernels", "")),
        memory_gib: list(take("memory-gib", ""))?.first().copied(),
        formats: take("kv", "q8_0").split(',').map(formats_of).collect::<Result<_, _>>()?,
    };
    match given.keys().next() {
        Some(key) => Err(format!("--{key}: there is no such key").into()),
        None => Ok(args),
    }
}

/// Reads one format for keys and values, or two as KEYS:VALUES.
fn formats_of(text: &str) -> Result<KvFormats, Failure> {
    let (key, value) = text.split_once(':').unwrap_or((text, text));
    let format = |name: &str| {
        let found = KvFormats::ALLOWED.into_iter().find(|format| format.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| format!("--kv {name}: there is no such format"))
    };
    Ok(KvFormats::new(format(key)?, format(value)?))
}

fn name_of(kv: KvFormats) -> String {
    format!("{}:{}", kv.key.name(), kv.value.name())
}

fn make(shape: SynthShape, quant: &str, out: &Path) -> Result<(), Failure> {
    let mixture = Mixture::ALL.iter().find(|mixture| mixture.name().eq_ignore_ascii_case(quant));
    let mixture = *mixture.ok_or_else(|| format!("--quant {quant}: there is none of that name"))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = Instant::now();
    synth::write(&synth::SynthOptions { shape, mixture, seed: 1, threads }, out, &mut |_, _| ())?;
    eprintln!("{}: made in {:.0} s", out.display(), begin.elapsed().as_secs_f64());
    Ok(())
}

fn tell(line: Value) {
    println!("{line}");
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

const MTP_VOCAB: usize = 30_000; // first tokens that are guessed from
const MTP_LOG: usize = 256; // tokens that a step's recurrence log keeps
const MIB: f64 = (1 << 20) as f64;
