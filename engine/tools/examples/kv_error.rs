//! Cost of formats of keys and values: divergence and the best token beside f16, by formats, rotation and length of the
//! past. `cargo run --release -p tools --example kv_error -- MODEL TEXT [TOKENS,..]`

use std::path::PathBuf;

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use tools::divergence::{divergence, top};

const CHUNK_TOKENS: usize = 64; // not a window: tokens of a step, and of a measurement

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(model), Some(text)) = (arguments.next(), arguments.next()) else {
        return Err("give a model file or folder, and a text".into());
    };
    let lengths: Vec<usize> = match arguments.next() {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => vec![512, 2048, 4096],
    };
    let mut model = weights::open(&PathBuf::from(model), true)?;
    let tokenizer =
        engine::vocabulary::tokenizer(std::mem::replace(&mut model.vocab, weights::VocabSource::Json(vec![])))?;
    let tokens = tokenizer.encode(&std::fs::read_to_string(text)?);
    let longest = lengths.iter().copied().max().unwrap_or(0);
    // A short text comes again and again.
    let tokens: Vec<u32> = tokens.iter().copied().cycle().take(longest).collect();
    let network = Network::new(model, Precision::F32);
    let reader = Reader { cpu: Cpu::new(0), network, lengths };
    let exact = reader.read(KvFormats::new(Format::F16, Format::F16), &tokens)?;
    let vocab = reader.network.shape().vocab;
    println!(
        "| keys | values | rotated | {} |",
        reader.lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" | ")
    );
    for (key, value, rotations) in pairs() {
        for rotated in rotations {
            let kv = KvFormats::new(key, value).with_rotation(*rotated);
            let found = reader.read(kv, &tokens)?;
            let cells = exact.iter().zip(&found).map(|(exact, found)| {
                let rows: Vec<(&[f32], &[f32])> = exact.chunks(vocab).zip(found.chunks(vocab)).collect();
                let mean = rows.iter().map(|(a, b)| divergence(a, b)).sum::<f64>() / rows.len() as f64;
                let same = rows.iter().filter(|(a, b)| top(a) == top(b)).count();
                format!("{mean:.5}, {:.1} %", 100.0 * same as f64 / rows.len() as f64)
            });
            let cells = cells.collect::<Vec<_>>().join(" | ");
            println!("| {} | {} | {} | {cells} |", key.name(), value.name(), if *rotated { "yes" } else { "no" });
        }
    }
    Ok(())
}

fn pairs() -> Vec<(Format, Format, &'static [bool])> {
    use Format::*;
    let both: &[bool] = &[false, true];
    vec![
        (Q8_0, Q8_0, both),
        (Q8_0, Q4_0, both),
        (Q4_0, Q4_0, both),
        (Q8_0, TQ4, both),
        (TQ4, TQ4, &[true]),
        (TQ4, TQ3, &[true]),
        (TQ3, TQ3, &[true]),
    ]
}

struct Reader {
    cpu: Cpu,
    network: Network,
    lengths: Vec<usize>,
}

impl Reader {
    /// Returns the logits of the last positions before each length.
    fn read(&self, kv: KvFormats, tokens: &[u32]) -> Result<Vec<Vec<f32>>, Failure> {
        let mut state = SequenceState::new(self.network.state_shape, kv, &MemoryMeter::default())?;
        let (mut work, mut found) = (Workspace::default(), Vec::new());
        for (chunk, tokens) in tokens.chunks(CHUNK_TOKENS).enumerate() {
            let is_measured = self.lengths.contains(&((chunk + 1) * CHUNK_TOKENS));
            let wanted = if is_measured { WantedLogits::All } else { WantedLogits::Nothing };
            let (state, snapshots) = (&mut state, &mut [][..]);
            let lane = StepLane { state, tokens, wanted, recurrence_log: None, snapshots, drafts: 0 };
            let logits = self.network.forward(&self.cpu, &mut [lane], &mut work).to_vec();
            if is_measured {
                found.push(logits);
            }
        }
        Ok(found)
    }
}
