//! Random numbers by position: value i of a stream is known without those before it, so threads can start anywhere.

#[derive(Debug, Clone, Copy)]
pub struct RandomStream {
    key: u64,
}

impl RandomStream {
    /// The stream of this name: streams of other names or seeds have nothing to do with it.
    pub fn new(seed: u64, name: &str) -> RandomStream {
        let key = name.bytes().fold(mix(seed ^ 0x5851_f42d_4c95_7f2d), |key, byte| mix(key ^ u64::from(byte)));
        RandomStream { key }
    }

    pub fn bits(self, i: u64) -> u64 {
        mix(self.key.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// 0 ≤ value < 1
    pub fn uniform(self, i: u64) -> f32 {
        (self.bits(i) >> 40) as f32 * (1.0 / (1u64 << 24) as f32)
    }

    /// Mean 0, deviation 1, never further out than 3.5: the sum of the four 16-bit parts of one draw. Cheap, and the
    /// same on every machine, which a logarithm or a cosine need not be.
    pub fn normal(self, i: u64) -> f32 {
        const MEAN: i32 = 2 * 0xffff;
        const DEVIATION: f32 = 37_837.227;
        let bits = self.bits(i);
        let sum = (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        (sum as i32 - MEAN) as f32 * (1.0 / DEVIATION)
    }
}

/// Every bit of the result depends on every bit of the input (the finaliser of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_has_the_moments_of_a_bell() {
        let stream = RandomStream::new(3, "x");
        let count = 200_000u64;
        let mean = |power: i32| (0..count).map(|i| f64::from(stream.normal(i)).powi(power)).sum::<f64>() / count as f64;
        assert!(mean(1).abs() < 0.01, "mean {}", mean(1));
        assert!((mean(2) - 1.0).abs() < 0.01, "variance {}", mean(2));
        assert!(mean(3).abs() < 0.03, "skew {}", mean(3));
        // Four uniforms have 2.7 where a true bell has 3.
        assert!((mean(4) - 2.7).abs() < 0.05, "fourth moment {}", mean(4));
    }

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, name| (0..4).map(|i| RandomStream::new(seed, name).bits(i)).collect::<Vec<_>>();
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
    }
}
