//! WAV: a head of 44 bytes before samples of 16 bits, and a reader of the form that other programs write.

use crate::pcm::SampleBytes;

pub const HEAD_BYTES: usize = 44;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wav {
    pub rate: u32,
    pub samples: Vec<i16>,
}

// Form of a file's samples, and the byte at which they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WavHead {
    pub rate: u32,
    pub channels: usize,
    pub begin: usize,
}

/// Head before this number of samples in one channel. `None`: the number is not known yet.
pub fn head(rate: u32, samples: Option<u32>) -> [u8; HEAD_BYTES] {
    let bytes = samples.map(|samples| samples.saturating_mul(2)).unwrap_or(u32::MAX);
    let mut head = [0; HEAD_BYTES];
    let fields: [(usize, &[u8]); 9] = [
        (0, b"RIFF"),
        (4, &bytes.saturating_add(36).to_le_bytes()),
        (8, b"WAVEfmt "),
        (16, &16_u32.to_le_bytes()),
        (20, &[1, 0, 1, 0]),
        (24, &rate.to_le_bytes()),
        (28, &rate.saturating_mul(2).to_le_bytes()),
        (32, &[2, 0, 16, 0]),
        (36, b"data"),
    ];
    for (at, field) in fields {
        head[at..at + field.len()].copy_from_slice(field);
    }
    head[40..].copy_from_slice(&bytes.to_le_bytes());
    head
}

pub fn file(rate: u32, samples: &[i16]) -> Vec<u8> {
    let mut file = head(rate, Some(u32::try_from(samples.len()).unwrap_or(u32::MAX))).to_vec();
    file.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
    file
}

/// Reads samples of 16 bits in one or two channels. `None`: the bytes are no such file. A length that lies, as of a
/// file that was still being written, ends with the bytes.
pub fn read(bytes: &[u8]) -> Option<Wav> {
    let (WavHead { rate, channels, begin }, length) = data(bytes)?;
    let data = &bytes[begin..begin.saturating_add(length).min(bytes.len())];
    let samples = SampleBytes::default().push(data);
    let samples = match channels {
        1 => samples,
        _ => samples.chunks_exact(2).map(|pair| ((i32::from(pair[0]) + i32::from(pair[1])) / 2) as i16).collect(),
    };
    Some(Wav { rate, samples })
}

// Reads the head of a file whose samples may still come. `None`: the bytes are no such file, or not all of its head.
pub fn read_head(bytes: &[u8]) -> Option<WavHead> {
    data(bytes).map(|(head, _)| head)
}

// Finds the samples, and their bytes as the file tells them.
fn data(bytes: &[u8]) -> Option<(WavHead, usize)> {
    if bytes.get(..4)? != b"RIFF" || bytes.get(8..12)? != b"WAVE" {
        return None;
    }
    let (mut at, mut form) = (12, None);
    loop {
        let (kind, length) = (bytes.get(at..at + 4)?, number(bytes, at + 4, 4)? as usize);
        let body = at + 8;
        match kind {
            b"fmt " => {
                let [code, channels] = [number(bytes, body, 2)?, number(bytes, body + 2, 2)?];
                let [rate, bits] = [number(bytes, body + 4, 4)?, number(bytes, body + 14, 2)?];
                // 0xFFFE: the extended form, which most programs fill with the same.
                let is_plain = [1, 0xFFFE].contains(&code) && bits == 16 && (1..=2).contains(&channels);
                form = Some((rate, channels)).filter(|_| is_plain && rate > 0);
                form?;
            }
            b"data" => {
                let (rate, channels) = form?;
                return Some((WavHead { rate, channels: channels as usize, begin: body }, length));
            }
            _ => {}
        }
        at = body.checked_add(length)?.checked_add(length % 2)?;
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u32> {
    let mut whole = [0; 4];
    whole[..length].copy_from_slice(bytes.get(at..at + length)?);
    Some(u32::from_le_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_file_that_was_still_being_written_ends_with_its_bytes() {
        let mut file = head(22_050, None).to_vec();
        file.extend([1, 0, 2, 0, 3]);
        assert_eq!(read(&file), Some(Wav { rate: 22_050, samples: vec![1, 2] }));
    }

    #[test]
    fn two_channels_become_one_and_other_forms_are_refused() {
        let mut stereo = file(8000, &[10, 20, -4, 4]);
        stereo[22] = 2;
        assert_eq!(read(&stereo).unwrap().samples, [15, 0]);
        for (at, value) in [(20, 3), (22, 3), (22, 0), (34, 8), (0, b'X'), (8, b'X')] {
            let mut wrong = file(8000, &[10, 20]);
            wrong[at] = value;
            assert_eq!(read(&wrong), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(samples in prop::collection::vec(any::<i16>(), 0..50), rate in 1_u32..100_000) {
            prop_assert_eq!(read(&file(rate, &samples)), Some(Wav { rate, samples }));
        }

        #[test]
        fn random_bytes_break_nothing(bytes in prop::collection::vec(any::<u8>(), 0..80), head_too in any::<bool>()) {
            let mut file = if head_too { head(8000, None).to_vec() } else { Vec::new() };
            file.extend(bytes);
            read(&file);
            file.iter_mut().skip(16).step_by(3).for_each(|byte| *byte ^= 0x5A);
            read(&file);
        }
    }
}
