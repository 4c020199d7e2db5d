//! The same on a device: a GPU if there is one, else an emulated one (REQUIRE_CUDA makes that a failure).

use super::random::{Stage, Step, play, step};
use super::support::*;
use engine::memory::MemoryKind;
use engine::snapshot;
use engine::state::KvFormats;
use engine::{EngineLimits, EngineRequest, Error, Priority};
use gpu::Device;
use kernels::format::Format;
use proptest::prelude::*;
use std::sync::Arc;
use testing::{Emulator, device_of_tests as device, open_emulator};

fn plays(model: &'static str) {
    let Some(device) = device() else { return };
    // An emulated token takes as long as a hundred on a GPU.
    let (cases, longest, most_steps) = if testing::is_emulated(&device) { (1, 150, 6) } else { (20, 900, 10) };
    let limits = |recurrence_log_tokens| EngineLimits { recurrence_log_tokens, ..LIMITS };
    let engine = engine(model, LIMITS);
    let least = limits(160).bytes_of(&engine.network().state_shape, F32, longest + 30).unwrap();
    let budgets = prop_oneof![Just(64usize << 20), least..4 * least];
    let logs = prop_oneof![Just(32usize), Just(160), Just(0)];
    let moved = prop_oneof![Just(0usize), Just(64 << 20), 0..least];
    let strategy = (budgets, moved, logs, prop::collection::vec(step(), 1..most_steps));
    let config = ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 20, ..ProptestConfig::default() };
    proptest!(config, |((memory_bytes, moved_snapshot_bytes, recurrence_log_tokens, steps) in strategy)| {
        let limits = EngineLimits { memory_bytes, moved_snapshot_bytes, ..limits(recurrence_log_tokens) };
        play(Stage { model, limits, device: Some(&device), longest }, &steps)?;
    });
}

/// Plays one history that has every kind of step: a slow device plays few random ones.
fn plays_all(model: &'static str, recurrence_log_tokens: usize, share_of_memory: f64) {
    let Some(device) = device() else { return };
    let limits = EngineLimits { recurrence_log_tokens, ..LIMITS };
    let least = limits.bytes_of(&engine(model, LIMITS).network().state_shape, F32, 180).unwrap() as f64;
    let steps = [
        Step::Extend { count: 59, seed: 1 },
        // Some tokens back, as after a barge-in, from a reply and from a prompt.
        Step::Cut { share: 0.97 },
        Step::Cut { share: 0.85 },
        Step::Spill,
        Step::SecondRequest { count: 12 },
        Step::Warm { count: 9, seed: 4 },
        Step::Regenerate,
        Step::Resume { steps: 3, warms: true },
        Step::Arms { count: 2 },
        Step::Note { count: 9, seed: 3 },
        Step::NewHead { token: 5, is_read: true },
        Step::GoBack { turns: 2 },
        Step::Restart,
        Step::Edit { share: 0.9, token: 77 },
        Step::Extend { count: 11, seed: 8 },
        Step::Cut { share: 0.8 },
    ];
    let memory_bytes = (least * share_of_memory) as usize;
    let limits = EngineLimits { memory_bytes, moved_snapshot_bytes: memory_bytes, ..limits };
    play(Stage { model, limits, device: Some(&device), longest: 150 }, &steps).unwrap();
}

#[test]
fn a_history_with_everything_tied() {
    plays_all("dense-tied", 160, 8.0);
}

#[test]
fn a_history_with_everything_in_little_memory_gva3() {
    plays_all("dense-gva3", 32, 2.0);
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_tied() {
    plays("dense-tied");
}

#[test]
fn any_history_is_answered_as_by_a_cold_engine_moe() {
    plays("moe");
}

#[test]
fn every_format_of_keys_values_and_states_is_kept_and_comes_back_from_disk() {
    let Some(device) = device() else { return };
    let prompt = words(60, 1);
    use Format::*;
    let formats = [(F16, F16), (Q8_0, Q4_0), (Q8_0, BF16), (TQ4, TQ3), (Q8_0, TQ4), (TQ3, F16)];
    let both = formats.into_iter().map(|(key, value)| KvFormats::new(key, value));
    let both = both.chain([KvFormats::new(Q8_0, Q4_0).with_rotation(true)]);
    for (kv, snapshots) in both.zip(snapshot::FORMATS.into_iter().cycle()) {
        let limits = EngineLimits { snapshots, ..LIMITS };
        let asked = |tokens: &[u32]| EngineRequest { kv, ..request(tokens, 1) };
        let folder = tempfile::tempdir().unwrap();
        let start = |device| {
            let mut engine = engine_on(device, "dense-wide", limits);
            engine.use_disk(disk(folder.path()));
            engine
        };
        // CPU and GPU compute states alike; of keys and values only the rounding of ties may differ.
        let exact = answer(&mut engine("dense-wide", limits), asked(&prompt)).logprobs[0];
        let mut before = start(Some(&device));
        let whole = answer(&mut before, asked(&[&prompt[..48], &words(20, 2)].concat()));
        assert_eq!(whole.report.reused_tokens, 0);
        let ours = answer(&mut before, asked(&prompt));
        assert!(ours.report.reused_tokens >= 46, "{:?}", ours.report);
        assert!((ours.logprobs[0] - exact).abs() <= 0.05, "{snapshots:?}: {} {exact}", ours.logprobs[0]);
        assert_eq!(before.check_invariants(), Ok(()));
        before.save_all();
        drop(before);
        // A GPU's file is read by another GPU and by the CPU.
        for device in [Some(&device), None] {
            let mut after = start(device);
            let back = answer(&mut after, asked(&prompt));
            assert!(back.report.reused_tokens >= 46, "{:?}", back.report);
            assert!((back.logprobs[0] - exact).abs() <= 0.05, "{snapshots:?}: {} {exact}", back.logprobs[0]);
            assert_eq!(after.take_notes(), [""; 0]);
        }
    }
}

#[test]
fn a_snapshot_without_room_on_the_gpu_waits_on_the_host() {
    let Some(device) = device() else { return };
    let history = words(150, 1);
    let back = [&history[..70], &words(9, 2)].concat();
    // The GPU has room for this conversation and the two snapshots of a step.
    let limits = EngineLimits { moved_snapshot_bytes: 1 << 30, recurrence_log_tokens: 0, ..LIMITS };
    let shape = engine("dense-tied", LIMITS).network().state_shape;
    let memory_bytes = limits.bytes_of(&shape, F32, 160).unwrap() + shape.snapshot_bytes(limits.snapshots);
    let goes_back = |limits| {
        let mut engine = engine_on(Some(&device), "dense-tied", limits);
        answer(&mut engine, request(&history, 1));
        let moved = engine.memory_bytes(MemoryKind::MovedSnapshots);
        let answer = answer(&mut engine, request(&back, 1));
        assert_eq!(engine.check_invariants(), Ok(()));
        (moved, answer.report.reused_tokens, answer.logprobs[0])
    };
    let (_, most_reused, exact) = goes_back(limits);
    let (moved, reused, logprob) = goes_back(EngineLimits { memory_bytes, ..limits });
    assert!(moved > 0 && reused == most_reused, "{moved} bytes, {reused} of {most_reused} tokens");
    assert!((logprob - exact).abs() <= 1e-4, "{logprob} {exact}");
    let (moved, reused, _) = goes_back(EngineLimits { memory_bytes, moved_snapshot_bytes: 0, ..limits });
    assert!(moved == 0 && reused < most_reused, "{moved} bytes, {reused} of {most_reused} tokens");
}

#[test]
fn work_that_nobody_waits_for_pushes_no_snapshot_from_the_host() {
    let Some(device) = device() else { return };
    let history = words(150, 1);
    let limits = EngineLimits { recurrence_log_tokens: 0, ..LIMITS };
    let shape = engine("dense-tied", LIMITS).network().state_shape;
    let memory_bytes = limits.bytes_of(&shape, F32, 160).unwrap() + 2 * shape.snapshot_bytes(limits.snapshots);
    let read = |moved_snapshot_bytes| {
        let limits = EngineLimits { memory_bytes, moved_snapshot_bytes, ..limits };
        let mut engine = engine_on(Some(&device), "dense-tied", limits);
        answer(&mut engine, request(&history, 1));
        engine
    };
    let mut engine = read(read(1 << 30).memory_bytes(MemoryKind::MovedSnapshots));
    let guess = EngineRequest { speculative: true, priority: Priority::Speculate, ..request(&words(60, 9), 0) };
    let _ = tries(&mut engine, vec![guess]);
    // The first of them, which saves least.
    let back = answer(&mut engine, request(&[&history[..30], &[3, 5]].concat(), 1));
    assert_eq!(back.report.reused_tokens, 23);
    assert_eq!(engine.check_invariants(), Ok(()));
}

fn breakable() -> Option<Arc<Emulator>> {
    device()?;
    let own = open_emulator(&std::env::temp_dir().join("reprise-gpu-tests"));
    own.map_err(|error| println!("skipped: a GPU is not broken on purpose, and there is no emulator here: {error}"))
        .ok()
}

#[test]
fn a_lost_device_fails_what_it_computes_and_the_next_engine_goes_on_from_disk() {
    for kernels in [0, 3, 60, 250] {
        let Some(emulator) = breakable() else { return };
        let device = emulator.device();
        let folder = tempfile::tempdir().unwrap();
        let start = |device: &Device| {
            let mut engine = engine_on(Some(device), "dense-tied", LIMITS);
            engine.use_disk(disk(folder.path()));
            engine
        };
        let files = || std::fs::read_dir(folder.path()).unwrap().count();
        let prompt = words(50, 1);
        let mut before = start(&device);
        let said = answer(&mut before, request(&prompt, 2)).tokens;
        before.save_all();
        assert_eq!((before.take_notes(), files()), (Vec::new(), 1));

        emulator.break_after(kernels);
        let next = [&prompt[..], &said, &words(9, 2)].concat();
        let results = tries(&mut before, vec![request(&next, 8), request(&words(20, 5), 8)]);
        for result in results {
            assert!(matches!(result, Err(Error::Lost { .. })), "{result:?}");
        }
        assert!(before.failure().is_some_and(|why| why.contains("as a test wanted")));
        assert!(matches!(before.submit(request(&prompt, 1)), Err(Error::Lost { .. })));
        // A failed engine writes nothing, because its memory is lost.
        before.save_all();
        assert_eq!((before.take_notes(), files()), (Vec::new(), 1));
        drop(before);

        let Some(emulator) = breakable() else { return };
        let mut after = start(&emulator.device());
        let ours = answer(&mut after, request(&next, 4));
        assert_eq!(ours.report.reused_tokens, 51, "all but the reply's last token, which never went through the model");
        assert_eq!(ours.tokens, answer(&mut engine("dense-tied", LIMITS), request(&next, 4)).tokens);
    }
}
