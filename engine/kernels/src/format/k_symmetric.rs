//! The 256-blocks whose sixteen groups of 16 have a signed scale and no minimum: Q3_K, Q6_K.

use super::{Ints, fit, half_at, put_half};

/// [third bits: 32][2-bit codes: 64][6-bit scales: 12][d]. A third bit that is *not* set takes 4 away.
pub fn unpack_q3_k(block: &[u8; 110], out: &mut Ints) {
    let d = half_at(&block[108..]);
    let (thirds, rest) = block.split_at(32);
    let (codes, scales) = rest.split_at(64);
    for group in 0..16 {
        let low = scales[group % 8] >> (4 * (group / 8)) & 15;
        let high = scales[8 + group % 4] >> (2 * (group / 4)) & 3;
        out.scale[group] = d * (i32::from(low | high << 4) - 32) as f32;
    }
    out.min.fill(-0.0);
    for (half, packed) in codes.as_chunks::<32>().0.iter().enumerate() {
        for part in 0..4 {
            for i in 0..32 {
                let code = packed[i] >> (2 * part) & 3 | (thirds[i] >> (4 * half + part) & 1) << 2;
                out.q[128 * half + 32 * part + i] = code as i8 - 4;
            }
        }
    }
}

/// [low four bits: 128][high two bits: 64][scales, i8: 16][d].
#[inline(always)]
pub fn unpack_q6_k(block: &[u8; 210], out: &mut Ints) {
    let d = half_at(&block[208..]);
    for group in 0..16 {
        out.scale[group] = d * f32::from(block[192 + group] as i8);
    }
    out.min.fill(-0.0);
    for half in 0..2 {
        let low = &block[64 * half..64 * half + 64];
        let high = &block[128 + 32 * half..160 + 32 * half];
        let q = &mut out.q[128 * half..128 * half + 128];
        for i in 0..32 {
            q[i] = (low[i] & 15 | (high[i] & 3) << 4) as i8 - 32;
            q[i + 32] = (low[i + 32] & 15 | (high[i] >> 2 & 3) << 4) as i8 - 32;
            q[i + 64] = (low[i] >> 4 | (high[i] >> 4 & 3) << 4) as i8 - 32;
            q[i + 96] = (low[i + 32] >> 4 | (high[i] >> 6) << 4) as i8 - 32;
        }
    }
}

pub fn encode_q6_k(x: &[f32; 256], block: &mut [u8; 210]) {
    let (codes, scales, d) = encode_groups(x, (-32, 31), (-128, 127));
    put_q6_k(&codes, &scales, d, block);
}

/// Writes a block of codes that start at 0.
pub fn put_q6_k(codes: &[u8; 256], scales: &[i8; 16], d: f32, block: &mut [u8; 210]) {
    put_half(&mut block[208..], d);
    for group in 0..16 {
        block[192 + group] = scales[group] as u8;
    }
    for half in 0..2 {
        let codes = &codes[128 * half..128 * half + 128];
        for i in 0..32 {
            let four = [codes[i], codes[i + 32], codes[i + 64], codes[i + 96]];
            block[64 * half + i] = four[0] & 15 | (four[2] & 15) << 4;
            block[64 * half + 32 + i] = four[1] & 15 | (four[3] & 15) << 4;
            block[128 + 32 * half + i] = four[0] >> 4 | four[1] >> 4 << 2 | four[2] >> 4 << 4 | four[3] >> 4 << 6;
        }
    }
}

/// Fits sixteen groups, with codes and scales in the given ranges: (codes, shifted to start at 0; scales; d, rounded to
/// a half).
fn encode_groups(x: &[f32; 256], codes_in: (i32, i32), scales_in: (i32, i32)) -> ([u8; 256], [i8; 16], f32) {
    let groups = x.as_chunks::<16>().0;
    let mut fits = [0.0; 16];
    for group in 0..16 {
        fits[group] = fit::symmetric(&groups[group], codes_in.0, codes_in.1);
    }
    let d = put_half(&mut [0; 2], fit::extreme(&fits) / scales_in.0 as f32);
    let inverse = fit::inverse(d);
    let scales = fits.map(|scale| fit::code(scale * inverse, scales_in.0, scales_in.1) as i8);
    let mut codes = [0u8; 256];
    for (group, codes) in codes.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        *codes = fit::codes(&groups[group], d * f32::from(scales[group]), 0.0, codes_in.0, codes_in.1);
    }
    (codes, scales, d)
}
