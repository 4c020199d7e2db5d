use crate::cpu::{CpuLevel, Lanes, at_level};

/// out = x / sqrt(mean(x²) + eps) · weight, for each row of `weight.len()` values.
pub fn rms_norm(level: CpuLevel, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(x.len() == out.len() && x.len().is_multiple_of(weight.len().max(1)));
    at_level!(level, rms_norm_body(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]))
}

pub fn rms_norm_in_place(level: CpuLevel, x: &mut [f32], weight: &[f32], eps: f32) {
    assert!(x.len().is_multiple_of(weight.len().max(1)));
    at_level!(level, rms_norm_in_place_body(x: &mut [f32], weight: &[f32], eps: f32))
}

/// Scales each row of `width` values to length `scale`: x / sqrt(sum(x²) + eps) · scale.
pub fn l2_norm_in_place(level: CpuLevel, x: &mut [f32], width: usize, eps: f32, scale: f32) {
    assert!(width > 0 && x.len().is_multiple_of(width));
    at_level!(level, l2_norm_body(x: &mut [f32], width: usize, eps: f32, scale: f32))
}

/// Moves each row to mean 0 and variance 1, then scales and shifts it: (x - mean) / sqrt(variance + eps) · weight + bias.
pub fn layer_norm_in_place(level: CpuLevel, x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    assert!(weight.len() == bias.len() && x.len().is_multiple_of(weight.len().max(1)));
    at_level!(level, layer_norm_body(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32))
}

#[inline(always)]
fn layer_norm_body<L: Lanes>(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f32) {
    let width = weight.len();
    for x in x.chunks_exact_mut(width.max(1)) {
        let mean = sum(x) / width as f32;
        x.iter_mut().for_each(|x| *x -= mean);
        let scale = 1.0 / (sum_of_squares(x) / width as f32 + eps).sqrt();
        for ((x, w), b) in x.iter_mut().zip(weight).zip(bias) {
            *x = L::madd_one(*x * scale, *w, *b);
        }
    }
}

#[inline(always)]
fn rms_norm_body<L: Lanes>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let width = weight.len();
    for (x, out) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
        let scale = 1.0 / (sum_of_squares(x) / width as f32 + eps).sqrt();
        for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * w;
        }
    }
}

#[inline(always)]
fn rms_norm_in_place_body<L: Lanes>(x: &mut [f32], weight: &[f32], eps: f32) {
    let width = weight.len();
    for x in x.chunks_exact_mut(width) {
        let scale = 1.0 / (sum_of_squares(x) / width as f32 + eps).sqrt();
        for (x, w) in x.iter_mut().zip(weight) {
            *x = *x * scale * w;
        }
    }
}

#[inline(always)]
fn l2_norm_body<L: Lanes>(x: &mut [f32], width: usize, eps: f32, scale: f32) {
    for x in x.chunks_exact_mut(width) {
        let scale = scale / (sum_of_squares(x) + eps).sqrt();
        x.iter_mut().for_each(|x| *x *= scale);
    }
}

#[inline(always)]
fn sum(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = x.as_chunks::<16>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Sums in sixteen lanes, so that the compiler may use wide registers without reordering one long sum.
#[inline(always)]
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let chunks = x.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x * x;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, random};

    #[test]
    fn as_the_reference_at_every_level_and_width() {
        for level in CpuLevel::available() {
            for width in [1, 3, 15, 16, 17, 64, 127, 256] {
                let (x, weight) = (random(width * 3, 1), random(width, 2));
                let mut out = vec![f32::NAN; x.len()];
                rms_norm(level, &x, &weight, 1e-6, &mut out);
                assert_close(&out, &reference::rms_norm(&x, &weight, 1e-6), 1e-6);
                let mut in_place = x.clone();
                rms_norm_in_place(level, &mut in_place, &weight, 1e-6);
                assert_eq!(in_place, out);
                let mut unit = x.clone();
                l2_norm_in_place(level, &mut unit, width, 1e-6, 0.25);
                assert_close(&unit, &reference::l2_norm(&x, width, 1e-6, 0.25), 1e-6);
                let bias = random(width, 3);
                let mut even = x.clone();
                layer_norm_in_place(level, &mut even, &weight, &bias, 1e-6);
                assert_close(&even, &reference::layer_norm(&x, &weight, &bias, 1e-6), 1e-5);
            }
        }
    }
}
