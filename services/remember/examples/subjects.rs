//! Compares statements with older ones by whom and what they are about: reads lines `NEWER<tab>OLDER`, and prints five bits for each.
//! `models/heads/recipe/match.py` reads them.

use remember::{Aspects, ComparedStatement, Differences, about};
use std::io::{BufWriter, Write, stdin, stdout};

fn main() -> std::io::Result<()> {
    let mut out = BufWriter::new(stdout());
    for line in stdin().lines() {
        let line = line?;
        let (newer, older) = line.split_once('\t').ok_or_else(|| std::io::Error::other("a line is NEWER<tab>OLDER"))?;
        let (newer_about, older_about) = (about(newer), about(older));
        let (newer_aspects, older_aspects) = (Aspects::of(newer), Aspects::of(older));
        let newer = ComparedStatement { about: &newer_about, aspects: &newer_aspects };
        let older = ComparedStatement { about: &older_about, aspects: &older_aspects };
        let Differences { of_others, names_another, of_another_thing, replaces_nothing, of_unnamed } =
            Differences::between(&newer, &older);
        let bits = [of_others, names_another, of_another_thing, replaces_nothing, of_unnamed].map(u8::from);
        writeln!(out, "{}", bits.map(|bit| bit.to_string()).concat())?;
    }
    Ok(())
}
