//! The integer product of panels with AVX2.
//!
//! The instruction multiplies unsigned by signed bytes and adds neighbours in 16 bits: eight rows of weights, four columns of
//! each, by four activations that all lanes share. Codes of few bits stay without sign, so that several products fit into
//! 16 bits; what they are too large by depends on the activations alone. Codes of eight bits are signed: their sign moves to the
//! activation, |w| · (±x) is w · x.
//!
//! Few rows of activations work on weights as they are unpacked. Many share a block that was unpacked once.

use std::arch::x86_64::*;

use super::activations::tiles::{ROWS, Tile};
use super::ahead::{AHEAD, Ahead, TOGETHER, ask};
use super::panel::{Codes, PANEL, PanelFormat, STEPS, kind_of};
use super::{Activations, BLOCK, Rounding, Weights};
use crate::cpu::DisjointParts;
use crate::format::{Format, IQ4};
use crate::scratch::with_scratch;

/// Multiplies panels `first..first + count` with all rows of `x`; `out`: [x.rows(), w.rows].
///
/// # Safety
/// The processor has AVX2, FMA and F16C, `w` lies in panels, and no other task writes these columns of `out`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn panels(x: &Activations, w: Weights, first: usize, count: usize, out: DisjointParts<f32>) {
    macro_rules! of {
        ($($format:ident),*) => {
            match w.format {
                $(Format::$format => of_format::<{ Format::$format as usize }>(x, w, first, count, out),)*
                format => unreachable!("{} has no panels", format.name()),
            }
        };
    }
    of!(Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS)
}

#[target_feature(enable = "avx2,fma,f16c")]
fn of_format<const F: usize>(x: &Activations, w: Weights, first: usize, count: usize, out: DisjointParts<f32>) {
    let bytes = x.padded() / BLOCK * const { kind_of(F).block_bytes() };
    let panel = |panel: usize| &w.bytes[panel * bytes..][..bytes];
    match x.rows() {
        1 => (first..first + count).for_each(|at| few::<F, 1>(x, panel(at), &w, at, out)),
        2 => (first..first + count).for_each(|at| few::<F, 2>(x, panel(at), &w, at, out)),
        3..=4 => (first..first + count).for_each(|at| few::<F, 4>(x, panel(at), &w, at, out)),
        5..=6 => (first..first + count).for_each(|at| few::<F, 6>(x, panel(at), &w, at, out)),
        7..=8 => (first..first + count).for_each(|at| few::<F, 8>(x, panel(at), &w, at, out)),
        _ => {
            let mut at = first;
            while at < first + count {
                // A panel alone is its own neighbour; the neighbour's results are not read.
                let second = (at + 1).min(first + count - 1);
                many::<F>(x, [panel(at), panel(second)], &w, at, second - at + 1, out);
                at += TOGETHER;
            }
        }
    }
}

const fn is_signed(kind: PanelFormat) -> bool {
    kind.bits == 8 || matches!(kind.codes, Codes::Book)
}

// Steps whose products fit into 16 bits together.
const fn steps_together(kind: PanelFormat) -> usize {
    match (is_signed(kind), kind.bits) {
        (true, _) => 1,
        (_, 4) => 8,
        (_, 5) => 4,
        _ => 2,
    }
}

// Shift that makes of -128 times a sum of activations what centred codes are too large by.
const fn offset_shift(kind: PanelFormat) -> Option<i32> {
    match kind.codes {
        Codes::Centred if kind.bits < 8 => Some(8 - kind.bits as i32),
        _ => None,
    }
}

// Of sixteen rows, eight and eight.
type Lanes = [__m256; 2];
type Ints = [__m256i; 2];

// Multiplies steps of four columns, at most `K` of them in 16 bits.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn dots<const N: usize, const K: usize, const SIGNED: bool>(q: &[Ints; N], x: [i32; N]) -> Ints {
    let ones = _mm256_set1_epi16(1);
    let mut wide = [_mm256_setzero_si256(); 2];
    for first in (0..N).step_by(K) {
        let mut narrow = [_mm256_setzero_si256(); 2];
        for step in first..(first + K).min(N) {
            let x = _mm256_set1_epi32(x[step]);
            for h in 0..2 {
                narrow[h] = _mm256_add_epi16(narrow[h], pairs::<SIGNED>(q[step][h], x));
            }
        }
        for h in 0..2 {
            wide[h] = _mm256_add_epi32(wide[h], _mm256_madd_epi16(narrow[h], ones));
        }
    }
    wide
}

#[target_feature(enable = "avx2")]
#[inline]
fn pairs<const SIGNED: bool>(q: __m256i, x: __m256i) -> __m256i {
    match SIGNED {
        true => _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(x, q)),
        false => _mm256_maddubs_epi16(q, x),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn few<const F: usize, const M: usize>(x: &Activations, panel: &[u8], w: &Weights, at: usize, out: DisjointParts<f32>) {
    match const { steps_together(kind_of(F)) } {
        8 => few_of::<F, M, 8>(x, panel, w, at, out),
        4 => few_of::<F, M, 4>(x, panel, w, at, out),
        2 => few_of::<F, M, 2>(x, panel, w, at, out),
        _ => few_of::<F, M, 1>(x, panel, w, at, out),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn few_of<const F: usize, const M: usize, const K: usize>(
    x: &Activations,
    panel: &[u8],
    w: &Weights,
    at: usize,
    out: DisjointParts<f32>,
) {
    let kind = const { kind_of(F) };
    let fine = x.rounding() == Rounding::Fine;
    let mut totals = [[_mm256_setzero_ps(); 2]; M];
    for (block, bytes) in panel.chunks_exact(kind.block_bytes()).enumerate() {
        let tile = &x.tiles().block::<M>(block)[0];
        let header = Header::of::<F, true>(bytes);
        for at in 0..8 {
            let unit = Unit::of::<F, true>(bytes, at, &header);
            let (first, second) = unit.q.split_at(4);
            let (first, second) = (first.as_array().expect("four"), second.as_array().expect("four"));
            for m in 0..M {
                let q = |step: usize| tile.q[8 * at + step][m];
                if kind.group == 16 || fine {
                    for (half, codes) in [first, second].into_iter().enumerate() {
                        let x = std::array::from_fn(|step| q(4 * half + step));
                        let dots = match const { is_signed(kind_of(F)) } {
                            true => dots::<4, K, true>(codes, x),
                            false => dots::<4, K, false>(codes, x),
                        };
                        let group = 2 * at + half;
                        let offset = offset(const { offset_shift(kind_of(F)) }, tile.half_offset[group][m]);
                        add(&mut totals[m], dots, offset, unit.scale[half], tile.scale[group][m]);
                    }
                } else {
                    let x = std::array::from_fn(q);
                    let dots = match const { is_signed(kind_of(F)) } {
                        true => dots::<8, K, true>(&unit.q, x),
                        false => dots::<8, K, false>(&unit.q, x),
                    };
                    let offset = offset(const { offset_shift(kind_of(F)) }, tile.unit_offset[at][m]);
                    add(&mut totals[m], dots, offset, unit.scale[0], tile.scale[2 * at][m]);
                }
                if kind.min {
                    for h in 0..2 {
                        totals[m][h] = _mm256_fmadd_ps(unit.min[h], _mm256_set1_ps(tile.sum[at][m]), totals[m][h]);
                    }
                }
            }
        }
    }
    for (m, total) in totals.iter().enumerate().take(x.rows()) {
        store(*total, m, w, at, out);
    }
}

#[inline(always)]
fn offset(shift: Option<i32>, of_bytes: i32) -> i32 {
    shift.map_or(0, |shift| of_bytes >> shift)
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn add(totals: &mut Lanes, dots: Ints, offset: i32, of_weights: Lanes, of_x: f32) {
    for h in 0..2 {
        let dots = _mm256_cvtepi32_ps(_mm256_add_epi32(dots[h], _mm256_set1_epi32(offset)));
        totals[h] = _mm256_fmadd_ps(dots, _mm256_mul_ps(of_weights[h], _mm256_set1_ps(of_x)), totals[h]);
    }
}

#[target_feature(enable = "avx2")]
fn store(sums: Lanes, m: usize, w: &Weights, panel: usize, out: DisjointParts<f32>) {
    let rows = PANEL.min(w.rows - panel * PANEL);
    let mut values = [0.0f32; PANEL];
    // SAFETY: `values` holds sixteen; the caller's caller promised these columns to this task, and `part` looks at the bounds.
    let to = unsafe {
        _mm256_storeu_ps(values.as_mut_ptr(), sums[0]);
        _mm256_storeu_ps(values.as_mut_ptr().add(8), sums[1]);
        out.part(m * w.rows + panel * PANEL, rows)
    };
    to.copy_from_slice(&values[..rows]);
}

#[repr(C, align(64))]
struct Block {
    q: [[u8; 64]; STEPS],      // [step][row][4 columns]
    scale: [[f32; PANEL]; 16], // [group][row]: sixteen groups, or eight
    min: [[f32; PANEL]; 8],    // [unit][row]
}

#[target_feature(enable = "avx2,fma,f16c")]
fn many<const F: usize>(
    x: &Activations,
    panels: [&[u8]; TOGETHER],
    w: &Weights,
    at: usize,
    count: usize,
    out: DisjointParts<f32>,
) {
    let kind = const { kind_of(F) };
    let halves = kind.group == 16 || x.rounding() == Rounding::Fine;
    let add_tile = match (const { steps_together(kind_of(F)) }, halves, kind.min) {
        (8, true, true) => add_tile::<4, false, true, true>,
        (8, true, false) => add_tile::<4, false, true, false>,
        (8, false, true) => add_tile::<8, false, false, true>,
        (8, false, false) => add_tile::<8, false, false, false>,
        (4, true, true) => add_tile::<4, false, true, true>,
        (4, true, false) => add_tile::<4, false, true, false>,
        (4, false, true) => add_tile::<4, false, false, true>,
        (4, false, false) => add_tile::<4, false, false, false>,
        (2, ..) => add_tile::<2, false, true, false>,
        (_, true, _) => add_tile::<1, true, true, false>,
        (_, false, _) => add_tile::<1, true, false, false>,
    };
    let shift = const { offset_shift(kind_of(F)) };
    let empty = || Block { q: [[0; 64]; STEPS], scale: [[0.0; PANEL]; 16], min: [[0.0; PANEL]; 8] };
    let mut blocks = [empty(), empty()];
    let tiles = x.rows().div_ceil(ROWS);
    with_scratch(tiles * TOGETHER * ROWS * PANEL, |sums| {
        sums.fill(0.0);
        for block in 0..x.padded() / BLOCK {
            for (panel, to) in panels.iter().zip(&mut blocks) {
                unpack::<F>(&panel[block * kind.block_bytes()..][..kind.block_bytes()], halves, to);
            }
            let sums = sums.as_chunks_mut::<{ TOGETHER * ROWS * PANEL }>().0;
            let mut ahead = Ahead::new(panels, block, kind.block_bytes(), tiles);
            for (tile, sums) in x.tiles().block::<ROWS>(block).iter().zip(sums) {
                ahead.ask();
                for (weights, sums) in blocks.iter().zip(sums.as_chunks_mut::<{ ROWS * PANEL }>().0) {
                    add_tile(weights, tile, sums, shift);
                }
            }
        }
        for m in 0..x.rows() {
            for panel in 0..count {
                let from = &sums[((m / ROWS * TOGETHER + panel) * ROWS + m % ROWS) * PANEL..][..PANEL];
                // SAFETY: the slice holds sixteen values.
                let sums = unsafe { [_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))] };
                store(sums, m, w, at + panel, out);
            }
        }
    });
}

#[target_feature(enable = "avx2,fma,f16c")]
fn unpack<const F: usize>(bytes: &[u8], halves: bool, to: &mut Block) {
    let kind = const { kind_of(F) };
    let header = Header::of::<F, false>(bytes);
    for at in 0..8 {
        let unit = Unit::of::<F, false>(bytes, at, &header);
        for h in 0..2 {
            // SAFETY: all places are aligned arrays of 64 bytes, of which this is one half.
            unsafe {
                for step in 0..8 {
                    _mm256_store_si256(to.q[8 * at + step].as_mut_ptr().add(32 * h).cast(), unit.q[step][h]);
                }
                if halves {
                    _mm256_store_ps(to.scale[2 * at].as_mut_ptr().add(8 * h), unit.scale[0][h]);
                    _mm256_store_ps(to.scale[2 * at + 1].as_mut_ptr().add(8 * h), unit.scale[1][h]);
                } else {
                    _mm256_store_ps(to.scale[at].as_mut_ptr().add(8 * h), unit.scale[0][h]);
                }
                if kind.min {
                    _mm256_store_ps(to.min[at].as_mut_ptr().add(8 * h), unit.min[h]);
                }
            }
        }
    }
}

// Multiplies one block of a panel with one tile. `K`: steps whose products fit into 16 bits. `HALVES`: groups of 16, of weights
// or of activations. `MIN`: with minima.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_tile<const K: usize, const SIGNED: bool, const HALVES: bool, const MIN: bool>(
    block: &Block,
    tile: &Tile<ROWS>,
    sums: &mut [f32; ROWS * PANEL],
    shift: Option<i32>,
) {
    let ones = _mm256_set1_epi16(1);
    let (groups, steps) = if HALVES { (16, 4) } else { (8, 8) };
    for group in 0..groups {
        let mut wide = [[_mm256_setzero_si256(); 2]; ROWS];
        for first in (group * steps..(group + 1) * steps).step_by(K) {
            let mut narrow = [[_mm256_setzero_si256(); 2]; ROWS];
            for step in first..first + K {
                // SAFETY: a step has 64 bytes, and the block is aligned.
                let q = unsafe {
                    let from: *const __m256i = block.q[step].as_ptr().cast();
                    [_mm256_load_si256(from), _mm256_load_si256(from.add(1))]
                };
                for m in 0..ROWS {
                    let x = _mm256_set1_epi32(tile.q[step][m]);
                    for h in 0..2 {
                        narrow[m][h] = _mm256_add_epi16(narrow[m][h], pairs::<SIGNED>(q[h], x));
                    }
                }
            }
            for m in 0..ROWS {
                for h in 0..2 {
                    wide[m][h] = _mm256_add_epi32(wide[m][h], _mm256_madd_epi16(narrow[m][h], ones));
                }
            }
        }
        let half = if HALVES { group } else { 2 * group };
        // SAFETY: arrays of sixteen values; those of the block are aligned.
        unsafe {
            for h in 0..2 {
                let scale = _mm256_load_ps(block.scale[group].as_ptr().add(8 * h));
                for m in 0..ROWS {
                    let place = sums.as_mut_ptr().add(m * PANEL + 8 * h);
                    let mut dots = wide[m][h];
                    if !MIN && !SIGNED {
                        let of_bytes = if HALVES { tile.half_offset[group][m] } else { tile.unit_offset[group][m] };
                        dots = _mm256_add_epi32(dots, _mm256_set1_epi32(offset(shift, of_bytes)));
                    }
                    let scale = _mm256_mul_ps(scale, _mm256_set1_ps(tile.scale[half][m]));
                    let mut total = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots), scale, _mm256_loadu_ps(place));
                    if MIN && (!HALVES || group % 2 == 1) {
                        let unit = group * steps / 8;
                        let min = _mm256_load_ps(block.min[unit].as_ptr().add(8 * h));
                        total = _mm256_fmadd_ps(min, _mm256_set1_ps(tile.sum[unit][m]), total);
                    }
                    _mm256_storeu_ps(place, total);
                }
            }
        }
    }
}

struct Header {
    d: Lanes,
    minus_dmin: Lanes,
}

impl Header {
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    fn of<const F: usize, const ASKS: bool>(bytes: &[u8]) -> Header {
        let kind = const { kind_of(F) };
        // As in `Unit::of`.
        if ASKS {
            (0..kind.units_at()).step_by(64).for_each(|at| ask(bytes.as_ptr().wrapping_add(at + AHEAD)));
        }
        let (mut d, mut minus_dmin) = ([_mm256_setzero_ps(); 2], [_mm256_setzero_ps(); 2]);
        if kind.shared {
            d = halves(&bytes[kind.d_at()..]);
            if kind.min {
                minus_dmin =
                    halves(&bytes[kind.d_at() + 2 * PANEL..]).map(|dmin| _mm256_sub_ps(_mm256_setzero_ps(), dmin));
            }
        }
        Header { d, minus_dmin }
    }
}

struct Unit {
    q: [Ints; 8],      // [step]: [row][4 columns]
    scale: [Lanes; 2], // of both halves
    min: Lanes,
}

impl Unit {
    // Unpacks a unit. `ASKS`: it prefetches the bytes that lie `AHEAD`.
    #[target_feature(enable = "avx2,fma,f16c")]
    #[inline]
    fn of<const F: usize, const ASKS: bool>(bytes: &[u8], at: usize, header: &Header) -> Unit {
        let kind = const { kind_of(F) };
        assert!(bytes.len() == kind.block_bytes() && at < 8);
        let start = kind.units_at() + at * kind.unit_bytes();
        // SAFETY: a unit has as many vectors of 64 bytes as its codes have bits, and all lie in the block.
        let vector = |i: usize| unsafe {
            let place = bytes.as_ptr().add(start + 64 * i);
            if ASKS {
                ask(place.wrapping_add(AHEAD));
            }
            [_mm256_loadu_si256(place.cast()), _mm256_loadu_si256(place.add(32).cast())]
        };
        let mut q = [[_mm256_setzero_si256(); 2]; 8];
        if kind.bits == 8 {
            let top = _mm256_set1_epi8(-128);
            for step in 0..8 {
                q[step] = vector(step).map(|codes| _mm256_xor_si256(codes, top));
            }
        } else {
            let rest = [if kind.rest() > 0 { vector(4) } else { q[0] }, if kind.rest() > 1 { vector(5) } else { q[0] }];
            for step in 0..4 {
                let packed = vector(step);
                for h in 0..2 {
                    let rest = [rest[0][h], rest[1][h]];
                    q[step][h] = code::<F>(packed[h], rest, step);
                    q[step + 4][h] = code::<F>(packed[h], rest, step + 4);
                }
            }
        }
        let (mut scale, mut min) = ([[_mm256_setzero_ps(); 2]; 2], [_mm256_setzero_ps(); 2]);
        let groups = 32 / kind.group;
        for half in 0..groups {
            let group = at * groups + half;
            scale[half] = if kind.shared {
                let small = &bytes[group * PANEL..];
                times(header.d, if kind.min { unsigned(small) } else { signed(small) })
            } else {
                halves(&bytes[2 * group * PANEL..])
            };
        }
        if groups == 1 {
            scale[1] = scale[0];
        }
        if kind.min {
            min = if kind.shared {
                times(header.minus_dmin, unsigned(&bytes[kind.scales() + at * PANEL..]))
            } else {
                halves(&bytes[kind.scales() + 2 * at * PANEL..])
            };
        }
        Unit { q, scale, min }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn code<const F: usize>(packed: __m256i, rest: [__m256i; 2], step: usize) -> __m256i {
    let kind = const { kind_of(F) };
    // Shifts of the nibble and of the other bits: these lie below it where codes are centred.
    let (nibble_to, rest_to) = if kind.codes == Codes::Centred { (kind.rest() as i32, 0) } else { (0, 4) };
    let masked = |bits: __m256i, mask: u32| _mm256_and_si256(bits, _mm256_set1_epi8(mask as i8));
    let nibble = masked(shifted(packed, nibble_to - 4 * (step as i32 / 4)), 0x0f << nibble_to);
    if kind.codes == Codes::Book {
        return _mm256_shuffle_epi8(book(), nibble);
    }
    if kind.rest() == 0 {
        return nibble;
    }
    let place = step * kind.rest();
    let others = shifted(rest[place / 8], rest_to - (place % 8) as i32);
    _mm256_or_si256(nibble, masked(others, ((1 << kind.rest()) - 1) << rest_to))
}

// Shifts bits up, or down where `by` is negative; across bytes, so that the caller masks the rest.
#[target_feature(enable = "avx2")]
#[inline]
fn shifted(bytes: __m256i, by: i32) -> __m256i {
    match by {
        0 => bytes,
        1.. => _mm256_sll_epi16(bytes, _mm_cvtsi32_si128(by)),
        _ => _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(-by)),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn book() -> __m256i {
    // SAFETY: sixteen bytes.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(IQ4.as_ptr().cast()) })
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline]
fn times(a: Lanes, b: Lanes) -> Lanes {
    [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])]
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn halves(bytes: &[u8]) -> Lanes {
    let bytes = bytes[..32].as_ptr();
    // SAFETY: the slice was checked to hold sixteen halves.
    unsafe { [_mm256_cvtph_ps(_mm_loadu_si128(bytes.cast())), _mm256_cvtph_ps(_mm_loadu_si128(bytes.add(16).cast()))] }
}

#[target_feature(enable = "avx2")]
#[inline]
fn unsigned(bytes: &[u8]) -> Lanes {
    // SAFETY: the slice is checked to hold sixteen bytes.
    let bytes = unsafe { _mm_loadu_si128(bytes[..16].as_ptr().cast()) };
    [bytes, _mm_srli_si128::<8>(bytes)].map(|bytes| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn signed(bytes: &[u8]) -> Lanes {
    // SAFETY: as above.
    let bytes = unsafe { _mm_loadu_si128(bytes[..16].as_ptr().cast()) };
    [bytes, _mm_srli_si128::<8>(bytes)].map(|bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums<const K: usize, const SIGNED: bool>(code: u8, x: i8) -> Vec<i32> {
        let x = [i32::from_le_bytes([x as u8; 4]); 8];
        let mut values = [0i32; PANEL];
        // SAFETY: the caller asked the processor; sixteen values.
        unsafe {
            let q = [[_mm256_set1_epi8(code as i8); 2]; 8];
            let [low, high] = dots::<8, K, SIGNED>(&q, x);
            _mm256_storeu_si256(values.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(values.as_mut_ptr().add(8).cast(), high);
        }
        values.to_vec()
    }

    #[test]
    fn the_largest_codes_and_activations_fit_into_16_bits() {
        if !is_x86_feature_detected!("avx2") {
            println!("skipped: no AVX2");
            return;
        }
        for x in [127i8, -127] {
            let all = |code: i32| vec![32 * code * i32::from(x); PANEL];
            assert_eq!(sums::<8, false>(15, x), all(15));
            assert_eq!(sums::<4, false>(31, x), all(31));
            assert_eq!(sums::<2, false>(63, x), all(63));
            assert_eq!(sums::<1, true>(127, x), all(127));
            assert_eq!(sums::<1, true>(-128i8 as u8, x), all(-128));
        }
        for format in Format::ALL.iter().copied().filter_map(PanelFormat::of) {
            let most = if is_signed(format) { 128 } else { (1 << format.bits) - 1 };
            assert!(steps_together(format) * 2 * most * 127 <= i16::MAX as usize);
        }
    }
}
