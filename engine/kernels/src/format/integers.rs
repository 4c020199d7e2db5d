/// 256 consecutive values of a row: value `i` is `scale[i / 16] * q[i] + min[i / 16]`, exactly as `dequantize` gives it.
///
/// Formats without a minimum have -0.0 there and not 0.0: adding it changes nothing, not even the sign of a zero.
#[derive(Clone, Debug, PartialEq)]
#[repr(C, align(64))]
pub struct Ints {
    pub q: [i8; 256],
    pub scale: [f32; 16],
    pub min: [f32; 16],
}

impl Default for Ints {
    fn default() -> Ints {
        Ints { q: [0; 256], scale: [0.0; 16], min: [-0.0; 16] }
    }
}

impl Ints {
    pub fn to_values(&self, out: &mut [f32; 256]) {
        for group in 0..16 {
            let (scale, min) = (self.scale[group], self.min[group]);
            for i in 16 * group..16 * group + 16 {
                out[i] = scale * f32::from(self.q[i]) + min;
            }
        }
    }
}
