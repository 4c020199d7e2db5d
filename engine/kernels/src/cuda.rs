//! Sources of the kernels for NVIDIA GPUs. They lie beside their twins for CPUs, whose tests hold both together; `gpu`
//! compiles and starts them.

pub struct Program {
    pub name: &'static str,
    pub parts: &'static [&'static str],
    /// Compute capability of the only GPUs with the instructions of this program; `None` for any.
    pub only_for: Option<u32>,
}

impl Program {
    pub fn is_for(&self, target: u32) -> bool {
        self.only_for.is_none_or(|only| only == target)
    }

    pub fn architecture(&self, target: u32) -> String {
        format!("sm_{target}{}", if self.only_for.is_some() { "a" } else { "" })
    }

    pub fn source(&self) -> String {
        self.parts.concat()
    }
}

pub const PRELUDE: &str = include_str!("cuda/prelude.cuh");
const ROWS: &str = include_str!("cuda/rows.cuh");
const FORMATS: &str = include_str!("cuda/formats.cuh");
const VALUES: &str = include_str!("cuda/values.cuh");
const HADAMARD: &str = include_str!("cuda/hadamard.cuh");
const LANES: &str = include_str!("cuda/lanes.cuh");
const GROUPS: &str = include_str!("cuda/groups.cuh");
const HALVES: &str = include_str!("cuda/halves.cuh");
const UNITS: &str = include_str!("cuda/units.cuh");
const PRODUCT: &str = include_str!("cuda/product.cuh");
const ATTENTION: &str = concat!(
    include_str!("attention.cu"),
    include_str!("attention/tile.cuh"),
    include_str!("attention/few.cu"),
    include_str!("attention/many.cu"),
);

pub const PROGRAMS: &[Program] = &[
    program("norm", &[PRELUDE, ROWS, include_str!("norm.cu")]),
    program("activation", &[PRELUDE, ROWS, include_str!("activation.cu")]),
    program("rotation", &[PRELUDE, LANES, include_str!("rotation.cu")]),
    program("convolution", &[PRELUDE, LANES, include_str!("convolution.cu")]),
    program("delta", &[PRELUDE, LANES, include_str!("delta.cu")]),
    program("attention", &[PRELUDE, ROWS, FORMATS, VALUES, HADAMARD, LANES, ATTENTION]),
    program("snapshot", &[PRELUDE, FORMATS, VALUES, include_str!("snapshot.cu")]),
    program("routing", &[PRELUDE, include_str!("routing.cu")]),
    program("vec", &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/vec.cu")]),
    program("one", &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/one.cu")]),
    program("few", &[PRELUDE, ROWS, FORMATS, PRODUCT, UNITS, include_str!("product/few.cu")]),
    program("batch", &[PRELUDE, ROWS, FORMATS, PRODUCT, UNITS, include_str!("product/batch.cu")]),
    program("tiles", &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/tiles.cu")]),
    program("exact", &[PRELUDE, ROWS, FORMATS, PRODUCT, include_str!("product/exact.cu")]),
    Program {
        only_for: Some(90),
        ..program("groups", &[PRELUDE, ROWS, FORMATS, PRODUCT, GROUPS, HALVES, include_str!("product/groups.cu")])
    },
];

const fn program(name: &'static str, parts: &'static [&'static str]) -> Program {
    Program { name, parts, only_for: None }
}
