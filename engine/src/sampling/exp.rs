//! `exp` for numbers of zero or less, from additions and multiplications alone.
//!
//! The platform's `expf` differs in its last bit between C libraries, and one bit decides which token a draw falls on.
//! This one gives the same bits everywhere, and the compiler can vectorise it.

/// Computes e^x for x ≤ 0, within 2 units in the last place; 0 below -87, where f32 leaves its normal range, and for
/// NaN and numbers above 0, which only a broken logit gives.
#[inline(always)]
pub fn exp_of_negative(x: f32) -> f32 {
    const LN_2_HIGH: f32 = 0.693_359_4; // 355 / 512: few bits, so its products with small integers are exact
    const LN_2_LOW: f32 = -2.121_944_4e-4; // the rest of ln 2
    // 1.5 × 2^23: adding it rounds to an integer, which is then in the lowest bits.
    const ROUNDER: f32 = 12_582_912.0;
    let inside = u32::from(x >= -87.0) & u32::from(x <= 0.0);
    let x = x.clamp(-87.0, 0.0);
    let rounded = x * std::f32::consts::LOG2_E + ROUNDER;
    let whole = rounded - ROUNDER;
    let r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    // The Taylor series; |r| ≤ 0.35, so the first missing term is below 2^-27.
    let mut sum = 1.0 / 5040.0;
    sum = sum * r + 1.0 / 720.0;
    sum = sum * r + 1.0 / 120.0;
    sum = sum * r + 1.0 / 24.0;
    sum = sum * r + 1.0 / 6.0;
    sum = sum * r + 0.5;
    sum = sum * r + 1.0;
    sum = sum * r + 1.0;
    // 2^whole, made of its exponent bits; the rounder's own bits are shifted out.
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    // A mask instead of a branch, which would keep the loop around this from being vectorised.
    f32::from_bits((sum * power).to_bits() & inside.wrapping_neg())
}

#[cfg(test)]
mod tests {
    use super::exp_of_negative;

    #[test]
    fn agrees_with_exp_to_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for step in 0..=870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            let unit = f64::from(f32::EPSILON) * exact;
            worst = worst.max((f64::from(exp_of_negative(x)) - exact).abs() / unit);
        }
        assert!(worst <= 2.0, "{worst} units");
    }

    #[test]
    fn the_ends_are_exact() {
        assert_eq!(exp_of_negative(0.0), 1.0);
        assert_eq!(exp_of_negative(-0.0), 1.0);
        assert_eq!(exp_of_negative(-87.1), 0.0);
        assert_eq!(exp_of_negative(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_of_negative(f32::MIN), 0.0);
        assert_eq!(exp_of_negative(f32::NAN), 0.0);
        assert_eq!(exp_of_negative(f32::INFINITY), 0.0);
    }

    /// A golden: these bits must never change, because saved seeds give the same text only while they do not.
    /// Recipe: `exp_of_negative(x).to_bits()` of the values, on x86-64.
    #[test]
    fn the_bits_are_pinned() {
        let bits: Vec<u32> =
            [-0.1f32, -1.0, -3.3, -20.0, -86.9].iter().map(|x| exp_of_negative(*x).to_bits()).collect();
        assert_eq!(bits, [1_063_756_653, 1_052_531_378, 1_024_922_318, 822_977_587, 12_980_105]);
    }
}
