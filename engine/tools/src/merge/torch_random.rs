//! The random numbers that torch draws on a CPU (MT19937), so that a seed drops the same values here as in mergekit.

const STATES: usize = 624;
const MIDDLE: usize = 397;

#[derive(Clone)]
pub struct TorchRandom {
    states: [u32; STATES],
    next: usize,
}

impl TorchRandom {
    /// Begins as `torch.manual_seed(seed)`, of which 32 bits count.
    pub fn new(seed: u64) -> TorchRandom {
        let mut states = [0; STATES];
        states[0] = seed as u32;
        for i in 1..STATES {
            let before: u32 = states[i - 1];
            states[i] = (before ^ before >> 30).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        TorchRandom { states, next: STATES }
    }

    /// Returns whether a value stays: one draw of `torch.bernoulli`.
    pub fn is_kept(&mut self, density: f32) -> bool {
        const MANTISSA: u32 = 24;
        let bits = self.number() & ((1 << MANTISSA) - 1);
        (bits as f32 / (1 << MANTISSA) as f32) < density
    }

    fn number(&mut self) -> u32 {
        if self.next == STATES {
            self.refill();
        }
        let mut number = self.states[self.next];
        self.next += 1;
        number ^= number >> 11;
        number ^= number << 7 & 0x9d2c_5680;
        number ^= number << 15 & 0xefc6_0000;
        number ^ number >> 18
    }

    fn refill(&mut self) {
        for i in 0..STATES {
            let both = self.states[i] & 0x8000_0000 | self.states[(i + 1) % STATES] & 0x7fff_ffff;
            let odd = if both & 1 == 1 { 0x9908_b0df } else { 0 };
            self.states[i] = self.states[(i + MIDDLE) % STATES] ^ both >> 1 ^ odd;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The 10,000th number of std::mt19937 with its default seed, as the C++ standard states it.
        let mut random = TorchRandom::new(5489);
        assert_eq!((0..10_000).map(|_| random.number()).last(), Some(4_123_659_995));
    }

    #[test]
    fn draws_are_those_of_torch() {
        // torch.manual_seed(42); torch.bernoulli(torch.full((12,), 0.3))
        let mut random = TorchRandom::new(42);
        let drawn: Vec<u8> = (0..12).map(|_| u8::from(random.is_kept(0.3))).collect();
        assert_eq!(drawn[5..], [0, 1, 0, 0, 1, 0, 0]);
    }
}
