//! The table: how many, what share, and how far off that may be.

use super::task::Judged;
use anyhow::Result;
use serde_json::{Value, json};

pub struct Scoreboard {
    json: bool,
    wrong: bool,
    sets: Vec<Value>,
}

impl Scoreboard {
    pub fn new(json: bool, wrong: bool) -> Scoreboard {
        if !json {
            println!("{:<28}{:<42}{:>5}{:>9}{:>16}{:>7}", "set", "what", "n", "right", "95 % interval", "aim");
        }
        Scoreboard { json, wrong, sets: Vec::new() }
    }

    /// The table grows while it is measured: some sets take minutes.
    pub fn add(&mut self, name: &str, what: &str, aim: f64, judged: &[Judged]) {
        for Judged { said, expected, .. } in judged.iter().filter(|judged| self.wrong && !judged.right) {
            eprintln!("{name}, {what}: {said:?}, expected {expected}");
        }
        let (right, of) = (judged.iter().filter(|judged| judged.right).count(), judged.len());
        let Some(interval) = experiment::wilson(right, of) else { return };
        let [share, low, high] = [interval.estimate, interval.low, interval.high].map(|share| share * 100.0);
        if !self.json {
            let between = format!("{low:.1} to {high:.1}");
            println!("{name:<28}{what:<42}{of:>5}{share:>8.1}%{between:>16}{:>6.0}%", aim * 100.0);
        }
        self.sets.push(json!({
            "set": name, "what": what, "n": of, "right": right, "share": interval.estimate,
            "low": interval.low, "high": interval.high, "aim": aim,
        }));
    }

    pub fn end(self) -> Result<()> {
        if self.json {
            println!("{}", json!({"sets": self.sets}));
        }
        Ok(())
    }
}
