//! A reply that was stopped goes on as if it had never been, token by token. `RESUME_RUNS=1000 cargo test -p engine --test state
//! goes_on` plays as many random stops of each model as one wants.

use super::devices::device_of_tests;
use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, OwnerId, RequestClass, RequestReport};
use gpu::Device;
use kernels::format::Format;
use proptest::prelude::*;

/// What happens while a reply is stopped.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// The prompt of the next turn is warmed, with this share of the words that were said.
    Warm {
        share: f64,
    },
    /// Another conversation has a turn.
    Other {
        count: usize,
    },
    /// Another conversation's reply goes on beside this one.
    AtOnce {
        count: usize,
    },
    Spill,
}

#[derive(Clone, Debug)]
struct Run {
    prompt: usize,
    seed: u64,
    temperature: f32,
    new: usize,
    /// Steps of the engine before each stop.
    stops: Vec<(usize, Meanwhile)>,
}

fn run(longest: usize) -> impl Strategy<Value = Run> {
    let meanwhile = prop_oneof![
        Just(Meanwhile::Nothing),
        (0.0..1.0f64).prop_map(|share| Meanwhile::Warm { share }),
        (1usize..40).prop_map(|count| Meanwhile::Other { count }),
        (1usize..40).prop_map(|count| Meanwhile::AtOnce { count }),
        Just(Meanwhile::Spill),
    ];
    let stops = prop::collection::vec((1usize..12, meanwhile), 1..4);
    let temperature = prop_oneof![Just(0.0f32), Just(0.7), Just(1.3)];
    (1..longest, any::<u64>(), temperature, 4usize..24, stops).prop_map(|(prompt, seed, temperature, new, stops)| Run {
        prompt,
        seed,
        temperature,
        new,
        stops,
    })
}

const OWNER: OwnerId = OwnerId(1);
const ANOTHER: OwnerId = OwnerId(2);

/// What another conversation asks.
fn others(count: usize, new: usize) -> EngineRequest {
    EngineRequest { owner: Some(ANOTHER), ..request(&words(count, 5), new) }
}

fn asked(run: &Run) -> EngineRequest {
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
    EngineRequest { sampling, owner: Some(OWNER), ..request(&words(run.prompt, run.seed as u32), run.new) }
}

#[derive(Debug, Default, PartialEq)]
struct Said {
    tokens: Vec<u32>,
    text: String,
}

/// The reply with its stops, what its end reports, and how much was told of it before the last stop.
fn stopped(engine: &mut Engine, run: &Run) -> (Said, RequestReport, usize) {
    let request = asked(run);
    let prompt = request.tokens.clone();
    let id = engine.submit(request).unwrap();
    let (mut said, mut report, mut before) = (Said::default(), None, 0);
    let mut events = Vec::new();
    let mut stops = run.stops.iter();
    let mut next = stops.next();
    let mut steps = 0;
    while report.is_none() {
        if let Some((_, meanwhile)) = next.filter(|(after, _)| *after == steps) {
            before = said.tokens.len();
            assert!(engine.hold(id).is_some());
            match *meanwhile {
                Meanwhile::Nothing => {}
                Meanwhile::Warm { share } => {
                    let heard = (said.tokens.len() as f64 * share) as usize;
                    let ahead = [&prompt[..], &said.tokens[..heard], &words(5, 3)].concat();
                    let class = RequestClass::Speculate;
                    answer(engine, EngineRequest { class, owner: Some(OWNER), ..super::support::request(&ahead, 0) });
                }
                Meanwhile::Other { count } => drop(answer(engine, others(count, 4))),
                Meanwhile::AtOnce { count } => {
                    engine.submit(others(count, 9)).unwrap();
                }
                Meanwhile::Spill => drop(engine.save_one()),
            }
            assert!(engine.resume(id) && !engine.resume(id));
            (next, steps) = (stops.next(), 0);
        }
        engine.step(&mut events);
        steps += 1;
        for event in events.drain(..) {
            match event {
                EngineEvent::Token(token) if token.id == id => {
                    said.tokens.push(token.token);
                    said.text += &token.text;
                }
                EngineEvent::Done { id: done, report: told, .. } if done == id => report = Some(told),
                EngineEvent::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
    }
    while engine.step(&mut events) {}
    assert_eq!(engine.check_invariants(), Ok(()));
    (said, report.unwrap(), before)
}

fn plays(device: Option<&Device>, model: &'static str, cases: u32, longest: usize) {
    let cases = std::env::var("RESUME_RUNS").map_or(cases, |runs| runs.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine_on(device, model, EngineLimits { snapshots: Format::BF16, ..LIMITS });
    engine.use_disk(disk(folder.path()));
    let mut alone = engine_on(device, model, LIMITS);
    let engines = std::cell::RefCell::new((&mut engine, &mut alone));
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() };
    proptest!(config, |(run in run(longest))| {
        let (engine, alone) = &mut *engines.borrow_mut();
        let whole = answer(alone, asked(&run));
        alone.forget(OWNER);
        let (said, report, before) = stopped(engine, &run);
        engine.forget(OWNER);
        engine.forget(ANOTHER);
        prop_assert_eq!(&said.tokens, &whole.tokens, "{:?}", report);
        prop_assert_eq!(&said.text, &whole.text);
        if report.reason.name() == "resumed" {
            // No token twice. A prompt that was stopped in its middle goes on from there.
            let again = if before == 0 { run.prompt } else { 0 };
            prop_assert!(report.computed_tokens <= again, "{:?}", report);
            prop_assert_eq!(report.reused_tokens + report.computed_tokens, run.prompt + before.saturating_sub(1));
            prop_assert_eq!(report.new_tokens, run.new - before);
        }
    });
}

#[test]
fn a_stopped_reply_goes_on_with_the_same_tokens_tied() {
    plays(None, "dense-tied", 60, 300);
}

#[test]
fn a_stopped_reply_goes_on_with_the_same_tokens_gva2() {
    plays(None, "gguf/dense-gva2.bf16.gguf", 30, 300);
}

#[test]
fn a_stopped_reply_goes_on_with_the_same_tokens_moe() {
    plays(None, "moe", 30, 300);
}

#[test]
fn a_stopped_reply_goes_on_with_the_same_tokens_on_a_device() {
    let Some(device) = device_of_tests() else { return };
    plays(Some(&device), "dense-tied", if device.is_emulated() { 2 } else { 200 }, 40);
}

#[test]
fn what_is_held_makes_room_and_is_computed_again() {
    let model = "dense-tied";
    let shape = engine(model, LIMITS).network().state_shape;
    let run =
        Run { prompt: 200, seed: 4, temperature: 0.8, new: 20, stops: vec![(14, Meanwhile::Other { count: 380 })] };
    let whole = answer(&mut engine(model, LIMITS), asked(&run));
    let mut tokens_again = Vec::new();
    for room in [0.9, 4.0] {
        let least = LIMITS.bytes_of(&shape, F32, 400).unwrap() as f64;
        let mut engine = engine(model, EngineLimits { memory_bytes: (least * room) as usize, ..LIMITS });
        let (said, report, before) = stopped(&mut engine, &run);
        assert!(before > 0);
        assert_eq!(said.tokens, whole.tokens);
        tokens_again.push(report.computed_tokens);
    }
    assert!(tokens_again[0] > 0 && tokens_again[1] == 0, "{tokens_again:?}");
}

#[test]
fn what_is_held_goes_with_its_owner_and_what_is_released_stays_cached() {
    let mut engine = engine("dense-tied", LIMITS);
    let run = Run { prompt: 60, seed: 2, temperature: 0.0, new: 9, stops: Vec::new() };
    let mut events = Vec::new();
    let mut begin = |engine: &mut Engine| {
        let id = engine.submit(asked(&run)).unwrap();
        for _ in 0..5 {
            engine.step(&mut events);
        }
        assert!(engine.hold(id).is_some() && engine.hold(id).is_none());
        id
    };
    let id = begin(&mut engine);
    assert!(!engine.step(&mut Vec::new()), "a request that is held is no work");
    engine.forget(OWNER);
    assert!(!engine.resume(id));
    assert_eq!(engine.cached_sequences(), 0);

    let id = begin(&mut engine);
    engine.release(id);
    assert!(!engine.resume(id));
    let again = answer(&mut engine, asked(&run));
    assert_eq!((again.report.reused_tokens, again.report.computed_tokens), (59, 1));
    assert_eq!(engine.check_invariants(), Ok(()));
}
