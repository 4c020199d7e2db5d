//! Instructions and tools outlive the conversations that began with them, in memory and on disk.

use super::support::*;
use engine::{DiskLimits, Engine, EngineLimits, EngineRequest, OwnerId, PrefillReason, ReuseScope};
use kernels::format::Format;
use std::path::Path;

const HEAD: usize = 300;

fn begins_with(head: &[u32], said: &[u32]) -> EngineRequest {
    EngineRequest {
        scope: ReuseScope { user: Some(1), head_tokens: head.len(), is_head_shared: false },
        marks: vec![head.len() - 40, head.len(), head.len() + said.len()],
        fork: Some(head.len() - 40),
        ..request(&[head, said].concat(), 3)
    }
}

fn on_disk(folder: &Path) -> Engine {
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder));
    engine.read_heads();
    engine
}

fn converse(engine: &mut Engine, head: &[u32], turns: usize, seed: u32) {
    let mut said = words(12, seed);
    for turn in 0..turns as u32 {
        let answer = answer(engine, begins_with(head, &said));
        said.extend(answer.tokens.iter().chain(&words(12, seed + 1 + turn)));
        engine.save_all();
    }
}

fn engine_bytes() -> usize {
    // room for few conversations
    let state = engine("dense-tied", LIMITS).network().state_shape;
    LIMITS.bytes_of(&state, F32, 1500).unwrap()
}

fn reused(engine: &mut Engine, head: &[u32], seed: u32) -> usize {
    // Never the words of another conversation by chance.
    let said: Vec<u32> = words(12, seed).iter().map(|token| token + seed % 7).collect();
    answer(engine, begins_with(head, &said)).report.reused_tokens
}

#[test]
fn the_first_turn_after_a_restart_computes_its_own_words() {
    for snapshots in [Format::F32, Format::BF16] {
        let folder = tempfile::tempdir().unwrap();
        let head = words(HEAD, 1);
        let limits = EngineLimits { snapshots, ..LIMITS };
        let open = || {
            let mut engine = engine("dense-gva2", limits);
            engine.use_disk(disk(folder.path()));
            engine.read_heads();
            engine
        };
        let mut evening = open();
        converse(&mut evening, &head, 8, 20);
        drop(evening);
        let mut morning = open();
        let said = words(12, 90);
        let warm = answer(&mut morning, begins_with(&head, &said));
        assert_eq!((warm.report.reused_tokens, warm.report.reason), (HEAD, PrefillReason::NewText));
        morning.check_invariants().unwrap();
        if snapshots == Format::F32 {
            assert_eq!(warm.tokens, answer(&mut engine("dense-gva2", limits), begins_with(&head, &said)).tokens);
        }
        assert_eq!(morning.take_notes(), [""; 0]);
    }
}

#[test]
fn conversations_are_evicted_before_the_head_with_which_they_began() {
    let head = words(HEAD, 1);
    for is_proven in [false, true] {
        let mut engine = engine("dense-tied", EngineLimits { memory_bytes: engine_bytes() * 3 / 2, ..LIMITS });
        converse(&mut engine, &head, 3, 20);
        if is_proven {
            assert_eq!(reused(&mut engine, &head, 60), HEAD);
        }
        // Without instructions: nothing of them is a head.
        for seed in 0..30 {
            answer(&mut engine, request(&words(700, 200 + seed), 3));
            engine.check_invariants().unwrap();
        }
        assert_eq!(reused(&mut engine, &head, 70), HEAD, "proven: {is_proven}");
    }
}

#[test]
fn a_third_room_begins_where_the_second_differed() {
    let folder = tempfile::tempdir().unwrap();
    let home = words(HEAD - 30, 1);
    let room =
        |number: u32| [&home[..], &words(30, 300 + number).iter().map(|t| t + number).collect::<Vec<_>>()].concat();
    let mut engine = on_disk(folder.path());
    converse(&mut engine, &room(1), 3, 20);
    drop(engine);
    // After the restart no log reaches back to the place.
    let mut engine = on_disk(folder.path());
    assert_eq!(reused(&mut engine, &room(2), 40), HEAD - 40, "where the caller supposed that it may differ");
    assert_eq!(reused(&mut engine, &room(3), 50), home.len());
    for (known, seed) in [(1, 60), (2, 61), (3, 62)] {
        assert_eq!(reused(&mut engine, &room(known), seed), HEAD, "room {known}");
    }
    engine.check_invariants().unwrap();
    engine.save_all();
    drop(engine);
    let mut engine = on_disk(folder.path());
    assert_eq!(reused(&mut engine, &room(4), 70), home.len(), "the place is on disk");
    assert_eq!(reused(&mut engine, &room(2), 71), HEAD);
    engine.check_invariants().unwrap();
}

#[test]
fn a_head_with_which_a_second_conversation_began_outlives_those_that_came_once() {
    let homes = words(HEAD, 1);
    let memory_bytes = engine_bytes() * 5 / 2;
    for is_proven in [false, true] {
        let mut engine = engine("dense-tied", EngineLimits { memory_bytes, ..LIMITS });
        converse(&mut engine, &homes, 2, 20);
        if is_proven {
            assert_eq!(reused(&mut engine, &homes, 40), HEAD);
        }
        // A client with the time in its instructions: each of its prompts has a head of its own.
        for seed in 0..10 {
            answer(&mut engine, begins_with(&words(HEAD, 100 + seed), &words(12, seed)));
        }
        for seed in 0..60 {
            answer(&mut engine, request(&words(700, 200 + seed), 3));
        }
        assert_eq!(reused(&mut engine, &homes, 50), if is_proven { HEAD } else { 0 });
        engine.check_invariants().unwrap();
    }
}

#[test]
fn a_head_goes_with_the_last_owner_that_used_it() {
    let folder = tempfile::tempdir().unwrap();
    let head = words(HEAD, 1);
    let (ann, bob) = (OwnerId(0xa), OwnerId(0xb));
    let ask = |owner, seed| EngineRequest { owner, ..begins_with(&head, &words(12, seed)) };
    let mut engine = on_disk(folder.path());
    answer(&mut engine, ask(Some(ann), 20));
    answer(&mut engine, ask(Some(bob), 30));
    engine.save_all();
    engine.forget(ann);
    assert_eq!(answer(&mut engine, ask(Some(bob), 40)).report.reused_tokens, HEAD);
    engine.save_all();
    engine.forget(bob);
    engine.check_invariants().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    assert_eq!(answer(&mut engine, ask(Some(ann), 50)).report.reused_tokens, 0);
    // A request without an owner leaves it to all.
    answer(&mut engine, ask(None, 60));
    engine.forget(ann);
    assert_eq!(answer(&mut engine, ask(Some(bob), 70)).report.reused_tokens, HEAD);
    engine.check_invariants().unwrap();
}

#[test]
fn on_disk_conversations_go_before_heads() {
    let folder = tempfile::tempdir().unwrap();
    let head = words(HEAD, 1);
    let mut engine = on_disk(folder.path());
    converse(&mut engine, &head, 3, 20);
    let bytes = || -> u64 {
        let files = std::fs::read_dir(folder.path()).unwrap();
        files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    let max_bytes = bytes() * 3;
    drop(engine);
    let mut engine = self::engine("dense-gva2", LIMITS);
    engine.use_disk(DiskLimits { max_bytes, ..disk(folder.path()) });
    for seed in 0..12 {
        answer(&mut engine, request(&words(HEAD, 100 + seed), 3));
        engine.save_all();
    }
    assert!(bytes() <= max_bytes && bytes() > max_bytes / 2, "{} of {max_bytes}", bytes());
    drop(engine);
    let mut engine = on_disk(folder.path());
    assert_eq!(reused(&mut engine, &head, 50), HEAD);
}

/// A conversation that continues beside another one with the same head has not left it.
#[test]
fn two_conversations_with_one_head_are_both_kept() {
    let folder = tempfile::tempdir().unwrap();
    let head = words(HEAD, 1);
    let mut engine = on_disk(folder.path());
    let first = answer(&mut engine, begins_with(&head, &words(40, 20)));
    answer(&mut engine, begins_with(&head, &words(40, 30)));
    engine.save_all();
    drop(engine);
    let mut engine = on_disk(folder.path());
    let said = [&words(40, 20)[..], &first.tokens, &words(5, 40)].concat();
    let report = answer(&mut engine, begins_with(&head, &said)).report;
    assert!(report.reused_tokens >= HEAD + 40, "{report:?}");
}
