//! The integer product with AVX-512 and VNNI.
//!
//! The instruction multiplies unsigned by signed bytes, so weights become unsigned by an offset that the minimum takes
//! back: value = scale · u + (min − scale · offset). Few rows of activations go row by row over the weights. Many go
//! over panels: sixteen weight rows are unpacked together, four values of each side by side, so that a sum is a lane and
//! never has to be added across.

use std::arch::x86_64::*;

use super::Weights;
use super::activations::{Activations, BLOCK};
use crate::format::Format;
use crate::integers::{Ints, unpack};

/// Weight rows of a panel: the lanes of a register.
pub(super) const PANEL: usize = 16;
/// From so many rows of activations on the panel is worth its transposition.
pub(super) const WORTH_A_PANEL: usize = 6;

/// 256 weights in registers: value i is scale[i / 16] · q[i] + min[i / 16].
#[derive(Clone, Copy)]
struct Unsigned {
    q: [__m512i; 4],
    scale: __m512,
    min: __m512,
}

/// Weight rows `first..first + out_rows` times all rows of `x`; `out`: [x.rows(), out_rows], zeros before.
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ, VL and VNNI.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
pub(super) unsafe fn rows(x: &Activations, w: Weights, first: usize, out_rows: usize, out: &mut [f32]) {
    match w.format {
        Format::Q4_K => of_format::<{ code::Q4_K }>(x, w, first, out_rows, out),
        Format::Q5_K => of_format::<{ code::Q5_K }>(x, w, first, out_rows, out),
        Format::Q6_K => of_format::<{ code::Q6_K }>(x, w, first, out_rows, out),
        Format::Q8_0 => of_format::<{ code::Q8_0 }>(x, w, first, out_rows, out),
        _ => of_format::<{ code::OTHER }>(x, w, first, out_rows, out),
    }
}

/// Formats as constants: code for one format alone is small enough to be inlined, and a block of weights that passed
/// through memory on its way from unpacking would cost more than its use.
mod code {
    pub const Q4_K: u8 = 0;
    pub const Q5_K: u8 = 1;
    pub const Q6_K: u8 = 2;
    pub const Q8_0: u8 = 3;
    pub const OTHER: u8 = 4;
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn of_format<const CODE: u8>(x: &Activations, w: Weights, first: usize, out_rows: usize, out: &mut [f32]) {
    if out_rows == PANEL && x.rows() >= WORTH_A_PANEL {
        panel::<CODE>(x, w, first, out);
    } else {
        row_by_row::<CODE>(x, w, first, out_rows, out);
    }
}

/// The bytes of one row, block by block; a last block that is not whole is filled up with zero bytes, which stand for
/// zeros, as the activations beyond the row's end do.
struct RowBlocks<'a> {
    bytes: &'a [u8],
    block_bytes: usize,
}

impl<'a> RowBlocks<'a> {
    fn new(w: &Weights<'a>, row: usize) -> RowBlocks<'a> {
        let size = w.row_bytes();
        let block_bytes = w.format.block_bytes() * (BLOCK / w.format.block_len());
        RowBlocks { bytes: &w.bytes[row * size..][..size], block_bytes }
    }

    fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.block_bytes)
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    #[inline]
    fn unpack<const CODE: u8>(&self, format: Format, block: usize) -> Unsigned {
        let start = block * self.block_bytes;
        match self.bytes.get(start..start + self.block_bytes) {
            Some(bytes) => unpack_unsigned::<CODE>(format, bytes),
            None => {
                let whole = super::integer::padded(&self.bytes[start..]);
                unpack_unsigned::<CODE>(format, &whole[..self.block_bytes])
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn row_by_row<const CODE: u8>(x: &Activations, w: Weights, first: usize, out_rows: usize, out: &mut [f32]) {
    for start in (0..x.rows()).step_by(4) {
        match x.rows() - start {
            1 => few_rows::<1, CODE>(x, start, w, first, out_rows, out),
            2 => few_rows::<2, CODE>(x, start, w, first, out_rows, out),
            3 => few_rows::<3, CODE>(x, start, w, first, out_rows, out),
            _ => few_rows::<4, CODE>(x, start, w, first, out_rows, out),
        }
    }
}

/// `M` rows of activations from `m` on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn few_rows<const M: usize, const CODE: u8>(
    x: &Activations,
    m: usize,
    w: Weights,
    first: usize,
    out_rows: usize,
    out: &mut [f32],
) {
    // Lanes 4i to 4i + 3 of a quarter's sums belong to group i: their factors are spread accordingly.
    let lane = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    let lanes = [0, 4, 8, 12].map(|start| _mm512_add_epi32(lane, _mm512_set1_epi32(start)));
    let rows: [(&[i8], &[f32], &[f32]); M] = std::array::from_fn(|i| x.rounded_row(m + i));
    for row in 0..out_rows {
        let blocks = RowBlocks::new(&w, first + row);
        let mut totals = [_mm512_setzero_ps(); M];
        for block in 0..blocks.count() {
            let weights = blocks.unpack::<CODE>(w.format, block);
            for i in 0..M {
                let (q, scales, sums) = rows[i];
                let q = &q[block * BLOCK..][..BLOCK];
                let (scales, sums) = (&scales[block * 16..][..16], &sums[block * 16..][..16]);
                // SAFETY: the slices hold 16 values each.
                let (scales, sums) = unsafe { (_mm512_loadu_ps(scales.as_ptr()), _mm512_loadu_ps(sums.as_ptr())) };
                let factors = _mm512_mul_ps(weights.scale, scales);
                let mut total = _mm512_fmadd_ps(weights.min, sums, totals[i]);
                for quarter in 0..4 {
                    // SAFETY: the slice holds four quarters of 64 bytes.
                    let s = unsafe { _mm512_loadu_si512(q.as_ptr().add(quarter * 64).cast()) };
                    let dots = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_setzero_si512(), weights.q[quarter], s));
                    total = _mm512_fmadd_ps(dots, _mm512_permutexvar_ps(lanes[quarter], factors), total);
                }
                totals[i] = total;
            }
        }
        for i in 0..M {
            out[(m + i) * out_rows + row] = _mm512_reduce_add_ps(totals[i]);
        }
    }
}

/// Sixteen rows of 256 weights, transposed.
#[repr(C, align(64))]
struct Panel {
    /// [value / 4][row][value % 4]
    q: [[[u8; 4]; PANEL]; BLOCK / 4],
    /// [group][row]
    scale: [[f32; PANEL]; 16],
    min: [[f32; PANEL]; 16],
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn panel<const CODE: u8>(x: &Activations, w: Weights, first: usize, out: &mut [f32]) {
    let mut panel = Panel { q: [[[0; 4]; PANEL]; BLOCK / 4], scale: [[0.0; PANEL]; 16], min: [[0.0; PANEL]; 16] };
    let blocks = RowBlocks::new(&w, first).count();
    for block in 0..blocks {
        for row in 0..PANEL {
            let weights = RowBlocks::new(&w, first + row).unpack::<CODE>(w.format, block);
            for (quarter, q) in weights.q.into_iter().enumerate() {
                let fours: [[u8; 4]; 16] = bytemuck::cast(bytes_of(q));
                for (to, from) in panel.q[quarter * 16..][..16].iter_mut().zip(fours) {
                    to[row] = from;
                }
            }
            let (scale, min) = (floats_of(weights.scale), floats_of(weights.min));
            for group in 0..16 {
                panel.scale[group][row] = scale[group];
                panel.min[group][row] = min[group];
            }
        }
        let mut m = 0;
        while m + 4 <= x.rows() {
            block_of_rows::<4>(&panel, x, m, block, out);
            m += 4;
        }
        while m < x.rows() {
            block_of_rows::<1>(&panel, x, m, block, out);
            m += 1;
        }
    }
}

/// One block of the panel times `M` rows of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn block_of_rows<const M: usize>(panel: &Panel, x: &Activations, m: usize, block: usize, out: &mut [f32]) {
    let rows: [(&[i8], &[f32], &[f32]); M] = std::array::from_fn(|i| {
        let (q, scales, sums) = x.rounded_row(m + i);
        (&q[block * BLOCK..][..BLOCK], &scales[block * 16..][..16], &sums[block * 16..][..16])
    });
    // SAFETY: `out` holds PANEL values for each row of activations.
    let mut totals: [__m512; M] =
        std::array::from_fn(|i| unsafe { _mm512_loadu_ps(out[(m + i) * PANEL..][..PANEL].as_ptr()) });
    for group in 0..16 {
        // SAFETY: each array holds 16 lanes, aligned.
        let (scale, min) =
            unsafe { (_mm512_load_ps(panel.scale[group].as_ptr()), _mm512_load_ps(panel.min[group].as_ptr())) };
        let mut dots = [_mm512_setzero_si512(); M];
        for four in group * 4..group * 4 + 4 {
            // SAFETY: 64 aligned bytes.
            let u = unsafe { _mm512_load_si512(panel.q[four].as_ptr().cast()) };
            for i in 0..M {
                // SAFETY: the row holds 256 bytes, `four` counts fours of them.
                let s = unsafe { rows[i].0.as_ptr().add(four * 4).cast::<i32>().read_unaligned() };
                dots[i] = _mm512_dpbusd_epi32(dots[i], u, _mm512_set1_epi32(s));
            }
        }
        for i in 0..M {
            let factor = _mm512_mul_ps(scale, _mm512_set1_ps(rows[i].1[group]));
            totals[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), factor, totals[i]);
            totals[i] = _mm512_fmadd_ps(min, _mm512_set1_ps(rows[i].2[group]), totals[i]);
        }
    }
    for i in 0..M {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(out[(m + i) * PANEL..][..PANEL].as_mut_ptr(), totals[i]) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn unpack_unsigned<const CODE: u8>(format: Format, bytes: &[u8]) -> Unsigned {
    match CODE {
        code::Q4_K => {
            let (scale, min) = scales_and_mins(bytes);
            let q = [0, 1, 2, 3].map(|pair| {
                let packed = load32(&bytes[16 + 32 * pair..]);
                join(_mm256_and_si256(packed, _mm256_set1_epi8(15)), high_nibbles(packed))
            });
            Unsigned { q, scale, min }
        }
        code::Q5_K => {
            let (scale, min) = scales_and_mins(bytes);
            let fifths = load32(&bytes[16..]);
            let q = [0, 1, 2, 3].map(|pair: usize| {
                let packed = load32(&bytes[48 + 32 * pair..]);
                let low = _mm256_and_si256(packed, _mm256_set1_epi8(15));
                let fifth = |bit| bits(fifths, bit, 1);
                let low = _mm256_or_si256(low, fifth(2 * pair as i32));
                join(low, _mm256_or_si256(high_nibbles(packed), fifth(2 * pair as i32 + 1)))
            });
            Unsigned { q, scale, min }
        }
        code::Q6_K => {
            let half = |half: usize| {
                let packed = join(load32(&bytes[64 * half..]), load32(&bytes[64 * half + 32..]));
                let high = load32(&bytes[128 + 32 * half..]);
                let nibble = _mm512_set1_epi8(15);
                let low = _mm512_and_si512(packed, nibble);
                let up = _mm512_and_si512(_mm512_srli_epi16::<4>(packed), nibble);
                let twos = |bit| join(bits(high, bit, 3), bits(high, bit + 2, 3));
                [_mm512_or_si512(low, twos(0)), _mm512_or_si512(up, twos(4))]
            };
            let ([a, b], [c, d]) = (half(0), half(1));
            // SAFETY: 16 bytes of scales.
            let scales = unsafe { _mm_loadu_si128(bytes[192..208].as_ptr().cast()) };
            let factor = _mm512_set1_ps(half_at(&bytes[208..]));
            let scale = _mm512_mul_ps(factor, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)));
            Unsigned { q: [a, b, c, d], scale, min: _mm512_mul_ps(scale, _mm512_set1_ps(-32.0)) }
        }
        code::Q8_0 => {
            let block = |i: usize| &bytes[34 * i..][..34];
            let offset = _mm512_set1_epi8(-128);
            let q = [0, 1, 2, 3].map(|pair| {
                let signed = join(load32(&block(2 * pair)[2..]), load32(&block(2 * pair + 1)[2..]));
                _mm512_xor_si512(signed, offset)
            });
            let half = |i: usize| i16::from_le_bytes([block(i)[0], block(i)[1]]);
            let halves = _mm_set_epi16(half(7), half(6), half(5), half(4), half(3), half(2), half(1), half(0));
            let twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
            let scale = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_cvtph_ps(halves)));
            Unsigned { q, scale, min: _mm512_mul_ps(scale, _mm512_set1_ps(-128.0)) }
        }
        _ => {
            let mut ints = Ints::default();
            unpack(format, bytes, &mut ints);
            // SAFETY: 256 bytes, and 16 values each.
            unsafe {
                let quarter = |i: usize| _mm512_loadu_si512(ints.q.as_ptr().add(64 * i).cast());
                let q = [0, 1, 2, 3].map(|i| _mm512_xor_si512(quarter(i), _mm512_set1_epi8(-128)));
                let (scale, min) = (_mm512_loadu_ps(ints.scale.as_ptr()), _mm512_loadu_ps(ints.min.as_ptr()));
                Unsigned { q, scale, min: _mm512_fmadd_ps(scale, _mm512_set1_ps(-128.0), min) }
            }
        }
    }
}

/// [d][dmin][six-bit scales and mins of eight groups of 32: 12 bytes]: each for two groups of 16.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn scales_and_mins(bytes: &[u8]) -> (__m512, __m512) {
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (a, b, c) = (word(4), word(8), word(12));
    let scales = u64::from(a & 0x3f3f_3f3f) | u64::from((c & 0x0f0f_0f0f) | (a >> 6 & 0x0303_0303) << 4) << 32;
    let mins = u64::from(b & 0x3f3f_3f3f) | u64::from((c >> 4 & 0x0f0f_0f0f) | (b >> 6 & 0x0303_0303) << 4) << 32;
    let twice = |bytes: u64| {
        let bytes = _mm_cvtsi64_si128(bytes.cast_signed());
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes)))
    };
    let (d, dmin) = (_mm512_set1_ps(half_at(bytes)), _mm512_set1_ps(-half_at(&bytes[2..])));
    (_mm512_mul_ps(d, twice(scales)), _mm512_mul_ps(dmin, twice(mins)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn half_at(bytes: &[u8]) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(u16::from_le_bytes([bytes[0], bytes[1]])))))
}

/// `mask` of the bits from `first` on of each byte, moved to bit 4.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn bits(bytes: __m256i, first: i32, mask: i8) -> __m256i {
    let shifted = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(first));
    _mm256_slli_epi16::<4>(_mm256_and_si256(shifted, _mm256_set1_epi8(mask)))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn high_nibbles(packed: __m256i) -> __m256i {
    _mm256_and_si256(_mm256_srli_epi16::<4>(packed), _mm256_set1_epi8(15))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn join(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn load32(bytes: &[u8]) -> __m256i {
    // SAFETY: the slice is checked to hold 32 bytes.
    unsafe { _mm256_loadu_si256(bytes[..32].as_ptr().cast()) }
}

fn bytes_of(register: __m512i) -> [u8; 64] {
    // SAFETY: both are 64 bytes without padding.
    unsafe { std::mem::transmute(register) }
}

fn floats_of(register: __m512) -> [f32; 16] {
    // SAFETY: as above.
    unsafe { std::mem::transmute(register) }
}
