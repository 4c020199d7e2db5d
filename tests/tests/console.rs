//! The page at `/` and its client library: their own tests, run by Node and in Chromium against the real binary. They need the packages
//! of `services/console` (`npm ci` there), and skip without them.

use std::path::{Path, PathBuf};
use std::process::Command;
use tests::house::files::root;

fn folder() -> PathBuf {
    root().join("services/console")
}

/// Runs a script of the page's package. Returns without it where its packages are not there.
fn run(script: &str) {
    let is_there = |path: &str| Path::new(&folder()).join(path).exists();
    if !is_there("node_modules/preact") {
        println!("skipped: the page's packages are not there (npm ci --prefix services/console)");
        assert!(std::env::var_os("REQUIRE_CONSOLE").is_none(), "the page's packages were to be there");
        return;
    }
    let mut command = Command::new("npm");
    command.args(["run", script]).current_dir(folder()).env("REPRISE", tests::reprise::binary());
    let output = command.output().expect("npm runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(output.status.success(), "npm run {script} fails");
    // A run of no tests is no success.
    assert!(script == "check" || text.lines().any(|line| line.contains("ok 1")), "npm run {script} runs no test");
}

#[test]
fn the_built_page_and_the_types_are_what_their_sources_say() {
    run("check");
}

#[test]
fn the_client_library_talks() {
    run("test");
}

#[test]
fn people_use_the_page() {
    run("browser");
}
