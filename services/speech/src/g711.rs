//! µ-law and A-law (ITU-T G.711): one byte a sample, at 8,000 samples a second.

pub const RATE: u32 = 8000;

const MU_BIAS: i32 = 132;
const MU_LARGEST: i32 = 32_635;

pub fn mu_law_to_sample(byte: u8) -> i16 {
    let byte = !byte;
    let (exponent, mantissa) = (i32::from(byte >> 4 & 7), i32::from(byte & 15));
    let magnitude = (((mantissa << 3) + MU_BIAS) << exponent) - MU_BIAS;
    (if byte & 0x80 == 0 { magnitude } else { -magnitude }) as i16
}

pub fn sample_to_mu_law(sample: i16) -> u8 {
    // The law has 14 bits.
    let sample = i32::from(sample) >> 2 << 2;
    let magnitude = sample.abs().min(MU_LARGEST) + MU_BIAS;
    let exponent = (magnitude >> 7).max(1).ilog2();
    let mantissa = (magnitude >> (exponent + 3)) & 15;
    let sign = if sample < 0 { 0x80 } else { 0 };
    !(sign | (exponent as u8) << 4 | mantissa as u8)
}

pub fn a_law_to_sample(byte: u8) -> i16 {
    let byte = byte ^ 0x55;
    let (exponent, mantissa) = (i32::from(byte >> 4 & 7), i32::from(byte & 15) << 4);
    let magnitude = match exponent {
        0 => mantissa + 8,
        exponent => (mantissa + 0x108) << (exponent - 1),
    };
    (if byte & 0x80 == 0 { -magnitude } else { magnitude }) as i16
}

pub fn sample_to_a_law(sample: i16) -> u8 {
    // The law has 13 bits.
    let sample = i32::from(sample) >> 3;
    let (sign, magnitude) = if sample < 0 { (0, -sample - 1) } else { (0x80, sample) };
    let exponent = (magnitude >> 4).max(1).ilog2();
    let mantissa = match exponent {
        0 | 1 => magnitude >> 1 & 15,
        exponent => magnitude >> exponent & 15,
    };
    let segment = if magnitude < 32 { (magnitude >> 5) as u8 } else { exponent as u8 };
    (sign | segment << 4 | mantissa as u8) ^ 0x55
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sums of all values, computed with the module `audioop` of Python 3.11: `ulaw2lin`, `lin2ulaw` and their like over
    // every byte and every sample, each weighted with its place.
    const SUMS: [i64; 4] = [98_107_392, 100_139_008, 255_309_330_014, 297_161_535_488];

    #[test]
    fn both_laws_are_the_standard_ones() {
        let bytes = |decode: fn(u8) -> i16| (0..=255).map(|byte| i64::from(decode(byte)) * (i64::from(byte) + 1)).sum();
        let samples = |encode: fn(i16) -> u8| {
            (i16::MIN..=i16::MAX).map(|sample| i64::from(encode(sample)) * (i64::from(sample) + 32_769)).sum()
        };
        let found: [i64; 4] =
            [bytes(mu_law_to_sample), bytes(a_law_to_sample), samples(sample_to_mu_law), samples(sample_to_a_law)];
        assert_eq!(found, SUMS);
    }

    #[test]
    fn a_byte_comes_back_as_itself() {
        for byte in 0..=255 {
            // µ-law has two zeros.
            let expected = if byte == 0x7F { 0xFF } else { byte };
            assert_eq!(sample_to_mu_law(mu_law_to_sample(byte)), expected);
            assert_eq!(sample_to_a_law(a_law_to_sample(byte)), byte);
        }
    }
}
