//! Samples of 16 bits, little endian.

/// Collects bytes to samples. A piece may end inside a sample.
#[derive(Clone, Debug, Default)]
pub struct SampleBytes {
    half: Option<u8>,
}

impl SampleBytes {
    pub fn push(&mut self, bytes: &[u8]) -> Vec<i16> {
        let (mut samples, mut bytes) = (Vec::with_capacity(bytes.len() / 2 + 1), bytes);
        if let (Some(low), [high, rest @ ..]) = (self.half, bytes) {
            samples.push(i16::from_le_bytes([low, *high]));
            (self.half, bytes) = (None, rest);
        }
        let (pairs, left) = bytes.as_chunks();
        samples.extend(pairs.iter().map(|pair| i16::from_le_bytes(*pair)));
        self.half = left.first().copied().or(self.half);
        samples
    }

    pub fn is_inside(&self) -> bool {
        self.half.is_some()
    }
}

pub fn to_bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cuts_change_nothing(samples in prop::collection::vec(any::<i16>(), 0..60), cuts in prop::collection::vec(1_usize..9, 1..9)) {
            let (bytes, mut reader, mut read) = (to_bytes(&samples), SampleBytes::default(), Vec::new());
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, more) = rest.split_at((*cut).min(rest.len()));
                read.extend(reader.push(piece));
                rest = more;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(&read, &samples);
            prop_assert!(!reader.is_inside());
            reader.push(&[1]);
            prop_assert!(reader.is_inside());
        }
    }
}
