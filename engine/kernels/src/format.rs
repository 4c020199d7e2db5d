//! Block formats of weights: their names, their sizes, and their exact values.
//!
//! A row of a matrix is a sequence of blocks; a block holds 1, 32 or 256 values. Every quantised format is read in one
//! way: to small integers with a scale and a minimum for each group (`Ints`), and from there to f32. The int8 products
//! read the same integers, so the two paths cannot disagree about a format.

mod block32;
mod codebook;
mod file;
mod fit;
mod float;
mod integers;
mod k_affine;
mod k_symmetric;
mod levels;
#[cfg(test)]
mod tests;

pub use codebook::{IQ4, IQ4_CODES};
pub use file::{is_weighted, quantize_for_file};
pub use integers::Ints;

#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2_K,
    Q3_K,
    Q4_K,
    Q5_K,
    Q6_K,
    IQ4_NL,
    IQ4_XS,
    MXFP4,
    /// Formats of keys and values alone, whose rows are rotated and one block each.
    TQ4,
    TQ3,
}

/// One line per format: (format, name, number in GGUF files, values in a block, bytes of a block).
const TABLE: &[(Format, &str, u32, usize, usize)] = &[
    (Format::F32, "f32", 0, 1, 4),
    (Format::F16, "f16", 1, 1, 2),
    (Format::BF16, "bf16", 30, 1, 2),
    (Format::Q4_0, "q4_0", 2, 32, 18),
    (Format::Q4_1, "q4_1", 3, 32, 20),
    (Format::Q5_0, "q5_0", 6, 32, 22),
    (Format::Q5_1, "q5_1", 7, 32, 24),
    (Format::Q8_0, "q8_0", 8, 32, 34),
    (Format::Q2_K, "q2_k", 10, 256, 84),
    (Format::Q3_K, "q3_k", 11, 256, 110),
    (Format::Q4_K, "q4_k", 12, 256, 144),
    (Format::Q5_K, "q5_k", 13, 256, 176),
    (Format::Q6_K, "q6_k", 14, 256, 210),
    (Format::IQ4_NL, "iq4_nl", 20, 32, 18),
    (Format::IQ4_XS, "iq4_xs", 23, 256, 136),
    (Format::MXFP4, "mxfp4", 39, 32, 17),
    // Their numbers are not GGUF's: no file of a model has them. Sizes are those of the shortest row.
    (Format::TQ4, "tq4", 0x5451_0004, 32, 18),
    (Format::TQ3, "tq3", 0x5451_0003, 32, 14),
];

impl Format {
    pub const ALL: &[Format] = &{
        // formats of model files in the order of the table, which is that of the enum
        use Format::*;
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4]
    };

    pub fn block_len(self) -> usize {
        TABLE[self as usize].3
    }

    pub fn block_bytes(self) -> usize {
        TABLE[self as usize].4
    }

    /// Bytes of a row of `cols` values. `None` for a part of a block, or for more than memory can hold.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        match self {
            Format::TQ4 => return levels::row_bytes(4, cols),
            Format::TQ3 => return levels::row_bytes(3, cols),
            _ if !cols.is_multiple_of(self.block_len()) => return None,
            _ => (),
        }
        (cols / self.block_len()).checked_mul(self.block_bytes())
    }

    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.iter().copied().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    pub fn from_gguf(number: u32) -> Option<Format> {
        Format::from_number(number).filter(|format| Format::ALL.contains(format))
    }

    pub fn to_gguf(self) -> u32 {
        TABLE[self as usize].2
    }

    /// Returns the format of a number that `to_gguf` gave, also one of keys and values alone.
    pub fn from_number(number: u32) -> Option<Format> {
        TABLE.iter().find(|row| row.2 == number).map(|row| row.0)
    }

    /// Returns true for formats of rows that must have been rotated, and are one block each.
    pub fn is_of_rotated_rows(self) -> bool {
        matches!(self, Format::TQ4 | Format::TQ3)
    }

    pub fn bytes_of_256(self) -> usize {
        // bytes of 256 values, the longest block of any format
        self.block_bytes() * (256 / self.block_len())
    }

    pub fn is_quantised(self) -> bool {
        // true for the formats with an integer form (`unpack`)
        !matches!(self, Format::F32 | Format::F16 | Format::BF16 | Format::TQ4 | Format::TQ3)
    }
}

/// Calls `$short` for a format in blocks of 32 values, `$long` for one in blocks of 256, with its unpacker as the last
/// argument. The unpacker is `impl Fn` there and no pointer, so that it is inlined into each inner loop.
macro_rules! with_unpacker {
    ($format:expr, $short:ident, $long:ident, $($argument:expr),*) => {
        match $format {
            Format::F32 | Format::F16 | Format::BF16 | Format::TQ4 | Format::TQ3 => {
                panic!("{} has no integer form", $format.name())
            }
            Format::Q4_0 => $short($($argument,)* block32::unpack_q4_0),
            Format::Q4_1 => $short($($argument,)* block32::unpack_q4_1),
            Format::Q5_0 => $short($($argument,)* block32::unpack_q5_0),
            Format::Q5_1 => $short($($argument,)* block32::unpack_q5_1),
            Format::Q8_0 => $short($($argument,)* block32::unpack_q8_0),
            Format::IQ4_NL => $short($($argument,)* codebook::unpack_iq4_nl),
            Format::MXFP4 => $short($($argument,)* codebook::unpack_mxfp4),
            Format::Q2_K => $long($($argument,)* k_affine::unpack_q2_k),
            Format::Q3_K => $long($($argument,)* k_symmetric::unpack_q3_k),
            Format::Q4_K => $long($($argument,)* k_affine::unpack_q4_k),
            Format::Q5_K => $long($($argument,)* k_affine::unpack_q5_k),
            Format::Q6_K => $long($($argument,)* k_symmetric::unpack_q6_k),
            Format::IQ4_XS => $long($($argument,)* codebook::unpack_iq4_xs),
        }
    };
}
/// Writes the exact values of whole blocks.
///
/// # Panics
/// If `bytes` is not exactly the blocks of `out.len()` values: the caller has checked sizes against `row_bytes`.
pub fn dequantize(format: Format, bytes: &[u8], out: &mut [f32]) {
    check_sizes(format, bytes.len(), out.len());
    match format {
        Format::F32 => float::f32_to_f32(bytes, out),
        Format::F16 => float::f16_to_f32(bytes, out),
        Format::BF16 => float::bf16_to_f32(bytes, out),
        Format::TQ4 => levels::dequantize_tq4(bytes, out),
        Format::TQ3 => levels::dequantize_tq3(bytes, out),
        _ => with_unpacker!(format, dequantize32, dequantize256, bytes, out),
    }
}

/// Encodes values as blocks, with scales that make the squared error small. Values must be finite: others give a block
/// of unspecified content, never a panic.
///
/// # Panics
/// If `bytes` is not exactly the blocks of `values.len()` values, or the format has no encoder here.
pub fn quantize(format: Format, values: &[f32], bytes: &mut [u8]) {
    check_sizes(format, bytes.len(), values.len());
    match format {
        Format::F32 => float::f32_from_f32(values, bytes),
        Format::F16 => float::f16_from_f32(values, bytes),
        Format::BF16 => float::bf16_from_f32(values, bytes),
        Format::TQ4 => levels::quantize_tq4(values, bytes),
        Format::TQ3 => levels::quantize_tq3(values, bytes),
        Format::Q4_0 => quantize_blocks(values, bytes, block32::encode_q4_0),
        Format::Q5_0 => quantize_blocks(values, bytes, block32::encode_q5_0),
        Format::Q5_1 => quantize_blocks(values, bytes, block32::encode_q5_1),
        Format::Q8_0 => quantize_blocks(values, bytes, block32::encode_q8_0),
        Format::Q4_K => quantize_blocks(values, bytes, k_affine::encode_q4_k),
        Format::Q5_K => quantize_blocks(values, bytes, k_affine::encode_q5_k),
        Format::Q6_K => quantize_blocks(values, bytes, k_symmetric::encode_q6_k),
        _ => panic!("{} has no encoder", format.name()),
    }
}

/// Writes the integer form of 256 values: one block of 256, or eight of 32.
///
/// # Panics
/// If `format` is not quantised, or `bytes` is not 256 values of it.
// Inlined, so that it takes on its caller's level.
#[inline(always)]
pub fn unpack(format: Format, bytes: &[u8], out: &mut Ints) {
    check_sizes(format, bytes.len(), 256);
    with_unpacker!(format, unpack32, unpack256, bytes, out)
}

/// Unpacks like `unpack`, also fewer values, as at the end of a row: zeros follow them.
#[inline(always)]
pub fn unpack_padded(format: Format, bytes: &[u8], out: &mut Ints) {
    let whole = format.bytes_of_256();
    if bytes.len() == whole {
        return unpack(format, bytes, out);
    }
    // Zero bytes mean zeros in every format whose rows may end here.
    let mut padded = [0u8; 1024];
    padded[..bytes.len()].copy_from_slice(bytes);
    unpack(format, &padded[..whole], out);
}

fn check_sizes(format: Format, bytes: usize, values: usize) {
    assert_eq!(Some(bytes), format.row_bytes(values), "{values} values of {} are not {bytes} bytes", format.name());
}

fn dequantize32<const BYTES: usize>(
    bytes: &[u8],
    out: &mut [f32],
    unpack: impl Fn(&[u8; BYTES], &mut [i8; 32]) -> (f32, f32),
) {
    let mut q = [0i8; 32];
    for (block, values) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<32>().0) {
        let (scale, min) = unpack(block, &mut q);
        for i in 0..32 {
            values[i] = scale * f32::from(q[i]) + min;
        }
    }
}

fn dequantize256<const BYTES: usize>(bytes: &[u8], out: &mut [f32], unpack: impl Fn(&[u8; BYTES], &mut Ints)) {
    let mut ints = Ints::default();
    for (block, values) in bytes.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<256>().0) {
        unpack(block, &mut ints);
        ints.to_values(values);
    }
}

fn quantize_blocks<const VALUES: usize, const BYTES: usize>(
    values: &[f32],
    bytes: &mut [u8],
    encode: impl Fn(&[f32; VALUES], &mut [u8; BYTES]),
) {
    for (values, block) in values.as_chunks::<VALUES>().0.iter().zip(bytes.as_chunks_mut::<BYTES>().0) {
        encode(values, block);
    }
}

#[inline(always)]
fn unpack32<const BYTES: usize>(
    bytes: &[u8],
    out: &mut Ints,
    unpack: impl Fn(&[u8; BYTES], &mut [i8; 32]) -> (f32, f32),
) {
    for (i, (block, q)) in bytes.as_chunks::<BYTES>().0.iter().zip(out.q.as_chunks_mut::<32>().0).enumerate() {
        let (scale, min) = unpack(block, q);
        out.scale[2 * i..2 * i + 2].fill(scale);
        out.min[2 * i..2 * i + 2].fill(min);
    }
}

#[inline(always)]
fn unpack256<const BYTES: usize>(bytes: &[u8], out: &mut Ints, unpack: impl Fn(&[u8; BYTES], &mut Ints)) {
    for block in bytes.as_chunks::<BYTES>().0 {
        unpack(block, out);
    }
}

fn half_at(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// Writes `value` as a half at the start of `bytes` and returns the rounded value. Too large values become the largest
/// half: an infinite scale would turn the whole block into infinities and NaNs.
fn put_half(bytes: &mut [u8], value: f32) -> f32 {
    let kept = half::f16::from_f32(value.clamp(-65504.0, 65504.0));
    bytes[..2].copy_from_slice(&kept.to_le_bytes());
    kept.to_f32()
}
