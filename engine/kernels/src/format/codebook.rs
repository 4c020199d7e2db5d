//! Formats whose 4-bit codes look values up in a table: IQ4_NL, IQ4_XS, MXFP4.

use super::{Ints, half_at};

/// Values of the IQ4 codes: steps that grow away from zero, as weights thin out there.
pub const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub const IQ4_CODES: [u8; 256] = {
    // code of each value in `IQ4`, by the bits of the value
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

fn look_up(table: &[i8; 16], packed: &[u8], q: &mut [i8; 32]) {
    for (j, &byte) in packed[..16].iter().enumerate() {
        q[j] = table[usize::from(byte & 15)];
        q[j + 16] = table[usize::from(byte >> 4)];
    }
}

/// Computes 2^(exponent - 128): half of the byte's meaning, because the table holds twice its values.
fn half_power_of_two(exponent: u8) -> f32 {
    match exponent {
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}
