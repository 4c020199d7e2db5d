//! Instruction sets of this processor, detected once at start, held as a value, printed.

/// Levels in order: a higher one has all instructions of a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CpuLevel {
    Portable,
    Avx2,
    /// AVX-512 F, BW, DQ, VL and VNNI.
    Avx512,
}

impl CpuLevel {
    pub fn available() -> impl Iterator<Item = CpuLevel> {
        let highest = CpuLevel::detect();
        [CpuLevel::Portable, CpuLevel::Avx2, CpuLevel::Avx512].into_iter().filter(move |level| *level <= highest)
    }

    pub fn detect() -> CpuLevel {
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
                return CpuLevel::Avx512;
            }
            if avx2 {
                return CpuLevel::Avx2;
            }
        }
        CpuLevel::Portable
    }

    pub fn name(self) -> &'static str {
        match self {
            CpuLevel::Portable => "portable",
            CpuLevel::Avx2 => "avx2",
            CpuLevel::Avx512 => "avx512-vnni",
        }
    }
}
