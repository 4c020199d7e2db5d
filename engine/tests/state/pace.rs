//! Steps of a slow model are short where another request would wait for their end.

use super::support::*;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, Priority, RequestId};
use std::time::Duration;

const PROMPT: usize = 300;

fn slow() -> Engine {
    let mut engine = engine("dense-gva2", EngineLimits { max_sequences: 32, ..LIMITS });
    engine.keep_pace(Duration::from_millis(200));
    engine.submit(request(&words(64, 1), 1)).unwrap();
    engine.step(&mut Vec::new());
    engine.took(Duration::from_millis(64 * 16));
    while engine.step(&mut Vec::new()) {}
    engine
}

fn steps_to_the_first_word(engine: &mut Engine, id: RequestId) -> usize {
    for steps in 1.. {
        let mut events = Vec::new();
        engine.step(&mut events);
        if events.iter().any(|event| matches!(event, EngineEvent::Token(token) if token.id == id)) {
            return steps;
        }
    }
    unreachable!()
}

#[test]
fn a_prompt_takes_short_steps_where_others_wait() {
    let long = request(&words(PROMPT, 2), 1);
    let mut alone = slow();
    let id = alone.submit(long.clone()).unwrap();
    assert_eq!(steps_to_the_first_word(&mut alone, id), PROMPT.div_ceil(50));

    // As many write as a step has tokens of a prompt.
    let mut shared = slow();
    let writers: Vec<RequestId> = (0..16).map(|at| shared.submit(request(&words(9, 10 + at), 60)).unwrap()).collect();
    for writer in writers {
        steps_to_the_first_word(&mut shared, writer);
    }
    let id = shared.submit(long.clone()).unwrap();
    assert_eq!(steps_to_the_first_word(&mut shared, id), PROMPT.div_ceil(16));

    let mut background = slow();
    let id = background.submit(EngineRequest { priority: Priority::Background, ..long }).unwrap();
    assert_eq!(steps_to_the_first_word(&mut background, id), PROMPT.div_ceil(16));
}

#[test]
fn work_in_the_background_leaves_out_the_steps_to_a_first_word() {
    let mut engine = slow();
    let background = |seed| EngineRequest { priority: Priority::Background, ..request(&words(20, seed), 1) };
    let first = engine.submit(background(3)).unwrap();
    steps_to_the_first_word(&mut engine, first);
    engine.took(Duration::from_secs(60));
    let talk = engine.submit(request(&words(40, 4), 60)).unwrap();
    let second = engine.submit(background(5)).unwrap();
    let (mut events, mut first_words, mut ended) = (Vec::new(), Vec::new(), None);
    for step in 0.. {
        let more = engine.step(&mut events);
        for event in events.drain(..) {
            match event {
                EngineEvent::Token(token) if !first_words.iter().any(|(id, _)| *id == token.id) => {
                    first_words.push((token.id, step));
                }
                EngineEvent::Done { id, .. } if id == talk => ended = Some(step),
                _ => {}
            }
        }
        if !more {
            break;
        }
    }
    let [(first, spoke), (then, wrote)] = first_words[..] else { panic!("{first_words:?}") };
    assert_eq!([first, then], [talk, second]);
    assert!(spoke < wrote && ended.is_some_and(|ended| wrote < ended), "{spoke}, {wrote}, {ended:?}");
}
