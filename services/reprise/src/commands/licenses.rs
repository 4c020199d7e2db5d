//! `reprise licenses`: under which licences this program, and what it is made of, may be used and passed on.

use std::io::Write;

pub fn print() {
    let mut out = std::io::stdout().lock();
    // A reader that has seen enough is no failure.
    let _ = write!(out, "{}\n{}", include_str!("../../../../LICENSE"), include_str!("../../../../THIRD-PARTY.txt"));
}
