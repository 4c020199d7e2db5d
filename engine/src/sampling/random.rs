//! The source of chance: SplitMix64 (Steele, Lea and Flood 2014), a counter put through a mixing function.
//!
//! The n-th number depends on the seed and on n alone. That is all the state there is, it is the same on every
//! platform, and it passes the usual batteries of statistical tests.

#[derive(Debug, Clone)]
pub struct SplitMix64 {
    counter: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> SplitMix64 {
        // Mixed once, so that the streams of seeds that differ by the increment do not overlap.
        SplitMix64 { counter: mix(seed) }
    }

    /// Draws evenly from [0, 1), in steps of 2^-53.
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.counter)
    }
}

fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector of SplitMix64: seed 1234567, here set as the counter because `new` mixes it first.
    #[test]
    fn is_the_published_generator() {
        let mut random = SplitMix64 { counter: 1_234_567 };
        let numbers: Vec<u64> = (0..5).map(|_| random.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(numbers, published);
    }

    #[test]
    fn units_are_even_and_below_one() {
        let mut random = SplitMix64::new(3);
        let mut counts = [0u32; 16];
        for _ in 0..160_000 {
            let unit = random.next_unit();
            assert!((0.0..1.0).contains(&unit));
            counts[(unit * 16.0) as usize] += 1;
        }
        // Five standard deviations of a count with mean 10,000.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 485), "{counts:?}");
    }
}
