//! The migrations are compiled in: a new file in the folder must reach the binary.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
