//! The 256-blocks whose groups have a scale and a minimum: Q2_K, Q4_K, Q5_K.
//!
//! Value = d * scale * q - dmin * min, with d and dmin halves, scale and min small unsigned numbers of the group.

use super::{Ints, fit, half_at, put_half};

/// Sixteen groups of 16: [scale and min, four bits each: 16][2-bit codes: 64][d][dmin].
pub fn unpack_q2_k(block: &[u8; 84], out: &mut Ints) {
    let (d, dmin) = (half_at(&block[80..]), half_at(&block[82..]));
    for group in 0..16 {
        out.scale[group] = d * f32::from(block[group] & 15);
        out.min[group] = -(dmin * f32::from(block[group] >> 4));
    }
    for (half, packed) in block[16..80].as_chunks::<32>().0.iter().enumerate() {
        for part in 0..4 {
            for i in 0..32 {
                out.q[128 * half + 32 * part + i] = (packed[i] >> (2 * part) & 3) as i8;
            }
        }
    }
}

/// Eight groups of 32: [d][dmin][scales and mins, six bits each: 12][4-bit codes: 128].
#[inline(always)]
pub fn unpack_q4_k(block: &[u8; 144], out: &mut Ints) {
    unpack_scales(&block[..16], out);
    for (pair, packed) in block[16..].as_chunks::<32>().0.iter().enumerate() {
        for i in 0..32 {
            out.q[64 * pair + i] = (packed[i] & 15) as i8;
            out.q[64 * pair + 32 + i] = (packed[i] >> 4) as i8;
        }
    }
}

/// The layout of Q4_K, with the fifth bits before the codes: bit g of byte i belongs to value i of group g.
#[inline(always)]
pub fn unpack_q5_k(block: &[u8; 176], out: &mut Ints) {
    unpack_scales(&block[..16], out);
    let (fifths, packed) = block[16..].split_at(32);
    for (pair, packed) in packed.as_chunks::<32>().0.iter().enumerate() {
        for i in 0..32 {
            out.q[64 * pair + i] = (packed[i] & 15 | (fifths[i] >> (2 * pair) & 1) << 4) as i8;
            out.q[64 * pair + 32 + i] = (packed[i] >> 4 | (fifths[i] >> (2 * pair + 1) & 1) << 4) as i8;
        }
    }
}

pub fn encode_q4_k(x: &[f32; 256], block: &mut [u8; 144]) {
    let (scales, codes) = block.split_at_mut(16);
    put_q4_k(&encode_groups(x, 15, scales), codes);
}

/// Writes 4-bit codes behind the scales.
pub fn put_q4_k(all: &[[u8; 32]; 8], codes: &mut [u8]) {
    for pair in 0..4 {
        for i in 0..32 {
            codes[32 * pair + i] = all[2 * pair][i] | all[2 * pair + 1][i] << 4;
        }
    }
}

pub fn encode_q5_k(x: &[f32; 256], block: &mut [u8; 176]) {
    let (scales, rest) = block.split_at_mut(16);
    put_q5_k(&encode_groups(x, 31, scales), rest);
}

/// Writes 5-bit codes behind the scales.
pub fn put_q5_k(all: &[[u8; 32]; 8], rest: &mut [u8]) {
    let (fifths, codes) = rest.split_at_mut(32);
    for i in 0..32 {
        fifths[i] = (0..8).fold(0, |bits, group| bits | (all[group][i] >> 4 & 1) << group);
    }
    for pair in 0..4 {
        for i in 0..32 {
            codes[32 * pair + i] = all[2 * pair][i] & 15 | (all[2 * pair + 1][i] & 15) << 4;
        }
    }
}

/// Fits eight groups, writes d, dmin and the 6-bit scales and minima, returns the codes.
fn encode_groups(x: &[f32; 256], levels: i32, header: &mut [u8]) -> [[u8; 32]; 8] {
    let groups = x.as_chunks::<32>().0;
    let mut fits = [(0.0, 0.0); 8];
    for group in 0..8 {
        fits[group] = fit::affine(&groups[group], levels, true);
    }
    let (d, rest) = header.split_at_mut(2);
    let (dmin, packed) = rest.split_at_mut(2);
    let (scales, mins, d, dmin) = share(&fits, 63, d, dmin);
    put_scales(&scales, &mins, packed);
    let mut codes = [[0; 32]; 8];
    for group in 0..8 {
        let (scale, min) = (d * f32::from(scales[group]), -(dmin * f32::from(mins[group])));
        codes[group] = fit::codes(&groups[group], scale, min, 0, levels);
    }
    codes
}

/// Writes the six-bit numbers as `unpack_scales` reads them.
pub fn put_scales(scales: &[u8; 8], mins: &[u8; 8], packed: &mut [u8]) {
    for j in 0..4 {
        packed[j] = scales[j] | scales[j + 4] >> 4 << 6;
        packed[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        packed[j + 8] = scales[j + 4] & 15 | (mins[j + 4] & 15) << 4;
    }
}

/// Reads the six-bit numbers: groups 0 to 3 whole in bytes 0..4 (scales) and 4..8 (mins), whose top two bits are the
/// top of groups 4 to 7; the low four bits of those are in bytes 8..12.
fn unpack_scales(header: &[u8], out: &mut Ints) {
    let (d, dmin, packed) = (half_at(header), half_at(&header[2..]), &header[4..16]);
    for j in 0..4 {
        let scales = [packed[j] & 63, packed[j + 8] & 15 | packed[j] >> 6 << 4];
        let mins = [packed[j + 4] & 63, packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4];
        for (group, scale, min) in [(j, scales[0], mins[0]), (j + 4, scales[1], mins[1])] {
            out.scale[2 * group..2 * group + 2].fill(d * f32::from(scale));
            out.min[2 * group..2 * group + 2].fill(-(dmin * f32::from(min)));
        }
    }
}

/// Scales the groups' scales and minima to shares of one d and one dmin: (scales, mins, d, dmin).
fn share<const GROUPS: usize>(
    fits: &[(f32, f32); GROUPS],
    levels: i32,
    d: &mut [u8],
    dmin: &mut [u8],
) -> ([u8; GROUPS], [u8; GROUPS], f32, f32) {
    let most_scale = fits.iter().fold(0.0f32, |most, fit| most.max(fit.0));
    let most_min = fits.iter().fold(0.0f32, |most, fit| most.max(-fit.1));
    let (d, dmin) = (put_half(d, most_scale / levels as f32), put_half(dmin, most_min / levels as f32));
    let (by_scale, by_min) = (fit::inverse(d), fit::inverse(dmin));
    let scales = fits.map(|fit| fit::code(fit.0 * by_scale, 0, levels) as u8);
    let mins = fits.map(|fit| fit::code(-fit.1 * by_min, 0, levels) as u8);
    (scales, mins, d, dmin)
}
