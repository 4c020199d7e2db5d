//! An adapter of the difference of two models: one module after the other, so that memory holds one matrix at a time.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use kernels::cpu::Cpu;
use kernels::format::Format;
use serde::Serialize;
use serde_json::json;
use weights::{Adapter, HeadOrder, LowRank};

use super::svd::BothWays;
use super::{BASE_KEY, BASE_MARK, TARGETS, base_mark, target};
use crate::Error;
use crate::gguf_writer::{GgufValue, GgufWriter, TensorInfo};
use crate::model_folder::{ModelFolder, format_of, is_optional, read_all};
use crate::new_folder::NewFolder;
use crate::safetensors_writer::{NewTensor, write_safetensors};
use crate::streaming;

#[derive(Debug, Clone)]
pub struct ExtractOptions {
    pub base: PathBuf,
    pub fine: PathBuf,
    /// Folder in PEFT's form, or a `.gguf` file.
    pub out: PathBuf,
    pub size: LowRankSize,
    /// Threads that multiply; 0: one for each core.
    pub threads: usize,
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
    /// ‖difference − adapter‖ / ‖difference‖ over all modules.
    pub relative_error: f64,
    pub bytes: u64,
    /// Tensors that differ and that no adapter of this form changes.
    pub left_out: Vec<String>,
}
pub struct Extraction {
    options: ExtractOptions,
    base: ModelFolder,
    fine: ModelFolder,
    targets: Vec<String>,
}

/// File of the factors until their ranks are known.
struct Spill(PathBuf);

impl Drop for Spill {
    fn drop(&mut self) {
        // Nothing more can be done about a file that cannot be removed, and it may be gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

struct Factors {
    module: String,
    rank: usize,
    rows: usize,
    cols: usize,
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
        let (base, fine) = (ModelFolder::open(&options.base)?, ModelFolder::open(&options.fine)?);
        let mut targets = Vec::new();
        for (name, tensor) in &base.tensors {
            if is_optional(name) && !fine.tensors.contains_key(name) {
                continue;
            }
            let other = fine.tensor_like(tensor)?;
            if target(tensor).is_some() {
                format_of(tensor)?;
                format_of(other)?;
                targets.push(name.clone());
            }
        }
        if let Some(name) = fine.tensors.keys().find(|name| !base.tensors.contains_key(*name) && !is_optional(name)) {
            let what = format!("has the tensor '{name}', which {} has not", base.path.display());
            return Err(Error::file(&fine.path, what));
        }
        if targets.is_empty() {
            return Err(Error::file(&base.path, format!("has none of the modules {}", TARGETS.join(", "))));
        }
        Ok(Extraction { options, base, fine, targets })
    }

    pub fn modules(&self) -> usize {
        self.targets.len()
    }
    pub fn bytes(&self) -> u64 {
        let largest = match self.options.size {
            LowRankSize::Rank(rank) | LowRankSize::Energy { largest: rank, .. } => rank,
        };
        let of = |name: &String| match self.base.tensors[name].dims[..] {
            [rows, cols] => (largest.min(rows).min(cols) * (rows + cols) * size_of::<f32>()) as u64,
            _ => 0,
        };
        self.targets.iter().map(of).sum()
    }

    /// Writes the adapter. `progress` hears (values done, values in all).
    pub fn run(self, progress: &mut dyn FnMut(u64, u64)) -> Result<ExtractReport, Error> {
        // The factors are there twice at the end: their ranks are known before the file's head is written.
        let out = &self.options.out;
        let (new, spill) = match self.is_gguf() {
            true => {
                streaming::check_room(out, 2 * self.bytes(), weights::free_bytes)?;
                (None, Spill(out.with_extension("factors.part")))
            }
            false => {
                let new = NewFolder::create(out, 2 * self.bytes())?;
                let spill = Spill(new.path().join("factors.part"));
                (Some(new), spill)
            }
        };
        let spill = &spill.0;
        let io = |source| Error::Io { path: spill.clone(), source };
        let cpu = Cpu::new(self.options.threads);
        let mut file = BufWriter::new(File::create(spill).map_err(io)?);
        let mut done: Vec<Factors> = Vec::new();
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
        let (mut squares, mut squares_held) = (0.0, 0.0);
        let values = |name: &String| self.base.tensors[name].dims.iter().product::<usize>() as u64;
        let (mut so_far, total) = (0, self.targets.iter().map(values).sum());
        for (number, name) in self.targets.iter().enumerate() {
            let tensor = &self.base.tensors[name];
            let (Some(module), &[rows, cols]) = (target(tensor), &tensor.dims[..]) else { continue };
            let other = self.fine.tensor_like(tensor)?;
            let mut change = read_all(other)?;
            change.iter_mut().zip(read_all(tensor)?).for_each(|(change, base)| *change -= base);
            tensor.data.let_go();
            other.data.let_go();
            let square: f64 = change.iter().map(|change| f64::from(*change).powi(2)).sum();
            so_far += values(name);
            progress(so_far, total);
            if square == 0.0 {
                report.unchanged_modules += 1;
                continue;
            }
            let (rank, held, a, b) = factors(&cpu, &change, rows, cols, square, self.options.size, number as u64);
            for value in a.iter().chain(&b) {
                file.write_all(&value.to_le_bytes()).map_err(io)?;
            }
            (squares, squares_held) = (squares + square, squares_held + held);
            report.least_energy_share = report.least_energy_share.min(held / square);
            report.largest_rank = report.largest_rank.max(rank);
            report.smallest_rank = report.smallest_rank.min(rank);
            report.parameters += (rank * (rows + cols)) as u64;
            done.push(Factors { module: module.to_owned(), rank, rows, cols });
        }
        if done.is_empty() {
            let what = format!("has the same matrices as {}: there is nothing to extract", self.base.path.display());
            return Err(Error::file(&self.fine.path, what));
        }
        file.into_inner().map_err(|error| io(error.into_error()))?;
        report.modules = done.len();
        report.energy_share = squares_held / squares;
        report.relative_error = (1.0 - report.energy_share).max(0.0).sqrt();
        report.bytes = match new {
            None => self.assemble_gguf(spill, &done)?,
            Some(new) => {
                let bytes = self.assemble(&new, spill, &done, report.largest_rank)?;
                new.finish()?;
                bytes
            }
        };
        Ok(report)
    }

    fn is_gguf(&self) -> bool {
        self.options.out.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"))
    }

    /// Writes a GGUF file: one module after the other, value heads in tiled order.
    fn assemble_gguf(&self, spill: &Path, done: &[Factors]) -> Result<u64, Error> {
        let out = &self.options.out;
        let mut shape = weights::contents(&self.base.path, true)?.shape?;
        let text = |text: &str| GgufValue::Text(text.to_owned());
        let keys = [
            ("general.architecture", text(&shape.arch)),
            ("general.type", text("adapter")),
            ("adapter.type", text("lora")),
            // No alpha: the product of the factors is the difference itself, whatever a module's rank.
            ("adapter.lora.alpha", GgufValue::F32(0.0)),
            (BASE_KEY, GgufValue::Text(base_mark(&self.base))),
        ]
        .map(|(key, value)| (key.to_owned(), value));
        shape.value_head_order = HeadOrder::Tiled;
        let mut infos = Vec::new();
        for Factors { module, rank, rows, cols } in done {
            let name = weights::gguf_name(weights::module_of(module));
            let name = name.ok_or_else(|| Error::file(out, format!("cannot name '{module}' as GGUF files do")))?;
            for (half, dims) in [("a", [cols, rank]), ("b", [rank, rows])] {
                let (name, dims) = (format!("{name}.lora_{half}"), dims.map(|&dim| dim as u64).to_vec());
                infos.push(TensorInfo { name, dims, format: Format::F32 });
            }
        }
        let mut factors = BufReader::new(File::open(spill).map_err(|source| Error::io(spill, source))?);
        let mut values = |count: usize| {
            let mut bytes = vec![0; 4 * count];
            factors.read_exact(&mut bytes).map_err(|source| Error::io(spill, source))?;
            Ok::<Vec<f32>, Error>(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
        };
        let write = |file| {
            let io = |source| Error::io(out, source);
            let mut writer = GgufWriter::new(file, &keys, &infos).map_err(io)?;
            for Factors { module, rank, rows, cols } in done {
                let (a, b) = (values(rank * cols)?, values(rows * rank)?);
                let mut change = LowRank { rank: *rank, scale: 1.0, a, b };
                weights::reorder(weights::module_of(module), &mut change, HeadOrder::Grouped, &shape);
                for values in [change.a, change.b] {
                    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    writer.write(&bytes).map_err(io)?;
                }
            }
            writer.finish().map_err(io)
        };
        streaming::atomically(out, write, |written| Ok(Adapter::open(written).map(drop)?))
    }

    fn assemble(&self, new: &NewFolder, spill: &Path, done: &[Factors], rank: usize) -> Result<u64, Error> {
        let io = |source| Error::io(spill, source);
        let tensors: Vec<NewTensor> = done
            .iter()
            .flat_map(|one| {
                let tensor = |half, dims: [usize; 2]| NewTensor {
                    name: format!("base_model.model.{}.lora_{half}.weight", one.module),
                    format: Format::F32,
                    dims: dims.to_vec(),
                };
                [tensor("A", [one.rank, one.cols]), tensor("B", [one.rows, one.rank])]
            })
            .collect();
        let mut file = BufReader::new(File::open(spill).map_err(io)?);
        let bytes = write_safetensors(new.path(), "adapter_model", &tensors, &mut |tensor, sink| {
            let mut bytes = vec![0; tensor.bytes() as usize];
            file.read_exact(&mut bytes).map_err(io)?;
            sink.bytes(&bytes)
        })?;
        drop(file);
        // Nothing but the adapter may be in the folder when it gets its name.
        std::fs::remove_file(spill).map_err(io)?;
        let other: BTreeMap<&str, usize> =
            done.iter().filter(|one| one.rank != rank).map(|one| (&one.module[..], one.rank)).collect();
        let is_used = |name: &&&str| done.iter().any(|one| one.module.rsplit('.').next() == Some(**name));
        let config = json!({
            "peft_type": "LORA",
            "base_model_name_or_path": self.options.base,
            "task_type": "CAUSAL_LM",
            "r": rank,
            // B A is the difference itself, in every module.
            "lora_alpha": rank,
            "rank_pattern": other,
            "alpha_pattern": other,
            "target_modules": TARGETS.iter().filter(is_used).collect::<Vec<_>>(),
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": false,
            "use_rslora": false,
            "use_dora": false,
            "inference_mode": true,
            "modules_to_save": null,
        });
        new.write("adapter_config.json", &format!("{config:#}\n"))?;
        new.write(BASE_MARK, &format!("{:#}\n", json!({"base": base_mark(&self.base)})))?;
        Ok(bytes)
    }
    fn left_out(&self) -> Vec<String> {
        let differs = |(name, tensor): &(&String, &weights::FileTensor)| {
            target(tensor).is_none()
                && self.fine.tensors.get(*name).is_some_and(|other| {
                    other.type_name != tensor.type_name && read_all(other).ok() != read_all(tensor).ok()
                        || other.type_name == tensor.type_name && other.data[..] != tensor.data[..]
                })
        };
        self.base.tensors.iter().filter(differs).map(|(name, _)| name.clone()).collect()
    }
}

/// Returns a difference's rank, the squares that its factors hold, A [rank, cols] and B [rows, rank].
fn factors(
    cpu: &Cpu,
    change: &[f32],
    rows: usize,
    cols: usize,
    square: f64,
    size: LowRankSize,
    seed: u64,
) -> (usize, f64, Vec<f32>, Vec<f32>) {
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
    (rank, held_by(&svd.values[..rank]).min(square), a, b)
}
