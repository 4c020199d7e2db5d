//! A reply that is begun early is the one that would have been made, and a wrong beginning is cut as if it had never
//! begun. `EARLY_RUNS=1000 cargo test -p engine --test state begun_early` plays any number of random ones.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, OwnerId, Priority, RequestId, RequestReport};
use gpu::Device;
use kernels::format::Format;
use proptest::prelude::*;
use testing::device_of_tests;

#[derive(Clone, Debug)]
struct Run {
    history: usize,
    /// Number of heard words, and of those with which the final words begin.
    heard: usize,
    same: usize,
    /// Number of further final words. 0 and all equal: the final words are the heard ones.
    more: usize,
    seed: u64,
    temperature: f32,
    new: usize,
    steps: usize,
    /// Steps of other work, if the reply stops behind its beginning before the final words come.
    held: Option<usize>,
    other: Option<usize>,
}

fn run(longest: usize) -> impl Strategy<Value = Run> {
    let words = (1usize..24).prop_flat_map(|heard| {
        let same = prop_oneof![Just(heard), 0..=heard];
        (Just(heard), same, prop_oneof![Just(0usize), 1usize..12])
    });
    let temperature = prop_oneof![Just(0.0f32), Just(0.7), Just(1.3)];
    let meanwhile = (prop::option::of(1usize..40), prop::option::of(1usize..40));
    (1..longest, words, any::<u64>(), temperature, 4usize..24, 0usize..20, meanwhile).prop_map(
        |(history, (heard, same, more), seed, temperature, new, steps, (held, other))| Run {
            history,
            heard,
            same,
            more: if same < heard { more.max(1) } else { more },
            seed,
            temperature,
            new,
            steps,
            held,
            other,
        },
    )
}

const OWNER: OwnerId = OwnerId(1);
const ANOTHER: OwnerId = OwnerId(2);

fn asked(run: &Run, said: &[u32]) -> EngineRequest {
    let sampling = SamplingOptions {
        temperature: run.temperature,
        top_k: 50,
        top_p: 0.95,
        presence_penalty: 0.6,
        repetition_penalty: 1.1,
        seed: Some(run.seed),
        logprobs: Some(3),
        ..SamplingOptions::default()
    };
    let prompt = [&words(run.history, run.seed as u32), said, &[1, 2, 3]].concat();
    EngineRequest { sampling, owner: Some(OWNER), ..request(&prompt, run.new) }
}

fn others(count: usize) -> EngineRequest {
    EngineRequest { owner: Some(ANOTHER), ..request(&words(count, 5), 9) }
}

fn early(request: EngineRequest) -> EngineRequest {
    EngineRequest { priority: Priority::Speculate, speculative: true, ..request }
}

#[derive(Default)]
struct Said {
    tokens: Vec<u32>,
    report: Option<RequestReport>,
}

fn step(engine: &mut Engine, id: RequestId, said: &mut Said) -> bool {
    let mut events = Vec::new();
    let more = engine.step(&mut events);
    for event in events {
        match event {
            EngineEvent::Token(token) if token.id == id => said.tokens.push(token.token),
            EngineEvent::Done { id: done, report, .. } if done == id => said.report = Some(report),
            EngineEvent::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    more
}

fn begun(engine: &mut Engine, run: &Run, heard: &[u32], last: &[u32]) -> (Said, usize) {
    let id = engine.submit(early(asked(run, heard))).unwrap();
    let mut said = Said::default();
    for _ in 0..run.steps {
        step(engine, id, &mut said);
    }
    if let Some(other) = run.other {
        engine.submit(others(other)).unwrap();
    }
    let is_held = run.held.is_some() && engine.hold(id).is_some();
    if let Some(count) = run.held {
        answer(engine, others(count));
    }
    let before = said.tokens.len();
    let id = if heard == last {
        // A reply that is done has been said.
        assert_eq!(engine.ask_for(id), said.report.is_none());
        id
    } else {
        if !is_held {
            engine.hold(id);
        }
        engine.release(id);
        said = Said::default();
        engine.submit(asked(run, last)).unwrap()
    };
    while said.report.is_none() {
        step(engine, id, &mut said);
    }
    while engine.step(&mut Vec::new()) {}
    assert_eq!(engine.check_invariants(), Ok(()));
    (said, before)
}

fn plays(device: Option<&Device>, model: &'static str, cases: u32, longest: usize) {
    let cases = std::env::var("EARLY_RUNS").map_or(cases, |runs| runs.parse().unwrap());
    let mut engine = engine_on(device, model, EngineLimits { snapshots: Format::F32, ..LIMITS });
    let mut alone = engine_on(device, model, LIMITS);
    let engines = std::cell::RefCell::new((&mut engine, &mut alone));
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() };
    proptest!(config, |(run in run(longest))| {
        let (engine, alone) = &mut *engines.borrow_mut();
        let heard = words(run.heard, run.seed as u32 ^ 7);
        let last = [&heard[..run.same], &words(run.more, run.seed as u32 ^ 9)].concat();
        let whole = answer(alone, asked(&run, &last));
        alone.forget(OWNER);
        let (said, before) = begun(engine, &run, &heard, &last);
        engine.forget(OWNER);
        engine.forget(ANOTHER);
        prop_assert_eq!(&said.tokens, &whole.tokens, "{} begun", before);
        let report = said.report.unwrap();
        prop_assert_eq!(report.new_tokens, run.new);
        prop_assert_eq!(report.reused_tokens + report.computed_tokens, report.prompt_tokens);
        prop_assert_ne!(report.reason.name(), "resumed");
    });
}

#[test]
fn a_reply_begun_early_has_the_same_tokens_tied() {
    plays(None, "dense-tied", 60, 300);
}

#[test]
fn a_reply_begun_early_has_the_same_tokens_gva2() {
    plays(None, "gguf/dense-gva2.bf16.gguf", 30, 300);
}

#[test]
fn a_reply_begun_early_has_the_same_tokens_moe() {
    plays(None, "moe", 30, 300);
}

#[test]
fn a_reply_begun_early_has_the_same_tokens_on_a_device() {
    let Some(device) = device_of_tests() else { return };
    plays(Some(&device), "dense-tied", if testing::is_emulated(&device) { 2 } else { 200 }, 40);
}

const PLAIN: Run = Run {
    history: 50,
    heard: 5,
    same: 5,
    more: 0,
    seed: 3,
    temperature: 0.7,
    new: 200,
    steps: 0,
    held: None,
    other: None,
};

#[test]
fn a_user_who_waits_takes_the_place_of_what_is_begun_early() {
    for max_sequences in [1, 4] {
        let mut engine = engine("dense-tied", EngineLimits { max_sequences, ..LIMITS });
        let mut said = Said::default();
        let id = engine.submit(early(asked(&PLAIN, &words(5, 1)))).unwrap();
        for _ in 0..8 {
            step(&mut engine, id, &mut said);
        }
        let begun = said.tokens.len();
        assert!(begun > 0);
        let talks = engine.submit(EngineRequest { owner: Some(ANOTHER), ..request(&words(30, 5), 60) }).unwrap();
        let mut talked = Said::default();
        // It is one of the next step, and no step of it is shared, however long the other one waits.
        for steps in 1..=60 {
            step(&mut engine, talks, &mut talked);
            assert_eq!(talked.tokens.len(), steps);
        }
        assert!(talked.report.is_some());
        while said.report.is_none() {
            step(&mut engine, id, &mut said);
        }
        assert_eq!(said.tokens.len(), 200, "it went on from {begun}");
        assert_eq!(engine.check_invariants(), Ok(()));
    }
}

#[test]
fn what_is_begun_early_takes_no_memory_from_a_conversation() {
    let least = {
        let engine = engine("dense-tied", LIMITS);
        LIMITS.bytes_of(&engine.network().state_shape, F32, 300).unwrap()
    };
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes: least * 5 / 4, ..LIMITS });
    let history = words(300, 8);
    answer(&mut engine, EngineRequest { owner: Some(ANOTHER), ..request(&history, 4) });
    let run = Run { history: 280, ..PLAIN };
    let id = engine.submit(early(asked(&run, &words(5, 1)))).unwrap();
    let (mut events, mut failed) = (Vec::new(), false);
    while engine.step(&mut events) {}
    for event in events {
        failed |= matches!(event, EngineEvent::Failed { id: other, .. } if other == id);
    }
    assert!(failed, "it found room where there was none");
    let next = [&history[..], &words(4, 4)].concat();
    let report = answer(&mut engine, EngineRequest { owner: Some(ANOTHER), ..request(&next, 2) }).report;
    assert!(report.reused_tokens >= 300, "{report:?}");
}
