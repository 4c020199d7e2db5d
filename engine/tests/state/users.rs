//! Several users at one engine: places in the batch and in the queue go round.

use crate::support::{LIMITS, answer, engine, request, run, words};
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, Error, Priority, RequestId};

const BOB: u64 = 1;
const ALICE: u64 = 2;
const CAROL: u64 = 3;

fn of(user: u64, request: EngineRequest) -> EngineRequest {
    EngineRequest { user: Some(user), ..request }
}

fn ask(engine: &mut Engine, user: u64, seed: u32, reply: usize) -> RequestId {
    engine.submit(of(user, request(&words(12, seed), reply))).unwrap()
}

fn begun(events: &[EngineEvent]) -> Vec<RequestId> {
    let id = |event: &EngineEvent| if let EngineEvent::Started { id, .. } = event { Some(*id) } else { None };
    events.iter().filter_map(id).collect()
}

fn ended(events: &[EngineEvent]) -> Vec<RequestId> {
    let id = |event: &EngineEvent| if let EngineEvent::Done { id, .. } = event { Some(*id) } else { None };
    events.iter().filter_map(id).collect()
}

#[test]
fn users_take_turns_at_a_place() {
    let mut engine = engine("dense-tied", EngineLimits { max_sequences: 1, ..LIMITS });
    let bob: Vec<_> = (0..5).map(|seed| ask(&mut engine, BOB, seed, 3)).collect();
    let alice: Vec<_> = (5..7).map(|seed| ask(&mut engine, ALICE, seed, 3)).collect();
    let carol = ask(&mut engine, CAROL, 7, 3);
    let mut events = Vec::new();
    while engine.step(&mut events) {}
    engine.step(&mut events);
    let order = [bob[0], alice[0], carol, bob[1], alice[1], bob[2], bob[3], bob[4]];
    assert_eq!(ended(&events), order);
}

#[test]
fn a_user_gets_a_place_beside_the_crowd_of_another_whose_replies_stay_whole() {
    const LONG: usize = 60;
    let mut engine = engine("dense-tied", LIMITS);
    let crowd: Vec<_> = (0..12).map(|seed| ask(&mut engine, BOB, seed, LONG)).collect();
    let mut events = Vec::new();
    for _ in 0..10 {
        engine.step(&mut events);
    }
    assert_eq!(begun(&std::mem::take(&mut events)), crowd[..LIMITS.max_sequences]);
    let alice = ask(&mut engine, ALICE, 100, 3);
    for _ in 0..4 {
        engine.step(&mut events);
    }
    assert_eq!((begun(&events), ended(&events)), (vec![alice], vec![alice]));
    // The newest of the crowd waited meanwhile, and goes on before those that came after it.
    let answers = run(&mut engine, &crowd, |_, _| ());
    for (seed, told) in answers.into_iter().enumerate() {
        let rest = told.unwrap().tokens;
        let whole = answer(&mut self::engine("dense-tied", LIMITS), request(&words(12, seed as u32), LONG)).tokens;
        assert!(whole.ends_with(&rest) && !rest.is_empty(), "reply {seed}");
    }
}

#[test]
fn work_that_waited_long_does_not_keep_its_user_from_a_place() {
    let mut engine = engine("dense-tied", LIMITS);
    for seed in 0..12 {
        ask(&mut engine, BOB, seed, 300);
    }
    let mut events = Vec::new();
    engine.step(&mut events);
    for priority in [Priority::Speculate, Priority::Background] {
        engine.submit(of(ALICE, EngineRequest { priority, ..request(&words(200, 50), 0) })).unwrap();
    }
    for _ in 0..150 {
        engine.step(&mut events);
    }
    events.clear();
    let alice = ask(&mut engine, ALICE, 100, 3);
    for _ in 0..6 {
        engine.step(&mut events);
    }
    assert!(ended(&events).contains(&alice));
}

#[test]
fn places_go_to_and_fro_between_no_two_users() {
    let mut engine = engine("dense-tied", LIMITS);
    for seed in 0..20 {
        ask(&mut engine, BOB, seed, 40);
    }
    let mut events = Vec::new();
    engine.step(&mut events);
    for seed in 20..40 {
        ask(&mut engine, ALICE, seed, 40);
    }
    // Steps in which each of both has as many places as the other: four replies, a token each.
    let (mut steps, mut tokens) = (0, 0);
    while ended(&events).is_empty() {
        events.clear();
        engine.step(&mut events);
        steps += 1;
        tokens += events.iter().filter(|event| matches!(event, EngineEvent::Token(_))).count();
        assert!(steps < 200);
    }
    assert!(tokens >= 4 * (steps - 2), "{tokens} tokens in {steps} steps");
}

#[test]
fn a_short_prompt_does_not_wait_for_the_long_ones_of_another_user() {
    let mut engine = engine("dense-tied", LIMITS);
    for seed in 0..3 {
        engine.submit(of(BOB, request(&words(2000, seed), 1))).unwrap();
    }
    let mut events = Vec::new();
    engine.step(&mut events);
    let alice = ask(&mut engine, ALICE, 100, 1);
    engine.step(&mut events);
    assert_eq!(ended(&events), [alice]);
}

#[test]
fn a_full_queue_refuses_the_newest_of_the_user_with_the_most() {
    let mut engine = engine("dense-tied", EngineLimits { max_waiting: 4, ..LIMITS });
    let bob: Vec<_> = (0..4).map(|seed| ask(&mut engine, BOB, seed, 2)).collect();
    let refused = |engine: &mut Engine, user| engine.submit(of(user, request(&words(9, 50), 2))).unwrap_err();
    assert!(matches!(refused(&mut engine, BOB), Error::Busy { waiting: 4 }), "one user may have the whole queue");
    let alice = [ask(&mut engine, ALICE, 10, 2), ask(&mut engine, ALICE, 11, 2)];
    assert!(matches!(refused(&mut engine, ALICE), Error::Busy { waiting: 4 }), "both have as many");
    // Another class has a queue of its own.
    let summary = EngineRequest { priority: Priority::Background, ..request(&words(9, 60), 2) };
    let summary = engine.submit(of(BOB, summary)).unwrap();
    let mut events = Vec::new();
    while engine.step(&mut events) {}
    engine.step(&mut events);
    let failed = |event: &EngineEvent| match event {
        EngineEvent::Failed { id, error } => Some((*id, error.to_string())),
        _ => None,
    };
    let failed: Vec<_> = events.iter().filter_map(failed).collect();
    assert_eq!(failed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [bob[3], bob[2]]);
    assert!(failed.iter().all(|(_, error)| error.contains("4 requests wait already")), "{failed:?}");
    let mut answered = ended(&events);
    answered.sort();
    assert_eq!(answered, [bob[0], bob[1], alice[0], alice[1], summary]);
}

/// Two users, each with a new request as soon as its last one ended, and one with two requests at once.
#[test]
fn no_user_starves() {
    for max_sequences in [1, 2] {
        let mut engine = engine("dense-tied", EngineLimits { max_sequences, ..LIMITS });
        let mut running = [ask(&mut engine, BOB, 0, 3), ask(&mut engine, CAROL, 1, 3)];
        let mut alice: Vec<_> = (2..5).map(|seed| ask(&mut engine, ALICE, seed, 3)).collect();
        let (mut events, mut others) = (Vec::new(), 0);
        while !alice.is_empty() {
            events.clear();
            engine.step(&mut events);
            for id in ended(&events) {
                alice.retain(|other| *other != id);
                if let Some(at) = running.iter().position(|other| *other == id) {
                    others += 1;
                    running[at] = ask(&mut engine, [BOB, CAROL][at], 10 + others, 3);
                }
            }
            assert!(others < 12, "{} of her requests wait", alice.len());
        }
        assert!(others >= 3, "{max_sequences} places: the others had {others} turns");
    }
}
