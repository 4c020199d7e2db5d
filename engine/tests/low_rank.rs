//! Low-rank additions to matrices (LoRA): the product with them is the product of the merged matrix.

use engine::Executor;
use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use reference::{distance, random};
use testing::golden::reference_models;
use weights::{Ffn, LowRank, Matrix, Mixer, ModelBytes, ModelWeights};

const KV: KvFormats = KvFormats::new(Format::F32, Format::F32);

fn model() -> ModelWeights {
    weights::open(&reference_models().join("dense-tied"), true).unwrap()
}

/// Changes every matrix of the layers; the number makes each of them another one.
fn change(model: &mut ModelWeights, to: impl Fn(&Matrix, u64) -> Matrix) {
    let mut matrices: Vec<&mut Matrix> = Vec::new();
    for layer in &mut model.layers {
        match &mut layer.mixer {
            Mixer::Attention(w) => matrices.extend([&mut w.q, &mut w.k, &mut w.v, &mut w.o]),
            Mixer::Delta(w) => matrices.extend([&mut w.qkv, &mut w.z, &mut w.a, &mut w.b, &mut w.out]),
        }
        let Ffn::Dense(ffn) = &mut layer.ffn else { panic!("the model is dense") };
        matrices.extend([&mut ffn.gate, &mut ffn.up, &mut ffn.down]);
    }
    matrices.into_iter().zip(1..).for_each(|(matrix, number)| *matrix = to(matrix, number));
}

fn addition(matrix: &Matrix, seed: u64) -> LowRank {
    let (rank, scale) = (3, 0.02);
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

#[test]
fn a_gpu_refuses_additions_until_its_kernels_know_them() {
    let Some(device) = testing::device_of_tests() else { return };
    let mut added = model();
    change(&mut added, with_addition);
    let error = Executor::on_gpu(&device, &added, Precision::F32).err().unwrap().to_string();
    assert!(error.contains("low-rank addition") && error.contains("the CPU computes this model"), "{error}");
}
