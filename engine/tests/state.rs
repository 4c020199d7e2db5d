//! What is reused must not change what is answered: random histories against an engine that remembers nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::memory::Kind;
use engine::network::Network;
use engine::sampling::Sampling;
use engine::state::KvFormats;
use engine::{
    DiskLimits, Engine, Error, Event, Finish, Limits, OwnerId, Priority, Reason, Report, Request, SeqId, forget_files,
};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use proptest::prelude::*;

const F32: KvFormats = KvFormats { key: Format::F32, value: Format::F32 };

const LIMITS: Limits = Limits {
    prefill_chunk_tokens: 64,
    max_sequences: 4,
    max_waiting: 64,
    memory_bytes: 64 << 20,
    snapshots: Format::F32,
    snapshot_spacing_tokens: 40,
    trail_tokens: 32,
};

fn engine(model: &str, limits: Limits) -> Engine {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/reference").join(model);
    let model = weights::open(&path, &weights::OpenOptions { mmap: true }).unwrap();
    let tokenizer = Arc::new(engine::vocabulary::tokenizer(&model.vocab).unwrap());
    Engine::new(Network::new(model, Precision::F32), tokenizer, Cpu::new(1), limits)
}

fn request(tokens: &[u32], new: usize) -> Request {
    let marks = (1..tokens.len()).filter(|position| position % 23 == 0).collect();
    let sampling = Sampling { logprobs: Some(3), ..Sampling::default() };
    Request { marks, sampling, max_new_tokens: new, ignore_eos: true, ..Request::new(tokens.to_vec(), 4096, F32) }
}

#[derive(Debug, Default)]
struct Answer {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    text: String,
    report: Report,
    finish: Option<Finish>,
}

/// Runs everything to its end, all in one batch.
fn answers(engine: &mut Engine, requests: Vec<Request>) -> Vec<Answer> {
    let answers = tries(engine, requests);
    answers.into_iter().map(|answer| answer.unwrap()).collect()
}

/// As `answers`, where some may fail.
fn tries(engine: &mut Engine, requests: Vec<Request>) -> Vec<Result<Answer, Error>> {
    let ids: Vec<SeqId> = requests.into_iter().map(|request| engine.submit(request).unwrap()).collect();
    let mut answers: Vec<Answer> = ids.iter().map(|_| Answer::default()).collect();
    let mut failed: Vec<Option<Error>> = ids.iter().map(|_| None).collect();
    let mut events = Vec::new();
    while engine.step(&mut events) {
        let held = Kind::ALL.iter().map(|kind| engine.memory_bytes(*kind)).sum::<usize>();
        assert!(held <= engine.limits().memory_bytes, "{held} bytes are above the ceiling");
    }
    engine.step(&mut events);
    for event in events {
        match event {
            Event::Started { .. } => {}
            Event::Token(token) => {
                let Some(at) = ids.iter().position(|id| *id == token.id) else { continue };
                answers[at].tokens.push(token.token);
                answers[at].text += &token.text;
                answers[at].logprobs.push(token.logprob.unwrap());
            }
            Event::Done { id, finish, report } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                (answers[at].report, answers[at].finish) = (report, Some(finish));
            }
            Event::Failed { id, error } => {
                let Some(at) = ids.iter().position(|other| *other == id) else { continue };
                failed[at] = Some(error);
            }
        }
    }
    answers.into_iter().zip(failed).map(|(answer, failed)| failed.map_or(Ok(answer), Err)).collect()
}

fn answer(engine: &mut Engine, request: Request) -> Answer {
    answers(engine, vec![request]).pop().unwrap()
}

fn words(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(97)) >> 7) % 500).collect()
}

#[test]
fn what_was_computed_is_not_computed_again() {
    let mut engine = engine("dense-tied", LIMITS);
    let prompt = words(150, 1);
    let first = answer(&mut engine, request(&prompt, 10));
    assert_eq!((first.report.reason, first.report.computed_tokens), (Reason::Cold, 150));

    // The next turn: prompt, reply, new words. The last token of the reply was never fed.
    let mut next = [&prompt[..], &first.tokens].concat();
    next.extend(words(20, 2));
    let second = answer(&mut engine, request(&next, 10));
    assert_eq!((second.report.reason, second.report.reused_tokens), (Reason::NewText, 159));

    // The same again: all but the last token is known.
    let again = answer(&mut engine, request(&next, 10));
    assert_eq!(again.tokens, second.tokens);
    assert_eq!(again.report.reused_tokens, next.len() - 1);

    // A barge-in: the reply is cut inside, at no mark, and something else follows.
    let mut cut = [&next[..], &second.tokens[..4]].concat();
    let heard = cut.len();
    cut.extend(words(9, 3).iter().map(|token| token + 3));
    let third = answer(&mut engine, request(&cut, 5));
    assert_eq!((third.report.reused_tokens, third.report.reason), (heard, Reason::Edited { at: heard }));

    // The branch that was left is still there.
    let back = answer(&mut engine, request(&next, 10));
    assert_eq!((back.tokens, back.report.computed_tokens), (second.tokens, 1));
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
        // The first of the new words may be another session's by chance.
        assert!((new - 2..=new).contains(&answer.report.computed_tokens), "session {session}: {:?}", answer.report);
    }
}

#[test]
fn a_running_line_can_be_branched_from() {
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
    let mut engine = engine("dense-tied", Limits { max_sequences: 1, ..LIMITS });
    let slow = Request { priority: Priority::Background, ..request(&words(2000, 1), 5) };
    let slow = engine.submit(slow).unwrap();
    let mut events = Vec::new();
    engine.step(&mut events);
    let talk = engine.submit(request(&words(30, 2), 3)).unwrap();
    events.clear();
    let mut done = Vec::new();
    while done.len() < 2 {
        engine.step(&mut events);
        for event in events.drain(..) {
            if let Event::Done { id, .. } = event {
                done.push(id);
                if id == talk {
                    engine.cancel(slow);
                }
            }
        }
    }
    assert_eq!(done, [talk, slow]);
    // What the background work had computed before it had to make place is not lost.
    let mut again = request(&words(2000, 1), 1);
    again.marks.clear();
    assert!(answer(&mut engine, again).report.reused_tokens >= 23);
}

#[test]
fn bad_requests_are_refused_with_words() {
    let mut engine = engine("dense-tied", Limits { max_waiting: 1, ..LIMITS });
    let refused = |engine: &mut Engine, request| engine.submit(request).unwrap_err().to_string();
    assert!(refused(&mut engine, request(&[], 1)).contains("no token"));
    assert!(refused(&mut engine, request(&[512], 1)).contains("vocabulary of 512"));
    assert!(refused(&mut engine, Request { ctx_size: 10, ..request(&words(10, 1), 1) }).contains("window is 10"));
    let sampling = Sampling { top_p: 7.0, ..Sampling::default() };
    assert!(refused(&mut engine, Request { sampling, ..request(&words(10, 1), 1) }).contains("top_p"));
    engine.submit(request(&words(10, 1), 1)).unwrap();
    assert!(refused(&mut engine, request(&words(10, 1), 1)).contains("wait already"));
}

#[test]
fn the_window_ends_a_reply() {
    let mut engine = engine("dense-tied", LIMITS);
    let full = answer(&mut engine, Request { ctx_size: 55, ..request(&words(50, 1), 100) });
    assert_eq!(full.tokens.len(), 5);
    assert!(matches!(full.finish, Some(Finish::Window { .. })));
}

fn disk(folder: &Path) -> DiskLimits {
    DiskLimits { folder: folder.to_path_buf(), max_bytes: 1 << 30, min_tokens: 16 }
}

#[test]
fn a_restart_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = words(300, 1);
    let mut before = engine("dense-gva2", LIMITS);
    before.use_disk(disk(folder.path()));
    let first = answer(&mut before, request(&prompt, 10));
    before.save_all();
    drop(before);

    let mut after = engine("dense-gva2", LIMITS);
    after.use_disk(disk(folder.path()));
    let next = [&prompt[..], &first.tokens, &words(7, 2)].concat();
    let second = answer(&mut after, request(&next, 5));
    assert_eq!((second.report.reused_tokens, second.report.reason), (309, Reason::NewText));
    assert_eq!(second.tokens, answer(&mut engine("dense-gva2", LIMITS), request(&next, 5)).tokens);
    assert_eq!(after.take_notes(), [""; 0]);
}

#[test]
fn what_a_person_has_deleted_is_gone_here_and_on_disk_and_what_is_anothers_stays() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let persona = words(100, 1);
    let [anns, bobs] = [2, 3].map(|seed| [&persona[..], &words(60, seed)].concat());
    let (ann, bob) = (OwnerId(0xa), OwnerId(0xb));
    let owned = |tokens: &[u32], owner| Request { owner: Some(owner), ..request(tokens, 5) };
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    answer(&mut engine, owned(&anns, ann));
    let second = answer(&mut engine, owned(&bobs, bob));
    assert!(second.report.reused_tokens > 0, "the persona is known: {:?}", second.report);
    engine.save_all();
    // One that Ann goes on with, is being computed.
    let longer = [&anns[..], &words(20, 4)].concat();
    engine.submit(owned(&longer, ann)).unwrap();
    engine.step(&mut Vec::new());
    assert_eq!(names().len(), 2, "{:?}", names());

    engine.forget(ann);
    let mut events = Vec::new();
    engine.step(&mut events);
    assert!(matches!(events[..], [Event::Done { finish: Finish::Cancelled { .. }, .. }]), "{events:?}");
    assert!(names().iter().all(|name| name.starts_with("000000000000000b-")) && names().len() == 1, "{:?}", names());
    engine.check_invariants().unwrap();
    assert_eq!(answer(&mut engine, owned(&bobs, bob)).report.reused_tokens, bobs.len() - 1, "Bob's is warm");
    let again = answer(&mut engine, owned(&anns, ann)).report.reused_tokens;
    assert!(again <= persona.len(), "{again} tokens: no more than is Bob's too");
    engine.save_all();
    drop(engine);
    assert_eq!(names().len(), 2);
    assert_eq!(forget_files(folder.path(), ann).unwrap(), 1);
    assert_eq!(forget_files(&folder.path().join("none"), ann).unwrap(), 0);
    assert_eq!(names().len(), 1);
}

#[test]
fn a_bad_file_is_a_miss_with_a_note() {
    let prompt = words(300, 1);
    let written = tempfile::tempdir().unwrap();
    let mut writer = engine("dense-gva2", LIMITS);
    writer.use_disk(disk(written.path()));
    let expected = answer(&mut writer, request(&prompt, 5)).tokens;
    writer.save_all();
    let files = std::fs::read_dir(written.path()).unwrap().map(|entry| entry.unwrap().path());
    let (lines, pages): (Vec<PathBuf>, Vec<PathBuf>) =
        files.partition(|path| path.extension().is_some_and(|end| end == "line"));
    assert_eq!((lines.len(), pages.len()), (1, 1));
    let bytes = std::fs::read(&lines[0]).unwrap();
    let with_page = |folder: &Path| {
        std::fs::copy(&pages[0], folder.join(pages[0].file_name().unwrap())).unwrap();
    };

    let damage = |name: &str, bytes: &[u8], notes: usize, left: usize| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.line"), bytes).unwrap();
        std::fs::write(folder.path().join("y.part"), b"half a file").unwrap();
        with_page(folder.path());
        let mut engine = engine("dense-gva2", LIMITS);
        engine.use_disk(disk(folder.path()));
        assert_eq!(answer(&mut engine, request(&prompt, 5)).tokens, expected, "{name}");
        let told = engine.take_notes();
        assert_eq!(told.len(), notes, "{name}: {told:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left, "{name}");
    };
    damage("whole", &bytes, 0, 2);
    for cut in [0, 7, 50, 100, 2000, bytes.len() / 2, bytes.len() - 1] {
        damage(&format!("cut at {cut}"), &bytes[..cut], 1, 0);
    }
    for at in [0, 9, 50, 55, 70, 80, 95, 120, 1500, 20_000, bytes.len() - 2] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x40;
        damage(&format!("a bit of byte {at}"), &bytes, 1, 0);
    }

    // Another model's file is left alone: that model may come back.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.line"), &bytes).unwrap();
    with_page(folder.path());
    let mut other = engine("dense-gva3", LIMITS);
    other.use_disk(disk(folder.path()));
    // The marks of the request are where its states stand, the last of them at 299 tokens.
    assert_eq!(answer(&mut other, request(&prompt, 5)).report.reason, Reason::OtherModel { known_tokens: 299 });
    assert_eq!((other.take_notes().len(), std::fs::read_dir(folder.path()).unwrap().count()), (0, 2));
}

#[test]
fn memory_stays_under_its_ceiling() {
    let memory_bytes = 4 << 20;
    let mut engine = engine("dense-tied", Limits { memory_bytes, ..LIMITS });
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
        most = most.max(Kind::ALL.iter().map(|kind| engine.memory_bytes(*kind)).sum::<usize>());
        assert!(most <= memory_bytes, "turn {turn}: {most}");
    }
    assert!(most > memory_bytes / 2, "the ceiling was never near: {most}");
}

/// What a request of so many tokens needs of a model's memory, with more snapshots than it needs.
fn bytes_of(model: &str, tokens: usize, more_snapshots: usize) -> usize {
    let engine = engine(model, LIMITS);
    let shape = engine.network().state_shape;
    LIMITS.bytes_of(&shape, F32, tokens).unwrap() + more_snapshots * shape.snapshot_bytes(Format::F32)
}

#[test]
fn replies_that_do_not_fit_together_wait_for_each_other() {
    let memory_bytes = bytes_of("dense-tied", 600, 0) * 3 / 2;
    let mut tight = engine("dense-tied", Limits { memory_bytes, ..LIMITS });
    let requests: Vec<Request> = (0..4).map(|seed| request(&words(500, 20 + seed), 40)).collect();
    // `answers` looks at the ceiling after every step.
    let ours = answers(&mut tight, requests.clone());
    for (ours, request) in ours.iter().zip(requests) {
        assert_eq!(ours.tokens, answer(&mut engine("dense-tied", LIMITS), request).tokens);
    }
    assert_eq!(tight.check_invariants(), Ok(()));
}

#[test]
fn a_reply_for_which_there_is_no_memory_says_so_and_others_are_answered() {
    let memory_bytes = bytes_of("dense-tied", 600, 0);
    let mut engine = engine("dense-tied", Limits { memory_bytes, ..LIMITS });
    let requests = vec![request(&words(3000, 1), 5), request(&words(100, 2), 5)];
    let results = tries(&mut engine, requests);
    assert!(matches!(results[0], Err(Error::NoRoom { .. })), "{:?}", results[0]);
    assert_eq!(results[1].as_ref().unwrap().tokens.len(), 5);
}

#[test]
fn an_edit_is_told_with_its_place_also_where_no_state_is_near() {
    let mut engine = engine("dense-tied", Limits { snapshot_spacing_tokens: 200, ..LIMITS });
    let mut prompt = words(600, 1);
    for at in [4, 250] {
        let mut ask = request(&prompt, 2);
        ask.marks.clear();
        answer(&mut engine, ask.clone());
        ask.tokens[at] += 1;
        let report = answer(&mut engine, ask).report;
        assert_eq!(report.reason, Reason::Edited { at }, "{report:?}");
        prompt = words(600, 2);
    }
    // Another text of which only the first words are the same.
    let other = [&words(600, 1)[..4], &words(300, 9)].concat();
    assert_eq!(answer(&mut engine, request(&other, 2)).report.reason, Reason::Cold);
}

#[test]
fn what_had_to_go_is_told_apart_from_what_is_new() {
    let memory_bytes = bytes_of("dense-tied", 900, 0);
    let mut engine = engine("dense-tied", Limits { memory_bytes, ..LIMITS });
    let first = words(500, 1);
    assert_eq!(answer(&mut engine, request(&first, 5)).report.reason, Reason::Cold);
    assert_eq!(answer(&mut engine, request(&words(800, 2), 5)).report.reason, Reason::Cold);
    let again = answer(&mut engine, request(&first, 5)).report;
    assert!(matches!(again.reason, Reason::Evicted { known_tokens: 448.. }), "{again:?}");
}

#[test]
fn work_that_nobody_waits_for_evicts_nothing_that_a_conversation_needs() {
    let memory_bytes = bytes_of("dense-tied", 600, 0) * 2;
    let mut engine = engine("dense-tied", Limits { memory_bytes, ..LIMITS });
    let prompt = words(400, 1);
    let said = answer(&mut engine, request(&prompt, 10));
    let history = [&prompt[..], &said.tokens].concat();
    for (seed, priority) in (0..6).flat_map(|seed| [(seed, Priority::Speculate), (seed, Priority::Background)]) {
        let large = Request { priority, speculative: seed % 2 == 0, ..request(&words(3000, 40 + seed), 0) };
        let result = tries(&mut engine, vec![large]).pop().unwrap();
        assert!(matches!(result, Err(Error::NoRoom { .. })), "{result:?}");
        assert_eq!(engine.check_invariants(), Ok(()));
    }
    let next = [&history[..], &words(10, 2)].concat();
    let report = answer(&mut engine, request(&next, 5)).report;
    assert_eq!((report.reused_tokens, report.reason), (history.len() - 1, Reason::NewText));
    // Who is waited for may.
    assert_eq!(answer(&mut engine, request(&words(1000, 9), 5)).tokens.len(), 5);
}

#[test]
fn speculation_is_replaced_as_it_changes() {
    let mut engine = engine("dense-tied", LIMITS);
    let history = words(300, 1);
    answer(&mut engine, request(&history, 1));
    for heard in 1..30 {
        let partial = [&history[..], &words(heard, 7)].concat();
        let guess = Request { priority: Priority::Speculate, speculative: true, ..request(&partial, 0) };
        let report = answer(&mut engine, guess).report;
        assert!(report.computed_tokens <= 1, "{report:?}");
        // The conversation and one guess at its future.
        assert!(engine.kept_lines() <= 2, "{} lines", engine.kept_lines());
    }
    // The last word was another one.
    let said = [&history[..], &words(28, 7), &[499, 3]].concat();
    assert_eq!(answer(&mut engine, request(&said, 5)).report.computed_tokens, 2);
}

#[test]
fn a_long_reply_can_be_gone_back_to_where_it_was_marked_and_at_the_spacing() {
    let mark_at = 30;
    for (spacing, marks) in [(usize::MAX, true), (40, false)] {
        let mut engine = engine("dense-tied", Limits { snapshot_spacing_tokens: spacing, ..LIMITS });
        let mut ask = request(&words(50, 1), 200);
        ask.marks = vec![50];
        let prompt = ask.tokens.clone();
        let id = engine.submit(ask).unwrap();
        let (mut events, mut reply) = (Vec::new(), Vec::new());
        while engine.step(&mut events) {
            for event in events.drain(..) {
                if let Event::Token(token) = event {
                    reply.push(token.token);
                    if marks && reply.len() == mark_at {
                        engine.mark(id);
                    }
                }
            }
        }
        // Far behind the trail, which has the last 32 tokens.
        let mut back_to = |heard: usize| {
            let tokens = [&prompt[..], &reply[..heard], &[7, 8, 9]].concat();
            answer(&mut engine, request(&tokens, 1)).report.reused_tokens
        };
        // The token that was chosen when the mark came was not computed yet.
        let marked = 50 + mark_at - 1;
        assert_eq!((back_to(100), back_to(mark_at + 8)), if marks { (marked, marked) } else { (130, 50) });
    }
}

#[test]
fn what_is_thinned_is_what_saves_least() {
    // One conversation with a mark every 23 tokens, and room for about a third of its snapshots.
    let memory_bytes = bytes_of("dense-tied", 1200, 14);
    let mut engine = engine("dense-tied", Limits { memory_bytes, snapshot_spacing_tokens: usize::MAX, ..LIMITS });
    let history = words(1150, 1);
    answer(&mut engine, request(&history, 1));
    let mut recomputed = |at: usize| {
        let tokens = [&history[..at], &[history[at] + 1, 3, 5]].concat();
        let guess = Request { speculative: true, ..request(&tokens, 0) };
        let report = answer(&mut engine, guess).report;
        at - report.reused_tokens.min(at)
    };
    // In the order of first come, first gone, the oldest 33 marks would be gone and 700 tokens with them.
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
        // Random weights make rounding loud; the order of the formats is what is told here. `reprise bench drift` tells
        // how much it is.
        for (format, tolerance) in [(Format::F32, 1e-4), (Format::BF16, 0.02), (Format::Q8_0, 0.05)] {
            let folder = tempfile::tempdir().unwrap();
            let start = || {
                let mut engine = engine(model, Limits { snapshots: format, ..LIMITS });
                engine.use_disk(disk(folder.path()));
                engine
            };
            let mut before = start();
            answer(&mut before, request(&[&prompt[..120], &words(60, 2)].concat(), 1));
            // Back into the middle, by a snapshot and what the trail does not hold any more.
            let ours = answer(&mut before, request(&prompt, 1));
            assert!(ours.report.reused_tokens >= 115, "{:?}", ours.report);
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

#[test]
fn a_past_that_grew_writes_only_what_is_new_and_a_persona_is_on_disk_once() {
    let folder = tempfile::tempdir().unwrap();
    let files = |extension: &str| {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == extension));
        files.map(|file| (file.file_name(), file.metadata().unwrap().modified().unwrap())).collect::<Vec<_>>()
    };
    let mut engine = engine("dense-gva2", LIMITS);
    engine.use_disk(disk(folder.path()));
    let persona = words(600, 1);
    for session in 0..5 {
        answer(&mut engine, request(&[&persona[..], &words(20, 50 + session)].concat(), 2));
        engine.save_all();
    }
    let first = files("page");
    assert_eq!((first.len(), files("line").len()), (2, 5));
    let longer = [&persona[..], &words(20, 50), &words(300, 80)].concat();
    let report = answer(&mut engine, request(&longer, 2)).report;
    assert!(report.reused_tokens >= 619, "{report:?}");
    engine.save_all();
    let second = files("page");
    assert_eq!((second.len(), first.iter().filter(|file| second.contains(file)).count()), (3, 2));

    // Beyond its bytes the folder loses the oldest, with the pages that no other has.
    drop(engine);
    let all: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let mut engine = self::engine("dense-gva2", LIMITS);
    engine.use_disk(DiskLimits { max_bytes: all / 2, ..disk(folder.path()) });
    let left: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(left <= all / 2 && left > 0, "{left} of {all}");
    assert!(answer(&mut engine, request(&longer, 2)).report.reused_tokens >= 600);
}

#[test]
fn a_damaged_page_is_a_miss_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let prompt = words(300, 1);
    let mut writer = engine("dense-gva2", LIMITS);
    writer.use_disk(disk(folder.path()));
    let expected = answer(&mut writer, request(&prompt, 5)).tokens;
    writer.save_all();
    drop(writer);
    let page = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let page = page.filter(|path| path.extension().is_some_and(|end| end == "page")).collect::<Vec<_>>().pop().unwrap();
    let bytes = std::fs::read(&page).unwrap();
    let mut flipped = bytes.clone();
    flipped[5000] ^= 1;
    let mut other = bytes.clone();
    other[20] ^= 1;
    for damaged in [Some(&bytes[..100]), Some(&flipped), Some(&other), None] {
        match damaged {
            Some(bytes) => std::fs::write(&page, bytes).unwrap(),
            None => std::fs::remove_file(&page).unwrap(),
        }
        let mut engine = engine("dense-gva2", LIMITS);
        engine.use_disk(disk(folder.path()));
        assert_eq!(answer(&mut engine, request(&prompt, 5)).tokens, expected);
        assert_eq!(engine.take_notes().len(), 1);
        assert!(!page.exists(), "what is damaged is not kept");
        // And it is written again.
        engine.save_all();
        assert_eq!(std::fs::read(&page).unwrap(), bytes);
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
        let sampling = Sampling { temperature: 1.0, logprobs: Some(0), ..Sampling::default() };
        let request = Request { grammar, sampling, seed, ignore_eos: false, ..request(&words(20, 1), 60) };
        let answer = answer(&mut engine, request);
        assert!(matches!(answer.finish, Some(Finish::End { .. })), "{:?}", answer.finish);
        let value: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
        assert!(value["on"].is_boolean() && (0..10).contains(&value["level"].as_i64().unwrap()), "{value}");
    }
}

#[test]
fn every_format_of_keys_and_values_gives_nearly_the_same() {
    let formats = [Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0];
    let mut engine = engine("dense-wide", LIMITS);
    let exact = answer(&mut engine, request(&words(300, 1), 1)).logprobs[0];
    for (key, value) in formats.iter().flat_map(|key| formats.iter().map(move |value| (*key, *value))) {
        let ours = answer(&mut engine, Request { kv: KvFormats { key, value }, ..request(&words(300, 1), 1) });
        // Random weights make rounding loud; the order of the formats is what is told here.
        let tolerance = if [key, value].contains(&Format::Q4_0) { 1.5 } else { 0.1 };
        assert!((ours.logprobs[0] - exact).abs() < tolerance, "{key:?} {value:?}: {} and {exact}", ours.logprobs[0]);
        // A past in another format is not this one's.
        assert_eq!(ours.report.reused_tokens, 0);
    }
}

/// What a client does to a conversation.
#[derive(Clone, Debug)]
enum Step {
    Extend { count: usize, seed: u32 },
    Cut { share: f64 },
    Edit { share: f64, token: u32 },
    Regenerate,
    GoBack { turns: usize },
    Beside { count: usize },
    Warm { count: usize, seed: u32 },
    Spill,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..60, any::<u32>()).prop_map(|(count, seed)| Step::Extend { count, seed }),
        3 => (0.0..1.0f64).prop_map(|share| Step::Cut { share }),
        1 => (0.0..1.0f64, 0u32..500).prop_map(|(share, token)| Step::Edit { share, token }),
        1 => Just(Step::Regenerate),
        1 => (1usize..4).prop_map(|turns| Step::GoBack { turns }),
        1 => (1usize..80).prop_map(|count| Step::Beside { count }),
        2 => (1usize..30, any::<u32>()).prop_map(|(count, seed)| Step::Warm { count, seed }),
        1 => Just(Step::Spill),
        1 => Just(Step::Restart),
    ]
}

fn play(model: &str, limits: Limits, steps: &[Step]) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().unwrap();
    let start = || {
        let mut engine = engine(model, limits);
        engine.use_disk(disk(folder.path()));
        engine
    };
    let mut warm = start();
    let mut cold = engine(model, Limits { memory_bytes: usize::MAX, ..limits });
    let mut history = words(30, 9);
    let mut earlier = Vec::new();
    for step in steps {
        let mut beside = None;
        match step {
            Step::Extend { count, seed } => history.extend(words(*count, *seed)),
            Step::Cut { share } => history.truncate((history.len() as f64 * share) as usize + 1),
            Step::Edit { share, token } => {
                let at = (history.len() as f64 * share) as usize;
                history[at] = *token;
            }
            Step::Regenerate => {}
            Step::GoBack { turns } => history = earlier.iter().rev().nth(*turns).cloned().unwrap_or(history),
            Step::Beside { count } => beside = Some([&history[..history.len() / 2], &words(*count, 3)].concat()),
            Step::Warm { count, seed } => {
                let speculated = [&history[..], &words(*count, *seed)].concat();
                answer(
                    &mut warm,
                    Request { priority: Priority::Speculate, speculative: true, ..request(&speculated, 0) },
                );
            }
            Step::Spill => {
                warm.save_one();
            }
            Step::Restart => {
                warm.save_all();
                warm = start();
            }
        }
        history.truncate(900);
        let mut requests = vec![request(&history, 6)];
        requests.extend(beside.map(|tokens| request(&tokens, 6)));
        let ours = answers(&mut warm, requests.clone());
        prop_assert_eq!(warm.check_invariants(), Ok(()));
        for (ours, request) in ours.iter().zip(requests) {
            let theirs = answer(&mut cold, Request { owner: Some(OwnerId(1)), ..request });
            cold.forget(OwnerId(1));
            prop_assert_eq!(&ours.tokens, &theirs.tokens, "{:?}", ours.report);
            for (a, b) in ours.logprobs.iter().zip(&theirs.logprobs) {
                prop_assert!((a - b).abs() <= 1e-3, "{} and {}: {:?}", a, b, ours.report);
            }
            prop_assert_eq!(theirs.report.reused_tokens, 0);
            prop_assert_eq!(ours.report.reused_tokens + ours.report.computed_tokens, ours.report.prompt_tokens);
        }
        earlier.push(history.clone());
        history.extend(&ours[0].tokens);
    }
    Ok(())
}

fn plays(model: &'static str, cases: u32) {
    let engine = engine(model, LIMITS);
    // A long trail lets the marks of a short turn be passed and remembered afterwards.
    let limits = |trail_tokens| Limits { trail_tokens, ..LIMITS };
    // From what one prompt needs, so that nothing can be kept, upwards.
    let least = limits(160).bytes_of(&engine.network().state_shape, F32, 930).unwrap();
    let budgets = prop_oneof![Just(64usize << 20), least..4 * least];
    let trails = prop_oneof![Just(32usize), Just(160), Just(0)];
    let strategy = (budgets, trails, prop::collection::vec(step(), 1..10));
    let config =
        ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() };
    proptest!(config, |((memory_bytes, trail_tokens, steps) in strategy)| {
        play(model, Limits { memory_bytes, ..limits(trail_tokens) }, &steps)?;
    });
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_tied() {
    plays("dense-tied", 10);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva2_gguf() {
    plays("gguf/dense-gva2.bf16.gguf", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_gva3() {
    plays("dense-gva3", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_moe() {
    plays("moe", 6);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_yarn() {
    plays("dense-yarn", 6);
}
