//! Flags of a command line: values that several commands take, and mistakes that only the command itself finds.

use std::fmt;

// Mistake in the command line, which ends a command with the exit code that clap has for one.
#[derive(Debug)]
pub struct WrongUse(anyhow::Error);

impl fmt::Display for WrongUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::output::chain(&self.0))
    }
}

impl std::error::Error for WrongUse {}

pub fn wrong_use(error: impl Into<anyhow::Error>) -> anyhow::Error {
    WrongUse(error.into()).into()
}

// Parses a number from 1 upwards.
pub fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number from 1 upwards".to_owned()),
        Ok(count) => Ok(count),
    }
}

// Parses a number from `LEAST` upwards.
pub fn at_least<const LEAST: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| *number >= LEAST);
    number.ok_or_else(|| format!("give a whole number from {LEAST} upwards"))
}

// Parses a share from 0 to 1.
pub fn share(text: &str) -> Result<f32, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

// Returns a number with its noun, which has an `s` where the number is not 1.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_least_value_and_a_noun() {
        assert_eq!(["1", "0", "-1", "x"].map(|text| count(text).ok()), [Some(1), None, None, None]);
        assert_eq!(["3", "2"].map(|text| at_least::<3>(text).ok()), [Some(3), None]);
        assert_eq!(["1", "0.5", "2", "NaN"].map(|text| share(text).ok()), [Some(1.0), Some(0.5), None, None]);
        assert_eq!([0, 1, 2].map(|number| counted(number, "chunk")), ["0 chunks", "1 chunk", "2 chunks"]);
    }

    #[test]
    fn a_mistake_tells_each_cause_once() {
        let missing = std::io::Error::other("no such file");
        let error = anyhow::Error::new(missing).context("a.gguf: no such file").context("cannot read it");
        assert_eq!(wrong_use(error).to_string(), "cannot read it: a.gguf: no such file");
    }
}
