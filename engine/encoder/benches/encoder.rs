//! Measures a sentence by its length, and a search among vectors: `REPRISE_ENCODER=FOLDER cargo bench -p encoder`.
//!
//! Two threads, the shortest of many runs, which other programs disturbed least.

use encoder::{Encoder, VectorRows, rounded};
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

const WORDS: [&str; 8] = ["where", "does", "my", "sister", "keep", "the", "spare", "key"];
const ROWS: usize = 100_000; // not a window: vectors

fn main() {
    let Some(folder) = std::env::var_os("REPRISE_ENCODER") else {
        return println!("REPRISE_ENCODER names no folder of an encoder");
    };
    let encoder = Encoder::open(Path::new(&folder), 2).expect("the folder has an encoder");
    for count in [2, 4, 8, 12, 16, 32] {
        let sentence: Vec<&str> = WORDS.iter().copied().cycle().take(count).collect();
        let sentence = sentence.join(" ");
        println!("a sentence of {count:2} words {:8.2} ms", shortest(|| encoder.encode(&sentence)));
    }
    let query = rounded(&encoder.encode(&WORDS.join(" ")));
    let width = query.len();
    let byte = |at: usize| (at * 37 + at / 11) as i8;
    let rows: VectorRows =
        (0..ROWS).map(|row| (row * width..(row + 1) * width).map(byte).collect::<Vec<i8>>()).collect();
    println!("the nearest 64 of {ROWS} {:8.2} ms", shortest(|| rows.nearest(&query, 64)));
}

fn shortest<T>(run: impl Fn() -> T) -> f64 {
    let time = || {
        let began = Instant::now();
        black_box(run());
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..60).map(|_| time()).fold(f64::INFINITY, f64::min)
}
