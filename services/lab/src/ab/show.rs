//! A comparison on the terminal.

use super::ArmReport;
use super::recall::FILL_NAMES;
use super::view::{ReportView, chart};
use anyhow::Result;
use std::path::Path;
use terminal::output::{TextTable, clean};
use terminal::say;

pub fn print(report: &ArmReport, html: Option<&Path>) -> Result<()> {
    let view = ReportView::new(report);
    let (comparison, letters) = (&report.comparison, &view.letters);
    say!("{}", report.title)?;
    for fact in &report.facts {
        say!("  {fact}")?;
    }
    say!()?;
    let mut table = TextTable::new(&["arm", "", ">users", ">sessions", ">turns"]);
    for ((letter, arm), seen) in letters.iter().zip(&comparison.arms).zip(&comparison.traffic) {
        let [users, sessions, turns] = [seen.users, seen.sessions, seen.turns].map(|count| count.to_string());
        table.row([letter.clone(), clean(arm), users, sessions, turns]);
    }
    table.print()?;
    for other in 1..letters.len() {
        let [a, b] = [0, other].map(|at| &letters[at]);
        let [first, second] = [0, other].map(|at| clean(&comparison.arms[at]));
        say!("\n{a} = {first}, {b} = {second}; differences are {b} less {a}")?;
        let (a, b) = (format!(">{a}"), format!(">{b}"));
        let mut table = TextTable::new(&["", ">n", &a, ">p95", ">n", &b, ">p95", ">difference", ""]);
        for row in &view.rows {
            let ([n, value, p95], [other_n, other_value, other_p95]) = (row.cells[0].clone(), row.cells[other].clone());
            let [interval, verdict, _] = row.differences[other - 1].clone();
            table.row([row.name.to_owned(), n, value, p95, other_n, other_value, other_p95, interval, verdict]);
        }
        table.print()?;
    }
    say!("\n{}", view.method)?;
    say!("{}", clean(&view.advice))?;
    for warning in &view.warnings {
        say!("warning: {}", clean(warning))?;
    }
    if !report.recall.is_empty() {
        say!("\nFacts recalled, by where the fact stood when it was asked for:")?;
        let [a, b, c, d] = FILL_NAMES.map(|name| format!(">{name}"));
        let mut table = TextTable::new(&["arm", "fact", ">right", ">95 % interval", &a, &b, &c, &d]);
        for row in &report.recall {
            let interval = format!("{:.0} to {:.0} %", row.low * 100.0, row.high * 100.0);
            let part = |at: usize| match row.by_fill.get(at) {
                Some(part) if part.asked > 0 => format!("{} of {}", part.right, part.asked),
                _ => "-".to_owned(),
            };
            let (letter, zone) = (letters[row.arm].clone(), row.zone.words().to_owned());
            let right = format!("{} of {}", row.right, row.asked);
            table.row([letter, zone, right, interval, part(0), part(1), part(2), part(3)]);
        }
        table.print()?;
    }
    for curve in &report.curves {
        say!("\n{}", chart(curve).text())?;
    }
    if let Some(file) = html {
        say!("\npage: {}", file.display())?;
    }
    Ok(())
}
