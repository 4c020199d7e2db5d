//! The block for multi-token prediction against PyTorch (tests/data/reference/make_prediction.py).

use engine::Executor;
use engine::memory::MemoryMeter;
use engine::network::{Network, PredictionLane, StepLane, WantedLogits, Workspace};
use engine::recurrence_log::RecurrenceLog;
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use testing::device_of_tests;

use testing::golden::{GoldenFile, assert_near_golden as close, reference_models};

const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);

fn network(model: &str, precision: Precision) -> Network {
    Network::new(weights::open(&reference_models().join(model), true).unwrap(), precision)
}

fn state(network: &Network) -> SequenceState {
    SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap()
}

fn read(network: &Network, cpu: &Cpu, state: &mut SequenceState, tokens: &[u32], chunk: usize) {
    for tokens in tokens.chunks(chunk) {
        let wanted = WantedLogits::Nothing;
        let mut lanes = [StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
        network.forward(cpu, &mut lanes, &mut Workspace::default());
    }
}

/// Predicts `count` tokens behind a token; returns them and the logits of the last one.
fn guesses(network: &Network, cpu: &Cpu, state: &mut SequenceState, token: u32, count: usize) -> (Vec<u32>, Vec<f32>) {
    let (mut drafts, mut work) = (Vec::new(), Workspace::default());
    state.reserve(count);
    let mut lanes = [PredictionLane { state, token, count, drafts: &mut drafts }];
    let logits = network.predict(cpu, &mut lanes, network.shape().vocab, &mut work).to_vec();
    (drafts, logits)
}

#[test]
fn guesses_and_chains_of_them() {
    let (cpu, golden) = (Cpu::new(2), GoldenFile::of_folder("dense-mtp"));
    let (prompt, expected, chained) = (golden.tokens("prompt"), golden.floats("guesses"), golden.tokens("chained"));
    let network = network("dense-mtp", Precision::F32);
    let vocab = network.shape().vocab;
    for chunk in [180, 1, 7, 64] {
        let mut state = state(&network);
        for at in [1, 5, 63, 64, 100, 179] {
            let from = state.position;
            read(&network, &cpu, &mut state, &prompt[from..at], chunk);
            let (first, logits) = guesses(&network, &cpu, &mut state, prompt[at], 1);
            close(&format!("after {at} in chunks of {chunk}"), &logits, &expected[at * vocab..][..vocab], 1e-4);
            // Predictions are forgotten: the state is where it was, and the next tokens overwrite the rows.
            let (all, _) = guesses(&network, &cpu, &mut state, prompt[at], 4);
            assert_eq!(all, chained[at * 4..][..4], "after {at} in chunks of {chunk}");
            assert_eq!((first[0], state.position), (all[0], at));
        }
    }
}

#[test]
fn drafts_that_were_verified_leave_what_plain_steps_leave() {
    let (cpu, golden) = (Cpu::new(2), GoldenFile::of_folder("dense-mtp"));
    let (prompt, expected) = (golden.tokens("prompt"), golden.floats("guesses"));
    let network = network("dense-mtp", Precision::F32);
    let (hidden, vocab) = (network.shape().hidden, network.shape().vocab);
    let mut state = state(&network);
    read(&network, &cpu, &mut state, &prompt[..100], 64);
    let mut log = RecurrenceLog::new(&network.state_shape, 32, &MemoryMeter::default());
    // Of five drafts two are the prompt's own.
    let tokens = [&prompt[100..103], &[3, 5, 7]].concat();
    let mut lanes = [StepLane {
        state: &mut state,
        tokens: &tokens,
        wanted: WantedLogits::Last,
        recurrence_log: Some(&mut log),
        snapshots: &mut [],
        drafts: 5,
    }];
    network.forward(&cpu, &mut lanes, &mut Workspace::default());
    assert_eq!((state.position, state.outputs.len()), (101, 6 * hidden));
    let outputs = state.outputs[2 * hidden..3 * hidden].to_vec();
    network.replay(&cpu, &mut state, &log, 103);
    assert!(state.outputs.is_empty(), "a replay does not compute them");
    state.outputs = outputs;
    let (_, logits) = guesses(&network, &cpu, &mut state, prompt[103], 1);
    close("behind drafts", &logits, &expected[103 * vocab..][..vocab], 1e-4);
}

#[test]
fn lanes_are_guessed_together_and_of_the_first_tokens_only() {
    let (cpu, golden) = (Cpu::new(2), GoldenFile::of_folder("dense-mtp"));
    let (prompt, chained) = (golden.tokens("prompt"), golden.tokens("chained"));
    let network = network("dense-mtp", Precision::F32);
    let cuts = [(20, 2), (90, 4), (150, 0), (170, 1)];
    let mut states = cuts.map(|(cut, count)| {
        let mut state = state(&network);
        read(&network, &cpu, &mut state, &prompt[..cut], 64);
        state.reserve(count);
        state
    });
    let mut drafts = cuts.map(|_| Vec::new());
    let lanes = states.iter_mut().zip(&mut drafts).zip(cuts);
    let mut lanes: Vec<PredictionLane> = lanes
        .map(|((state, drafts), (cut, count))| PredictionLane { state, token: prompt[cut], count, drafts })
        .collect();
    let mut work = Workspace::default();
    network.predict(&cpu, &mut lanes, network.shape().vocab, &mut work);
    for (drafts, (cut, count)) in drafts.iter().zip(cuts) {
        assert_eq!(drafts[..], chained[cut * 4..][..count]);
    }
    let (state, mut few) = (&mut states[0], Vec::new());
    let mut lanes = [PredictionLane { state, token: prompt[20], count: 2, drafts: &mut few }];
    assert_eq!(network.predict(&cpu, &mut lanes, 32, &mut work).len(), 32);
    assert!(few.len() == 2 && few.iter().all(|token| *token < 32), "{few:?}");
}

/// The two tests above on a device, in fewer places: an emulated device is slow.
#[test]
fn guesses_on_a_device() {
    let Some(device) = device_of_tests() else { return };
    let golden = GoldenFile::of_folder("dense-mtp");
    let (prompt, chained) = (golden.tokens("prompt"), golden.tokens("chained"));
    let network = network("dense-mtp", Precision::F32);
    let mut executor = Executor::on_gpu(&device, &network.model, Precision::F32).unwrap();
    let meter = executor.meter();
    let mut states = [20, 63, 90].map(|end| {
        let mut state = SequenceState::new(network.state_shape, F32, &meter).unwrap();
        for tokens in prompt[..end - 1].chunks(40).chain([&prompt[end - 1..end]]) {
            let wanted = WantedLogits::Nothing;
            let state = &mut state;
            let mut lanes = [StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
            executor.forward(&network, &mut lanes).unwrap();
        }
        state
    });
    // The first one reads four more tokens, of which three are drafts; one of these is right.
    let mut log = RecurrenceLog::new(&network.state_shape, 32, &meter);
    let tokens = [&prompt[20..22], &[3, 5]].concat();
    let mut lanes = [StepLane {
        state: &mut states[0],
        tokens: &tokens,
        wanted: WantedLogits::Last,
        recurrence_log: Some(&mut log),
        snapshots: &mut [],
        drafts: 3,
    }];
    executor.forward(&network, &mut lanes).unwrap();
    let hidden = network.shape().hidden;
    assert_eq!((states[0].position, states[0].outputs.len()), (21, 4 * hidden));
    let outputs = states[0].outputs[hidden..2 * hidden].to_vec();
    executor.replay(&network, &mut states[0], &log, 22);
    states[0].outputs = outputs;
    let ends = [(22, 4), (63, 2), (90, 0)];
    let mut drafts = [Vec::new(), Vec::new(), Vec::new()];
    let lanes = states.iter_mut().zip(&mut drafts).zip(ends);
    let mut lanes: Vec<PredictionLane> = lanes
        .map(|((state, drafts), (end, count))| {
            state.reserve(count);
            PredictionLane { state, token: prompt[end], count, drafts }
        })
        .collect();
    executor.predict(&network, &mut lanes, network.shape().vocab);
    assert_eq!(executor.failure(), None);
    for (drafts, (end, count)) in drafts.iter().zip(ends) {
        assert_eq!(drafts[..], chained[end * 4..][..count], "after {end}");
    }
    let (state, mut few) = (&mut states[1], Vec::new());
    executor.predict(&network, &mut [PredictionLane { state, token: prompt[63], count: 2, drafts: &mut few }], 32);
    assert!(few.len() == 2 && few.iter().all(|token| *token < 32), "{few:?}");
}

/// Steps of one token are recorded once, and their graph must have all that they do: the rows of an embedding on the host, too, which
/// models have whose output matrix is another one.
#[test]
fn a_block_beside_an_embedding_on_the_host_computes_each_step_on_a_device() {
    let Some(device) = device_of_tests() else { return };
    let golden = GoldenFile::of_folder("dense-mtp");
    let (prompt, chained) = (golden.tokens("prompt"), golden.tokens("chained"));
    let mut model = weights::open(&reference_models().join("dense-mtp"), true).unwrap();
    model.output = Some(model.embed.clone());
    let mut on_device = Executor::on_gpu(&device, &model, Precision::F32).unwrap();
    let (network, mut on_cpu) = (Network::new(model, Precision::F32), Executor::on_cpu(Cpu::new(2)));
    let mut states =
        [&on_device, &on_cpu].map(|executor| SequenceState::new(network.state_shape, F32, &executor.meter()).unwrap());
    let step = |executor: &mut Executor, state: &mut SequenceState, tokens: &[u32]| {
        let wanted = WantedLogits::Last;
        let mut lanes = [StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
        executor.forward(&network, &mut lanes).unwrap().to_vec()
    };
    for tokens in prompt[..12].chunks(8).chain(prompt[12..20].chunks(1)) {
        let ours = step(&mut on_device, &mut states[0], tokens);
        let expected = step(&mut on_cpu, &mut states[1], tokens);
        close(&format!("behind {}", states[0].position), &ours, &expected, 1e-4);
    }
    let (state, mut drafts) = (&mut states[0], Vec::new());
    state.reserve(4);
    let mut lanes = [PredictionLane { state, token: prompt[20], count: 4, drafts: &mut drafts }];
    on_device.predict(&network, &mut lanes, network.shape().vocab);
    assert_eq!(on_device.failure(), None);
    assert_eq!(drafts, chained[20 * 4..][..4]);
}

#[test]
fn the_model_itself_computes_what_it_does_without_the_block() {
    let (cpu, golden) = (Cpu::new(2), GoldenFile::of_folder("dense-tied"));
    let network = network("dense-mtp", Precision::F32);
    let (mut state, mut work) = (state(&network), Workspace::default());
    let (tokens, wanted) = (golden.tokens("prompt"), WantedLogits::All);
    let mut lanes =
        [StepLane { state: &mut state, tokens: &tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
    close("logits", network.forward(&cpu, &mut lanes, &mut work), &golden.floats("logits"), 1e-4);
}
