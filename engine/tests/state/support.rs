//! A small engine, and its answers.

use engine::memory::MemoryKind;
use engine::network::Network;
use engine::sampling::SamplingOptions;
use engine::state::KvFormats;
use engine::{
    DiskLimits, Engine, EngineEvent, EngineLimits, EngineRequest, Error, Executor, RequestId, RequestReport,
    ScoredToken, StopReason,
};
use gpu::Device;
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);

pub const LIMITS: EngineLimits = EngineLimits {
    prefill_chunk_tokens: 64,
    max_sequences: 4,
    max_waiting: 64,
    max_logit_bias: 8,
    memory_bytes: 64 << 20,
    moved_snapshot_bytes: 0,
    snapshots: Format::F32,
    snapshot_spacing_tokens: 40,
    recurrence_log_tokens: 32,
    heads: 4,
};

pub fn engine(model: &str, limits: EngineLimits) -> Engine {
    engine_on(None, model, limits)
}

pub fn engine_on(device: Option<&Device>, model: &str, limits: EngineLimits) -> Engine {
    // In the source tree, or in the folder that `tests/gpu/run.sh` names on a machine without sources.
    let in_tree = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference");
    let path = std::env::var_os("REPRISE_REFERENCE").map_or_else(in_tree, PathBuf::from).join(model);
    let model = weights::open(&path, true).unwrap();
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(model.vocab.clone()).unwrap());
    let executor = match device {
        None => Executor::on_cpu(Cpu::new(1)),
        Some(device) => Executor::on_gpu(device, &model, Precision::F32).unwrap(),
    };
    Engine::new(executor, Network::new(model, Precision::F32), tokenizer, limits)
}

pub fn request(tokens: &[u32], new: usize) -> EngineRequest {
    let marks = (1..tokens.len()).filter(|position| position % 23 == 0).collect();
    let sampling = SamplingOptions { logprobs: Some(3), ..SamplingOptions::default() };
    EngineRequest {
        marks,
        sampling,
        max_new_tokens: new,
        ignore_eos: true,
        ..EngineRequest::new(tokens.to_vec(), 4096, F32)
    }
}

#[derive(Debug, Default)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub prompt: Vec<ScoredToken>,
    /// Log probabilities of the best tokens, best first, at each token.
    pub best: Vec<Vec<f32>>,
    pub text: String,
    pub report: RequestReport,
    pub stop_reason: Option<StopReason>,
}

pub fn answers(engine: &mut Engine, requests: Vec<EngineRequest>) -> Vec<Answer> {
    let answers = tries(engine, requests);
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

pub fn tries(engine: &mut Engine, requests: Vec<EngineRequest>) -> Vec<Result<Answer, Error>> {
    let ids: Vec<RequestId> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    run(engine, &ids, |_, _| ())
}

/// Runs submitted requests to their end. `between` is called between two steps with the number of the step.
pub fn run(
    engine: &mut Engine,
    ids: &[RequestId],
    mut between: impl FnMut(&mut Engine, usize),
) -> Vec<Result<Answer, Error>> {
    let mut answers: Vec<Answer> = ids.iter().map(|_| Answer::default()).collect();
    let mut failed: Vec<Option<Error>> = ids.iter().map(|_| None).collect();
    let (mut events, mut steps) = (Vec::new(), 0);
    while engine.step(&mut events) {
        steps += 1;
        between(engine, steps);
        let moved = engine.memory_bytes(MemoryKind::MovedSnapshots);
        let held = MemoryKind::ALL.iter().map(|kind| engine.memory_bytes(*kind)).sum::<usize>() - moved;
        let limits = engine.limits();
        assert!(held <= limits.memory_bytes, "{held} bytes are above the ceiling");
        assert!(moved <= limits.moved_snapshot_bytes, "{moved} bytes on the host are above theirs");
    }
    engine.step(&mut events);
    for event in events {
        match event {
            EngineEvent::Started { .. } => {}
            EngineEvent::PromptTokens { id, tokens } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                answers[at].prompt.extend(tokens);
            }
            EngineEvent::Token(token) => {
                let Some(at) = ids.iter().position(|id| *id == token.id) else { continue };
                answers[at].tokens.push(token.token);
                answers[at].text += &token.text;
                answers[at].logprobs.push(token.logprob.unwrap());
                answers[at].best.push(token.top.iter().map(|(_, logprob)| *logprob).collect());
            }
            EngineEvent::Done { id, stop_reason, report } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                (answers[at].report, answers[at].stop_reason) = (report, Some(stop_reason));
            }
            EngineEvent::Failed { id, error } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                failed[at] = Some(error);
            }
        }
    }
    answers.into_iter().zip(failed).map(|(answer, failed)| failed.map_or(Ok(answer), Err)).collect()
}

pub fn answer(engine: &mut Engine, request: EngineRequest) -> Answer {
    answers(engine, vec![request]).pop().unwrap()
}

pub fn words(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97)) >> 7) % 500).collect()
}

pub fn disk(folder: &Path) -> DiskLimits {
    DiskLimits { folder: folder.to_path_buf(), max_bytes: 1 << 30, min_tokens: 16, heads: 4 }
}
