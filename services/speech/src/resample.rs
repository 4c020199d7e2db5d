//! Audio at another rate: a filter of windowed sines, one set of taps for each place between two samples. The output
//! has no delay of its own: its sample n lies where it lies in the input.

use std::f32::consts::PI;
use std::ops::RangeInclusive;

/// Rates that are taken. Servers of speech have 8,000 to 48,000.
pub const RATES: RangeInclusive<u32> = 4000..=192_000;

// Zeros of the sine on each side of a tap's centre.
const ZEROS: usize = 20;
// Share of the lower rate's band that passes.
const PASSES: f32 = 0.92;
// Shape of Kaiser's window: what lies beyond the band is 85 dB down.
const KAISER: f32 = 8.0;
// Most sets of taps. Rates that need more take the nearest.
const PHASES: u64 = 320;

#[derive(Clone, Debug)]
pub struct Resampler {
    from: u64,
    to: u64,
    half: u64,
    // `phases` sets of `2 * half` taps.
    taps: Vec<f32>,
    phases: u64,
    // Input that outputs still need. It begins with `half` of silence.
    kept: Vec<f32>,
    // Place in `kept` at which the next output begins, and the part of a sample behind it, in `to`ths.
    begin: usize,
    part: u64,
    // Outputs so far, and input samples so far.
    told: u64,
    taken: u64,
}

impl Resampler {
    /// `None`: one of the rates is none that is taken.
    pub fn new(from: u32, to: u32) -> Option<Resampler> {
        if !RATES.contains(&from) || !RATES.contains(&to) {
            return None;
        }
        let shared = gcd(from.into(), to.into());
        let (from, to) = (u64::from(from) / shared, u64::from(to) / shared);
        let narrow = (to as f32 / from as f32).min(1.0);
        let half = (ZEROS as f32 / narrow).ceil() as u64;
        let phases = to.min(PHASES);
        let taps = (0..phases).flat_map(|phase| taps(phase as f32 / phases as f32, half, narrow * PASSES)).collect();
        let kept = vec![0.0; half as usize];
        Some(Resampler { from, to, half, taps, phases, kept, begin: 1, part: 0, told: 0, taken: 0 })
    }

    /// Takes the next samples, and returns those that can be told already.
    pub fn push(&mut self, samples: &[i16]) -> Vec<i16> {
        if self.from == self.to {
            return samples.to_vec();
        }
        self.kept.extend(samples.iter().map(|sample| f32::from(*sample)));
        self.taken += samples.len() as u64;
        let mut out = Vec::with_capacity((samples.len() as u64 * self.to / self.from + 1) as usize);
        while let Some(sample) = self.output() {
            out.push(sample);
        }
        self.told += out.len() as u64;
        let unneeded = self.begin.min(self.kept.len());
        self.kept.drain(..unneeded);
        self.begin -= unneeded;
        out
    }

    pub fn finish(&mut self) -> Vec<i16> {
        if self.from == self.to {
            return Vec::new();
        }
        let whole = (self.taken * self.to).div_ceil(self.from);
        let missing = whole.saturating_sub(self.told) as usize;
        let mut rest = self.push(&vec![0; self.half as usize + 1]);
        rest.truncate(missing);
        self.kept = vec![0.0; self.half as usize];
        (self.begin, self.part, self.told, self.taken) = (1, 0, 0, 0);
        rest
    }

    fn output(&mut self) -> Option<i16> {
        let phase = if self.phases == self.to { self.part } else { self.part * self.phases / self.to };
        let (phase, width) = (phase as usize, 2 * self.half as usize);
        // The first tap of a set belongs to the sample before `begin`, where it is nothing.
        let taps = &self.taps[phase * width + 1..(phase + 1) * width];
        let sum = product(taps, self.kept.get(self.begin..self.begin + taps.len())?);
        self.part += self.from;
        while self.part >= self.to {
            self.part -= self.to;
            self.begin += 1;
        }
        // Rounded, and clamped by the cast.
        Some((sum + 0.5_f32.copysign(sum)) as i16)
    }
}

// Sums in lanes, so that one addition does not wait for the one before.
fn product(taps: &[f32], samples: &[f32]) -> f32 {
    const LANES: usize = 8;
    let ((taps, taps_left), (samples, samples_left)) = (taps.as_chunks::<LANES>(), samples.as_chunks::<LANES>());
    let mut sums = [0.0_f32; LANES];
    for (taps, samples) in taps.iter().zip(samples) {
        for (sum, (tap, sample)) in sums.iter_mut().zip(taps.iter().zip(samples)) {
            *sum += tap * sample;
        }
    }
    let left: f32 = taps_left.iter().zip(samples_left).map(|(tap, sample)| tap * sample).sum();
    sums.iter().sum::<f32>() + left
}

// Taps for an output that lies `part` behind an input sample. Their sum is 1.
fn taps(part: f32, half: u64, band: f32) -> Vec<f32> {
    let whole = bessel(KAISER);
    let tap = |at: u64| {
        let x = at as f32 - half as f32 - part;
        let window = bessel(KAISER * (1.0 - (x / half as f32).powi(2)).max(0.0).sqrt()) / whole;
        match x.abs() < half as f32 {
            false => 0.0,
            true if x == 0.0 => band,
            true => (PI * x * band).sin() / (PI * x) * window,
        }
    };
    let taps: Vec<f32> = (0..2 * half).map(tap).collect();
    let sum: f32 = taps.iter().sum();
    taps.into_iter().map(|tap| tap / sum).collect()
}

// Modified Bessel function of order 0.
fn bessel(x: f32) -> f32 {
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..=TERMS {
        term *= (0.5 * x / n as f32).powi(2);
        sum += term;
    }
    sum
}

// Terms after which nothing changes in the range that is used.
const TERMS: u32 = 24;

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tone(rate: u32, hertz: f32, seconds: f32) -> Vec<i16> {
        let turn = std::f64::consts::TAU * f64::from(hertz) / f64::from(rate);
        let at = |n: usize| (turn * n as f64).sin() * 10_000.0;
        (0..(rate as f32 * seconds) as usize).map(|n| at(n).round() as i16).collect()
    }

    fn resampled(from: u32, to: u32, samples: &[i16]) -> Vec<i16> {
        let mut resampler = Resampler::new(from, to).unwrap();
        let mut out = resampler.push(samples);
        out.extend(resampler.finish());
        out
    }

    #[test]
    fn a_tone_stays_where_it_is() {
        for (from, to) in [
            (24_000, 16_000),
            (8000, 16_000),
            (16_000, 24_000),
            (22_050, 24_000),
            (24_000, 8000),
            (44_100, 24_000),
            (11_025, 24_000),
        ] {
            let (out, expected) = (resampled(from, to, &tone(from, 440.0, 0.5)), tone(to, 440.0, 0.5));
            assert!(out.len().abs_diff(expected.len()) <= 1, "{from} to {to}: {} of {}", out.len(), expected.len());
            let inner = 200..expected.len() - 200;
            let error = inner.map(|at| (i32::from(out[at]) - i32::from(expected[at])).abs()).max().unwrap();
            assert!(error < 150, "{from} to {to}: {error}");
        }
    }

    #[test]
    fn no_tone_above_the_band_comes_back_as_another() {
        let loudest =
            |samples: &[i16]| samples[100..samples.len() - 100].iter().map(|s| i32::from(*s).abs()).max().unwrap();
        assert!(loudest(&resampled(24_000, 16_000, &tone(24_000, 10_500.0, 0.3))) < 4);
        assert!(loudest(&resampled(24_000, 8000, &tone(24_000, 6000.0, 0.3))) < 4);
        // Upwards a tone near the end of the band has no twin beyond it.
        let part = |samples: &[i16], rate: u32, hertz: f32| {
            let turn = std::f64::consts::TAU * f64::from(hertz) / f64::from(rate);
            let sum = |wave: fn(f64) -> f64| {
                samples.iter().enumerate().map(|(at, sample)| f64::from(*sample) * wave(turn * at as f64)).sum::<f64>()
            };
            2.0 * sum(f64::sin).hypot(sum(f64::cos)) / samples.len() as f64
        };
        for (from, to, hertz) in [(8000, 16_000, 3300.0), (16_000, 24_000, 6600.0)] {
            let out = resampled(from, to, &tone(from, hertz, 1.0));
            let (kept, twin) = (part(&out, to, hertz), part(&out, to, from as f32 - hertz));
            assert!((9500.0..10_100.0).contains(&kept) && twin < 4.0, "{from} to {to}: {kept} {twin}");
        }
    }

    #[test]
    fn a_rate_that_is_none_is_refused() {
        for rate in [0, 1, 3999, 192_001, u32::MAX] {
            assert!(Resampler::new(rate, 24_000).is_none() && Resampler::new(24_000, rate).is_none(), "{rate}");
        }
        assert!(resampled(47_999, 24_000, &tone(47_999, 300.0, 0.1)).len() >= 2399);
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(samples in prop::collection::vec(any::<i16>(), 0..400), cut in 1_usize..90, to in prop::sample::select(vec![8000_u32, 16_000, 22_050, 24_000])) {
            let mut resampler = Resampler::new(24_000, to).unwrap();
            let mut out: Vec<i16> = samples.chunks(cut).flat_map(|piece| resampler.push(piece)).collect();
            out.extend(resampler.finish());
            prop_assert_eq!(&out, &resampled(24_000, to, &samples));
            prop_assert_eq!(out.len() as u64, (samples.len() as u64 * u64::from(to)).div_ceil(24_000));
            // It may be used again.
            let mut again = resampler.push(&samples);
            again.extend(resampler.finish());
            prop_assert_eq!(out, again);
        }
    }
}
