//! The real binary, built once for each run of the tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// `cargo test --workspace` does not build a binary that only another package's tests start, so this builds it, with the
/// profile of the tests. `REPRISE_BINARY` names another binary to test, such as the one of a release.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let built = || build(&["--bin", "reprise"]).expect("the binary builds");
    BINARY.get_or_init(|| std::env::var_os("REPRISE_BINARY").map_or_else(built, PathBuf::from))
}

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(folder).env_clear().env("HOME", folder);
    command
}

/// Builds a binary or an example with the features that the whole workspace and its tests give dependencies: `cargo test --workspace`
/// has built them so. With those of one package, or without those of tests, many would be built a second time.
pub fn build(target: &[&str]) -> Option<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_string());
    let mut build = Command::new(cargo);
    // What cargo tells a test of its package makes build scripts run again, and all above them is built again.
    let of_package = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for name in std::env::vars().map(|(name, _)| name).filter(of_package) {
        build.env_remove(name);
    }
    let output = build
        .args(["build", "--workspace", "--message-format", "json-render-diagnostics"])
        .args(target)
        // Any test brings the features.
        .args(["--test", "seeds"])
        .args(if cfg!(debug_assertions) { &[][..] } else { &["--release"] })
        .current_dir(crate::house::files::root())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs");
    if !output.status.success() {
        return None;
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_test = message["profile"]["test"] == true;
        message["executable"].as_str().filter(|_| !is_test).map(PathBuf::from)
    });
    executables.next_back()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_binary_is_built_and_is_a_file() {
        assert!(super::binary().is_file());
    }
}
