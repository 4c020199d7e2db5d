//! A comparison in letters.

use super::Report;
use super::curves::Curve;
use super::recall::{FILL_NAMES, Part};
use crate::output::{Align, Table, clean};
use crate::plot::{Plot, Series};
use anyhow::Result;
use experiment::{Cell, Comparison, Difference, Metric, Row, Statistic, Unit, Verdict};
use std::path::Path;

pub fn print(report: &Report, html: Option<&Path>) -> Result<()> {
    let Report { title, facts, comparison, curves, recall } = report;
    println!("{title}");
    for fact in facts {
        println!("  {fact}");
    }
    println!();
    let mut arms = Table::new(&[
        ("arm", Align::Left),
        ("", Align::Left),
        ("users", Align::Right),
        ("sessions", Align::Right),
        ("turns", Align::Right),
    ]);
    for (index, (arm, seen)) in comparison.arms.iter().zip(&comparison.traffic).enumerate() {
        let count = |count: usize| count.to_string();
        arms.row([letter(index), clean(arm), count(seen.users), count(seen.sessions), count(seen.turns)]);
    }
    arms.print()?;
    for other in 1..comparison.arms.len() {
        println!("\n{}", of_two(comparison, other));
        side_by_side(comparison, other).print()?;
    }
    println!("\n{}", method(comparison));
    for warning in &comparison.warnings {
        println!("warning: {}", clean(&warning.to_string()));
    }
    if !recall.is_empty() {
        println!("\nFacts recalled, by where the fact stood when it was asked for:");
        let mut table = Table::new(&[
            ("arm", Align::Left),
            ("fact", Align::Left),
            ("right", Align::Right),
            ("95 % interval", Align::Right),
            (FILL_NAMES[0], Align::Right),
            (FILL_NAMES[1], Align::Right),
            (FILL_NAMES[2], Align::Right),
            (FILL_NAMES[3], Align::Right),
        ]);
        for of in recall {
            let part = |at: usize| of.by_fill.get(at).copied().map_or_else(String::new, part_words);
            table.row([
                letter(of.arm),
                of.zone.words().to_owned(),
                format!("{} of {}", of.right, of.asked),
                format!("{:.0} to {:.0} %", of.low * 100.0, of.high * 100.0),
                part(0),
                part(1),
                part(2),
                part(3),
            ]);
        }
        table.print()?;
    }
    for curve in curves {
        println!("\n{}", plot(curve).text());
    }
    if let Some(file) = html {
        println!("\npage: {}", file.display());
    }
    Ok(())
}

pub fn part_words(part: Part) -> String {
    if part.asked == 0 { "-".to_owned() } else { format!("{} of {}", part.right, part.asked) }
}

/// How the verdicts came about, for who has to trust them.
pub fn method(comparison: &Comparison) -> String {
    let unit = match comparison.unit {
        Unit::Users => "users with all their turns",
        Unit::Sessions => "whole sessions",
        Unit::Pairs => "blocks of five turns that all arms heard at the same time",
    };
    let level = comparison.level * 100.0;
    format!(
        "Intervals are of the bootstrap, drawing {unit}. They hold for all rows together in {level:.0} of 100 comparisons:\n\
         `no difference shown` means that zero is inside."
    )
}

fn of_two(comparison: &Comparison, other: usize) -> String {
    let name = |index: usize| comparison.arms.get(index).map(|arm| clean(arm)).unwrap_or_default();
    format!(
        "{} = {}, {} = {}; differences are {} less {}",
        letter(0),
        name(0),
        letter(other),
        name(other),
        letter(other),
        letter(0)
    )
}

fn side_by_side(comparison: &Comparison, other: usize) -> Table<9> {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("n", Align::Right),
        ("A", Align::Right),
        ("p95", Align::Right),
        ("n", Align::Right),
        (LETTERS.get(other).copied().unwrap_or("-"), Align::Right),
        ("p95", Align::Right),
        ("difference", Align::Right),
        ("", Align::Left),
    ]);
    for row in &comparison.rows {
        let of = |index: usize| cells(row, index);
        let ([n, value, p95], [other_n, other_value, other_p95]) = (of(0), of(other));
        let found = row.differences.get(other - 1).copied().flatten();
        let (difference, words) = match found {
            Some(found) => (interval(row.metric, &found), verdict(&found)),
            None => (String::new(), String::new()),
        };
        let name = row.metric.words().to_owned();
        table.row([name, n, value, p95, other_n, other_value, other_p95, difference, words]);
    }
    table
}

/// How many, what stands for them, and what 95 in 100 do not pass.
pub fn cells(row: &Row, arm: usize) -> [String; 3] {
    let Some(cell) = row.cells.get(arm).copied().flatten() else { return ["0".into(), "-".into(), "-".into()] };
    let p95 = match row.metric.statistic() {
        Statistic::Median => number(row.metric, cell.summary.p95),
        Statistic::Mean | Statistic::P95 => String::new(),
    };
    [cell.summary.n.to_string(), number(row.metric, central(row.metric, &cell)), p95]
}

pub fn central(metric: Metric, cell: &Cell) -> f64 {
    match metric.statistic() {
        Statistic::Median => cell.summary.median,
        Statistic::P95 => cell.summary.p95,
        Statistic::Mean => cell.mean,
    }
}

pub fn interval(metric: Metric, found: &Difference) -> String {
    let signed = |value: f64| {
        let text = number(metric, value);
        if value > 0.0 && !text.starts_with('-') { format!("+{text}") } else { text }
    };
    let (low, high) = (signed(found.interval.low), signed(found.interval.high));
    format!("{} ({low} to {high})", signed(found.interval.estimate))
}

pub fn verdict(found: &Difference) -> String {
    let share = match (found.verdict, found.relative) {
        (Verdict::Higher | Verdict::Lower, Some(relative)) => format!(" by {:.0} %", relative.abs() * 100.0),
        _ => String::new(),
    };
    format!("{}{share}", found.verdict.words())
}

/// A value with its unit.
pub fn number(metric: Metric, value: f64) -> String {
    // What is rounded to nothing has no sign.
    let text = with_unit(metric, value);
    if value < 0.0 && !text.contains(|letter: char| letter.is_ascii_digit() && letter != '0') {
        return with_unit(metric, 0.0);
    }
    text
}

fn with_unit(metric: Metric, value: f64) -> String {
    let plain = |value: f64| match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match metric {
        Metric::FirstTokenMs | Metric::FirstTokenP95Ms | Metric::FirstSentenceMs | Metric::TotalMs => {
            format!("{} ms", plain(value))
        }
        Metric::DecodeTokensPerSecond => format!("{}/s", plain(value)),
        Metric::TokensIn | Metric::TokensOut | Metric::ReusedTokens | Metric::ComputedTokens => format!("{value:.0}"),
        Metric::Compactions | Metric::Drops => format!("{value:.3}"),
        Metric::SessionBytes | Metric::GpuBytes => format!("{} MiB", plain(value / f64::from(1 << 20))),
        Metric::FillShare
        | Metric::BargeIns
        | Metric::Regenerations
        | Metric::ThumbsUp
        | Metric::Failures
        | Metric::Recall => format!("{:.1} %", value * 100.0),
    }
}

pub fn letter(arm: usize) -> String {
    LETTERS.get(arm).map_or_else(|| (arm + 1).to_string(), |letter| (*letter).to_owned())
}

const LETTERS: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];
/// Where two arms meet the later one is seen.
const MARKS: [char; 8] = ['o', 'x', '+', '*', '#', '@', '%', '='];

/// In which unit a curve is drawn, and what to divide by.
pub fn scale(metric: Metric) -> (&'static str, f64) {
    match metric {
        Metric::FillShare => ("% of the window", 0.01),
        Metric::SessionBytes | Metric::GpuBytes => ("MiB", f64::from(1 << 20)),
        Metric::DecodeTokensPerSecond => ("tokens/s", 1.0),
        _ => ("ms", 1.0),
    }
}

fn plot(curve: &Curve) -> Plot {
    let (unit, divisor) = scale(curve.metric);
    let arms = curve.arms.iter().zip(LETTERS).zip(MARKS);
    let series = arms.map(|((points, name), mark)| {
        let points = points.iter().map(|point| (point.turn, point.median / divisor)).collect();
        Series { name, mark, points }
    });
    let title = format!("{} at each turn (median)", capitalised(curve.metric.words()));
    Plot { title, x: "turns", y: unit, series: series.collect() }
}

pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_units() {
        for (metric, value, expected) in [
            (Metric::FirstTokenMs, 32.04, "32.0 ms"),
            (Metric::TotalMs, 1234.5, "1234 ms"),
            (Metric::FillShare, 0.421, "42.1 %"),
            (Metric::SessionBytes, 3.5 * 1048576.0, "3.50 MiB"),
            (Metric::Compactions, 0.05, "0.050"),
            (Metric::TokensIn, 400.4, "400"),
            (Metric::TokensIn, -0.4, "0"),
            (Metric::FillShare, -0.004, "-0.4 %"),
            (Metric::DecodeTokensPerSecond, 50.0, "50.0/s"),
        ] {
            assert_eq!(number(metric, value), expected);
        }
    }
}
