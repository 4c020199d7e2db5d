//! Text for a terminal: columns, times, and words that cannot command it.

use anyhow::Result;
use std::io::Write;

pub fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    Ok(writeln!(out)?)
}

#[derive(Clone, Copy)]
pub enum Align {
    Left,
    Right,
}

/// As wide as its widest words.
pub struct Table<const COLUMNS: usize> {
    columns: [(&'static str, Align); COLUMNS],
    rows: Vec<[String; COLUMNS]>,
}

impl<const COLUMNS: usize> Table<COLUMNS> {
    pub fn new(columns: &[(&'static str, Align); COLUMNS]) -> Table<COLUMNS> {
        Table { columns: *columns, rows: Vec::new() }
    }

    pub fn row(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row);
    }

    pub fn print(&self) -> std::io::Result<()> {
        write!(std::io::stdout().lock(), "{}", self.text())
    }

    fn text(&self) -> String {
        let head = self.columns.map(|(name, _)| name.to_owned());
        let widths: [usize; COLUMNS] = std::array::from_fn(|column| {
            std::iter::once(&head).chain(&self.rows).map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let padding = " ".repeat(widths[column] - cell.chars().count());
                match self.columns[column].1 {
                    Align::Left => line.extend([cell.as_str(), &padding, "  "]),
                    Align::Right => line.extend([padding.as_str(), cell, "  "]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
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
    let minutes = ms.div_euclid(60_000);
    let (days, minute) = (minutes.div_euclid(24 * 60), minutes.rem_euclid(24 * 60));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", minute / 60, minute % 60)
}

/// Years are counted from March, so that the day that comes and goes is the last one.
fn date(days_since_1970: i64) -> (i64, i64, i64) {
    const DAYS_TO_1970: i64 = 719_468; // from the first of March of the year 0
    const DAYS_OF_400_YEARS: i64 = 146_097;
    let days = days_since_1970 + DAYS_TO_1970;
    let (era, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
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
        let mut table = Table::new(&[("a", Align::Left), ("number", Align::Right), ("b", Align::Left)]);
        table.row(["long word".into(), "7".into(), clean("two\nlines \x1b[2J")]);
        assert_eq!(table.text(), "a          number  b\nlong word       7  two lines  [2J\n");
    }
}
