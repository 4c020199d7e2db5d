//! Random histories, against an engine that remembers nothing.

use super::support::*;
use engine::{EngineLimits, EngineRequest, OwnerId, RequestClass};
use gpu::Device;
use proptest::prelude::*;

/// What a client does to a conversation.
#[derive(Clone, Debug)]
pub enum Step {
    Extend { count: usize, seed: u32 },
    Cut { share: f64 },
    Edit { share: f64, token: u32 },
    Regenerate,
    GoBack { turns: usize },
    SecondRequest { count: usize },
    Warm { count: usize, seed: u32 },
    Spill,
    Restart,
}

pub fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..60, any::<u32>()).prop_map(|(count, seed)| Step::Extend { count, seed }),
        3 => (0.0..1.0f64).prop_map(|share| Step::Cut { share }),
        1 => (0.0..1.0f64, 0u32..500).prop_map(|(share, token)| Step::Edit { share, token }),
        1 => Just(Step::Regenerate),
        1 => (1usize..4).prop_map(|turns| Step::GoBack { turns }),
        1 => (1usize..80).prop_map(|count| Step::SecondRequest { count }),
        2 => (1usize..30, any::<u32>()).prop_map(|(count, seed)| Step::Warm { count, seed }),
        1 => Just(Step::Spill),
        1 => Just(Step::Restart),
    ]
}

/// The history may be edited in its head, or become shorter than that.
fn with_head(tokens: &[u32]) -> EngineRequest {
    let mut request = request(tokens, 6);
    let end = tokens.len().min(50);
    request.scope.shared_tokens = end;
    request.marks.extend((!request.marks.contains(&end)).then_some(end));
    request.marks.sort_unstable();
    request
}

/// How a history is played.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    pub model: &'a str,
    pub limits: EngineLimits,
    /// The device of the engine with a cache. The engine without one computes on the CPU.
    pub device: Option<&'a Device>,
    /// Where a conversation is cut.
    pub longest: usize,
}

pub fn play(stage: Stage, steps: &[Step]) -> Result<(), TestCaseError> {
    let Stage { model, limits, device, longest } = stage;
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut engine = engine_on(device, model, limits);
        engine.use_disk(disk(folder.path()));
        engine.read_heads();
        engine
    };
    let mut warm = start();
    let mut cold = engine(model, EngineLimits { memory_bytes: usize::MAX, ..limits });
    let mut history = words(30, 9);
    let mut earlier = Vec::new();
    for step in steps {
        let mut second = None;
        match step {
            Step::Extend { count, seed } => history.extend(words(*count, *seed)),
            Step::Cut { share } => history.truncate((history.len() as f64 * share) as usize + 1),
            Step::Edit { share, token } => {
                let at = (history.len() as f64 * share) as usize;
                history[at] = *token;
            }
            Step::Regenerate => {}
            Step::GoBack { turns } => history = earlier.iter().rev().nth(*turns).cloned().unwrap_or(history),
            Step::SecondRequest { count } => second = Some([&history[..history.len() / 2], &words(*count, 3)].concat()),
            Step::Warm { count, seed } => {
                let speculated = [&history[..], &words(*count, *seed)].concat();
                answer(
                    &mut warm,
                    EngineRequest { class: RequestClass::Speculate, speculative: true, ..request(&speculated, 0) },
                );
            }
            Step::Spill => {
                warm.save_one();
            }
            Step::Restart => {
                warm.save_all();
                warm = start();
            }
        }
        history.truncate(longest);
        let mut requests = vec![with_head(&history)];
        requests.extend(second.map(|tokens| with_head(&tokens)));
        let ours = answers(&mut warm, requests.clone());
        prop_assert_eq!(warm.check_invariants(), Ok(()));
        for (ours, request) in ours.iter().zip(requests) {
            let theirs = answer(&mut cold, EngineRequest { owner: Some(OwnerId(1)), ..request });
            cold.forget(OwnerId(1));
            prop_assert_eq!(ours.tokens.len(), theirs.tokens.len());
            for i in 0..ours.tokens.len() {
                let (a, b) = (ours.logprobs[i], theirs.logprobs[i]);
                prop_assert!((a - b).abs() <= 1e-3, "{} and {}: {:?}", a, b, ours.report);
                // CPU and GPU may round a tie to either side, and then the replies differ.
                if device.is_some() && ours.tokens[i] != theirs.tokens[i] && theirs.leads[i] <= 1e-3 {
                    break;
                }
                prop_assert_eq!(ours.tokens[i], theirs.tokens[i], "{:?}", ours.report);
            }
            prop_assert_eq!(theirs.report.reused_tokens, 0);
            prop_assert_eq!(ours.report.reused_tokens + ours.report.computed_tokens, ours.report.prompt_tokens);
        }
        earlier.push(history.clone());
        history.extend(&ours[0].tokens);
    }
    Ok(())
}

fn plays(model: &'static str, cases: u32) {
    let engine = engine(model, LIMITS);
    // A long log lets a turn go back to marks that it passed without a snapshot.
    let limits = |recurrence_log_tokens| EngineLimits { recurrence_log_tokens, ..LIMITS };
    // From what one prompt needs, so that nothing can be cached, upwards.
    let least = limits(160).bytes_of(&engine.network().state_shape, F32, 930).unwrap();
    let budgets = prop_oneof![Just(64usize << 20), least..4 * least];
    let logs = prop_oneof![Just(32usize), Just(160), Just(0)];
    let strategy = (budgets, logs, prop::collection::vec(step(), 1..10));
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() };
    proptest!(config, |((memory_bytes, recurrence_log_tokens, steps) in strategy)| {
        let limits = EngineLimits { memory_bytes, ..limits(recurrence_log_tokens) };
        play(Stage { model, limits, device: None, longest: 900 }, &steps)?;
    });
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_tied() {
    plays("dense-tied", 10);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva2_gguf() {
    plays("gguf/dense-gva2.bf16.gguf", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva3() {
    plays("dense-gva3", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_moe() {
    plays("moe", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_yarn() {
    plays("dense-yarn", 6);
}
