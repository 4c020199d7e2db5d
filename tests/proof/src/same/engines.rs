//! Engines with the small random models of tests/data/reference, and what they answer.

use anyhow::{Context, Result, anyhow, ensure};
use engine::network::Network;
use engine::sampling::SamplingOptions;
use engine::state::KvFormats;
use engine::{
    Cpu, DiskLimits, DraftLimits, Engine, EngineEvent, EngineLimits, EngineRequest, Executor, OwnerId, Precision,
    Priority,
};
use kernels::cpu::CpuLevel;
use kernels::format::Format;
use std::path::Path;
use std::sync::Arc;
use weights::ModelWeights;

pub const MODELS: [&str; 6] = ["dense-tied", "dense-gva2", "dense-gva3", "moe", "dense-yarn", "dense-wide"];

const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);
const MOST_TOKENS: usize = 4096; // not a window: more than a conversation here gets

/// Small chunks and snapshots near to each other, so that a short conversation meets their borders.
const LIMITS: EngineLimits = EngineLimits {
    prefill_chunk_tokens: 64,
    max_sequences: 4,
    max_waiting: 64,
    max_logit_bias: 8,
    memory_bytes: 64 << 20, // not a window: bytes
    moved_snapshot_bytes: 0,
    snapshots: Format::F32,
    snapshot_spacing_tokens: 40,
    recurrence_log_tokens: 32,
    heads: 4,
};

const DRAFTS: DraftLimits = DraftLimits { ngram: 2, tokens: 7, mtp: 0, mtp_vocab: 0 };

pub fn open(model: &str, level: CpuLevel, disk: Option<&Path>) -> Result<Engine> {
    engine(weights_of(model)?, level, disk)
}

/// Opens an engine whose layers' inputs are moved by two units in the last place, as rounding may move them.
pub fn open_shaken(model: &str) -> Result<Engine> {
    let mut model = weights_of(model)?;
    for layer in &mut model.layers {
        for (at, weight) in layer.attn_norm.iter_mut().chain(&mut layer.ffn_norm).enumerate() {
            *weight *= if at % 3 == 0 { 1.0 + 2.0 * f32::EPSILON } else { 1.0 - 2.0 * f32::EPSILON };
        }
    }
    engine(model, CpuLevel::detect(), None)
}

fn weights_of(model: &str) -> Result<ModelWeights> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/reference").join(model);
    weights::open(&path, true).with_context(|| format!("{}", path.display()))
}

fn engine(model: ModelWeights, level: CpuLevel, disk: Option<&Path>) -> Result<Engine> {
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(model.vocab.clone())?);
    let executor = Executor::on_cpu(Cpu::with_level(1, level));
    let mut engine = Engine::new(executor, Network::new(model, Precision::F32), tokenizer, LIMITS);
    if let Some(folder) = disk {
        engine.use_drafts(DRAFTS);
        engine.use_disk(DiskLimits { folder: folder.to_path_buf(), max_bytes: 1 << 30, min_tokens: 16, heads: 4 });
        engine.read_heads();
    }
    Ok(engine)
}

pub fn request(tokens: &[u32], new: usize) -> EngineRequest {
    EngineRequest {
        marks: (1..tokens.len()).filter(|position| position % 23 == 0).collect(),
        sampling: SamplingOptions { logprobs: Some(3), ..SamplingOptions::default() },
        max_new_tokens: new,
        ignore_eos: true,
        ..EngineRequest::new(tokens.to_vec(), MOST_TOKENS, F32)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Said {
    pub tokens: Vec<u32>,
    logprobs: Vec<f32>,
    leads: Vec<f32>,
    /// Least distance of two experts of which a token got only one.
    experts_apart: Option<f32>,
    pub reused_tokens: usize,
    pub drafted_tokens: usize,
    pub accepted_tokens: usize,
    /// It was begun before it was asked for.
    pub was_early: bool,
}

/// A reply that is begun before it is asked for, to words that may be others than the final ones.
pub struct Early {
    pub request: EngineRequest,
    pub steps: usize,
}

/// All in one batch. The first may have been begun early; it is stopped after so many steps, and goes on.
pub fn answers(
    engine: &mut Engine,
    requests: Vec<EngineRequest>,
    early: Option<Early>,
    stopped_after: Option<usize>,
) -> Result<Vec<Said>> {
    let (mut events, mut steps) = (Vec::new(), 0);
    let mut requests = requests.into_iter();
    let mut ids = Vec::new();
    if let Some(Early { request, steps }) = early {
        let (tokens, priority) = (request.tokens.clone(), Priority::Speculate);
        let id = engine.submit(EngineRequest { priority, speculative: true, ..request })?;
        for _ in 0..steps {
            engine.step(&mut events);
        }
        if requests.as_slice().first().is_some_and(|asked| asked.tokens == tokens) {
            // Where it is done, its events have come.
            engine.ask_for(id);
            requests.next();
            ids.push(id);
        } else {
            engine.hold(id);
            engine.release(id);
        }
    }
    let was_early = !ids.is_empty();
    for request in requests {
        ids.push(engine.submit(request)?);
    }
    let mut all = vec![Said::default(); ids.len()];
    all[0].was_early = was_early;
    loop {
        if stopped_after == Some(steps) && engine.hold(ids[0]).is_some() {
            engine.save_one();
            ensure!(engine.resume(ids[0]), "a reply that was stopped does not go on");
        }
        steps += 1;
        if !engine.step(&mut events) {
            break;
        }
    }
    engine.step(&mut events);
    for event in events {
        match event {
            EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } => {}
            EngineEvent::Token(token) => {
                let Some(at) = ids.iter().position(|id| *id == token.id) else { continue };
                let second = token.top.get(1).map_or(f32::NEG_INFINITY, |second| second.1);
                all[at].tokens.push(token.token);
                all[at].logprobs.push(token.logprob.context("a log probability")?);
                all[at].leads.push(token.top.first().map_or(0.0, |first| first.1 - second));
            }
            EngineEvent::Done { id, report, .. } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                all[at].reused_tokens = all[at].reused_tokens.max(report.reused_tokens);
                (all[at].drafted_tokens, all[at].accepted_tokens) = (report.drafted_tokens, report.accepted_tokens);
            }
            EngineEvent::Failed { error, .. } => return Err(error.into()),
        }
    }
    engine.check_invariants().map_err(|why| anyhow!("{why}"))?;
    Ok(all)
}

pub fn cold(engine: &mut Engine, request: &EngineRequest) -> Result<Said> {
    let owner = OwnerId(u64::MAX);
    engine.take_least_lead();
    let mut said =
        answers(engine, vec![EngineRequest { owner: Some(owner), ..request.clone() }], None, None)?.remove(0);
    engine.forget(owner);
    said.experts_apart = engine.take_least_lead();
    ensure!(said.reused_tokens == 0, "the oracle remembers {} tokens", said.reused_tokens);
    Ok(said)
}

/// The most that log probabilities may differ, and the lead below which a token is as good as the next.
const TOLERANCE: f32 = 1e-3;

/// Tolerance of a lead if only sums have another order.
const ORDER_TOLERANCE: f32 = 5e-5;

/// Two experts that are not further apart are as good as each other: a sum in another order chooses the other one. Such sums
/// were seen to differ by 3e-6.
const EXPERTS_TIE: f32 = 1e-5;

#[derive(Debug, Default, PartialEq)]
pub struct Compared {
    pub largest_difference: f32,
    pub tokens: u64,
    /// The answer is another, and an expert of it was chosen by rounding: what follows was not compared.
    pub expert_tie: bool,
    /// Rounding chose between two tokens that are as good: what follows is another reply.
    pub token_tie: bool,
    /// A log probability differs by more than is allowed, and it moves as far where inputs are moved as rounding moves them:
    /// what follows was not compared.
    pub steep: bool,
}

/// `other_level`: the arithmetic is another, and finds more tokens as good as each other.
/// `shaken`: asks a model that is shaken.
pub fn compare(
    ours: &Said,
    oracle: &Said,
    other_level: bool,
    shaken: impl FnOnce() -> Result<Said>,
) -> Result<Compared> {
    ensure!(ours.tokens.len() == oracle.tokens.len(), "{} tokens and {}", ours.tokens.len(), oracle.tokens.len());
    let mut compared = Compared::default();
    for at in 0..ours.tokens.len() {
        let difference = (ours.logprobs[at] - oracle.logprobs[at]).abs();
        let is_tie = oracle.leads[at] <= if other_level { TOLERANCE } else { ORDER_TOLERANCE };
        if is_tie && ours.tokens[at] != oracle.tokens[at] {
            compared.token_tie = true;
            break;
        }
        let is_same = ours.tokens[at] == oracle.tokens[at] && difference <= TOLERANCE;
        if !is_same && oracle.experts_apart.is_some_and(|apart| apart <= EXPERTS_TIE) {
            compared.expert_tie = true;
            break;
        }
        if !is_same && ours.tokens[at] == oracle.tokens[at] {
            let shaken = shaken()?;
            let moved = (shaken.logprobs[at] - oracle.logprobs[at]).abs();
            ensure!(
                shaken.tokens[at] == oracle.tokens[at] && moved >= difference / 2.0,
                "token {at} is {} with {}, and cold with {}; rounding would move it by {moved:e}",
                ours.tokens[at],
                ours.logprobs[at],
                oracle.logprobs[at],
            );
            compared.steep = true;
            break;
        }
        ensure!(
            is_same,
            "token {at} is {} with {}, and cold {} with {} (experts apart: {:?})",
            ours.tokens[at],
            ours.logprobs[at],
            oracle.tokens[at],
            oracle.logprobs[at],
            oracle.experts_apart
        );
        compared.largest_difference = compared.largest_difference.max(difference);
        compared.tokens += 1;
    }
    Ok(compared)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(said: &Said, oracle: &Said, other_level: bool) -> (f32, u64, bool) {
        let Compared { largest_difference, tokens, expert_tie, .. } =
            compare(said, oracle, other_level, || Ok(oracle.clone())).unwrap();
        (largest_difference, tokens, expert_tie)
    }

    #[test]
    fn another_answer_is_told() {
        let said = Said { tokens: vec![3, 4], logprobs: vec![-0.5, -0.25], leads: vec![0.5, 2e-4], ..Said::default() };
        assert_eq!(told(&said, &said, false), (0.0, 2, false));
        let other = Said { tokens: vec![3, 5], ..said.clone() };
        assert!(compare(&other, &said, false, || Ok(said.clone())).is_err());
        assert_eq!(told(&other, &said, true), (0.0, 1, false), "a tie");
        let near = Said { leads: vec![0.5, 1e-5], ..said.clone() };
        assert_eq!(told(&other, &near, false), (0.0, 1, false), "a tie on one level");
        let unsure = Said { logprobs: vec![-0.5, -0.26], ..said.clone() };
        assert!(compare(&unsure, &said, true, || Ok(said.clone())).is_err());
        for (moved, is_steep) in [(-0.256, true), (-0.254, false)] {
            let shaken = Said { logprobs: vec![-0.5, moved], ..said.clone() };
            assert_eq!(compare(&unsure, &said, true, || Ok(shaken)).is_ok_and(|compared| compared.steep), is_steep);
        }
        for (apart, is_tie) in [(1e-5, true), (2e-5, false)] {
            let oracle = Said { experts_apart: Some(apart), ..said.clone() };
            assert_eq!(
                compare(&unsure, &oracle, false, || Ok(oracle.clone())).is_ok_and(|compared| compared.expert_tie),
                is_tie
            );
            assert_eq!(told(&said, &oracle, false), (0.0, 2, false), "the same answer is no tie");
        }
    }

    #[test]
    fn an_engine_tells_how_near_its_experts_were() {
        let mut engine = open("moe", CpuLevel::detect(), None).unwrap();
        let near = cold(&mut engine, &request(&[1, 2, 3, 4, 5, 6, 7, 8], 4)).unwrap().experts_apart.unwrap();
        assert!(near > 0.0 && near < 1.0, "{near}");
        assert_eq!(engine.take_least_lead(), None);
        let mut engine = open("dense-wide", CpuLevel::detect(), None).unwrap();
        assert_eq!(cold(&mut engine, &request(&[1, 2, 3], 2)).unwrap().experts_apart, None);
    }
}
