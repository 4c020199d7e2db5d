//! Random numbers that are the same in each run.

pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    pub fn below(&mut self, most: usize) -> usize {
        ((self.next() >> 33) % most.max(1) as u64) as usize
    }
}
