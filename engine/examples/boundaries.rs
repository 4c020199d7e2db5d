//! Measures the cost of marks at message boundaries: `boundaries MODEL FOLDER`.
use engine::network::WantedLogits;
use engine::open::{ModelOptions, open};
use engine::state::{KvFormats, SequenceState};
use engine::{DiskLimits, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, Priority, ReuseScope};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use std::path::{Path, PathBuf};
use std::time::Instant;

const KV: KvFormats = KvFormats::new(Format::F16, Format::F16);
fn words(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32)
        .map(|i| 1000 + (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(0x9E37_79B9)) >> 9) % 20_000)
        .collect()
}
fn limits() -> EngineLimits {
    EngineLimits {
        prefill_chunk_tokens: 256,
        max_sequences: 8,
        max_waiting: 8,
        max_logit_bias: 8,
        memory_bytes: 5 << 30,
        moved_snapshot_bytes: 0,
        snapshots: Format::BF16,
        snapshot_spacing_tokens: 256,
        recurrence_log_tokens: 256,
        heads: 16,
    }
}

const OPTIONS: ModelOptions = ModelOptions::new(Precision::Integer);

fn start(model: &Path, folder: &Path) -> Engine {
    let mut opened = open(model, &OPTIONS, &mut |_, _| ()).unwrap();
    if let Some(keeping) = opened.keeping.take() {
        let _ = keeping.wait();
    }
    let mut engine = Engine::new(Executor::on_cpu(Cpu::new(2)), opened.network, opened.tokenizer, limits());
    engine.use_disk(DiskLimits { folder: folder.to_path_buf(), max_bytes: 8 << 30, min_tokens: 256, heads: 16 });
    engine
}

/// Returns the milliseconds to the first token, the reply and the number of reused tokens.
fn ask(engine: &mut Engine, request: EngineRequest, marks_every: usize) -> (f64, Vec<u32>, usize) {
    let begin = Instant::now();
    let id = engine.submit(request).unwrap();
    let (mut events, mut first, mut reply, mut reused) = (Vec::new(), 0.0, Vec::new(), 0);
    let mut more = true;
    while more {
        more = engine.step(&mut events);
        for event in events.drain(..) {
            match event {
                EngineEvent::Token(token) => {
                    if reply.is_empty() {
                        first = begin.elapsed().as_secs_f64() * 1e3;
                    }
                    reply.push(token.token);
                    if marks_every > 0 && reply.len() % marks_every == 0 {
                        engine.mark(id);
                    }
                }
                EngineEvent::Done { report, .. } => {
                    reused = report.reused_tokens;
                    if reply.is_empty() {
                        first = begin.elapsed().as_secs_f64() * 1e3;
                    }
                }
                EngineEvent::Failed { error, .. } => panic!("{error}"),
                EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } => {}
            }
        }
    }
    (first, reply, reused)
}
fn quiet(engine: &mut Engine) {
    while engine.prepare_one() {}
}
fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
fn request(tokens: Vec<u32>, marks: Vec<usize>, given: usize, head: usize, new: usize) -> EngineRequest {
    let mut r = EngineRequest::new(tokens, 10_000, KV);
    r.marks = marks;
    r.given_tokens = Some(given);
    r.max_new_tokens = new;
    r.ignore_eos = true;
    r.scope = ReuseScope { head_tokens: head, ..ReuseScope::default() };
    r
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (model, folder) = (PathBuf::from(&args[1]), PathBuf::from(&args[2]));
    let _ = std::fs::remove_dir_all(&folder);
    // The floor: the network alone.
    {
        let opened = open(&model, &OPTIONS, &mut |_, _| ()).unwrap();
        let mut executor = Executor::on_cpu(Cpu::new(2));
        for n in [256usize, 512, 970, 2048] {
            let mut best = f64::INFINITY;
            for _ in 0..2 {
                let mut state = SequenceState::new(opened.network.state_shape, KV, &executor.meter()).unwrap();
                let begin = Instant::now();
                let all = words(n, 3);
                for chunk in all.chunks(256) {
                    let lane = engine::network::StepLane {
                        state: &mut state,
                        tokens: chunk,
                        wanted: WantedLogits::Nothing,
                        recurrence_log: None,
                        snapshots: &mut [],
                        drafts: 0,
                    };
                    executor.forward(&opened.network, &mut [lane]).unwrap();
                }
                best = best.min(begin.elapsed().as_secs_f64());
            }
            println!("floor prefill {n}: {:.0} ms, {:.0} tokens/s", best * 1e3, n as f64 / best);
        }
    }
    let mut engine = start(&model, &folder);
    let mut seed = 10;
    for (name, n, every) in [("two 512", 512usize, 0usize), ("log 970", 970, 28), ("two 2048", 2048, 0)] {
        let mut all = Vec::new();
        for _ in 0..3 {
            seed += 1;
            quiet(&mut engine);
            let given = n - 8;
            let head = if every > 0 { 60 } else { n - 40 };
            let mut marks = vec![head];
            if every > 0 {
                marks.extend((head + every..given - 4).step_by(every));
            }
            marks.extend([given, given + 3]);
            all.push(ask(&mut engine, request(words(n, seed), marks, given, head, 1), 0).0);
        }
        println!(
            "{name}: {:?} ms, median {:.0} tokens/s",
            all.iter().map(|ms| ms.round()).collect::<Vec<_>>(),
            n as f64 / median(all.clone()) * 1e3
        );
    }
    drop(engine);
    for (name, said, turns) in [("short", 700usize, 15), ("long", 8000, 6)] {
        let _ = std::fs::remove_dir_all(&folder);
        let mut engine = start(&model, &folder);
        let head = 600;
        let mut history = words(said, 7);
        let mut marks: Vec<usize> = vec![head];
        marks.extend((head + 30..=said).step_by(40));
        if marks.last() != Some(&said) {
            marks.push(said);
        }
        let (mut ordinary, mut after) = (Vec::new(), Vec::new());
        for turn in 0..turns {
            let barge = name == "short" && turn % 3 == 2;
            let p = history.len();
            history.extend(words(23, 100 + turn));
            let given = history.len();
            marks.push(given);
            let mut prompt = history.clone();
            prompt.extend(words(8, 5));
            let mut m = marks.clone();
            m.push(given + 3);
            let (ms, reply, reused) = ask(&mut engine, request(prompt, m, given, head, 40), 12);
            if turn > 0 {
                if reused < p { after.push(ms) } else { ordinary.push(ms) }
            }
            history.extend(words(3, 5));
            let heard = if barge { 13 } else { 40 };
            history.extend(&reply[..heard - 2]);
            history.extend(words(2, 9));
            marks.push(history.len());
            if !barge {
                let mut warm = request(history.clone(), marks.clone(), history.len(), head, 0);
                warm.priority = Priority::Speculate;
                ask(&mut engine, warm, 0);
            }
            quiet(&mut engine);
            while engine.save_one() {}
            std::thread::sleep(std::time::Duration::from_millis(if name == "long" { 1500 } else { 100 }));
        }
        println!(
            "{name}: ordinary {:.1} ms {:?}, after a barge-in {:.1}",
            median(ordinary.clone()),
            ordinary.iter().map(|ms| ms.round()).collect::<Vec<_>>(),
            if after.is_empty() { 0.0 } else { median(after) }
        );
        if name == "long" {
            engine.save_all();
            std::mem::forget(engine);
            let (mut lines, mut pages, mut bytes) = (0, 0, 0);
            for e in std::fs::read_dir(&folder).unwrap() {
                let e = e.unwrap();
                bytes += e.metadata().unwrap().len();
                if e.path().extension().unwrap() == "page" { pages += 1 } else { lines += 1 }
            }
            println!("disk: {lines} lines, {pages} pages, {:.0} MiB", bytes as f64 / 1048576.0);
            let mut engine = start(&model, &folder);
            let begin = Instant::now();
            engine.read_heads();
            let heads = begin.elapsed().as_secs_f64() * 1e3;
            let begin = Instant::now();
            engine.read_newest();
            let newest = begin.elapsed().as_secs_f64() * 1e3;
            quiet(&mut engine);
            history.extend(words(23, 300));
            let given = history.len();
            marks.push(given);
            let mut prompt = history.clone();
            prompt.extend(words(8, 5));
            marks.push(given + 3);
            let n = prompt.len();
            let (ms, _, reused) = ask(&mut engine, request(prompt, marks.clone(), given, head, 1), 0);
            println!(
                "restart: heads {heads:.0} ms, newest {newest:.0} ms, first turn {ms:.1} ms, reused {reused} of {n}"
            );
        }
    }
}
