//! Quality and cost of other rates, and the cost of an ear that is on: `cargo run --release -p speech --example rates`.

use speech::{Detection, HEARD_RATE, Hearing, Resampler, vowel};
use std::f64::consts::PI;
use std::time::Instant;

const PAIRS: [(u32, u32); 7] = [
    (24_000, 16_000),
    (22_050, 24_000),
    (16_000, 24_000),
    (8000, 16_000),
    (24_000, 8000),
    (48_000, 24_000),
    (44_100, 24_000),
];
const SECONDS: usize = 20;
// Tones of the sweep, up to this share of the lower rate's band.
const TONES: usize = 40;
const BAND: f64 = 0.85;
// The rest of a tone's ends.
const ENDS: usize = 400;

fn main() {
    println!("from   to     SNR of {TONES} tones: worst, median dB   ms a second of audio");
    for (from, to) in PAIRS {
        let mut snrs: Vec<f64> = (1..=TONES)
            .map(|tone| {
                let hertz = BAND * f64::from(from.min(to)) / 2.0 * tone as f64 / TONES as f64;
                snr(&resampled(from, to, &sine(from, hertz, 1)), &sine(to, hertz, 1))
            })
            .collect();
        snrs.sort_by(f64::total_cmp);
        let sound = vowel(from, SECONDS as u64 * 1000);
        let begin = Instant::now();
        let mut resampler = Resampler::new(from, to).expect("rates");
        let count: usize = sound.chunks(from as usize / 50).map(|piece| resampler.push(piece).len()).sum();
        let ms = begin.elapsed().as_secs_f64() * 1e3 / SECONDS as f64;
        println!("{from:<6} {to:<6} {:>10.1} {:>8.1} {:>28.3}   ({count} samples)", snrs[0], snrs[TONES / 2], ms);
    }
    let noise: Vec<i16> = (0..HEARD_RATE as usize * SECONDS).map(|at| (at * 7919 % 29) as i16 - 14).collect();
    for (what, sound) in [
        ("silence", vec![0; noise.len()]),
        ("a quiet room", noise),
        ("voice", vowel(HEARD_RATE, 1000 * SECONDS as u64)),
    ] {
        let mut hearing = Hearing::new(Detection::silence(0.5, 300, 500), 60 * u64::from(HEARD_RATE));
        let begin = Instant::now();
        let turns: usize = sound.chunks(HEARD_RATE as usize / 50).map(|piece| hearing.hear(piece).len()).sum();
        println!(
            "hearing {what}: {:.3} ms a second of audio ({turns} events)",
            begin.elapsed().as_secs_f64() * 1e3 / SECONDS as f64
        );
    }
}

fn sine(rate: u32, hertz: f64, seconds: usize) -> Vec<i16> {
    let at = |n: usize| (2.0 * PI * hertz * n as f64 / f64::from(rate)).sin() * 10_000.0;
    (0..rate as usize * seconds).map(|n| at(n).round() as i16).collect()
}

fn resampled(from: u32, to: u32, samples: &[i16]) -> Vec<i16> {
    let mut resampler = Resampler::new(from, to).expect("rates");
    let mut out = resampler.push(samples);
    out.extend(resampler.finish());
    out
}

fn snr(found: &[i16], wanted: &[i16]) -> f64 {
    let inner = ENDS..wanted.len().min(found.len()) - ENDS;
    let power = |of: &dyn Fn(usize) -> f64| inner.clone().map(|at| of(at).powi(2)).sum::<f64>();
    let signal = power(&|at| f64::from(wanted[at]));
    let noise = power(&|at| f64::from(wanted[at]) - f64::from(found[at]));
    10.0 * (signal / noise.max(1e-9)).log10()
}
