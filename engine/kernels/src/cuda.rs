//! The sources of the kernels for NVIDIA GPUs. They lie beside their twins for CPUs, whose tests hold both together;
//! `gpu` compiles and starts them.

/// Kernels that are compiled together.
pub struct Program {
    pub name: &'static str,
    pub parts: &'static [&'static str],
}

impl Program {
    /// What the compiler is given: no header but our own.
    pub fn source(&self) -> String {
        self.parts.concat()
    }
}

/// Types, and the processor's operations under names that the emulator has too.
pub const PRELUDE: &str = include_str!("cuda/prelude.cuh");
const ROWS: &str = include_str!("cuda/rows.cuh");
const FORMATS: &str = include_str!("cuda/formats.cuh");
const VALUES: &str = include_str!("cuda/values.cuh");
const LANES: &str = include_str!("cuda/lanes.cuh");
const PRODUCT: &str = include_str!("cuda/product.cuh");

pub const PROGRAMS: &[Program] = &[
    Program { name: "norm", parts: &[PRELUDE, ROWS, include_str!("norm.cu")] },
    Program { name: "activation", parts: &[PRELUDE, ROWS, include_str!("activation.cu")] },
    Program { name: "rotation", parts: &[PRELUDE, LANES, include_str!("rotation.cu")] },
    Program { name: "convolution", parts: &[PRELUDE, LANES, include_str!("convolution.cu")] },
    Program { name: "delta", parts: &[PRELUDE, LANES, include_str!("delta.cu")] },
    Program {
        name: "attention",
        parts: &[
            PRELUDE,
            ROWS,
            FORMATS,
            VALUES,
            LANES,
            include_str!("attention.cu"),
            include_str!("attention/tile.cuh"),
            include_str!("attention/few.cu"),
            include_str!("attention/many.cu"),
        ],
    },
    Program { name: "snapshot", parts: &[PRELUDE, FORMATS, VALUES, include_str!("snapshot.cu")] },
    Program { name: "routing", parts: &[PRELUDE, include_str!("routing.cu")] },
    Program { name: "vec", parts: &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/vec.cu")] },
    Program { name: "tiles", parts: &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/tiles.cu")] },
];
