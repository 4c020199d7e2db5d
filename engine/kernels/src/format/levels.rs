//! Formats of keys and values whose codes are levels: TQ4 and TQ3. A row is one block and has been rotated
//! (`hadamard`), so that its values are close to normal; the levels are the best for a normal distribution.
//!
//! A row holds a scale as a half, then codes. TQ4: sign and three bits a code, in groups of 32 as Q4_0 has them. TQ3: two
//! bits of every code, four a byte, and then all signs, eight a byte. The scale is the row's norm divided by the norm of
//! its levels, so that reading gives a row of the same norm.

use super::{half_at, put_half};
use crate::levels::{LEVELS_3, LEVELS_4, signs_at};

pub(super) fn row_bytes(bits: usize, cols: usize) -> Option<usize> {
    crate::hadamard::fits(cols).then(|| 2 + cols / 8 * bits)
}

pub(super) fn dequantize_tq4(bytes: &[u8], out: &mut [f32]) {
    let scale = half_at(bytes);
    for (codes, out) in bytes[2..].as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for i in 0..16 {
            out[i] = scale * level_of::<8>(&LEVELS_4, codes[i] & 7, codes[i] >> 3 & 1);
            out[i + 16] = scale * level_of::<8>(&LEVELS_4, codes[i] >> 4 & 7, codes[i] >> 7);
        }
    }
}

pub(super) fn dequantize_tq3(bytes: &[u8], out: &mut [f32]) {
    let (scale, signs) = (half_at(bytes), signs_at(out.len()));
    for (i, out) in out.iter_mut().enumerate() {
        let (code, sign) = (bytes[2 + i / 4] >> (i % 4 * 2) & 3, bytes[signs + i / 8] >> (i % 8) & 1);
        *out = scale * level_of::<4>(&LEVELS_3, code, sign);
    }
}

pub(super) fn quantize_tq4(row: &[f32], bytes: &mut [u8]) {
    let fit = Fit::of(row, &LEVELS_4, bytes);
    for (row, codes) in row.as_chunks::<32>().0.iter().zip(bytes[2..].as_chunks_mut::<16>().0) {
        for i in 0..16 {
            codes[i] = fit.code(row[i]) | fit.code(row[i + 16]) << 4;
        }
    }
}

pub(super) fn quantize_tq3(row: &[f32], bytes: &mut [u8]) {
    let fit = Fit::of(row, &LEVELS_3, bytes);
    let (codes, signs) = bytes[2..].split_at_mut(row.len() / 4);
    for (row, (codes, signs)) in row.as_chunks::<8>().0.iter().zip(codes.as_chunks_mut::<2>().0.iter_mut().zip(signs)) {
        let of = row.map(|value| fit.code(value));
        *codes = [0, 4].map(|from| (0..4).fold(0, |byte, i| byte | (of[from + i] & 3) << (2 * i)));
        *signs = (0..8).fold(0, |byte, i| byte | (of[i] >> 2) << i);
    }
}

fn level_of<const N: usize>(levels: &[f32; N], code: u8, sign: u8) -> f32 {
    let level = levels[usize::from(code) % N];
    if sign == 1 { -level } else { level }
}

// Codes of a row: `inverse` makes its values normal.
struct Fit<'a, const N: usize> {
    levels: &'a [f32; N],
    borders: [f32; N], // the last one is no border
    inverse: f32,
}

impl<'a, const N: usize> Fit<'a, N> {
    // Finds the codes and writes the scale.
    fn of(row: &[f32], levels: &'a [f32; N], bytes: &mut [u8]) -> Fit<'a, N> {
        let squares: f64 = row.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        // A row of zeros, and one that is no row of numbers, has the scale zero.
        let is_plain = squares > 0.0 && squares < f64::MAX;
        let inverse = if is_plain { (row.len() as f64 / squares).sqrt() as f32 } else { 0.0 };
        let borders =
            std::array::from_fn(|i| if i + 1 < N { (levels[i] + levels[i + 1]) / 2.0 } else { f32::INFINITY });
        let fit = Fit { levels, borders, inverse };
        let of_levels: f64 = row.iter().map(|x| f64::from(fit.levels[fit.level(*x)]).powi(2)).sum();
        let scale = if is_plain { (squares / of_levels).sqrt() as f32 } else { 0.0 };
        put_half(bytes, scale);
        fit
    }

    fn level(&self, value: f32) -> usize {
        let size = (value * self.inverse).abs();
        self.borders.iter().filter(|border| size > **border).count()
    }

    fn code(&self, value: f32) -> u8 {
        self.level(value) as u8 | if value < 0.0 { N as u8 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Format, dequantize, quantize};
    use crate::testing::random;

    #[test]
    fn rows_are_the_nearest_levels_of_the_same_norm() {
        let levels = [LEVELS_4.map(f64::from).to_vec(), LEVELS_3.map(f64::from).to_vec()];
        for (format, levels) in [Format::TQ4, Format::TQ3].into_iter().zip(levels) {
            for width in [32, 64, 128, 256] {
                for (seed, scale) in [(1, 1.0), (2, 1e-3), (3, 300.0)] {
                    let row: Vec<f32> = random(width, seed).iter().map(|x| x * scale).collect();
                    let mut bytes = vec![0; format.row_bytes(width).unwrap()];
                    quantize(format, &row, &mut bytes);
                    let mut back = vec![f32::NAN; width];
                    dequantize(format, &bytes, &mut back);
                    // The scale is a half.
                    let expected = reference::nearest_levels(&row, &levels);
                    let distance = reference::distance(&back, &expected);
                    assert!(distance < 6e-4, "{} of {width} times {scale}: {distance}", format.name());
                }
            }
        }
    }

    #[test]
    fn no_row_panics_and_zeros_stay_zeros() {
        for format in [Format::TQ4, Format::TQ3] {
            assert!([0, 16, 48, 96].iter().all(|width| format.row_bytes(*width).is_none()), "{}", format.name());
            for value in [0.0, -0.0, 1e-30, 1e30, f32::MAX, f32::INFINITY, f32::NAN] {
                let mut bytes = vec![0xff; format.row_bytes(64).unwrap()];
                quantize(format, &[value; 64], &mut bytes);
                let mut back = [f32::NAN; 64];
                dequantize(format, &bytes, &mut back);
                assert!(value != 0.0 || back == [0.0; 64], "{value}");
            }
        }
    }
}
