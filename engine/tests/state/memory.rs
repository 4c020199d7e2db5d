//! The one ceiling, and the order of eviction under it.

use super::support::*;
use engine::memory::MemoryKind;
use engine::{EngineLimits, EngineRequest, Error, PrefillReason, Priority};
use kernels::format::Format;

#[test]
fn memory_stays_under_its_ceiling() {
    let memory_bytes = 4 << 20;
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
    let mut history = words(40, 1);
    let mut most = 0;
    for turn in 0..300 {
        history.extend(words(15, turn));
        if turn % 7 == 3 {
            history.truncate(history.len() - 10);
        }
        if history.len() > 1500 {
            history.drain(40..1000);
        }
        let answer = answer(&mut engine, request(&history, 3));
        history.extend(answer.tokens);
        most = most.max(MemoryKind::ALL.iter().map(|kind| engine.memory_bytes(*kind)).sum::<usize>());
        assert!(most <= memory_bytes, "turn {turn}: {most}");
    }
    assert!(most > memory_bytes / 2, "the ceiling was never near: {most}");
}

/// Bytes for a request of `tokens` tokens, with room for `more_snapshots` more than it needs.
fn bytes_of(model: &str, tokens: usize, more_snapshots: usize) -> usize {
    let engine = engine(model, LIMITS);
    let shape = engine.network().state_shape;
    LIMITS.bytes_of(&shape, F32, tokens).unwrap() + more_snapshots * shape.snapshot_bytes(Format::F32)
}

#[test]
fn replies_that_do_not_fit_together_wait_for_each_other() {
    let memory_bytes = bytes_of("dense-tied", 600, 0) * 3 / 2;
    let mut tight = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
    let requests: Vec<EngineRequest> = (0..4).map(|seed| request(&words(500, 20 + seed), 40)).collect();
    // `answers` checks the ceiling after every step.
    let ours = answers(&mut tight, requests.clone());
    for (ours, request) in ours.iter().zip(requests) {
        assert_eq!(ours.tokens, answer(&mut engine("dense-tied", LIMITS), request).tokens);
    }
    assert_eq!(tight.check_invariants(), Ok(()));
}

#[test]
fn a_reply_for_which_there_is_no_memory_says_so_and_others_are_answered() {
    let memory_bytes = bytes_of("dense-tied", 600, 0);
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
    let requests = vec![request(&words(3000, 1), 5), request(&words(100, 2), 5)];
    let results = tries(&mut engine, requests);
    assert!(matches!(results[0], Err(Error::NoRoom { .. })), "{:?}", results[0]);
    assert_eq!(results[1].as_ref().unwrap().tokens.len(), 5);
}

#[test]
fn what_had_to_go_is_told_apart_from_what_is_new() {
    let memory_bytes = bytes_of("dense-tied", 900, 3);
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
    let first = words(500, 1);
    assert_eq!(answer(&mut engine, request(&first, 5)).report.reason, PrefillReason::Cold);
    assert_eq!(answer(&mut engine, request(&words(800, 2), 5)).report.reason, PrefillReason::Cold);
    let again = answer(&mut engine, request(&first, 5)).report;
    assert!(matches!(again.reason, PrefillReason::Evicted { known_tokens: 448.. }), "{again:?}");
}

#[test]
fn work_that_nobody_waits_for_evicts_nothing_that_a_conversation_needs() {
    let memory_bytes = bytes_of("dense-tied", 600, 0) * 2;
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
    let prompt = words(400, 1);
    let said = answer(&mut engine, request(&prompt, 10));
    let history = [&prompt[..], &said.tokens].concat();
    for (seed, priority) in (0..6).flat_map(|seed| [(seed, Priority::Speculate), (seed, Priority::Background)]) {
        let large = EngineRequest { priority, speculative: seed % 2 == 0, ..request(&words(3000, 40 + seed), 0) };
        let result = tries(&mut engine, vec![large]).pop().unwrap();
        assert!(matches!(result, Err(Error::NoRoom { .. })), "{result:?}");
        assert_eq!(engine.check_invariants(), Ok(()));
    }
    let next = [&history[..], &words(10, 2)].concat();
    let report = answer(&mut engine, request(&next, 5)).report;
    assert_eq!((report.reused_tokens, report.reason), (history.len() - 1, PrefillReason::NewText));
    // A request for which a user waits may evict it.
    assert_eq!(answer(&mut engine, request(&words(1000, 9), 5)).tokens.len(), 5);
}

#[test]
fn what_is_thinned_is_what_saves_least() {
    // One conversation with a mark every 23 tokens, and room for about a third of its snapshots.
    let memory_bytes = bytes_of("dense-tied", 1200, 14);
    let mut engine = engine("dense-tied", EngineLimits { memory_bytes, snapshot_spacing_tokens: usize::MAX, ..LIMITS });
    let history = words(1150, 1);
    answer(&mut engine, request(&history, 1));
    let mut recomputed = |at: usize| {
        let tokens = [&history[..at], &[history[at] + 1, 3, 5]].concat();
        let guess = EngineRequest { speculative: true, ..request(&tokens, 0) };
        let report = answer(&mut engine, guess).report;
        at - report.reused_tokens.min(at)
    };
    // If the oldest were evicted first, 33 marks would be missing, and 700 tokens with them.
    let (near, far): (Vec<usize>, Vec<usize>) =
        ((0..5).map(|i| recomputed(1100 - 40 * i)).collect(), (1..9).map(|i| recomputed(100 * i)).collect());
    assert!(near.iter().all(|tokens| *tokens <= 69), "{near:?}");
    assert!(far.iter().all(|tokens| *tokens <= 345), "{far:?}");
}

#[test]
fn states_that_are_kept_smaller_change_little() {
    for model in ["dense-tied", "dense-gva2", "moe"] {
        let prompt = words(150, 1);
        let exact = answer(&mut engine(model, LIMITS), request(&prompt, 1)).logprobs[0];
        // Random weights exaggerate rounding, so this checks only the order of the formats. `reprise bench drift` measures it.
        for (format, tolerance) in [(Format::F32, 1e-4), (Format::BF16, 0.02), (Format::Q8_0, 0.05)] {
            let folder = tempfile::tempdir().unwrap();
            let start = || {
                let mut engine = engine(model, EngineLimits { snapshots: format, ..LIMITS });
                engine.use_disk(disk(folder.path()));
                engine
            };
            let mut before = start();
            answer(&mut before, request(&[&prompt[..120], &words(60, 2)].concat(), 1));
            // Back to a snapshot that the log no longer covers.
            let ours = answer(&mut before, request(&prompt, 1));
            assert!(ours.report.reused_tokens >= 92, "{:?}", ours.report);
            assert!((ours.logprobs[0] - exact).abs() <= tolerance, "{model} {format:?}: {} {exact}", ours.logprobs[0]);
            before.save_all();
            drop(before);
            let restarted = answer(&mut start(), request(&prompt, 1));
            assert!(restarted.report.reused_tokens >= 115, "{:?}", restarted.report);
            let difference = (restarted.logprobs[0] - exact).abs();
            assert!(difference <= tolerance, "{model} {format:?} from disk: {difference}");
        }
    }
}
