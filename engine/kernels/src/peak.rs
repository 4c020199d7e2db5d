//! Limits of a processor: loops that do nothing but read memory, or nothing but multiply bytes. Benches hold kernels
//! against them.

use crate::cpu::{CpuLevel, Lanes, at_level, lanes::prefetch};

pub fn read(level: CpuLevel, values: &[f32]) -> f32 {
    let mut total = 0.0;
    let sum = &mut total;
    at_level!(level, read_body(values: &[f32], sum: &mut f32));
    total
}

#[inline(always)]
fn read_body<L: Lanes>(values: &[f32], sum: &mut f32) {
    const REGISTERS: usize = 8;
    let mut sums = [L::splat(0.0); REGISTERS];
    for chunk in values.chunks_exact(REGISTERS * L::COUNT) {
        for (i, sum) in sums.iter_mut().enumerate() {
            let place = chunk.as_ptr().wrapping_add(i * L::COUNT);
            prefetch(place.wrapping_byte_add(4096));
            // SAFETY: the chunk has as many values.
            *sum = L::add(*sum, unsafe { L::load(place) });
        }
    }
    for part in sums {
        *sum += L::sum(part);
    }
}

/// Multiplies bytes `rounds` times with the instruction that the integer products use, and returns the number of
/// multiplications and additions; `None` without such an instruction.
pub fn multiply_bytes(level: CpuLevel, rounds: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if level == CpuLevel::Avx512 {
        // SAFETY: `CpuLevel::detect` is the only source of this level, and it asked the processor.
        unsafe { dots(rounds) };
        return Some(rounds * INDEPENDENT * 128);
    }
    let _ = (level, rounds);
    None
}

#[cfg(target_arch = "x86_64")]
const INDEPENDENT: usize = 16; // sums that do not wait for each other

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vnni")]
fn dots(rounds: usize) {
    use std::arch::x86_64::{_mm512_dpbusd_epi32, _mm512_set1_epi32, _mm512_setzero_si512};
    use std::hint::black_box;
    let (a, b) = (_mm512_set1_epi32(black_box(3)), _mm512_set1_epi32(black_box(5)));
    let mut sums = [_mm512_setzero_si512(); INDEPENDENT];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, a, b);
        }
    }
    black_box(sums);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_read() {
        for level in CpuLevel::available() {
            assert_eq!(read(level, &[1.0; 1280]), 1280.0);
            assert_eq!(multiply_bytes(level, 3).is_some(), level == CpuLevel::Avx512);
        }
    }
}
