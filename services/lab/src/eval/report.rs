//! The table: how many, what share, and how far off that may be.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Value, json};

pub struct Report {
    json: bool,
    wrong: bool,
    rows: Vec<Value>,
}

pub struct Row {
    name: &'static str,
    what: &'static str,
    aim: f64,
    right: usize,
    of: usize,
}

impl Row {
    pub fn new(name: &'static str, what: &'static str, aim: f64) -> Row {
        Row { name, what, aim, right: 0, of: 0 }
    }

    pub fn count(&mut self, right: bool) {
        self.of += 1;
        self.right += usize::from(right);
    }
}

impl Report {
    pub fn new(json: bool, wrong: bool) -> Report {
        if !json {
            println!("{:<28}{:<42}{:>5}{:>9}{:>16}{:>7}", "set", "what", "n", "right", "95 % interval", "aim");
        }
        Report { json, wrong, rows: Vec::new() }
    }

    pub fn answered(&self, set: &str, right: bool, said: &str, expected: &impl Serialize) {
        if self.wrong && !right {
            eprintln!("{set}: {said:?}, expected {}", json!(expected));
        }
    }

    /// A table grows while it is measured: some sets take minutes.
    pub fn row(&mut self, row: Row) {
        let Row { name, what, aim, right, of } = row;
        let Some(interval) = experiment::wilson(right, of) else { return };
        let [share, low, high] = [interval.estimate, interval.low, interval.high].map(|share| share * 100.0);
        if !self.json {
            let between = format!("{low:.1} to {high:.1}");
            println!("{name:<28}{what:<42}{of:>5}{share:>8.1}%{between:>16}{:>6.0}%", aim * 100.0);
        }
        self.rows.push(json!({
            "set": name, "what": what, "n": of, "right": right, "share": interval.estimate,
            "low": interval.low, "high": interval.high, "aim": aim,
        }));
    }

    pub fn end(self) -> Result<()> {
        if self.json {
            println!("{}", json!({"sets": self.rows}));
        }
        Ok(())
    }
}
