//! An adapter of the difference of two models: one tensor after the other, so that memory holds one at a time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use serde::Serialize;
use weights::HeadOrder;

use super::output::{self, AdapterOut, Factors};
use super::svd::BothWays;
use crate::Error;
use crate::new_folder::NewFolder;
use crate::planned::{self, OutForm};
use crate::streaming;
use crate::target::{TARGETS, Target};
use crate::tensor_source::{SourceForm, TensorSource, format_of, is_optional, read, read_all};

#[derive(Debug, Clone)]
pub struct ExtractOptions {
    pub base: PathBuf,
    pub fine: PathBuf,
    /// Folder in PEFT's form, or a `.gguf` file.
    pub out: PathBuf,
    pub size: LowRankSize,
    pub threads: usize, // threads that multiply; 0: one for each core
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LowRankSize {
    Rank(usize),
    /// Smallest rank that holds this share of the difference's squares, and no more than `largest`.
    Energy {
        share: f64,
        largest: usize,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExtractReport {
    pub modules: usize,
    pub unchanged_modules: usize,
    pub largest_rank: usize,
    pub smallest_rank: usize,
    pub parameters: u64,
    /// Share of the difference's squares that the adapter holds, over all modules, and of the module with the least.
    pub energy_share: f64,
    pub least_energy_share: f64,
    pub relative_error: f64, // ‖difference − adapter‖ / ‖difference‖ over all modules
    pub bytes: u64,
    pub left_out: Vec<String>, // tensors that differ and that no adapter of this form changes
}

pub struct Extraction {
    options: ExtractOptions,
    base: TensorSource,
    fine: TensorSource,
    layers: usize,                  // before the block for prediction
    targets: Vec<(String, Target)>, // names of the tensors that the adapter changes, with their places in the model
}

/// File of the factors until their ranks are known. Its lock keeps others out.
struct Spill {
    path: PathBuf,
    file: File,
}

impl Spill {
    fn begin(out: &Path, path: PathBuf) -> Result<Spill, Error> {
        let file = streaming::begin(out, &path)?;
        Ok(Spill { path, file })
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        // Nothing more can be done about a file that cannot be removed, and it may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Extraction {
    pub fn new(options: ExtractOptions) -> Result<Extraction, Error> {
        let wrong = |what: &str| Err(Error::file(&options.out, what));
        match options.size {
            LowRankSize::Rank(0) => return wrong("cannot have the rank 0: give 1 or more"),
            LowRankSize::Energy { share, .. } if !(share > 0.0 && share <= 1.0) => {
                return wrong("cannot hold that energy: give a share above 0 and up to 1, such as 0.95");
            }
            LowRankSize::Energy { largest: 0, .. } => return wrong("cannot have ranks up to 0: give 1 or more"),
            _ => {}
        }
        if OutForm::of(&options.out) == OutForm::Apr {
            return wrong("an adapter is a folder in PEFT's form or a .gguf file: name one of these");
        }
        let (base, fine) = (TensorSource::open(&options.base)?, TensorSource::open(&options.fine)?);
        base.check_form(&fine)?;
        let layers = match base.form {
            SourceForm::Checkpoint => usize::MAX,
            SourceForm::Gguf => weights::contents(&base.path, true)?.shape?.layers.len(),
        };
        let mut targets = Vec::new();
        for (name, tensor) in &base.tensors {
            if is_optional(name) && !fine.tensors.contains_key(name) {
                continue;
            }
            let other = fine.tensor_like(tensor)?;
            if let Some(target) = Target::of(tensor, layers) {
                format_of(tensor)?;
                format_of(other)?;
                targets.push((name.clone(), target));
            }
        }
        if let Some(name) = fine.tensors.keys().find(|name| !base.tensors.contains_key(*name) && !is_optional(name)) {
            let what = format!("has the tensor '{name}', which {} has not", base.path.display());
            return Err(Error::file(&fine.path, what));
        }
        if targets.is_empty() {
            return Err(Error::file(&base.path, format!("has none of the modules {}", TARGETS.join(", "))));
        }
        Ok(Extraction { options, base, fine, layers, targets })
    }

    /// Returns the matrices that the adapter may change: of stacked experts one for each.
    pub fn modules(&self) -> usize {
        self.targets.iter().map(|(_, target)| target.count).sum()
    }

    pub fn bytes(&self) -> u64 {
        let largest = match self.options.size {
            LowRankSize::Rank(rank) | LowRankSize::Energy { largest: rank, .. } => rank,
        };
        let of = |Target { count, rows, cols, .. }: &Target| {
            (count * largest.min(*rows).min(*cols) * (rows + cols) * size_of::<f32>()) as u64
        };
        self.targets.iter().map(|(_, target)| of(target)).sum()
    }

    /// Writes the adapter. `progress` hears (values done, values in all).
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Result<ExtractReport, Error> {
        // The factors are there twice at the end: their ranks are known before the file's head is written.
        let out = &self.options.out;
        planned::check_free(out)?;
        let (new, spill) = match OutForm::of(out) {
            OutForm::Gguf => {
                streaming::check_room(out, 2 * self.bytes(), weights::free_bytes)?;
                (None, Spill::begin(out, out.with_extension("factors.part"))?)
            }
            OutForm::Apr | OutForm::Folder => {
                let new = NewFolder::create(out, 2 * self.bytes())?;
                let spill = Spill::begin(out, new.path().join("factors.part"))?;
                (Some(new), spill)
            }
        };
        let mut report = ExtractReport {
            modules: 0,
            unchanged_modules: 0,
            largest_rank: 0,
            smallest_rank: usize::MAX,
            parameters: 0,
            energy_share: 1.0,
            least_energy_share: 1.0,
            relative_error: 0.0,
            bytes: 0,
            left_out: self.left_out(),
        };
        let done = self.factorise(&spill, &mut report, progress)?;
        let is_gguf = self.base.form == SourceForm::Gguf;
        let shape = match new.is_none() || is_gguf {
            true => Some(weights::contents(&self.base.path, true)?.shape?),
            false => None,
        };
        let order = if is_gguf { HeadOrder::Tiled } else { HeadOrder::Grouped };
        let out = AdapterOut { base: &self.base, factors: &done, spill: &spill.path, shape, order };
        report.bytes = match new {
            None => output::write_gguf(out, &self.options.out)?,
            Some(new) => {
                let bytes = output::write_folder(out, &new, report.largest_rank)?;
                new.finish()?;
                bytes
            }
        };
        Ok(report)
    }

    /// Writes the factors of all differences behind each other, of a stack A of all experts and then B of all.
    fn factorise(
        &self,
        spill: &Spill,
        report: &mut ExtractReport,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Vec<Factors>, Error> {
        let io = |source| Error::io(&spill.path, source);
        let cpu = Cpu::new(self.options.threads);
        let mut file = BufWriter::new(&spill.file);
        let mut done: Vec<Factors> = Vec::new();
        let (mut squares, mut squares_held) = (0.0, 0.0);
        let values = |target: &Target| (target.count * target.rows * target.cols) as u64;
        let (mut so_far, total) = (0, self.targets.iter().map(|(_, target)| values(target)).sum());
        for (number, (name, target)) in self.targets.iter().enumerate() {
            let Target { count, rows, cols, .. } = *target;
            let tensor = &self.base.tensors[name];
            let other = self.fine.tensor_like(tensor)?;
            let mut all: Vec<Option<LowRankFactors>> = Vec::new();
            let (mut change, mut of_base) = (Vec::new(), Vec::new());
            for matrix in 0..count {
                let range = matrix * rows * cols..(matrix + 1) * rows * cols;
                read(other, range.clone(), &mut change)?;
                read(tensor, range, &mut of_base)?;
                change.iter_mut().zip(&of_base).for_each(|(change, base)| *change -= base);
                let square: f64 = change.iter().map(|change| f64::from(*change).powi(2)).sum();
                so_far += (rows * cols) as u64;
                progress(so_far, total);
                if square == 0.0 {
                    report.unchanged_modules += 1;
                    all.push(None);
                    continue;
                }
                let seed = (number + matrix * self.targets.len()) as u64;
                let found = factors(&cpu, &change, rows, cols, square, self.options.size, seed);
                (squares, squares_held) = (squares + square, squares_held + found.held);
                report.modules += 1;
                report.least_energy_share = report.least_energy_share.min(found.held / square);
                report.largest_rank = report.largest_rank.max(found.rank);
                report.smallest_rank = report.smallest_rank.min(found.rank);
                report.parameters += (found.rank * (rows + cols)) as u64;
                all.push(Some(found));
            }
            tensor.data.let_go();
            other.data.let_go();
            let Some(rank) = all.iter().flatten().map(|found| found.rank).max() else { continue };
            let padded: Vec<(Vec<f32>, Vec<f32>)> =
                all.into_iter().map(|found| in_rank(found, rank, rows, cols)).collect();
            for value in padded.iter().flat_map(|(a, _)| a).chain(padded.iter().flat_map(|(_, b)| b)) {
                file.write_all(&value.to_le_bytes()).map_err(io)?;
            }
            done.push(Factors { target: target.clone(), rank });
        }
        if done.is_empty() {
            let what = format!("has the same matrices as {}: there is nothing to extract", self.base.path.display());
            return Err(Error::file(&self.fine.path, what));
        }
        file.into_inner().map_err(|error| io(error.into_error()))?;
        report.energy_share = squares_held / squares;
        report.relative_error = (1.0 - report.energy_share).max(0.0).sqrt();
        Ok(done)
    }

    fn left_out(&self) -> Vec<String> {
        let differs = |(name, tensor): &(&String, &weights::FileTensor)| {
            Target::of(tensor, self.layers).is_none()
                && self.fine.tensors.get(*name).is_some_and(|other| {
                    other.type_name != tensor.type_name && read_all(other).ok() != read_all(tensor).ok()
                        || other.type_name == tensor.type_name && other.data[..] != tensor.data[..]
                })
        };
        self.base.tensors.iter().filter(differs).map(|(name, _)| name.clone()).collect()
    }
}

/// Largest parts of a difference: A [rank, cols] and B [rows, rank].
struct LowRankFactors {
    rank: usize,
    held: f64, // squares of the difference that the factors hold
    a: Vec<f32>,
    b: Vec<f32>,
}

/// Returns A and B in a rank that may be larger than their own; without factors, zeros.
fn in_rank(found: Option<LowRankFactors>, rank: usize, rows: usize, cols: usize) -> (Vec<f32>, Vec<f32>) {
    let Some(LowRankFactors { rank: own, mut a, b, .. }) = found else {
        return (vec![0.0; rank * cols], vec![0.0; rows * rank]);
    };
    a.resize(rank * cols, 0.0);
    let row = |row: &[f32]| row.iter().copied().chain(std::iter::repeat_n(0.0, rank - own)).collect::<Vec<f32>>();
    (a, b.chunks(own).flat_map(row).collect())
}

fn factors(
    cpu: &Cpu,
    change: &[f32],
    rows: usize,
    cols: usize,
    square: f64,
    size: LowRankSize,
    seed: u64,
) -> LowRankFactors {
    const FIRST_TRY: usize = 16;
    /// Part of the largest singular value below which one is rounding.
    const NOISE: f64 = 1e-6;
    let matrix = BothWays::new(change, rows, cols);
    let held_by = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
    let (svd, mut rank) = match size {
        LowRankSize::Rank(rank) => (matrix.largest(cpu, rank, seed), rank),
        LowRankSize::Energy { share, largest } => {
            let most = largest.min(rows).min(cols);
            let mut tried = FIRST_TRY.min(most);
            loop {
                let svd = matrix.largest(cpu, tried, seed);
                let reached = (1..=svd.values.len()).find(|&rank| held_by(&svd.values[..rank]) >= share * square);
                match reached {
                    Some(rank) => break (svd, rank),
                    None if tried == most => break (svd, most),
                    None => tried = (2 * tried).min(most),
                }
            }
        }
    };
    let least = svd.values.first().map_or(0.0, |first| first * NOISE);
    rank = rank.min(svd.values.iter().filter(|value| **value > least).count()).max(1);
    let roots: Vec<f32> = svd.values[..rank].iter().map(|value| value.sqrt() as f32).collect();
    let a = (0..rank).flat_map(|k| svd.right[k * cols..][..cols].iter().map(move |value| (k, *value)));
    let a = a.map(|(k, value)| value * roots[k]).collect();
    let b = (0..rows).flat_map(|row| (0..rank).map(move |k| (row, k)));
    let b = b.map(|(row, k)| svd.left[k * rows + row] * roots[k]).collect();
    LowRankFactors { rank, held: held_by(&svd.values[..rank]).min(square), a, b }
}
