//! `reprise licenses`: the licences of this program and its parts.

use std::io::Write;

pub fn print() {
    let mut out = std::io::stdout().lock();
    // A reader that has seen enough is no failure.
    let _ = write!(out, "{}\n{}", include_str!("../../../../LICENSE"), include_str!("../../../../THIRD-PARTY.txt"));
}
