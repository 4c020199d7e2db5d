//! Random histories, against an engine that remembers nothing. `STATE_RUNS=500 cargo test -p engine --test state
//! random` plays any number for each model.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineLimits, EngineRequest, OwnerId, Priority, RequestId};
use gpu::Device;
use proptest::prelude::*;

/// A client's change to a conversation.
#[derive(Clone, Debug)]
pub enum Step {
    Extend {
        count: usize,
        seed: u32,
    },
    Cut {
        share: f64,
    },
    Edit {
        share: f64,
        token: u32,
    },
    Regenerate,
    GoBack {
        turns: usize,
    },
    SecondRequest {
        count: usize,
    },
    Warm {
        count: usize,
        seed: u32,
    },
    /// The reply stops after this many steps, and resumes. Meanwhile the next turn may be warmed.
    Resume {
        steps: usize,
        warms: bool,
    },
    Arms {
        count: usize,
    },
    /// The instructions change at their top. All may be read behind them before the next question is asked.
    NewHead {
        token: u32,
        is_read: bool,
    },
    /// Their change is written before the last question.
    Note {
        count: usize,
        seed: u32,
    },
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
        2 => (1usize..12, any::<bool>()).prop_map(|(steps, warms)| Step::Resume { steps, warms }),
        1 => (2usize..5).prop_map(|count| Step::Arms { count }),
        1 => (0u32..500, any::<bool>()).prop_map(|(token, is_read)| Step::NewHead { token, is_read }),
        1 => (1usize..30, any::<u32>()).prop_map(|(count, seed)| Step::Note { count, seed }),
        1 => Just(Step::Spill),
        1 => Just(Step::Restart),
    ]
}

const HEAD_TOKENS: usize = 50; // tokens of instructions at the head of a history
const QUESTION_TOKENS: usize = 8; // tokens of the last question

fn choice(tokens: &[u32], number: usize) -> EngineRequest {
    let request = with_head(tokens);
    let sampling = SamplingOptions { temperature: 0.9, seed: Some(number as u64), ..request.sampling };
    EngineRequest { sampling, ..request }
}

/// Runs the requests in one batch, the others as choices of the first if `are_arms`; the first may be stopped and resumed.
fn replies(
    engine: &mut Engine,
    requests: Vec<EngineRequest>,
    are_arms: bool,
    stop: Option<(usize, bool)>,
) -> Vec<Answer> {
    let next = [&requests[0].tokens[..], &words(5, 3)].concat();
    let mut ids: Vec<RequestId> = Vec::new();
    for request in requests {
        let choice_of = ids.first().copied().filter(|_| are_arms);
        ids.push(engine.submit(EngineRequest { choice_of, ..request }).unwrap());
    }
    let answers = run(engine, &ids, |engine, steps| {
        let Some((_, warms)) = stop.filter(|(after, _)| *after == steps) else { return };
        if engine.hold(ids[0]).is_some() {
            if warms {
                // A prompt that is only warmed may find no room.
                drop(tries(engine, vec![EngineRequest { priority: Priority::Speculate, ..request(&next, 0) }]));
            }
            assert!(engine.resume(ids[0]));
        }
    });
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

/// Builds a request with a head. The history may be edited in its head, or become shorter than that.
fn with_head(tokens: &[u32]) -> EngineRequest {
    let mut request = request(tokens, 6);
    let end = tokens.len().min(HEAD_TOKENS);
    request.scope.head_tokens = end;
    request.marks.extend((!request.marks.contains(&end)).then_some(end));
    request.marks.sort_unstable();
    request
}

#[derive(Clone, Copy)]
pub struct Stage<'a> {
    pub model: &'a str,
    pub limits: EngineLimits,
    /// The device of the engine with a cache. The engine without one computes on the CPU.
    pub device: Option<&'a Device>,
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
        let (mut second, mut choices, mut stop) = (None, 1, None);
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
                    EngineRequest { priority: Priority::Speculate, speculative: true, ..request(&speculated, 0) },
                );
            }
            Step::Resume { steps, warms } => stop = Some((*steps, *warms)),
            Step::Arms { count } => choices = *count,
            Step::NewHead { token, is_read } => {
                if let Some(first) = history.first_mut() {
                    *first = *token;
                }
                if *is_read {
                    let ahead = EngineRequest { priority: Priority::Background, ..request(&history, 0) };
                    drop(tries(&mut warm, vec![ahead]));
                }
            }
            Step::Note { count, seed } => {
                let at = history.len().saturating_sub(QUESTION_TOKENS);
                history.splice(at..at, words(*count, *seed));
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
        let mut requests = match choices {
            1 => vec![with_head(&history)],
            _ => (0..choices).map(|number| choice(&history, number)).collect(),
        };
        requests.extend(second.map(|tokens| with_head(&tokens)));
        let ours = replies(&mut warm, requests.clone(), choices > 1, stop);
        prop_assert_eq!(warm.check_invariants(), Ok(()));
        for (ours, request) in ours.iter().zip(requests) {
            let is_drawn = request.sampling.temperature > 0.0;
            let theirs = answer(&mut cold, EngineRequest { owner: Some(OwnerId(1)), ..request });
            cold.forget(OwnerId(1));
            prop_assert_eq!(ours.tokens.len(), theirs.tokens.len());
            for i in 0..ours.tokens.len() {
                let (best, expected) = (&ours.best[i], &theirs.best[i]);
                prop_assert!(best.len() > 1 && best.len() == expected.len());
                for (a, b) in best.iter().zip(expected) {
                    prop_assert!((a - b).abs() <= 1e-3, "{} and {}: {:?}", a, b, ours.report);
                }
                // CPU and GPU may round a tie to either side, and a draw at the edge between two tokens. Then the replies
                // differ from there on.
                let is_tie = is_drawn || expected[0] - expected[1] <= 1e-3;
                if device.is_some() && ours.tokens[i] != theirs.tokens[i] && is_tie {
                    break;
                }
                let (a, b) = (ours.logprobs[i], theirs.logprobs[i]);
                prop_assert!((a - b).abs() <= 1e-3, "{} and {}: {:?}", a, b, ours.report);
                prop_assert_eq!(ours.tokens[i], theirs.tokens[i], "{:?}", ours.report);
            }
            prop_assert_eq!(theirs.report.reused_tokens, 0);
            // A resumed reply reports only what follows.
            if stop.is_none() {
                prop_assert_eq!(ours.report.reused_tokens + ours.report.computed_tokens, ours.report.prompt_tokens);
            }
        }
        earlier.push(history.clone());
        history.extend(&ours[0].tokens);
    }
    Ok(())
}

fn plays(model: &'static str, cases: u32) {
    let cases = std::env::var("STATE_RUNS").map_or(cases, |runs| runs.parse().unwrap());
    let engine = engine(model, LIMITS);
    // A long log lets a turn go back to marks that it passed without a snapshot.
    let limits = |recurrence_log_tokens| EngineLimits { recurrence_log_tokens, ..LIMITS };
    // From one prompt's need, which leaves no room for a cache, upwards.
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
    plays("dense-tied", 16);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva2_gguf() {
    plays("gguf/dense-gva2.bf16.gguf", 10);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva3() {
    plays("dense-gva3", 10);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_moe() {
    plays("moe", 10);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_yarn() {
    plays("dense-yarn", 10);
}
