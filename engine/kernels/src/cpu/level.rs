//! Which instructions this processor has. Found once at start, held as a value, printed.

/// Ordered: a higher level has all that a lower one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what the target always has.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    pub fn detect() -> Level {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                return Level::Avx512;
            }
            if avx2 {
                return Level::Avx2;
            }
        }
        Level::Portable
    }

    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512-vnni",
        }
    }
}

/// Compiles one body for every level and calls the one that fits.
///
/// `levels!(level, body::<FMA>(args))`: the body is `#[inline(always)]`, so each copy is vectorised with the
/// instructions of its level. `FMA` tells it whether `mul_add` is one instruction (without the hardware it is a slow
/// library call).
macro_rules! levels {
    ($level:expr, $body:ident ( $($arg:ident : $ty:ty),* $(,)? )) => {{
        #[cfg(target_arch = "x86_64")]
        {
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2($($arg: $ty),*) {
                $body::<true>($($arg),*)
            }
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
            fn avx512($($arg: $ty),*) {
                $body::<true>($($arg),*)
            }
            match $level {
                // SAFETY: `Level::detect` is the only source of a level above portable, and it asked the processor.
                $crate::cpu::Level::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                $crate::cpu::Level::Avx2 => unsafe { avx2($($arg),*) },
                $crate::cpu::Level::Portable => $body::<false>($($arg),*),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        $body::<false>($($arg),*)
    }};
}
pub(crate) use levels;

/// a * b + c in the form that is fast at this level.
#[inline(always)]
pub(crate) fn madd<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}
