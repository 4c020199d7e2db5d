//! Formats that are floating-point numbers one by one. Bytes may lie at any alignment: they come from files.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

pub fn f32_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

pub fn f32_from_f32(values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.as_chunks_mut::<4>().0) {
        *bytes = value.to_le_bytes();
    }
}

/// Converts in pieces on the stack, for the processor's own conversion of whole slices.
pub fn f16_to_f32(bytes: &[u8], out: &mut [f32]) {
    let mut halves = [f16::ZERO; 256];
    for (bytes, out) in bytes.chunks(512).zip(out.chunks_mut(256)) {
        let halves = &mut halves[..out.len()];
        for (half, bytes) in halves.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *half = f16::from_le_bytes(*bytes);
        }
        halves.convert_to_f32_slice(out);
    }
}

pub fn f16_from_f32(values: &[f32], bytes: &mut [u8]) {
    let mut halves = [f16::ZERO; 256];
    for (values, bytes) in values.chunks(256).zip(bytes.chunks_mut(512)) {
        let halves = &mut halves[..values.len()];
        halves.convert_from_f32_slice(values);
        for (half, bytes) in halves.iter().zip(bytes.as_chunks_mut::<2>().0) {
            *bytes = half.to_le_bytes();
        }
    }
}

pub fn bf16_to_f32(bytes: &[u8], out: &mut [f32]) {
    for (value, bytes) in out.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *value = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
    }
}

pub fn bf16_from_f32(values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.as_chunks_mut::<2>().0) {
        *bytes = bf16::from_f32(*value).to_le_bytes();
    }
}
