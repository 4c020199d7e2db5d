//! Reuse of computed sequences: by whom, when, and what reports say about it.

use super::support::*;
use engine::sampling::SamplingOptions;
use engine::state::KvFormats;
use engine::{Engine, EngineEvent, EngineLimits, EngineRequest, PrefillReason, Priority, ReuseScope, StopReason};
use kernels::format::Format;

#[test]
fn what_was_computed_is_not_computed_again() {
    let mut engine = engine("dense-tied", LIMITS);
    let prompt = words(150, 1);
    let first = answer(&mut engine, request(&prompt, 10));
    assert_eq!((first.report.reason, first.report.computed_tokens), (PrefillReason::Cold, 150));

    // The next turn: prompt, reply, new text. The last token of the reply was never computed.
    let mut next = [&prompt[..], &first.tokens].concat();
    next.extend(words(20, 2));
    let second = answer(&mut engine, request(&next, 10));
    assert_eq!((second.report.reason, second.report.reused_tokens), (PrefillReason::NewText, 159));

    // The same again: all but the last token is cached.
    let again = answer(&mut engine, request(&next, 10));
    assert_eq!(again.tokens, second.tokens);
    assert_eq!(again.report.reused_tokens, next.len() - 1);

    // A barge-in: the reply is cut where no mark is, and other tokens follow.
    let mut cut = [&next[..], &second.tokens[..4]].concat();
    let heard = cut.len();
    cut.extend(words(9, 3).iter().map(|token| token + 3));
    let third = answer(&mut engine, request(&cut, 5));
    assert_eq!((third.report.reused_tokens, third.report.reason), (heard, PrefillReason::NewText));

    // A change before the reply is an edit.
    let mut edited = next.clone();
    edited[155] += 1;
    assert_eq!(answer(&mut engine, request(&edited, 1)).report.reason, PrefillReason::Edited { at: 155 });

    // The branch that was left is still cached.
    let back = answer(&mut engine, request(&next, 10));
    assert_eq!((back.tokens, back.report.computed_tokens), (second.tokens, 1));
}

/// A user that guesses the words of another user learns from no count how far the guess agrees.
#[test]
fn what_one_user_said_is_not_known_to_another() {
    let instructions = words(46, 1);
    let ask = |user: Option<u64>, head_tokens: usize, said: &[u32]| EngineRequest {
        scope: ReuseScope { user, head_tokens, is_head_shared: true },
        ..request(&[&instructions[..], said].concat(), 1)
    };
    let secret = words(100, 2);
    for saved in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = engine("dense-tied", LIMITS);
        engine.use_disk(disk(folder.path()));
        answer(&mut engine, ask(Some(1), 46, &secret));
        if saved {
            engine.save_all();
            drop(engine);
            engine = self::engine("dense-tied", LIMITS);
            engine.use_disk(disk(folder.path()));
        }
        let half = [&secret[..50], &words(50, 3)].concat();
        for (user, guess) in [(Some(2), &secret), (Some(3), &half), (Some(4), &words(100, 4)), (None, &secret)] {
            let report = answer(&mut engine, ask(user, 46, guess)).report;
            // A file says where its instructions end.
            let expected = (46, PrefillReason::NewText);
            assert_eq!((report.reused_tokens, report.reason), expected, "{user:?}, from disk: {saved}");
        }
        // A part of the instructions is no more shared than the user's words.
        let report = answer(&mut engine, ask(Some(5), 23, &secret)).report;
        assert_eq!((report.reused_tokens, report.reason), (0, PrefillReason::Cold));
        let again = answer(&mut engine, ask(Some(1), 46, &secret)).report;
        // From disk it is reused from a mark.
        assert_eq!(again.reused_tokens, if saved { 138 } else { 145 }, "it is still there for its user");
    }
}

/// Equal instructions that two users wrote themselves tell neither of the other.
#[test]
fn instructions_that_a_user_wrote_are_not_known_to_another() {
    let instructions = words(46, 1);
    let ask = |user: u64, is_head_shared: bool, said: &[u32]| EngineRequest {
        scope: ReuseScope { user: Some(user), head_tokens: 46, is_head_shared },
        ..request(&[&instructions[..], said].concat(), 1)
    };
    for saved in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut engine = engine("dense-tied", LIMITS);
        engine.use_disk(disk(folder.path()));
        answer(&mut engine, ask(1, false, &words(30, 2)));
        if saved {
            engine.save_all();
            drop(engine);
            engine = self::engine("dense-tied", LIMITS);
            engine.use_disk(disk(folder.path()));
        }
        // Not to one that wrote the same, nor to one whose instructions are the configuration's.
        for (user, is_head_shared) in [(2, false), (3, true)] {
            let report = answer(&mut engine, ask(user, is_head_shared, &words(30, 3))).report;
            assert_eq!((report.reused_tokens, report.reason), (0, PrefillReason::Cold), "{user}, from disk: {saved}");
        }
        let own = answer(&mut engine, ask(1, false, &words(30, 4))).report;
        assert_eq!(own.reused_tokens, 46, "its own user goes on from it");
        let configured = answer(&mut engine, ask(4, true, &words(30, 5))).report;
        assert_eq!(configured.reused_tokens, 46, "what the configuration wrote is shared");
    }
}

#[test]
fn marks_are_remembered_without_a_step_for_each() {
    for snapshots in [Format::F32, Format::BF16, Format::Q8_0] {
        let mut engine = engine("dense-tied", EngineLimits { recurrence_log_tokens: 0, snapshots, ..LIMITS });
        let prompt = words(60, 1);
        let ask = |tokens: &[u32]| EngineRequest { marks: vec![20, 24, 41, 60], ..request(tokens, 1) };
        engine.submit(ask(&prompt)).unwrap();
        let (mut steps, mut events) = (1, Vec::new());
        while engine.step(&mut events) {
            steps += 1;
        }
        assert_eq!(steps, 1, "{} tokens are one step", prompt.len());
        // 20 and 24 are so near to each other that one snapshot is enough.
        for (at, reused) in [(59, 41), (42, 41), (40, 20), (23, 20), (19, 0)] {
            let mut other = prompt.clone();
            other[at] += 1;
            let mut cold = self::engine("dense-tied", EngineLimits { snapshots, ..LIMITS });
            let (warm, cold) = (answer(&mut engine, ask(&other)), answer(&mut cold, ask(&other)));
            assert_eq!((warm.report.reused_tokens, warm.tokens), (reused, cold.tokens), "changed at {at}");
        }
    }
}

#[test]
fn ten_sessions_hold_one_persona_once() {
    let mut engine = engine("dense-tied", LIMITS);
    let persona = words(600, 1);
    for session in 0..10 {
        let tokens = [&persona[..], &words(12, 50 + session)].concat();
        let mut request = request(&tokens, 4);
        request.marks = vec![persona.len()];
        let answer = answer(&mut engine, request);
        let new = if session == 0 { 612 } else { 12 };
        // The first new token may be that of another session by chance.
        assert!((new - 2..=new).contains(&answer.report.computed_tokens), "session {session}: {:?}", answer.report);
    }
}

#[test]
fn a_running_sequence_can_be_branched_from() {
    let mut engine = engine("dense-tied", LIMITS);
    let persona = words(200, 1);
    let mut first = request(&[&persona[..], &words(5, 2)].concat(), 30);
    first.marks = vec![200];
    engine.submit(first).unwrap();
    let mut events = Vec::new();
    for _ in 0..10 {
        engine.step(&mut events);
    }
    let second = answer(&mut engine, request(&[&persona[..], &words(5, 3)].concat(), 3));
    assert!(second.report.reused_tokens >= 200, "{:?}", second.report);
}

#[test]
fn talk_goes_first_and_a_cancel_is_heard_within_a_step() {
    let mut engine = engine("dense-tied", EngineLimits { max_sequences: 1, ..LIMITS });
    let slow = EngineRequest { priority: Priority::Background, ..request(&words(2000, 1), 5) };
    let slow = engine.submit(slow).unwrap();
    let mut events = Vec::new();
    engine.step(&mut events);
    let talk = engine.submit(request(&words(30, 2), 3)).unwrap();
    events.clear();
    let mut done = Vec::new();
    while done.len() < 2 {
        engine.step(&mut events);
        for event in events.drain(..) {
            if let EngineEvent::Done { id, .. } = event {
                done.push(id);
                if id == talk {
                    engine.cancel(slow);
                }
            }
        }
    }
    assert_eq!(done, [talk, slow]);
    // The part that the background request had computed before it was suspended is reused.
    let mut again = request(&words(2000, 1), 1);
    again.marks.clear();
    assert!(answer(&mut engine, again).report.reused_tokens >= 5);
}

/// Users talk without a pause, on all lanes: less urgent requests end nevertheless, and
/// take few of the steps.
#[test]
fn no_class_of_requests_starves() {
    for (priority, max_sequences) in [(Priority::Background, 4), (Priority::Speculate, 4), (Priority::Background, 2)] {
        let mut engine = engine("dense-tied", EngineLimits { max_sequences, ..LIMITS });
        let mut talks = 0;
        let mut talk = |engine: &mut Engine| {
            talks += 1;
            engine.submit(request(&words(20, talks), 60)).unwrap()
        };
        talk(&mut engine);
        talk(&mut engine);
        talk(&mut engine);
        let waiting = engine.submit(EngineRequest { priority, ..request(&words(100, 1), 5) }).unwrap();
        let (mut events, mut said, mut steps) = (Vec::new(), 0, 0);
        while !events.iter().any(|event| matches!(event, EngineEvent::Done { id, .. } if *id == waiting)) {
            events.clear();
            engine.step(&mut events);
            steps += 1;
            assert!(steps < 2000, "{priority:?} with {max_sequences} places has no end");
            for event in &events {
                match event {
                    EngineEvent::Done { id, .. } if *id != waiting => drop(talk(&mut engine)),
                    EngineEvent::Token(token) if token.id != waiting => said += 1,
                    _ => {}
                }
            }
        }
        assert!(said >= steps, "{priority:?}: {said} tokens said in {steps} steps");
    }
}

/// Summaries of a full house, whose users talk without a pause: one comes to its end, then the next.
#[test]
fn work_in_the_background_ends_in_the_order_in_which_it_came() {
    let mut engine = engine("dense-tied", EngineLimits { max_sequences: 4, ..LIMITS });
    let mut talks = 0;
    let mut talk = |engine: &mut Engine| {
        talks += 1;
        engine.submit(request(&words(20, talks), 60)).unwrap()
    };
    for _ in 0..3 {
        talk(&mut engine);
    }
    let background =
        |seed: u32| EngineRequest { priority: Priority::Background, ..request(&words(100, 500 + seed), 10) };
    let waiting: Vec<_> = (0..8).map(|seed| engine.submit(background(seed)).unwrap()).collect();
    let (mut events, mut ended, mut steps) = (Vec::new(), Vec::new(), 0);
    while ended.len() < waiting.len() {
        engine.step(&mut events);
        steps += 1;
        assert!(steps < 8 * 1000, "{} of them have ended", ended.len());
        for event in events.drain(..) {
            if let EngineEvent::Done { id, .. } = event {
                match waiting.contains(&id) {
                    true => ended.push((id, steps)),
                    false => _ = talk(&mut engine),
                }
            }
        }
    }
    let order: Vec<_> = ended.iter().map(|(id, _)| *id).collect();
    assert_eq!(order, waiting);
    assert!(ended[0].1 * 8 < steps * 2, "the first took {} steps, all {steps}", ended[0].1);
}

/// A request that begins copies a state, and every request in the same step waits for that.
#[test]
fn what_is_not_computed_does_not_begin() {
    let mut engine = engine("dense-tied", LIMITS);
    let talk = engine.submit(request(&words(20, 1), 5)).unwrap();
    let ahead = EngineRequest { priority: Priority::Speculate, speculative: true, ..request(&words(30, 2), 0) };
    let ahead = engine.submit(ahead).unwrap();
    let (mut events, mut order) = (Vec::new(), Vec::new());
    while engine.step(&mut events) {}
    for event in &events {
        match event {
            EngineEvent::Started { id, .. } => order.push((*id, "begins")),
            EngineEvent::Done { id, .. } => order.push((*id, "ends")),
            _ => {}
        }
    }
    assert_eq!(order, [(talk, "begins"), (talk, "ends"), (ahead, "begins"), (ahead, "ends")]);
}

#[test]
fn words_that_may_never_be_asked_for_wait_for_prompts_and_give_them_their_place() {
    for max_sequences in [1, 4] {
        let mut engine = engine("dense-tied", EngineLimits { max_sequences, ..LIMITS });
        let ahead = |tokens: &[u32], reply| EngineRequest {
            priority: Priority::Speculate,
            speculative: true,
            ..request(tokens, reply)
        };
        let early = engine.submit(ahead(&words(40, 1), 12)).unwrap();
        let (mut events, mut said) = (Vec::new(), Vec::new());
        let words_of = |events: &[EngineEvent]| {
            let of = |event: &EngineEvent| if let EngineEvent::Token(token) = event { Some(token.token) } else { None };
            events.iter().filter_map(of).collect::<Vec<_>>()
        };
        while words_of(&events).len() < 3 {
            engine.step(&mut events);
        }
        said.extend(words_of(&std::mem::take(&mut events)));
        let prompt = engine.submit(ahead(&words(60, 2), 0)).unwrap();
        let is_end = |event: &EngineEvent, of| matches!(event, EngineEvent::Done { id, .. } if *id == of);
        while !events.iter().any(|event| is_end(event, prompt)) {
            engine.step(&mut events);
            assert!(words_of(&events).is_empty(), "{max_sequences} places");
        }
        while !events.iter().any(|event| is_end(event, early)) {
            engine.step(&mut events);
        }
        said.extend(words_of(&events));
        assert_eq!(said, answer(&mut self::engine("dense-tied", LIMITS), request(&words(40, 1), 12)).tokens);
    }
}

#[test]
fn what_nobody_waits_for_goes_in_smaller_steps() {
    for (priority, tokens) in
        [(Priority::Talk, LIMITS.prefill_chunk_tokens), (Priority::Background, LIMITS.prefill_chunk_tokens / 4)]
    {
        let mut engine = engine("dense-tied", LIMITS);
        let id = engine.submit(EngineRequest { priority, ..request(&words(192, 1), 5) }).unwrap();
        let mut events = Vec::new();
        engine.step(&mut events);
        engine.cancel(id);
        engine.step(&mut events);
        let reports = events.iter().filter_map(|event| match event {
            EngineEvent::Done { report, .. } => Some(report.computed_tokens),
            _ => None,
        });
        assert_eq!(reports.collect::<Vec<_>>(), [tokens], "{priority:?}");
    }
}

#[test]
fn bad_requests_are_refused_with_words() {
    let mut engine = engine("dense-tied", EngineLimits { max_waiting: 1, ..LIMITS });
    let refused = |engine: &mut Engine, request| engine.submit(request).unwrap_err().to_string();
    assert!(refused(&mut engine, request(&[], 1)).contains("no token"));
    assert!(refused(&mut engine, request(&[512], 1)).contains("vocabulary of 512"));
    assert!(refused(&mut engine, EngineRequest { ctx_size: 10, ..request(&words(10, 1), 1) }).contains("window is 10"));
    let sampling = SamplingOptions { top_p: 7.0, ..SamplingOptions::default() };
    assert!(refused(&mut engine, EngineRequest { sampling, ..request(&words(10, 1), 1) }).contains("top_p"));
    engine.submit(request(&words(10, 1), 1)).unwrap();
    assert!(refused(&mut engine, request(&words(10, 1), 1)).contains("wait already"));
}

#[test]
fn the_window_ends_a_reply() {
    let mut engine = engine("dense-tied", LIMITS);
    let full = answer(&mut engine, EngineRequest { ctx_size: 55, ..request(&words(50, 1), 100) });
    assert_eq!(full.tokens.len(), 5);
    assert!(matches!(full.stop_reason, Some(StopReason::Window { .. })));
}

#[test]
fn an_edit_is_told_with_its_place_also_where_no_state_is_near() {
    let mut engine = engine("dense-tied", EngineLimits { snapshot_spacing_tokens: 200, ..LIMITS });
    let mut prompt = words(600, 1);
    for at in [4, 250] {
        let mut ask = request(&prompt, 2);
        ask.marks.clear();
        answer(&mut engine, ask.clone());
        ask.tokens[at] += 1;
        let report = answer(&mut engine, ask).report;
        assert_eq!(report.reason, PrefillReason::Edited { at }, "{report:?}");
        prompt = words(600, 2);
    }
    // Another prompt with the same first tokens.
    let other = [&words(600, 1)[..4], &words(300, 9)].concat();
    assert_eq!(answer(&mut engine, request(&other, 2)).report.reason, PrefillReason::Cold);
}

#[test]
fn speculation_is_replaced_as_it_changes() {
    let mut engine = engine("dense-tied", LIMITS);
    let history = words(300, 1);
    answer(&mut engine, request(&history, 1));
    for heard in 1..30 {
        let partial = [&history[..], &words(heard, 7)].concat();
        let guess = EngineRequest { priority: Priority::Speculate, speculative: true, ..request(&partial, 0) };
        let report = answer(&mut engine, guess).report;
        assert!(report.computed_tokens <= 1, "{report:?}");
        // The conversation and one speculative prompt.
        assert!(engine.cached_sequences() <= 2, "{} lines", engine.cached_sequences());
    }
    // The speculation was wrong in its last token.
    let said = [&history[..], &words(28, 7), &[499, 3]].concat();
    assert_eq!(answer(&mut engine, request(&said, 5)).report.computed_tokens, 2);
}

#[test]
fn a_long_reply_can_be_gone_back_to_where_it_was_marked_and_at_the_spacing() {
    let mark_at = 30;
    for (spacing, marks) in [(usize::MAX, true), (40, false)] {
        let mut engine = engine("dense-tied", EngineLimits { snapshot_spacing_tokens: spacing, ..LIMITS });
        let mut ask = request(&words(50, 1), 200);
        ask.marks = vec![50];
        let prompt = ask.tokens.clone();
        let id = engine.submit(ask).unwrap();
        let (mut events, mut reply) = (Vec::new(), Vec::new());
        while engine.step(&mut events) {
            for event in events.drain(..) {
                if let EngineEvent::Token(token) = event {
                    reply.push(token.token);
                    if marks && reply.len() == mark_at {
                        engine.mark(id);
                    }
                }
            }
        }
        // Far before the log, which has the last 32 tokens.
        let mut back_to = |heard: usize| {
            let tokens = [&prompt[..], &reply[..heard], &[7, 8, 9]].concat();
            answer(&mut engine, request(&tokens, 1)).report.reused_tokens
        };
        // The last chosen token was not computed yet when the mark was set.
        let marked = 50 + mark_at - 1;
        assert_eq!((back_to(100), back_to(mark_at + 8)), if marks { (marked, marked) } else { (130, 50) });
    }
}

#[test]
fn a_grammar_shapes_the_reply() {
    let mut engine = engine("dense-wide", LIMITS);
    let schema = serde_json::json!({
        "type": "object", "additionalProperties": false, "required": ["on", "level"],
        "properties": {"on": {"type": "boolean"}, "level": {"type": "integer", "minimum": 0, "maximum": 9}},
    });
    for seed in 0..5 {
        let grammar = Some(text::grammar::Grammar::json_schema(&schema).unwrap());
        let sampling = SamplingOptions { temperature: 1.0, logprobs: Some(0), ..SamplingOptions::default() };
        let request = EngineRequest { grammar, sampling, seed, ignore_eos: false, ..request(&words(20, 1), 60) };
        let answer = answer(&mut engine, request);
        assert!(matches!(answer.stop_reason, Some(StopReason::End { .. })), "{:?}", answer.stop_reason);
        let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(value["on"].is_boolean() && (0..10).contains(&value["level"].as_i64().unwrap()), "{value}");
    }
}

#[test]
fn every_format_of_keys_and_values_gives_nearly_the_same() {
    use Format::*;
    let formats = [F16, BF16, Q8_0, Q4_0, TQ4, TQ3];
    let mut engine = engine("dense-wide", LIMITS);
    let exact = answer(&mut engine, request(&words(300, 1), 1)).logprobs[0];
    for (key, value) in formats.iter().flat_map(|key| formats.iter().map(move |value| (*key, *value))) {
        let ours = answer(&mut engine, EngineRequest { kv: KvFormats::new(key, value), ..request(&words(300, 1), 1) });
        // Random weights exaggerate rounding, so this checks only the order of the formats.
        let tolerance = match [key, value] {
            pair if pair.contains(&TQ3) => 3.0,
            pair if pair.contains(&Q4_0) || pair.contains(&TQ4) => 1.5,
            _ => 0.1,
        };
        assert!((ours.logprobs[0] - exact).abs() < tolerance, "{key:?} {value:?}: {} and {exact}", ours.logprobs[0]);
        // A sequence in another format is not reused.
        assert_eq!(ours.report.reused_tokens, 0);
    }
}

#[test]
fn a_bias_for_too_many_tokens_is_refused() {
    let mut engine = engine("dense-tied", LIMITS);
    let with = |count: u32| {
        let mut request = request(&[1, 2, 3], 2);
        request.sampling.logit_bias = (0..count).map(|token| (token, -1.0)).collect();
        request
    };
    assert_eq!(answers(&mut engine, vec![with(8)])[0].tokens.len(), 2);
    let message = engine.submit(with(9)).unwrap_err().to_string();
    assert!(message.contains("logit_bias names 9 tokens, and 8 may have one"), "{message}");
}
