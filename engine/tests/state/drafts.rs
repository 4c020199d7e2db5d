//! Drafts change neither a reply nor the cache.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{DraftLimits, Engine, EngineEvent, EngineLimits, EngineRequest, StopReason};
use gpu::Device;
use kernels::format::Format;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::time::Duration;
use testing::device_of_tests;

pub const DRAFTS: DraftLimits = DraftLimits { ngram: 2, tokens: 7, mtp: 3, mtp_vocab: 1 << 20 };

/// Opens an engine that believes that rows cost nothing, so that it drafts wherever it can.
fn drafting(model: &str, limits: EngineLimits) -> Engine {
    drafting_on(None, model, limits)
}

fn drafting_on(device: Option<&Device>, model: &str, limits: EngineLimits) -> Engine {
    let mut engine = engine_on(device, model, limits);
    engine.use_drafts(DRAFTS);
    engine
}

fn repeating(pieces: &[u8], seed: u32) -> Vec<u32> {
    pieces.iter().flat_map(|piece| words(3 + usize::from(piece % 5), seed + u32::from(piece % 3))).collect()
}

#[derive(Clone, Debug)]
struct Run {
    pieces: Vec<u8>,
    seed: u64,
    temperature: f32,
    words: u32,
    penalty: f32,
    new: usize,
    others: usize,
    /// Steps before the reply is cut, and the tenths of its tokens that the next prompt keeps.
    cut: Option<(usize, usize)>,
}

fn run(most_pieces: usize, most_new: usize) -> impl Strategy<Value = Run> {
    let temperature = prop_oneof![3 => Just(0.0f32), 1 => Just(0.2), 1 => Just(0.9)];
    let penalty = prop_oneof![3 => Just(1.0f32), 1 => Just(1.3)];
    let cut = proptest::option::of((1usize..12, 0usize..=10));
    let pieces = prop::collection::vec(any::<u8>(), 1..most_pieces);
    (pieces, any::<u64>(), temperature, 0u32..8, penalty, 1usize..most_new, 0usize..3, cut).prop_map(
        |(pieces, seed, temperature, words, penalty, new, others, cut)| Run {
            pieces,
            seed,
            temperature,
            words,
            penalty,
            new,
            others,
            cut,
        },
    )
}

fn asked(run: &Run, tokens: &[u32]) -> EngineRequest {
    let sampling = SamplingOptions {
        temperature: run.temperature,
        repetition_penalty: run.penalty,
        seed: Some(run.seed),
        logprobs: Some(3),
        // A few words, so that they repeat.
        logit_bias: (0..run.words).map(|word| (11 * word + 3, 15.0)).collect(),
        ..SamplingOptions::default()
    };
    EngineRequest { sampling, ..request(tokens, run.new) }
}

fn cut_after(engine: &mut Engine, request: EngineRequest, steps: usize) -> Vec<u32> {
    let id = engine.submit(request).unwrap();
    let mut events = Vec::new();
    for _ in 0..steps {
        engine.step(&mut events);
    }
    engine.cancel(id);
    engine.step(&mut events);
    let said = events.iter().filter_map(|event| match event {
        EngineEvent::Token(token) if token.id == id => Some(token.token),
        _ => None,
    });
    said.collect()
}

pub fn plays(model: &'static str, cases: u32) {
    plays_on(None, model, cases, run(30, 60));
}

fn plays_on(device: Option<&Device>, model: &'static str, cases: u32, run: impl Strategy<Value = Run>) {
    let cases = std::env::var("DRAFT_RUNS").map_or(cases, |runs| runs.parse().unwrap());
    // An emulated device plays so few that by chance no draft may come.
    let rng_seed = if cases < 10 { RngSeed::Fixed(1) } else { RngSeed::Random };
    let config = ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        max_shrink_iters: 100,
        ..ProptestConfig::default()
    };
    let accepted = std::cell::Cell::new((0, 0));
    proptest!(config, |(run in run)| {
        let prompt = repeating(&run.pieces, run.seed as u32 % 7);
        let mut with = drafting_on(device, model, LIMITS);
        let mut without = engine_on(device, model, LIMITS);
        let mut said = prompt.clone();
        if let Some((steps, tenths)) = run.cut {
            let told = cut_after(&mut with, asked(&run, &prompt), steps);
            prop_assert_eq!(with.check_invariants(), Ok(()));
            let whole = answer(&mut engine_on(device, model, LIMITS), asked(&run, &prompt));
            prop_assert_eq!(&told[..], &whole.tokens[..told.len()], "until it was cut");
            said.extend(&told[..told.len() * tenths / 10]);
        }
        let mut requests = vec![asked(&run, &said)];
        requests.extend((0..run.others).map(|other| asked(&run, &repeating(&[other as u8 + 1; 6], 3))));
        let ours = answers(&mut with, requests.clone());
        prop_assert_eq!(with.check_invariants(), Ok(()));
        let theirs = answers(&mut without, requests);
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert_eq!(&ours.tokens, &theirs.tokens, "{:?}", ours.report);
            prop_assert_eq!(&ours.text, &theirs.text);
            prop_assert_eq!(&ours.stop_reason, &theirs.stop_reason);
            prop_assert_eq!(ours.report.new_tokens, theirs.report.new_tokens);
            for (ours, theirs) in ours.logprobs.iter().zip(&theirs.logprobs) {
                prop_assert!((ours - theirs).abs() <= 1e-4 * theirs.abs().max(1.0), "{} and {}", ours, theirs);
            }
            let (drafted, came) = accepted.get();
            accepted.set((drafted + ours.report.drafted_tokens, came + ours.report.accepted_tokens));
            prop_assert!(theirs.report.drafted_tokens == 0);
        }
        // The cached past is as exact: the next turn continues from there.
        let mut next = said.clone();
        next.extend(&ours[0].tokens[..ours[0].tokens.len() / 2]);
        next.extend(words(9, 5));
        let warm = answer(&mut with, asked(&run, &next));
        let cold = answer(&mut engine_on(device, model, LIMITS), asked(&run, &next));
        prop_assert_eq!(&warm.tokens, &cold.tokens);
        for (warm, cold) in warm.logprobs.iter().zip(&cold.logprobs) {
            prop_assert!((warm - cold).abs() <= 1e-4 * cold.abs().max(1.0), "{} and {}", warm, cold);
        }
    });
    let (drafted, came) = accepted.get();
    assert!(came > 0 && came < drafted, "{came} of {drafted} drafts came: the test says nothing");
}

#[test]
fn a_reply_with_drafts_is_the_reply_without_tied() {
    plays("dense-tied", 60);
}

#[test]
fn a_reply_with_drafts_is_the_reply_without_gva2() {
    plays("gguf/dense-gva2.bf16.gguf", 30);
}

#[test]
fn a_reply_with_drafts_is_the_reply_without_moe() {
    plays("moe", 30);
}

#[test]
fn a_reply_with_drafts_is_the_reply_without_on_a_device() {
    let Some(device) = device_of_tests() else { return };
    let (cases, pieces, new) = if testing::is_emulated(&device) { (4, 5, 16) } else { (100, 30, 60) };
    plays_on(Some(&device), "dense-mtp", cases, run(pieces, new));
}

#[test]
fn a_reply_with_drafts_is_the_reply_without_mtp() {
    plays("dense-mtp", 60);
}

fn repeated(engine: &mut Engine, request: EngineRequest) -> (Vec<u32>, usize, StopReason) {
    engine.submit(request).unwrap();
    let (mut events, mut steps) = (Vec::new(), 0);
    while engine.step(&mut events) {
        steps += 1;
    }
    engine.step(&mut events);
    let (mut tokens, mut reason) = (Vec::new(), None);
    for event in events {
        match event {
            EngineEvent::Token(token) => tokens.push(token.token),
            EngineEvent::Done { stop_reason, .. } => reason = Some(stop_reason),
            _ => {}
        }
    }
    (tokens, steps, reason.unwrap())
}

fn monotonous(new: usize) -> EngineRequest {
    let sampling = SamplingOptions { logit_bias: vec![(7, 100.0)], ..SamplingOptions::default() };
    EngineRequest { sampling, ..request(&words(40, 1), new) }
}

#[test]
fn what_repeats_takes_fewer_steps() {
    let without = repeated(&mut engine("dense-tied", LIMITS), monotonous(120));
    let with = repeated(&mut drafting("dense-tied", LIMITS), monotonous(120));
    assert_eq!((with.0.len(), &with.0), (120, &without.0));
    assert!(without.1 >= 119 && with.1 < 50, "{} steps, {} without drafts", with.1, without.1);
}

#[test]
fn a_limit_inside_of_a_draft_ends_the_reply_there() {
    for new in 1..30 {
        let mut engine = drafting("dense-tied", LIMITS);
        let (tokens, _, reason) = repeated(&mut engine, monotonous(new));
        assert_eq!(tokens.len(), new);
        assert!(matches!(reason, StopReason::Length { .. }), "{reason:?}");
        engine.check_invariants().unwrap();
        let window = EngineRequest { ctx_size: 40 + new, ..monotonous(200) };
        let (tokens, _, reason) = repeated(&mut engine, window);
        assert_eq!(tokens.len(), new);
        assert!(matches!(reason, StopReason::Window { .. }), "{reason:?}");
        engine.check_invariants().unwrap();
    }
}

#[test]
fn a_stop_string_inside_of_a_draft_ends_the_reply_there() {
    let whole = answer(
        &mut engine("dense-tied", LIMITS),
        EngineRequest { sampling: SamplingOptions { logprobs: Some(3), ..monotonous(1).sampling }, ..monotonous(40) },
    );
    let one = whole.text.len() / 40;
    for times in 1..20 {
        let stop = vec![whole.text[..one * times].to_string()];
        let ends = |mut engine: Engine| {
            let told = repeated(&mut engine, EngineRequest { stop: stop.clone(), ..monotonous(40) });
            engine.check_invariants().unwrap();
            (told.0, told.2)
        };
        assert_eq!(ends(drafting("dense-tied", LIMITS)), ends(engine("dense-tied", LIMITS)), "after {times}");
    }
}

#[test]
fn nothing_is_drafted_where_the_log_is_too_short_or_rows_cost_too_much() {
    let short = EngineLimits { recurrence_log_tokens: 0, ..LIMITS };
    let (_, steps, _) = repeated(&mut drafting("dense-tied", short), monotonous(60));
    assert!(steps >= 59);
    // A step with drafts takes as long as the tokens alone.
    let mut engine = drafting("dense-tied", LIMITS);
    engine.submit(monotonous(600)).unwrap();
    let (mut events, mut drafts) = (Vec::new(), Vec::new());
    loop {
        let more = engine.step(&mut events);
        let tokens = events.drain(..).filter(|event| matches!(event, EngineEvent::Token(_))).count();
        drafts.push(tokens.saturating_sub(1));
        engine.took(Duration::from_millis(10 * tokens.max(1) as u64));
        if !more {
            break;
        }
    }
    let late: usize = drafts[100..].iter().sum();
    assert!(drafts[..60].iter().sum::<usize>() > 0 && late < 30, "{late} drafts after it was known what they cost");
}

#[test]
fn packed_snapshots_and_little_memory_change_nothing() {
    let shape = engine("dense-tied", LIMITS).network().state_shape;
    let memory_bytes = LIMITS.bytes_of(&shape, F32, 300).unwrap();
    let tight = EngineLimits { memory_bytes, snapshots: Format::BF16, ..LIMITS };
    let with = repeated(&mut drafting("dense-tied", tight), monotonous(200));
    let without = repeated(&mut engine("dense-tied", tight), monotonous(200));
    assert_eq!((with.0, with.2), (without.0, without.2));
}
