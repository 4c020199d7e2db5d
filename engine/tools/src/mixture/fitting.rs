//! Formats under a limit of bytes: each byte goes to the tensor where it takes away most error.

use kernels::format::Format;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredFormat {
    pub format: Format,
    pub bytes: u64,
    /// Cost of its rounding, comparable between tensors.
    pub error: f64,
}

/// Step of a tensor from a format to a larger one.
struct Step {
    tensor: usize,
    to: usize,
    bytes: u64,
    gain: f64,
}

/// Chooses a format for each tensor, so that all together take no more than `room`. Err: the least bytes that they take.
pub fn choose(tensors: &[Vec<MeasuredFormat>], room: u64) -> Result<Vec<MeasuredFormat>, u64> {
    let tensors: Vec<Vec<MeasuredFormat>> = tensors.iter().map(|formats| worth_their_bytes(formats)).collect();
    let mut chosen: Vec<MeasuredFormat> = tensors.iter().filter_map(|formats| formats.first().copied()).collect();
    let mut used: u64 = chosen.iter().map(|format| format.bytes).sum();
    if used > room {
        return Err(used);
    }
    let mut steps: Vec<Step> =
        tensors.iter().enumerate().flat_map(|(tensor, formats)| steps(tensor, formats)).collect();
    // Steps of one tensor stay in their order: each gains less than the one before.
    steps.sort_by(|a, b| b.gain.total_cmp(&a.gain));
    let mut is_ended = vec![false; tensors.len()];
    for Step { tensor, to, bytes, .. } in steps {
        if is_ended[tensor] || used + bytes > room {
            is_ended[tensor] = true;
            continue;
        }
        used += bytes;
        chosen[tensor] = tensors[tensor][to];
    }
    Ok(chosen)
}

/// Returns the formats by their bytes, without those that another, or a mixture of two others, surpasses.
fn worth_their_bytes(formats: &[MeasuredFormat]) -> Vec<MeasuredFormat> {
    let mut sorted = formats.to_vec();
    sorted.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.error.total_cmp(&b.error)));
    let mut kept: Vec<MeasuredFormat> = Vec::new();
    for format in sorted {
        if kept.last().is_some_and(|last| format.error >= last.error || format.bytes == last.bytes) {
            continue;
        }
        while let [.., before, last] = kept[..]
            && gain(&before, &last) <= gain(&last, &format)
        {
            kept.pop();
        }
        kept.push(format);
    }
    kept
}

fn gain(from: &MeasuredFormat, to: &MeasuredFormat) -> f64 {
    (from.error - to.error) / (to.bytes - from.bytes) as f64
}

fn steps(tensor: usize, formats: &[MeasuredFormat]) -> impl Iterator<Item = Step> {
    formats.windows(2).enumerate().map(move |(at, pair)| Step {
        tensor,
        to: at + 1,
        bytes: pair[1].bytes - pair[0].bytes,
        gain: gain(&pair[0], &pair[1]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formats(of: &[(u64, f64)]) -> Vec<MeasuredFormat> {
        of.iter().map(|&(bytes, error)| MeasuredFormat { format: Format::Q8_0, bytes, error }).collect()
    }

    fn bytes(tensors: &[Vec<MeasuredFormat>], room: u64) -> Result<Vec<u64>, u64> {
        choose(tensors, room).map(|chosen| chosen.iter().map(|format| format.bytes).collect())
    }

    #[test]
    fn bytes_go_where_they_take_away_most_error() {
        let tensors = [formats(&[(4, 1.0), (6, 0.5), (8, 0.4)]), formats(&[(4, 9.0), (6, 2.0), (8, 1.8)])];
        assert_eq!(bytes(&tensors, 7), Err(8));
        assert_eq!(bytes(&tensors, 8), Ok(vec![4, 4]));
        assert_eq!(bytes(&tensors, 11), Ok(vec![4, 6]));
        assert_eq!(bytes(&tensors, 12), Ok(vec![6, 6]));
        assert_eq!(bytes(&tensors, 14), Ok(vec![6, 8]));
        assert_eq!(bytes(&tensors, 1000), Ok(vec![8, 8]));
    }

    #[test]
    fn a_step_that_does_not_fit_leaves_its_room_to_others() {
        let tensors = [formats(&[(10, 9.0), (100, 0.0)]), formats(&[(10, 0.3), (12, 0.2)])];
        assert_eq!(bytes(&tensors, 30), Ok(vec![10, 12]));
    }

    #[test]
    fn formats_that_others_surpass_are_not_taken() {
        // One with more error for more bytes, one on the way of a better step, and one of the same bytes.
        let one = formats(&[(4, 1.0), (5, 1.1), (6, 0.9), (8, 0.1), (8, 0.2)]);
        assert_eq!(worth_their_bytes(&one), formats(&[(4, 1.0), (8, 0.1)]));
        assert_eq!(bytes(&[one], 7), Ok(vec![4]));
    }
}
