//! Values of the plainer formats at the speed of this processor's level, equal to `format::dequantize` to the bit.
//!
//! Keys and values are unpacked again for every token, and weights that are no blocks for every product.

use std::ops::Range;

use crate::cpu::{CpuLevel, Lanes, at_level};
use crate::format::{Format, dequantize};
use crate::levels::signs_at;

pub(crate) fn unpack(level: CpuLevel, format: Format, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(format.row_bytes(out.len()), Some(bytes.len()));
    at_level!(level, unpacked(format: Format, bytes: &[u8], out: &mut [f32]));
}

// Unpacks the same columns of many rows that lie `stride` bytes apart. Columns are whole blocks, or whole groups of 32
// where a row is one block. `out`: [row, width].
pub(crate) fn unpack_columns(
    level: CpuLevel,
    format: Format,
    bytes: &[u8],
    stride: usize,
    columns: Range<usize>,
    out: &mut [f32],
) {
    at_level!(level, columns_of(format: Format, bytes: &[u8], stride: usize, columns: Range<usize>, out: &mut [f32]));
}

#[inline(always)]
fn columns_of<L: Lanes>(format: Format, bytes: &[u8], stride: usize, columns: Range<usize>, out: &mut [f32]) {
    let width = columns.len();
    if format.is_of_rotated_rows() {
        assert!(columns.start.is_multiple_of(32) && width.is_multiple_of(32));
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let row = &bytes[row * stride..][..stride];
            if format == Format::TQ4 { tq4::<L>(row, columns.start, out) } else { tq3::<L>(row, columns.start, out) }
        }
        return;
    }
    let row_bytes = |columns| format.row_bytes(columns).expect("whole blocks");
    let (bytes, size) = (&bytes[row_bytes(columns.start)..], row_bytes(width));
    if size == stride {
        return unpacked::<L>(format, &bytes[..out.len() / width * size], out);
    }
    for (row, out) in out.chunks_exact_mut(width).enumerate() {
        unpacked::<L>(format, &bytes[row * stride..][..size], out);
    }
}

#[inline(always)]
fn unpacked<L: Lanes>(format: Format, bytes: &[u8], out: &mut [f32]) {
    match format {
        Format::F16 => halves::<L, false>(bytes, out),
        Format::BF16 => halves::<L, true>(bytes, out),
        Format::Q8_0 => q8_0::<L>(bytes, out),
        Format::Q4_0 => q4_0::<L>(bytes, out),
        Format::TQ4 => tq4::<L>(bytes, 0, out),
        Format::TQ3 => tq3::<L>(bytes, 0, out),
        _ => dequantize(format, bytes, out),
    }
}

#[inline(always)]
fn halves<L: Lanes, const BF16: bool>(bytes: &[u8], out: &mut [f32]) {
    let whole = out.len() / L::COUNT * L::COUNT;
    for at in (0..whole).step_by(L::COUNT) {
        // SAFETY: `bytes` has two for each value.
        unsafe {
            let from = bytes.as_ptr().add(2 * at);
            L::store(out.as_mut_ptr().add(at), if BF16 { L::load_bf16(from) } else { L::load_f16(from) });
        }
    }
    dequantize(if BF16 { Format::BF16 } else { Format::F16 }, &bytes[2 * whole..], &mut out[whole..]);
}

#[inline(always)]
fn q8_0<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.as_chunks::<34>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let codes: &[i8] = bytemuck::cast_slice(&block[2..]);
        scaled::<L>([block[0], block[1]], codes.first_chunk().expect("32 codes"), out);
    }
}

#[inline(always)]
fn q4_0<L: Lanes>(bytes: &[u8], out: &mut [f32]) {
    for (block, out) in bytes.as_chunks::<18>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let scale = L::splat(L::half(u16::from_le_bytes([block[0], block[1]])));
        for at in (0..32).step_by(L::COUNT) {
            // SAFETY: a block has 16 bytes of codes, and 16 is a multiple of any level's lanes.
            unsafe {
                let codes = L::load_i4(block.as_ptr().add(2 + at % 16), at >= 16);
                L::store(out.as_mut_ptr().add(at), L::mul(scale, codes));
            }
        }
    }
}

#[inline(always)]
fn tq4<L: Lanes>(row: &[u8], first: usize, out: &mut [f32]) {
    let scale = L::splat(L::half(u16::from_le_bytes([row[0], row[1]])));
    for (group, out) in row[2 + first / 2..].as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        for at in (0..32).step_by(L::COUNT) {
            // SAFETY: a group has 16 bytes of codes, and 16 is a multiple of any level's lanes.
            unsafe {
                let levels = L::load_tq4(group.as_ptr().add(at % 16), at >= 16);
                L::store(out.as_mut_ptr().add(at), L::mul(scale, levels));
            }
        }
    }
}

#[inline(always)]
fn tq3<L: Lanes>(row: &[u8], first: usize, out: &mut [f32]) {
    let cols = (row.len() - 2) / 3 * 8;
    assert!(first + out.len() <= cols && out.len().is_multiple_of(L::COUNT));
    let scale = L::splat(L::half(u16::from_le_bytes([row[0], row[1]])));
    let (codes, signs) = row.split_at(signs_at(cols));
    for at in (0..out.len()).step_by(L::COUNT) {
        let column = first + at;
        // SAFETY: the row has two bits and a sign for each of its columns, and these are some of them.
        unsafe {
            let (codes, signs) = (codes.as_ptr().add(2 + column / 4), signs.as_ptr().add(column / 8));
            L::store(out.as_mut_ptr().add(at), L::mul(scale, L::load_tq3(codes, signs, column % 8)));
        }
    }
}

#[inline(always)]
fn scaled<L: Lanes>(scale: [u8; 2], codes: &[i8; 32], out: &mut [f32; 32]) {
    let scale = L::splat(L::half(u16::from_le_bytes(scale)));
    for at in (0..32).step_by(L::COUNT) {
        // SAFETY: 32 is a multiple of any level's lanes.
        unsafe { L::store(out.as_mut_ptr().add(at), L::mul(scale, L::load_i8(codes.as_ptr().add(at)))) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::quantize;
    use crate::testing::random;

    #[test]
    fn to_the_bit_as_at_leisure() {
        for level in CpuLevel::available() {
            use Format::*;
            for format in [F32, F16, BF16, Q8_0, Q4_0, Q4_K, TQ4, TQ3] {
                for len in [0, 1, 7, 32, 96, 255, 256, 1024] {
                    let Some(size) = format.row_bytes(len) else { continue };
                    let mut bytes = vec![0; size];
                    quantize(format, &random(len, 9), &mut bytes);
                    let (mut expected, mut ours) = (vec![0.0; len], vec![f32::NAN; len]);
                    dequantize(format, &bytes, &mut expected);
                    unpack(level, format, &bytes, &mut ours);
                    assert_eq!(ours, expected, "{} of {len} at {}", format.name(), level.name());
                    if len > 0 && len.is_multiple_of(64) && format != Q4_K {
                        let mut some = vec![f32::NAN; len / 2];
                        unpack_columns(level, format, &bytes, size, len / 2..len, &mut some);
                        assert_eq!(some, expected[len / 2..], "columns of {}", format.name());
                    }
                }
            }
        }
    }
}
