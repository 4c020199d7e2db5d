//! The formats whose 4-bit codes look values up in a table: IQ4_NL, IQ4_XS, MXFP4.

use super::{Ints, fit, half_at, put_half};

/// What the codes of the IQ4 formats stand for: steps that grow away from zero, as weights thin out there.
pub const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The code of each value in `IQ4`, by the bits of the value.
pub const IQ4_CODES: [u8; 256] = {
    let mut codes = [0; 256];
    let mut code = 0;
    while code < IQ4.len() {
        codes[IQ4[code] as u8 as usize] = code as u8;
        code += 1;
    }
    codes
};

/// The eight magnitudes of a 4-bit float (twice their value, so that all are whole), then the same negated.
const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

#[inline(always)]
pub fn unpack_iq4_nl(block: &[u8; 18], q: &mut [i8; 32]) -> (f32, f32) {
    look_up(&IQ4, &block[2..], q);
    (half_at(block), -0.0)
}

pub fn unpack_mxfp4(block: &[u8; 17], q: &mut [i8; 32]) -> (f32, f32) {
    look_up(&E2M1, &block[1..], q);
    (half_power_of_two(block[0]), -0.0)
}

/// Eight groups of 32 with a 6-bit scale each: low four bits in bytes 4..8, high two in the 16 bits before.
#[inline(always)]
pub fn unpack_iq4_xs(block: &[u8; 136], out: &mut Ints) {
    let d = half_at(block);
    let high = u16::from_le_bytes([block[2], block[3]]);
    for (group, q) in out.q.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = block[4 + group / 2] >> (4 * (group % 2)) & 15;
        let scale = i32::from(low) | i32::from(high >> (2 * group) & 3) << 4;
        look_up(&IQ4, &block[8 + 16 * group..], q);
        out.scale[2 * group..2 * group + 2].fill(d * (scale - 32) as f32);
    }
    out.min.fill(-0.0);
}

pub fn encode_iq4_nl(x: &[f32; 32], block: &mut [u8; 18]) {
    let inverse = fit::inverse(put_half(block, fit_iq4(x)));
    put_nearest_iq4(x, inverse, &mut block[2..]);
}

pub fn encode_iq4_xs(x: &[f32; 256], block: &mut [u8; 136]) {
    let groups = x.as_chunks::<32>().0;
    let mut scales = [0.0f32; 8];
    for (scale, group) in scales.iter_mut().zip(groups) {
        *scale = fit_iq4(group);
    }
    let d = put_half(block, fit::extreme(&scales) / -32.0);
    let inverse = fit::inverse(d);
    let mut high = 0u16;
    block[4..8].fill(0);
    for (group, x) in groups.iter().enumerate() {
        let scale = fit::code(scales[group] * inverse, -32, 31);
        let stored = (scale + 32) as u16;
        block[4 + group / 2] |= ((stored & 15) << (4 * (group % 2))) as u8;
        high |= (stored >> 4) << (2 * group);
        put_nearest_iq4(x, fit::inverse(d * scale as f32), &mut block[8 + 16 * group..]);
    }
    block[2..4].copy_from_slice(&high.to_le_bytes());
}

/// Of the two powers of two that the largest magnitude allows, the one with the smaller error.
pub fn encode_mxfp4(x: &[f32; 32], block: &mut [u8; 17]) {
    let extreme = fit::extreme(x).abs();
    // The exponent field of a float is its power of two; 12 halves of 2^-2 reach to 1.5 times that power.
    let exponent = (extreme.to_bits() >> 23).saturating_sub(2).min(253) as u8;
    let error = |exponent: u8| -> f32 {
        let scale = half_power_of_two(exponent);
        x.iter().map(|&x| x - scale * f32::from(E2M1[usize::from(nearest_e2m1(x / scale))])).map(|e| e * e).sum()
    };
    let exponent = if error(exponent + 1) < error(exponent) { exponent + 1 } else { exponent };
    let scale = half_power_of_two(exponent);
    block[0] = exponent;
    for j in 0..16 {
        block[1 + j] = nearest_e2m1(x[j] / scale) | nearest_e2m1(x[j + 16] / scale) << 4;
    }
}

fn look_up(table: &[i8; 16], packed: &[u8], q: &mut [i8; 32]) {
    for (j, &byte) in packed[..16].iter().enumerate() {
        q[j] = table[usize::from(byte & 15)];
        q[j + 16] = table[usize::from(byte >> 4)];
    }
}

/// 2^(exponent - 128): half of what the byte means, because the table holds twice its values.
fn half_power_of_two(exponent: u8) -> f32 {
    match exponent {
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

/// As `fit::symmetric`, with the table's values in place of the integers.
fn fit_iq4(x: &[f32; 32]) -> f32 {
    let extreme = fit::extreme(x);
    if extreme == 0.0 || !extreme.is_finite() {
        return 0.0;
    }
    let (mut best_gain, mut best_scale) = (-1.0, extreme / f32::from(IQ4[0]));
    for step in -7..=7 {
        let factor = (f32::from(IQ4[0]) + 2.0 * step as f32) / extreme;
        let (mut xq, mut qq) = (0.0f32, 0.0f32);
        for &x in x {
            let q = f32::from(IQ4[usize::from(nearest_iq4(x * factor))]);
            xq += x * q;
            qq += q * q;
        }
        let gain = xq * xq / qq;
        if qq > 0.0 && gain > best_gain {
            (best_gain, best_scale) = (gain, xq / qq);
        }
    }
    best_scale
}

fn put_nearest_iq4(x: &[f32; 32], inverse: f32, packed: &mut [u8]) {
    for j in 0..16 {
        packed[j] = nearest_iq4(x[j] * inverse) | nearest_iq4(x[j + 16] * inverse) << 4;
    }
}

/// The code whose value is nearest: how many of the midpoints between neighbours lie below.
fn nearest_iq4(value: f32) -> u8 {
    let mut code = 0;
    for pair in IQ4.windows(2) {
        code += u8::from(value > 0.5 * (f32::from(pair[0]) + f32::from(pair[1])));
    }
    code
}

fn nearest_e2m1(value: f32) -> u8 {
    let magnitude = value.abs();
    let mut code = 0;
    for pair in E2M1[..8].windows(2) {
        code += u8::from(magnitude > 0.5 * (f32::from(pair[0]) + f32::from(pair[1])));
    }
    code | u8::from(value < 0.0) << 3
}
