//! Whole models on the device against the reference implementation's results and against the CPU; on an emulated device
//! if there is no GPU (REQUIRE_CUDA makes that a failure).

use engine::gpu_network::{GpuNetwork, GpuWorkspace, device_bytes};
use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::recurrence_log::RecurrenceLog;
use engine::snapshot::Snapshot;
use engine::state::{KvFormats, SequenceState};
use engine::{DeviceFacts, DeviceLimits, DeviceMemoryPlan, Executor, LongestConversation};
use gpu::Device;
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use weights::{ModelWeights, PackedPart};

use reference::distance;
use testing::device_of_tests as device;
use testing::golden::{GoldenFile, assert_near_golden as close, reference_models};

const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);
const F16: KvFormats = KvFormats::new(Format::F16, Format::F16);
const LOG_TOKENS: usize = 120; // more than a step replays
const ALL: usize = usize::MAX; // layers of any model

fn on_no_host(_layer: usize, _hidden: &mut [f32]) {
    panic!("the whole model is on the device");
}

fn open(name: &str) -> ModelWeights {
    weights::open(&reference_models().join(name), true).unwrap()
}

fn state(network: &GpuNetwork, kv: KvFormats) -> SequenceState {
    SequenceState::new(network.state_shape, kv, &MemoryMeter::on(&network.device)).unwrap()
}

fn logits(
    network: &GpuNetwork,
    work: &mut GpuWorkspace,
    state: &mut SequenceState,
    tokens: &[u32],
    chunk: usize,
) -> Vec<f32> {
    let chunks = tokens.chunks(chunk);
    let feed = |tokens| {
        let mut lanes = [StepLane {
            state,
            tokens,
            wanted: WantedLogits::All,
            recurrence_log: None,
            snapshots: &mut [],
            drafts: 0,
        }];
        network.forward(&mut lanes, work, &mut on_no_host).unwrap().to_vec()
    };
    chunks.flat_map(feed).collect()
}

fn check_golden(device: &Device, name: &str, folder: &str, tokens: usize, chunks: &[usize]) {
    let golden = GoldenFile::of_folder(folder);
    let (prompt, expected) = (golden.tokens("prompt"), golden.floats("logits"));
    let model = open(name);
    let network = GpuNetwork::new(device, &model, Precision::F32, ALL).unwrap();
    let mut work = GpuWorkspace::new(device).unwrap();
    let tokens = tokens.min(prompt.len());
    let expected = &expected[..tokens * model.shape.vocab];
    for chunk in chunks {
        let ours = logits(&network, &mut work, &mut state(&network, F32), &prompt[..tokens], *chunk);
        close(&format!("{name} in chunks of {chunk}"), &ours, expected, 1e-3);
    }
}

#[test]
fn dense_models_give_the_golden_logits() {
    let Some(device) = device() else { return };
    // On the emulator, the shortest prompt that has several chunks of the delta rule and a token alone.
    let (tokens, chunks): (usize, &[usize]) =
        if testing::is_emulated(&device) { (100, &[100]) } else { (180, &[180, 1, 7, 64, 65]) };
    check_golden(&device, "dense-gva3", "dense-gva3", tokens, chunks);
    check_golden(&device, "gguf/dense-gva2.bf16.gguf", "dense-gva2", tokens / 3, &[30, 3]);
}

#[test]
fn a_model_of_experts_gives_the_golden_logits() {
    let Some(device) = device() else { return };
    let (tokens, chunks): (usize, &[usize]) =
        if testing::is_emulated(&device) { (60, &[50, 5]) } else { (180, &[180, 1, 7, 64, 65]) };
    check_golden(&device, "gguf/moe.bf16.gguf", "moe", tokens, chunks);
}

#[test]
fn every_reference_model_on_a_gpu() {
    let Some(device) = device() else { return };
    if testing::is_emulated(&device) {
        println!("skipped: all models in all chunks take minutes in an emulator");
        return;
    }
    for name in ["dense-tied", "dense-gva2", "dense-gva3", "moe", "dense-yarn", "dense-wide"] {
        for path in [name.to_string(), format!("gguf/{name}.bf16.gguf")] {
            check_golden(&device, &path, name, 180, &[180, 1, 7, 64, 65]);
        }
    }
}

/// A step reads the model once, however many of its passing states are kept.
#[test]
fn states_are_taken_on_the_way() {
    let Some(device) = device() else { return };
    let model = open("dense-gva3");
    let network = GpuNetwork::new(&device, &model, Precision::F32, ALL).unwrap();
    let (mut work, meter) = (GpuWorkspace::new(&device).unwrap(), MemoryMeter::on(&device));
    let prompt = GoldenFile::of_folder("dense-gva3").tokens("prompt");
    let (tokens, others, stops) = (&prompt[..75], &prompt[10..50], [4, 40]);
    let mut at_once = (state(&network, F32), state(&network, F32));
    let to_come = |position| Snapshot::unwritten(position, &network.state_shape, Format::F32, &meter);
    let mut snapshots = stops.map(to_come);
    let lane = |state, tokens, snapshots| StepLane {
        state,
        tokens,
        wanted: WantedLogits::Last,
        recurrence_log: None,
        snapshots,
        drafts: 0,
    };
    // The second lane has one snapshot before its end, at another position than the first lane's.
    let mut of_others = [to_come(33)];
    let mut lanes =
        [lane(&mut at_once.0, tokens, &mut snapshots[..]), lane(&mut at_once.1, others, &mut of_others[..])];
    let ours = network.forward(&mut lanes, &mut work, &mut on_no_host).unwrap().to_vec();
    let (first, second) = ours.split_at(ours.len() / 2);
    for (tokens, ours, snapshots) in [(tokens, first, &snapshots[..]), (others, second, &of_others[..])] {
        let mut state = state(&network, F32);
        let mut done = 0;
        for snapshot in snapshots {
            logits(&network, &mut work, &mut state, &tokens[done..snapshot.position], usize::MAX);
            done = snapshot.position;
            let kept: Vec<f32> = bytemuck::pod_collect_to_vec(&snapshot.recurrent.on_host().unwrap());
            close("recurrent state", &kept, &state.recurrent.on_host().unwrap(), 1e-4);
            close("convolution", &snapshot.conv.on_host().unwrap(), &state.conv.on_host().unwrap(), 1e-4);
        }
        let expected = logits(&network, &mut work, &mut state, &tokens[done..], usize::MAX);
        close("logits at the end", ours, &expected[expected.len() - ours.len()..], 1e-3);
    }
}

fn of_cpu(model: ModelWeights, precision: Precision, kv: KvFormats, tokens: &[u32]) -> Vec<f32> {
    let network = Network::new(model, precision);
    let mut state = SequenceState::new(network.state_shape, kv, &MemoryMeter::default()).unwrap();
    let mut lanes = [StepLane {
        state: &mut state,
        tokens,
        wanted: WantedLogits::All,
        recurrence_log: None,
        snapshots: &mut [],
        drafts: 0,
    }];
    network.forward(&Cpu::new(1), &mut lanes, &mut Workspace::default()).to_vec()
}

#[test]
fn quantised_models_are_as_near_as_the_cpu_is() {
    let Some(device) = device() else { return };
    let names = ["dense-wide.q4_k_m", "dense-wide.q8_0"];
    let (names, chunks, count): (&[&str], &[usize], usize) =
        if testing::is_emulated(&device) { (&names[..1], &[20, 4], 20) } else { (&names, &[40, 4, 1], 40) };
    for name in names {
        let path = format!("gguf/{name}.gguf");
        let tokens = GoldenFile::of_folder("dense-wide").tokens("prompt")[..count].to_vec();
        let exact = of_cpu(open(&path), Precision::F32, F16, &tokens);
        let theirs = distance(&of_cpu(open(&path), Precision::Integer, F16, &tokens), &exact);
        let network = GpuNetwork::new(&device, &open(&path), Precision::Integer, ALL).unwrap();
        let mut work = GpuWorkspace::new(&device).unwrap();
        for chunk in chunks {
            let ours = logits(&network, &mut work, &mut state(&network, F16), &tokens, *chunk);
            close(&format!("{name} in chunks of {chunk}, the CPU {theirs:.1e}"), &ours, &exact, 1.25 * theirs);
        }
    }
}

#[test]
fn several_sequences_are_each_as_alone() {
    let Some(device) = device() else { return };
    let network = GpuNetwork::new(&device, &open("dense-gva3"), Precision::F32, ALL).unwrap();
    let mut work = GpuWorkspace::new(&device).unwrap();
    let words = |len: usize, seed: u32| (0..len as u32).map(|i| (i * 37 + seed * 11) % 500).collect::<Vec<u32>>();
    let prompts = [words(70, 1), words(3, 2), words(20, 3)];
    let alone: Vec<Vec<f32>> =
        prompts.iter().map(|prompt| logits(&network, &mut work, &mut state(&network, F16), prompt, 100)).collect();
    let mut states = [(); 3].map(|()| state(&network, F16));
    // A chunk of each together, then the rest of two of them together, token by token.
    for (from, to) in [(0, 0.5), (1, 0.9)].map(|(round, share)| (round, share)) {
        let mut parts: Vec<(usize, std::ops::Range<usize>)> = Vec::new();
        let mut lanes: Vec<StepLane> = Vec::new();
        for (i, (state, prompt)) in states.iter_mut().zip(&prompts).enumerate() {
            let start = state.position;
            let end = ((prompt.len() as f64 * to) as usize).max(start + 1);
            parts.push((i, start..end));
            lanes.push(StepLane {
                state,
                tokens: &prompt[start..end],
                wanted: WantedLogits::All,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            });
        }
        let ours = network.forward(&mut lanes, &mut work, &mut on_no_host).unwrap().to_vec();
        let vocab = network.shape.vocab;
        let expected: Vec<f32> =
            parts.iter().flat_map(|(i, range)| alone[*i][range.start * vocab..range.end * vocab].to_vec()).collect();
        close(&format!("round {from}"), &ours, &expected, 1e-3);
    }
}

#[test]
fn a_past_is_gone_back_to_and_branched() {
    let Some(device) = device() else { return };
    let network = GpuNetwork::new(&device, &open("dense-gva3"), Precision::F32, ALL).unwrap();
    let mut work = GpuWorkspace::new(&device).unwrap();
    let words: Vec<u32> = (0..330u32).map(|i| (i * 37 + 5) % 500).collect();
    let other: Vec<u32> = (0..9u32).map(|i| (i * 91 + 3) % 500).collect();
    let meter = MemoryMeter::on(&device);
    let new = || (state(&network, F16), RecurrenceLog::new(&network.state_shape, LOG_TOKENS, &meter));
    let feed = |(state, log): &mut (SequenceState, RecurrenceLog), work: &mut GpuWorkspace, tokens: &[u32]| {
        let mut lanes = [StepLane {
            state,
            tokens,
            wanted: WantedLogits::Last,
            recurrence_log: Some(log),
            snapshots: &mut [],
            drafts: 0,
        }];
        network.forward(&mut lanes, work, &mut on_no_host).unwrap().to_vec()
    };
    let mut long = new();
    feed(&mut long, &mut work, &words[..230]);
    let snapshot = Snapshot::of(&long.0, Format::F32, None);
    feed(&mut long, &mut work, &words[230..310]);
    feed(&mut long, &mut work, &words[310..311]);
    feed(&mut long, &mut work, &words[311..]);
    assert!(long.1.covered().end == 330 && long.1.covered().start <= 330 - LOG_TOKENS, "{:?}", long.1.covered());

    // Back to a word after the snapshot, without a matrix product; then other tokens follow.
    let back = snapshot.restore(&long.0.pages, long.0.shape, long.0.layout, &meter, None);
    let mut heard = (back, long.1.branch(313));
    heard.0.pages = long.0.pages.clone();
    network.replay(&mut heard.0, &long.1, 313, &mut work).unwrap();
    let mut straight = new();
    feed(&mut straight, &mut work, &words[..313]);
    for (what, of) in [("recurrent state", 0), ("memory of the convolution", 1)] {
        let part = |state: &SequenceState| [&state.recurrent, &state.conv][of].on_host().unwrap().into_owned();
        close(what, &part(&heard.0), &part(&straight.0), 1e-5);
    }
    let after = feed(&mut heard, &mut work, &other);
    close("a sequence that went back", &after, &feed(&mut straight, &mut work, &other), 1e-4);

    // The first sequence continues unchanged, because the branch copied the shared page before it wrote to it.
    let mut branch = (long.0.branch(), long.1.branch(330));
    let first = feed(&mut branch, &mut work, &other);
    let second = feed(&mut long, &mut work, &other);
    assert_eq!(first, second);
    assert_eq!(meter.failure(), None);
}

#[test]
fn the_plan_knows_what_weights_take() {
    let model = open("gguf/dense-wide.q4_k_m.gguf");
    // An embedding that is no head stays on the host.
    let on_host = if model.output.is_some() { model.embed.bytes() } else { 0 };
    let file: usize = engine::model_bytes::weight_bytes(&model) - on_host;
    let (always, ffn) = device_bytes(&model);
    let ours = always + ffn.iter().sum::<usize>();
    assert!(ours >= file && ours < file + file / 100, "{ours} and {file}");
}

/// A plan's bytes are the bytes taken, by the device's own count.
#[test]
fn a_plan_is_what_is_taken() {
    let Some(device) = own_device() else { return };
    for (name, rows, lanes) in [("gguf/dense-wide.q4_k_m.gguf", 64, 3), ("gguf/moe.bf16.gguf", 40, 8)] {
        let model = open(name);
        let free = || device.properties().unwrap().free_bytes;
        let before = free();
        let limits = DeviceLimits {
            total_bytes: Some(64 << 20),
            host_free_bytes: None,
            chunk_tokens: rows - lanes,
            lanes,
            ffn_layers: None,
            longest: None,
        };
        let (mut executor, plan) = Executor::planned(&device, &model, Precision::Integer, &limits, no_cpu).unwrap();
        assert_eq!(plan.total_bytes, plan.weight_bytes + plan.scratch_bytes + plan.left_bytes);
        let (taken, planned) = (before - free(), plan.weight_bytes + plan.scratch_bytes);
        // Norms, gates and frequencies are small and not planned.
        assert!(taken >= planned && taken < planned + planned / 50, "{name}: {taken} are taken, {planned} planned");

        // A step takes no more memory than that, but for counted memory of sequences and the step's own inputs.
        let network = Network::new(model, Precision::Integer);
        let meter = executor.meter();
        let tokens: Vec<u32> = (0..rows as u32).collect();
        let mut states: Vec<SequenceState> =
            (0..lanes).map(|_| SequenceState::new(network.state_shape, F16, &meter).unwrap()).collect();
        for (lanes, rows) in [(1, rows), (lanes, rows), (lanes, lanes), (1, 1), (2, rows / 2), (2, 10)] {
            let mut step: Vec<StepLane> = states[..lanes]
                .iter_mut()
                .map(|state| StepLane {
                    state,
                    tokens: &tokens[..rows / lanes],
                    wanted: WantedLogits::Last,
                    recurrence_log: None,
                    snapshots: &mut [],
                    drafts: 0,
                })
                .collect();
            executor.forward(&network, &mut step).unwrap();
            let counted = meter.used_bytes() + (64 << 10); // not a window: bytes
            assert!(before - free() <= taken + counted, "{name}: {lanes} lanes, {rows} rows");
        }
        drop((states, executor));
        assert_eq!(free(), before, "{name}: all of it is given back");
    }
    let limits = DeviceLimits {
        total_bytes: Some(1 << 20),
        host_free_bytes: None,
        chunk_tokens: 62,
        lanes: 2,
        ffn_layers: None,
        longest: None,
    };
    let error = DeviceMemoryPlan::new(
        &DeviceFacts::of(&device).unwrap(),
        &open("gguf/dense-wide.q4_k_m.gguf"),
        Precision::Integer,
        &limits,
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("does not fit") && error.contains("raise memory.gpu_total"), "{error}");
}

#[test]
fn a_window_takes_what_is_planned() {
    let Some(device) = own_device() else { return };
    let model = open("gguf/dense-wide.q4_k_m.gguf");
    let shape = engine::state::StateShape::new(&model.shape);
    let executor = Executor::on_gpu(&device, &model, Precision::Integer).unwrap();
    let q8_q4 = KvFormats::new(Format::Q8_0, Format::Q4_0);
    for kv in [F16, KvFormats::new(Format::Q8_0, Format::Q8_0), q8_q4] {
        for tokens in [1, 300, 5000] {
            let before = device.used_bytes().unwrap();
            let mut state = SequenceState::new(shape, kv, &executor.meter()).unwrap();
            state.reserve(tokens);
            assert_eq!(executor.failure(), None);
            let taken = device.used_bytes().unwrap() - before;
            let pages = tokens.div_ceil(engine::state::PAGE_TOKENS) * shape.page_bytes(&shape.layout(kv).unwrap());
            let planned = pages + shape.fixed_bytes();
            assert!(taken.abs_diff(planned) * 50 <= planned, "{tokens} tokens: {taken} taken, {planned} planned");
        }
    }
}

fn no_cpu() -> Cpu {
    panic!("the whole model is on the device");
}

/// The host computes feed-forward parts without room on the device, and the answers stay the same.
#[test]
fn what_has_no_room_is_computed_by_the_host() {
    let Some(device) = own_device() else { return };
    for (name, precision, tolerance) in [
        ("gguf/dense-gva2.bf16.gguf", Precision::F32, 1e-3),
        ("gguf/moe.bf16.gguf", Precision::F32, 1e-3),
        ("gguf/dense-wide.q4_k_m.gguf", Precision::Integer, 0.1),
    ] {
        let model = open(name);
        let (always, ffn) = device_bytes(&model);
        let limits = DeviceLimits {
            total_bytes: None,
            host_free_bytes: None,
            chunk_tokens: 10,
            lanes: 2,
            ffn_layers: None,
            longest: None,
        };
        let whole = DeviceMemoryPlan::new(&DeviceFacts::of(&device).unwrap(), &model, precision, &limits).unwrap();
        assert_eq!((whole.ffn_layers, whole.host_bytes, whole.host_note()), (ffn.len(), 0, None));

        // A conversation that has room if the CPU computes all but two of those parts.
        let tokens = 300;
        let of_longest = engine::EngineLimits { prefill_chunk_tokens: 12, ..LIMITS };
        let longest = LongestConversation { limits: of_longest, kv: F16, tokens };
        let shape = engine::state::StateShape::new(&model.shape);
        let needed = of_longest.bytes_of(&shape, F16, tokens).unwrap();
        let total = always + ffn[..2].iter().sum::<usize>() + whole.scratch_bytes + needed;
        let limits = DeviceLimits { total_bytes: Some(total), longest: Some(longest), ..limits };
        let (mut executor, plan) = Executor::planned(&device, &model, precision, &limits, || Cpu::new(1)).unwrap();
        assert_eq!((plan.ffn_layers, plan.layers), (2, ffn.len()));
        assert_eq!(plan.left_bytes, needed);
        assert!(plan.host_bytes > 0 && plan.host_note().unwrap().contains("feed-forward"), "{plan:?}");

        let mut packed = open(name);
        let on_host = PackedPart::FeedForward { from: plan.ffn_layers };
        weights::pack(&mut packed, on_host, &Cpu::new(1), None, true, &mut |_, _| ()).unwrap();
        let network = Network::new(packed, precision);
        let mut state = SequenceState::new(network.state_shape, F16, &executor.meter()).unwrap();
        let tokens: Vec<u32> = (0..14u32).map(|i| (i * 37 + 5) % 500).collect();
        let mut ours = Vec::new();
        for tokens in [&tokens[..12], &tokens[12..13], &tokens[13..]] {
            let mut lanes = [StepLane {
                state: &mut state,
                tokens,
                wanted: WantedLogits::All,
                recurrence_log: None,
                snapshots: &mut [],
                drafts: 0,
            }];
            ours.extend_from_slice(executor.forward(&network, &mut lanes).unwrap());
        }
        assert_eq!(executor.failure(), None);
        close(name, &ours, &of_cpu(model, precision, F16, &tokens), tolerance);
    }
}

const LIMITS: engine::EngineLimits = engine::EngineLimits {
    prefill_chunk_tokens: 64,
    max_sequences: 2,
    max_waiting: 8,
    max_logit_bias: 8,
    memory_bytes: usize::MAX,
    moved_snapshot_bytes: 0,
    snapshots: Format::F32,
    snapshot_spacing_tokens: 256,
    recurrence_log_tokens: 32,
    heads: 4,
};

fn own_device() -> Option<Device> {
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    let emulator = testing::open_emulator(&folder);
    let emulator =
        emulator.map_err(|error| println!("skipped: only an emulated device counts exactly; {error}")).ok()?;
    Some(emulator.device())
}

/// Repeats some tests through a driver: they check how a driver is asked for models, states and recorded steps, not
/// what it computes.
#[test]
fn as_a_driver_wants_it() {
    use testing::stand_in::{STARTED, expect_passed, run_again};
    if std::env::var_os(STARTED).is_some() {
        return;
    }
    let folder = std::env::temp_dir().join("reprise-gpu-tests");
    if let Some(output) = run_again(&std::env::current_exe().unwrap(), &folder, 90, &["a_past", "several", "quantised"])
    {
        expect_passed(&output, 3);
    }
}
