//! Cost of formats of keys and values: divergence and the best token beside f16, by formats, rotation and length of the
//! past, and of a published variant that keeps a sign of each rounding error: `cargo run --release -p tools --example
//! kv_error -- MODEL TEXT [TOKENS,..]`. A TEXT that ends in .jsonl holds conversations, one a line.

use std::path::PathBuf;

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, ROTATION_SEED, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::hadamard::{Signs, turn, turn_back};
use kernels::product::Precision;
use tools::divergence::{divergence, top};

const CHUNK_TOKENS: usize = 64; // not a window: tokens of a step, and of a measurement
const TEXTS: usize = 4; // places of the text that the past begins at

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
    let tokens = tokenizer.encode(&read_text(&text)?);
    let longest = lengths.iter().copied().max().unwrap_or(0);
    // A short text comes again and again.
    let texts: Vec<Vec<u32>> = (0..TEXTS)
        .map(|at| tokens.iter().copied().cycle().skip(at * tokens.len() / TEXTS).take(longest).collect())
        .collect();
    let network = Network::new(model, Precision::F32);
    let reader = Reader { cpu: Cpu::new(0), network, lengths, texts };
    let exact = reader.read(KvFormats::new(Format::F16, Format::F16), KeyRounding::OfFormat)?;
    let lengths = reader.lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" | ");
    println!("| keys | values | rotated | {lengths} |");
    for (key, value, rotations) in pairs() {
        for rotated in rotations {
            let kv = KvFormats::new(key, value).with_rotation(*rotated);
            let found = reader.read(kv, KeyRounding::OfFormat)?;
            let cells = reader.compare(&exact, &found);
            println!("| {} | {} | {} | {cells} |", key.name(), value.name(), if *rotated { "yes" } else { "no" });
        }
    }
    for (name, rounding) in [
        ("4 bits", KeyRounding::Levels(&LEVELS_4)),
        ("3 bits and a sign", KeyRounding::LevelsAndSign(&LEVELS_3)),
        ("3 bits", KeyRounding::Levels(&LEVELS_3)),
        ("2 bits and a sign", KeyRounding::LevelsAndSign(&LEVELS_2)),
    ] {
        let found = reader.read(KvFormats::new(Format::F16, Format::F16), rounding)?;
        println!("| {name} | f16 | yes | {} |", reader.compare(&exact, &found));
    }
    Ok(())
}

fn read_text(path: &str) -> Result<String, Failure> {
    let text = std::fs::read_to_string(path)?;
    if !path.ends_with(".jsonl") {
        return Ok(text);
    }
    let mut all = String::new();
    for line in text.lines() {
        let conversation: serde_json::Value = serde_json::from_str(line)?;
        for message in conversation["messages"].as_array().into_iter().flatten() {
            let of = |key: &str| message[key].as_str().unwrap_or_default();
            all += &format!("<|im_start|>{}\n{}<|im_end|>\n", of("role"), of("content"));
        }
    }
    Ok(all)
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

// Levels that are best for a normal distribution, without their mirror images.
const LEVELS_4: [f32; 8] = [0.128_395, 0.388_048, 0.656_759, 0.942_34, 1.256_231, 1.618_046, 2.069_017, 2.732_59];
const LEVELS_3: [f32; 4] = [0.245_094, 0.756_005, 1.343_909, 2.151_946];
const LEVELS_2: [f32; 2] = [0.452_78, 1.510_418];

/// Rounding of keys behind a step; a step reads its own keys as they were.
#[derive(Clone, Copy)]
enum KeyRounding {
    OfFormat,
    Levels(&'static [f32]),
    /// A sign of each value of the rotated error stays too, and the error's length.
    LevelsAndSign(&'static [f32]),
}

impl KeyRounding {
    fn round(self, cpu: &Cpu, key: &mut [f32]) {
        let [first, second] = [ROTATION_SEED, !ROTATION_SEED].map(|seed| Signs { seed });
        let width = key.len();
        turn(cpu.level, first, width, key);
        match self {
            KeyRounding::OfFormat => (),
            KeyRounding::Levels(levels) => {
                let rounded = nearest(key, levels);
                let scale = length(key) / length(&rounded).max(f32::MIN_POSITIVE);
                key.iter_mut().zip(rounded).for_each(|(key, level)| *key = scale * level);
            }
            KeyRounding::LevelsAndSign(levels) => {
                let rounded = nearest(key, levels);
                let mut error: Vec<f32> = key.iter().zip(&rounded).map(|(key, level)| key - level).collect();
                let scale = length(&error) * (std::f32::consts::FRAC_PI_2 / width as f32).sqrt();
                turn(cpu.level, second, width, &mut error);
                error.iter_mut().for_each(|error| *error = scale.copysign(*error));
                turn_back(cpu.level, second, width, &mut error);
                key.iter_mut().zip(rounded.iter().zip(error)).for_each(|(key, (level, error))| *key = level + error);
            }
        }
        turn_back(cpu.level, first, width, key);
    }
}

fn nearest(row: &[f32], levels: &[f32]) -> Vec<f32> {
    let unit = length(row) / (row.len() as f32).sqrt();
    let distance = |level: f32, value: f32| (level * unit - value.abs()).abs();
    let of = |value: f32| levels.iter().copied().min_by(|a, b| distance(*a, value).total_cmp(&distance(*b, value)));
    row.iter().map(|value| (unit * of(*value).unwrap_or_default()).copysign(*value)).collect()
}

fn length(row: &[f32]) -> f32 {
    row.iter().map(|x| x * x).sum::<f32>().sqrt()
}

struct Reader {
    cpu: Cpu,
    network: Network,
    lengths: Vec<usize>,
    texts: Vec<Vec<u32>>,
}

impl Reader {
    /// Returns, for each length, the logits of the last positions before it, of each text.
    fn read(&self, kv: KvFormats, rounding: KeyRounding) -> Result<Vec<Vec<f32>>, Failure> {
        let mut found = vec![Vec::new(); self.lengths.len()];
        let mut work = Workspace::default();
        for text in &self.texts {
            let mut state = SequenceState::new(self.network.state_shape, kv, &MemoryMeter::default())?;
            for (chunk, tokens) in text.chunks(CHUNK_TOKENS).enumerate() {
                let begin = chunk * CHUNK_TOKENS;
                let length = self.lengths.iter().position(|length| *length == begin + CHUNK_TOKENS);
                let wanted = if length.is_some() { WantedLogits::All } else { WantedLogits::Nothing };
                let (of_lane, snapshots) = (&mut state, &mut [][..]);
                let lane = StepLane { state: of_lane, tokens, wanted, recurrence_log: None, snapshots, drafts: 0 };
                let logits = self.network.forward(&self.cpu, &mut [lane], &mut work);
                if let Some(length) = length {
                    found[length].extend_from_slice(logits);
                }
                if !matches!(rounding, KeyRounding::OfFormat) {
                    self.round_keys(rounding, &mut state, begin..begin + tokens.len());
                }
            }
        }
        Ok(found)
    }

    fn round_keys(&self, rounding: KeyRounding, state: &mut SequenceState, positions: std::ops::Range<usize>) {
        let (heads, dim) = (state.shape.kv_heads, state.shape.head_dim);
        let (mut keys, mut values) = (vec![0.0; heads * dim], vec![0.0; heads * dim]);
        for layer in 0..state.shape.attention_layers {
            for position in positions.clone() {
                for (head, (key, value)) in keys.chunks_exact_mut(dim).zip(values.chunks_exact_mut(dim)).enumerate() {
                    state.read(layer, head, position, key, value);
                    rounding.round(&self.cpu, key);
                }
                state.write(self.cpu.level, layer, position, &keys, &values);
            }
        }
    }

    fn compare(&self, exact: &[Vec<f32>], found: &[Vec<f32>]) -> String {
        let vocab = self.network.shape().vocab;
        let cells = exact.iter().zip(found).map(|(exact, found)| {
            let rows: Vec<(&[f32], &[f32])> = exact.chunks(vocab).zip(found.chunks(vocab)).collect();
            let mean = rows.iter().map(|(a, b)| divergence(a, b)).sum::<f64>() / rows.len() as f64;
            let same = rows.iter().filter(|(a, b)| top(a) == top(b)).count();
            format!("{mean:.5}, {:.1} %", 100.0 * same as f64 / rows.len() as f64)
        });
        cells.collect::<Vec<_>>().join(" | ")
    }
}
