//! The rotation in front of keys and values in few bits: random signs, then a Walsh-Hadamard matrix.
//!
//! A rotated row spreads each large value over all others, so that one scale serves the whole row. Lengths and scalar
//! products stay: a query that is rotated as the keys were scores them where they lie, and a weighted sum of rotated
//! values is rotated back once.

use crate::cpu::{CpuLevel, Lanes, at_level};

/// Widths that can be rotated are powers of two from this one on.
pub const LEAST_WIDTH: usize = 32;

/// Signs of a rotation, which follow from a seed. All that is rotated with one seed goes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signs {
    pub seed: u64,
}

impl Signs {
    /// Returns the signs of 64 values: value `64 * word + i` changes its sign where bit i is set.
    pub fn word(self, word: usize) -> u64 {
        // SplitMix64: kernels for GPUs compute the same.
        let mut bits = self.seed.wrapping_add((word as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ bits >> 31
    }
}

pub fn fits(width: usize) -> bool {
    width.is_power_of_two() && width >= LEAST_WIDTH
}

/// Rotates rows of `width` values.
///
/// # Panics
/// If the width does not fit.
pub fn turn(level: CpuLevel, signs: Signs, width: usize, rows: &mut [f32]) {
    assert!(fits(width), "the width is a power of two");
    for row in rows.chunks_exact_mut(width) {
        at_level!(level, turn_row(signs: Signs, row: &mut [f32]));
    }
}

/// Rotates rows back.
///
/// # Panics
/// If the width does not fit.
pub fn turn_back(level: CpuLevel, signs: Signs, width: usize, rows: &mut [f32]) {
    assert!(fits(width), "the width is a power of two");
    for row in rows.chunks_exact_mut(width) {
        at_level!(level, turn_row_back(signs: Signs, row: &mut [f32]));
    }
}

#[inline(always)]
fn turn_row<L: Lanes>(signs: Signs, row: &mut [f32]) {
    change_signs(signs, 1.0 / (row.len() as f32).sqrt(), row);
    multiply(row);
}

#[inline(always)]
fn turn_row_back<L: Lanes>(signs: Signs, row: &mut [f32]) {
    multiply(row);
    change_signs(signs, 1.0 / (row.len() as f32).sqrt(), row);
}

#[inline(always)]
fn change_signs(signs: Signs, scale: f32, row: &mut [f32]) {
    for (word, row) in row.chunks_mut(64).enumerate() {
        let word = signs.word(word);
        for (i, value) in row.iter_mut().enumerate() {
            let sign = ((word >> i & 1) as u32) << 31;
            *value = f32::from_bits((*value * scale).to_bits() ^ sign);
        }
    }
}

// Multiplies with the Walsh-Hadamard matrix in natural order, not normalised: pairs at distance 1, 2, 4 and so on
// become their sum and their difference. The short distances lie in the registers of one block.
#[inline(always)]
fn multiply(row: &mut [f32]) {
    for block in row.as_chunks_mut::<16>().0 {
        step::<1>(block);
        step::<2>(block);
        step::<4>(block);
        step::<8>(block);
    }
    let mut distance = 16;
    while distance < row.len() {
        for pair in row.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        distance *= 2;
    }
}

#[inline(always)]
fn step<const DISTANCE: usize>(block: &mut [f32; 16]) {
    let before = *block;
    for i in 0..16 {
        let other = before[i ^ DISTANCE];
        block[i] = if i & DISTANCE == 0 { before[i] + other } else { other - before[i] };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    #[test]
    fn as_the_reference_and_back() {
        let signs = Signs { seed: 7 };
        for level in CpuLevel::available() {
            for width in [32, 64, 128, 256, 512] {
                let rows = random(3 * width, 5);
                let of_all: Vec<f32> =
                    (0..width).map(|i| if signs.word(i / 64) >> (i % 64) & 1 == 1 { -1.0 } else { 1.0 }).collect();
                let mut turned = rows.clone();
                turn(level, signs, width, &mut turned);
                assert_close(&turned, &reference::hadamard(&rows, &of_all), 1e-6);
                turn_back(level, signs, width, &mut turned);
                assert_close(&turned, &rows, 1e-6);
            }
        }
    }

    #[test]
    fn seeds_differ_and_their_signs_are_mixed() {
        for seed in 0..50 {
            let words: Vec<u64> = (0..4).map(|word| Signs { seed }.word(word)).collect();
            let minuses: u32 = words.iter().map(|word| word.count_ones()).sum();
            assert!((85..=171).contains(&minuses), "{minuses} of 256");
            assert_ne!(words, (0..4).map(|word| Signs { seed: seed + 1 }.word(word)).collect::<Vec<_>>());
        }
    }
}
