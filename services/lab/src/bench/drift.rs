//! `reprise bench drift`: the loss from recurrent states in fewer bits.
//!
//! One past is read once as it is computed and once for each format, where the state is packed and unpacked again after
//! every few tokens, as if a conversation went back to there each time. All read the same tokens in the same batches,
//! so that only the formats differ. The first row packs nothing and must show no difference.
//!
//! The last rows go back as a barge-in does: an exact state from so many tokens ago runs over their log, whose inputs were
//! rounded.

use super::steps::Filler;
use anyhow::{Context, Result, bail};
use engine::Cpu;
use engine::memory::MemoryMeter;
use engine::network::{StepLane, WantedLogits};
use engine::recurrence_log::{RecurrenceLog, SEGMENT_TOKENS};
use engine::snapshot::{FORMATS, Snapshot};
use engine::state::{SequenceState, StateShape};
use experiment::Quantiles;
use serde::Serialize;
use serde_json::json;
use settings::Settings;
use terminal::hardware::Hardware;
use terminal::opening::{self, ModelArgs, ReadyModel};
use terminal::output::{print_json, print_report, progress_bar};
use tools::divergence::{divergence, top};

/// Measures how far states in fewer bits lead away from exact ones
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the past
    #[arg(long, default_value_t = 2048)]
    tokens: usize,
    /// Tokens between two packings of the state, one measurement for each number
    #[arg(long, value_delimiter = ',', default_values_t = [16, 256])]
    every: Vec<usize>,
    /// Seed of the past
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints one JSON object for programs
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DriftRow {
    format: &'static str,
    snapshot_bytes: u64, // of a log: those of its tokens
    every_tokens: usize,
    times: usize, // times that the state was packed and unpacked
    /// Kullback-Leibler divergence from the exact distribution of the next token, in nats, over all positions behind
    /// the first packing.
    kl_mean: f64,
    kl_p95: f64,
    kl_max: f64,
    kl_last_quarter_mean: f64, // over the last quarter of the past, where errors have added up
    same_top_share: f64,       // share of positions at which the likeliest token is the same
}

/// Tokens that are read at once: each costs a row of the vocabulary's width for each format.
const CHUNK: usize = 16;

pub fn run(args: &Args, settings: &Settings) -> Result<()> {
    if args.tokens < 2 * CHUNK || args.every.iter().any(|every| *every == 0 || *every >= args.tokens) {
        bail!("--tokens is at least {} and --every lies between 1 and it", 2 * CHUNK);
    }
    let ReadyModel { opened, mut executor, kv, .. } = args.model.open_on_host(settings)?;
    let mut filler = Filler::new(args.seed);
    let said: Vec<String> =
        filler.history(args.tokens * 2).into_iter().flat_map(|(said, answered)| [said, answered]).collect();
    let mut tokens = opened.model.tokenizer.encode(&said.join(" "));
    if tokens.len() < args.tokens {
        bail!("the vocabulary of this model spells the past in {} tokens; ask for fewer with --tokens", tokens.len());
    }
    tokens.truncate(args.tokens);
    let bar = progress_bar((args.tokens * args.every.len()) as u64, "{wide_bar} {pos}/{len} tokens, {eta} left");
    let mut rows = Vec::new();
    for every in &args.every {
        let meter = executor.meter();
        let shape = opened.model.network.state_shape;
        let new = || SequenceState::new(shape, kv, &meter);
        let mut states = (0..=FORMATS.len() + LOGS.len()).map(|_| new()).collect::<Result<Vec<_>, _>>()?;
        let mut drifts: Vec<Drift> = states[1..].iter().map(|_| Drift::default()).collect();
        let mut logs = LOGS.map(|_| RecurrenceLog::new(&shape, *every, &meter));
        let mut before_logs = LOGS.map(|_| Snapshot::of(&states[0], FORMATS[0], None));
        let mut times = 0;
        let mut at = 0;
        while at < tokens.len() {
            let next = (at + CHUNK).min(tokens.len()).min((at / every + 1) * every);
            let read = &tokens[at..next];
            let lane = |state| opening::lane(state, read, WantedLogits::All);
            let mut lanes: Vec<StepLane> = states.iter_mut().map(lane).collect();
            for (lane, log) in lanes[1 + FORMATS.len()..].iter_mut().zip(&mut logs) {
                lane.recurrence_log = Some(log);
            }
            let Some(logits) = executor.forward(&opened.model.network, &mut lanes) else {
                return Err(opening::lost(&executor));
            };
            if times > 0 {
                let of_lane = logits.len() / states.len();
                let (exact, others) = logits.split_at(of_lane);
                for (drift, theirs) in drifts.iter_mut().zip(others.chunks_exact(of_lane)) {
                    drift.add(exact, theirs, opened.model.network.shape().vocab);
                }
            }
            bar.inc((next - at) as u64);
            at = next;
            if at.is_multiple_of(*every) {
                times += 1;
                for (state, format) in states[1..].iter_mut().zip(FORMATS) {
                    let snapshot = Snapshot::of(state, format, None);
                    *state = snapshot.restore(&state.pages, shape, state.layout, &meter, executor.cpu());
                }
                for (number, state) in states[1 + FORMATS.len()..].iter_mut().enumerate() {
                    let cpu = executor.cpu().context("nothing was measured")?;
                    let log = rounded(&logs[number], &shape, LOGS[number].1, cpu);
                    let before = &before_logs[number];
                    let mut again = before.restore(&state.pages, shape, state.layout, &meter, Some(cpu));
                    executor.replay(&opened.model.network, &mut again, &log, at);
                    again.pages = state.pages.clone();
                    *state = again;
                    before_logs[number] = Snapshot::of(state, FORMATS[0], None);
                }
            }
        }
        let of_formats = FORMATS.map(|format| (format.name(), shape.snapshot_bytes(format)));
        let log_bytes = every.div_ceil(SEGMENT_TOKENS) * RecurrenceLog::segment_bytes(&shape);
        let of_logs = LOGS.map(|(name, inputs)| (name, log_bytes / if inputs == Rounded::Nothing { 1 } else { 2 }));
        for ((name, bytes), drift) in of_formats.into_iter().chain(of_logs).zip(drifts) {
            rows.push(drift.row(name, bytes as u64, *every, times));
        }
    }
    bar.finish_and_clear();
    let measured = json!({
        "bench": "drift",
        "machine": Hardware::new(settings),
        "model": opened.file,
        "tokens": tokens.len(),
        "rows": rows,
    });
    if args.json { print_json(&measured) } else { print_report(&measured, &[&measured["rows"]]) }
}

/// Numbers of a log that are rounded to bf16.
#[derive(Clone, Copy, PartialEq)]
enum Rounded {
    Nothing,
    Inputs, // of the convolution
    Everything,
}

const LOGS: [(&str, Rounded); 3] =
    [("log f32", Rounded::Nothing), ("log bf16", Rounded::Inputs), ("log bf16, decays too", Rounded::Everything)];

fn rounded(log: &RecurrenceLog, shape: &StateShape, which: Rounded, cpu: &Cpu) -> RecurrenceLog {
    let covered = log.covered();
    let mut copy = RecurrenceLog::new(shape, covered.len(), &MemoryMeter::default());
    copy.begin(covered.start, covered.len());
    for layer in 0..shape.delta_layers {
        for position in covered.clone() {
            let Some(row) = log.read(layer, position) else { continue };
            let mut row = row.to_vec();
            let (inputs, rest) = row.split_at_mut(shape.heads.channels());
            let (decays, betas) = rest.split_at_mut(shape.heads.value_heads);
            match which {
                Rounded::Nothing => (),
                Rounded::Inputs => inputs.iter_mut().for_each(round_to_bf16),
                Rounded::Everything => {
                    [&mut *inputs, decays, betas].into_iter().flatten().for_each(round_to_bf16);
                }
            }
            copy.write(cpu, layer, position, [inputs, decays, betas], 1);
        }
    }
    copy
}

fn round_to_bf16(value: &mut f32) {
    let bits = value.to_bits();
    *value = f32::from_bits((bits.wrapping_add(0x7fff + (bits >> 16 & 1))) & 0xffff_0000);
}

#[derive(Default)]
struct Drift {
    kl: Vec<f64>,
    same_top: usize,
}

impl Drift {
    fn add(&mut self, exact: &[f32], theirs: &[f32], vocab: usize) {
        for (exact, theirs) in exact.chunks_exact(vocab).zip(theirs.chunks_exact(vocab)) {
            self.kl.push(divergence(exact, theirs));
            self.same_top += usize::from(top(exact) == top(theirs));
        }
    }

    fn row(self, format: &'static str, snapshot_bytes: u64, every_tokens: usize, times: usize) -> DriftRow {
        let n = self.kl.len().max(1);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        let summary = Quantiles::of(self.kl.iter().copied());
        DriftRow {
            format,
            snapshot_bytes,
            every_tokens,
            times,
            kl_mean: mean(&self.kl),
            kl_p95: summary.map_or(0.0, |summary| summary.p95),
            kl_max: summary.map_or(0.0, |summary| summary.max),
            kl_last_quarter_mean: mean(&self.kl[self.kl.len() / 4 * 3..]),
            same_top_share: self.same_top as f64 / n as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted() {
        let mut drift = Drift::default();
        drift.add(&[1.0, 2.0, 5.0, 4.0], &[1.0, 2.0, 4.0, 5.0], 2);
        assert_eq!((drift.kl.len(), drift.same_top), (2, 1));
    }
}
