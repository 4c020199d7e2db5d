//! Formats of 32 values with one scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! In the 4 and 5 bit ones, byte j of the packed part holds value j in its low half and value j + 16 in its high half;
//! fifth bits are bit i of a 32-bit number for value i.

use super::{fit, half_at, put_half};

const NO_MIN: f32 = -0.0;

#[inline(always)]
pub fn unpack_q4_0(block: &[u8; 18], q: &mut [i8; 32]) -> (f32, f32) {
    nibbles(&block[2..], q);
    q.iter_mut().for_each(|q| *q -= 8);
    (half_at(block), NO_MIN)
}

pub fn unpack_q4_1(block: &[u8; 20], q: &mut [i8; 32]) -> (f32, f32) {
    nibbles(&block[4..], q);
    (half_at(block), half_at(&block[2..]))
}

pub fn unpack_q5_0(block: &[u8; 22], q: &mut [i8; 32]) -> (f32, f32) {
    nibbles(&block[6..], q);
    fifth_bits(&block[2..], q);
    q.iter_mut().for_each(|q| *q -= 16);
    (half_at(block), NO_MIN)
}

pub fn unpack_q5_1(block: &[u8; 24], q: &mut [i8; 32]) -> (f32, f32) {
    nibbles(&block[8..], q);
    fifth_bits(&block[4..], q);
    (half_at(block), half_at(&block[2..]))
}

#[inline(always)]
pub fn unpack_q8_0(block: &[u8; 34], q: &mut [i8; 32]) -> (f32, f32) {
    for i in 0..32 {
        q[i] = block[2 + i] as i8;
    }
    (half_at(block), NO_MIN)
}

pub fn encode_q4_0(x: &[f32; 32], block: &mut [u8; 18]) {
    let codes = encode_symmetric(x, -8, 7, block);
    put_nibbles(&codes, &mut block[2..]);
}

pub fn encode_q5_0(x: &[f32; 32], block: &mut [u8; 22]) {
    let codes = encode_symmetric(x, -16, 15, block);
    put_fifth_bits(&codes, &mut block[2..]);
    put_nibbles(&codes, &mut block[6..]);
}

pub fn encode_q5_1(x: &[f32; 32], block: &mut [u8; 24]) {
    let codes = encode_affine(x, 31, block);
    put_fifth_bits(&codes, &mut block[4..]);
    put_nibbles(&codes, &mut block[8..]);
}

/// Encodes without a search: with 255 steps, the scale that just covers the range is as good as any.
pub fn encode_q8_0(x: &[f32; 32], block: &mut [u8; 34]) {
    let scale = put_half(block, fit::extreme(x).abs() / 127.0);
    let inverse = fit::inverse(scale);
    for i in 0..32 {
        block[2 + i] = fit::code(x[i] * inverse, -127, 127) as i8 as u8;
    }
}

/// Writes the scale at the start of the block; returns the codes, shifted so that `low` is 0.
fn encode_symmetric(x: &[f32; 32], low: i32, high: i32, block: &mut [u8]) -> [u8; 32] {
    let scale = put_half(block, fit::symmetric(x, low, high));
    fit::codes(x, scale, 0.0, low, high)
}

/// Writes scale and minimum at the start of the block; returns the codes.
fn encode_affine(x: &[f32; 32], levels: i32, block: &mut [u8]) -> [u8; 32] {
    let (scale, min) = fit::affine(x, levels, false);
    let (scale, min) = (put_half(block, scale), put_half(&mut block[2..], min));
    fit::codes(x, scale, min, 0, levels)
}

fn nibbles(packed: &[u8], q: &mut [i8; 32]) {
    for (j, &byte) in packed[..16].iter().enumerate() {
        q[j] = (byte & 15) as i8;
        q[j + 16] = (byte >> 4) as i8;
    }
}

pub fn put_nibbles(codes: &[u8; 32], packed: &mut [u8]) {
    for j in 0..16 {
        packed[j] = (codes[j] & 15) | (codes[j + 16] & 15) << 4;
    }
}

fn fifth_bits(packed: &[u8], q: &mut [i8; 32]) {
    let bits = u32::from_le_bytes([packed[0], packed[1], packed[2], packed[3]]);
    for i in 0..32 {
        q[i] |= ((bits >> i & 1) << 4) as i8;
    }
}

pub fn put_fifth_bits(codes: &[u8; 32], packed: &mut [u8]) {
    let bits = (0..32).fold(0u32, |bits, i| bits | u32::from(codes[i] >> 4 & 1) << i);
    packed[..4].copy_from_slice(&bits.to_le_bytes());
}
