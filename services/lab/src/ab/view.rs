//! Words and numbers with their units of a comparison, for the terminal and for the page.

use super::ArmReport;
use super::curves::Curve;
use crate::charts::{Chart, Series};
use experiment::{
    Advice, ArmSummary, Better, ComparedUnit, Comparison, Difference, DifferenceVerdict, Metric, MetricRow, MetricUnit,
    Statistic,
};
use serde::Serialize;
use terminal::output::capitalised;

#[derive(Serialize)]
pub struct ReportView {
    pub letters: Vec<String>, // one an arm
    pub warnings: Vec<String>,
    pub leads: Vec<String>, // the table in sentences
    pub rows: Vec<RowView>,
    pub method: String, // how the verdicts came about
    pub advice: String, // one sentence
}

#[derive(Serialize)]
pub struct RowView {
    pub name: &'static str,
    /// Rows of each arm: the count, the value, and the number that 95 in 100 do not pass.
    pub cells: Vec<[String; 3]>,
    /// Comparison of every arm but the first: the interval, the verdict, and whether that is good or bad.
    pub differences: Vec<[String; 3]>,
}

impl ReportView {
    pub fn new(report: &ArmReport) -> ReportView {
        let comparison = &report.comparison;
        ReportView {
            letters: (0..comparison.arms.len()).map(letter).collect(),
            warnings: comparison.warnings.iter().map(ToString::to_string).collect(),
            leads: (1..comparison.arms.len()).map(|other| lead(comparison, other)).collect(),
            rows: comparison.rows.iter().map(row).collect(),
            method: method(comparison),
            advice: advice(comparison),
        }
    }
}

pub fn chart(curve: &Curve) -> Chart {
    let (unit, divisor) = match curve.metric.unit() {
        MetricUnit::Share => ("% of the window", 0.01),
        MetricUnit::Bytes => ("MiB", MIB),
        MetricUnit::TokensPerSecond => ("tokens/s", 1.0),
        _ => ("ms", 1.0),
    };
    let arms = curve.arms.iter().zip(LETTERS).zip(MARKS);
    let series = arms.map(|((points, name), mark)| Series {
        name,
        mark,
        points: points.iter().map(|point| (point.turn, point.median / divisor)).collect(),
        band: points.iter().map(|point| (point.p10 / divisor, point.p90 / divisor)).collect(),
    });
    let title = format!("{} at each turn (median)", capitalised(curve.metric.words()));
    Chart { title, x: "turns", y: unit, series: series.collect() }
}

fn lead(comparison: &Comparison, other: usize) -> String {
    let found: Vec<(&MetricRow, Difference)> = comparison
        .rows
        .iter()
        .filter_map(|row| Some((row, row.differences.get(other - 1).copied().flatten()?)))
        .collect();
    let shown: Vec<String> = found
        .iter()
        .filter(|(_, found)| matches!(found.verdict, DifferenceVerdict::Higher | DifferenceVerdict::Lower))
        .map(|(row, found)| format!("{} is {}", row.metric.words(), verdict(found)))
        .collect();
    let (arm, first) = (letter(other), letter(0));
    let too_few = found.iter().all(|(_, found)| found.verdict == DifferenceVerdict::TooFew);
    match (shown.is_empty(), too_few) {
        (true, true) => format!("There are too few turns to tell {arm} from {first}."),
        (true, false) => format!("Between {first} and {arm} there is no difference shown."),
        (false, _) => format!("In {arm}, compared with {first}: {}.", shown.join("; ")),
    }
}

fn row(row: &MetricRow) -> RowView {
    let difference = |found: &Option<Difference>| {
        let Some(found) = found else { return Default::default() };
        [interval(row.metric, found), verdict(found), class(row.metric.better(), found.verdict).to_owned()]
    };
    RowView {
        name: row.metric.words(),
        cells: row.cells.iter().map(|cell| cells(row.metric, cell.as_ref())).collect(),
        differences: row.differences.iter().map(difference).collect(),
    }
}

fn cells(metric: Metric, of: Option<&ArmSummary>) -> [String; 3] {
    let Some(of) = of else { return ["0".into(), "-".into(), "-".into()] };
    let statistic = metric.statistic();
    let p95 = if statistic == Statistic::Median { number(metric, of.summary.p95) } else { String::new() };
    [of.summary.n.to_string(), number(metric, of.value(statistic)), p95]
}

fn class(better: Better, verdict: DifferenceVerdict) -> &'static str {
    match (verdict, better) {
        (DifferenceVerdict::NoDifferenceShown | DifferenceVerdict::TooFew, _) => "quiet",
        (_, Better::Neither) => "",
        (DifferenceVerdict::Higher, Better::Higher) | (DifferenceVerdict::Lower, Better::Lower) => "good",
        _ => "bad",
    }
}

fn method(comparison: &Comparison) -> String {
    let drawing = |unit: &str| format!("Intervals are of the bootstrap, drawing {unit}.");
    let own = |unit: &str| {
        format!(
            "Intervals are of Student's t: {unit} of one user met all arms in turn, which compares each user with itself."
        )
    };
    let how = match comparison.unit {
        ComparedUnit::Users => drawing("users with all their turns"),
        ComparedUnit::Sessions => drawing("whole sessions"),
        ComparedUnit::Pairs => drawing("blocks of five turns that all arms heard at the same time"),
        ComparedUnit::OwnSessions => own("sessions"),
        ComparedUnit::OwnDays => own("days"),
    };
    let level = comparison.level * 100.0;
    format!(
        "{how} They hold for all rows together in {level:.0} of 100 comparisons:\n\
         \"no difference shown\" means that zero is inside."
    )
}

fn advice(comparison: &Comparison) -> String {
    let named = |arm: usize| format!("{} ({})", letter(arm), comparison.arms[arm]);
    let words =
        |metrics: &[Metric]| -> String { metrics.iter().map(|metric| metric.words()).collect::<Vec<_>>().join(", ") };
    match comparison.advice() {
        Advice::Take { arm, better } => {
            format!("Take {}: in it {} came out better, and nothing is shown to be worse.", named(arm), words(&better))
        }
        Advice::Weigh { arm, better, worse } => {
            let (better, worse) = (words(&better), words(&worse));
            format!("Weigh it: {} is better in {better} and worse in {worse}.", named(arm))
        }
        Advice::Measure { metric, more_units } => {
            let unit = match comparison.unit {
                ComparedUnit::Users => "users",
                ComparedUnit::Sessions | ComparedUnit::OwnSessions => "sessions",
                ComparedUnit::OwnDays => "days",
                ComparedUnit::Pairs => "blocks of turns",
            };
            format!(
                "Go on measuring: about {more_units} more {unit} would show the difference in {} that there is now, four times \
                 in five.",
                metric.words()
            )
        }
        Advice::TooLittle => "Go on measuring: there is too little yet to tell the arms apart.".to_owned(),
        Advice::Nothing => "Take the smaller window: no difference is shown, and none seems to be there.".to_owned(),
    }
}

fn interval(metric: Metric, found: &Difference) -> String {
    let signed = |value: f64| {
        let text = number(metric, value);
        if value > 0.0 && !text.starts_with('-') { format!("+{text}") } else { text }
    };
    let (low, high) = (signed(found.interval.low), signed(found.interval.high));
    format!("{} ({low} to {high})", signed(found.interval.estimate))
}

fn verdict(found: &Difference) -> String {
    let share = match (found.verdict, found.relative) {
        (DifferenceVerdict::Higher | DifferenceVerdict::Lower, Some(relative)) => {
            format!(" by {:.0} %", relative.abs() * 100.0)
        }
        _ => String::new(),
    };
    format!("{}{share}", found.verdict.into_str())
}

fn number(metric: Metric, value: f64) -> String {
    // A number that rounds to zero has no sign.
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
    match metric.unit() {
        MetricUnit::Ms => format!("{} ms", plain(value)),
        MetricUnit::TokensPerSecond => format!("{}/s", plain(value)),
        MetricUnit::Tokens => format!("{value:.0}"),
        MetricUnit::Times => format!("{value:.3}"),
        MetricUnit::Bytes => format!("{} MiB", plain(value / MIB)),
        MetricUnit::Share => format!("{:.1} %", value * 100.0),
    }
}

const MIB: f64 = (1u64 << 20) as f64;

fn letter(arm: usize) -> String {
    LETTERS.get(arm).map_or_else(|| (arm + 1).to_string(), |letter| (*letter).to_owned())
}

const LETTERS: [&str; 8] = ["A", "B", "C", "D", "E", "F", "G", "H"];
const MARKS: [char; 8] = ['o', 'x', '+', '*', '#', '@', '%', '='];

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
