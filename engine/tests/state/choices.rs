//! Several replies to one prompt: it is computed once, and they continue from it in one batch.

use super::support::*;
use engine::memory::MemoryKind;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, RequestId, RequestReport};
use std::collections::BTreeMap;

fn sampled(prompt: &[u32], new: usize, seed: u64) -> EngineRequest {
    let sampling =
        SamplingOptions { temperature: 0.9, seed: Some(seed), logprobs: Some(3), ..SamplingOptions::default() };
    EngineRequest { sampling, ..request(prompt, new) }
}

type TokensBySteps = BTreeMap<RequestId, Vec<(usize, u32)>>; // tokens with the step that made them

fn run(engine: &mut Engine) -> (TokensBySteps, BTreeMap<RequestId, RequestReport>) {
    let (mut tokens, mut reports) = (TokensBySteps::new(), BTreeMap::new());
    let (mut events, mut at) = (Vec::new(), 0);
    loop {
        let more = engine.step(&mut events);
        for event in events.drain(..) {
            match event {
                EngineEvent::Token(token) => tokens.entry(token.id).or_default().push((at, token.token)),
                EngineEvent::Done { id, report, .. } => drop(reports.insert(id, report)),
                EngineEvent::Started { .. } | EngineEvent::PromptTokens { .. } => {}
                EngineEvent::Failed { error, .. } => panic!("{error}"),
            }
        }
        at += 1;
        if !more {
            return (tokens, reports);
        }
    }
}

#[test]
fn the_prompt_is_computed_once_and_each_arm_is_what_it_would_be_alone() {
    for (length, seed) in [(150, 1), (64, 2), (65, 3)] {
        let prompt = words(length, seed);
        let mut engine = engine("dense-tied", LIMITS);
        let first = engine.submit(sampled(&prompt, 20, 100)).unwrap();
        let mut ids = vec![first];
        for choice in 1..4 {
            let request = EngineRequest { choice_of: Some(first), ..sampled(&prompt, 20, 100 + choice) };
            ids.push(engine.submit(request).unwrap());
        }
        let (tokens, reports) = run(&mut engine);
        engine.check_invariants().unwrap();
        for (choice, id) in ids.iter().enumerate() {
            let computed = if choice == 0 { length } else { 0 };
            assert_eq!(reports[id].computed_tokens, computed, "choice {choice} of {length} tokens");
            let alone = answer(&mut self::engine("dense-tied", LIMITS), sampled(&prompt, 20, 100 + choice as u64));
            let told: Vec<u32> = tokens[id].iter().map(|(_, token)| *token).collect();
            assert_eq!(told, alone.tokens, "choice {choice} of {length} tokens");
            // They begin with the first, and each step gives a token of each.
            let steps: Vec<usize> = tokens[id].iter().map(|(step, _)| *step).collect();
            let begin = tokens[&first][0].0;
            assert_eq!(steps, (begin..begin + 20).collect::<Vec<_>>());
        }
    }
}

#[test]
fn arms_go_on_without_the_first() {
    let prompt = words(300, 1);
    for steps in [0, 1, 3, 9] {
        let mut engine = engine("dense-tied", LIMITS);
        let first = engine.submit(sampled(&prompt, 20, 7)).unwrap();
        let second = engine.submit(EngineRequest { choice_of: Some(first), ..sampled(&prompt, 20, 8) }).unwrap();
        let mut events = Vec::new();
        for _ in 0..steps {
            engine.step(&mut events);
        }
        engine.cancel(first);
        let before = events.iter().filter_map(|event| match event {
            EngineEvent::Token(token) if token.id == second => Some(token.token),
            _ => None,
        });
        let mut told: Vec<u32> = before.collect();
        let (tokens, reports) = run(&mut engine);
        told.extend(tokens[&second].iter().map(|(_, token)| *token));
        let alone = answer(&mut self::engine("dense-tied", LIMITS), sampled(&prompt, 20, 8));
        assert_eq!(told, alone.tokens, "cancelled after {steps} steps");
        // The first's computed prompt is not computed again.
        assert!(reports[&second].computed_tokens <= 300 - (60 * steps).min(299), "{:?}", reports[&second]);
    }
}

#[test]
fn arms_find_memory_that_was_touched_once_there_were_some() {
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes: 1 << 30, ..LIMITS }); // not a window: bytes
    let prompt = words(100, 1);
    let ask = |engine: &mut Engine, seed: u32| {
        let first = engine.submit(sampled(&words(100, seed), 5, 1)).unwrap();
        for choice in 1..4 {
            engine.submit(EngineRequest { choice_of: Some(first), ..sampled(&words(100, seed), 5, choice) }).unwrap();
        }
        run(engine);
        while engine.prepare_one() {}
        engine.memory_bytes(MemoryKind::Spare)
    };
    answer(&mut engine, sampled(&prompt, 5, 1));
    while engine.prepare_one() {}
    let of_one = engine.memory_bytes(MemoryKind::Spare);
    let of_four = ask(&mut engine, 2);
    assert!(of_four > of_one, "{of_four} and {of_one}");
    assert_eq!(ask(&mut engine, 3), of_four);
}
