//! Random models of a real shape: what speed is measured with where no trained file can be had, and what another
//! engine can load to compare results. The files are in the ecosystem's layout.
//!
//! The weights are scaled so that activations stay finite over long contexts and the logits differ; the words of the
//! vocabulary print, because only tokens that are words or punctuation have loud rows in the head.

mod metadata;
mod random;
mod shape;
mod tensors;
mod vocabulary;

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::mpsc;

use kernels::format;

use crate::Error;
use crate::gguf_writer::{GgufWriter, TensorInfo};
use crate::mixture::Mixture;

pub use shape::{MoeShape, NAMES, SynthShape};
use tensors::TensorPlan;

#[derive(Debug, Clone)]
pub struct SynthOptions {
    pub shape: SynthShape,
    pub mixture: Mixture,
    pub seed: u64,
    /// Threads that make values; one more writes them. The file is the same for any number.
    pub threads: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SynthReport {
    pub tensors: usize,
    pub parameters: u64,
    pub bytes: u64,
}

/// Writes the model to `out`, which appears only when it is whole. `progress` hears (bytes written, bytes in all).
pub fn write(options: &SynthOptions, out: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<SynthReport, Error> {
    let io = |source: io::Error| Error::Io { path: out.to_path_buf(), source };
    if let Err(what) = options.shape.check() {
        return Err(Error::file(out, format!("cannot make a model of shape '{}': {what}", options.shape.name)));
    }
    let vocabulary = vocabulary::build(options.shape.vocab, options.seed);
    let plan = tensors::plan(options, &vocabulary);
    let metadata = metadata::of(options, &vocabulary);

    let mut unfinished = out.as_os_str().to_owned();
    unfinished.push(".part");
    let unfinished = Path::new(&unfinished);
    let file = BufWriter::with_capacity(1 << 20, File::create(unfinished).map_err(io)?);
    let done = write_to(file, options, &metadata, &plan, progress)
        .and_then(|file| file.into_inner().map_err(|error| error.into_error())?.sync_all())
        .and_then(|()| std::fs::metadata(unfinished))
        .and_then(|written| std::fs::rename(unfinished, out).map(|()| written.len()));
    match done {
        Ok(bytes) => {
            Ok(SynthReport { tensors: plan.len(), parameters: plan.iter().map(TensorPlan::values).sum(), bytes })
        }
        Err(error) => {
            // Nothing more can be done about a file that cannot be removed either.
            let _ = std::fs::remove_file(unfinished);
            Err(io(error))
        }
    }
}

/// Writes a file that has everything but its values, which read as zeros and take no room on a disk that keeps files with holes:
/// enough to plan with.
pub fn outline(shape: &SynthShape, mixture: Mixture, out: &Path) -> Result<(), Error> {
    let io = |source: io::Error| Error::Io { path: out.to_path_buf(), source };
    let options = SynthOptions { shape: shape.clone(), mixture, seed: 0, threads: 1 };
    let vocabulary = vocabulary::build(shape.vocab, options.seed);
    let infos: Vec<TensorInfo> = tensors::plan(&options, &vocabulary).into_iter().map(|plan| plan.info).collect();
    let file = BufWriter::new(File::create(out).map_err(io)?);
    let writer = GgufWriter::new(file, &metadata::of(&options, &vocabulary), &infos).map_err(io)?;
    let values: u64 = writer.bytes_to_come();
    let file = writer.into_inner().into_inner().map_err(|error| io(error.into_error()))?;
    let header = file.metadata().map_err(io)?.len();
    file.set_len(header + values).map_err(io)
}

/// A part of a tensor, small enough to be held by each thread.
#[derive(Clone, Copy)]
struct Piece {
    tensor: usize,
    first_row: u64,
    rows: u64,
}

const VALUES_OF_A_PIECE: u64 = 1 << 20;

fn write_to<W: io::Write>(
    out: W,
    options: &SynthOptions,
    metadata: &[(String, crate::gguf_writer::GgufValue)],
    plan: &[TensorPlan],
    progress: &mut dyn FnMut(u64, u64),
) -> io::Result<W> {
    let infos: Vec<TensorInfo> = plan.iter().map(|plan| plan.info.clone()).collect();
    let mut writer = GgufWriter::new(out, metadata, &infos)?;
    let total = infos.iter().filter_map(TensorInfo::size).sum();
    let pieces: Vec<Piece> = plan.iter().enumerate().flat_map(|(tensor, plan)| pieces_of(tensor, plan)).collect();
    let threads = options.threads.max(1);
    let mut written = 0;
    std::thread::scope(|scope| {
        // Thread t makes the pieces t, t + threads, ..: so the writer knows whom to ask next, and a thread that is
        // ahead waits with one piece in its hands.
        let receivers: Vec<mpsc::Receiver<Vec<u8>>> = (0..threads)
            .map(|thread| {
                let (sender, receiver) = mpsc::sync_channel(1);
                let mine = pieces.iter().copied().skip(thread).step_by(threads);
                scope.spawn(move || {
                    let mut values = Vec::new();
                    for piece in mine {
                        if sender.send(make(&plan[piece.tensor], piece, &mut values)).is_err() {
                            return;
                        }
                    }
                });
                receiver
            })
            .collect();
        for i in 0..pieces.len() {
            let bytes = receivers[i % threads].recv().map_err(io::Error::other)?;
            writer.write(&bytes)?;
            written += bytes.len() as u64;
            progress(written, total);
        }
        Ok(())
    })
    .and_then(|()| writer.finish())
}

fn pieces_of(tensor: usize, plan: &TensorPlan) -> impl Iterator<Item = Piece> + use<> {
    let (cols, rows) = (plan.cols(), plan.rows());
    let step = (VALUES_OF_A_PIECE / cols).max(1);
    (0..rows.div_ceil(step)).map(move |i| Piece { tensor, first_row: i * step, rows: step.min(rows - i * step) })
}

fn make(plan: &TensorPlan, piece: Piece, values: &mut Vec<f32>) -> Vec<u8> {
    let count = (piece.rows * plan.cols()) as usize;
    values.resize(count, 0.0);
    plan.fill(piece.first_row, values);
    let format = plan.info.format;
    // The shape was checked to have rows of whole blocks in the format that the mixture chose for it.
    let mut bytes = vec![0; count / format.block_len() * format.block_bytes()];
    format::quantize(format, values, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
