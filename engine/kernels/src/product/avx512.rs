//! The integer product of panels with AVX-512 and VNNI.
//!
//! The instruction multiplies unsigned by signed bytes and adds fours: sixteen rows of weights, four columns of each,
//! by four activations that all lanes share. Signed codes are moved up by 128 (and to the byte's top, a shift that the
//! scale takes back); the excess depends on the activations alone, and a sum begins with its negative.
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
/// The processor has AVX-512 F, BW, DQ, VL and VNNI, `w` lies in panels, and no other task writes these columns of
/// `out`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
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

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn few<const F: usize, const M: usize>(x: &Activations, panel: &[u8], w: &Weights, at: usize, out: DisjointParts<f32>) {
    let kind = const { kind_of(F) };
    let fine = x.rounding() == Rounding::Fine;
    let mut totals = [_mm512_setzero_ps(); M];
    for (block, bytes) in panel.chunks_exact(kind.block_bytes()).enumerate() {
        let tile = &x.tiles().block::<M>(block)[0];
        let header = Header::of::<F, true>(bytes);
        for at in 0..8 {
            let unit = Unit::of::<F, true>(bytes, at, &header);
            let mut first = [_mm512_setzero_si512(); M];
            let mut second = [_mm512_setzero_si512(); M];
            if kind.codes != Codes::Plain {
                for m in 0..M {
                    first[m] = _mm512_set1_epi32(tile.half_offset[2 * at][m]);
                    second[m] = _mm512_set1_epi32(tile.half_offset[2 * at + 1][m]);
                }
            }
            for step in 0..4 {
                for m in 0..M {
                    let q = |step: usize| _mm512_set1_epi32(tile.q[8 * at + step][m]);
                    first[m] = _mm512_dpbusd_epi32(first[m], unit.q[step], q(step));
                    second[m] = _mm512_dpbusd_epi32(second[m], unit.q[step + 4], q(step + 4));
                }
            }
            for m in 0..M {
                let scale = _mm512_set1_ps(tile.scale[2 * at][m]);
                let dots = if kind.group == 16 || fine {
                    let mut second = _mm512_mul_ps(_mm512_cvtepi32_ps(second[m]), unit.scale[1]);
                    let first = _mm512_mul_ps(_mm512_cvtepi32_ps(first[m]), unit.scale[0]);
                    if fine {
                        second = _mm512_mul_ps(second, _mm512_set1_ps(tile.scale[2 * at + 1][m]));
                        totals[m] = _mm512_add_ps(second, totals[m]);
                        first
                    } else {
                        _mm512_add_ps(first, second)
                    }
                } else {
                    _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(first[m], second[m])), unit.scale[0])
                };
                totals[m] = _mm512_fmadd_ps(dots, scale, totals[m]);
                if kind.min {
                    totals[m] = _mm512_fmadd_ps(unit.min, _mm512_set1_ps(tile.sum[at][m]), totals[m]);
                }
            }
        }
    }
    for (m, total) in totals.iter().enumerate().take(x.rows()) {
        store(*total, m, w, at, out);
    }
}

#[target_feature(enable = "avx512f")]
fn store(sums: __m512, m: usize, w: &Weights, panel: usize, out: DisjointParts<f32>) {
    let rows = PANEL.min(w.rows - panel * PANEL);
    // SAFETY: the caller's caller promised these columns to this task, and `part` looks at the bounds.
    unsafe {
        let to = out.part(m * w.rows + panel * PANEL, rows);
        _mm512_mask_storeu_ps(to.as_mut_ptr(), (0xffff_u32 >> (PANEL - rows)) as u16, sums);
    }
}

#[repr(C, align(64))]
struct Block {
    q: [[u8; 64]; STEPS],      // [step][row][4 columns]
    scale: [[f32; PANEL]; 16], // [group][row]: sixteen groups, or eight
    min: [[f32; PANEL]; 8],    // [unit][row]
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
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
            let groups = tiles * if halves { 16 } else { 8 };
            let mut ahead = Ahead::new(panels, block, kind.block_bytes(), groups);
            for (tile, sums) in x.tiles().block::<ROWS>(block).iter().zip(sums) {
                match (halves, kind.min) {
                    (true, false) => add_tile::<true, false>(&blocks, tile, sums, &mut ahead),
                    (true, true) => add_tile::<true, true>(&blocks, tile, sums, &mut ahead),
                    (false, false) => add_tile::<false, false>(&blocks, tile, sums, &mut ahead),
                    (false, true) => add_tile::<false, true>(&blocks, tile, sums, &mut ahead),
                }
            }
        }
        for m in 0..x.rows() {
            for panel in 0..count {
                let from = &sums[((m / ROWS * TOGETHER + panel) * ROWS + m % ROWS) * PANEL..][..PANEL];
                // SAFETY: the slice holds sixteen values.
                store(unsafe { _mm512_loadu_ps(from.as_ptr()) }, m, w, at + panel, out);
            }
        }
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn unpack<const F: usize>(bytes: &[u8], halves: bool, to: &mut Block) {
    let kind = const { kind_of(F) };
    let header = Header::of::<F, false>(bytes);
    for at in 0..8 {
        let unit = Unit::of::<F, false>(bytes, at, &header);
        // SAFETY: all places are aligned arrays of 64 bytes.
        unsafe {
            for step in 0..8 {
                _mm512_store_si512(to.q[8 * at + step].as_mut_ptr().cast(), unit.q[step]);
            }
            if halves {
                _mm512_store_ps(to.scale[2 * at].as_mut_ptr(), unit.scale[0]);
                _mm512_store_ps(to.scale[2 * at + 1].as_mut_ptr(), unit.scale[1]);
            } else {
                _mm512_store_ps(to.scale[at].as_mut_ptr(), unit.scale[0]);
            }
            if kind.min {
                _mm512_store_ps(to.min[at].as_mut_ptr(), unit.min);
            }
        }
    }
}

// Multiplies one block of two panels with one tile. `HALVES`: groups of 16, of weights or of activations. `MIN`: with
// minima, and no offset then.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
fn add_tile<const HALVES: bool, const MIN: bool>(
    blocks: &[Block; TOGETHER],
    tile: &Tile<ROWS>,
    sums: &mut [f32; TOGETHER * ROWS * PANEL],
    ahead: &mut Ahead,
) {
    // SAFETY: `sums` and the arrays of `blocks` hold what is read and written of them; those are aligned.
    unsafe {
        let mut totals = [[_mm512_setzero_ps(); ROWS]; TOGETHER];
        for p in 0..TOGETHER {
            for m in 0..ROWS {
                totals[p][m] = _mm512_loadu_ps(sums.as_ptr().add((p * ROWS + m) * PANEL));
            }
        }
        let (groups, steps) = if HALVES { (16, 4) } else { (8, 8) };
        for group in 0..groups {
            ahead.ask();
            let unit = group * steps / 8;
            let mut dots = [[_mm512_setzero_si512(); ROWS]; TOGETHER];
            if !MIN {
                for m in 0..ROWS {
                    let offset = if HALVES { tile.half_offset[group][m] } else { tile.unit_offset[group][m] };
                    dots[0][m] = _mm512_set1_epi32(offset);
                    dots[1][m] = dots[0][m];
                }
            }
            for step in group * steps..(group + 1) * steps {
                let of = |p: usize| blocks[p].q[step].as_ptr().cast();
                let q = [_mm512_load_si512(of(0)), _mm512_load_si512(of(1))];
                for m in 0..ROWS {
                    let x = _mm512_set1_epi32(tile.q[step][m]);
                    dots[0][m] = _mm512_dpbusd_epi32(dots[0][m], q[0], x);
                    dots[1][m] = _mm512_dpbusd_epi32(dots[1][m], q[1], x);
                }
            }
            for p in 0..TOGETHER {
                let scale = _mm512_load_ps(blocks[p].scale[group].as_ptr());
                let half = if HALVES { group } else { 2 * group };
                for m in 0..ROWS {
                    let scale = _mm512_mul_ps(scale, _mm512_set1_ps(tile.scale[half][m]));
                    totals[p][m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[p][m]), scale, totals[p][m]);
                }
                if MIN && (!HALVES || group % 2 == 1) {
                    let min = _mm512_load_ps(blocks[p].min[unit].as_ptr());
                    for m in 0..ROWS {
                        totals[p][m] = _mm512_fmadd_ps(min, _mm512_set1_ps(tile.sum[unit][m]), totals[p][m]);
                    }
                }
            }
        }
        for p in 0..TOGETHER {
            for m in 0..ROWS {
                _mm512_storeu_ps(sums.as_mut_ptr().add((p * ROWS + m) * PANEL), totals[p][m]);
            }
        }
    }
}

struct Header {
    d: __m512,
    minus_dmin: __m512,
}

impl Header {
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    #[inline]
    fn of<const F: usize, const ASKS: bool>(bytes: &[u8]) -> Header {
        let kind = const { kind_of(F) };
        // As in `Unit::of`.
        if ASKS {
            for at in (0..kind.units_at()).step_by(64) {
                ask(bytes.as_ptr().wrapping_add(at + AHEAD));
            }
        }
        let (mut d, mut minus_dmin) = (_mm512_setzero_ps(), _mm512_setzero_ps());
        if kind.shared {
            d = _mm512_mul_ps(halves(&bytes[kind.d_at()..]), _mm512_set1_ps(const { shift_back(kind_of(F)) }));
            if kind.min {
                minus_dmin = _mm512_sub_ps(minus_dmin, halves(&bytes[kind.d_at() + 2 * PANEL..]));
            }
        }
        Header { d, minus_dmin }
    }
}

struct Unit {
    q: [__m512i; 8],    // [step]: [row][4 columns], without sign
    scale: [__m512; 2], // of both halves
    min: __m512,
}

// Signed codes are moved to the top of their byte; this factor moves them back.
const fn shift_back(kind: PanelFormat) -> f32 {
    match kind.codes {
        Codes::Centred => 1.0 / (1 << (8 - kind.bits)) as f32,
        _ => 1.0,
    }
}

impl Unit {
    // Unpacks a unit. `ASKS`: it prefetches the bytes that lie `AHEAD`.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    #[inline]
    fn of<const F: usize, const ASKS: bool>(bytes: &[u8], at: usize, header: &Header) -> Unit {
        let kind = const { kind_of(F) };
        assert!(bytes.len() == kind.block_bytes() && at < 8);
        let start = kind.units_at() + at * kind.unit_bytes();
        // SAFETY: a unit has as many vectors as its codes have bits, and all lie in the block. What is asked for ahead
        // may lie outside of everything: the processor does not mind.
        let vector = |i: usize| unsafe {
            let place = bytes.as_ptr().add(start + 64 * i);
            if ASKS {
                ask(place.wrapping_add(AHEAD));
            }
            _mm512_loadu_si512(place.cast())
        };
        let mut q = [_mm512_setzero_si512(); 8];
        if kind.bits == 8 {
            for step in 0..8 {
                q[step] = vector(step);
            }
        } else {
            let rest = [if kind.rest() > 0 { vector(4) } else { q[0] }, if kind.rest() > 1 { vector(5) } else { q[0] }];
            for step in 0..4 {
                let packed = vector(step);
                q[step] = code::<F>(packed, rest, step);
                q[step + 4] = code::<F>(packed, rest, step + 4);
            }
        }
        let (mut scale, mut min) = ([_mm512_setzero_ps(); 2], _mm512_setzero_ps());
        let groups = 32 / kind.group;
        for half in 0..2 {
            if half == groups {
                scale[1] = scale[0];
                break;
            }
            let group = at * groups + half;
            scale[half] = if kind.shared {
                let small = &bytes[group * PANEL..];
                _mm512_mul_ps(header.d, if kind.min { unsigned(small) } else { signed(small) })
            } else {
                let halves = halves(&bytes[2 * group * PANEL..]);
                _mm512_mul_ps(halves, _mm512_set1_ps(const { shift_back(kind_of(F)) }))
            };
        }
        if kind.min {
            min = if kind.shared {
                _mm512_mul_ps(header.minus_dmin, unsigned(&bytes[kind.scales() + at * PANEL..]))
            } else {
                halves(&bytes[kind.scales() + 2 * at * PANEL..])
            };
        }
        Unit { q, scale, min }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
#[inline]
fn code<const F: usize>(packed: __m512i, rest: [__m512i; 2], step: usize) -> __m512i {
    let kind = const { kind_of(F) };
    let centred = kind.codes == Codes::Centred;
    // Shifts of the nibble and of the other bits: these lie below it where codes are moved to the top.
    let (nibble_to, rest_to, mask) = if centred { (4, 4 - kind.rest(), 0xf0_u8) } else { (0, 4, 0x0f) };
    let nibble = shifted(packed, nibble_to - 4 * (step as i32 / 4));
    let mask = _mm512_set1_epi8(mask as i8);
    if kind.rest() == 0 {
        let code = _mm512_and_si512(nibble, mask);
        return if kind.codes == Codes::Book { _mm512_shuffle_epi8(book(), code) } else { code };
    }
    let place = step * kind.rest();
    let others = shifted(rest[place / 8], rest_to as i32 - (place % 8) as i32);
    // Bits of the nibble where the mask has ones, the others elsewhere.
    let both = _mm512_ternarylogic_epi32::<0xca>(mask, nibble, others);
    let all = if centred { 0xff_u8 << (8 - kind.bits) } else { 0xff >> (8 - kind.bits) };
    _mm512_and_si512(both, _mm512_set1_epi8(all as i8))
}

// Shifts bits up, or down where `by` is negative; across bytes, so that the caller masks the rest.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn shifted(bytes: __m512i, by: i32) -> __m512i {
    match by {
        0 => bytes,
        1.. => _mm512_sll_epi16(bytes, _mm_cvtsi32_si128(by)),
        _ => _mm512_srl_epi16(bytes, _mm_cvtsi32_si128(-by)),
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
fn book() -> __m512i {
    const BYTES: [u8; 16] = {
        let mut bytes = [0; 16];
        let mut i = 0;
        while i < 16 {
            bytes[i] = IQ4[i] as u8 ^ 0x80;
            i += 1;
        }
        bytes
    };
    // SAFETY: sixteen bytes.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(BYTES.as_ptr().cast()) })
}

#[target_feature(enable = "avx512f")]
#[inline]
fn halves(bytes: &[u8]) -> __m512 {
    // SAFETY: the slice is checked to hold sixteen halves.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(bytes[..32].as_ptr().cast()) })
}

#[target_feature(enable = "avx512f")]
#[inline]
fn unsigned(bytes: &[u8]) -> __m512 {
    // SAFETY: the slice is checked to hold sixteen bytes.
    _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(unsafe { _mm_loadu_si128(bytes[..16].as_ptr().cast()) }))
}

#[target_feature(enable = "avx512f")]
#[inline]
fn signed(bytes: &[u8]) -> __m512 {
    // SAFETY: as above.
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(unsafe { _mm_loadu_si128(bytes[..16].as_ptr().cast()) }))
}
