//! Self-check of a device: a few of its kernels against the host.

use kernels::format::{Format, dequantize, quantize};

use crate::buffer::Buffer;
use crate::device::{Device, GpuFeature};
use crate::error::Error;
use crate::matrix::DeviceMatrix;
use crate::norm::{NormRowsArguments, norm_rows};
use crate::product::{Exactness, FEW_ROWS, GROUP_ROWS, product, product_by_groups};
use crate::rows::{DeviceRows, Forms, Halves, RowsArguments};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Checked {
    pub distance: f32,
    pub is_right: bool,
}

const COLS: usize = 256;
const OUT: usize = 192;
/// Exact products keep 22 bits of each number.
pub const TOLERANCE: f32 = 1e-4;

/// Products that round activations to halves keep 11.
const ROUNDED_TOLERANCE: f32 = 2e-3;

pub fn check(device: &Device) -> Result<Checked, Error> {
    let exact = [1, MANY_ROWS].map(|rows| distance(device, rows, Exactness::Exact));
    let [one, many] = exact;
    let (distance, rounded) = (one?.max(many?), check_rounded(device)?);
    Ok(Checked { distance, is_right: distance <= TOLERANCE && rounded.is_right })
}

pub fn check_rounded(device: &Device) -> Result<Checked, Error> {
    let mut worst = distance(device, MANY_ROWS, Exactness::Rounded)?;
    if device.uses(GpuFeature::GroupProducts) {
        for tile in GROUP_ROWS {
            let one =
                distance_of(device, MANY_ROWS, |x, jobs| product_by_groups(device, tile, x, MANY_ROWS, jobs, false))?;
            worst = if one > worst || one.is_nan() { one } else { worst };
        }
    }
    Ok(Checked { distance: worst, is_right: worst <= ROUNDED_TOLERANCE })
}

const MANY_ROWS: usize = 3 * FEW_ROWS + 120;

fn distance(device: &Device, rows: usize, exactness: Exactness) -> Result<f32, Error> {
    distance_of(device, rows, |x, jobs| product(device, exactness, x, rows, jobs, false))
}

fn distance_of(
    device: &Device,
    rows: usize,
    multiply: impl FnOnce(RowsArguments, &[(&DeviceMatrix, u64)]) -> Result<(), Error>,
) -> Result<f32, Error> {
    let weights: Vec<f32> = wave(OUT * COLS, 0.37);
    let mut bytes = vec![0; Format::Q8_0.row_bytes(COLS).unwrap_or(0) * OUT];
    quantize(Format::Q8_0, &weights, &mut bytes);
    let mut exact = vec![0.0; weights.len()];
    dequantize(Format::Q8_0, &bytes, &mut exact);
    let matrix = DeviceMatrix::of(device, Format::Q8_0, OUT, COLS, &bytes)?;
    let ones = Buffer::of(device, &[1.0f32; COLS])?;
    let x = wave(rows * COLS, 0.61);
    let there = Buffer::of(device, &x)?;
    let halves = if rows <= FEW_ROWS { Halves::No } else { Halves::Two };
    let forms = Forms { values: true, integers: false, halves };
    let normed = DeviceRows::new(device, rows, COLS, forms)?;
    let to = normed.arguments(forms);
    let of_norm = NormRowsArguments { x: there.address(), weight: ones.address(), chosen: 0, to, eps: 1e-6, unused: 0 };
    norm_rows(device, rows, &of_norm)?;
    let out = Buffer::<f32>::new(device, rows * OUT)?;
    multiply(to, &[(&matrix, out.address())])?;
    Ok(largest_difference(&out.to_vec()?, &expected(&x, &exact)))
}

fn expected(x: &[f32], weights: &[f32]) -> Vec<f32> {
    let rows = x.chunks_exact(COLS).flat_map(|row| {
        let squares: f64 = row.iter().map(|value| f64::from(*value).powi(2)).sum();
        let scale = 1.0 / (squares / COLS as f64 + 1e-6).sqrt();
        let product = |weights: &[f32]| -> f64 { row.iter().zip(weights).map(|(x, w)| f64::from(x * w)).sum() };
        weights.chunks_exact(COLS).map(move |weights| (product(weights) * scale) as f32).collect::<Vec<_>>()
    });
    rows.collect()
}

fn largest_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    let largest = theirs.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let worse =
        |worst: f32, difference: f32| if difference > worst || difference.is_nan() { difference } else { worst };
    let difference = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, worse);
    difference / largest
}

fn wave(len: usize, step: f32) -> Vec<f32> {
    (0..len).map(|i| ((i as f32 * step).sin() * 40.0).fract()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_and_no_number_at_all_are_seen() {
        let theirs = expected(&wave(COLS, 0.61), &wave(COLS * OUT, 0.37));
        let mut ours = theirs.clone();
        assert_eq!(largest_difference(&ours, &theirs), 0.0);
        ours[7] += 0.1;
        assert!(largest_difference(&ours, &theirs) > TOLERANCE);
        ours[7] = f32::NAN;
        assert!(largest_difference(&ours, &theirs).is_nan());
    }
}
