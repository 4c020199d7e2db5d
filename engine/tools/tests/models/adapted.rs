//! A reference model with an adapter of all its modules, and the logits of models with adapters.

use std::path::Path;

use engine::Precision;
use engine::memory::MemoryMeter;
use engine::network::{StepLane, WantedLogits, Workspace};
use engine::open::{ModelOptions, open};
use engine::state::SequenceState;
use reference::random;

use crate::folders::{Values, values_of, write, write_model};

const KV: engine::state::KvFormats =
    engine::state::KvFormats::new(kernels::format::Format::F32, kernels::format::Format::F32);

pub fn logits(model: &Path, adapters: &[(&Path, f32)]) -> (Vec<f32>, [u8; 32]) {
    let adapters = adapters.iter().map(|(path, scale)| (path.to_path_buf(), *scale)).collect();
    let options = ModelOptions { adapters, ..ModelOptions::new(Precision::F32) };
    let network = open(model, &options, &mut |_, _| ()).unwrap().network;
    let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 100).collect();
    let mut state = SequenceState::new(network.state_shape, KV, &MemoryMeter::default()).unwrap();
    let wanted = WantedLogits::All;
    let mut lanes =
        [StepLane { state: &mut state, tokens: &tokens, wanted, recurrence_log: None, snapshots: &mut [], drafts: 0 }];
    let mut workspace = Workspace::default();
    let logits = network.forward(&kernels::cpu::Cpu::new(1), &mut lanes, &mut workspace).to_vec();
    (logits, network.model.fingerprint)
}

/// A folder of a reference model in f32, and an adapter of all its modules; with value heads that GGUF files reorder.
pub fn reference_with_adapter(folder: &Path) {
    let model = testing::golden::reference_models().join("dense-gva2");
    let values = values_of(&model);
    write_model(&folder.join("base"), &values);
    for text in ["config.json", "tokenizer.json"] {
        std::fs::copy(model.join(text), folder.join("base").join(text)).unwrap();
    }
    let matrices = values.iter().filter(|(name, (dims, _))| name.contains("_proj") && dims.len() == 2);
    let adapter: Values = matrices
        .zip(1..)
        .flat_map(|((name, (dims, _)), seed)| {
            let module = name.strip_suffix(".weight").unwrap();
            let half = |half: &str, dims: [usize; 2], seed| {
                let name = format!("base_model.model.{module}.lora_{half}.weight");
                (name, (dims.to_vec(), random(dims[0] * dims[1], seed)))
            };
            [half("A", [3, dims[1]], seed), half("B", [dims[0], 3], seed + 1000)]
        })
        .collect();
    assert_eq!(adapter.len(), 2 * (3 * 5 + 4 + 4 * 3));
    write(&folder.join("adapter"), "adapter_model", &adapter);
    let config = r#"{"peft_type": "LORA", "r": 3, "lora_alpha": 0.06, "target_modules": "all-linear"}"#;
    std::fs::write(folder.join("adapter/adapter_config.json"), config).unwrap();
}
