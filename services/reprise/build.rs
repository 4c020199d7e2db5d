//! Names the commit that the binary is made of. An archive made by git carries it in `commit.txt`, a container's build in
//! `REPRISE_COMMIT`; a clone asks git. Elsewhere it is "unknown": no build needs git.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=commit.txt");
    println!("cargo:rerun-if-env-changed=REPRISE_COMMIT");
    let commit = std::env::var("REPRISE_COMMIT").ok().or_else(of_archive).or_else(of_clone);
    let commit = commit.filter(|commit| is_commit(commit)).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=REPRISE_COMMIT={}", &commit[..commit.len().min(SHOWN)]);
}

const SHOWN: usize = 12; // characters of a commit

fn of_archive() -> Option<String> {
    let text = std::fs::read_to_string("commit.txt").ok()?;
    Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
}

fn of_clone() -> Option<String> {
    // Both change with a commit, a checkout and a reset. One that is not there would make cargo build each time.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file]).filter(|path| Path::new(path).exists()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

fn is_commit(text: &str) -> bool {
    text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}
