//! Prefill and decode of a model: `speed MODEL [THREADS] [PREFILL] [DECODE]`. Prints what it ran on.

use std::path::Path;
use std::time::Instant;

use engine::memory::Meter;
use engine::network::{Lane, Network, Wanted, Workspace};
use engine::state::{KvFormats, State};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let model = weights::open(Path::new(&args[1]), &weights::OpenOptions { mmap: true }).expect("a model");
    let network = Network::new(model, Precision::Integer);
    let cpu = Cpu::new(number(2, 2));
    let (prefill, decode) = (number(3, 512), number(4, 64));
    let kv = KvFormats { key: Format::F16, value: Format::F16 };
    let mut state = State::new(network.state_shape, kv, &Meter::default()).expect("a state");
    let mut work = Workspace::default();
    let tokens: Vec<u32> = (0..prefill as u32).map(|i| i * 7 % 1000 + 300).collect();
    println!("{} on {} with {} threads", args[1], cpu.level.name(), cpu.pool.threads());
    for round in 0..2 {
        state = State::new(network.state_shape, kv, &Meter::default()).expect("a state");
        let start = Instant::now();
        for tokens in tokens.chunks(number(5, 512)) {
            let mut lanes = [Lane { state: &mut state, tokens, wanted: Wanted::Nothing, trail: None }];
            network.forward(&cpu, &mut lanes, &mut work);
        }
        println!("round {round}: prefill {prefill}: {:.1} tokens/s", prefill as f64 / start.elapsed().as_secs_f64());
    }
    let start = Instant::now();
    for i in 0..decode as u32 {
        let mut lanes = [Lane { state: &mut state, tokens: &[i + 500], wanted: Wanted::Last, trail: None }];
        network.forward(&cpu, &mut lanes, &mut work);
    }
    println!("decode {decode}: {:.1} tokens/s", decode as f64 / start.elapsed().as_secs_f64());
}
