//! Prints the folder of the stand-in driver, for a library path.
//!
//!     LD_LIBRARY_PATH=$(cargo run --quiet --package testing --example stand_in -- /tmp/stand-in) reprise doctor

use std::path::Path;

use testing::stand_in;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "stand-in".to_string());
    match stand_in::libraries(Path::new(&folder)) {
        Ok(libraries) => println!("{}", libraries.display()),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    }
}
