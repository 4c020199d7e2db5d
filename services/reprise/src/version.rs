//! Version of the binary, such as `0.1.0 (1d483919e1a5)`, and in its long form the level of the kernels on this processor.

use std::sync::LazyLock;

pub fn short() -> &'static str {
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("REPRISE_COMMIT"), ")")
}

pub fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let level = engine::Cpu::new(1).level.name();
        format!("{}\n{} {}, kernels {level}", short(), std::env::consts::OS, std::env::consts::ARCH)
    });
    &LONG
}
