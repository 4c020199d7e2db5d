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

pub const PROGRAMS: &[Program] = &[
    Program { name: "norm", parts: &[PRELUDE, ROWS, include_str!("norm.cu")] },
    Program { name: "activation", parts: &[PRELUDE, ROWS, include_str!("activation.cu")] },
];
