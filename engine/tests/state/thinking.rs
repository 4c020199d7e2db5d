//! Thinking that a caller ends: the answer follows at once, with the words that the model would say behind that
//! thought.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::{Engine, EngineEvent, EngineRequest, RequestId, StopReason, ThinkingOptions};
use text::budget::CLOSING;

fn thinking(prompt: &[u32], new: usize, seed: u64) -> EngineRequest {
    let sampling = SamplingOptions { temperature: 0.9, seed: Some(seed), ..SamplingOptions::default() };
    let thinking = ThinkingOptions { open: true, budget_tokens: None };
    EngineRequest { sampling, thinking, ..request(prompt, new) }
}

fn step(engine: &mut Engine, id: RequestId) -> (Vec<u32>, Option<StopReason>) {
    let (mut events, mut tokens, mut done) = (Vec::new(), Vec::new(), None);
    engine.step(&mut events);
    for event in events {
        match event {
            EngineEvent::Token(token) if token.id == id => tokens.push(token.token),
            EngineEvent::Done { id: of, stop_reason, .. } if of == id => done = Some(stop_reason),
            EngineEvent::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    (tokens, done)
}

fn rest(engine: &mut Engine, id: RequestId, tokens: &mut Vec<u32>) -> StopReason {
    loop {
        let (more, done) = step(engine, id);
        tokens.extend(more);
        if let Some(done) = done {
            return done;
        }
    }
}

#[test]
fn the_first_word_comes_with_the_next_step() {
    for (others, after) in [(0, 1), (0, 2), (0, 9), (2, 5)] {
        let mut engine = engine("dense-tied", LIMITS);
        for other in 0..others {
            engine.submit(request(&words(40, 50 + other), 200)).unwrap();
        }
        let prompt = words(70, 1);
        let id = engine.submit(thinking(&prompt, 60, 5)).unwrap();
        let mut tokens = Vec::new();
        while tokens.len() < after {
            tokens.extend(step(&mut engine, id).0);
        }
        let closing = engine.tokenizer().encode(CLOSING);
        engine.stop_thinking(id);
        // A second call changes nothing, and another request's prompt does not come before the words.
        engine.stop_thinking(id);
        engine.submit(request(&words(500, 9), 1)).unwrap();
        let (told, _) = step(&mut engine, id);
        let (closed, word) = told.split_at(told.len() - 1);
        assert!(closing.ends_with(closed) && closed.len() + 1 >= closing.len(), "{closed:?}, {closing:?}");
        assert_eq!(word.len(), 1, "the first word of the answer");
        tokens.extend(told);
        let spoken = tokens.len() - 1;
        assert!(matches!(rest(&mut engine, id, &mut tokens), StopReason::Length { .. }));
        assert_eq!(tokens.len(), 60);

        // Greedily, a prompt that ends behind this thought has the same answer, computed from nothing.
        let mut engine = self::engine("dense-tied", LIMITS);
        let mut greedy = Vec::new();
        let greedily = EngineRequest { sampling: SamplingOptions::default(), ..thinking(&prompt, 40, 0) };
        let id = engine.submit(greedily).unwrap();
        while greedy.len() < after {
            greedy.extend(step(&mut engine, id).0);
        }
        engine.stop_thinking(id);
        greedy.extend(step(&mut engine, id).0);
        let thought = greedy.len() - 1;
        rest(&mut engine, id, &mut greedy);
        let behind = [&prompt[..], &greedy[..thought]].concat();
        let plain = answer(&mut self::engine("dense-tied", LIMITS), request(&behind, 40 - thought));
        assert_eq!(plain.tokens, greedy[thought..], "after {after} tokens of {spoken}");
    }
}

#[test]
fn thinking_that_is_ended_before_it_began_is_none() {
    let mut engine = engine("dense-tied", LIMITS);
    let prompt = words(150, 1);
    let id = engine.submit(thinking(&prompt, 20, 5)).unwrap();
    // A part of the prompt is computed.
    assert_eq!(step(&mut engine, id), (Vec::new(), None));
    engine.stop_thinking(id);
    let mut tokens = Vec::new();
    rest(&mut engine, id, &mut tokens);
    let closing = engine.tokenizer().encode(CLOSING);
    assert!(tokens.starts_with(&closing) && tokens.len() == 20, "{tokens:?}");
}

#[test]
fn a_reply_that_does_not_think_is_let_be() {
    let prompt = words(70, 1);
    let plain = answer(&mut engine("dense-tied", LIMITS), request(&prompt, 30));
    let mut engine = engine("dense-tied", LIMITS);
    let id = engine.submit(request(&prompt, 30)).unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < 7 {
        tokens.extend(step(&mut engine, id).0);
    }
    engine.stop_thinking(id);
    rest(&mut engine, id, &mut tokens);
    assert_eq!(tokens, plain.tokens);
    engine.stop_thinking(id);
}

/// A reply may have room for only a part of the text that ends the thinking.
#[test]
fn a_limit_holds_also_where_thinking_ends() {
    for most in 4..9 {
        let mut engine = engine("dense-tied", LIMITS);
        let id = engine.submit(thinking(&words(40, 1), most, 3)).unwrap();
        let mut tokens = Vec::new();
        while tokens.len() < 3 {
            tokens.extend(step(&mut engine, id).0);
        }
        engine.stop_thinking(id);
        assert!(matches!(rest(&mut engine, id, &mut tokens), StopReason::Length { .. }));
        assert_eq!(tokens.len(), most);
        engine.check_invariants().unwrap();
    }
}
