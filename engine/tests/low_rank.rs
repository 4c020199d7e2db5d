//! Low-rank additions to matrices (LoRA): the product with them is the product of the merged matrix.

use engine::Executor;
use engine::gpu_network::{GpuNetwork, GpuWorkspace, device_bytes};
use engine::memory::MemoryMeter;
use engine::network::{Network, PredictionLane, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use gpu::Device;
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use reference::{distance, random};
use testing::golden::reference_models;
use weights::{Ffn, LowRank, Matrix, Mixer, ModelBytes, ModelWeights};

const KV: KvFormats = KvFormats::new(Format::F32, Format::F32);

fn model() -> ModelWeights {
    model_of("dense-tied")
}

fn model_of(name: &str) -> ModelWeights {
    weights::open(&reference_models().join(name), true).unwrap()
}

/// Changes every matrix of the layers; the number makes each of them another one.
fn change(model: &mut ModelWeights, to: impl Fn(&Matrix, u64) -> Matrix) {
    let mut matrices: Vec<&mut Matrix> = Vec::new();
    for layer in &mut model.layers {
        match &mut layer.mixer {
            Mixer::Attention(w) => matrices.extend([&mut w.q, &mut w.k, &mut w.v, &mut w.o]),
            Mixer::Delta(w) => matrices.extend([&mut w.qkv, &mut w.z, &mut w.a, &mut w.b, &mut w.out]),
        }
        match &mut layer.ffn {
            Ffn::Dense(ffn) => matrices.extend([&mut ffn.gate, &mut ffn.up, &mut ffn.down]),
            Ffn::Moe(moe) => {
                let shared = moe.shared.iter_mut().map(|shared| &mut shared.expert);
                // The last expert has no addition.
                let last = moe.experts.len() - 1;
                for expert in moe.experts[..last].iter_mut().chain(shared) {
                    matrices.extend([&mut expert.gate, &mut expert.up, &mut expert.down]);
                }
            }
        }
    }
    matrices.into_iter().zip(1..).for_each(|(matrix, number)| *matrix = to(matrix, number));
}

fn addition(matrix: &Matrix, seed: u64) -> LowRank {
    let (rank, scale) = (2 + seed as usize % 2, 0.02);
    let (a, b) = (random(rank * matrix.cols(), seed), random(matrix.rows() * rank, seed + 1000));
    LowRank { rank, scale, a, b }
}

fn with_addition(matrix: &Matrix, seed: u64) -> Matrix {
    matrix.clone().with_low_rank(addition(matrix, seed)).unwrap()
}

/// Makes the dense matrix W + scale · B A in f64.
fn merged(matrix: &Matrix, seed: u64) -> Matrix {
    let LowRank { rank, scale, a, b } = addition(matrix, seed);
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let mut row = vec![0.0; cols];
    let mut bytes = Vec::new();
    for n in 0..rows {
        matrix.row(n, &mut row);
        for (col, value) in row.iter().enumerate() {
            let added: f64 = (0..rank).map(|r| f64::from(b[n * rank + r]) * f64::from(a[r * cols + col])).sum();
            bytes.extend(((f64::from(*value) + f64::from(scale) * added) as f32).to_le_bytes());
        }
    }
    Matrix::of_blocks(Format::F32, rows, cols, ModelBytes::copy_of(&bytes)).unwrap()
}

fn logits(model: ModelWeights, tokens: &[u32]) -> Vec<f32> {
    let network = Network::new(model, Precision::F32);
    let mut state = SequenceState::new(network.state_shape, KV, &MemoryMeter::default()).unwrap();
    let wanted = WantedLogits::All;
    let mut lanes =
        [StepLane { state: &mut state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
    network.forward(&Cpu::new(2), &mut lanes, &mut Workspace::default()).to_vec()
}

#[test]
fn a_model_with_additions_computes_as_the_merged_one() {
    let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 100).collect();
    let (mut added, mut dense) = (model(), model());
    change(&mut added, with_addition);
    change(&mut dense, merged);
    let (ours, expected) = (logits(added, &tokens), logits(dense, &tokens));
    let (near, far) = (distance(&ours, &expected), distance(&ours, &logits(model(), &tokens)));
    println!("{near:.1e} from the merged model, {far:.1e} from the one without");
    assert!(near <= 1e-5, "{near:e}");
    assert!(far > 1e-2, "{far:e}: the addition makes no difference");
}

/// Returns the logits of a GPU: of all tokens but three in one step, and of these in a second one, which has few rows.
fn logits_of_gpu(device: &Device, model: &ModelWeights, precision: Precision, tokens: &[u32]) -> Vec<f32> {
    let network = GpuNetwork::new(device, model, precision, usize::MAX).unwrap();
    let mut work = GpuWorkspace::new(device).unwrap();
    let mut state = SequenceState::new(network.state_shape, KV, &MemoryMeter::on(device)).unwrap();
    let (many, few) = tokens.split_at(tokens.len() - 3);
    let step = |tokens| {
        let (state, wanted) = (&mut state, WantedLogits::All);
        let mut lanes = [StepLane { state, tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
        network
            .forward(&mut lanes, &mut work, &mut |_, _| unreachable!("all layers are on the device"))
            .unwrap()
            .to_vec()
    };
    [many, few].into_iter().flat_map(step).collect()
}

#[test]
fn a_gpu_computes_additions_as_the_cpu_does() {
    let Some(device) = testing::device_of_tests() else { return };
    let tokens: Vec<u32> = (0..14).map(|i| i * 7 % 100).collect();
    for name in ["dense-tied", "moe"] {
        let mut added = model_of(name);
        change(&mut added, with_addition);
        // The output matrix is the embedding as well, where a model is tied.
        let output = added.output.as_mut().unwrap_or(&mut added.embed);
        *output = with_addition(output, 500);
        let expected = logits(added.clone(), &tokens);
        for (precision, most) in [(Precision::F32, 1e-3), (Precision::Integer, 0.05)] {
            let ours = logits_of_gpu(&device, &added, precision, &tokens);
            let (near, far) = (distance(&ours, &expected), distance(&ours, &logits(model_of(name), &tokens)));
            println!("{name}, {precision:?}: {near:.1e} from the CPU, {far:.1e} from the model without additions");
            assert!(near <= most, "{name}, {precision:?}: {near:e}");
            assert!(far > 10.0 * most.min(0.01), "{name}: {far:e}: the addition makes no difference");
        }
    }
}

/// Returns four tokens that the block for multi-token prediction guesses behind 20 others.
fn guesses(executor: &mut Executor, network: &Network) -> Vec<u32> {
    let mut state = SequenceState::new(network.state_shape, KV, &executor.meter()).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 100).collect();
    let (wanted, mut drafts) = (WantedLogits::Last, Vec::new());
    let mut lanes =
        [StepLane { state: &mut state, tokens: &tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
    executor.forward(network, &mut lanes).unwrap();
    state.reserve(4);
    let mut lanes = [PredictionLane { state: &mut state, token: 40, count: 4, drafts: &mut drafts }];
    executor.predict(network, &mut lanes, network.shape().vocab);
    assert_eq!(executor.failure(), None);
    drafts
}

#[test]
fn a_gpu_guesses_with_additions_as_the_cpu_does() {
    let Some(device) = testing::device_of_tests() else { return };
    let (plain, mut added) = (model_of("dense-mtp"), model_of("dense-mtp"));
    let block = added.prediction.as_mut().unwrap();
    block.join = block.join.clone().with_low_rank(LowRank { scale: 0.2, ..addition(&block.join, 7) }).unwrap();
    let [of_plain, of_added] = [plain, added].map(|model| {
        let mut gpu = Executor::on_gpu(&device, &model, Precision::F32).unwrap();
        let network = Network::new(model, Precision::F32);
        let expected = guesses(&mut Executor::on_cpu(Cpu::new(2)), &network);
        assert_eq!(guesses(&mut gpu, &network), expected);
        expected
    });
    assert_ne!(of_plain, of_added, "the addition makes no difference");
}

#[test]
fn a_plan_counts_what_additions_take_on_a_device() {
    let (mut added, plain) = (model(), model());
    change(&mut added, with_addition);
    let total = |model: &ModelWeights| {
        let (always, layers) = device_bytes(model);
        always + layers.into_iter().sum::<usize>()
    };
    // Rows are filled up to eight values of four bytes.
    let of = |matrix: &Matrix| matrix.low_rank().map_or(0, |it| 4 * (it.rank * matrix.cols() + matrix.rows() * 8));
    let expected: usize = added.layers.iter().flat_map(|layer| layer.matrices()).map(of).sum();
    assert_eq!(total(&added) - total(&plain), expected);
}

/// Adds to experts by different ranks, to all but one, and to a matrix that is cut in two on a device.
#[test]
fn a_plan_counts_the_additions_to_experts_as_they_lie_on_a_device() {
    if !testing::has_emulator() {
        return;
    }
    for name in ["moe", "dense-mtp"] {
        let mut added = model_of(name);
        change(&mut added, with_addition);
        if let Some(block) = &mut added.prediction {
            block.join = with_addition(&block.join, 7);
        }
        let [of_plain, of_added] = [&model_of(name), &added].map(|model| {
            let device = testing::open_emulator(&std::env::temp_dir().join("reprise-gpu-tests")).unwrap().device();
            let network = GpuNetwork::new(&device, model, Precision::F32, usize::MAX).unwrap();
            let (taken, (always, layers)) = (device.used_bytes().unwrap(), device_bytes(model));
            drop(network);
            (taken, always + layers.into_iter().sum::<usize>())
        });
        assert_eq!(of_added.0 - of_plain.0, of_added.1 - of_plain.1, "{name}");
    }
}
