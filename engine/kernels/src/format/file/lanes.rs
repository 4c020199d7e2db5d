//! Groups side by side: value i of eight groups in one register, so that each group's sums keep their order.

pub const LANES: usize = 8;
pub type Lanes = [f32; LANES];

pub fn side_by_side<const N: usize>(groups: &[[f32; N]]) -> [Lanes; N] {
    let mut out = [[0.0; LANES]; N];
    for (lane, group) in groups.iter().enumerate().take(LANES) {
        for i in 0..N {
            out[i][lane] = group[i];
        }
    }
    out
}

pub fn codes_of<const N: usize>(codes: &[[i32; LANES]; N], lane: usize) -> [u8; N] {
    std::array::from_fn(|i| codes[i][lane] as u8)
}

/// Defines a function in two versions, of which the second is compiled for wide registers. Neither fuses products and sums.
macro_rules! for_wide_registers {
    ($(#[$doc:meta])* fn $name:ident<const N: usize>($($arg:ident: $kind:ty),* $(,)?) -> $out:ty, $wide:ident, $plain:ident) => {
        $(#[$doc])*
        pub fn $name<const N: usize>($($arg: $kind),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                return unsafe { $wide($($arg),*) };
            }
            $plain($($arg),*)
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2")]
        fn $wide<const N: usize>($($arg: $kind),*) -> $out {
            $plain($($arg),*)
        }
    };
}
pub(super) use for_wide_registers;
