//! Encoders of model files: the bytes that the ecosystem's quantiser writes for the same values.
//!
//! They search longer than `quantize`, which a running model calls for keys, values and states. Sums are made in the order of
//! the values and products are never fused, because both change the last bits and with them a code here and there.

mod affine;
mod lanes;
mod symmetric;
mod table;

use super::{Format, block32, k_affine, k_symmetric, put_half};

const NOTHING: f32 = 1e-15;

/// Encodes one row of a weight matrix. `importance` says how much each column's error counts (one number a column); formats
/// for which `is_weighted` is false pass over it. Values must be finite: others give a block of unspecified content.
///
/// # Panics
/// If `bytes` is not exactly the blocks of `row.len()` values, `importance` has another length, or the format has no encoder.
pub fn quantize_for_file(format: Format, row: &[f32], importance: Option<&[f32]>, bytes: &mut [u8]) {
    super::check_sizes(format, bytes.len(), row.len());
    assert!(importance.is_none_or(|importance| importance.len() == row.len()), "one importance for each column");
    match format {
        Format::F32 | Format::F16 | Format::BF16 => super::quantize(format, row, bytes),
        Format::Q8_0 => blocks32(row, None, bytes, |x, _, block: &mut [u8; 34]| q8_0(x, block)),
        Format::Q4_0 => blocks32(row, importance, bytes, q4_0),
        Format::Q4_1 => blocks32(row, importance, bytes, q4_1),
        Format::Q5_0 => blocks32(row, importance, bytes, q5_0),
        Format::Q5_1 => blocks32(row, importance, bytes, q5_1),
        Format::IQ4_NL => table::iq4_nl(row, importance, bytes),
        Format::IQ4_XS => blocks256(row, importance, bytes, table::iq4_xs),
        Format::Q4_K => blocks256(row, importance, bytes, affine::q4_k),
        Format::Q5_K => blocks256(row, importance, bytes, affine::q5_k),
        Format::Q6_K => blocks256(row, importance, bytes, symmetric::q6_k),
        Format::Q2_K | Format::Q3_K | Format::MXFP4 | Format::TQ4 | Format::TQ3 => {
            panic!("{} has no encoder", format.name())
        }
    }
}

pub fn is_weighted(format: Format) -> Option<bool> {
    match format {
        Format::F32 | Format::F16 | Format::BF16 | Format::Q8_0 => Some(false),
        Format::Q2_K | Format::Q3_K | Format::MXFP4 | Format::TQ4 | Format::TQ3 => None,
        _ => Some(true),
    }
}

fn blocks256<const BYTES: usize>(
    row: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut [u8],
    encode: impl Fn(&[f32; 256], Option<&[f32; 256]>, &mut [u8; BYTES]),
) {
    let blocks = row.as_chunks::<256>().0.iter().zip(bytes.as_chunks_mut::<BYTES>().0);
    for (i, (x, block)) in blocks.enumerate() {
        encode(x, importance.map(|all| &all.as_chunks::<256>().0[i]), block);
    }
}

/// Encodes blocks of 32. An importance is turned into weights with the mean square of the whole row.
fn blocks32<const BYTES: usize>(
    row: &[f32],
    importance: Option<&[f32]>,
    bytes: &mut [u8],
    encode: impl Fn(&[f32; 32], Option<&[f32; 32]>, &mut [u8; BYTES]),
) {
    let mean_square = importance.map(|_| sum_of_squares(row) / row.len() as f32);
    let blocks = row.as_chunks::<32>().0.iter().zip(bytes.as_chunks_mut::<BYTES>().0);
    for (i, (x, block)) in blocks.enumerate() {
        let weights = importance.zip(mean_square).map(|(all, mean_square)| {
            let mut weights = all.as_chunks::<32>().0[i];
            weights.iter_mut().zip(x).for_each(|(w, &x)| *w *= (mean_square + x * x).sqrt());
            weights
        });
        encode(x, weights.as_ref(), block);
    }
}

fn sum_of_squares(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x)
}

fn extreme(x: &[f32]) -> f32 {
    x.iter().fold(0.0f32, |most, &x| if x.abs() > most.abs() { x } else { most })
}

fn inverse(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

fn q8_0(x: &[f32; 32], block: &mut [u8; 34]) {
    let scale = extreme(x).abs() / 127.0;
    let inverse = inverse(scale);
    put_half(block, scale);
    for i in 0..32 {
        block[2 + i] = (x[i] * inverse).round() as i8 as u8;
    }
}

fn q4_0(x: &[f32; 32], weights: Option<&[f32; 32]>, block: &mut [u8; 18]) {
    let codes = symmetric32(x, weights, 8, block);
    block32::put_nibbles(&codes, &mut block[2..]);
}

fn q5_0(x: &[f32; 32], weights: Option<&[f32; 32]>, block: &mut [u8; 22]) {
    let codes = symmetric32(x, weights, 16, block);
    block32::put_fifth_bits(&codes, &mut block[2..]);
    block32::put_nibbles(&codes, &mut block[6..]);
}

fn q4_1(x: &[f32; 32], weights: Option<&[f32; 32]>, block: &mut [u8; 20]) {
    let codes = affine32(x, weights, 15, block);
    block32::put_nibbles(&codes, &mut block[4..]);
}

fn q5_1(x: &[f32; 32], weights: Option<&[f32; 32]>, block: &mut [u8; 24]) {
    let codes = affine32(x, weights, 31, block);
    block32::put_fifth_bits(&codes, &mut block[4..]);
    block32::put_nibbles(&codes, &mut block[8..]);
}

/// Writes the scale of a block without a minimum and returns its codes, of which `half` stands for zero.
fn symmetric32(x: &[f32; 32], weights: Option<&[f32; 32]>, half: i32, block: &mut [u8]) -> [u8; 32] {
    if let Some(weights) = weights {
        let (scale, codes) = symmetric::fit_one(x, Some(weights), half);
        put_half(block, scale);
        return codes;
    }
    let scale = extreme(x) / -half as f32;
    let inverse = inverse(scale);
    put_half(block, scale);
    x.map(|x| ((x * inverse + (half as f32 + 0.5)) as i8).clamp(0, (2 * half - 1) as i8) as u8)
}

/// Writes scale and minimum of a block and returns its codes.
fn affine32(x: &[f32; 32], weights: Option<&[f32; 32]>, levels: i32, block: &mut [u8]) -> [u8; 32] {
    if let Some(weights) = weights {
        let (scale, min, codes) = affine::fit_one(x, weights, levels);
        put_half(block, scale);
        put_half(&mut block[2..], min);
        return codes;
    }
    let (low, high) = x.iter().fold((f32::MAX, f32::MIN), |(low, high), &x| (low.min(x), high.max(x)));
    let scale = (high - low) / levels as f32;
    let inverse = inverse(scale);
    put_half(block, scale);
    put_half(&mut block[2..], low);
    x.map(|x| (((x - low) * inverse + 0.5) as u8).min(levels as u8))
}

#[cfg(test)]
mod tests;
