//! Adapters that change the block for multi-token prediction, in both forms: applied as they are merged, or refused by name.

use std::path::{Path, PathBuf};

use crate::adapted::logits;
use crate::folders::{Values, distance, values_of, write, write_model};
use engine::memory::MemoryMeter;
use engine::network::{Network, PredictionLane, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::Format;
use kernels::product::Precision;
use reference::random;
use tools::gguf_writer::{GgufValue, GgufWriter, TensorInfo};
use tools::lora::AdapterMerge;
use weights::Adapter;

const RANK: usize = 3;
const SCALE: f32 = 0.02;
const KV: KvFormats = KvFormats::new(Format::F32, Format::F32);
/// Modules of the block: their names in a folder, in a GGUF file of four layers, and their rows and columns.
const MODULES: [(&str, &str, [usize; 2]); 8] = [
    ("fc", "nextn.eh_proj", [64, 128]),
    ("layers.0.self_attn.q_proj", "attn_q", [256, 64]),
    ("layers.0.self_attn.k_proj", "attn_k", [64, 64]),
    ("layers.0.self_attn.v_proj", "attn_v", [64, 64]),
    ("layers.0.self_attn.o_proj", "attn_output", [64, 128]),
    ("layers.0.mlp.gate_proj", "ffn_gate", [160, 64]),
    ("layers.0.mlp.up_proj", "ffn_up", [160, 64]),
    ("layers.0.mlp.down_proj", "ffn_down", [64, 160]),
];

fn base() -> PathBuf {
    testing::golden::reference_models().join("dense-mtp")
}

fn halves([rows, cols]: [usize; 2], seed: u64) -> [Vec<f32>; 2] {
    [random(RANK * cols, seed), random(rows * RANK, seed + 100)]
}

fn peft_adapter(folder: &Path, modules: &[(&str, [usize; 2])]) {
    let mut values = Values::new();
    for ((module, [rows, cols]), seed) in modules.iter().zip(1..) {
        let [a, b] = halves([*rows, *cols], seed);
        values.insert(format!("base_model.model.{module}.lora_A.weight"), (vec![RANK, *cols], a));
        values.insert(format!("base_model.model.{module}.lora_B.weight"), (vec![*rows, RANK], b));
    }
    write(folder, "adapter_model", &values);
    let config = format!(r#"{{"peft_type": "LORA", "r": {RANK}, "lora_alpha": {}}}"#, SCALE * RANK as f32);
    std::fs::write(folder.join("adapter_config.json"), config).unwrap();
}

fn gguf_adapter(out: &Path) {
    let text = |(key, text): (&str, &str)| (key.to_owned(), GgufValue::Text(text.to_owned()));
    let keys = [("general.type", "adapter"), ("adapter.type", "lora"), ("general.architecture", "qwen35")];
    let mut metadata: Vec<(String, GgufValue)> = keys.map(text).into();
    metadata.push(("adapter.lora.alpha".into(), GgufValue::F32(SCALE * RANK as f32)));
    let (mut infos, mut bytes) = (Vec::new(), Vec::new());
    for ((_, name, [rows, cols]), seed) in MODULES.iter().zip(1..) {
        let [a, b] = halves([*rows, *cols], seed);
        for (half, dims, values) in [("a", [*cols, RANK], a), ("b", [RANK, *rows], b)] {
            let name = format!("blk.4.{name}.weight.lora_{half}");
            infos.push(TensorInfo { name, dims: dims.map(|size| size as u64).into(), format: Format::F32 });
            bytes.push(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        }
    }
    let mut writer = GgufWriter::new(std::fs::File::create(out).unwrap(), &metadata, &infos).unwrap();
    bytes.iter().for_each(|values| writer.write(values).unwrap());
    writer.finish().unwrap();
}

/// Logits of the block's first guess behind a few tokens.
fn guess(model: &Path, adapter: Option<&Path>) -> Vec<f32> {
    let mut model = weights::open(model, true).unwrap();
    if let Some(adapter) = adapter {
        Adapter::open(adapter).unwrap().add_to(&mut model, 1.0).unwrap();
    }
    let network = Network::new(model, Precision::F32);
    let (cpu, mut work) = (Cpu::new(1), Workspace::default());
    let mut state = SequenceState::new(network.state_shape, KV, &MemoryMeter::default()).unwrap();
    let tokens: Vec<u32> = (0..20).map(|i| i * 7 % 100).collect();
    let (wanted, snapshots) = (WantedLogits::Nothing, &mut []);
    let mut lanes =
        [StepLane { state: &mut state, tokens: &tokens, wanted, recurrence_log: None, snapshots, drafts: 0 }];
    network.forward(&cpu, &mut lanes, &mut work);
    state.reserve(1);
    let mut drafts = Vec::new();
    let mut lanes = [PredictionLane { state: &mut state, token: 5, count: 1, drafts: &mut drafts }];
    network.predict(&cpu, &mut lanes, network.shape().vocab, &mut work).to_vec()
}

#[test]
fn an_adapter_of_the_block_changes_drafts_as_the_merged_model_does() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, peft, merged] = ["whole", "peft", "merged"].map(|name| folder.path().join(name));
    let gguf = folder.path().join("adapter.gguf");
    write_model(&whole, &values_of(&base()));
    for text in ["config.json", "tokenizer.json"] {
        std::fs::copy(base().join(text), whole.join(text)).unwrap();
    }
    let names = MODULES.map(|(module, _, sizes)| (format!("mtp.{module}"), sizes));
    peft_adapter(&peft, &names.each_ref().map(|(module, sizes)| (module.as_str(), *sizes)));
    gguf_adapter(&gguf);
    let merge = AdapterMerge::new(&whole, &peft, 1.0, true).unwrap();
    assert_eq!(merge.run(&merged, 1, &mut |_, _| ()).unwrap().modules, MODULES.len());
    let (plain, expected) = (guess(&whole, None), guess(&merged, None));
    assert!(distance(&plain, &expected) > 1e-2, "the adapter makes no difference");
    for adapter in [&peft, &gguf] {
        let far = distance(&guess(&whole, Some(adapter)), &expected);
        assert!(far <= 1e-5, "{}: {far:e} from the merged model", adapter.display());
    }
    // A model that is opened without its block takes the adapter and says what it said; its states are not the plain model's.
    let (plain, kept) = logits(&whole, &[]);
    for adapter in [&peft, &gguf] {
        let (ours, key) = logits(&whole, &[(adapter, 1.0)]);
        assert!(ours == plain && key != kept, "{}", adapter.display());
    }
}

#[test]
fn what_the_block_does_not_have_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        ("mtp.layers.0.self_attn.qkv_proj", [256, 64], "a module that the model does not have"),
        ("mtp.layers.1.self_attn.q_proj", [256, 64], "a module that the model does not have"),
        ("mtp.layers.0.self_attn.q_proj", [128, 64], "256 × 64, as the model has it: the adapter is for another base"),
        ("mtp.fc", [64, 64], "64 × 128, as the model has it: the adapter is for another base"),
    ];
    for (module, sizes, expected) in cases {
        peft_adapter(folder.path(), &[(module, sizes)]);
        let mut model = weights::open(&base(), true).unwrap();
        let error = Adapter::open(folder.path()).unwrap().add_to(&mut model, 1.0).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains(module), "{error}\nexpected: {expected}");
    }
}
