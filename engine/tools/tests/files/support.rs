//! Files of a test, and what models compute.

use std::path::{Path, PathBuf};

use engine::memory::MemoryMeter;
use engine::network::{Network, StepLane, WantedLogits, Workspace};
use engine::state::{KvFormats, SequenceState};
use kernels::cpu::Cpu;
use kernels::format::{Format, dequantize};
use kernels::product::Precision;
use testing::golden::reference_models;
use tools::Error;
use tools::import::{FormatChoice, ImportOptions, WriteReport};
use tools::mixture::Mixture;
use tools::quantize::{QuantizeOptions, TypeRule};
use weights::gguf::{GgufFile, GgufTensor};

pub const FOLDERS: [&str; 7] =
    ["dense-tied", "dense-gva2", "dense-gva3", "moe", "dense-yarn", "dense-wide", "dense-mtp"];

pub fn import(source: &Path, out: &Path, mixture: Option<Mixture>) -> Result<WriteReport, Error> {
    let choice = mixture.map(FormatChoice::Mixture);
    let options = ImportOptions { source, out, choice, rules: &[], imatrix: None, threads: 2, dry_run: false };
    tools::import::import(&options, &mut |_| ())
}

pub fn quantize(source: &Path, out: &Path, mixture: Mixture) -> Result<WriteReport, Error> {
    with(source, out, FormatChoice::Mixture(mixture), &[], None)
}

pub fn with(
    source: &Path,
    out: &Path,
    choice: FormatChoice,
    rules: &[TypeRule],
    imatrix: Option<&Path>,
) -> Result<WriteReport, Error> {
    let options = QuantizeOptions { source, out, choice, rules, imatrix, threads: 2, dry_run: false };
    tools::quantize::quantize(&options, &mut |_| ())
}

pub fn theirs(name: &str) -> PathBuf {
    reference_models().join(format!("gguf/{name}.gguf"))
}

pub fn file(path: &Path) -> GgufFile {
    GgufFile::open(path, true).unwrap()
}

pub fn tensor<'f>(file: &'f GgufFile, name: &str) -> &'f GgufTensor {
    file.tensors.iter().find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("no tensor {name}"))
}

pub fn values(tensor: &GgufTensor) -> Vec<f32> {
    let mut values = vec![0.0; tensor.dims.iter().product::<u64>() as usize];
    dequantize(tensor.format.unwrap(), &tensor.data, &mut values);
    values
}

pub fn error(ours: &[f32], exact: &[f32]) -> f64 {
    let of = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
    let off = of(&mut ours.iter().zip(exact).map(|(a, b)| f64::from(a - b)));
    (off / of(&mut exact.iter().map(|&value| f64::from(value)))).sqrt()
}

pub fn logits(path: &Path, tokens: &[u32]) -> Vec<f32> {
    const F32: KvFormats = KvFormats::new(Format::F32, Format::F32);
    let network = Network::new(weights::open(path, true).unwrap(), Precision::F32);
    let mut state = SequenceState::new(network.state_shape, F32, &MemoryMeter::default()).unwrap();
    let mut lanes = [StepLane {
        state: &mut state,
        tokens,
        wanted: WantedLogits::All,
        recurrence_log: None,
        snapshots: &mut [],
        drafts: 0,
    }];
    network.forward(&Cpu::new(2), &mut lanes, &mut Workspace::default()).to_vec()
}
