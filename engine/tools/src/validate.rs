//! Checks of a model's files: structure, contract of the family, bytes, values, vocabulary, template, and another file of the
//! same model.

mod against;
mod contract;
mod findings;
mod quality;
mod values;
mod vocabulary;

use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use serde::Serialize;
use sha2::{Digest, Sha256};
use weights::FileContents;
use weights::family::Severity;

pub use against::{Agreement, TensorDistance, TextAgreement};
pub use findings::FileFinding;
use findings::Findings;
pub use quality::QualityRow;

use crate::family::published_size;
use crate::tensors::{TensorStats, digests, statistics};

#[derive(Debug, Clone)]
pub struct ValidateOptions<'a> {
    pub mmap: bool,
    /// Adds statistics by kind of tensor, and looks for tensors that differ from their like.
    pub quality: bool,
    pub against: Option<Against<'a>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Against<'a> {
    pub path: &'a Path,
    pub text: &'a str,
    pub tokens: usize,
}

/// Text of `--against` for users that name none.
pub const TEXT: &str = include_str!("../../../tests/data/reference/reference_text.txt");

#[derive(Debug, Serialize)]
pub struct ValidationReport {
    pub file: PathBuf,
    /// True if no finding is a problem.
    pub ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub architecture: Option<String>,
    pub sizes: Vec<String>,
    pub parameters: u64,
    pub bytes: u64,
    /// SHA-256 of the tensors' names, types, shapes and bytes: of two files with equal ones all tensors are equal.
    pub sha256: String,
    pub findings: Vec<FileFinding>,
    pub tensors: Vec<CheckedTensor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<Vec<QualityRow>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<Agreement>,
}

#[derive(Debug, Serialize)]
pub struct CheckedTensor {
    pub name: String,
    #[serde(rename = "type")]
    pub type_name: String,
    pub shape: Vec<usize>,
    pub bytes: usize,
    pub sha256: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<TensorStats>,
}

/// Part of the work that a check reports progress of, in bytes or tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValidationStage {
    Reading,
    Hashing,
    Predicting,
}

/// Hears of a stage how much is done and of how much.
pub type StageProgress<'a> = &'a (dyn Fn(ValidationStage, u64, u64) + Sync);

pub fn validate(path: &Path, options: &ValidateOptions, cpu: &Cpu, progress: StageProgress) -> ValidationReport {
    let mut findings = Findings::default();
    let mut report = ValidationReport {
        file: path.to_path_buf(),
        ok: false,
        architecture: None,
        sizes: Vec::new(),
        parameters: 0,
        bytes: 0,
        sha256: String::new(),
        findings: Vec::new(),
        tensors: Vec::new(),
        quality: None,
        against: None,
    };
    match weights::contents(path, options.mmap) {
        Ok(contents) => examine(&contents, options, cpu, progress, &mut findings, &mut report),
        Err(error) => findings.problem(
            "structure",
            None,
            format!("{error}; nothing more can be checked: download or convert the file again"),
        ),
    }
    report.findings = findings.into_sorted();
    report.ok = report.findings.iter().all(|finding| finding.severity != Severity::Problem);
    report
}

fn examine(
    contents: &FileContents,
    options: &ValidateOptions,
    cpu: &Cpu,
    progress: StageProgress,
    findings: &mut Findings,
    report: &mut ValidationReport,
) {
    contract::check(contents, findings);
    vocabulary::check(contents, findings);
    if let (Ok((family, architecture)), shape) = (&contents.family, &contents.shape) {
        report.architecture = Some(architecture.name.clone());
        let size = shape.as_ref().ok().and_then(|shape| published_size(family, shape));
        report.sizes = size.map_or(Vec::new(), |size| size.names.clone());
    }
    let stats = statistics(&contents.tensors, 0, cpu, &|done, total| progress(ValidationStage::Reading, done, total));
    values::check(contents, &stats, findings);
    if options.quality {
        report.quality = Some(quality::rows(contents, &stats, findings));
    }
    let hashes = digests(&contents.tensors, cpu, &|done, total| progress(ValidationStage::Hashing, done, total));
    let mut whole = Sha256::new();
    for ((tensor, stats), sha256) in contents.tensors.iter().zip(stats).zip(hashes) {
        report.parameters += tensor.dims.iter().map(|&dim| dim as u64).product::<u64>();
        report.bytes += tensor.data.len() as u64;
        whole.update(format!("{} {} {:?} {sha256}\n", tensor.name, tensor.type_name, tensor.dims));
        report.tensors.push(CheckedTensor {
            name: tensor.name.clone(),
            type_name: tensor.type_name.clone(),
            shape: tensor.dims.clone(),
            bytes: tensor.data.len(),
            sha256,
            stats,
        });
    }
    report.sha256 = hex::encode(whole.finalize());
    // The last word is the engine's own.
    let opened = weights::open(&report.file, options.mmap);
    if let Err(error) = &opened
        && !findings.has_problem()
    {
        findings.problem("structure", None, format!("the engine does not open the file: {error}"));
    }
    let (Some(against), Ok(model)) = (&options.against, opened) else { return };
    match against::compare(model, against, options.mmap, cpu, progress, findings) {
        Ok(agreement) => report.against = Some(agreement),
        Err(error) => findings.problem("against", None, format!("the two files cannot be compared: {error}")),
    }
}
