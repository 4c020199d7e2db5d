//! Products of vectors in 8-bit integers.

use crate::cpu::{CpuLevel, Lanes, at_level};

/// Computes the product of `query` with each row of `rows`, which lie one after the other.
pub fn dots_i8(level: CpuLevel, query: &[i8], rows: &[i8], out: &mut [i32]) {
    assert!(rows.len() == query.len() * out.len() && query.len() <= MOST_COLUMNS);
    at_level!(level, dots_i8_body(query: &[i8], rows: &[i8], out: &mut [i32]))
}

#[inline(always)]
fn dots_i8_body<L: Lanes>(query: &[i8], rows: &[i8], out: &mut [i32]) {
    for (row, out) in rows.chunks_exact(query.len().max(1)).zip(out) {
        // Products of two bytes and their sums by pairs fit into the form that processors multiply in one instruction.
        *out = row.iter().zip(query).map(|(a, b)| i32::from(i16::from(*a) * i16::from(*b))).sum();
    }
}

/// Longest vector whose product fits into 32 bits.
const MOST_COLUMNS: usize = 1 << 16; // not a window: columns of a vector

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_reference_at_every_level_and_width() {
        for level in CpuLevel::available() {
            for width in [1, 3, 16, 31, 64, 384, 385] {
                let byte = |at: usize| ((at * 37 + at / 11) % 255) as u8 as i8;
                let query: Vec<i8> = (0..width).map(byte).collect();
                let rows: Vec<i8> = (0..width * 5).map(|at| byte(at + 17)).collect();
                let mut out = [0; 5];
                dots_i8(level, &query, &rows, &mut out);
                let expected: Vec<i32> = rows.chunks_exact(width).map(|row| reference::dot_i8(row, &query)).collect();
                assert_eq!(out, expected[..]);
            }
            // The largest values that a row can have.
            let mut out = [0];
            dots_i8(level, &[-128; 1024], &[-128; 1024], &mut out);
            assert_eq!(out, [128 * 128 * 1024]);
        }
    }
}
