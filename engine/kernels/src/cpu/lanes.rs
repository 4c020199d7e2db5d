//! One body for every level: `at_level!` compiles it once for each, with the registers of that level as its type `L`.
//!
//! Most bodies are plain loops, which the compiler vectorises by itself; they ask `L` only whether `mul_add` is one
//! instruction. The few loops that the compiler does not see through use registers by hand. All functions here are
//! inlined into such bodies and must not be called elsewhere. Registers go through no closure and no generic library
//! function (`array::map`, iterators): where the compiler does not inline one, it has no wide registers and passes them
//! through memory, and a product takes twice the time.

use crate::levels::{LEVELS_3, LEVELS_4};

const LEAST_EXP: f32 = -87.3; // argument below which eˣ counts as 0
const ROUND: f32 = 12_582_912.0; // adding 1.5 · 2²³ leaves a rounded number in the low bits
/// ln 2 in two parts, so that subtracting it keeps all digits.
const LN_2_PARTS: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
const EXP_FACTORS: [f32; 7] = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];

/// Registers and arithmetic of one level.
///
/// # Safety
/// Memory that a function loads from or stores to has room for `COUNT` elements, for each row in `turn`.
pub(crate) trait Lanes {
    type V: Copy; // a register of `COUNT` numbers
    const COUNT: usize;
    const WIDE: usize; // registers of one row in a product's block, besides those of its other rows
    const FMA: bool; // true if `mul_add` is one instruction; elsewhere it is a slow call

    fn splat(x: f32) -> Self::V;
    unsafe fn load(from: *const f32) -> Self::V;
    unsafe fn store(to: *mut f32, v: Self::V);
    unsafe fn load_f16(from: *const u8) -> Self::V;
    unsafe fn load_bf16(from: *const u8) -> Self::V; // upper halves of f32
    unsafe fn load_i8(from: *const i8) -> Self::V;
    unsafe fn load_i4(from: *const u8, upper: bool) -> Self::V; // the lower or the upper halves of bytes, less 8
    unsafe fn load_tq4(from: *const u8, upper: bool) -> Self::V; // levels of the lower or the upper halves of bytes
    /// Returns levels of two bits each, with signs from this bit of a byte on: 0 where there are more than four lanes.
    unsafe fn load_tq3(codes: *const u8, signs: *const u8, bit: usize) -> Self::V;
    /// Transposes a square of `COUNT` rows, `from_stride` apart.
    unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);
    fn half(bits: u16) -> f32;
    fn add(a: Self::V, b: Self::V) -> Self::V;
    fn mul(a: Self::V, b: Self::V) -> Self::V;
    fn madd(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn max(a: Self::V, b: Self::V) -> Self::V; // returns the larger one; neither is NaN
    fn power(shifted: Self::V) -> Self::V; // computes 2ⁿ from n + 1.5 · 2²³
    fn where_more(a: Self::V, b: Self::V, v: Self::V) -> Self::V; // returns v where a > b, and zero elsewhere
    fn sums(four: [Self::V; 4]) -> [f32; 4];

    /// Computes a · b + c of single numbers, in the form that is fast at this level.
    #[inline(always)]
    fn madd_one(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }

    /// Computes eˣ of a single number, in a form that the compiler vectorises, to 2 units in the last place; 0 below
    /// -87, and no more than e^88.3.
    #[inline(always)]
    fn exp_one(x: f32) -> f32 {
        // eˣ = 2ⁿ · eʳ with |r| ≤ ln 2 / 2.
        let x = x.clamp(LEAST_EXP, 88.3);
        let shifted = Self::madd_one(x, std::f32::consts::LOG2_E, ROUND);
        let n = shifted - ROUND;
        let r = Self::madd_one(n, -LN_2_PARTS[0], x);
        let r = Self::madd_one(n, -LN_2_PARTS[1], r);
        let mut sum = EXP_FACTORS[0];
        for factor in &EXP_FACTORS[1..] {
            sum = Self::madd_one(sum, r, *factor);
        }
        let power = f32::from_bits((shifted.to_bits().wrapping_add(127)) << 23);
        if x <= LEAST_EXP { 0.0 } else { sum * power }
    }

    #[inline(always)]
    fn silu_one(x: f32) -> f32 {
        x / (1.0 + Self::exp_one(-x))
    }

    /// Computes eˣ as `exp_one` does, for arguments up to 88.
    #[inline(always)]
    fn exp(x: Self::V) -> Self::V {
        let least = Self::splat(LEAST_EXP);
        let clamped = Self::max(x, least);
        let shifted = Self::madd(clamped, Self::splat(std::f32::consts::LOG2_E), Self::splat(ROUND));
        let n = Self::add(shifted, Self::splat(-ROUND));
        let r = Self::madd(n, Self::splat(-LN_2_PARTS[0]), clamped);
        let r = Self::madd(n, Self::splat(-LN_2_PARTS[1]), r);
        let mut sum = Self::splat(EXP_FACTORS[0]);
        for factor in &EXP_FACTORS[1..] {
            sum = Self::madd(sum, r, Self::splat(*factor));
        }
        Self::where_more(x, least, Self::mul(sum, Self::power(shifted)))
    }

    #[inline(always)]
    fn sum(v: Self::V) -> f32 {
        let mut lanes = [0.0f32; 16];
        // SAFETY: no level has more than sixteen lanes.
        unsafe { Self::store(lanes.as_mut_ptr(), v) };
        let lanes = &lanes[..Self::COUNT];
        let mut sums = [0.0f32; 4];
        for four in lanes.as_chunks::<4>().0 {
            for i in 0..4 {
                sums[i] += four[i];
            }
        }
        (sums[0] + sums[2]) + (sums[1] + sums[3])
    }
}

pub(crate) struct Portable;

impl Lanes for Portable {
    type V = [f32; 4];
    const COUNT: usize = 4;
    const WIDE: usize = 2;
    const FMA: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> [f32; 4] {
        [x; 4]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; 4]) {
        // SAFETY: the caller's promise.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[[u8; 2]; 4]>().read_unaligned() }.map(|half| half::f16::from_le_bytes(half).to_f32())
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> [f32; 4] {
        // SAFETY: the caller's promise.
        let halves = unsafe { from.cast::<[[u8; 2]; 4]>().read_unaligned() };
        halves.map(|half| f32::from_bits(u32::from(u16::from_le_bytes(half)) << 16))
    }
    #[inline(always)]
    unsafe fn load_i8(from: *const i8) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { from.cast::<[i8; 4]>().read_unaligned() }.map(f32::from)
    }
    #[inline(always)]
    unsafe fn load_i4(from: *const u8, upper: bool) -> [f32; 4] {
        // SAFETY: the caller's promise.
        let bytes = unsafe { from.cast::<[u8; 4]>().read_unaligned() };
        bytes.map(|byte| f32::from(if upper { byte >> 4 } else { byte & 15 }) - 8.0)
    }
    #[inline(always)]
    unsafe fn load_tq4(from: *const u8, upper: bool) -> [f32; 4] {
        // SAFETY: the caller's promise.
        let bytes = unsafe { from.cast::<[u8; 4]>().read_unaligned() };
        bytes.map(|byte| {
            let code = if upper { byte >> 4 } else { byte & 15 };
            let level = LEVELS_4[usize::from(code & 7)];
            if code > 7 { -level } else { level }
        })
    }
    #[inline(always)]
    unsafe fn load_tq3(codes: *const u8, signs: *const u8, bit: usize) -> [f32; 4] {
        // SAFETY: the caller's promise.
        let (codes, signs) = unsafe { (*codes, *signs >> bit) };
        std::array::from_fn(|i| {
            let level = LEVELS_3[usize::from(codes >> (2 * i) & 3)];
            if signs >> i & 1 == 1 { -level } else { level }
        })
    }
    #[inline(always)]
    unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..4 {
            for column in 0..4 {
                // SAFETY: the caller's promise.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * from_stride + column) };
            }
        }
    }
    #[inline(always)]
    fn half(bits: u16) -> f32 {
        half::f16::from_bits(bits).to_f32()
    }
    #[inline(always)]
    fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn mul(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn madd(a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn power(shifted: [f32; 4]) -> [f32; 4] {
        shifted.map(|shifted| f32::from_bits(shifted.to_bits().wrapping_add(127) << 23))
    }
    #[inline(always)]
    fn where_more(a: [f32; 4], b: [f32; 4], v: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|i| if a[i] > b[i] { v[i] } else { 0.0 })
    }
    #[inline(always)]
    fn sums(four: [[f32; 4]; 4]) -> [f32; 4] {
        four.map(|[a, b, c, d]| (a + b) + (c + d))
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! x86 {
    ($name:ident: $v:ty, $count:literal lanes, $wide:literal wide, $splat:ident, $load:ident, $store:ident, $add:ident,
     $mul:ident, $madd:ident, $max:ident, power: $power:expr, where_more: $where_more:expr, f16: $f16:expr, bf16: $bf16:expr, i8: $i8:expr, i4: $i4:expr, tq4: $tq4:ident, tq3: $tq3:ident, turn: $turn:expr, sums: $sums:expr) => {
        pub(crate) struct $name;

        impl Lanes for $name {
            type V = $v;
            const COUNT: usize = $count;
            const WIDE: usize = $wide;
            const FMA: bool = true;

            #[inline(always)]
            fn splat(x: f32) -> $v {
                // SAFETY: only bodies of this level come here, so the processor has the instruction; so below.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut f32, v: $v) {
                // SAFETY: the caller's promise.
                unsafe { $store(to, v) }
            }
            #[inline(always)]
            unsafe fn load_f16(from: *const u8) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $f16(from) }
            }
            #[inline(always)]
            unsafe fn load_bf16(from: *const u8) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $bf16(from) }
            }
            #[inline(always)]
            unsafe fn load_i8(from: *const i8) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $i8(from) }
            }
            #[inline(always)]
            unsafe fn load_i4(from: *const u8, upper: bool) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $i4(from, upper) }
            }
            #[inline(always)]
            unsafe fn load_tq4(from: *const u8, upper: bool) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $tq4(from, upper) }
            }
            #[inline(always)]
            unsafe fn load_tq3(codes: *const u8, signs: *const u8, _: usize) -> $v {
                // SAFETY: the caller's promise.
                unsafe { $tq3(codes, signs) }
            }
            #[inline(always)]
            unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
                // SAFETY: the caller's promise.
                unsafe {
                    let mut rows = [$splat(0.0); $count];
                    for row in 0..$count {
                        rows[row] = $load(from.add(row * from_stride));
                    }
                    let columns = $turn(rows);
                    for column in 0..$count {
                        $store(to.add(column * to_stride), columns[column]);
                    }
                }
            }
            #[inline(always)]
            fn half(bits: u16) -> f32 {
                // SAFETY: see `splat`.
                unsafe { _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(i32::from(bits)))) }
            }
            #[inline(always)]
            fn add(a: $v, b: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $add(a, b) }
            }
            #[inline(always)]
            fn mul(a: $v, b: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $mul(a, b) }
            }
            #[inline(always)]
            fn madd(a: $v, b: $v, c: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $madd(a, b, c) }
            }
            #[inline(always)]
            fn max(a: $v, b: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $max(a, b) }
            }
            #[inline(always)]
            fn power(shifted: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $power(shifted) }
            }
            #[inline(always)]
            fn where_more(a: $v, b: $v, v: $v) -> $v {
                // SAFETY: see `splat`.
                unsafe { $where_more(a, b, v) }
            }
            #[inline(always)]
            fn sums(four: [$v; 4]) -> [f32; 4] {
                let mut sums = [0.0; 4];
                // SAFETY: see `splat`.
                unsafe { _mm_storeu_ps(sums.as_mut_ptr(), $sums(four)) };
                sums
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{LEVELS_3, LEVELS_4, Lanes};
    use std::arch::x86_64::*;

    #[inline(always)]
    fn halves_of(bytes: __m128i, upper: bool) -> __m128i {
        // SAFETY: every x86_64 has these instructions.
        unsafe {
            let halves = if upper { _mm_srli_epi16::<4>(bytes) } else { bytes };
            _mm_sub_epi8(_mm_and_si128(halves, _mm_set1_epi8(15)), _mm_set1_epi8(8))
        }
    }

    /// # Safety
    /// Only bodies of this level call it, with memory for a register; so below.
    #[inline(always)]
    unsafe fn levels_4_256(from: *const u8, upper: bool) -> __m256 {
        // SAFETY: the caller's promise; so below.
        unsafe {
            let bytes = _mm_loadl_epi64(from.cast());
            let codes = _mm256_cvtepu8_epi32(if upper { _mm_srli_epi16::<4>(bytes) } else { bytes });
            // The look-up takes three bits, and the fourth becomes the sign.
            let levels = _mm256_permutevar8x32_ps(_mm256_loadu_ps(LEVELS_4.as_ptr()), codes);
            let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(codes), _mm256_set1_epi32(i32::MIN));
            _mm256_xor_ps(levels, _mm256_castsi256_ps(sign))
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn levels_3_256(codes: *const u8, signs: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let codes = _mm256_set1_epi32(i32::from(codes.cast::<u16>().read_unaligned()));
            let codes = _mm256_srlv_epi32(codes, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14));
            let levels = _mm256_broadcast_ps(&_mm_loadu_ps(LEVELS_3.as_ptr()));
            let levels = _mm256_permutevar_ps(levels, codes);
            let signs = _mm256_set1_epi32(i32::from(*signs));
            let sign = _mm256_sllv_epi32(signs, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
            let sign = _mm256_and_si256(sign, _mm256_set1_epi32(i32::MIN));
            _mm256_xor_ps(levels, _mm256_castsi256_ps(sign))
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn levels_4_512(from: *const u8, upper: bool) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let bytes = _mm_loadu_si128(from.cast());
            let codes = _mm512_cvtepu8_epi32(if upper { _mm_srli_epi16::<4>(bytes) } else { bytes });
            // The look-up takes four bits.
            let half = _mm256_loadu_ps(LEVELS_4.as_ptr());
            let minus = _mm256_xor_ps(half, _mm256_set1_ps(-0.0));
            let levels = _mm512_insertf32x8::<1>(_mm512_castps256_ps512(half), minus);
            _mm512_permutexvar_ps(codes, levels)
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn levels_3_512(codes: *const u8, signs: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let codes = _mm512_set1_epi32(codes.cast::<i32>().read_unaligned());
            let steps = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let levels = _mm512_broadcast_f32x4(_mm_loadu_ps(LEVELS_3.as_ptr()));
            let levels = _mm512_permutevar_ps(levels, _mm512_srlv_epi32(codes, steps));
            let signs = signs.cast::<u16>().read_unaligned();
            _mm512_mask_xor_ps(levels, signs, levels, _mm512_set1_ps(-0.0))
        }
    }

    /// # Safety
    /// Only bodies of this level call it; so below. A closure of this size is not always inlined.
    #[inline(always)]
    unsafe fn turn_256(mut rows: [__m256; 8]) -> [__m256; 8] {
        // SAFETY: the caller's promise; so below.
        unsafe {
            // Pairs of rows, then fours: `rows[4 * i + c]` has columns c and c + 4 of the rows 4 * i to 4 * i + 3.
            for i in [0, 2, 4, 6] {
                (rows[i], rows[i + 1]) =
                    (_mm256_unpacklo_ps(rows[i], rows[i + 1]), _mm256_unpackhi_ps(rows[i], rows[i + 1]));
            }
            for i in [0, 4] {
                let (a, b) = (_mm256_castps_pd(rows[i]), _mm256_castps_pd(rows[i + 1]));
                let (c, d) = (_mm256_castps_pd(rows[i + 2]), _mm256_castps_pd(rows[i + 3]));
                let fours = [
                    _mm256_unpacklo_pd(a, c),
                    _mm256_unpackhi_pd(a, c),
                    _mm256_unpacklo_pd(b, d),
                    _mm256_unpackhi_pd(b, d),
                ];
                for row in 0..4 {
                    rows[i + row] = _mm256_castpd_ps(fours[row]);
                }
            }
            for c in 0..4 {
                let (a, b) = (rows[c], rows[4 + c]);
                (rows[c], rows[4 + c]) = (_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
            }
            rows
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn turn_512(mut rows: [__m512; 16]) -> [__m512; 16] {
        // SAFETY: see above.
        unsafe {
            // As above, with columns c, c + 4, c + 8 and c + 12.
            for i in [0, 2, 4, 6, 8, 10, 12, 14] {
                (rows[i], rows[i + 1]) =
                    (_mm512_unpacklo_ps(rows[i], rows[i + 1]), _mm512_unpackhi_ps(rows[i], rows[i + 1]));
            }
            for i in [0, 4, 8, 12] {
                let (a, b) = (_mm512_castps_pd(rows[i]), _mm512_castps_pd(rows[i + 1]));
                let (c, d) = (_mm512_castps_pd(rows[i + 2]), _mm512_castps_pd(rows[i + 3]));
                let fours = [
                    _mm512_unpacklo_pd(a, c),
                    _mm512_unpackhi_pd(a, c),
                    _mm512_unpacklo_pd(b, d),
                    _mm512_unpackhi_pd(b, d),
                ];
                for row in 0..4 {
                    rows[i + row] = _mm512_castpd_ps(fours[row]);
                }
            }
            for c in 0..4 {
                let [a, b, d, e] = [rows[c], rows[4 + c], rows[8 + c], rows[12 + c]];
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (even_below, odd_below) = (_mm512_shuffle_f32x4::<0x88>(d, e), _mm512_shuffle_f32x4::<0xdd>(d, e));
                rows[c] = _mm512_shuffle_f32x4::<0x88>(even, even_below);
                rows[4 + c] = _mm512_shuffle_f32x4::<0x88>(odd, odd_below);
                rows[8 + c] = _mm512_shuffle_f32x4::<0xdd>(even, even_below);
                rows[12 + c] = _mm512_shuffle_f32x4::<0xdd>(odd, odd_below);
            }
            rows
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn sums_256([a, b, c, d]: [__m256; 4]) -> __m128 {
        // SAFETY: see above.
        unsafe {
            // Each four lanes get the sums of those of a, b, c and d; then the fours are added.
            let ab = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b)));
            let cd = _mm256_castps_pd(_mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d)));
            let (low, high) = (_mm256_unpacklo_pd(ab, cd), _mm256_unpackhi_pd(ab, cd));
            let fours = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
            _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours))
        }
    }

    /// # Safety
    /// The same as above.
    #[inline(always)]
    unsafe fn sums_512([a, b, c, d]: [__m512; 4]) -> __m128 {
        // SAFETY: see above.
        unsafe {
            // As above.
            let ab = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
            let cd = _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d)));
            let (low, high) = (_mm512_unpacklo_pd(ab, cd), _mm512_unpackhi_pd(ab, cd));
            let fours = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
            let fours = _mm256_add_ps(_mm512_castps512_ps256(fours), _mm512_extractf32x8_ps::<1>(fours));
            _mm_add_ps(_mm256_castps256_ps128(fours), _mm256_extractf128_ps::<1>(fours))
        }
    }

    x86!(Avx2: __m256, 8 lanes, 2 wide, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps,
    _mm256_mul_ps, _mm256_fmadd_ps, _mm256_max_ps,
    power: |shifted| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127)))),
    where_more: |a, b, v| _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b), v),
    f16: |from: *const u8| _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
    bf16: |from: *const u8| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast())))),
    i8: |from: *const i8| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))),
    i4: |from: *const u8, upper| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(halves_of(_mm_loadl_epi64(from.cast()), upper))),
    tq4: levels_4_256, tq3: levels_3_256,
    turn: turn_256, sums: sums_256);
    x86!(Avx512: __m512, 16 lanes, 4 wide, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps,
    _mm512_mul_ps, _mm512_fmadd_ps, _mm512_max_ps,
    power: |shifted| _mm512_castsi512_ps(_mm512_slli_epi32::<23>(_mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127)))),
    where_more: |a, b, v| _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), v),
    f16: |from: *const u8| _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
    bf16: |from: *const u8| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast())))),
    i8: |from: *const i8| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))),
    i4: |from: *const u8, upper| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(halves_of(_mm_loadu_si128(from.cast()), upper))),
    tq4: levels_4_512, tq3: levels_3_512,
    turn: turn_512, sums: sums_512);
}

/// Prefetches memory that is read soon. Any address is allowed: the processor ignores a bad one.
#[inline(always)]
pub(crate) fn prefetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and faults nowhere.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Compiles one body for every level and calls the one that fits.
///
/// `at_level!(level, body(x: &[f32]))` calls `body::<L>(x)`. The body is `#[inline(always)]`, so each copy is made with
/// the instructions of its level.
macro_rules! at_level {
    ($level:expr, $body:ident ( $($arg:ident : $ty:ty),* $(,)? )) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) {
                $body::<$crate::cpu::lanes::Avx2>($($arg),*)
            }
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512($($arg: $ty),*) {
                $body::<$crate::cpu::lanes::Avx512>($($arg),*)
            }
            match $level {
                // SAFETY: `CpuLevel::detect` is the only source of a level above portable, and it asked the processor.
                $crate::cpu::CpuLevel::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                $crate::cpu::CpuLevel::Avx2 => unsafe { avx2($($arg),*) },
                $crate::cpu::CpuLevel::Portable => $body::<$crate::cpu::lanes::Portable>($($arg),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $body::<$crate::cpu::lanes::Portable>($($arg),*)
    }};
}
pub(crate) use at_level;

#[cfg(test)]
mod tests {
    use super::*;

    fn check_exp<L: Lanes>() {
        for i in -8730..8830 {
            let x = i as f32 / 100.0 + 0.003;
            let (ours, expected) = (L::exp_one(x), f64::from(x).exp());
            assert!((f64::from(ours) - expected).abs() <= 4e-7 * expected || x < -87.0, "exp({x}) = {ours}");
        }
        assert_eq!((L::exp_one(0.0), L::exp_one(f32::NEG_INFINITY)), (1.0, 0.0));
    }

    #[test]
    fn exp_is_near_the_library_everywhere() {
        check_exp::<Portable>();
        // Single numbers need no wide registers, only `mul_add`.
        #[cfg(target_arch = "x86_64")]
        check_exp::<Avx2>();
    }
}
