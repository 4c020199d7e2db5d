//! Log probabilities of a prompt's own tokens, which a harness asks for.

use super::support::*;
use engine::{EngineLimits, EngineRequest, MOST_SCORED_TOKENS, OwnerId, Priority, RequestId, ScoredToken, StopReason};
use testing::golden::GoldenFile;

fn scored(tokens: &[u32], new: usize) -> EngineRequest {
    EngineRequest { prompt_logprobs: Some(2), ..request(tokens, new) }
}

/// Computes log probabilities from the reference implementation's logits, in f64.
fn expected(golden: &GoldenFile, vocab: usize) -> Vec<Vec<f64>> {
    let logits = golden.floats("logits");
    let row = |row: &[f32]| {
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|logit| f64::from(logit - most).exp()).sum();
        row.iter().map(|logit| f64::from(logit - most) - sum.ln()).collect()
    };
    logits.chunks_exact(vocab).map(row).collect()
}

/// Compares scores that were computed in steps of other lengths, whose sums round otherwise.
fn assert_alike(ours: &[ScoredToken], theirs: &[ScoredToken], what: &str) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (one, other) in ours.iter().zip(theirs) {
        let best = |token: &ScoredToken| token.top.first().map(|(_, logprob)| *logprob);
        let are_near = |a: Option<f32>, b: Option<f32>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-4,
            (a, b) => a == b,
        };
        let is_alike =
            one.token == other.token && are_near(one.logprob, other.logprob) && are_near(best(one), best(other));
        assert!(is_alike, "{what}: {one:?} {other:?}");
    }
}

/// Distance from the reference implementation. The farthest log probability of all is 1.9e-4 away (`moe`, 40 tokens at a time; read in
/// pieces of 1, 7, 23, 64 or 180 it is nearer, and so are the others). Another expert or position is whole numbers away.
const NEAR: f64 = 5e-4;

#[test]
fn they_are_those_of_the_reference_implementation() {
    for model in ["dense-tied", "dense-gva2", "moe", "dense-wide"] {
        let golden = GoldenFile::of_folder(model);
        let prompt = golden.tokens("prompt");
        let mut engine = engine(model, LIMITS);
        let vocab = engine.network().shape().vocab;
        let expected = expected(&golden, vocab);
        let answer = answer(&mut engine, scored(&prompt, 0));
        assert_eq!(answer.stop_reason, Some(StopReason::Warm));
        assert_eq!(answer.prompt.iter().map(|told| told.token).collect::<Vec<_>>(), prompt);
        assert_eq!(answer.prompt[0], ScoredToken { token: prompt[0], logprob: None, top: Vec::new() });
        for (at, told) in answer.prompt.iter().enumerate().skip(1) {
            let row = &expected[at - 1];
            let near = |ours: f32, token: u32| (f64::from(ours) - row[token as usize]).abs() < NEAR;
            assert!(near(told.logprob.unwrap(), told.token), "{model}, {at}: {told:?}, {}", row[told.token as usize]);
            let are_near = told.top.iter().all(|(token, logprob)| near(*logprob, *token));
            assert!(told.top.len() == 2 && are_near, "{model}, {at}: {told:?}");
            let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert!((f64::from(told.top[0].1) - best).abs() < NEAR, "{model}, {at}: {told:?}");
        }
        engine.check_invariants().unwrap();
    }
}

#[test]
fn a_cached_past_and_other_requests_change_nothing_and_a_reply_follows() {
    let prompt = words(150, 3);
    let alone = answer(&mut engine("dense-tied", LIMITS), scored(&prompt, 6));
    assert_eq!((alone.prompt.len(), alone.report.reused_tokens, alone.report.computed_tokens), (150, 0, 150));
    // The reply is that of a request that reports nothing.
    assert_eq!(alone.tokens, answer(&mut engine("dense-tied", LIMITS), request(&prompt, 6)).tokens);

    let mut engine = engine("dense-tied", LIMITS);
    answer(&mut engine, request(&prompt, 4));
    let others =
        vec![request(&words(90, 4), 30), scored(&prompt, 6), scored(&prompt[..70], 0), request(&words(20, 5), 3)];
    let together = answers(&mut engine, others);
    assert_alike(&together[1].prompt, &alone.prompt, "together");
    assert_eq!(together[1].tokens, alone.tokens);
    assert_alike(&together[2].prompt, &alone.prompt[..70], "a part");
    assert_eq!((together[0].prompt.len(), together[0].tokens.len()), (0, 30));
    // One token has nothing before it.
    let one = answer(&mut engine, scored(&prompt[..1], 0));
    assert_eq!((one.prompt.len(), one.prompt[0].logprob), (1, None));
    engine.check_invariants().unwrap();
}

#[test]
fn one_that_gives_its_place_to_a_user_reports_each_token_once() {
    let prompt = words(200, 7);
    let alone = answer(&mut engine("dense-tied", LIMITS), scored(&prompt, 0));
    for comes_after in 1..6 {
        let mut engine = engine("dense-tied", EngineLimits { max_sequences: 1, ..LIMITS });
        let background = EngineRequest { priority: Priority::Background, one_off: true, ..scored(&prompt, 0) };
        let id = engine.submit(background).unwrap();
        let told = run(&mut engine, &[id], |engine, steps| {
            if steps == comes_after {
                engine.submit(EngineRequest { owner: Some(OwnerId(1)), ..request(&words(40, 8), 5) }).unwrap();
            }
        });
        let told = told.into_iter().next().unwrap().unwrap();
        assert_alike(&told.prompt, &alone.prompt, &format!("after {comes_after} steps"));
        engine.check_invariants().unwrap();
    }
}

#[test]
fn a_step_holds_no_more_logits_than_the_plan_has_room_for() {
    let mut engine = engine("dense-tied", EngineLimits { prefill_chunk_tokens: 256, ..LIMITS });
    let ids: Vec<RequestId> = (0..3).map(|seed| engine.submit(scored(&words(100, seed), 0)).unwrap()).collect();
    let (mut events, mut most, mut all) = (Vec::new(), 0, 0);
    loop {
        let more = engine.step(&mut events);
        let tokens = |event| match event {
            engine::EngineEvent::PromptTokens { id, tokens } if ids.contains(&id) => {
                tokens.iter().filter(|token| token.logprob.is_some()).count()
            }
            _ => 0,
        };
        let told: usize = events.drain(..).map(tokens).sum();
        (most, all) = (most.max(told), all + told);
        if !more {
            break;
        }
    }
    assert_eq!((most, all), (MOST_SCORED_TOKENS, 3 * 99));
}
