//! A stopped reply resumes as if it had never stopped, token by token. `RESUME_RUNS=1000 cargo test -p engine --test
//! state goes_on` plays any number of random stops for each model.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, OwnerId, Priority, RequestId, RequestReport};
use gpu::Device;
use kernels::format::Format;
use proptest::prelude::*;
use testing::device_of_tests;

#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// The prompt of the next turn is warmed, with this share of the reply's words.
    Warm {
        share: f64,
    },
    Other {
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
    stops: Vec<(usize, Meanwhile)>,
    /// Steps behind the stops after which the reply stops once more; from then on another conversation's reply continues
    /// beside it. In a batch the last bits of a sum are others, so the reply without a stop has the same company.
    company: Option<(usize, usize)>,
}

fn run(longest: usize) -> impl Strategy<Value = Run> {
    let meanwhile = prop_oneof![
        Just(Meanwhile::Nothing),
        (0.0..1.0f64).prop_map(|share| Meanwhile::Warm { share }),
        (1usize..40).prop_map(|count| Meanwhile::Other { count }),
        Just(Meanwhile::Spill),
    ];
    let stops = prop::collection::vec((1usize..12, meanwhile), 1..4);
    let temperature = prop_oneof![Just(0.0f32), Just(0.7), Just(1.3)];
    let company = prop::option::of((1usize..12, 1usize..40));
    let run = (1..longest, any::<u64>(), temperature, 4usize..24, stops, company);
    run.prop_map(|(prompt, seed, temperature, new, stops, company)| Run {
        prompt,
        seed,
        temperature,
        new,
        stops,
        company,
    })
}

const OWNER: OwnerId = OwnerId(1);
const ANOTHER: OwnerId = OwnerId(2);
const COMPANION: OwnerId = OwnerId(3);

fn others(owner: OwnerId, count: usize, new: usize) -> EngineRequest {
    EngineRequest { owner: Some(owner), ..request(&words(count, owner.0 as u32), new) }
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

struct Stopped {
    said: Said,
    report: RequestReport,
    before: usize,
    company_at: Option<usize>,
}

fn stopped(engine: &mut Engine, run: &Run) -> Stopped {
    let request = asked(run);
    let prompt = request.tokens.clone();
    let id = engine.submit(request).unwrap();
    let (mut said, mut report, mut before, mut company_at) = (Said::default(), None, 0, None);
    let mut stops = run.stops.iter();
    let (mut next, mut company) = (stops.next(), run.company);
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
                    let priority = Priority::Speculate;
                    answer(
                        engine,
                        EngineRequest { priority, owner: Some(OWNER), ..super::support::request(&ahead, 0) },
                    );
                }
                Meanwhile::Other { count } => drop(answer(engine, others(ANOTHER, count, 4))),
                Meanwhile::Spill => drop(engine.save_one()),
            }
            assert!(engine.resume(id) && !engine.resume(id));
            (next, steps) = (stops.next(), 0);
        } else if next.is_none()
            && let Some((_, count)) = company.take_if(|(after, _)| *after == steps)
        {
            before = said.tokens.len();
            company_at = Some(before);
            assert!(engine.hold(id).is_some());
            engine.submit(others(COMPANION, count, 9)).unwrap();
            assert!(engine.resume(id));
        }
        report = step(engine, id, &mut said);
        steps += 1;
    }
    finish(engine);
    Stopped { said, report: report.unwrap(), before, company_at }
}

fn uninterrupted(engine: &mut Engine, run: &Run, company_at: Option<usize>) -> Said {
    let id = engine.submit(asked(run)).unwrap();
    let mut said = Said::default();
    let mut company = run.company.zip(company_at);
    loop {
        if let Some(((_, count), _)) = company.take_if(|(_, at)| said.tokens.len() >= *at) {
            engine.submit(others(COMPANION, count, 9)).unwrap();
        }
        if step(engine, id, &mut said).is_some() {
            finish(engine);
            return said;
        }
    }
}

fn step(engine: &mut Engine, id: RequestId, said: &mut Said) -> Option<RequestReport> {
    let (mut events, mut report) = (Vec::new(), None);
    engine.step(&mut events);
    for event in events {
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
    report
}

fn finish(engine: &mut Engine) {
    while engine.step(&mut Vec::new()) {}
    assert_eq!(engine.check_invariants(), Ok(()));
    for owner in [OWNER, ANOTHER, COMPANION] {
        engine.forget(owner);
    }
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
        let Stopped { said, report, before, company_at } = stopped(engine, &run);
        let whole = uninterrupted(alone, &run, company_at);
        prop_assert_eq!(&said.tokens, &whole.tokens, "{:?}", report);
        prop_assert_eq!(&said.text, &whole.text);
        if report.reason.name() == "resumed" {
            // No token is computed twice. A prompt that was stopped in its middle continues from there.
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
    plays(Some(&device), "dense-tied", if testing::is_emulated(&device) { 2 } else { 200 }, 40);
}

#[test]
fn what_is_held_makes_room_and_is_computed_again() {
    let model = "dense-tied";
    let shape = engine(model, LIMITS).network().state_shape;
    let stops = vec![(14, Meanwhile::Other { count: 380 })];
    let run = Run { prompt: 200, seed: 4, temperature: 0.8, new: 20, stops, company: None };
    let whole = answer(&mut engine(model, LIMITS), asked(&run));
    let mut tokens_again = Vec::new();
    for room in [1.2, 4.0] {
        let least = LIMITS.bytes_of(&shape, F32, 400).unwrap() as f64;
        let mut engine = engine(model, EngineLimits { memory_bytes: (least * room) as usize, ..LIMITS });
        let Stopped { said, report, before, .. } = stopped(&mut engine, &run);
        assert!(before > 0);
        assert_eq!(said.tokens, whole.tokens);
        tokens_again.push(report.computed_tokens);
    }
    assert!(tokens_again[0] > 0 && tokens_again[1] == 0, "{tokens_again:?}");
}

#[test]
fn what_is_held_goes_with_its_owner_and_what_is_released_stays_cached() {
    let mut engine = engine("dense-tied", LIMITS);
    let run = Run { prompt: 60, seed: 2, temperature: 0.0, new: 9, stops: Vec::new(), company: None };
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
