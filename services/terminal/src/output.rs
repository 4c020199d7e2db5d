//! Output of commands: tables, numbers, times, JSON, progress. Text from outside cannot control the terminal.

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, ContentArrangement, presets};
use indicatif::{ProgressBar, ProgressStyle};
use model::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::io::{self, StdoutLock, Write};
use std::path::Path;
use text::template::utc;

// Prints a line to the standard output, as `println!` does. A reader that has closed it ends the command by `ClosedOutput`.
#[macro_export]
macro_rules! say {
    () => { $crate::output::put(format_args!("\n")) };
    ($($words:tt)*) => { $crate::output::put(format_args!("{}\n", format_args!($($words)*))) };
}

// Prints a line to the standard error, if something still reads it.
#[macro_export]
macro_rules! note {
    ($($words:tt)*) => { $crate::output::put_note(format_args!("{}\n", format_args!($($words)*))) };
}

pub fn put(words: fmt::Arguments) -> io::Result<()> {
    stdout().write_fmt(words)
}

pub fn put_note(words: fmt::Arguments) {
    let _ = io::stderr().write_fmt(words);
}

// Error of a command whose output has no reader any more, as of `reprise plan | head -n 1`. It is told apart from a
// connection that another machine closed.
#[derive(Debug)]
pub struct ClosedOutput;

impl fmt::Display for ClosedOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output closed it")
    }
}

impl std::error::Error for ClosedOutput {}

// Takes a closed output as the end of the work and not as its failure: the reader has seen enough.
pub fn unless_closed(told: Result<()>) -> Result<()> {
    let is_closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref).is_some_and(|error| error.is::<ClosedOutput>())
    };
    told.or_else(|error| if error.chain().any(is_closed) { Ok(()) } else { Err(error) })
}

// Returns an error and its causes on one line, each told once: many texts have that of their cause in them.
pub fn chain(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        match told.is_empty() {
            true => told = cause,
            false if told.contains(&cause) => {}
            false => told = format!("{told}: {cause}"),
        }
    }
    told
}

pub struct Stdout(StdoutLock<'static>);

pub fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(closed)
    }
}

fn closed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::BrokenPipe { io::Error::other(ClosedOutput) } else { error }
}

pub struct TextTable(comfy_table::Table);

impl TextTable {
    /// Makes a table. A name behind `>` heads a column of numbers, which are aligned at the right.
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

    pub fn row(&mut self, cells: impl Into<Vec<String>>) {
        self.0.add_row(cells.into());
    }

    pub fn print(&self) -> Result<()> {
        Ok(say!("{}", self.0.trim_fmt())?)
    }
}

pub fn print_json(value: &impl Serialize) -> Result<()> {
    Ok(say!("{}", serde_json::to_string_pretty(value)?)?)
}

pub fn write_file(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Prints rows as a table. A column is its heading and the path of its value in a row.
pub fn print_rows(rows: &impl Serialize, columns: &[(&str, &str)]) -> Result<()> {
    table(&serde_json::to_value(rows)?, columns).print()
}

/// Prints the object of `--json` as lines, then lists of objects as tables. Names are the object's.
pub fn print_report(report: &Value, tables: &[&Value]) -> Result<()> {
    let values = leaves(report);
    let width = values.iter().map(|(path, _)| heading(path).len()).max().unwrap_or(0);
    for (path, value) in &values {
        say!("  {:<width$}  {}", heading(path), shown(path, value))?;
    }
    for rows in tables {
        let columns: Vec<(String, String)> =
            leaves(&rows[0]).into_iter().map(|(path, _)| (heading(&path), path)).collect();
        let columns: Vec<(&str, &str)> = columns.iter().map(|(name, path)| (name.as_str(), path.as_str())).collect();
        say!()?;
        table(rows, &columns).print()?;
    }
    Ok(())
}

fn table(rows: &Value, columns: &[(&str, &str)]) -> TextTable {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let mut table = TextTable::new(&names);
    table.0.set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    for row in rows.as_array().into_iter().flatten() {
        let value = |path: &str| row.pointer(&format!("/{path}")).unwrap_or(&Value::Null);
        table.0.add_row(columns.iter().map(|(_, path)| shown(path, value(path))));
        for (column, (_, path)) in table.0.column_iter_mut().zip(columns) {
            if value(path).is_number() {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    table
}

const WIDTH: u16 = 160; // a longer heading is broken

fn leaves(value: &Value) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => {
                found.extend(leaves(value).into_iter().map(|(path, value)| (format!("{key}/{path}"), value)));
            }
            Value::Array(list) if list.iter().any(Value::is_object) => {}
            _ => found.push((key.clone(), value)),
        }
    }
    found
}

/// Writes `first_token_ms/p95` as words, without the unit where the value shows it.
fn heading(path: &str) -> String {
    if let Some(what) = path.strip_suffix("_at_ms") {
        return format!("{} (UTC)", heading(what));
    }
    let path = ["_bytes", "_share"].iter().find_map(|unit| path.strip_suffix(unit)).unwrap_or(path);
    path.replace(['_', '/'], " ")
}

fn shown(path: &str, value: &Value) -> String {
    let key = path.rsplit('/').next().unwrap_or(path);
    let number = value.as_f64().unwrap_or_default();
    match value {
        Value::Null => "-".to_owned(),
        Value::Bool(is_so) => if *is_so { "yes" } else { "no" }.to_owned(),
        Value::String(text) => clean(text),
        Value::Array(list) => list.iter().map(|value| shown(path, value)).collect::<Vec<_>>().join(", "),
        _ if key.ends_with("_at_ms") => time(number as i64),
        _ if key.contains("bytes") => Bytes(number as u64).to_string(),
        _ if key.contains("share") => format!("{:.1} %", number * 100.0),
        Value::Number(whole) if whole.is_u64() => whole.to_string(),
        _ if number != 0.0 && number.abs() < 0.01 => format!("{number:.1e}"),
        _ if number.abs() < 10.0 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

pub fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / (1u64 << 20) as f64)
}

/// Makes a bar on standard error, if that is a terminal.
pub fn progress_bar(end: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(end).with_style(style)
}

/// Joins the lines, and removes the control characters with which a text could take over a terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) { ' ' } else { letter }).collect()
}

pub fn clean_lines(text: &str) -> String {
    text.chars().map(|letter| if is_control(letter) && letter != '\n' { ' ' } else { letter }).collect()
}

fn is_control(letter: char) -> bool {
    // Also the marks that turn the direction of text.
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub fn time(ms: i64) -> String {
    // `2026-11-20 21:32`, in UTC
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
