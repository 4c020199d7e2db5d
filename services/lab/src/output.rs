//! What a command prints: tables, numbers, times, JSON, progress. Words from outside cannot command the terminal.

use anyhow::Result;
use comfy_table::{CellAlignment, presets};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use text::template::utc;

pub struct TextTable(comfy_table::Table);

impl TextTable {
    /// A name behind `>` heads a column of numbers, which are aligned at the right.
    pub fn new(names: &[&str]) -> TextTable {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING).set_header(names.iter().map(|name| name.trim_start_matches('>')));
        for (column, name) in table.column_iter_mut().zip(names) {
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        TextTable(table)
    }

    pub fn row<const CELLS: usize>(&mut self, cells: [String; CELLS]) {
        self.0.add_row(cells.to_vec());
    }

    pub fn print(&self) -> Result<()> {
        Ok(writeln!(std::io::stdout().lock(), "{}", self.0.trim_fmt())?)
    }
}

pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    Ok(writeln!(out)?)
}

/// A dash where there is no number.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

pub fn count(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / (1u64 << 20) as f64)
}

/// On standard error, and only where that is a terminal.
pub fn progress_bar(end: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(end).with_style(style)
}

/// On one line, and without the control characters with which a text could take over a terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) { ' ' } else { letter }).collect()
}

/// As `clean`, with its lines.
pub fn clean_lines(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) && letter != '\n' { ' ' } else { letter }).collect()
}

/// Also the marks that turn the direction of what follows.
fn is_control(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `2026-11-20 21:32`, in UTC.
pub fn time(ms: i64) -> String {
    utc(ms.div_euclid(1000)).strftime("%F %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // As `date -u -d @SECONDS` prints them.
        for (seconds, expected) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_164_800, "2024-02-29 00:00"),
            (4_107_542_400, "2100-03-01 00:00"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(time(seconds * 1000), expected);
        }
    }

    #[test]
    fn columns_line_up_and_texts_stay_in_them() {
        let mut table = TextTable::new(&["a", ">number", "b", ""]);
        table.row(["long word".into(), "7".into(), clean("two\nlines \x1b[2J"), String::new()]);
        assert_eq!(table.0.trim_fmt(), "a          number  b\nlong word       7  two lines  [2J");
    }
}
