//! Rotary positions: the first `2 · pairs` values of a head turn, halves layout.

pub struct Rotation {
    /// Angle per position of each pair, slowest last. Interpolated already if the model is stretched.
    pub frequencies: Vec<f64>,
    pub magnitude: f32, // factor on cosine and sine (1 but for YaRN)
}

/// YaRN's parameters: a model trained on `original_ctx` positions is stretched by `factor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub original_ctx: usize,
    pub beta_fast: f64,
    pub beta_slow: f64,
    /// Factor on cosine and sine: a longer window flattens the softmax, this sharpens it again.
    pub magnitude: f32,
    pub truncate: bool, // true if the borders between fast and slowed pairs lie on whole pairs
}

impl Rotation {
    /// Builds the rotation of `dims` values of a head; `theta` is the base of the geometric series of frequencies.
    pub fn new(dims: usize, theta: f64, yarn: Option<Yarn>) -> Rotation {
        let plain = (0..dims / 2).map(|pair| theta.powf(-2.0 * pair as f64 / dims as f64));
        let Some(yarn) = yarn else {
            return Rotation { frequencies: plain.collect(), magnitude: 1.0 };
        };
        // Pairs that turn often inside the original window keep their speed, slow ones are slowed by `factor`, those
        // between are mixed linearly by index.
        let pair_of_turns = |turns: f64| {
            dims as f64 * (yarn.original_ctx as f64 / (turns * std::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let (first, last) = (pair_of_turns(yarn.beta_fast), pair_of_turns(yarn.beta_slow));
        let (first, last) = if yarn.truncate { (first.floor(), last.ceil()) } else { (first, last) };
        let (first, last) = (first.max(0.0), last.min(dims as f64 - 1.0));
        let width = if last > first { last - first } else { 0.001 };
        let frequencies = plain
            .enumerate()
            .map(|(pair, frequency)| {
                let slowed = ((pair as f64 - first) / width).clamp(0.0, 1.0);
                frequency / yarn.factor * slowed + frequency * (1.0 - slowed)
            })
            .collect();
        Rotation { frequencies, magnitude: yarn.magnitude }
    }

    pub fn dims(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Writes cosines, then sines, for one position: `dims()` values.
    pub fn at(&self, position: usize, out: &mut [f32]) {
        let pairs = self.frequencies.len();
        for (pair, frequency) in self.frequencies.iter().enumerate() {
            // In f64: at a million positions an f32 angle is off by a tenth of a turn.
            let (sin, cos) = (position as f64 * frequency).sin_cos();
            out[pair] = cos as f32 * self.magnitude;
            out[pairs + pair] = sin as f32 * self.magnitude;
        }
    }
}

pub fn rotate(head: &mut [f32], turns: &[f32]) {
    let pairs = turns.len() / 2;
    let (cos, sin) = turns.split_at(pairs);
    let (first, rest) = head.split_at_mut(pairs);
    for pair in 0..pairs {
        let (a, b) = (first[pair], rest[pair]);
        first[pair] = a * cos[pair] - b * sin[pair];
        rest[pair] = b * cos[pair] + a * sin[pair];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    #[test]
    fn keeps_lengths_and_depends_on_distance_alone() {
        let rotation = Rotation::new(8, 10_000.0, None);
        let turned = |x: &[f32], position| {
            let mut turns = vec![0.0; rotation.dims()];
            rotation.at(position, &mut turns);
            let mut x = x.to_vec();
            rotate(&mut x, &turns);
            x
        };
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let (q, k) = (random(12, 1), random(12, 2));
        assert_close(&turned(&q, 0), &q, 0.0);
        assert!((dot(&turned(&q, 77), &turned(&q, 77)) - dot(&q, &q)).abs() < 1e-5);
        assert!((dot(&turned(&q, 9), &turned(&k, 4)) - dot(&turned(&q, 1005), &turned(&k, 1000))).abs() < 1e-4);
        assert_eq!(turned(&q, 77)[8..], q[8..]);
    }

    #[test]
    fn a_stretch_keeps_fast_pairs_and_slows_the_others() {
        let magnitude = 1.25;
        let yarn = Yarn { factor: 4.0, original_ctx: 128, beta_fast: 32.0, beta_slow: 1.0, magnitude, truncate: true };
        let (plain, stretched) = (Rotation::new(64, 1e6, None), Rotation::new(64, 1e6, Some(yarn)));
        assert_eq!(plain.frequencies[0], stretched.frequencies[0]);
        assert!((plain.frequencies[31] / stretched.frequencies[31] - 4.0).abs() < 1e-9);
        assert_eq!(stretched.magnitude, magnitude);
    }
}
