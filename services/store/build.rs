//! Rebuilds for a new migration: the binary contains the folder.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
