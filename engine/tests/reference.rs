//! Whole models against the reference implementation's results (tests/data/reference, with their recipe).

use std::path::{Path, PathBuf};

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use weights::{HeadOrder, LayerKind};

use testing::golden::{GoldenFile, assert_near_golden as close, reference_models};

const FOLDERS: [&str; 6] = ["dense-tied", "dense-gva2", "dense-gva3", "moe", "dense-yarn", "dense-wide"];
const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);

fn open(path: &Path, precision: Precision) -> Network {
    Network::new(weights::open(path, true).unwrap(), precision)
}

/// Paths of every model that must compute the folder's golden results: the folder itself and its bf16 GGUF.
fn of_folder(name: &str) -> [PathBuf; 2] {
    [reference_models().join(name), reference_models().join(format!("gguf/{name}.bf16.gguf"))]
}

fn logits(network: &Network, cpu: &Cpu, state: &mut SequenceState, tokens: &[u32], chunk: usize) -> Vec<f32> {
    let mut work = Workspace::default();
    let mut all = Vec::new();
    for tokens in tokens.chunks(chunk) {
        let mut lanes = [StepLane {
            state,
            tokens,
            wanted: WantedLogits::All,
            recurrence_log: None,
            snapshots: &mut [],
            drafts: 0,
        }];
        all.extend_from_slice(network.forward(cpu, &mut lanes, &mut work));
    }
    all
}

#[test]
fn logits_in_one_pass_in_two_and_in_chunks() {
    let cpu = Cpu::new(2);
    for name in FOLDERS {
        let golden = GoldenFile::of_folder(name);
        let (prompt, expected) = (golden.tokens("prompt"), golden.floats("logits"));
        for path in of_folder(name) {
            let network = open(&path, Precision::F32);
            let new = || SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
            for chunk in [180, 1, 7, 64, 65] {
                let ours = logits(&network, &cpu, &mut new(), &prompt, chunk);
                close(&format!("{} in chunks of {chunk}", path.display()), &ours, &expected, 1e-4);
            }
            let mut state = new();
            logits(&network, &cpu, &mut state, &prompt[..100], 100);
            let second = logits(&network, &cpu, &mut state, &prompt[100..], 80);
            close("second pass", &second, &golden.floats("logits_second_pass"), 1e-4);
        }
    }
}

/// The folder with YaRN, without it and stretched by a preset, is the model that its maker stretched.
#[test]
fn a_stretched_model_is_the_one_that_states_its_stretch() {
    let (golden, source) = (GoldenFile::of_folder("dense-yarn"), reference_models().join("dense-yarn"));
    let folder = tempfile::tempdir().unwrap();
    for file in ["model.safetensors", "tokenizer.json", "config.json"] {
        std::fs::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let text = if config["text_config"].is_object() { &mut config["text_config"] } else { &mut config };
    let rope = &mut text["rope_parameters"];
    let (factor, original) = (rope["factor"].as_f64().unwrap(), rope["original_max_position_embeddings"].clone());
    rope["rope_type"] = "default".into();
    text["max_position_embeddings"] = original;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

    let stated = weights::open(&source, true).unwrap();
    let mut stretched = weights::open(folder.path(), true).unwrap();
    let plain = stretched.fingerprint;
    stretched.stretch(factor).unwrap();
    assert_eq!((&stretched.shape.rope, stretched.shape.native_ctx), (&stated.shape.rope, stated.shape.native_ctx));
    assert!(stretched.fingerprint != plain, "its states are its own");
    assert!(stretched.stretch(2.0).is_err() && stated.clone().stretch(2.0).is_err());
    assert!(stated.clone().stretch(1.0).is_ok());
    let (cpu, network) = (Cpu::new(2), Network::new(stretched, Precision::F32));
    let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
    let ours = logits(&network, &cpu, &mut state, &golden.tokens("prompt"), 64);
    close("stretched", &ours, &golden.floats("logits"), 1e-4);
}

#[test]
fn state_after_a_hundred_tokens() {
    let cpu = Cpu::new(2);
    for name in FOLDERS {
        let golden = GoldenFile::of_folder(name);
        let prompt = golden.tokens("prompt");
        for path in of_folder(name) {
            let network = open(&path, Precision::F32);
            let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
            logits(&network, &cpu, &mut state, &prompt[..100], 64);
            let (mut attention, mut delta) = (0, 0);
            for (layer, kind) in network.shape().layers.iter().enumerate() {
                match kind {
                    LayerKind::Delta => {
                        check_delta(&network, &state, delta, layer, &golden);
                        delta += 1;
                    }
                    LayerKind::Attention => {
                        check_attention(&network, &state, attention, layer, &golden);
                        attention += 1;
                    }
                }
            }
        }
    }
}

fn check_delta(network: &Network, state: &SequenceState, index: usize, layer: usize, golden: &GoldenFile) {
    let heads = network.state_shape.heads;
    // The golden state sorts value heads by key head; a GGUF file tiles them.
    let ratio = heads.value_heads / heads.key_heads;
    let golden_head = |head: usize| match network.shape().value_head_order {
        HeadOrder::Grouped => head,
        HeadOrder::Tiled => head % heads.key_heads * ratio + head / heads.key_heads,
    };
    let size = heads.key_dim * heads.value_dim;
    let expected = golden.floats(&format!("recurrent.{layer}.at100"));
    let expected: Vec<f32> =
        (0..heads.value_heads).flat_map(|head| expected[golden_head(head) * size..][..size].to_vec()).collect();
    close(
        &format!("recurrent.{layer}"),
        &state.recurrent.host()[index * heads.state()..][..heads.state()],
        &expected,
        1e-4,
    );

    // The golden convolution state is [channel, 4 inputs], of which ours are the last three.
    let (past, channels) = (network.state_shape.conv_past, heads.channels());
    let golden_channel = |channel: usize| match channel.checked_sub(2 * heads.keys()) {
        None => channel,
        Some(value) => {
            2 * heads.keys() + golden_head(value / heads.value_dim) * heads.value_dim + value % heads.value_dim
        }
    };
    let conv = golden.floats(&format!("conv.{layer}.at100"));
    let kept = conv.len() / channels;
    let expected: Vec<f32> =
        (0..past * channels).map(|i| conv[golden_channel(i % channels) * kept + kept - past + i / channels]).collect();
    close(&format!("conv.{layer}"), &state.conv.host()[index * past * channels..][..past * channels], &expected, 1e-4);
}

fn check_attention(network: &Network, state: &SequenceState, index: usize, layer: usize, golden: &GoldenFile) {
    let (heads, dim) = (network.shape().kv_heads, network.shape().head_dim);
    let (mut keys, mut values) = (vec![0.0; heads * 100 * dim], vec![0.0; heads * 100 * dim]);
    for head in 0..heads {
        for position in 0..100 {
            let range = (head * 100 + position) * dim..(head * 100 + position + 1) * dim;
            state.read(index, head, position, &mut keys[range.clone()], &mut values[range]);
        }
    }
    close(&format!("key.{layer}"), &keys, &golden.floats(&format!("key.{layer}.at100")), 1e-4);
    close(&format!("value.{layer}"), &values, &golden.floats(&format!("value.{layer}.at100")), 1e-4);
}

#[test]
fn greedy_tokens() {
    let cpu = Cpu::new(2);
    for name in FOLDERS {
        let golden = GoldenFile::of_folder(name);
        let prompt = golden.tokens("prompt");
        for path in of_folder(name) {
            let network = open(&path, Precision::F32);
            let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
            let vocab = network.shape().vocab;
            let mut last = logits(&network, &cpu, &mut state, &prompt, 64).split_off((prompt.len() - 1) * vocab);
            let mut tokens = Vec::new();
            for _ in 0..48 {
                let best = (0..vocab).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap() as u32;
                tokens.push(best);
                last = logits(&network, &cpu, &mut state, &[best], 1);
            }
            assert_eq!(tokens, golden.tokens("greedy"), "{}", path.display());
            close("after greedy", &last, &golden.floats("logits_after_greedy"), 1e-4);
        }
    }
}

#[test]
fn quantised_files_against_their_own_weights() {
    let cpu = Cpu::new(2);
    for name in ["dense-wide.q4_k_m", "dense-wide.q8_0"] {
        let golden = GoldenFile::open(reference_models().join(format!("gguf/{name}.logits.safetensors")));
        let path = reference_models().join(format!("gguf/{name}.gguf"));
        let cases =
            [(Precision::F32, false, 1e-4), (Precision::Integer, false, 5e-2), (Precision::Integer, true, 5e-2)];
        for (precision, packed, tolerance) in cases {
            let mut network = open(&path, precision);
            if packed {
                weights::pack(&mut network.model, weights::PackedPart::All, &cpu, None, true, &mut |_, _| ()).unwrap();
            }
            let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
            let ours = logits(&network, &cpu, &mut state, &golden.tokens("prompt"), 64);
            close(&format!("{name} {precision:?}, packed: {packed}"), &ours, &golden.floats("logits"), tolerance);
        }
    }
}

#[test]
fn a_batch_computes_what_each_computes_alone() {
    let cpu = Cpu::new(2);
    for name in FOLDERS {
        let golden = GoldenFile::of_folder(name);
        let prompt = golden.tokens("prompt");
        let network = open(&reference_models().join(name), Precision::F32);
        let cuts = [1, 37, 64, 100];
        let state_at = |cut: usize| {
            let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
            logits(&network, &cpu, &mut state, &prompt[..cut], 64);
            state
        };
        let mut states = cuts.map(state_at);
        let mut work = Workspace::default();
        // Three rounds together: one token of each, then of two of them several.
        for (round, counts) in [[1, 1, 1, 1], [5, 1, 9, 1], [1, 1, 1, 1]].into_iter().enumerate() {
            let mut lanes: Vec<StepLane> = states
                .iter_mut()
                .zip(counts)
                .map(|(state, count)| {
                    let tokens = &prompt[state.position..][..count];
                    StepLane {
                        state,
                        tokens,
                        wanted: WantedLogits::Last,
                        recurrence_log: None,
                        snapshots: &mut [],
                        drafts: 0,
                    }
                })
                .collect();
            let together = network.forward(&cpu, &mut lanes, &mut work).to_vec();
            for (i, logits) in together.chunks_exact(network.shape().vocab).enumerate() {
                let at = states[i].position - 1;
                let vocab = network.shape().vocab;
                let alone = &golden.floats("logits")[at * vocab..][..vocab];
                close(&format!("{name} round {round} lane {i}"), logits, alone, 1e-4);
            }
        }
    }
}
