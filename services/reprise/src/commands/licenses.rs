//! `reprise licenses`: the licences of this program and its parts.

use anyhow::Result;
use terminal::output::put;

pub fn print() -> Result<()> {
    let [own, parts] = [include_str!("../../../../LICENSE"), include_str!("../../../../THIRD-PARTY.txt")];
    Ok(put(format_args!("{own}\n{parts}"))?)
}
