//! Statistics of tensors, piece by piece on all threads: a file may be larger than memory.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use kernels::cpu::Cpu;
use kernels::format::{Format, Ints, dequantize, unpack_padded};
use serde::Serialize;
use sha2::{Digest, Sha256};
use weights::{FileTensor, ModelBytes};

/// Statistics of a tensor's values. Values that are not finite are counted and left out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TensorStats {
    pub values: u64,
    pub min: f32,
    pub max: f32,
    pub mean: f64,
    pub std: f64,
    pub zero_share: f64,
    pub nan: u64,
    pub infinite: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<u64>,
    /// Scales of a quantised tensor's groups of 16 values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scales: Option<ScaleStats>,
    /// Finite values in equal steps from `min` to `max`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScaleStats {
    pub groups: u64,
    pub bad: u64, // groups whose scale or minimum is not finite
    /// Share of groups that hold nothing but zeros because scale and minimum are zero.
    pub zero_share: f64,
}

impl TensorStats {
    pub fn is_constant(&self) -> bool {
        self.values > 1 && self.nan + self.infinite == 0 && self.min == self.max
    }
}

/// Computes the statistics of each tensor, with histograms of `bars` steps; 0: without. None: its type is unknown.
/// `progress` hears the bytes that were read of those in all.
pub fn statistics(
    tensors: &[FileTensor],
    bars: usize,
    cpu: &Cpu,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Vec<Option<TensorStats>> {
    let pieces: Vec<Piece> = tensors.iter().enumerate().flat_map(|(at, tensor)| Piece::of(at, tensor)).collect();
    let passes = if bars > 0 { 2 } else { 1 };
    let total = passes * pieces.iter().map(|piece| piece.bytes.len() as u64).sum::<u64>();
    let done = AtomicU64::new(0);
    let read = |piece: &Piece| progress(done.fetch_add(piece.bytes.len() as u64, Ordering::Relaxed), total);
    let sums = on_all(cpu, &pieces, |piece| {
        read(piece);
        Sums::of(piece)
    });
    let mut whole: Vec<Option<Sums>> = tensors.iter().map(|_| None).collect();
    for (piece, sums) in pieces.iter().zip(sums) {
        let of_tensor = &mut whole[piece.tensor];
        *of_tensor = Some(of_tensor.take().map_or(sums.clone(), |before| before.and(&sums)));
    }
    let mut stats: Vec<Option<TensorStats>> = whole.iter().map(|sums| sums.as_ref().map(Sums::stats)).collect();
    if bars > 0 {
        let counts = on_all(cpu, &pieces, |piece| {
            read(piece);
            stats[piece.tensor].as_ref().map(|of| piece.histogram(of.min, of.max, bars)).unwrap_or_default()
        });
        for (piece, counts) in pieces.iter().zip(counts) {
            let Some(stats) = &mut stats[piece.tensor] else { continue };
            stats.histogram.resize(bars, 0);
            stats.histogram.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }
    progress(total, total);
    stats
}

/// Computes the SHA-256 of each tensor's bytes. `progress` hears the bytes that were read of those in all.
pub fn digests(tensors: &[FileTensor], cpu: &Cpu, progress: &(dyn Fn(u64, u64) + Sync)) -> Vec<String> {
    let total = tensors.iter().map(|tensor| tensor.data.len() as u64).sum();
    let done = AtomicU64::new(0);
    on_all(cpu, tensors, |tensor| {
        progress(done.fetch_add(tensor.data.len() as u64, Ordering::Relaxed), total);
        let digest = hex::encode(Sha256::digest(&tensor.data[..]));
        tensor.data.let_go();
        digest
    })
}

/// Draws counts as a row of bars; empty steps are blank.
pub fn bars(counts: &[u64]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |count: u64| match count {
        0 => ' ',
        _ => BARS[(count as u128 * (BARS.len() as u128 - 1) / most as u128) as usize],
    };
    counts.iter().map(|&count| bar(count)).collect()
}

/// Calls `of` with each item, on all threads, and returns the results in the order of the items.
pub(crate) fn on_all<'a, T: Sync, R: Send + Sync>(cpu: &Cpu, items: &'a [T], of: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let results: Vec<OnceLock<R>> = items.iter().map(|_| OnceLock::new()).collect();
    cpu.pool.run(items.len(), |at| {
        let _ = results[at].set(of(&items[at]));
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Values of a piece: many blocks, and few enough that every thread has pieces of each large tensor.
const PIECE_VALUES: usize = 1 << 20;

struct Piece {
    tensor: usize,
    format: Format,
    first: u64, // position of its first value in the tensor
    bytes: ModelBytes,
}

impl Piece {
    fn of(tensor: usize, file: &FileTensor) -> Vec<Piece> {
        let Some(format) = file.format else { return Vec::new() };
        let size = PIECE_VALUES / format.block_len() * format.block_bytes();
        let pieces = (0..file.data.len()).step_by(size).enumerate().filter_map(|(at, start)| {
            let bytes = file.data.slice(start..(start + size).min(file.data.len()))?;
            Some(Piece { tensor, format, first: (at * PIECE_VALUES) as u64, bytes })
        });
        pieces.collect()
    }

    /// Calls `each` with up to 256 values at a time, and with the scales and minima of their groups if they are quantised.
    fn read(&self, mut each: impl FnMut(&[f32], &[f32], &[f32])) {
        let mut values = [0.0f32; 256];
        let mut ints = Ints::default();
        let (len, size) = (self.format.block_len(), self.format.block_bytes());
        for bytes in self.bytes.chunks(self.format.bytes_of_256()) {
            let count = bytes.len() / size * len;
            let bytes = &bytes[..count / len * size];
            if !self.format.is_quantised() {
                dequantize(self.format, bytes, &mut values[..count]);
                each(&values[..count], &[], &[]);
                continue;
            }
            unpack_padded(self.format, bytes, &mut ints);
            ints.to_values(&mut values);
            each(&values[..count], &ints.scale[..count / 16], &ints.min[..count / 16]);
        }
        self.bytes.let_go();
    }

    fn histogram(&self, min: f32, max: f32, bars: usize) -> Vec<u64> {
        let mut counts = vec![0; bars];
        let step = (f64::from(max) - f64::from(min)) / bars as f64;
        self.read(|values, _, _| {
            for value in values.iter().filter(|value| value.is_finite()) {
                let at = if step > 0.0 { (f64::from(value - min) / step) as usize } else { bars / 2 };
                counts[at.min(bars - 1)] += 1;
            }
        });
        counts
    }
}

#[derive(Debug, Clone)]
struct Sums {
    values: u64,
    zeros: u64,
    nan: u64,
    infinite: u64,
    first_bad: Option<u64>,
    min: f32,
    max: f32,
    sum: f64,
    squares: f64,
    groups: u64,
    bad_groups: u64,
    zero_groups: u64,
}

impl Sums {
    fn of(piece: &Piece) -> Sums {
        let mut sums = Sums {
            values: 0,
            zeros: 0,
            nan: 0,
            infinite: 0,
            first_bad: None,
            min: f32::INFINITY,
            max: f32::NEG_INFINITY,
            sum: 0.0,
            squares: 0.0,
            groups: 0,
            bad_groups: 0,
            zero_groups: 0,
        };
        piece.read(|values, scales, mins| {
            for (at, value) in (sums.values..).zip(values) {
                if !value.is_finite() {
                    sums.nan += u64::from(value.is_nan());
                    sums.infinite += u64::from(value.is_infinite());
                    sums.first_bad = sums.first_bad.or(Some(piece.first + at));
                    continue;
                }
                let wide = f64::from(*value);
                (sums.min, sums.max) = (sums.min.min(*value), sums.max.max(*value));
                (sums.sum, sums.squares) = (sums.sum + wide, sums.squares + wide * wide);
                sums.zeros += u64::from(*value == 0.0);
            }
            sums.values += values.len() as u64;
            for (scale, min) in scales.iter().zip(mins) {
                sums.groups += 1;
                sums.bad_groups += u64::from(!scale.is_finite() || !min.is_finite());
                sums.zero_groups += u64::from(*scale == 0.0 && *min == 0.0);
            }
        });
        sums
    }

    fn and(mut self, later: &Sums) -> Sums {
        self.values += later.values;
        self.zeros += later.zeros;
        self.nan += later.nan;
        self.infinite += later.infinite;
        self.first_bad = self.first_bad.or(later.first_bad);
        (self.min, self.max) = (self.min.min(later.min), self.max.max(later.max));
        (self.sum, self.squares) = (self.sum + later.sum, self.squares + later.squares);
        self.groups += later.groups;
        self.bad_groups += later.bad_groups;
        self.zero_groups += later.zero_groups;
        self
    }

    fn stats(&self) -> TensorStats {
        let finite = (self.values - self.nan - self.infinite).max(1) as f64;
        let has_any = self.min <= self.max;
        let mean = self.sum / finite;
        let variance = if self.min == self.max { 0.0 } else { (self.squares / finite - mean * mean).max(0.0) };
        let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        TensorStats {
            values: self.values,
            min: if has_any { self.min } else { 0.0 },
            max: if has_any { self.max } else { 0.0 },
            mean,
            std: variance.sqrt(),
            zero_share: share(self.zeros, self.values),
            nan: self.nan,
            infinite: self.infinite,
            first_bad: self.first_bad,
            scales: (self.groups > 0).then(|| ScaleStats {
                groups: self.groups,
                bad: self.bad_groups,
                zero_share: share(self.zero_groups, self.groups),
            }),
            histogram: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::format::quantize;
    use std::path::Path;

    fn tensor(format: Format, values: &[f32]) -> FileTensor {
        let mut bytes = vec![0; format.row_bytes(values.len()).unwrap()];
        quantize(format, values, &mut bytes);
        FileTensor {
            name: "t".into(),
            path: Path::new("f").into(),
            format: Some(format),
            type_name: format.name().into(),
            dims: vec![values.len()],
            data: ModelBytes::copy_of(&bytes),
        }
    }

    fn stats(tensor: FileTensor) -> TensorStats {
        statistics(&[tensor], 4, &Cpu::new(2), &|_, _| ()).remove(0).unwrap()
    }

    #[test]
    fn numbers_of_a_small_tensor() {
        let of = stats(tensor(Format::F32, &[0.0, 1.0, 2.0, 5.0, f32::NAN, f32::INFINITY]));
        assert_eq!((of.min, of.max, of.mean, of.nan, of.infinite), (0.0, 5.0, 2.0, 1, 1));
        assert!((of.std - 3.5f64.sqrt()).abs() < 1e-12);
        assert_eq!((of.first_bad, of.histogram.clone()), (Some(4), vec![2, 1, 0, 1]));
        assert_eq!(bars(&of.histogram), "█▄ ▄");
        assert!(!of.is_constant() && stats(tensor(Format::F16, &[2.0; 3])).is_constant());
    }

    #[test]
    fn pieces_are_the_whole_in_every_format() {
        let values: Vec<f32> = (0..2 * PIECE_VALUES + 256).map(|i| (i % 1000) as f32 / 500.0 - 1.0).collect();
        for format in [Format::BF16, Format::Q8_0, Format::Q6_K] {
            let of = stats(tensor(format, &values));
            assert_eq!(of.values, values.len() as u64);
            assert_eq!(of.histogram.iter().sum::<u64>(), of.values);
            assert!((of.mean + 0.001).abs() < 1e-3 && (of.std - 0.577).abs() < 1e-2, "{of:?}");
            assert_eq!(of.scales.is_some(), format.is_quantised());
        }
    }

    #[test]
    fn scales_that_are_broken_or_zero_are_counted() {
        let mut broken = tensor(Format::Q8_0, &[1.0; 64]);
        let mut bytes = broken.data.to_vec();
        bytes[..2].copy_from_slice(&[0x00, 0x7c]); // an infinite half
        bytes[34..36].copy_from_slice(&[0, 0]);
        broken.data = ModelBytes::copy_of(&bytes);
        let of = stats(broken).scales.unwrap();
        assert_eq!((of.groups, of.bad, of.zero_share), (4, 2, 0.5));
    }
}
